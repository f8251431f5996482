"""Files picked up as they appear: heartbeats, half-written files, and going on after a crash."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.local import durable
from lowwater.io import follow
from lowwater.pipeline import Stream, Writing
from tests.examples import is_campaign

pytestmark = pytest.mark.slow(
    reason="runs that follow, killed again and again"
)  # left to `make test`

Reader = Callable[..., Stream]
Write = Callable[[Path, list[dict[str, Any]]], None]
SECOND = 1_000_000


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    pa_csv.write_csv(pa.Table.from_pylist(rows), path)


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


KINDS = [
    pytest.param(lw.read_parquet, write_parquet, "parquet", id="parquet"),
    pytest.param(lw.read_csv, write_csv, "csv", id="csv"),
    pytest.param(lw.read_jsonl, write_jsonl, "jsonl", id="jsonl"),
]


def deaths(*of: Any) -> list[Any]:
    """Return each sort of death, with files of one kind; ``make nightly`` tries all kinds."""
    pairs = itertools.product(enumerate(of), enumerate(KINDS))
    return [
        pytest.param(one, *kind.values, id=f"{one}-{kind.id}")
        for (at, one), (number, kind) in pairs
        if is_campaign() or number == at % len(KINDS)
    ]


class FakeWait:
    """Stands for the passing of time: at each wait it does what comes next, if anything does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *actions: Callable[[], object]) -> None:
        self.waited: list[float] = []
        self._actions: Iterator[Callable[[], object]] = iter(actions)
        monkeypatch.setattr(follow, "wait", self)
        monkeypatch.setattr(follow, "stopwatch", lambda: 0.0)

    def __call__(self, seconds: float) -> None:
        self.waited.append(seconds)
        next(self._actions, nothing)()


def nothing() -> None:
    pass


def rows(*values: int) -> list[dict[str, Any]]:
    return [{"t": value * SECOND, "k": "a", "v": value} for value in values]


def collected(stream: Stream, **options: Any) -> list[int]:
    """Return the values in the order they were read."""
    windowed = stream.key_by("k").window(lw.GlobalWindow())
    panes = windowed.aggregate(lw.collect("v")).collect(**options).panes
    return list(panes[0].value) if panes else []


@pytest.mark.parametrize(("read", "write", "suffix"), KINDS)
def test_new_files_are_read_as_they_appear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Reader, write: Write, suffix: str
) -> None:
    def two() -> None:
        write(tmp_path / f"y.{suffix}", rows(4))
        write(tmp_path / f"b.{suffix}", rows(3))
        write(tmp_path / f".hidden.{suffix}", rows(99))
        write(tmp_path / f"c.{suffix}.tmp", rows(99))

    waits = FakeWait(
        monkeypatch, nothing, two, nothing, lambda: write(tmp_path / f"a.{suffix}", rows(5))
    )
    write(tmp_path / f"x.{suffix}", rows(1, 2))
    found = collected(read(tmp_path, time="t", follow=True, max_idle="3s"))
    assert found == [1, 2, 3, 4, 5]
    assert waits.waited == [1.0] * 7  # four with the actions, three of which nothing came


@pytest.mark.parametrize(("read", "write", "suffix"), KINDS)
@pytest.mark.parametrize("pattern", ["", "*"])
def test_a_folder_with_nothing_in_it_yet(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Reader,
    write: Write,
    suffix: str,
    pattern: str,
) -> None:
    FakeWait(
        monkeypatch,
        (tmp_path / f"a.{suffix}").touch,
        lambda: write(tmp_path / f"a.{suffix}", rows(1)),
    )
    stream = read(tmp_path / pattern, time="t", follow=True, max_idle="2s")
    assert stream.columns is None
    assert collected(stream) == [1]


@pytest.mark.parametrize(("read", "write", "suffix"), KINDS)
def test_stop_ends_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Reader, write: Write, suffix: str
) -> None:
    waits = FakeWait(monkeypatch)
    write(tmp_path / f"x.{suffix}", rows(1))
    stream = read(tmp_path, time="t", follow=True, stop=lambda: len(waits.waited) == 3)
    assert collected(stream) == [1]
    assert len(waits.waited) == 3


def test_long_waits_are_cut_for_heartbeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = FakeWait(monkeypatch)
    write_jsonl(tmp_path / "x.jsonl", rows(1))
    stream = lw.read_jsonl(tmp_path, time="t", follow=True, poll_every="2500ms", max_idle="2500ms")
    assert collected(stream) == [1]
    assert waits.waited == [1.0, 1.0, 0.5]


