"""What sets of record ids are made of, as loops that numba compiles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from lowwater.kernels import plain_ids
from lowwater.kernels.compiler import HASHES, HASHES_OUT, IN, OUT, array, compiled, whole
from lowwater.kernels.plain_ids import FILTER_BITS
from lowwater.kernels.plain_xxh64 import PRIMES
from lowwater.time import Int64Array

_Hashes = NDArray[np.uint64]
_P1, _P2, _P3, _P4, _P5 = map(np.uint64, PRIMES)
_STRIPE = 32


@njit(inline="always")
def _turned(word: Any, by: int) -> Any:
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))


@njit(inline="always")
def _read(data: NDArray[np.uint8], at: int, size: int) -> Any:
    """Read a little-endian word, of whatever alignment: the compiler makes it one load."""
    word = np.uint64(0)
    for byte in range(size):
        word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
    return word


@njit(inline="always")
def _rounded(lane: Any, word: Any) -> Any:
    return _turned(lane + word * _P2, 31) * _P1


@njit(inline="always")
def _merged(hashed: Any, lane: Any) -> Any:
    return (hashed ^ _rounded(np.uint64(0), lane)) * _P1 + _P4


@compiled(types.void(array(types.uint8), IN, IN, types.uint64, HASHES_OUT))
def _hash_bytes(
    data: NDArray[np.uint8], starts: Int64Array, lengths: Int64Array, seed: Any, hashes: _Hashes
) -> None:
    for i in range(len(starts)):
        at = starts[i]
        end = at + lengths[i]
        if lengths[i] >= _STRIPE:
            one, two, three, four = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
            while at + _STRIPE <= end:
                one = _rounded(one, _read(data, at, 8))
                two = _rounded(two, _read(data, at + 8, 8))
                three = _rounded(three, _read(data, at + 16, 8))
                four = _rounded(four, _read(data, at + 24, 8))
                at += _STRIPE
            hashed = _turned(one, 1) + _turned(two, 7) + _turned(three, 12) + _turned(four, 18)
            hashed = _merged(_merged(_merged(_merged(hashed, one), two), three), four)
        else:
            hashed = seed + _P5
        hashed += np.uint64(lengths[i])
        while at + 8 <= end:
            hashed ^= _rounded(np.uint64(0), _read(data, at, 8))
            hashed = _turned(hashed, 27) * _P1 + _P4
            at += 8
        if at + 4 <= end:
            hashed ^= _read(data, at, 4) * _P1
            hashed = _turned(hashed, 23) * _P2 + _P3
            at += 4
        while at < end:
            hashed ^= np.uint64(data[at]) * _P5
            hashed = _turned(hashed, 11) * _P1
            at += 1
        hashed = (hashed ^ (hashed >> np.uint64(33))) * _P2
        hashed = (hashed ^ (hashed >> np.uint64(29))) * _P3
        hashes[i] = hashed ^ (hashed >> np.uint64(32))


_MOST_ALIKE = 64


@compiled(types.boolean(HASHES, HASHES_OUT, OUT))
def _sort_hashes(hashes: _Hashes, ordered: _Hashes, order: Int64Array) -> bool:
    """Sort by the highest bits and then within them; false if too many hashes share these."""
    bits = 1
    while (2 << bits) < len(hashes):
        bits += 1
    shift = np.uint64(64 - bits)
    begin = np.zeros(1 << bits, dtype=np.int32)
    for i in range(len(hashes)):
        begin[hashes[i] >> shift] += 1
    at = 0
    for bucket in range(len(begin)):
        count = begin[bucket]
        if count > _MOST_ALIKE:
            return False
        begin[bucket] = at
        at += count
    for i in range(len(hashes)):
        bucket = hashes[i] >> shift
        place = begin[bucket]
        begin[bucket] = place + 1
        ordered[place] = hashes[i]
        order[place] = i
    for i in range(1, len(ordered)):
        own, row, place = ordered[i], order[i], i
        while place and ordered[place - 1] > own:
            ordered[place], order[place] = ordered[place - 1], order[place - 1]
            place -= 1
        ordered[place], order[place] = own, row
    return True


@njit(inline="always")
def _bits(hashed: Any) -> Any:
    bits = np.uint64(0)
    for number in range(FILTER_BITS):
        bits |= np.uint64(1) << ((hashed >> np.uint64(6 * number)) & np.uint64(63))
    return bits


@njit(inline="always")
def _place(hashed: Any, size: Any) -> Any:
    return np.int64(((hashed >> np.uint64(32)) * size) >> np.uint64(32))


@compiled(types.void(HASHES_OUT, HASHES))
def _add_to_filter(words: _Hashes, hashes: _Hashes) -> None:
    size = np.uint64(len(words))
    for i in range(len(hashes)):
        words[_place(hashes[i], size)] |= _bits(hashes[i])


@compiled(types.void(HASHES, HASHES, array(types.boolean, written=True)))
def _may_be_in_filter(words: _Hashes, hashes: _Hashes, found: NDArray[np.bool_]) -> None:
    size = np.uint64(len(words))
    for i in range(len(hashes)):
        bits = _bits(hashes[i])
        found[i] = words[_place(hashes[i], size)] & bits == bits


def hash_bytes(
    data: NDArray[np.uint8], starts: Int64Array, lengths: Int64Array, seed: int
) -> _Hashes:
    hashes = np.empty(len(starts), dtype=np.uint64)
    _hash_bytes(data, whole(starts), whole(lengths), np.uint64(seed), hashes)
    return hashes


def sort_hashes(hashes: _Hashes) -> tuple[_Hashes, Int64Array]:
    ordered, order = np.empty_like(hashes), np.empty(len(hashes), dtype=np.int64)
    if not _sort_hashes(whole(hashes), ordered, order):
        return plain_ids.sort_hashes(hashes)
    return ordered, order


def add_to_filter(words: _Hashes, hashes: _Hashes) -> None:
    _add_to_filter(words, whole(hashes))


def may_be_in_filter(words: _Hashes, hashes: _Hashes) -> NDArray[np.bool_]:
    found = np.empty(len(hashes), dtype=np.bool_)
    _may_be_in_filter(words, whole(hashes), found)
    return found
