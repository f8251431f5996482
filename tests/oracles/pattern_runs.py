"""The oracle of row patterns over a stream: what is out after each step, and what takes it back.

All admitted rows are kept, and after each step all matches that are decided are computed anew. What
is out of a key is then compared with what should be (P-7).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from tests.oracles.row_patterns import (
    END,
    Emit,
    Match,
    MatchSoFar,
    Pattern,
    Row,
    decided,
)


@final
@dataclass(frozen=True)
class Given:
    """A row that arrives: of a key, to come or to be taken back."""

    key: Any
    row: Row
    sign: int = 1


@final
@dataclass(frozen=True)
class Shown:
    """A match that is emitted, or retracted.

    Args:
        key: Its key.
        start: The event time of its first row.
        end: That of its last row.
        time: Its own (P-10).
        values: Its measures.
        sign: 1, or -1 for a retraction.
    """

    key: Any
    start: int
    end: int
    time: int
    values: tuple[Any, ...]
    sign: int = 1


class PatternRun:
    """One run of a pattern.

    Args:
        pattern: The pattern.
        measures: What is emitted of a match.
        lateness: L, how late a row may be.
        emit: What is decided when (P-6).
    """

    def __init__(
        self,
        pattern: Pattern,
        measures: Sequence[Callable[[MatchSoFar], Any]] = (),
        *,
        lateness: int = 0,
        emit: Emit = "on_time",
    ) -> None:
        self._pattern = pattern
        self._measures = tuple(measures)
        self._lateness = lateness
        self._emit = emit
        self._watermark = -END
        self._arrived = 0
        self._out: dict[Any, list[Shown]] = {}
        self.rows: dict[Any, list[Row]] = {}
        self.late: list[Given] = []

    @property
    def watermark(self) -> float:
        """The input watermark."""
        return self._watermark

    @property
    def out(self) -> list[Shown]:
        """All matches that stand, by key and start."""
        return [shown for key in self._out for shown in self._out[key]]

    def add(self, rows: Sequence[Given]) -> list[Shown]:
        """Take a bundle; return what it changes.

        Raises:
            ValueError: A row is taken back that is not there, and that is not late (P-13).
        """
        for given in rows:
            if given.row.time < self._watermark - self._lateness:  # P-2
                self.late.append(given)
            elif given.sign > 0:
                row = Row(given.row.time, given.row.values, given.row.order, self._arrived)
                self._arrived += 1
                self.rows.setdefault(given.key, []).append(row)
            else:
                self._take_back(given)
        return self._settled()

    def advance(self, to: float) -> list[Shown]:
        """Advance the watermark; return what it changes. ``END`` is the end of the input."""
        self._watermark = max(self._watermark, to)
        return self._settled()

    def held(self, counts: Callable[[Row], bool] | None = None) -> float:
        """Return the time of the first row whose start is undecided, which holds the output.

        A row at or above the horizon, or behind it, is undecided because it is not looked at yet.

        Args:
            counts: Which rows are kept, where others can neither begin a match nor be of one.
        """
        horizon = self._watermark - (self._lateness if self._emit == "final" else 0)
        times = [END]
        for rows in self.rows.values():
            kept = rows if counts is None else filter(counts, rows)
            ordered = sorted(kept, key=lambda row: row.place)
            times += [ordered[at].time for at in decided(self._pattern, ordered, horizon)[1]]
            times += [row.time for row in ordered if horizon <= row.time and horizon < END]
        return min(times)

    def _take_back(self, given: Given) -> None:
        rows = self.rows.get(given.key, [])
        for at in reversed(range(len(rows))):
            one = rows[at]
            if (one.time, one.order, one.values) == (
                given.row.time,
                given.row.order,
                given.row.values,
            ):
                del rows[at]
                return
        raise ValueError(f"{given} is not there")

    def _settled(self) -> list[Shown]:
        changes: list[Shown] = []
        for key in self.rows:
            wanted = self._wanted(key)
            before, after = Counter(self._out.get(key, [])), Counter(wanted)
            gone, new = before - after, after - before
            changes += [
                Shown(one.key, one.start, one.end, one.time, one.values, -1)
                for one in sorted(gone.elements(), key=_by_start)
            ]
            changes += sorted(new.elements(), key=_by_start)
            self._out[key] = wanted
        return changes

    def _wanted(self, key: Any) -> list[Shown]:
        rows = sorted(self.rows[key], key=lambda row: row.place)
        return [self._shown(key, rows, match) for match in self._matches(rows)]

    def _matches(self, rows: Sequence[Row]) -> list[Match]:
        """Return what is decided of a key."""
        horizon = {
            "on_time": self._watermark,
            "final": self._watermark - self._lateness,
            "early": END,
        }[self._emit]
        return decided(self._pattern, rows, horizon)[0]

    def _shown(self, key: Any, rows: Sequence[Row], match: Match) -> Shown:
        whole = MatchSoFar(rows, match.start, match.labels)
        return Shown(
            key,
            rows[match.start].time,
            rows[match.stop - 1].time,
            match.time,
            tuple(measure(whole) for measure in self._measures),
        )


def _by_start(shown: Shown) -> tuple[Any, ...]:
    return shown.start, shown.end, repr(shown.values)
