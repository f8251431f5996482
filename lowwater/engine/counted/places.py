"""Which windows of a number of records the records of a bundle fall into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, final

import numpy as np

from lowwater.kernels import kernels
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import run_starts
from lowwater.time import Int64Array


@final
@dataclass(frozen=True, slots=True)
class Arrivals:
    """The records of a bundle by key: those of a key next to each other, in order of arrival.

    Args:
        order: The records in that order, int64, shape (n,).
        keys: The distinct keys, rising, int64, shape (k,).
        first: The place of the first record of each key, int64, shape (k,).
        length: How many records each key has, int64, shape (k,).
    """

    order: Int64Array
    keys: Int64Array
    first: Int64Array
    length: Int64Array

    @classmethod
    def of(cls, keys: Int64Array) -> Self:
        """Return the records by key, given the key of each. O(n)."""
        order = kernels().argsort(keys)
        ordered = keys[order]
        first = np.flatnonzero(run_starts(ordered))
        return cls(order, ordered[first], first, np.diff(np.append(first, len(keys))))


@final
@dataclass(frozen=True, slots=True)
class Places:
    """The windows that the records of a bundle are in; each array has one entry for a window.

    Args:
        key: The place of its key among the distinct ones, int64, rising.
        number: How many records of the key were before its first one, a multiple of ``every``.
        first: The place of its first record here, as :class:`Arrivals` has them.
        stop: The place behind its last record here.
        is_full: Whether that record fills it, bool.
        lowest: The first window of each key in these arrays.
    """

    key: Int64Array
    number: Int64Array
    first: Int64Array
    stop: Int64Array
    is_full: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    lowest: Int64Array

    @classmethod
    def of(cls, arrivals: Arrivals, before: Int64Array, count: int, every: int) -> Self:
        """Return the windows.

        Args:
            arrivals: The records.
            before: How many records each key had before, int64, shape (k,).
            count: How many records a window has.
            every: How many records after one window the next one starts.
        """
        least = _lowest(before, count, every)
        last = (before + arrivals.length - 1) // every
        many = last - least + 1
        lowest = np.cumsum(many) - many
        key = repeated(np.arange(len(many)), many)
        number = (least[key] + np.arange(len(key)) - lowest[key]) * every
        begin = arrivals.first[key] - before[key]
        first = begin + np.maximum(number, before[key])
        full = begin + number + count
        stop = np.minimum(full, begin + before[key] + arrivals.length[key])
        return cls(key, number, first, stop, stop == full, lowest)

    def pairs(
        self, arrivals: Arrivals, before: Int64Array, count: int, every: int
    ) -> tuple[Int64Array | None, Int64Array]:
        """Return the element and the window of each pair of them, by element, then by window.

        ``None`` for the elements if each is in one window. O(pairs).
        """
        size = len(arrivals.order)
        key = repeated(np.arange(len(arrivals.keys)), arrivals.length)
        nth = before[key] + np.arange(size) - arrivals.first[key]
        least = _lowest(nth, count, every)
        window = self.lowest[key] + least - _lowest(before, count, every)[key]
        many = nth // every - least + 1
        place = np.empty(size, dtype=np.int64)
        place[arrivals.order] = window
        if count == every:
            return None, place
        counts = np.empty(size, dtype=np.int64)
        counts[arrivals.order] = many
        element = repeated(np.arange(size), counts)
        begins = np.cumsum(counts) - counts
        return element, place[element] + np.arange(len(element)) - begins[element]


def _lowest(nth: Int64Array, count: int, every: int) -> Int64Array:
    """Return the first window that holds the nth record of a key, or would, from 0."""
    return np.maximum((nth - count) // every + 1, 0)
