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
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import Scratch
from lowwater.time import END_OF_TIME, Int64Array
from lowwater.windows import SlicedWindowFunction, SlidingWindows, WindowFunction
from lowwater.windows._base import MOST_PAIRS

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

    def on_grid(self, windows: SlidingWindows) -> SharedWindows | None:
        """Group the windows of all slices by key; ``None`` unless each slice is a whole period.

        A slice that follows another one of its key adds the windows that start behind its last one,
        and shares the others: neither pairs nor windows need be looked for. O(n log n) in slices.
        """
        copies, rest = divmod(windows.size_us, windows.period_us)
        if rest or copies * len(self.one) > MOST_PAIRS:
            return None
        times, period = self.bundle.times, windows.period_us
        number = (times - times.min()) // period
        order = kernels().argsort(self.key * (int(number.max()) + 1) + number)
        number, key = number[order], self.key[order]
        follows = key[1:] == key[:-1]
        added = np.full(len(order), copies, dtype=np.int64)
        added[1:][follows] = np.minimum(np.diff(number)[follows], copies)
        # In this order, the windows of a slice are the last so many of those added up to it.
        upto = np.empty(len(order), dtype=np.int64)
        upto[order] = np.cumsum(added)
        change = np.zeros(int(added.sum()) + 1, dtype=np.int64)
        change[upto - copies] += self.size
        change[upto] -= self.size
        size = np.cumsum(change[:-1])
        # From here on windows are in the order of the slices that add them: mostly that of time.
        fresh = np.empty(len(order), dtype=np.int64)
        fresh[order] = added
        every = np.arange(len(order), dtype=np.int64)
        of_each = repeated(every, fresh)
        ago = repeated(np.cumsum(fresh) - 1, fresh) - np.arange(len(of_each), dtype=np.int64)
        start = self.bundle.times[of_each] - ago * period
        place = upto[of_each] - 1 - ago
        at = np.empty(len(place), dtype=np.int64)
        at[place] = np.arange(len(place), dtype=np.int64)
        last = (upto - copies)[:, np.newaxis] + np.arange(copies, dtype=np.int64)
        element = repeated(every, np.full(len(order), copies))
        end = start + windows.size_us
        return SharedWindows(of_each, start, end, size[place], at[last.reshape(-1)], element)

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
        size = np.zeros(len(found), dtype=np.int64)
        kernels().add_at(size, of, self.size[slices])
        return SharedWindows(slices[one], start[one], end[one], size, of, slices)


@final
@dataclass(frozen=True, slots=True)
class SharedWindows:
    """Windows of keys, each once, and which of them slices are in.

    Args:
        slice: A slice that is in each window, int64, shape (windows,); keys in order of arrival.
        start: The start of each.
        end: Its end.
        size: How many elements of the slices are in it.
        of: The window of each pair of a slice and a window, int64, shape (n,).
        element: The slice of each pair, rising.
    """

    slice: Int64Array
    start: Int64Array
    end: Int64Array
    size: Int64Array
    of: Int64Array
    element: Int64Array


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
