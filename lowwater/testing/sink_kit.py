"""The conformance check for sinks: each row once, whatever dies between two steps of a run."""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from lowwater.engine.local import durable
from lowwater.engine.local.delivery import Sink
from lowwater.engine.local.durable import POINTS
from lowwater.errors import LowwaterError, LowwaterWarning

_FILES, _ROWS = 3, 24
_SECOND = 1_000_000


@final
class _Died(Exception):
    """Ends a run between two steps."""


def check_sink(
    make: Callable[[int], Sink],
    read: Callable[[int], Iterable[Mapping[str, Any]]],
    *,
    is_owned: bool = True,
) -> None:
    """Check that a sink gives each row of a run with a state directory once.

    The same pipeline runs again and again, each time into an empty place: undisturbed, with a death
    at each point between two steps of the protocol, with two deaths, in three runs up to what is
    there, and over an older copy of its state. The rows are those of windows, with the columns
    ``key``, ``window_start``, ``n`` and ``total``; no two are alike.

    Args:
        make: Returns a new sink for the place of a number; places are empty at first.
        read: Returns the rows at the place of a number, each with ``key`` and ``total``.
        is_owned: Whether the sink refuses what another state directory writes to its place, and an
            older copy of its own. A sink that cannot is at most as good as its numbers of
            deliveries.

    Raises:
        AssertionError: A row is missing, comes twice, or a place was not refused; the message says
            after what.
    """
    with tempfile.TemporaryDirectory() as name, _quietly():
        trials = _Trials(make, read, Path(name))
        trials.undisturbed()
        for point in POINTS:
            for count in (1, 4):
                trials.killed([(point, count)])
        for first, second in zip(POINTS, reversed(POINTS), strict=True):
            trials.killed([(first, 2), (second, 1)])
        trials.in_several_runs()
        if is_owned:
            trials.over_an_older_copy()
            trials.by_another_state()


@contextmanager
def _quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LowwaterWarning)
        yield


@final
class _Trials:
    def __init__(
        self,
        make: Callable[[int], Sink],
        read: Callable[[int], Iterable[Mapping[str, Any]]],
        folder: Path,
    ) -> None:
        self._make, self._read, self._folder = make, read, folder
        self._number = 0
        self._wanted: Counter[tuple[str, int]] = Counter()
        self._in = folder / "in"
        self._in.mkdir()

    def undisturbed(self) -> None:
        """Run once, and keep what came out, which must not be nothing."""
        self._begin()
        self._add(_FILES)
        self._run()
        self._wanted = self._rows()
        of_inputs = _expected(_FILES)
        self._compare("an undisturbed run", of_inputs)

    def killed(self, deaths: list[tuple[str, int]]) -> None:
        """Run with deaths at points, and then to the end."""
        self._begin()
        for death in deaths:
            with _dying(*death):
                try:
                    self._run()
                except _Died:
                    continue
            break
        else:
            self._run()
        told = ", then ".join(f"at {point!r} for time {count}" for point, count in deaths)
        self._compare(f"a death {told}", self._wanted)

    def in_several_runs(self) -> None:
        """Run up to what is there, three times, and then to the end."""
        self._begin()
        for count in range(1, _FILES + 1):
            self._add(count)
            self._run(until="available")
        self._run()
        self._compare("three runs with until='available'", self._wanted)

    def over_an_older_copy(self) -> None:
        """Go on from a copy of the state that knows less than the place."""
        self._begin()
        self._add(1)
        self._run(until="available")
        shutil.copytree(self._state, self._folder / "older")
        self._add(2)
        self._run(until="available")
        before = self._rows()
        shutil.rmtree(self._state)
        (self._folder / "older").rename(self._state)
        self._add(_FILES)
        self._refused("an older copy of the state directory", before)

    def by_another_state(self) -> None:
        """Let another state directory write to the place."""
        self._begin()
        self._add(1)
        self._run()
        before = self._rows()
        shutil.rmtree(self._state)
        self._refused("another state directory", before)

    @property
    def _state(self) -> Path:
        return self._folder / "state"

    def _begin(self) -> None:
        self._number += 1
        shutil.rmtree(self._state, ignore_errors=True)
        self._add(_FILES)

    def _add(self, count: int) -> None:
        """Let there be so many files of input."""
        for path in self._in.iterdir():
            path.unlink()
        for number in range(count):
            lines = "".join(json.dumps(row) + "\n" for row in _input(number))
            (self._in / f"{number}.jsonl").write_text(lines)

    def _run(self, **options: Any) -> None:
        from lowwater import BoundedDisorder, FixedWindows, ManualClock, count, read_jsonl
        from lowwater import sum as total

        stream = read_jsonl(
            self._in, time="at", unit="us", watermark=BoundedDisorder("1s"), clock=ManualClock(0)
        )
        windows = stream.key_by("key").window(FixedWindows("10s"))
        panes = windows.aggregate(n=count(), total=total("value"))
        panes.write_to(self._make(self._number)).run(
            state=self._state, bundle_size=8, commit_every="bundle", progress=False, **options
        )

    def _rows(self) -> Counter[tuple[str, int]]:
        rows = self._read(self._number)
        return Counter((str(row["key"]), int(row["total"])) for row in rows)

    def _compare(self, after: str, wanted: Counter[tuple[str, int]]) -> None:
        found = self._rows()
        missing, more = wanted - found, found - wanted
        assert not missing, f"after {after}, {len(missing)} rows are missing: {_some(missing)}"
        assert not more, (
            f"after {after}, {len(more)} rows are there that are one too many: " + _some(more)
        )

    def _refused(self, what: str, before: Counter[tuple[str, int]]) -> None:
        try:
            self._run()
        except LowwaterError:
            self._compare(f"{what} was refused", before)
            return
        raise AssertionError(
            f"{what} was not refused: open has to compare the writer with the one whose output is "
            "there (Writer.id, Writer.follows, Writer.epoch)"
        )


@contextmanager
def _dying(name: str, count: int) -> Iterator[None]:
    """End the run when it comes to a point for that time."""
    left, former = count, durable.on_point

    def on_point(point: str) -> None:
        nonlocal left
        left -= point == name
        if not left:
            left = -1
            raise _Died

    durable.on_point = on_point
    try:
        yield
    finally:
        durable.on_point = former


def _input(number: int) -> list[dict[str, Any]]:
    """Return the records of a file, of which no two windows have the same total."""
    return [
        {"at": at * _SECOND, "key": "abc"[at % 3], "value": 2 ** (at % 7) * 1_000 + at}
        for at in range(number * _ROWS, number * _ROWS + _ROWS)
    ]


def _expected(files: int) -> Counter[tuple[str, int]]:
    totals: Counter[tuple[str, int]] = Counter()
    for number in range(files):
        for row in _input(number):
            totals[row["key"], row["at"] // (10 * _SECOND)] += row["value"]
    return Counter((key, value) for (key, _), value in totals.items())


def _some(rows: Counter[tuple[str, int]]) -> str:
    return ", ".join(f"key {key!r} with total {total}" for key, total in sorted(rows)[:3])
