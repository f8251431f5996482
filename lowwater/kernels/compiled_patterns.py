"""The compiled search for row patterns: a key at a time, so that its tables stay in the cache."""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from lowwater.kernels.compiler import HASHES, IN, OUT, array, compiled, whole
from lowwater.kernels.pattern_tables import Matches, Program, Search
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

# Those of pattern_tables, whose names a loop of another file would not see change.
_TO_NEXT, _TO_FIRST = 1, 2
_LABELS = array(types.int16, written=True)


@njit(inline="always")
def _fill_tables(
    mask: NDArray[np.uint64], x: Int64Array, y: Int64Array, variables: int,
    times: Int64Array, bits: NDArray[np.uint64], low: int, high: int,
    ends: NDArray[np.int64], touches: NDArray[np.int64],
) -> None:  # fmt: skip
    """Fill the tables of one key, by row from its first one: see Tables."""
    for row in range(high - low, -1, -1):
        ends[row, 0] = touches[row, 0] = START_OF_TIME
        if row == high - low:
            for state in range(1, variables + 1):
                ends[row, state] = touches[row, state] = END_OF_TIME
        else:
            time, has = times[low + row], bits[low + row]
            for state in range(1, variables + 1):
                if has & mask[state] == mask[state]:
                    ends[row, state] = max(time, ends[row + 1, x[state]])
                    touches[row, state] = max(time, touches[row + 1, x[state]])
                else:
                    ends[row, state] = END_OF_TIME
                    touches[row, state] = time
        for state in range(variables + 1, len(x)):
            ends[row, state] = min(ends[row, x[state]], ends[row, y[state]])
            touches[row, state] = max(touches[row, x[state]], touches[row, y[state]])


@njit(inline="always")
def _walk(
    label: Int64Array, x: Int64Array, y: Int64Array, variables: int, state: int,
    ends: NDArray[np.int64], touches: NDArray[np.int64], row: int, bound: int,
    labels: NDArray[np.int16], used: int,
) -> tuple[int, int]:  # fmt: skip
    """Walk an attempt, write its labels; return (how many rows it takes, its reach)."""
    limit = min(bound, END_OF_TIME - 1)
    taken, reach = 0, START_OF_TIME
    if ends[row, state] > limit:
        return taken, min(touches[row, state], bound)
    while state > 0:
        if state <= variables:
            labels[used + taken] = label[state]
            taken += 1
            state = x[state]
        elif ends[row + taken, x[state]] <= limit:
            state = x[state]
        else:
            reach = max(reach, min(touches[row + taken, x[state]], bound))
            state = y[state]
    return taken, reach


@njit(inline="always")
def _skipped(labels: NDArray[np.int16], used: int, taken: int, skip: int, skip_label: int) -> int:
    """Return how many rows behind the first row of a match the search goes on."""
    if skip_label < 0:
        return 1 if skip == _TO_NEXT else taken
    step = 1
    for row in range(1, taken):
        if labels[used + row] == skip_label:
            step = row
            if skip == _TO_FIRST:
                break
    if skip == _TO_FIRST and labels[used] == skip_label:
        step = 1
    return step


@compiled(
    types.Tuple((types.int64, _LABELS))(  # type: ignore[no-untyped-call]
        IN, HASHES, IN, IN, *[types.int64] * 8, IN, IN, IN, HASHES, *[OUT] * 5
    )
)  # fmt: skip
def _find_matches(
    label: Int64Array, mask: NDArray[np.uint64], x: Int64Array, y: Int64Array,
    variables: int, start_state: int,
    within: int, absent_bit: int, absent_within: int, horizon: int, skip: int, skip_label: int,
    begin: Int64Array, first: Int64Array, times: Int64Array, bits: NDArray[np.uint64],
    reach: Int64Array, next_start: Int64Array,
    starts: Int64Array, stops: Int64Array, reaches: Int64Array,
) -> tuple[int, NDArray[np.int16]]:  # fmt: skip
    """Return how many matches there are, and their labels."""
    longest = 0
    for key in range(len(first)):
        longest = max(longest, begin[key + 1] - first[key])
    ends = np.empty((longest + 1, len(x)), dtype=np.int64)
    touches = np.empty((longest + 1, len(x)), dtype=np.int64)
    absent = np.empty(longest + 1, dtype=np.int64)  # the next row that must not follow a match
    labels = np.empty(len(times) + 1, dtype=np.int16)
    used = matches = 0
    for key in range(len(first)):
        low, high = first[key], begin[key + 1]
        _fill_tables(mask, x, y, variables, times, bits, low, high, ends, touches)
        if absent_bit >= 0:
            absent[high - low] = high
            for row in range(high - low - 1, -1, -1):
                is_absent = (bits[low + row] >> np.uint64(absent_bit)) & np.uint64(1)
                absent[row] = low + row if is_absent else absent[row + 1]
        next_start[key] = high
        start = low
        while start < high:
            if used + high - start > len(labels):
                more = np.empty(2 * (used + high - start), dtype=np.int16)
                more[:used] = labels[:used]
                labels = more
            bound = END_OF_TIME
            if within >= 0 and times[start] <= END_OF_TIME - within:
                bound = times[start] + within
            taken, at = _walk(
                label, x, y, variables, start_state, ends, touches, start - low, bound, labels, used
            )
            is_good = taken > 0
            if is_good:
                last = times[start + taken - 1]
                at = max(at, last)
                if absent_bit >= 0:
                    until = END_OF_TIME
                    if last <= END_OF_TIME - absent_within:
                        until = last + absent_within
                    place = absent[start + taken - low]
                    if place < high and times[place] <= until:
                        is_good = False
                        until = times[place]
                    at = max(at, until)
            reach[start] = at
            if at >= horizon and horizon < END_OF_TIME and skip != _TO_NEXT:
                next_start[key] = start
                break
            if is_good:
                starts[matches], stops[matches], reaches[matches] = start, start + taken, at
                matches += 1
                step = _skipped(labels, used, taken, skip, skip_label)
                used += taken
                start += step
            else:
                start += 1
    return matches, labels[:used].copy()


def find_matches(
    program: Program,
    search: Search,
    begin: Int64Array,
    first: Int64Array,
    times: Int64Array,
    bits: NDArray[np.uint64],
) -> Matches:
    count = len(times)
    reach = np.full(count, START_OF_TIME, dtype=np.int64)
    next_start = np.empty(len(first), dtype=np.int64)
    start, stop, reaches = np.empty((3, count), dtype=np.int64)
    found, labels = _find_matches(
        program.label, program.masks, program.x, program.y, program.variables, program.start,
        *search, whole(begin), whole(first), whole(times), whole(bits),
        reach, next_start, start, stop, reaches,
    )  # fmt: skip
    return Matches(
        reach, next_start, start[:found].copy(), stop[:found].copy(), reaches[:found].copy(), labels
    )
