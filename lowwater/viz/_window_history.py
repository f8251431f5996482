"""Finds since when each pane collected elements, and which elements no pane has emitted."""

from __future__ import annotations

from typing import TypeAlias, final

import numpy as np

from lowwater.engine.graph.trace import TracedMerge
from lowwater.engine.local.traced_columns import PaneColumns, WindowColumns
from lowwater.kernels.positions import repeated
from lowwater.time import Int64Array

Waiting: TypeAlias = tuple[int, int, int, int]
"""A window with elements that no pane has emitted: start, end, since when, how many elements."""
_Ends: TypeAlias = tuple[int, int]


@final
class WindowHistory:
    """The arrivals and firings of the windows of one key.

    Args:
        panes: The panes, without retractions, in order.
        firings: When each fired, int64.
        windows: The windows that accepted elements; ``element`` is the row of each.
        arrivals: When each element arrived, int64.
    """

    def __init__(
        self,
        panes: PaneColumns,
        firings: Int64Array,
        windows: WindowColumns,
        arrivals: Int64Array,
    ) -> None:
        self._panes, self._firings = panes, firings
        self._windows, self._arrivals = windows, arrivals[windows.element]

    def apart(self) -> tuple[Int64Array, list[Waiting]]:
        """Return since when each pane collected, and what waits; no windows merged. O(n log n)."""
        windows, panes = self._windows, self._panes
        many = len(windows.element)
        start = np.concatenate([windows.start, panes.start])
        end = np.concatenate([windows.end, panes.end])
        order = np.concatenate([windows.order, panes.order])
        moment = np.concatenate([self._arrivals, self._firings])
        is_pane = np.arange(len(start)) >= many
        sequence = np.lexsort((is_pane, order, end, start))
        start, end, moment = start[sequence], end[sequence], moment[sequence]
        is_pane = is_pane[sequence]
        begins = np.ones(len(start), dtype=np.bool_)
        begins[1:] = (start[1:] != start[:-1]) | (end[1:] != end[:-1])
        first = np.flatnonzero(begins)
        of = np.cumsum(begins) - 1
        # The last pane at or before each event, and so, one event on, the one before it.
        last = np.maximum.accumulate(np.where(is_pane, np.arange(len(start)), -1))
        before = np.concatenate([[-1], last[:-1]]) if len(last) else last
        begun = np.where(before >= first[of], moment[before], moment[first[of]])
        since = np.empty(len(panes), dtype=np.int64)
        since[sequence[is_pane] - many] = begun[is_pane]
        stop = np.append(first[1:], len(start))[: len(first)] - 1
        fired = np.where(last[stop] >= first, last[stop], first - 1)
        counts = stop - fired
        waits = np.flatnonzero(counts)
        began = np.where(fired >= first, moment[fired], moment[first])
        found = (start[first], end[first], began, counts)
        columns = (part[waits].tolist() for part in found)
        return since, list(zip(*columns, strict=True))

    def merging(self, merges: list[tuple[TracedMerge, int]]) -> tuple[Int64Array, list[Waiting]]:
        """Return the same where windows merged. O(n log n) with a step in Python for each event.

        Args:
            merges: The merges, in order, and when each was.
        """
        histories = _Histories()
        windows, panes = self._windows, self._panes
        orders = (windows.order, np.array([m.order for m, _ in merges], np.int64), panes.order)
        sizes = [len(part) for part in orders]
        kind = repeated(np.arange(3), sizes)
        place = np.concatenate([np.arange(size) for size in sizes])
        sequence = np.lexsort((place, kind, np.concatenate(orders)))
        came = list(zip(windows.start.tolist(), windows.end.tolist(), strict=True))
        fired = list(zip(panes.start.tolist(), panes.end.tolist(), strict=True))
        arrivals, firings = self._arrivals.tolist(), self._firings.tolist()
        since = np.empty(len(panes), dtype=np.int64)
        for what, at in zip(kind[sequence].tolist(), place[sequence].tolist(), strict=True):
            if what == 0:
                histories.came(came[at], arrivals[at])
            elif what == 1:
                merge = merges[at][0]
                parts = {(int(window.start), int(window.end)) for window in merge.of}
                histories.merged(parts, (int(merge.into.start), int(merge.into.end)))
            else:
                since[at] = histories.fired(fired[at], firings[at])
        return since, histories.waiting()


@final
class _Histories:
    """Tracks since when each open window collects for its next pane. O(1) for each event."""

    def __init__(self) -> None:
        self._since: dict[_Ends, int] = {}
        self._fired: set[_Ends] = set()
        self._unshown: dict[_Ends, int] = {}
        self._became: dict[_Ends, _Ends] = {}

    def came(self, proto: _Ends, y: int) -> None:
        window = self._home(proto)
        self._since.setdefault(window, y)
        self._unshown[window] = self._unshown.get(window, 0) + 1

    def merged(self, of: set[_Ends], into: _Ends) -> None:
        """Start the merged window at the last firing of its parts, or else at the first element."""
        parts = sorted(of - {into})
        present = [window for window in (*parts, into) if window in self._since]
        shown = [self._since[window] for window in present if window in self._fired]
        if present:
            self._since[into] = max(shown) if shown else min(self._since[w] for w in present)
        if shown:
            self._fired.add(into)
        self._unshown[into] = sum(self._unshown.pop(window, 0) for window in (*parts, into))
        self._became.pop(into, None)
        for window in parts:
            self._since.pop(window, None)
            self._became[window] = into

    def fired(self, window: _Ends, y: int) -> int:
        """Return since when the pane collected, and start the next one."""
        since = self._since.get(window, y)
        self._since[window] = y
        self._fired.add(window)
        self._unshown.pop(window, None)
        return since

    def waiting(self) -> list[Waiting]:
        """Return the windows with elements that no pane has emitted."""
        return [(*w, self._since[w], count) for w, count in self._unshown.items() if count]

    def _home(self, window: _Ends) -> _Ends:
        # A window that was merged away may be created again; then its former merge no longer
        # counts.
        while (larger := self._became.get(window)) is not None and window not in self._since:
            window = larger
        return window
