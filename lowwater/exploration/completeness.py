"""Measures how much of the final answer had been emitted how long after the windows' ends."""

from __future__ import annotations

import numpy as np

from lowwater.engine.graph.trace import StageTrace
from lowwater.engine.local.traced_columns import TraceColumns
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

NO_END = END_OF_TIME // 2
"""The latency of what was emitted of a window without an end: later than any other."""


def revealed(trace: StageTrace, columns: TraceColumns) -> tuple[Int64Array, Int64Array]:
    """Return how many records each emitted pane adds to what its window has emitted. O(n log n).

    A record counts once for each window that accepted it, and is emitted with the first pane after
    its arrival, whatever the accumulation mode: what a consumer sums up, replaces or retracts.

    Args:
        trace: The trace of a windowed stage, of all elements.
        columns: The same as columns.

    Returns:
        The row of each emitted pane, and how many records it adds; int64.
    """
    panes = columns.panes.take(~columns.panes.is_retraction)
    if trace.merges:
        return panes.place, _revealed_by_merging(columns)
    windows = columns.windows
    key = np.concatenate([columns.elements.key[_rows(columns)], panes.key])
    start = np.concatenate([windows.start, panes.start])
    end = np.concatenate([windows.end, panes.end])
    order = np.concatenate([windows.order, panes.order])
    is_pane = np.arange(len(key)) >= len(windows.element)
    sequence = np.lexsort((is_pane, order, end, start, key))
    key, start, end, is_pane = (part[sequence] for part in (key, start, end, is_pane))
    begins = np.ones(len(key), dtype=np.bool_)
    begins[1:] = (key[1:] != key[:-1]) | (start[1:] != start[:-1]) | (end[1:] != end[:-1])
    first = np.flatnonzero(begins)[np.cumsum(begins) - 1]
    place = np.arange(len(key))
    # Of the events of a window: the place of its pane before, or of where the window begins.
    last = np.maximum.accumulate(np.where(is_pane, place, -1))
    before = np.concatenate([[-1], last[:-1]]) if len(last) else last
    since = np.maximum(before + 1, first)
    added = np.empty(len(panes), dtype=np.int64)
    added[sequence[is_pane] - len(windows.element)] = (place - since)[is_pane]
    return panes.place, added


def latencies(columns: TraceColumns, places: Int64Array, *, by_clock: bool) -> Int64Array:
    """Return how long after the end of its window each pane was emitted, microseconds.

    Args:
        columns: The elements and panes.
        places: The rows of the panes.
        by_clock: Whether time is the clock's; otherwise it is the latest event time that had
            arrived, as the data is read faster than it was produced.
    """
    panes, elements = columns.panes, columns.elements
    if by_clock:
        moment = panes.emitted_at[places]
    else:
        latest = np.maximum.accumulate(np.concatenate([[START_OF_TIME], elements.time]))
        moment = latest[np.searchsorted(elements.order, panes.order[places], side="right")]
    end = panes.end[places]
    # The ends of time fit no difference: what is that far off is as late as can be.
    is_far = (end >= NO_END) | (moment <= START_OF_TIME // 2)
    return np.where(is_far, NO_END, moment - np.where(is_far, 0, end))


def total(columns: TraceColumns) -> int:
    """Return how many records the final answer has: of each, one for each of its windows."""
    return len(columns.windows.element) + len(columns.dropped.element)


def curve(latency: Int64Array, added: Int64Array, at: Int64Array) -> Int64Array:
    """Return how many records had been emitted by each latency, int64, shape (len(at),)."""
    sequence = np.argsort(latency, kind="stable")
    reached = np.concatenate([[0], np.cumsum(added[sequence])])
    return reached[np.searchsorted(latency[sequence], at, side="right")]


def _rows(columns: TraceColumns) -> Int64Array:
    """Return the row of the element of each window."""
    return np.searchsorted(columns.elements.place, columns.windows.element)


def _revealed_by_merging(columns: TraceColumns) -> Int64Array:
    """Return the same where windows merge: a pane has the records of what its window was."""
    elements, windows = columns.elements, columns.windows
    of_key = elements.key[_rows(columns)]
    panes = columns.panes.take(~columns.panes.is_retraction)
    added = np.zeros(len(panes), dtype=np.int64)
    for key in np.unique(panes.key).tolist():
        own = np.flatnonzero(of_key == key)
        own = own[np.argsort(windows.start[own], kind="stable")]
        start, order = windows.start[own], windows.order[own]
        shown = np.zeros(len(own), dtype=np.bool_)
        rows = np.flatnonzero(panes.key == key)
        for row in rows.tolist():
            low, high = np.searchsorted(start, [panes.start[row], panes.end[row]])
            fresh = ~shown[low:high] & (order[low:high] <= panes.order[row])
            shown[low:high] |= fresh
            added[row] = np.count_nonzero(fresh)
    return added
