"""The kernels that merge intervals, in numpy; users' own merge functions share parts of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lowwater.kernels.positions import repeated
from lowwater.time import Int64Array


class Gathered(NamedTuple):
    """New intervals and the open ones that they may merge with, in groups, arrays of int64.

    Args:
        group: The group of each new interval.
        key: The key of each group.
        start: Its first instant.
        end: The first instant after it.
        rows: The rows of the open intervals, in order of key, then start.
        row_group: The group of each of these.
    """

    group: Int64Array
    key: Int64Array
    start: Int64Array
    end: Int64Array
    rows: Int64Array
    row_group: Int64Array


class MergedRows(NamedTuple):
    """Into which rows open intervals merge, arrays of int64 but ``renewed``.

    Args:
        into: The row that each group continues in, -1 for a group without rows.
        changed: Groups whose rows are more than one, or another interval than the group; rising.
        members: The rows of these, group by group.
        first: Where each of them begins in ``members``.
        renewed: Whether none of its rows has the interval of the group, bool.
        leaving: The members that are not the row their group continues in.
        target: The row that each of these merges into.
    """

    into: Int64Array
    changed: Int64Array
    members: Int64Array
    first: Int64Array
    renewed: NDArray[np.bool_]
    leaving: Int64Array
    target: Int64Array


Merging: TypeAlias = Callable[
    [Int64Array, Int64Array, Int64Array], tuple[Int64Array, Int64Array, Int64Array]
]
"""(group, start, end) of intervals that merge, given (key, start, end) sorted by key and start."""


def merge_overlapping(
    keys: Int64Array, start: Int64Array, end: Int64Array, touching: bool
) -> tuple[Int64Array, Int64Array, Int64Array]:
    count = len(keys)
    if count == 1:
        return np.zeros(1, dtype=np.int64), start, end
    new_key = np.empty(count, dtype=np.bool_)
    new_key[0] = True
    np.not_equal(keys[1:], keys[:-1], out=new_key[1:])
    reach = _running_max(end, new_key)
    opens = new_key.copy()
    if touching:
        opens[1:] |= start[1:] > reach[:-1]
    else:
        opens[1:] |= start[1:] >= reach[:-1]
    closes = np.ones(count, dtype=np.bool_)
    closes[:-1] = opens[1:]
    return np.cumsum(opens) - 1, start[opens], reach[closes]


def count_below(
    pool: Int64Array,
    at: Int64Array,
    count: Int64Array,
    column: Int64Array,
    bound: Int64Array,
    or_equal: bool,
) -> Int64Array:
    if len(at) == 1:
        rows = pool[int(at[0]) : int(at[0]) + int(count[0])]
        find = bisect_right if or_equal else bisect_left
        return np.array([find(rows, bound[0], key=column.__getitem__)], dtype=np.int64)
    low = np.zeros(len(at), dtype=np.int64)
    high = count.copy()
    for _ in range(int(count.max(initial=0)).bit_length()):
        open_ = low < high
        middle = (low + high) >> 1
        place = np.where(open_, at + middle, 0)
        value = column[np.where(open_, pool[place], 0)]
        below = value <= bound if or_equal else value < bound
        low = np.where(open_ & below, middle + 1, low)
        high = np.where(open_ & ~below, middle, high)
    return low


def expand_ranges(start: Int64Array, count: Int64Array) -> tuple[Int64Array, Int64Array]:
    if len(start) == 1:
        only = np.arange(int(start[0]), int(start[0]) + int(count[0]), dtype=np.int64)
        return only, np.zeros(len(only), dtype=np.int64)
    if (count == 1).all():
        return start.copy(), np.arange(len(start), dtype=np.int64)
    which = repeated(np.arange(len(start), dtype=np.int64), count)
    begins = np.cumsum(count) - count
    inside = np.arange(len(which), dtype=np.int64) - begins[which]
    return start[which] + inside, which


def follow_pieces(
    head: Int64Array,
    follows: Int64Array,
    start: Int64Array,
    count: Int64Array,
    held: Int64Array,
) -> tuple[Int64Array, Int64Array, int]:
    which = np.flatnonzero(held)
    piece = head[which]
    pieces, owners = [], []
    while piece.size:
        pieces.append(piece)
        owners.append(which)
        piece = follows[piece]
        more = piece >= 0
        piece, which = piece[more], which[more]
    if not pieces:
        nothing = np.empty(0, dtype=np.int64)
        return nothing, nothing, 0
    piece, owner = np.concatenate(pieces), np.concatenate(owners)
    if len(pieces) > 1:  # one row after another
        order = sort_by_key_and_time(owner, np.zeros(len(owner), dtype=np.int64))
        piece, owner = piece[order], owner[order]
    places, of = expand_ranges(start[piece], count[piece])
    return places, owner[of], len(pieces)


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
    merge = partial(merge_overlapping, touching=touching)
    return gather_by(merge, keys, start, end, pool, at, count, key_of, starts, ends)


def gather_by(
    merge: Merging,
    keys: Int64Array,
    start: Int64Array,
    end: Int64Array,
    pool: Int64Array,
    at: Int64Array,
    count: Int64Array,
    key_of: Int64Array,
    starts: Int64Array,
    ends: Int64Array,
) -> Gathered:
    """Do as :func:`gather` does, where intervals that overlap merge by a function of their own."""
    order = sort_by_key_and_time(keys, start)
    keys = keys[order]
    local, start, end = merge(keys, start[order], end[order])
    key = keys[run_starts(local)]
    group = np.empty(len(keys), dtype=np.int64)
    # Intervals that touch are looked up too: whether they merge is up to the function.
    at, count = at[key], count[key]
    low = count_below(pool, at, count, ends, start, False)
    high = count_below(pool, at, count, starts, end, True)
    places, _ = expand_ranges(at + low, np.maximum(high - low, 0))
    if not len(places):
        group[order] = local
        return Gathered(group, key, start, end, places, places)
    if len(places) > 1 and not (places[1:] > places[:-1]).all():
        # Two new ones overlap the same open one.
        places = places[np.sort(np.unique(places, return_index=True)[1])]
    rows = pool[places]
    key = np.concatenate((key, key_of[rows]))
    start = np.concatenate((start, starts[rows]))
    end = np.concatenate((end, ends[rows]))
    group[order] = local
    return merge_sorted(merge, sort_by_key_and_time(key, start), key, start, end, group, rows)


def merge_sorted(
    merge: Merging,
    order: Int64Array,
    key: Int64Array,
    start: Int64Array,
    end: Int64Array,
    new: Int64Array,
    rows: Int64Array,
) -> Gathered:
    """Merge intervals: some new ones, followed by those of some rows.

    Args:
        merge: How they merge.
        order: The order in which they are sorted by key and start.
        key: The key of each interval.
        start: Its first instant.
        end: The first instant after it.
        new: For each new element the place of its interval among these; several may name one.
        rows: The rows that the last of the intervals are of.
    """
    key = key[order]
    merged, start, end = merge(key, start[order], end[order])
    group = np.empty(len(order), dtype=np.int64)
    group[order] = merged
    of = np.zeros(len(start), dtype=np.int64)  # a user's merge may name an empty set
    of[merged] = key
    return Gathered(group[new], of, start, end, rows, group[len(group) - len(rows) :])


def merge_rows(
    rows: Int64Array,
    group: Int64Array,
    starts: Int64Array,
    ends: Int64Array,
    start: Int64Array,
    end: Int64Array,
) -> MergedRows:
    into = np.full(len(start), -1, dtype=np.int64)
    same = (starts[rows] == start[group]) & (ends[rows] == end[group])
    begins = run_starts(group)
    into[group[begins]] = rows[begins]  # any member's row will do, and the earliest is at hand
    into[group[same]] = rows[same]  # S-P4: an equal interval continues
    goes_on = np.zeros(len(into), dtype=np.bool_)
    goes_on[group[same]] = True
    present = group[begins]
    size = np.add.reduceat(np.ones(len(rows), dtype=np.int64), begins.nonzero()[0])
    changed = present[(size > 1) | ~goes_on[present]]
    changes = np.zeros(len(into), dtype=np.bool_)
    changes[changed] = True
    chosen = changes[group]
    members, group = rows[chosen], group[chosen]
    target = into[group]
    leaving = members != target
    return MergedRows(
        into, changed, members, run_starts(group).nonzero()[0], ~goes_on[changed],
        members[leaving], target[leaving],
    )  # fmt: skip


def sort_by_key_and_time(keys: Int64Array, times: Int64Array) -> Int64Array:
    """Return the order that sorts by key, then time, then place: a stable lexicographic argsort.

    Where both fit into 64 bits together with the place, one plain sort does it.
    """
    count = len(keys)
    if count < 2:
        return np.arange(count, dtype=np.int64)
    low, first = int(times.min()), int(keys.min())
    span_bits = (int(times.max()) - low).bit_length()
    key_bits = (int(keys.max()) - first).bit_length()
    place_bits = (count - 1).bit_length()
    if key_bits + span_bits + place_bits <= 63:
        packed = (((keys - first) << span_bits) | (times - low)) << place_bits
        packed |= np.arange(count, dtype=np.int64)
        packed.sort()
        packed &= (1 << place_bits) - 1
        return packed
    return np.lexsort((times, keys))


def run_starts(*columns: Int64Array) -> NDArray[np.bool_]:
    """Return where a run of equal rows begins in columns that are sorted together."""
    begins = np.ones(len(columns[0]), dtype=np.bool_)
    if len(begins) > 1:
        np.not_equal(columns[0][1:], columns[0][:-1], out=begins[1:])
        for column in columns[1:]:
            begins[1:] |= column[1:] != column[:-1]
    return begins


def _running_max(values: Int64Array, restart: NDArray[np.bool_]) -> Int64Array:
    """Return the running maximum of each run; a run begins where ``restart`` is true."""
    inside = ~restart[1:]
    if not (inside & (values[1:] < values[:-1])).any():
        return values
    # One maximum.accumulate over all runs: add (run number * n) to each rank, so that every rank
    # of a later run exceeds all of an earlier one. Ranks, unlike instants, leave room to do so.
    order = np.argsort(values, kind="stable")
    rank = np.empty(len(values), dtype=np.int64)
    rank[order] = np.arange(len(values))
    base = np.cumsum(restart) * len(values)
    top = np.maximum.accumulate(rank + base) - base
    return values[order[top]]
