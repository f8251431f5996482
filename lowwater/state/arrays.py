"""Small vector operations that the tables of state are built from."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowwater.kernels import kernels
from lowwater.kernels.plain_merging import run_starts as run_starts
from lowwater.kernels.plain_merging import sort_by_key_and_time as sort_by_key_and_time
from lowwater.time import Int64Array

NONE: Int64Array = np.empty(0, dtype=np.int64)

_MOST_BITS = 24


def object_array(values: Sequence[Any]) -> NDArray[Any]:
    """Return a 1-D object array of values, sequences among them too.

    >>> object_array([[1, 2], [3, 4]]).shape
    (2,)
    """
    return np.fromiter(values, dtype=object, count=len(values))


def object_bytes(values: NDArray[Any]) -> float:
    """Return what an object of an array takes on average, in bytes, by a sample of 64.

    What containers hold counts one level deep.
    """
    sample = values[:: max(1, len(values) // 64)][:64].tolist()
    if not sample:
        return 0.0
    inner = (
        sum(map(sys.getsizeof, value)) if isinstance(value, (list, tuple, set, dict)) else 0
        for value in sample
    )
    return (sum(map(sys.getsizeof, sample)) + sum(inner)) / len(sample)


def widened(array: NDArray[Any], room: int, fill: Any = 0) -> NDArray[Any]:
    """Return a copy of an array with ``room`` places; the new ones hold ``fill``.

    >>> widened(np.array([5, 6]), 3).tolist()
    [5, 6, 0]
    """
    wider = np.full(room, fill, dtype=array.dtype)
    wider[: len(array)] = array
    return wider


def expand_ranges(start: Int64Array, count: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return all integers of the ranges ``[start, start + count)``, and each one's range.

    >>> expand_ranges(np.array([5, 9]), np.array([2, 1]))
    (array([5, 6, 9]), array([0, 0, 1]))
    """
    return kernels().expand_ranges(start, count)


def distinct(values: NDArray[np.integer[Any]]) -> Int64Array:
    """Return the distinct values, rising. By sorting, which beats ``np.unique``'s hashing here.

    >>> distinct(np.array([3, 1, 3]))
    array([1, 3])
    """
    rising = np.sort(values.astype(np.int64, copy=False))
    return rising[run_starts(rising)] if len(rising) else rising


def run_lengths(first: Int64Array, count: int) -> Int64Array:
    """Return how long runs are that begin at some places, up to ``count``; there is at least one.

    >>> run_lengths(np.array([0, 2, 3]), 7).tolist()
    [2, 1, 4]
    """
    lengths = np.empty_like(first)
    np.subtract(first[1:], first[:-1], out=lengths[:-1])
    lengths[-1] = count - first[-1]
    return lengths


def among(values: NDArray[np.integer[Any]], some: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Return which values are among some others: hashes, whose high bits are well mixed.

    A table by some of these bits rules out most of them, which costs much less than ``np.isin``.

    >>> among(np.array([3, 1, 3, 2]), np.array([3, 4])).tolist()
    [True, False, True, False]
    """
    found = np.zeros(len(values), dtype=np.bool_)
    if not len(values) or not len(some):
        return found
    bits = min((8 * len(some)).bit_length(), _MOST_BITS)
    drop = np.uint64(64 - bits)
    seen = np.zeros(1 << bits, dtype=np.bool_)
    seen[some.view(np.uint64) >> drop] = True
    rows = np.flatnonzero(seen[values.view(np.uint64) >> drop])
    values, some = values.view(np.int64), distinct(some.view(np.int64))
    at = np.minimum(np.searchsorted(some, values[rows]), len(some) - 1)
    found[rows] = some[at] == values[rows]
    return found


class Scratch:
    """Reusable arrays by row number, for grouping without a sort."""

    __slots__ = ("_marks", "_stamp")

    def __init__(self) -> None:
        self._stamp: Int64Array = np.empty(64, dtype=np.int64)
        self._marks = np.zeros(0, dtype=np.bool_)

    def unique(self, rows: Int64Array, capacity: int) -> tuple[Int64Array, Int64Array]:
        """Return the distinct row numbers, in order of first place, and each row's place therein.

        Args:
            rows: Row numbers, int64, shape (n,), each below ``capacity``.
            capacity: One more than the largest row number.
        """
        if len(rows) == 1:
            return rows, np.zeros(1, dtype=np.int64)
        return kernels().unique(self.room(capacity), rows)

    def among(self, rows: Int64Array, some: Int64Array, capacity: int) -> NDArray[np.bool_]:
        """Return which row numbers are among some others. O(both).

        Args:
            rows: Row numbers, int64, each below ``capacity``, as are those of ``some``.
            some: The others.
            capacity: One more than the largest row number.
        """
        if len(self._marks) < capacity:
            self._marks = np.zeros(capacity, dtype=np.bool_)
        self._marks[some] = True
        found = self._marks[rows]
        self._marks[some] = False
        return found

    def room(self, capacity: int) -> Int64Array:
        """Return space for so many rows, which may hold anything."""
        if len(self._stamp) < capacity:
            self._stamp = np.empty(capacity, dtype=np.int64)
        return self._stamp


def mixed(values: Sequence[Int64Array]) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each tuple of int64 values; its high bits are mixed best.

    Args:
        values: At least one column, each of shape (n,).
    """
    return kernels().mixed(values)
