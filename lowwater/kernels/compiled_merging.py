"""The compiled kernels that merge intervals, look up open ones, and follow chains of pieces."""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from lowwater.kernels.compiler import IN, OUT, array, compiled, several, whole
from lowwater.kernels.plain_merging import Gathered, MergedRows, sort_by_key_and_time
from lowwater.time import Int64Array


@compiled(types.int64(IN, IN, IN, types.boolean, OUT, OUT, OUT))
def _merge_overlapping(
    keys: Int64Array,
    start: Int64Array,
    end: Int64Array,
    touching: bool,
    group: Int64Array,
    starts: Int64Array,
    ends: Int64Array,
) -> int:
    last = -1
    for i in range(len(keys)):
        apart = i == 0 or keys[i] != keys[i - 1] or start[i] > ends[last]
        if apart or (not touching and start[i] == ends[last]):
            last += 1
            starts[last] = start[i]
            ends[last] = end[i]
        elif end[i] > ends[last]:
            ends[last] = end[i]
        group[i] = last
    return last + 1


@compiled(types.void(IN, IN, IN, IN, IN, types.boolean, OUT))
def _count_below(
    pool: Int64Array,
    at: Int64Array,
    count: Int64Array,
    column: Int64Array,
    bound: Int64Array,
    or_equal: bool,
    below: Int64Array,
) -> None:
    for i in range(len(at)):
        low, high = 0, count[i]
        while low < high:
            middle = (low + high) >> 1
            value = column[pool[at[i] + middle]]
            if value < bound[i] or (or_equal and value == bound[i]):
                low = middle + 1
            else:
                high = middle
        below[i] = low


@njit(inline="always")
def _below(
    pool: Int64Array, at: int, low: int, high: int, column: Int64Array, bound: int, or_equal: bool
) -> int:
    """Return how many rows of a segment lie below (or at) a bound: at least low, at most high."""
    while low < high:
        middle = (low + high) >> 1
        value = column[pool[at + middle]]
        if value < bound or (or_equal and value == bound):
            low = middle + 1
        else:
            high = middle
    return low


@compiled(several(types.int64, 2)(*[IN] * 4, types.boolean, *[IN] * 6, *[OUT] * 6))
def _gather(
    order: Int64Array, keys: Int64Array, start: Int64Array, end: Int64Array, touching: bool,
    pool: Int64Array, at: Int64Array, count: Int64Array,
    key_of: Int64Array, starts: Int64Array, ends: Int64Array,
    group: Int64Array, key: Int64Array, begins: Int64Array, stops: Int64Array,
    rows: Int64Array, row_group: Int64Array,
) -> tuple[int, int]:  # fmt: skip
    """Return how many groups and rows there are; no group, if there are more rows than room."""
    spans = -1
    span_key, span_start, span_end = np.empty((3, len(order)), dtype=np.int64)
    for i in order:
        if (
            spans < 0 or keys[i] != span_key[spans] or start[i] > span_end[spans]
            or (start[i] == span_end[spans] and not touching)
        ):  # fmt: skip
            spans += 1
            span_key[spans], span_start[spans], span_end[spans] = keys[i], start[i], end[i]
        elif end[i] > span_end[spans]:
            span_end[spans] = end[i]
        group[i] = spans
    spans += 1
    # The open intervals of a key are disjoint: what one span meets begins no sooner than what the
    # last one met. Those that touch it are looked at too, and are groups of their own, perhaps.
    found = place = 0
    for span in range(spans):
        of = span_key[span]
        if span == 0 or of != span_key[span - 1]:
            place = 0
        place = _below(pool, at[of], place, count[of], ends, span_start[span], False)
        while place < count[of] and starts[pool[at[of] + place]] <= span_end[span]:
            if found < len(rows):
                rows[found] = pool[at[of] + place]
            found += 1
            place += 1
    if found > len(rows):
        return 0, found
    span_group = np.empty(spans, dtype=np.int64)
    last, span, at_row = -1, 0, 0
    while span < spans or at_row < found:
        row = rows[min(at_row, len(rows) - 1)]
        is_span = at_row == found or (
            span < spans
            and (
                span_key[span] < key_of[row]
                or (span_key[span] == key_of[row] and span_start[span] <= starts[row])
            )
        )
        of = span_key[span] if is_span else key_of[row]
        begin = span_start[span] if is_span else starts[row]
        stop = span_end[span] if is_span else ends[row]
        apart = last < 0 or key[last] != of or begin > stops[last]
        if apart or (not touching and begin == stops[last]):
            last += 1
            key[last], begins[last], stops[last] = of, begin, stop
        elif stop > stops[last]:
            stops[last] = stop
        if is_span:
            span_group[span] = last
            span += 1
        else:
            row_group[at_row] = last
            at_row += 1
    for i in range(len(group)):
        group[i] = span_group[group[i]]
    return last + 1, found


