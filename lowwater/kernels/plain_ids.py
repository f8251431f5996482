"""What sets of record ids are made of, in numpy: hashes in order, and Bloom filters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lowwater.time import Int64Array

FILTER_BITS = 5
"""How many bits of a filter each hash has."""


def sort_hashes(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], Int64Array]:
    order = np.argsort(hashes)  # faster than the stable sort, which is only needed for ties
    ordered = hashes[order]
    if (ordered[1:] == ordered[:-1]).any():
        order = np.argsort(hashes, kind="stable")
    return ordered, order


def add_to_filter(words: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> None:
    np.bitwise_or.at(words, _places(words, hashes), _bits(hashes))


def may_be_in_filter(words: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    bits = _bits(hashes)
    held: NDArray[np.bool_] = words[_places(words, hashes)] & bits == bits
    return held


def _places(words: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> Int64Array:
    high = hashes >> np.uint64(32)
    return ((high * np.uint64(len(words))) >> np.uint64(32)).view(np.int64)


def _bits(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = np.zeros(len(hashes), dtype=np.uint64)
    for number in range(FILTER_BITS):
        place = (hashes >> np.uint64(6 * number)) & np.uint64(63)
        bits |= np.uint64(1) << place
    return bits
