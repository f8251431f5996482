"""What each window waits for: the watermark and the clock it is due at, and what it holds back."""

from __future__ import annotations

from typing import final

import numpy as np

from lowwater.engine.records.columns import Mask
from lowwater.engine.window.window_state import WindowState
from lowwater.kernels import kernels
from lowwater.state.deadlines import Deadlines
from lowwater.time import END_OF_TIME, Instant, Int64Array
from lowwater.watermark import Hold
from lowwater.windows import Window


@final
class RowQueue:
    """Rows by an instant; a column of the table says which entry is valid for a row.

    A lazy queue: an entry may be stale, and the column is authoritative. A row whose instant moves
    later keeps its entry, and whoever pops it reschedules it; that is cheaper than removing entries
    on every update.

    Args:
        state: The windows.
        column: The column, int64; the end of time where no entry is valid for a row.
        ends: Whether a row may be due at the end of time itself.
    """

    def __init__(self, state: WindowState, column: str, *, ends: bool = False) -> None:
        self._state = state
        self._name = column
        self._ends = ends
        self._queue = Deadlines()

    def __len__(self) -> int:
        """Return the number of entries, stale ones included."""
        return len(self._queue)

    @property
    def first(self) -> int:
        """The earliest entry's instant, or the end of time."""
        return self._queue.first

    def push(self, rows: Int64Array, times: Int64Array) -> None:
        """Queue rows, unless an entry for an earlier time is valid for them already."""
        column = self._state.table[self._name]
        rows, times = kernels().bring_forward(column, rows, times, self._ends)
        if rows.size:
            self._queue.push(times, rows)

    def pop(self, upto: int) -> Int64Array:
        """Return the distinct rows due at or before ``upto``; no entry is valid for them now."""
        times, rows = self._queue.pop(upto)
        column = self._state.table[self._name]
        rows = rows[column[rows] == times]
        if len(rows) > 1:
            rows, _ = self._state.scratch.unique(rows, self._state.table.capacity)
        column[rows] = END_OF_TIME
        return rows

    def prune(self) -> None:
        """Remove the stale entries. O(entries)."""
        column = self._state.table[self._name]
        self._queue.retain(lambda times, rows: column[rows] == times)

    def _check(self, rows: Int64Array, due: Int64Array) -> None:
        """Assert that each row has a valid entry that is due no later than the row itself.

        Args:
            rows: All live rows.
            due: When each is due; the end of time for never, unless the queue has such rows.
        """
        self._queue._check()
        times = self._state.table[self._name][rows]
        assert (times <= due).all(), f"{self._name}: a row would be handled too late"
        entries = set(zip(*(part.tolist() for part in self._queue.entries()), strict=True))
        for time, row in zip(times.tolist(), rows.tolist(), strict=True):
            if time < END_OF_TIME or self._ends:
                assert (time, row) in entries, f"{self._name}: row {row} has no entry"


@final
class WatermarkHolds:
    """What holds the output watermark of an operator: elements that no pane has emitted (S-H2).

    Args:
        state: The windows.
    """

    def __init__(self, state: WindowState) -> None:
        self._state = state
        self._queue = RowQueue(state, "hold")

    def __len__(self) -> int:
        """Return the number of entries, stale ones included."""
        return len(self._queue)

    def note(self, rows: Int64Array) -> None:
        """Queue the holds of rows that can keep the output watermark back."""
        if rows.size:
            self._queue.push(rows, self.times(rows))

    def lowest(self, low: int) -> int:
        """Return the earliest hold, if it is before ``low``; else ``low``."""
        stride = 0
        while (first := self._queue.first) < low:
            rows = self._queue.pop(min(first + stride, low - 1))
            at = self.times(rows)
            self._queue.push(rows, at)
            low = int(at.min(initial=low))
            stride = 2 * stride + 1  # doubling skips the stale entries in a few rounds
        return low

    def holder(self) -> Hold:
        """Return the earliest hold of all, with its key and window; there must be one. O(rows)."""
        table = self._state.table
        rows = table.live()
        at = self.times(rows)
        row = rows[[int(at.argmin())]]
        keys = tuple(column.to_list(exact=True)[0] for column in self._state.decode_keys(row))
        key = keys[0] if len(keys) == 1 else keys
        window = Window(Instant(int(table["start"][row][0])), Instant(int(table["end"][row][0])))
        return Hold(int(at.min()), f"key {key!r}, window {window}")

    def prune(self) -> None:
        """Remove the stale entries. O(entries)."""
        self._queue.prune()

    def times(self, rows: Int64Array) -> Int64Array:
        """Return where each row's new elements hold the output watermark."""
        state, table = self._state, self._state.table
        at = table["end"][rows] - 1
        if state.rule != "end":
            seen = table["timestamp"][rows]
            at = np.where(seen == state.no_timestamp, at, seen)
        at[~table["on_time_new"][rows]] = END_OF_TIME
        return at


