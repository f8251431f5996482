"""The kernels in numpy: the reference, and what runs where no compiler is installed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lowwater.kernels.plain_ids import add_to_filter as add_to_filter
from lowwater.kernels.plain_ids import may_be_in_filter as may_be_in_filter
from lowwater.kernels.plain_ids import sort_hashes as sort_hashes
from lowwater.kernels.plain_xxh64 import hash_bytes as hash_bytes
from lowwater.time import END_OF_TIME, Int64Array

NAME = "numpy"

EMPTY = -1
"""A slot of a hash index that was never used."""
DELETED = -2
"""A slot whose row was removed."""
CLAIMED = -3
"""A slot that holds this or less is taken by a new tuple, whose row is not known yet."""

# Odd 64-bit constants with well-mixed bits (the golden ratio and splitmix64's multipliers).
MULTIPLIERS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_FACTORS = tuple(map(np.uint64, MULTIPLIERS))
_HALF = np.uint64(29)

_FEW = 256  # values that are sorted sooner than looked at


class Claims(NamedTuple):
    """What came of finding tuples of values and claiming slots for new ones, arrays of int64.

    Args:
        rows: The row of each tuple; of those at ``missing``, anything.
        missing: The places of tuples that have no row, rising. Equal ones are one new tuple.
        which: For each of these, which of the new tuples it is.
        at: For each new tuple, a place where it occurs.
        slot: Its slot.
    """

    rows: Int64Array
    missing: Int64Array
    which: Int64Array
    at: Int64Array
    slot: Int64Array


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


class JoinedRows(NamedTuple):
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


class Arrived(NamedTuple):
    """The intervals that elements arrived in.

    Args:
        touched: Their rows, distinct, in order of first place, int64.
        counts: How many elements each got, int64.
        complete: Which of them end at or before the watermark, bool.
    """

    touched: Int64Array
    counts: Int64Array
    complete: NDArray[np.bool_]


Merging: TypeAlias = Callable[
    [Int64Array, Int64Array, Int64Array], tuple[Int64Array, Int64Array, Int64Array]
]
"""(group, start, end) of intervals that merge, given (key, start, end) sorted by key and start."""


def mixed(values: Sequence[Int64Array]) -> NDArray[np.uint64]:
    # Views, not copies: this is the first pass over every bundle that looks windows up.
    hashes = values[0].view(np.uint64) * _FACTORS[0]
    for at, value in enumerate(values[1:], 1):
        hashes ^= value.view(np.uint64) * _FACTORS[at % len(_FACTORS)]
        hashes *= _FACTORS[0]
    hashes ^= hashes >> _HALF
    hashes *= _FACTORS[1]
    return hashes


def find(
    slots: NDArray[np.int32], columns: Sequence[Int64Array], values: Sequence[Int64Array]
) -> Int64Array:
    return _probe(slots, columns, values)[0]


def find_or_claim(
    slots: NDArray[np.int32], columns: Sequence[Int64Array], values: Sequence[Int64Array]
) -> Claims:
    rows, ends = _probe(slots, columns, values)
    missing = np.flatnonzero(rows < 0)
    if not missing.size:
        return Claims(rows, missing, missing, missing, missing)
    values = [value[missing] for value in values]
    at = ends[missing]
    mask = len(slots) - 1
    owner = np.arange(len(missing), dtype=np.int64)
    pending = owner.copy()
    winners: list[Int64Array] = []
    places: list[Int64Array] = []
    while pending.size:
        claimable = slots[at] == EMPTY
        # Several may claim one slot: the last to write wins, the others look again.
        slots[at[claimable]] = (CLAIMED - pending[claimable]).astype(np.int32)
        holder = CLAIMED - slots[at].astype(np.int64)  # negative where a row is
        won = holder == pending
        winners.append(pending[won])
        places.append(at[won])
        lost = np.flatnonzero(~won)
        pending, at, holder = pending[lost], at[lost], holder[lost]
        same = holder >= 0
        for value in values:
            same &= value.take(holder, mode="clip") == value[pending]
        owner[pending[same]] = holder[same]
        pending = pending[~same]
        at = (at[~same] + 1) & mask
    first = np.concatenate(winners)
    number = np.empty(len(missing), dtype=np.int64)
    number[first] = np.arange(len(first))
    return Claims(rows, missing, number[owner], missing[first], np.concatenate(places))


def place(
    slots: NDArray[np.int32], columns: Sequence[Int64Array], rows: Int64Array
) -> NDArray[np.int32]:
    mask = len(slots) - 1
    at = _starts(slots, [column[rows] for column in columns])
    slot = np.empty(len(rows), dtype=np.int32)
    pending = np.arange(len(rows), dtype=np.int64)
    while pending.size:
        free = slots[at] == EMPTY
        slots[at[free]] = rows[pending[free]].astype(np.int32)
        done = slots[at] == rows[pending]
        slot[pending[done]] = at[done].astype(np.int32)
        pending = pending[~done]
        at = (at[~done] + 1) & mask
    return slot


def unique(stamp: Int64Array, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
    places = np.arange(len(rows), dtype=np.int64)
    # Written backwards, so that the first place of each row is the one that stays.
    stamp[rows[::-1]] = places[::-1]
    first = stamp[rows] == places
    distinct = rows[first]
    stamp[distinct] = np.arange(len(distinct), dtype=np.int64)
    return distinct, stamp[rows]


def argsort(values: Int64Array) -> Int64Array:
    if len(values) > _FEW:
        low = values.min()
        if int(values.max()) - int(low) < 1 << 16:  # numpy sorts 16 bits by radix
            return np.argsort((values - low).astype(np.uint16), kind="stable")
    return np.argsort(values, kind="stable")


def add_at(target: NDArray[Any], rows: Int64Array, values: NDArray[Any] | int) -> None:
    np.add.at(target, rows, values)


def max_at(target: NDArray[Any], rows: Int64Array, values: NDArray[Any]) -> None:
    np.maximum.at(target, rows, values)


def min_at(target: NDArray[Any], rows: Int64Array, values: NDArray[Any]) -> None:
    np.minimum.at(target, rows, values)


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
    which = np.repeat(np.arange(len(start), dtype=np.int64), count)
    begins = np.cumsum(count) - count
    inside = np.arange(len(which), dtype=np.int64) - begins[which]
    return start[which] + inside, which


def arrive(
    stamp: Int64Array,
    rows: Int64Array,
    sizes: Int64Array | None,
    others: Int64Array,
    ends: Int64Array,
    new: Int64Array,
    on_time: NDArray[np.bool_],
    watermark: int,
) -> Arrived:
    touched, counts = _tally(stamp, rows, sizes, others)
    complete = ends[touched] <= watermark
    new[touched] += counts
    on_time[touched] |= (counts > 0) & ~complete
    return Arrived(touched, counts, complete)


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
    """Merge intervals: some new ones, and behind them those of some rows.

    Args:
        merge: How they merge.
        order: The order in which they are sorted by key and start.
        key: The key of each interval.
        start: Its first instant.
        end: The first instant after it.
        new: Places of new intervals among these; there may be fewer places than intervals.
        rows: The rows that the last of the intervals are of.
    """
    key = key[order]
    merged, start, end = merge(key, start[order], end[order])
    group = np.empty(len(order), dtype=np.int64)
    group[order] = merged
    of = np.zeros(len(start), dtype=np.int64)  # a user's merge may name an empty set
    of[merged] = key
    return Gathered(group[new], of, start, end, rows, group[len(group) - len(rows) :])


def join(
    rows: Int64Array,
    group: Int64Array,
    starts: Int64Array,
    ends: Int64Array,
    start: Int64Array,
    end: Int64Array,
) -> JoinedRows:
    into = np.full(len(start), -1, dtype=np.int64)
    same = (starts[rows] == start[group]) & (ends[rows] == end[group])
    begins = run_starts(group)
    into[group[begins]] = rows[begins]  # any member's row will do, and the earliest is at hand
    into[group[same]] = rows[same]  # S-P4: an equal interval goes on
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
    return JoinedRows(
        into, changed, members, run_starts(group).nonzero()[0], ~goes_on[changed],
        members[leaving], target[leaving],
    )  # fmt: skip


def bring_forward(
    column: Int64Array, rows: Int64Array, times: Int64Array, ends: bool
) -> tuple[Int64Array, Int64Array]:
    before = column[rows]
    sooner = times < before
    if ends:
        sooner |= (times == END_OF_TIME) & (before == END_OF_TIME)
    if not sooner.all():
        rows, times = rows[sooner], times[sooner]
    column[rows] = times
    return rows, times


def run_starts(*columns: Int64Array) -> NDArray[np.bool_]:
    """Return where a run of equal rows begins in columns that are sorted together."""
    begins = np.ones(len(columns[0]), dtype=np.bool_)
    if len(begins) > 1:
        np.not_equal(columns[0][1:], columns[0][:-1], out=begins[1:])
        for column in columns[1:]:
            begins[1:] |= column[1:] != column[:-1]
    return begins


def _tally(
    stamp: Int64Array, rows: Int64Array, sizes: Int64Array | None, others: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Return the distinct rows of two lists, and how much there is of each in the first."""
    every = np.concatenate((rows, others)) if len(others) else rows
    if len(every) == 1 and sizes is None:
        return every, np.full(1, len(rows), dtype=np.int64)
    distinct, place = unique(stamp, every)
    if sizes is None:
        return distinct, np.bincount(place[: len(rows)], minlength=len(distinct))
    counts = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(counts, place[: len(rows)], sizes)
    return distinct, counts


