"""What holds the output watermark of a window operator: elements that no pane has shown (S-H2)."""

from __future__ import annotations

from typing import final

import numpy as np

from lowwater.engine.window.row_queue import RowQueue
from lowwater.engine.window.window_state import WindowState
from lowwater.time import END_OF_TIME, Instant, Int64Array
from lowwater.watermark import Hold
from lowwater.windows import Window


@final
class Holds:
    """The holds of an operator's windows.

    Args:
        state: The windows.
    """

    def __init__(self, state: WindowState) -> None:
        self._state = state
        self._queue = RowQueue(state, "hold")

    def __len__(self) -> int:
        """Return the number of entries, those that no longer hold included."""
        return len(self._queue)

    def note(self, rows: Int64Array) -> None:
        """Queue the holds of rows that can keep the output watermark back."""
        if rows.size:
            at = self._times(rows)
            held = at < END_OF_TIME
            if held.any():
                self._queue.push(rows[held], at[held])

    def lowest(self, low: int) -> int:
        """Return the earliest hold, if it is before ``low``; else ``low``."""
        stride = 0
        while (first := self._queue.first) < low:
            rows = self._queue.pop(min(first + stride, low - 1))
            at = self._times(rows)
            self._queue.push(rows, at)
            low = int(at.min(initial=low))
            stride = 2 * stride + 1  # over the entries that no longer hold, however many they are
        return low

    def holder(self) -> Hold:
        """Return the earliest hold of all, with its key and window; there must be one. O(rows)."""
        table = self._state.table
        rows = table.live()
        at = self._times(rows)
        row = rows[[int(at.argmin())]]
        keys = tuple(column.to_list()[0] for column in self._state.decode_keys(row))
        key = keys[0] if len(keys) == 1 else keys
        window = Window(Instant(int(table["start"][row][0])), Instant(int(table["end"][row][0])))
        return Hold(int(at.min()), f"key {key!r}, window {window}")

    def prune(self) -> None:
        """Take out the entries that stand for no row any more. O(entries)."""
        self._queue.prune()

    def _times(self, rows: Int64Array) -> Int64Array:
        """Return where each row's unshown elements hold the output watermark."""
        state, table = self._state, self._state.table
        at = table["end"][rows] - 1
        if state.rule != "end":
            seen = table["timestamp"][rows]
            at = np.where(seen == state.no_timestamp, at, seen)
        return np.where(table["on_time_new"][rows], at, END_OF_TIME)
