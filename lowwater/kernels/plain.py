"""The kernels in numpy: the reference, and what runs where no compiler is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowwater.kernels.plain_ids import add_to_filter as add_to_filter
from lowwater.kernels.plain_ids import may_be_in_filter as may_be_in_filter
from lowwater.kernels.plain_ids import sort_hashes as sort_hashes
from lowwater.kernels.plain_merging import count_below as count_below
from lowwater.kernels.plain_merging import expand_ranges as expand_ranges
from lowwater.kernels.plain_merging import follow_pieces as follow_pieces
from lowwater.kernels.plain_merging import gather as gather
from lowwater.kernels.plain_merging import merge_overlapping as merge_overlapping
from lowwater.kernels.plain_merging import merge_rows as merge_rows
from lowwater.kernels.plain_patterns import find_matches as find_matches
from lowwater.kernels.plain_ranges import range_sums as range_sums
from lowwater.kernels.plain_ranges import time_ranges as time_ranges
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
# What is not a number stays so: a result, not a reason to warn.
_NAN_IS_NAN = np.errstate(invalid="ignore")


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


def mixed(values: Sequence[Int64Array]) -> NDArray[np.uint64]:
    # Views, not copies: this is the first pass over every bundle that looks windows up.
    # Positions among them have 32 bits in a browser.
    values = [np.asarray(value, dtype=np.int64) for value in values]
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


@_NAN_IS_NAN
def max_at(target: NDArray[Any], rows: Int64Array, values: NDArray[Any]) -> None:
    np.maximum.at(target, rows, values)


@_NAN_IS_NAN
def min_at(target: NDArray[Any], rows: Int64Array, values: NDArray[Any]) -> None:
    np.minimum.at(target, rows, values)


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