@compiled(
    several(types.int64, 3)(*[IN] * 6, *[OUT] * 4, array(types.boolean, written=True), *[OUT] * 2)
)
def _merge_rows(
    rows: Int64Array, group: Int64Array, starts: Int64Array, ends: Int64Array,
    start: Int64Array, end: Int64Array,
    into: Int64Array, changed: Int64Array, members: Int64Array, first: Int64Array,
    renewed: NDArray[np.bool_], leaving: Int64Array, target: Int64Array,
) -> tuple[int, int, int]:  # fmt: skip
    into[:] = -1
    changes = inside = left = 0
    begin = 0
    while begin < len(rows):
        of = group[begin]
        stop, goes_on = begin, False
        into[of] = rows[begin]
        while stop < len(rows) and group[stop] == of:
            row = rows[stop]
            if starts[row] == start[of] and ends[row] == end[of]:
                into[of], goes_on = row, True
            stop += 1
        if not goes_on or stop - begin > 1:
            changed[changes], first[changes], renewed[changes] = of, inside, not goes_on
            changes += 1
            for i in range(begin, stop):
                members[inside] = rows[i]
                inside += 1
                if rows[i] != into[of]:
                    leaving[left], target[left] = rows[i], into[of]
                    left += 1
        begin = stop
    return changes, inside, left


def merge_overlapping(
    keys: Int64Array, start: Int64Array, end: Int64Array, touching: bool
) -> tuple[Int64Array, Int64Array, Int64Array]:
    group, starts, ends = np.empty((3, len(keys)), dtype=np.int64)
    count = _merge_overlapping(whole(keys), whole(start), whole(end), touching, group, starts, ends)
    return group, starts[:count], ends[:count]


def count_below(
    pool: Int64Array,
    at: Int64Array,
    count: Int64Array,
    column: Int64Array,
    bound: Int64Array,
    or_equal: bool,
) -> Int64Array:
    below = np.empty(len(at), dtype=np.int64)
    _count_below(pool, whole(at), whole(count), whole(column), whole(bound), or_equal, below)
    return below


def gather(
    keys: Int64Array,
    start: Int64Array,
    end: Int64Array,
    touching: bool,
    pool: Int64Array,
    at: Int64Array,
    count: Int64Array,
    key_of: Int64Array,
    starts: Int64Array,
    ends: Int64Array,
) -> Gathered:
    new, room = len(keys), 2 * len(keys)
    order = sort_by_key_and_time(keys, start)
    keys, start, end = whole(keys), whole(start), whole(end)
    while True:
        group = np.empty(new, dtype=np.int64)
        key, begins, stops = np.empty((3, new + room), dtype=np.int64)
        rows, row_group = np.empty((2, room), dtype=np.int64)
        groups, found = _gather(
            order, keys, start, end, touching, pool, at, count, key_of, starts, ends,
            group, key, begins, stops, rows, row_group,
        )  # fmt: skip
        if groups:
            break
        room = found
    return Gathered(
        group, key[:groups], begins[:groups], stops[:groups], rows[:found], row_group[:found]
    )


def merge_rows(
    rows: Int64Array,
    group: Int64Array,
    starts: Int64Array,
    ends: Int64Array,
    start: Int64Array,
    end: Int64Array,
) -> MergedRows:
    groups = len(start)
    into, changed, first = np.empty((3, groups), dtype=np.int64)
    members, leaving, target = np.empty((3, len(rows)), dtype=np.int64)
    renewed = np.empty(groups, dtype=np.bool_)
    changes, inside, left = _merge_rows(
        whole(rows), whole(group), starts, ends, whole(start), whole(end),
        into, changed, members, first, renewed, leaving, target,
    )  # fmt: skip
    return MergedRows(
        into, changed[:changes], members[:inside], first[:changes], renewed[:changes],
        leaving[:left], target[:left],
    )  # fmt: skip


@compiled(types.int64(IN, IN, IN, IN, OUT, OUT))
def _follow_pieces(
    head: Int64Array, follows: Int64Array, start: Int64Array, count: Int64Array,
    places: Int64Array, which: Int64Array,
) -> int:  # fmt: skip
    at = depth = 0
    for i in range(len(head)):
        piece, length = head[i], 0
        while piece >= 0:
            for inside in range(count[piece]):
                places[at] = start[piece] + inside
                which[at] = i
                at += 1
            length += 1
            piece = follows[piece]
        depth = max(depth, length)
    return depth


def follow_pieces(
    head: Int64Array,
    follows: Int64Array,
    start: Int64Array,
    count: Int64Array,
    held: Int64Array,
) -> tuple[Int64Array, Int64Array, int]:
    places, which = np.empty((2, int(held.sum())), dtype=np.int64)
    depth = _follow_pieces(whole(head), follows, start, count, places, which)
    return places, which, int(depth)