@final
class Schedule:
    """All that the windows of an operator wait for.

    Args:
        state: The windows, none yet.
    """

    def __init__(self, state: WindowState) -> None:
        self._state = state
        self._machine = state.machine
        # With an expiry that saturates at the end of time, a row is due at the end of time itself.
        self.by_watermark = RowQueue(state, "due", ends=True)
        self.by_clock = RowQueue(state, "clock_due")
        self.holds = WatermarkHolds(state)

    def at_watermark(self, rows: Int64Array, watermark: int) -> None:
        """Queue rows for the watermark after ``watermark`` that they are next due at."""
        if rows.size:
            self.by_watermark.push(rows, self.due(rows, watermark))

    def at_clock(self, rows: Int64Array, clock: int) -> None:
        """Queue rows for the clock after ``clock`` at which their triggers are next due."""
        if self._machine.has_deadlines and rows.size:
            self.by_clock.push(rows, self.deadlines(rows, clock))

    def due(self, rows: Int64Array, watermark: int) -> Int64Array:
        """Return the watermark at which each row is next due: completion, a wake-up or expiry."""
        table = self._state.table
        end = table["end"][rows]
        due = self._state.placement.expiry(end)
        if not self._machine.watches_completion:
            return due
        waiting = end > watermark
        waiting &= ~table["finished"][rows]
        due[waiting] = end[waiting]
        if self._machine.wakes:
            wake = self._machine.next_wake(table, rows, watermark)
            due = np.minimum(due, np.where(table["finished"][rows], END_OF_TIME, wake))
        return due

    def deadlines(self, rows: Int64Array, clock: int) -> Int64Array:
        """Return the clock after ``clock`` at which the trigger of each row is next due."""
        if not self._machine.has_deadlines:
            return np.full(len(rows), END_OF_TIME)
        return self._machine.next_deadline(self._state.table, rows, clock)

    def clear(self, rows: Int64Array) -> None:
        """Invalidate all entries for rows that were just filled."""
        table = self._state.table
        for name in ("due", "hold", "clock_due"):
            if name in table.columns:
                table[name][rows] = END_OF_TIME

    def prune(self) -> None:
        """Remove the stale entries of all queues. O(entries)."""
        self.by_watermark.prune()
        self.holds.prune()
        if self._machine.has_deadlines:
            self.by_clock.prune()

    def _check(self, due: Int64Array, clock: int, holding: Mask) -> None:
        """Assert that every live row is queued, in time, for all that it waits for. O(rows).

        Args:
            due: The watermark at which each live row is due.
            clock: The clock.
            holding: Which live rows hold the output watermark if they have new elements.
        """
        rows = self._state.table.live()
        self.by_watermark._check(rows, due)
        if self._machine.has_deadlines:
            self.by_clock._check(rows, self.deadlines(rows, clock))
        at = np.where(holding, self.holds.times(rows), END_OF_TIME)
        self.holds._queue._check(rows, at)
