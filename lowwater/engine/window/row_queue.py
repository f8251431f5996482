"""The windows of an operator by when they are next due, one entry of a queue standing for each."""

from __future__ import annotations

from typing import final

from lowwater.engine.window.window_state import WindowState
from lowwater.state.deadlines import Deadlines
from lowwater.time import END_OF_TIME, Int64Array


@final
class RowQueue:
    """Rows by an instant; a column of the table says which entry stands for a row.

    A row whose instant moves later keeps its entry: who pops it puts it off.

    Args:
        state: The windows.
        column: The column, int64; the end of time where no entry stands for a row.
        ends: Whether a row may be due at the end of time itself.
    """

    def __init__(self, state: WindowState, column: str, *, ends: bool = False) -> None:
        self._state = state
        self._name = column
        self._ends = ends
        self._queue = Deadlines()

    def __len__(self) -> int:
        """Return the number of entries, those that no longer hold included."""
        return len(self._queue)

    @property
    def first(self) -> int:
        """The earliest entry's instant, or the end of time."""
        return self._queue.first

    def push(self, rows: Int64Array, times: Int64Array) -> None:
        """Queue rows, unless an entry for an earlier time stands for them already."""
        column = self._state.table[self._name]
        sooner = times < column[rows]
        if self._ends:
            sooner |= (times == END_OF_TIME) & (column[rows] == END_OF_TIME)
        if not sooner.all():
            rows, times = rows[sooner], times[sooner]
        if rows.size:
            column[rows] = times
            self._queue.push(times, rows)

    def pop(self, upto: int) -> Int64Array:
        """Return the distinct rows due at or before ``upto``; no entry stands for them now."""
        times, rows = self._queue.pop(upto)
        column = self._state.table[self._name]
        rows = rows[column[rows] == times]
        if len(rows) > 1:
            rows, _ = self._state.scratch.unique(rows, self._state.table.capacity)
        column[rows] = END_OF_TIME
        return rows

    def prune(self) -> None:
        """Take out the entries that stand for no row any more. O(entries)."""
        column = self._state.table[self._name]
        self._queue.retain(lambda times, rows: column[rows] == times)
