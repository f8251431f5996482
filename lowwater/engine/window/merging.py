"""Finds or opens the windows of elements; MergeWindows over the rows of the keys touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from lowwater.engine.records.columns import Mask
from lowwater.engine.records.steps import MergedWindows
from lowwater.engine.window.placement import require_int64
from lowwater.engine.window.window_state import WindowState
from lowwater.errors import InternalError
from lowwater.kernels import kernels
from lowwater.state.arrays import NONE, run_starts, sort_by_key_and_time
from lowwater.time import Int64Array
from lowwater.triggers._machine import Merge
from lowwater.windows import Merged, MergingWindowFunction


@final
@dataclass(frozen=True, slots=True)
class Placed:
    """Where elements went.

    Args:
        rows: The row of each element's window, int64; meaningless where it is closed.
        closed: Which elements belong to a window that has finished (S-O4); ``None`` for none.
        new: Rows of windows that did not exist before.
        changed: Rows of windows that others merged into, or whose interval changed.
        merges: Which windows merged into which, if that was asked for.
    """

    rows: Int64Array
    closed: Mask | None
    new: Int64Array
    changed: Int64Array
    merges: MergedWindows | None = None


@final
@dataclass(frozen=True, slots=True)
class _Parties:
    """What may merge: new proto-windows and active rows, sorted by (key, start, end)."""

    proto_of_element: Int64Array
    protos: int
    rows: Int64Array
    order: Int64Array
    key: Int64Array
    merged: Merged


def place_plain(
    state: WindowState,
    keys: Int64Array,
    start: Int64Array,
    end: Int64Array,
    of: Int64Array | None = None,
) -> Placed:
    """Find or open windows that never merge; ``of`` says which each element is in. O(n) expected.

    Without it, there is one for each element.
    """
    rows, new = state.index.find_or_insert(keys, start, end)
    if new.size:
        state.hold_keys(new, keys)
    if of is not None:
        rows = rows[of]
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
    if state.merging is None:
        raise InternalError("place_merging was called for windows that do not merge")
    parties = _gather(state, state.merging, keys, start, end)
    merged = parties.merged
    groups = len(merged.start)
    party_group = np.empty(len(parties.order), dtype=np.int64)
    party_group[parties.order] = merged.group
    group_of_element = party_group[: parties.protos][parties.proto_of_element]
    group_key = np.zeros(groups, dtype=np.int64)  # a user's merge may name an empty set
    group_key[merged.group] = parties.key
    has_element = np.zeros(groups, dtype=np.bool_)
    has_element[party_group[: parties.protos]] = True
    finished = np.zeros(groups, dtype=np.bool_)
    if state.finished_rows:
        # S-O4: a merge set that comes out exactly as a finished window does not merge.
        finished = state.index.find(group_key, merged.start, merged.end) >= 0
    row_group = party_group[parties.protos :]
    open_rows = ~finished[row_group]
    merges = None
    if reports:
        rows = parties.rows[open_rows]
        of = np.concatenate((group_of_element, row_group[open_rows]))
        begins = np.concatenate((start, state.table["start"][rows]))
        ends = np.concatenate((end, state.table["end"][rows]))
        reported = ~finished[of]
        names = () if state.keys is None else state.keys.decode(group_key)
        came = np.arange(len(start), dtype=np.int64) if element is None else element
        was_open = np.full(len(rows), -1, dtype=np.int64)
        merges = MergedWindows(
            of[reported], begins[reported], ends[reported], names, merged.start, merged.end,
            np.concatenate((came, was_open))[reported],
        )  # fmt: skip
    into, changed = _merge_rows(
        state, merged, parties.rows[open_rows], row_group[open_rows], clock, watermark
    )
    closed = finished[group_of_element]
    # Groups of new proto-windows only; those with an open window continue in its row.
    opening = np.flatnonzero((into < 0) & has_element & ~finished)
    new = NONE
    if opening.size:
        new = state.table.allocate(len(opening))
        state.table["key"][new] = group_key[opening]
        state.table["start"][new] = merged.start[opening]
        state.table["end"][new] = merged.end[opening]
        state.hold_keys(new, keys[~closed])
        if state.segments is not None:
            state.segments.insert(new)
        into[opening] = new
    return Placed(into[group_of_element], closed if closed.any() else None, new, changed, merges)


def _gather(
    state: WindowState,
    function: MergingWindowFunction,
    keys: Int64Array,
    start: Int64Array,
    end: Int64Array,
) -> _Parties:
    segments = state.segments
    if segments is None:
        raise InternalError("merging windows have no segments")
    count = len(keys)
    proto_of_element = np.empty(count, dtype=np.int64)
    if function.merge_scope == "overlapping":
        order = sort_by_key_and_time(keys, start)
        keys = keys[order]
        local = function.merge(keys, start[order], end[order])
        require_int64(function, "merge", local.group, local.start, local.end)
        proto_of_element[order] = local.group
        key = keys[run_starts(local.group)]
        start, end = local.start, local.end
        # Windows that touch are looked up too: whether they merge is up to the function.
        hit, _ = segments.overlapping(key, start, end, touching=True)
        rows, _ = state.scratch.unique(hit, state.table.capacity)
        if not rows.size:
            alone = np.arange(len(key), dtype=np.int64)
            return _Parties(proto_of_element, len(key), NONE, alone, key, Merged(alone, start, end))
    else:
        order = np.lexsort((end, start, keys))
        begins = run_starts(keys[order], start[order], end[order])
        proto_of_element[order] = np.cumsum(begins) - 1
        distinct = order[begins]
        key, start, end = keys[distinct], start[distinct], end[distinct]
        rows = segments.of_keys(key[run_starts(key)])
    protos = len(key)
    table = state.table
    key = np.concatenate((key, table["key"][rows]))
    start = np.concatenate((start, table["start"][rows]))
    end = np.concatenate((end, table["end"][rows]))
    if function.merge_scope == "overlapping":
        order = sort_by_key_and_time(key, start)
    else:
        order = np.lexsort((end, start, key))
    merged = function.merge(key[order], start[order], end[order])
    require_int64(function, "merge", merged.group, merged.start, merged.end)
    return _Parties(proto_of_element, protos, rows, order, key[order], merged)


def _merge_rows(
    state: WindowState,
    merged: Merged,
    rows: Int64Array,
    group: Int64Array,
    clock: int,
    watermark: int,
) -> tuple[Int64Array, Int64Array]:
    """Merge the active rows of each group into one: (its row or -1, rows that changed)."""
    into = np.full(len(merged.start), -1, dtype=np.int64)
    if not rows.size:
        return into, NONE
    table = state.table
    start, end = table["start"][rows], table["end"][rows]
    if not _are_sorted(group, start, end):  # they mostly are: sorting costs much more than looking
        order = np.lexsort((end, start, group))
        rows, group, start, end = rows[order], group[order], start[order], end[order]
    same = (start == merged.start[group]) & (end == merged.end[group])
    begins = run_starts(group)
    into[group[begins]] = rows[begins]  # any member's row will do, and the earliest is at hand
    into[group[same]] = rows[same]  # S-P4: an equal window continues, with its index
    present = group[begins]
    size = np.add.reduceat(np.ones(len(rows), dtype=np.int64), begins.nonzero()[0])
    goes_on = np.zeros(len(into), dtype=np.bool_)
    goes_on[group[same]] = True
    changes = np.zeros(len(into), dtype=np.bool_)
    changes[present] = (size > 1) | ~goes_on[present]
    chosen = changes[group]
    if not chosen.any():
        return into, NONE
    members, group = rows[chosen], group[chosen]
    begins = run_starts(group)
    present = group[begins]
    targets = into[present]
    state.touch(targets)
    end = merged.end[present]
    table["start"][targets] = merged.start[present]
    table["end"][targets] = end
    state.machine.merge(
        table,
        Merge(members, np.flatnonzero(begins), targets, end <= watermark, clock, watermark),
    )
    # S-P4: a window that did not exist before starts with index 0, though it continues in a row.
    renewed = targets[~goes_on[present]]
    table["index"][renewed] = 0
    table["on_time_index"][renewed] = -1
    leaving = members != into[group]
    _absorb(state, into[group[leaving]], members[leaving])
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
