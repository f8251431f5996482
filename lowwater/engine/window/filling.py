"""Opens windows without elements behind those of keys that are known (S-F1 to S-F4).

A window that is filled is a row as any other is: it waits for the watermark, fires on time, takes
late elements and expires. So nothing else need know of it but the pane, which says so. The window
behind the last complete one of a key is open as long as the key is known: that is what is kept of
a key without elements.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np

from lowwater.engine.aggregates.built_in import IS_FILLED
from lowwater.engine.aggregates.filled import HAS_ELEMENTS
from lowwater.engine.records.columns import Mask
from lowwater.engine.window.fill import Fill, following, last_filled
from lowwater.engine.window.window_state import WindowState
from lowwater.kernels import kernels
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import NONE, distinct
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array, saturating_add
from lowwater.windows import CalendarWindows, FixedWindows

UNTIL = f"{IS_FILLED}:until"
"""The column of the aggregate that says it: the greatest end of a window that is filled behind."""


@final
class Filler:
    """Opens the rows of an operator that have no elements.

    Args:
        state: The windows, which do not merge.
        fill: How long a key without elements stays known.
    """

    def __init__(self, state: WindowState, fill: Fill) -> None:
        self._state = state
        self._fill = fill
        self._windows: Any = state.windowing.windows  # on a grid: checked_fill

    def take(self, rows: Int64Array, watermark: int) -> Int64Array:
        """Note that rows have elements; return rows that were opened for what is behind them.

        Behind a window that is complete, late elements bring the window to come.

        Args:
            rows: Distinct rows.
            watermark: The watermark.
        """
        table = self._state.table
        table[UNTIL][rows] = HAS_ELEMENTS
        rows = rows[table["end"][rows] <= watermark]
        found = self._behind(table["key"][rows], table["end"][rows], self.until(rows), watermark)
        to_come = found[2] > watermark
        return self._open(*(column[to_come] for column in found))

    def behind(self, rows: Int64Array, upto: int) -> Int64Array:
        """Open the rows behind those that an advance completes, and behind these; return them.

        Args:
            rows: Distinct rows, whose ends are at or below ``upto``.
            upto: What the advance deals with; the first window that ends later stays open. At the
                end of time, only windows before the last one of a key with elements are opened.
        """
        table = self._state.table
        key, end, until = table["key"][rows], table["end"][rows], self.until(rows)
        if upto == END_OF_TIME:
            until = np.minimum(until, self._last("end")[key])
        return self._open(*self._behind(key, end, until, upto))

    def places(
        self, key: Int64Array, end: Int64Array, until: Int64Array, upto: int
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return (key, start, end) of all windows that the other methods may open, or find.

        Args:
            key: The keys of windows.
            end: Their ends.
            until: The greatest end of a window that is filled behind them.
            upto: What an advance deals with, or the watermark.
        """
        keys, starts, ends, _ = self._behind(key, end, until, upto)
        return keys, starts, ends

    def beyond(self, rows: Int64Array) -> Mask:
        """Return which rows that have not fired lie behind all elements of their keys.

        All rows are in memory.
        """
        table = self._state.table
        behind: Mask = table["start"][rows] > self._last("start")[table["key"][rows]]
        return behind & (table[UNTIL][rows] != HAS_ELEMENTS) & (table["on_time_index"][rows] < 0)

    def _last(self, name: str) -> Int64Array:
        """Return the greatest start, or end, of the rows with elements of each key, by its id."""
        table = self._state.table
        rows = table.live()
        found = np.full(int(table["key"][rows].max(initial=0)) + 1, START_OF_TIME, dtype=np.int64)
        rows = rows[table[UNTIL][rows] == HAS_ELEMENTS]
        np.maximum.at(found, table["key"][rows], table[name][rows])
        return found

    def last_of(self, end: Int64Array) -> Int64Array:
        """Return the greatest end of a window that is filled behind windows with elements."""
        return last_filled(self._fill, self._windows, end)

    def until(self, rows: Int64Array) -> Int64Array:
        """Return the greatest end of a window that is filled behind rows."""
        table = self._state.table
        own = table[UNTIL][rows]
        return np.where(own == HAS_ELEMENTS, self.last_of(table["end"][rows]), own)

    def _behind(
        self, key: Int64Array, end: Int64Array, until: Int64Array, upto: int
    ) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """Return (key, start, end, until) of the windows behind some, to the first above ``upto``.

        Those behind another one with elements are among them: it has them filled, too.
        """
        windows = self._windows
        if isinstance(windows, CalendarWindows):
            return self._behind_in_calendar(key, end, until, upto)
        size = windows.size_us
        period = size if isinstance(windows, FixedWindows) else windows.period_us
        last = np.minimum(until, min(saturating_add(upto, period), END_OF_TIME - 1))
        many = (np.maximum(last, end) - end) // period
        of = repeated(np.arange(len(key)), many)
        nth = np.arange(len(of)) - (np.cumsum(many) - many)[of]
        ends = end[of] + (nth + 1) * period
        return key[of], ends - size, ends, until[of]

    def _behind_in_calendar(
        self, key: Int64Array, end: Int64Array, until: Int64Array, upto: int
    ) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        found = [(NONE, NONE, NONE, NONE)]
        while len(key):
            start, later = following(self._windows, end)
            going = (later > end) & (later <= until)
            key, start, end, until = key[going], start[going], later[going], until[going]
            found.append((key, start, end, until))
            onward = end <= upto
            key, end, until = key[onward], end[onward], until[onward]
        keys, starts, ends, limits = zip(*found, strict=True)
        return tuple(map(np.concatenate, (keys, starts, ends, limits)))  # type: ignore[return-value]

    def _open(
        self, key: Int64Array, start: Int64Array, end: Int64Array, until: Int64Array
    ) -> Int64Array:
        """Find or open rows; return those that are new."""
        if not len(key):
            return NONE
        state, table = self._state, self._state.table
        rows, new = state.index.find_or_insert(key, start, end)
        if new.size:
            state.hold_keys(new, key)
            table[UNTIL][new] = HAS_ELEMENTS + 1
        empty = np.flatnonzero(table[UNTIL][rows] != HAS_ELEMENTS)
        if empty.size:
            rows = rows[empty]
            kernels().max_at(table[UNTIL], rows, until[empty])
            state.touch(distinct(rows))
        return new
