"""The compiled kernels for ranges of rows that overlap."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from lowwater.kernels.compiler import IN, OUT, array, compiled, whole
from lowwater.kernels.plain_ranges import Floats
from lowwater.time import Int64Array

_SLACK = 2.0**-50  # as in plain_ranges: numba's cache looks at this file only
_FLOATS, _FLOATS_OUT = array(types.float64), array(types.float64, written=True)
_BOOLS_OUT = array(types.boolean, written=True)


@compiled(types.void(IN, IN, IN, IN, types.uint64, OUT, OUT))
def _time_ranges(
    times: Int64Array,
    begin: Int64Array,
    end: Int64Array,
    places: Int64Array,
    length: int,
    low: Int64Array,
    high: Int64Array,
) -> None:
    first, behind, key = 0, 0, -1
    for i in range(len(places)):
        if begin[i] != key:
            key, first, behind = begin[i], begin[i], places[i]
        at = times[places[i]]
        # The difference of two int64 always fits uint64.
        while np.uint64(at) - np.uint64(times[first]) >= length:
            first += 1
        while behind < end[i] and times[behind] <= at:
            behind += 1
        low[i], high[i] = first, behind


@compiled(types.void(_FLOATS, IN, IN, _FLOATS_OUT, _BOOLS_OUT))
def _range_sums(
    values: Floats, low: Int64Array, high: Int64Array, sums: Floats, sure: NDArray[np.bool_]
) -> None:
    for i in range(len(low)):
        total, rest, lost = 0.0, 0.0, 0.0
        for place in range(low[i], high[i]):
            value = values[place]
            new = total + value
            part = new - total
            error = (total - (new - part)) + (value - part)
            total = new
            new = rest + error
            part = new - rest
            lost += abs((rest - (new - part)) + (error - part))
            rest = new
        new = total + rest
        part = new - total
        rest = (total - (new - part)) + (rest - part)
        sums[i] = new
        slack = 2 * lost + abs(rest) * _SLACK
        exact = lost == 0 or (new + (rest + slack) == new and new + (rest - slack) == new)
        sure[i] = exact and np.isfinite(new)


def time_ranges(
    times: Int64Array, begin: Int64Array, end: Int64Array, places: Int64Array, length: int
) -> tuple[Int64Array, Int64Array]:
    low, high = np.empty(len(places), dtype=np.int64), np.empty(len(places), dtype=np.int64)
    _time_ranges(whole(times), whole(begin), whole(end), whole(places), length, low, high)
    return low, high


def range_sums(
    values: Floats, low: Int64Array, high: Int64Array
) -> tuple[Floats, NDArray[np.bool_]]:
    sums, sure = np.empty(len(low)), np.empty(len(low), dtype=np.bool_)
    _range_sums(whole(values), whole(low), whole(high), sums, sure)
    return sums, sure
