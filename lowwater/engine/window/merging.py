"""Finds or opens the windows of elements; MergeWindows over the rows of the keys touched."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np

from lowwater.engine.records.columns import Mask
from lowwater.engine.records.steps import MergedWindows
from lowwater.engine.window.placement import require_int64
from lowwater.engine.window.window_state import WindowState
from lowwater.errors import InternalError
from lowwater.kernels import kernels
from lowwater.kernels.plain_merging import Gathered, merge_sorted
from lowwater.state.arrays import NONE, run_starts
from lowwater.time import Int64Array
from lowwater.triggers._machine import Merge
from lowwater.windows import MergingWindowFunction, Sessions


@final
@dataclass(frozen=True, slots=True)
class Placed:
    """Where elements went.

    Args:
        rows: The row of each element's window, int64; meaningless where it is closed.
        closed: Which elements belong to a window that has finished (S-O4); ``None`` for none.
        opened: Rows of windows that did not exist before, or changed: what they wait for is new.
        changed: Those among them that others merged into, or whose interval changed.
        merges: Which windows merged into which, if that was asked for.
    """

    rows: Int64Array
    closed: Mask | None
    opened: Int64Array
    changed: Int64Array
    merges: MergedWindows | None = None


def place_plain(
    state: WindowState,
    keys: Int64Array,
    start: Int64Array,
    end: Int64Array,
) -> Placed:
    """Find or open windows that never merge; keys are in order of arrival. O(n) expected."""
    rows, new = state.index.find_or_insert(keys, start, end)
    if new.size:
        state.hold_keys(new, keys)
    closed = None
    if state.finished_rows:
        closed = state.table["finished"][rows]
        if not closed.any():
            closed = None
    return Placed(rows, closed, new, NONE)


def place_merging(
    state: WindowState,
    keys: Int64Array,
    start: Int64Array,
    end: Int64Array,
    clock: int,
    watermark: int,
    *,
    reports: bool = False,
    element: Int64Array | None = None,
) -> Placed:
    """Merge elements' proto-windows with each other and with the active windows of their keys.

    Args:
        state: The operator's windows.
        keys: Key id of each proto-window, int64, shape (n,), in order of arrival.
        start: Its start.
        end: Its end.
        clock: The clock.
        watermark: The watermark.
        reports: Whether to report which windows merged into which.
        element: The element of the bundle that each proto-window is of, for the report; ``None`` if
            they are one for one.
    """
    gathered = _gather(state, keys, start, end)
    group, rows, row_group = gathered.group, gathered.rows, gathered.row_group
    finished = None
    if state.finished_rows:
        # S-O4: a merge set that comes out exactly as a finished window does not merge.
        finished = state.index.find(gathered.key, gathered.start, gathered.end) >= 0
        if finished.any():
            still_open = ~finished[row_group]
            rows, row_group = rows[still_open], row_group[still_open]
        else:
            finished = None
    merges = None
    if reports:
        merges = _report(state, gathered, start, end, rows, row_group, finished, element)
    into, changed = _merge_rows(state, gathered, rows, row_group, clock, watermark)
    closed = None
    opening = (into < 0).nonzero()[0]  # those with an open window continue in its row
    if finished is not None:
        opening = opening[~finished[opening]]
        closed = finished[group]
        if not closed.any():
            closed = None
    opened = changed
    if opening.size:
        has_element = np.zeros(len(into), dtype=np.bool_)
        has_element[group] = True
        opening = opening[has_element[opening]]
        new = state.table.allocate(len(opening))
        state.table["key"][new] = gathered.key[opening]
        state.table["start"][new] = gathered.start[opening]
        state.table["end"][new] = gathered.end[opening]
        state.hold_keys(new, keys if closed is None else keys[~closed])
        if state.segments is not None:
            state.segments.insert(new)
        into[opening] = new
        opened = np.concatenate((new, changed)) if changed.size else new
    return Placed(into[group], closed, opened, changed, merges)


def _gather(state: WindowState, keys: Int64Array, start: Int64Array, end: Int64Array) -> Gathered:
    """Find out which new proto-windows and active windows of their keys merge."""
    function, segments = state.merging, state.segments
    if function is None or segments is None:
        raise InternalError("place_merging was called for windows that do not merge")
    if isinstance(function, Sessions):
        return segments.gather(keys, start, end, touching=function.merge_touching)
    merge = partial(_merged, function)
    if function.merge_scope == "overlapping":
        return segments.gather(keys, start, end, merge)
    order = np.lexsort((end, start, keys))
    begins = run_starts(keys[order], start[order], end[order])
    proto = np.empty(len(keys), dtype=np.int64)
    proto[order] = np.cumsum(begins) - 1
    distinct = order[begins]
    key, start, end = keys[distinct], start[distinct], end[distinct]
    rows = segments.of_keys(key[run_starts(key)])
    table = state.table
    key = np.concatenate((key, table["key"][rows]))
    start = np.concatenate((start, table["start"][rows]))
    end = np.concatenate((end, table["end"][rows]))
    return merge_sorted(merge, np.lexsort((end, start, key)), key, start, end, proto, rows)


def _merged(
    function: MergingWindowFunction, keys: Int64Array, start: Int64Array, end: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    merged = function.merge(keys, start, end)
    require_int64(function, "merge", merged.start, merged.end, positions=merged.group)
    return merged.group, merged.start, merged.end


def _report(
    state: WindowState,
    gathered: Gathered,
    start: Int64Array,
    end: Int64Array,
    rows: Int64Array,
    row_group: Int64Array,
    finished: Mask | None,
    element: Int64Array | None,
) -> MergedWindows:
    """Return which windows merge into which, those of finished windows left out."""
    of = np.concatenate((gathered.group, row_group))
    begins = np.concatenate((start, state.table["start"][rows]))
    ends = np.concatenate((end, state.table["end"][rows]))
    names = () if state.keys is None else state.keys.decode(gathered.key)
    came = np.arange(len(start), dtype=np.int64) if element is None else element
    came = np.concatenate((came, np.full(len(rows), -1, dtype=np.int64)))
    if finished is not None:
        reported = ~finished[of]
        of, begins, ends, came = of[reported], begins[reported], ends[reported], came[reported]
    return MergedWindows(of, begins, ends, names, gathered.start, gathered.end, came)


def _merge_rows(
    state: WindowState,
    gathered: Gathered,
    rows: Int64Array,
    group: Int64Array,
    clock: int,
    watermark: int,
) -> tuple[Int64Array, Int64Array]:
    """Merge the active rows of each group into one: (its row or -1, rows that changed)."""
    if not rows.size:
        return np.full(len(gathered.start), -1, dtype=np.int64), NONE
    table = state.table
    starts, ends = table["start"], table["end"]
    if len(rows) > 1 and not _are_sorted(group, starts[rows], ends[rows]):
        # They mostly are: sorting costs much more than looking.
        order = np.lexsort((ends[rows], starts[rows], group))
        rows, group = rows[order], group[order]
    joined = kernels().merge_rows(rows, group, starts, ends, gathered.start, gathered.end)
    into, changed = joined.into, joined.changed
    if not changed.size:
        return into, NONE
    targets = into[changed]
    state.touch(targets)
    end = gathered.end[changed]
    starts[targets] = gathered.start[changed]
    ends[targets] = end
    complete = end <= watermark
    state.machine.merge(
        table, Merge(joined.members, joined.first, targets, complete, clock, watermark)
    )
    # S-P4: a window that did not exist before starts with index 0, though it continues in a row.
    renewed = targets[joined.renewed]
    table["index"][renewed] = 0
    table["on_time_index"][renewed] = -1
    _absorb(state, joined.target, joined.leaving)
    return into, targets


def _are_sorted(group: Int64Array, start: Int64Array, end: Int64Array) -> bool:
    """Whether rows are sorted by (group, start, end)."""
    ahead = end[1:] >= end[:-1]
    for column in (start, group):
        ahead &= column[1:] == column[:-1]
        ahead |= column[1:] > column[:-1]
    return bool(ahead.all())


def _absorb(state: WindowState, into: Int64Array, rows: Int64Array) -> None:
    """Move what rows hold to the rows they merge into, and release them."""
    if not rows.size:
        return
    table = state.table
    state.aggregation.merge(into, rows)
    kernels().add_at(table["new"], into, table["new"][rows])
    np.logical_or.at(table["on_time_new"], into, table["on_time_new"][rows])
    if state.rule != "end":
        pick = kernels().max_at if state.rule == "latest" else kernels().min_at
        pick(table["timestamp"], into, table["timestamp"][rows])
    if state.shown is not None:
        state.shown.merge(into, rows)
    state.drop(rows)