def _starts(slots: NDArray[np.int32], values: Sequence[Int64Array]) -> Int64Array:
    bits = len(slots).bit_length() - 1
    return (mixed(values) >> np.uint64(64 - bits)).astype(np.int64)


def _probe(
    slots: NDArray[np.int32], columns: Sequence[Int64Array], values: Sequence[Int64Array]
) -> tuple[Int64Array, Int64Array]:
    """Return the row of each tuple or -1, and the slot where its probing ended."""
    mask = len(slots) - 1
    start = ends = _starts(slots, values)
    found = slots[start].astype(np.int64)
    equal = found >= 0
    for column, value in zip(columns, values, strict=True):
        # Clipping makes row 0 stand in where there is none; ``equal`` knows better.
        equal &= column.take(found, mode="clip") == value
    pending = np.flatnonzero(~equal & (found != EMPTY))
    at = start[pending]
    while pending.size:
        at = (at + 1) & mask
        ends[pending] = at
        rows = slots[at].astype(np.int64)
        equal = rows >= 0
        for column, value in zip(columns, values, strict=True):
            equal &= column.take(rows, mode="clip") == value[pending]
        found[pending] = rows
        go_on = ~equal & (rows != EMPTY)
        pending, at = pending[go_on], at[go_on]
    return found, ends


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