def test_the_clock_moves_and_triggers_fire_while_nothing_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-R1, S-O8."""
    clock = lw.ManualClock(0)

    def later() -> None:
        clock.advance_to(clock.now() + SECOND)

    FakeWait(monkeypatch, *[later] * 10)
    write_jsonl(tmp_path / "x.jsonl", rows(1, 2))
    pipeline = (
        lw.read_jsonl(tmp_path, time="t", follow=True, max_idle="10s", clock=clock)
        .key_by("k")
        .window(
            lw.FixedWindows("1h"),
            trigger=lw.AfterWatermark(early=lw.AfterProcessingTime("4s")),
            accumulation="accumulating",
        )
        .aggregate(lw.count())
    )
    run = pipeline.run()
    seen = [(pane.timing, pane.value, int(pane.emitted_at), clock.now()) for pane in run]
    assert seen[0] == ("EARLY", 2, 4 * SECOND, 4 * SECOND)
    assert seen[1][:2] == ("ON_TIME", 2)
    assert run.metrics.bundles == 1


def test_a_watermark_driven_by_hand_moves_while_nothing_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watermark = lw.ManualWatermark()
    waits = FakeWait(monkeypatch, lambda: watermark.advance_to(60 * SECOND))
    write_jsonl(tmp_path / "x.jsonl", rows(1))
    stream = lw.read_jsonl(tmp_path, time="t", follow=True, max_idle="5s", watermark=watermark)
    run = stream.key_by("k").window(lw.FixedWindows("1m")).aggregate(lw.count()).run()
    assert next(run).value == 1
    assert len(waits.waited) == 1


def test_a_parquet_file_that_grows_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(tmp_path / "whole", rows(2))
    whole = (tmp_path / "whole").read_bytes()
    new = tmp_path / "b.parquet"

    def begin() -> None:
        new.write_bytes(whole[:50])
        write_parquet(tmp_path / "c.parquet", rows(3))

    FakeWait(
        monkeypatch,
        lambda: new.write_bytes(b""),
        begin,
        lambda: new.write_bytes(whole[:-1]),
        lambda: new.write_bytes(whole),
    )
    write_parquet(tmp_path / "a.parquet", rows(1))
    stream = lw.read_parquet(tmp_path, time="t", follow=True, max_idle="1s")
    assert collected(stream) == [1, 3, 2]


def test_a_parquet_file_that_stays_half_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(tmp_path / "whole", rows(2))
    half = (tmp_path / "whole").read_bytes()[:-1]
    waits = FakeWait(monkeypatch, lambda: (tmp_path / "b.parquet").write_bytes(half))
    stream = lw.read_parquet(tmp_path, time="t", follow=True, max_idle="1s")
    with pytest.raises(lw.DataError, match="truncated") as caught:
        collected(stream)
    assert "b.parquet" in str(caught.value)
    assert len(waits.waited) == 2


@pytest.mark.parametrize(("read", "write", "suffix"), KINDS)
def test_a_file_that_changes_after_it_was_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Reader, write: Write, suffix: str
) -> None:
    FakeWait(monkeypatch, lambda: write(tmp_path / f"a.{suffix}", rows(1, 2, 300)))
    write(tmp_path / f"a.{suffix}", rows(1))
    with pytest.raises(lw.DataError, match="bytes when it was read"):
        collected(read(tmp_path, time="t", follow=True, max_idle="2s"))


def test_files_that_were_read_may_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeWait(
        monkeypatch,
        (tmp_path / "a.jsonl").unlink,
        lambda: write_jsonl(tmp_path / "b.jsonl", rows(2)),
    )
    write_jsonl(tmp_path / "a.jsonl", rows(1))
    stream = lw.read_jsonl(tmp_path, time="t", follow=True, max_idle="2s")
    assert collected(stream) == [1, 2]


def test_options_that_make_no_sense(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", rows(1))
    for options, named in [
        ({"follow": True, "poll_every": "0s"}, "poll_every="),
        ({"follow": True, "max_idle": -1}, "max_idle="),
        ({"follow": True, "stop": 3}, "stop="),
        ({"follow": 1}, "follow="),
        ({"stop": lambda: True}, "stop= does nothing"),
        ({"max_idle": "1s"}, "max_idle= does nothing"),
    ]:
        given: Any = options
        with pytest.raises(lw.InvalidArgument, match=named):
            lw.read_jsonl(tmp_path, time="t", **given)
    with pytest.raises(lw.InvalidArgument, match="no file"):
        lw.read_jsonl(tmp_path / "absent", time="t", follow=True)


class Died(BaseException):
    """Stands for the death of the process."""


def live(folder: Path, read: Reader) -> lw.Pipeline:
    return (
        read(
            folder / "in", time="t", follow=True, max_idle="3s", watermark=lw.BoundedDisorder("5s")
        )
        .key_by("k")
        .window(
            lw.Sessions("3s"),
            trigger=lw.AfterWatermark(early=lw.AfterCount(2), late=lw.AfterCount(1)),
            accumulation="retracting",
            allowed_lateness="5s",
        )
        .aggregate(lw.sum("v"), values=lw.collect("v"))
    )


FILES = {
    "m": rows(*range(0, 40, 2)),
    "x": rows(*range(30, 60)),
    "d": rows(*range(33, 70, 3)),
    "a": rows(*range(60, 90)),
}


def drop(folder: Path, write: Write, suffix: str, *names: str) -> Callable[[], None]:
    """Return a function that puts files into a folder."""

    def act() -> None:
        for name in names:
            write(folder / f"{name}.{suffix}", FILES[name])

    return act


def panes_of(folder: Path) -> list[Any]:
    names = ("k", "window_start", "window_end", "sum", "values", "timing", "index", "kind")
    parts = sorted((folder / "out").glob("part-*.parquet"))
    return [
        tuple(repr(row[name]) for name in names)
        for part in parts
        for row in pq.read_table(part).to_pylist()
    ]


def die_at(monkeypatch: pytest.MonkeyPatch, point: str, count: int) -> None:
    """Let the process die when a point is passed for that time, and never after."""
    left = count

    def on_point(passed: str) -> None:
        nonlocal left
        left -= passed == point
        if passed == point and not left:
            raise Died

    monkeypatch.setattr(durable, "on_point", on_point)


def die() -> None:
    raise Died


def shown_at_once(folder: Path, read: Reader, max_idle: str | None) -> Writing:
    windowed = (
        read(folder / "in", time="t", follow=True, max_idle=max_idle)
        .key_by("k")
        .window(
            lw.GlobalWindow(),
            trigger=lw.Repeatedly(lw.AfterCount(1)),
            accumulation="discarding",
        )
    )
    return windowed.aggregate(lw.collect("v")).write_jsonl(folder / "out")


OPTIONS: dict[str, Any] = {"commit_every": "bundle", "bundle_size": 7, "progress": False}


@pytest.mark.parametrize(
    ("point", "read", "write", "suffix"),
    deaths("before the write", "after the write", "before forgetting"),
)
def test_killed_while_it_follows_and_run_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Reader,
    write: Write,
    suffix: str,
    point: str,
) -> None:
    def folder_and_actions(name: str) -> tuple[Path, list[Callable[[], None]]]:
        source = tmp_path / name / "in"
        source.mkdir(parents=True)
        names: list[tuple[str, ...]] = [("m",), (), ("x", "d"), ("a",)]
        return source.parent, [drop(source, write, suffix, *some) for some in names]

    whole, actions = folder_and_actions("whole")
    FakeWait(monkeypatch, *actions)
    live(whole, read).write_parquet(whole / "out").run(state=whole / "state", **OPTIONS)
    expected = panes_of(whole)
    assert len(expected) > 20
    for count in range(2, 16, 3 if is_campaign() else 7):
        folder, actions = folder_and_actions(str(count))
        die_at(monkeypatch, point, count)
        waits = FakeWait(monkeypatch, *actions)
        writing = live(folder, read).write_parquet(folder / "out")
        with pytest.raises(Died):
            writing.run(state=folder / "state", **OPTIONS)
        FakeWait(monkeypatch, *actions[len(waits.waited) :])
        writing.run(state=folder / "state", **OPTIONS)
        assert panes_of(folder) == expected, count


@pytest.mark.parametrize(("first", "read", "write", "suffix"), deaths((), ("m",), ("m", "x")))
def test_files_that_come_while_it_is_dead_do_not_mix_it_up(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Reader,
    write: Write,
    suffix: str,
    first: tuple[str, ...],
) -> None:
    """It dies in the middle of a batch, and what would now come first by name is new."""
    rest = [name for name in FILES if name not in first]
    for count in range(1, 9, 1 if is_campaign() else 3):
        folder = tmp_path / str(count)
        source = folder / "in"
        source.mkdir(parents=True)
        drop(source, write, suffix, *first)()
        FakeWait(monkeypatch, drop(source, write, suffix, rest[0]), nothing, die)
        die_at(monkeypatch, "before forgetting", count)
        with pytest.raises(Died):
            shown_at_once(folder, read, None).run(state=folder / "state", **OPTIONS)
        drop(source, write, suffix, *rest)()
        FakeWait(monkeypatch)
        monkeypatch.setattr(durable, "on_point", lambda _point: None)
        metrics = shown_at_once(folder, read, "1s").run(state=folder / "state", **OPTIONS)
        lines = [
            json.loads(line)
            for part in sorted((folder / "out").glob("part-*.jsonl"))
            for line in part.read_text().splitlines()
        ]
        found = [value for line in lines for value in line["collect"]]
        assert sorted(found) == sorted(row["v"] for some in FILES.values() for row in some), count
        assert metrics.events == len(found)


@pytest.mark.parametrize("ends", ["it is completed", "it is removed"])
def test_stop_waits_for_a_file_that_is_half_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    write_parquet(tmp_path / "whole", rows(2))
    whole = (tmp_path / "whole").read_bytes()
    new = tmp_path / "b.parquet"
    new.write_bytes(whole[:-9])
    last = new.unlink if ends == "it is removed" else lambda: new.write_bytes(whole)
    waits = FakeWait(monkeypatch, lambda: new.write_bytes(whole[:-1]), last)
    write_parquet(tmp_path / "a.parquet", rows(1))
    stream = lw.read_parquet(tmp_path, time="t", follow=True, stop=lambda: True)
    assert collected(stream) == ([1] if ends == "it is removed" else [1, 2])
    assert len(waits.waited) == 2
