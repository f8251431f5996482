"""The scalar oracle of ``over``: all admitted rows are kept, and each result is computed again.

It is a second, obvious implementation of the rules O-1 to O-8. After each step it compares what
should be out with what is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

END = float("inf")


@final
@dataclass(frozen=True)
class Row:
    """A record that arrives: to be inserted, or retracted.

    Args:
        key: Its key.
        time: Its event time, in microseconds.
        values: Its columns.
        sign: 1, or -1 for a retraction.
    """

    key: Any
    time: int
    values: Mapping[str, Any]
    sign: int = 1


Result = Callable[[Sequence[Row], int, Sequence[Row]], Any]
"""Computes a result, given all rows of the key in order, the place of the row, and its range."""


@final
class OverRun:
    """One run.

    Args:
        results: What is computed of each row.
        length: The range is this long; ``None``: by rows.
        rows: The range is this many rows.
        order: The column that orders rows of one time.
        keep: Rows this much older do not count.
        lateness: How late a row may be.
    """

    def __init__(
        self,
        results: Sequence[Result],
        *,
        length: int | None = None,
        rows: int | None = None,
        order: str | None = None,
        keep: int | None = None,
        lateness: int = 0,
    ) -> None:
        self._results = results
        self._length, self._count = length, rows
        self._order, self._keep, self.lateness = order, keep, lateness
        self.watermark: float = -END
        self.rows: list[Row] = []
        self.late: list[Row] = []
        self._out: Counter[Any] = Counter()

    def add(self, rows: Sequence[Row]) -> Counter[Any]:
        """Take a bundle; return the changes: (key, time, values, results, sign), counted."""
        for row in rows:
            if row.time < self.watermark - self.lateness:
                self.late.append(row)
            elif row.sign > 0:
                self.rows.append(row)
            else:  # of equal ones the last to come goes first
                same = [(one.key, one.time, one.values) for one in self.rows]
                place = same[::-1].index((row.key, row.time, row.values))
                del self.rows[len(same) - 1 - place]
        return self._settle()

    def advance(self, to: float) -> Counter[Any]:
        """Advance the watermark; return the changes. ``END`` is the end of the input."""
        self.watermark = max(self.watermark, to)
        return self._settle()

    def _settle(self) -> Counter[Any]:
        wanted = Counter(self._wanted())
        changes = Counter({(*one, 1): n for one, n in (wanted - self._out).items()})
        changes.update({(*one, -1): n for one, n in (self._out - wanted).items()})
        self._out = wanted
        return changes

    def _wanted(self) -> list[Any]:
        found = []
        for key in {row.key for row in self.rows}:
            rows = [row for row in self.rows if row.key == key]
            rows.sort(key=self._place)  # stable: then as they arrived
            for place, row in enumerate(rows):
                if row.time < self.watermark:
                    values = [of(rows, place, self._range(rows, place)) for of in self._results]
                    found.append((key, row.time, repr(dict(row.values)), repr(values)))
        return found

    def _place(self, row: Row) -> Any:
        if self._order is None:
            return (row.time,)
        value = row.values[self._order]
        return (row.time, value is not None, value or 0)

    def _range(self, rows: Sequence[Row], place: int) -> list[Row]:
        at = rows[place].time
        if self._length is not None:
            return [row for row in rows if at - self._length < row.time <= at]
        assert self._count is not None
        some = rows[max(0, place + 1 - self._count) : place + 1]
        return [row for row in some if self._keep is None or row.time > at - self._keep]

    def previous(self, rows: Sequence[Row], place: int, k: int) -> Row | None:
        """Return the row k rows before a row, if it counts."""
        if place < k:
            return None
        row = rows[place - k]
        old = self._keep is not None and row.time <= rows[place].time - self._keep
        return None if old else row
