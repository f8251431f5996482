"""The kernels as loops that numba compiles: one pass each, without Python's lock.

Importing this module loads numba, and compiles what is not in numba's cache on disk. Types are
declared, so nothing is compiled later. Inputs are declared read-only, which takes both kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from lowwater.kernels import plain
from lowwater.kernels.compiled_ids import add_to_filter as add_to_filter
from lowwater.kernels.compiled_ids import hash_bytes as hash_bytes
from lowwater.kernels.compiled_ids import may_be_in_filter as may_be_in_filter
from lowwater.kernels.compiled_ids import sort_hashes as sort_hashes
from lowwater.kernels.compiled_merging import count_below as count_below
from lowwater.kernels.compiled_merging import follow_pieces as follow_pieces
from lowwater.kernels.compiled_merging import gather as gather
from lowwater.kernels.compiled_merging import merge_overlapping as merge_overlapping
from lowwater.kernels.compiled_merging import merge_rows as merge_rows
from lowwater.kernels.compiled_patterns import find_matches as find_matches
from lowwater.kernels.compiled_ranges import range_sums as range_sums
from lowwater.kernels.compiled_ranges import time_ranges as time_ranges
from lowwater.kernels.compiler import HASHES, HASHES_OUT, IN, OUT, array, compiled, several, whole
from lowwater.kernels.compiler import IS_CACHED as IS_CACHED
from lowwater.kernels.plain import CLAIMED, EMPTY, MULTIPLIERS, Arrived, Claims
from lowwater.time import END_OF_TIME, Int64Array

NAME = "numba"

_Hashes: TypeAlias = NDArray[np.uint64]

_SLOTS, _SLOTS_OUT = array(types.int32), array(types.int32, written=True)
_BOOLS = array(types.boolean, written=True)
_FACTORS = tuple(np.uint64(each) for each in MULTIPLIERS)
_BLOCK = 256  # tuples that are looked up together


@njit(inline="always")
def _finished(hashed: np.uint64) -> np.uint64:
    return (hashed ^ (hashed >> np.uint64(29))) * _FACTORS[1]


@compiled(types.void(IN, HASHES_OUT))
def _mixed_one(first: Int64Array, hashes: _Hashes) -> None:
    for i in range(len(first)):
        hashes[i] = _finished(np.uint64(first[i]) * _FACTORS[0])


@compiled(types.void(IN, IN, HASHES_OUT))
def _mixed_two(first: Int64Array, second: Int64Array, hashes: _Hashes) -> None:
    for i in range(len(first)):
        hashed = np.uint64(first[i]) * _FACTORS[0]
        hashed = (hashed ^ np.uint64(second[i]) * _FACTORS[1]) * _FACTORS[0]
        hashes[i] = _finished(hashed)


@compiled(types.void(IN, IN, IN, HASHES_OUT))
def _mixed_three(first: Int64Array, second: Int64Array, third: Int64Array, hashes: _Hashes) -> None:
    for i in range(len(first)):
        hashed = np.uint64(first[i]) * _FACTORS[0]
        hashed = (hashed ^ np.uint64(second[i]) * _FACTORS[1]) * _FACTORS[0]
        hashed = (hashed ^ np.uint64(third[i]) * _FACTORS[2]) * _FACTORS[0]
        hashes[i] = _finished(hashed)


_MIXED: dict[int, Callable[..., None]] = {1: _mixed_one, 2: _mixed_two, 3: _mixed_three}
_WIDEST = len(_MIXED)


@njit(inline="always")
def _shift(size: int) -> np.uint64:
    bits = 0
    while (1 << bits) < size:
        bits += 1
    return np.uint64(64 - bits)


# The loops below take three columns and three values each. Where there are fewer, the first one
# stands in for the others: comparing it again costs nothing, and one loop is compiled, not three.


@njit(inline="always")
def _hash(
    width: int, x: Int64Array, y: Int64Array, z: Int64Array, begin: int, end: int, hashes: _Hashes
) -> None:
    """Hash a block of tuples, as :func:`mixed` does."""
    if width == 1:
        _mixed_one(x[begin:end], hashes)
    elif width == 2:
        _mixed_two(x[begin:end], y[begin:end], hashes)
    else:
        _mixed_three(x[begin:end], y[begin:end], z[begin:end], hashes)


@njit(inline="always")
def _is(
    a: Int64Array, b: Int64Array, c: Int64Array, row: Any,
    x: Int64Array, y: Int64Array, z: Int64Array, i: Any,
) -> Any:  # fmt: skip
    return (a[row] == x[i]) & (b[row] == y[i]) & (c[row] == z[i])


@njit(inline="always")
def _look(
    slots: NDArray[np.int32], shift: Any, hashes: _Hashes,
    a: Int64Array, b: Int64Array, c: Int64Array,
    x: Int64Array, y: Int64Array, z: Int64Array,
    begin: int, end: int, found: Int64Array,
) -> None:  # fmt: skip
    """Look into the first slot of each tuple of a block: ``found`` is its row, or -1 if not there.

    Without branches, so that the processor waits for many places of memory at once. Walking tuple
    by tuple would wait for each wrong guess, where the table is larger than the caches.
    """
    for i in range(begin, end):
        found[i - begin] = slots[np.int64(hashes[i - begin] >> shift)]
    for i in range(begin, end):
        row = found[i - begin]
        same = _is(a, b, c, max(row, np.int64(0)), x, y, z, i)
        found[i - begin] = row if same & (row >= 0) else -1


@compiled(types.void(_SLOTS, types.int64, *[IN] * 6, OUT))
def _find(
    slots: NDArray[np.int32], width: int,
    a: Int64Array, b: Int64Array, c: Int64Array,
    x: Int64Array, y: Int64Array, z: Int64Array,
    rows: Int64Array,
) -> None:  # fmt: skip
    mask, shift = len(slots) - 1, _shift(len(slots))
    found = np.empty(_BLOCK, dtype=np.int64)
    hashes = np.empty(_BLOCK, dtype=np.uint64)
    for begin in range(0, len(rows), _BLOCK):
        end = min(begin + _BLOCK, len(rows))
        _hash(width, x, y, z, begin, end, hashes)
        _look(slots, shift, hashes, a, b, c, x, y, z, begin, end, found)
        for i in range(begin, end):
            row = found[i - begin]
            if row < 0:
                at = np.int64(hashes[i - begin] >> shift)
                row = np.int64(slots[at])
                while row != EMPTY and not (row >= 0 and _is(a, b, c, row, x, y, z, i)):
                    at = (at + 1) & mask
                    row = np.int64(slots[at])
            rows[i] = row


@compiled(several(types.int64, 2)(_SLOTS_OUT, types.int64, *[IN] * 6, *[OUT] * 5))
def _find_or_claim(
    slots: NDArray[np.int32], width: int,
    a: Int64Array, b: Int64Array, c: Int64Array,
    x: Int64Array, y: Int64Array, z: Int64Array,
    rows: Int64Array, missing: Int64Array, which: Int64Array, first: Int64Array, slot: Int64Array,
) -> tuple[int, int]:  # fmt: skip
    mask, shift = len(slots) - 1, _shift(len(slots))
    found = np.empty(_BLOCK, dtype=np.int64)
    hashes = np.empty(_BLOCK, dtype=np.uint64)
    absent = new = 0
    for begin in range(0, len(rows), _BLOCK):
        end = min(begin + _BLOCK, len(rows))
        _hash(width, x, y, z, begin, end, hashes)
        _look(slots, shift, hashes, a, b, c, x, y, z, begin, end, found)
        for i in range(begin, end):
            row = found[i - begin]
            at = np.int64(hashes[i - begin] >> shift)
            while row < 0:
                row = np.int64(slots[at])
                if row == EMPTY:
                    first[new] = i
                    slot[new] = at
                    row = CLAIMED - new
                    slots[at] = row
                    new += 1
                    break
                if row >= 0:
                    if _is(a, b, c, row, x, y, z, i):
                        break
                elif row <= CLAIMED and _is(x, y, z, first[CLAIMED - row], x, y, z, i):
                    break
                row = -1
                at = (at + 1) & mask
            rows[i] = row
            if row < 0:
                missing[absent] = i
                which[absent] = CLAIMED - row
                absent += 1
    return absent, new


@compiled(types.void(_SLOTS_OUT, HASHES, IN, _SLOTS_OUT))
def _place(
    slots: NDArray[np.int32], hashes: _Hashes, rows: Int64Array, slot: NDArray[np.int32]
) -> None:
    mask, shift = len(slots) - 1, _shift(len(slots))
    for i in range(len(rows)):
        at = np.int64(hashes[i] >> shift)
        while slots[at] != EMPTY:
            at = (at + 1) & mask
        slots[at] = rows[i]
        slot[i] = at


@compiled(types.int64(OUT, IN, OUT, OUT))
def _unique(stamp: Int64Array, rows: Int64Array, distinct: Int64Array, places: Int64Array) -> int:
    # A sparse set (Briggs and Torczon, 1993): what the stamps held before does not matter.
    count = 0
    for i in range(len(rows)):
        row = rows[i]
        place = stamp[row]
        if place < 0 or place >= count or distinct[place] != row:
            place = count
            stamp[row] = place
            distinct[place] = row
            count += 1
        places[i] = place
    return count


_DIGIT = 11  # bits
_MOST_DIGITS = 4


@compiled(types.boolean(IN, OUT, OUT))
def _argsort(values: Int64Array, order: Int64Array, spare: Int64Array) -> bool:
    """Sort by radix into ``order``; false if the values span too many bits for that to pay."""
    low = high = values[0]
    is_sorted = True
    for i in range(1, len(values)):
        low, high = min(low, values[i]), max(high, values[i])
        is_sorted = is_sorted and values[i] >= values[i - 1]
    for i in range(len(order)):
        order[i] = i
    if is_sorted:
        return True
    span = np.uint64(high) - np.uint64(low)  # modulo 2**64 it is right
    if span >> np.uint64(_DIGIT * _MOST_DIGITS):
        return False
    digits = 0
    while span >> np.uint64(_DIGIT * digits):
        digits += 1
    begin = np.empty(1 << _DIGIT, dtype=np.int64)
    mask = np.uint64((1 << _DIGIT) - 1)
    for digit in range(digits):
        shift = np.uint64(_DIGIT * digit)
        begin[:] = 0
        for i in range(len(values)):
            begin[(np.uint64(values[i] - low) >> shift) & mask] += 1
        at = 0
        for bucket in range(len(begin)):
            count = begin[bucket]
            begin[bucket] = at
            at += count
        for i in range(len(order)):
            found = (np.uint64(values[order[i]] - low) >> shift) & mask
            spare[begin[found]] = order[i]
            begin[found] += 1
        order, spare = spare, order
    if digits % 2:
        spare[:] = order
    return True


_NUMBERS = ((types.int64, types.int64), (types.float64, types.float64), (types.int64, types.int8))


@compiled(*(types.void(array(to, written=True), IN, array(of)) for to, of in _NUMBERS))
def _add_at(target: NDArray[Any], rows: Int64Array, values: NDArray[Any]) -> None:
    for i in range(len(rows)):
        target[rows[i]] += values[i]


@compiled(types.void(OUT, IN, types.int64))
def _add_one_at(target: Int64Array, rows: Int64Array, value: int) -> None:
    for i in range(len(rows)):
        target[rows[i]] += value


_ORDERED = (types.int64, types.float64)


@compiled(*(types.void(array(of, written=True), IN, array(of)) for of in _ORDERED))
def _max_at(target: NDArray[Any], rows: Int64Array, values: NDArray[Any]) -> None:
    for i in range(len(rows)):
        value, held = values[i], target[rows[i]]
        # As in numpy NaN wins, and of zeros the later one.
        if value >= held or value != value:
            target[rows[i]] = value


@compiled(*(types.void(array(of, written=True), IN, array(of)) for of in _ORDERED))
def _min_at(target: NDArray[Any], rows: Int64Array, values: NDArray[Any]) -> None:
    for i in range(len(rows)):
        value, held = values[i], target[rows[i]]
        if value <= held or value != value:
            target[rows[i]] = value


@compiled(
    types.int64(OUT, IN, IN, types.boolean, IN, IN, OUT, _BOOLS, types.int64, OUT, OUT, _BOOLS)
)
def _arrive(
    stamp: Int64Array, rows: Int64Array, sizes: Int64Array, is_sized: bool, others: Int64Array,
    ends: Int64Array, new: Int64Array, on_time: NDArray[np.bool_], watermark: int,
    touched: Int64Array, counts: Int64Array, complete: NDArray[np.bool_],
) -> int:  # fmt: skip
    count = 0
    for i in range(len(rows) + len(others)):
        row = rows[i] if i < len(rows) else others[i - len(rows)]
        place = stamp[row]
        if place < 0 or place >= count or touched[place] != row:  # as in _unique
            place = count
            stamp[row] = place
            touched[place] = row
            counts[place] = 0
            count += 1
        if i < len(rows):
            counts[place] += sizes[i] if is_sized else 1
    for place in range(count):
        row = touched[place]
        complete[place] = ends[row] <= watermark
        new[row] += counts[place]
        if counts[place] > 0 and not complete[place]:
            on_time[row] = True
    return count


@compiled(types.int64(OUT, IN, IN, types.boolean, OUT, OUT))
def _bring_forward(
    column: Int64Array, rows: Int64Array, times: Int64Array, ends: bool,
    written: Int64Array, at: Int64Array,
) -> int:  # fmt: skip
    count = 0
    for i in range(len(rows)):
        row, time = rows[i], times[i]
        if time < column[row] or (ends and time == END_OF_TIME == column[row]):
            column[row] = time
            written[count], at[count] = row, time
            count += 1
    return count


@compiled(types.void(IN, IN, OUT, OUT))
def _expand_ranges(
    start: Int64Array, count: Int64Array, places: Int64Array, which: Int64Array
) -> None:
    at = 0
    for i in range(len(start)):
        for inside in range(count[i]):
            places[at] = start[i] + inside
            which[at] = i
            at += 1


def mixed(values: Sequence[Int64Array]) -> NDArray[np.uint64]:
    if len(values) > _WIDEST:
        return plain.mixed(values)
    hashes = np.empty(len(values[0]), dtype=np.uint64)
    _MIXED[len(values)](*map(whole, values), hashes)
    return hashes


def find(
    slots: NDArray[np.int32], columns: Sequence[Int64Array], values: Sequence[Int64Array]
) -> Int64Array:
    if len(values) > _WIDEST:
        return plain.find(slots, columns, values)
    rows = np.empty(len(values[0]), dtype=np.int64)
    _find(slots, len(values), *_three(columns), *_three(values), rows)
    return rows


def find_or_claim(
    slots: NDArray[np.int32], columns: Sequence[Int64Array], values: Sequence[Int64Array]
) -> Claims:
    if len(values) > _WIDEST:
        return plain.find_or_claim(slots, columns, values)
    rows, missing, which, first, slot = np.empty((5, len(values[0])), dtype=np.int64)
    absent, new = _find_or_claim(
        slots, len(values), *_three(columns), *_three(values), rows, missing, which, first, slot
    )
    return Claims(rows, missing[:absent], which[:absent], first[:new], slot[:new])


def place(
    slots: NDArray[np.int32], columns: Sequence[Int64Array], rows: Int64Array
) -> NDArray[np.int32]:
    slot = np.empty(len(rows), dtype=np.int32)
    _place(slots, mixed([column[rows] for column in columns]), whole(rows), slot)
    return slot


def unique(stamp: Int64Array, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
    distinct, places = np.empty((2, len(rows)), dtype=np.int64)
    count = _unique(stamp, whole(rows), distinct, places)
    return distinct[:count], places


def argsort(values: Int64Array) -> Int64Array:
    order, spare = np.empty((2, len(values)), dtype=np.int64)
    if len(values) and not _argsort(whole(values), order, spare):
        return plain.argsort(values)
    return order


def add_at(target: NDArray[Any], rows: Int64Array, values: NDArray[Any] | int) -> None:
    if isinstance(values, int):
        if target.dtype == np.int64:
            return _add_one_at(target, whole(rows), values)
    elif (target.dtype, values.dtype) in _ADDED and values.shape == rows.shape:
        return _add_at(target, whole(rows), whole(values))
    return plain.add_at(target, rows, values)


def max_at(target: NDArray[Any], rows: Int64Array, values: NDArray[Any]) -> None:
    if target.dtype == values.dtype and target.dtype in _PICKED and values.shape == rows.shape:
        return _max_at(target, whole(rows), whole(values))
    return plain.max_at(target, rows, values)


def min_at(target: NDArray[Any], rows: Int64Array, values: NDArray[Any]) -> None:
    if target.dtype == values.dtype and target.dtype in _PICKED and values.shape == rows.shape:
        return _min_at(target, whole(rows), whole(values))
    return plain.min_at(target, rows, values)


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
    room = len(rows) + len(others)
    touched, counts = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    complete = np.empty(room, dtype=np.bool_)
    rows = whole(rows)
    count = _arrive(
        stamp, rows, rows if sizes is None else whole(sizes), sizes is not None, whole(others),
        ends, new, on_time, watermark, touched, counts, complete,
    )  # fmt: skip
    return Arrived(touched[:count], counts[:count], complete[:count])


def bring_forward(
    column: Int64Array, rows: Int64Array, times: Int64Array, ends: bool
) -> tuple[Int64Array, Int64Array]:
    written, at = np.empty((2, len(rows)), dtype=np.int64)
    count = _bring_forward(column, whole(rows), whole(times), ends, written, at)
    return written[:count], at[:count]


def expand_ranges(start: Int64Array, count: Int64Array) -> tuple[Int64Array, Int64Array]:
    places, which = np.empty((2, int(count.sum())), dtype=np.int64)
    _expand_ranges(whole(start), whole(count), places, which)
    return places, which


_ADDED = {
    (np.dtype(np.int64), np.dtype(np.int64)),
    (np.dtype(np.float64), np.dtype(np.float64)),
    (np.dtype(np.int64), np.dtype(np.int8)),
}
_PICKED = {np.dtype(np.int64), np.dtype(np.float64)}


def _three(columns: Sequence[Int64Array]) -> tuple[Int64Array, Int64Array, Int64Array]:
    every = [*map(whole, columns)]
    return every[0], every[min(1, len(every) - 1)], every[-1]
