"""Groups the elements of a bundle by key and slice, so that windows are looked up once for each.

An element of a sliding window of a minute that starts each ten seconds is in six windows. Those of
one key and one slice are in the same six.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from lowwater.engine.records.steps import Bundle
from lowwater.kernels import kernels
from lowwater.state.arrays import Scratch
from lowwater.time import END_OF_TIME, Int64Array
from lowwater.windows import SlicedWindowFunction, WindowFunction

_FEW = 64  # elements that are looked up sooner one by one
_MOST_CODES = 8  # per element: beyond that, most elements have a slice of their own
_WORTH_IT = 0.9  # slices per element


@final
@dataclass(frozen=True, slots=True)
class Slices:
    """The slices of a bundle: its elements, grouped by key and by the windows they are in.

    Args:
        of: The slice of each element, int64, shape (n,): numbered in order of first element.
        one: One element of each slice, int64, shape (slices,).
        size: How many elements each has, int64, shape (slices,).
        key: The key of each, int64, shape (slices,): the keys of the bundle, numbered from 0.
        apart: Microseconds that divide the distance between the starts of any two.
        bundle: An element without key or values for each slice, at the slice's start.
    """

    of: Int64Array
    one: Int64Array
    size: Int64Array
    key: Int64Array
    apart: int
    bundle: Bundle

    def elements(self, slices: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the elements of some slices, in turn, and for each the place of its slice."""
        order = kernels().argsort(self.of)
        begins = np.cumsum(self.size) - self.size
        at, which = kernels().expand_ranges(begins[slices], self.size[slices])
        return order[at], which

    def of_each(self, slices: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return (element, which) of what is there per (slice, window), for each element in turn.

        Args:
            slices: The slice of each pair, int64, rising.
        """
        count = np.bincount(slices, minlength=len(self.one))
        begins = np.cumsum(count) - count
        which, element = kernels().expand_ranges(begins[self.of], count[self.of])
        return element, which

    def windows(
        self, slices: Int64Array, start: Int64Array, end: Int64Array, scratch: Scratch
    ) -> SharedWindows | None:
        """Group pairs of a slice and a window by key and window; ``None`` if that takes a lookup.

        Neighbouring slices of a key share most of their windows. O(n).

        Args:
            slices: The slice of each pair, int64, shape (n,).
            start: The start of its window.
            end: Its end.
            scratch: Space.
        """
        count = len(start)
        if not count:
            return None
        first, last = int(start.min()), int(start.max())
        length = end - start
        if last - first > END_OF_TIME or (length != length[0]).any():
            return None
        number = (start - first) // self.apart
        if (number * self.apart != start - first).any():  # two of them may have one number
            return None
        keys = int(self.key.max()) + 1
        codes = (int(number.max()) + 1) * keys
        if codes > max(_MOST_CODES * count, 1 << 16):
            return None
        number *= keys
        number += self.key[slices]
        found, of = scratch.unique(number, codes)
        one = np.empty(len(found), dtype=np.int64)
        one[of] = np.arange(count, dtype=np.int64)
        return SharedWindows(one, of)


@final
@dataclass(frozen=True, slots=True)
class SharedWindows:
    """Pairs of a slice and a window, grouped by key and window.

    Args:
        one: A pair of each group, int64, shape (groups,).
        of: The group of each pair, int64, shape (n,): numbered in order of first pair.
    """

    one: Int64Array
    of: Int64Array


def sliced(windows: WindowFunction) -> SlicedWindowFunction | None:
    """Return windows whose elements are worth grouping: those where each may be in several."""
    if not isinstance(windows, SlicedWindowFunction) or windows.columns:
        return None
    return windows if windows.merge_scope == "none" else None


def find_slices(
    start: Int64Array, apart: int, keys: Int64Array, capacity: int, scratch: Scratch
) -> Slices | None:
    """Group elements by key and slice; ``None`` where that would save little. O(n).

    Args:
        start: The first instant of each element's slice, int64, shape (n,).
        apart: Microseconds that divide the distance between any two of these.
        keys: Key ids, int64, shape (n,).
        capacity: More than the largest key id.
        scratch: Space.
    """
    count = len(start)
    if count < _FEW:
        return None
    first, last = int(start.min()), int(start.max())
    if last - first > END_OF_TIME:  # more than int64 can tell apart
        return None
    known, number = scratch.unique(keys, capacity)
    codes = ((last - first) // apart + 1) * len(known)
    if codes > max(_MOST_CODES * count, 1 << 16):
        return None
    cells, of = scratch.unique((start - first) // apart * len(known) + number, codes)
    if len(cells) > _WORTH_IT * count:
        return None
    one = np.empty(len(cells), dtype=np.int64)
    one[of] = np.arange(count, dtype=np.int64)
    return Slices(of, one, np.bincount(of), number[one], apart, Bundle(start[one], (), {}))
