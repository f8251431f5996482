"""What a search for row patterns takes and gives, and the tables it looks up.

The search is dynamic programming. From the last row of a key backwards, each (row, state) learns
two instants: that of the last row of the shortest match from there, and that of the latest row that
an exhaustive search from there looks at. With them an attempt walks forward and tries nothing
twice, so no pattern takes more than O(rows x states).

Keys are processed in lockstep, a row of each at a time, and few ones alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from lowwater.kernels.plain_merging import expand_ranges
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array, saturating_add_array

PAST_LAST, TO_NEXT, TO_FIRST, TO_LAST = range(4)
"""Where the search goes on after a match: behind it, at the row behind its first, or at the first
or last row of a variable."""

_AT_ONCE = 4_000_000  # cells of the tables of keys that are searched together
_FEW = 16  # so many threads are as fast one by one


@final
@dataclass(frozen=True, slots=True)
class Program:
    """The states of a search. State 0 is a match, the next ``variables`` states take a row.

    The others are splits, each behind both states it splits into.

    Args:
        label: What a state labels the row it takes, int64, shape (states,); -1 for a gap.
        bit: Which bit of a row lets it be taken, int64; -1 for any row.
        x: The state behind the row; of a split, the preferred branch. int64.
        y: The other branch of a split, int64; -1 of the others.
        variables: How many states take a row.
        start: The state in which an attempt begins.
    """

    label: Int64Array
    bit: Int64Array
    x: Int64Array
    y: Int64Array
    variables: int
    start: int

    @property
    def masks(self) -> NDArray[np.uint64]:
        """The bits that a row needs in each state; none where any row will do."""
        shifts = np.maximum(self.bit, 0).astype(np.uint64)
        return np.where(self.bit < 0, np.uint64(0), np.uint64(1) << shifts)


class Search(NamedTuple):
    """What bounds a search, and where it goes on.

    Args:
        within: How much later than its first row a row of a match may be; -1: any.
        absent_bit: The bit of rows that must not follow a match; -1: none.
        absent_within: For how long behind the last row, both ends included.
        horizon: An attempt is decided that looked only at what is before.
        skip: ``PAST_LAST``, ``TO_NEXT``, ``TO_FIRST`` or ``TO_LAST``.
        skip_label: The label of the variable that is skipped to; -1: none.
    """

    within: int = -1
    absent_bit: int = -1
    absent_within: int = 0
    horizon: int = END_OF_TIME
    skip: int = PAST_LAST
    skip_label: int = -1


@final
@dataclass(frozen=True, slots=True)
class Matches:
    """What a search finds, ordered by key and first row.

    Args:
        reach: The latest instant that the attempt at each row depends on, int64, shape (n,);
            ``START_OF_TIME`` where no attempt began, or where it looked at nothing.
        next_start: The first row of each key whose attempt is undecided, int64, shape (keys,); the
            end of the key if there is none.
        start: The first row of each match, int64, shape (m,).
        stop: The row behind its last one, int64.
        match_reach: Its reach, int64.
        labels: The labels of the rows of all matches, int16, shape (sum of their lengths,).
    """

    reach: Int64Array
    next_start: Int64Array
    start: Int64Array
    stop: Int64Array
    match_reach: Int64Array
    labels: NDArray[np.int16]


@final
@dataclass(frozen=True, slots=True)
class Tables:
    """What is known of each (row, state, key) of a group of keys.

    Args:
        ends: The instant of the last row of the shortest match from there, int64, flat, of shape
            (rows to the end, states, keys); ``END_OF_TIME`` if there is none, ``START_OF_TIME`` for
            the state of a match.
        touches: The latest instant that an exhaustive search from there looks at.
        high: The end of each key, int64, shape (keys,).
        states: How many states there are.
    """

    ends: Int64Array
    touches: Int64Array
    high: Int64Array
    states: int

    def cell(self, place: Int64Array, state: Int64Array | int, key: Int64Array) -> Int64Array:
        """Return where the row ``place`` of a key is in the flat tables, in a state."""
        steps = self.high[key] - place
        return (steps * self.states + state) * len(self.high) + key


class Found(NamedTuple):
    """Matches in any order: as :class:`Matches`, with the number of labels of each."""

    start: Int64Array
    stop: Int64Array
    reach: Int64Array
    labels: NDArray[np.int16]


def groups_of(program: Program, rows: Int64Array) -> Iterator[Int64Array]:
    """Yield groups of keys, of similar length each, that are searched together.

    Args:
        program: The program.
        rows: How many rows each key has.
    """
    order = np.argsort(-rows, kind="stable")
    order = order[: np.count_nonzero(rows)]
    low = 0
    while low < len(order):
        longest = rows[order[low]]
        most = max(1, _AT_ONCE // (len(program.x) * (int(longest) + 1)))
        high = min(len(order), low + most)
        few = min(low + _FEW, high) - 1
        if high - low < _FEW or longest > 4 * rows[order[few]]:
            high = low + 1  # alone: in lockstep, few keys would have most of the rows
        yield order[low:high]
        low = high


def tables_of(
    program: Program,
    low: Int64Array,
    high: Int64Array,
    times: Int64Array,
    bits: NDArray[np.uint64],
    never: NDArray[np.bool_] | None = None,
) -> Tables:
    """Return the tables of keys, of which the first has most rows. O(rows x states).

    Args:
        program: The program.
        low: The first row of each key that counts, int64, shape (keys,).
        high: The end of each key; ``high - low`` never rises.
        times: The instant of each row.
        bits: The bits of each row.
        never: Which states take no row, whatever its bits, bool, shape (states,).
    """
    states, keys, longest = len(program.x), len(low), int(high[0] - low[0])
    if keys == 1:
        return _tables_of_one(program, int(low[0]), int(high[0]), times, bits, never)
    ends, touches = np.empty((2, longest + 1, states, keys), dtype=np.int64)
    count = program.variables + 1
    takers, after = slice(1, count), program.x[1:count]
    masks = program.masks[takers, None]
    splits = [(s, program.x[s], program.y[s]) for s in range(count, states)]
    ends[:, 0] = touches[:, 0] = START_OF_TIME
    ends[0, takers] = touches[0, takers] = END_OF_TIME
    active = np.searchsorted(low - high, -np.arange(1, longest + 1), side="right")
    for step in range(longest + 1):
        count = keys if not step else int(active[step - 1])
        end, touch = ends[step, :, :count], touches[step, :, :count]
        if step:
            place = high[:count] - step
            time = times[place]
            taken = (bits[place] & masks) == masks
            if never is not None:
                taken[never[takers]] = False
            np.maximum(ends[step - 1, after, :count], time, out=end[takers])
            end[takers][~taken] = END_OF_TIME
            np.maximum(touches[step - 1, after, :count], time, out=touch[takers])
            np.copyto(touch[takers], time, where=~taken)
        for state, x, y in splits:
            np.minimum(end[x], end[y], out=end[state])
            np.maximum(touch[x], touch[y], out=touch[state])
    return Tables(ends.reshape(-1), touches.reshape(-1), high, states)


def _tables_of_one(
    program: Program,
    low: int,
    high: int,
    times: Int64Array,
    bits: NDArray[np.uint64],
    never: NDArray[np.bool_] | None,
) -> Tables:
    """Return the tables of one key, by loops over lists: numpy is slow with one thing at a time."""
    states, first_split = len(program.x), program.variables + 1
    masks = program.masks.tolist()
    if never is not None:
        masks = [-1 if no else mask for mask, no in zip(masks, never, strict=True)]  # of no row
    xs, ys = program.x.tolist(), program.y.tolist()
    takers = [(masks[state], xs[state]) for state in range(1, first_split)]
    splits = [(xs[state], ys[state]) for state in range(first_split, states)]
    end = [START_OF_TIME] + [END_OF_TIME] * program.variables
    touch = end.copy()
    for x, y in splits:
        end.append(min(end[x], end[y]))
        touch.append(max(touch[x], touch[y]))
    ends, touches = np.empty((2, high - low + 1, states), dtype=np.int64)
    ends[0], touches[0] = end, touch
    steps = zip(reversed(times[low:high].tolist()), reversed(bits[low:high].tolist()), strict=True)
    for step, (time, row) in enumerate(steps, 1):
        last_end, last_touch = end, touch
        end, touch = [START_OF_TIME], [START_OF_TIME]
        for mask, x in takers:
            if row & mask == mask:
                end.append(max(time, last_end[x]))
                touch.append(max(time, last_touch[x]))
            else:
                end.append(END_OF_TIME)
                touch.append(time)
        for x, y in splits:
            one, other = end[x], end[y]
            end.append(one if one < other else other)
            one, other = touch[x], touch[y]
            touch.append(one if one > other else other)
        ends[step], touches[step] = end, touch
    return Tables(ends.reshape(-1), touches.reshape(-1), np.array([high]), states)


class AbsentRows:
    """The rows that must not follow a match (P-12)."""

    def __init__(self, search: Search, times: Int64Array, bits: NDArray[np.uint64]) -> None:
        self._within = search.absent_within
        self._times = times
        self._is_asked = search.absent_bit >= 0
        bit = np.uint64(max(search.absent_bit, 0))
        is_absent = (bits >> bit) & np.uint64(1) > 0 if self._is_asked else np.empty(0)
        self._places = np.flatnonzero(is_absent)
        self._in_list: list[int] | None = None

    def judge(
        self, stop: Int64Array, high: Int64Array, reach: Int64Array
    ) -> tuple[NDArray[np.bool_], Int64Array]:
        """Return which matches are good, and their reach.

        Args:
            stop: The row behind each match, which takes a row.
            high: The end of its key.
            reach: Its reach so far.
        """
        if not self._is_asked:
            return np.ones(len(stop), dtype=np.bool_), reach
        until = saturating_add_array(self._times[stop - 1], self._within)
        place = np.append(self._places, len(self._times))[np.searchsorted(self._places, stop)]
        void = place < high
        time = self._times.take(place, mode="clip") if len(self._times) else until
        void &= time <= until
        return ~void, np.maximum(reach, np.where(void, time, until))

    def judge_one(self, stop: int, high: int, reach: int) -> tuple[bool, int]:
        """Return whether a match is good, and its reach; as :meth:`judge` does."""
        if not self._is_asked:
            return True, reach
        if self._in_list is None:
            self._in_list = self._places.tolist()
        until = min(int(self._times[stop - 1]) + self._within, END_OF_TIME)
        at = bisect_left(self._in_list, stop)
        if at < len(self._in_list) and self._in_list[at] < high:
            time = int(self._times[self._in_list[at]])
            if time <= until:
                return False, max(reach, time)
        return True, max(reach, until)


def bounds_of(search: Search, times: Int64Array) -> Int64Array:
    """Return the latest instant of a match whose first row is at each of some times (P-4)."""
    if search.within < 0:
        return np.full(len(times), END_OF_TIME, dtype=np.int64)
    return saturating_add_array(times, search.within)


def in_order(reach: Int64Array, next_start: Int64Array, found: list[Found]) -> Matches:
    """Return matches in order of their first rows, which is that of their keys."""
    if not found:
        none = np.empty(0, dtype=np.int64)
        return Matches(reach, next_start, none, none, none, np.empty(0, dtype=np.int16))
    start, stop, match_reach, labels = map(np.concatenate, zip(*found, strict=True))
    count = stop - start
    order = np.argsort(start, kind="stable")
    places, _ = expand_ranges((np.cumsum(count) - count)[order], count[order])
    return Matches(reach, next_start, start[order], stop[order], match_reach[order], labels[places])
