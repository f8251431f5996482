"""The kernels for ranges of rows that overlap, in numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lowwater.kernels.plain_merging import count_below
from lowwater.time import START_OF_TIME, Int64Array

Floats = NDArray[np.float64]

_SLACK = 2.0**-50


def time_ranges(
    times: Int64Array, begin: Int64Array, end: Int64Array, places: Int64Array, length: int
) -> tuple[Int64Array, Int64Array]:
    every = np.arange(len(times), dtype=np.int64)
    last = times[places]
    reaches = last < START_OF_TIME + length  # back to the start of time, so `first` would wrap
    first = np.where(reaches, START_OF_TIME, last - length)
    low = begin + count_below(every, begin, end - begin, times, first, True)
    low[reaches] = begin[reaches]
    high = begin + count_below(every, begin, end - begin, times, last, True)
    return low, high


def range_sums(
    values: Floats, low: Int64Array, high: Int64Array
) -> tuple[Floats, NDArray[np.bool_]]:
    count = len(low)
    total, rest, lost = np.zeros(count), np.zeros(count), np.zeros(count)
    length = high - low
    with np.errstate(all="ignore"):
        for step in range(int(length.max(initial=0))):
            some = np.flatnonzero(length > step)
            total[some], error = _two_sum(total[some], values[low[some] + step])
            rest[some], error = _two_sum(rest[some], error)
            lost[some] += np.abs(error)
        total, rest = _two_sum(total, rest)
        slack = 2 * lost + np.abs(rest) * _SLACK  # so that it is not lost itself
        above, below = total + (rest + slack), total + (rest - slack)
        sure = (lost == 0) | ((above == total) & (below == total))
        sure &= np.isfinite(total)
    return total, sure


def _two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)
