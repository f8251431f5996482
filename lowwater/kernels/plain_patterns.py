"""The search for row patterns in numpy: attempts that walk forward with the tables of their keys.

At a split an attempt takes the preferred branch if that has a match within the bound, else it adds
what the failed branch has looked at to its reach, and takes the other. Walks go in lockstep, where
each takes one row at a time; the last few go one by one.
"""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from lowwater.kernels.pattern_tables import (
    TO_FIRST,
    TO_NEXT,
    AbsentRows,
    Found,
    Matches,
    Program,
    Search,
    Tables,
    bounds_of,
    groups_of,
    in_order,
    tables_of,
)
from lowwater.kernels.plain_merging import expand_ranges
from lowwater.kernels.positions import repeated
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

_FEW = 16  # so many walks are as fast one by one


def find_matches(
    program: Program,
    search: Search,
    begin: Int64Array,
    first: Int64Array,
    times: Int64Array,
    bits: NDArray[np.uint64],
) -> Matches:
    reach = np.full(len(times), START_OF_TIME, dtype=np.int64)
    next_start = begin[1:].copy()
    absent = AbsentRows(search, times, bits)
    found: list[Found] = []
    for keys in groups_of(program, begin[1:] - first):
        tables = tables_of(program, first[keys], begin[keys + 1], times, bits)
        group = _Group(program, search, tables, first[keys], times, absent)
        if search.skip == TO_NEXT:
            group.try_every_row()
        else:
            next_start[keys] = group.take_turns()
        group.write_reach(reach)
        found += group.found
    return in_order(reach, next_start, found)


@final
class _Group:
    """The attempts at the rows of a group of keys. Positions count these rows, key by key."""

    def __init__(
        self,
        program: Program,
        search: Search,
        tables: Tables,
        low: Int64Array,
        times: Int64Array,
        absent: AbsentRows,
    ) -> None:
        self.found: list[Found] = []
        self._program = program
        self._search = search
        self._tables = tables
        self._times = times
        self._absent = absent
        self._high = tables.high
        rows = tables.high - low
        self._places, self._key = expand_ranges(low, rows)
        self._end = np.cumsum(rows)
        self._begin = self._end - rows
        self._bound = bounds_of(search, times[self._places])
        cell = tables.cell(self._places, program.start, self._key)
        # Most attempts fail, and are settled here. The reach of the others is yet to come.
        ends = tables.ends[cell]
        self._fails = (ends > self._bound) | (ends == END_OF_TIME)
        self._reach = np.minimum(tables.touches[cell], self._bound)
        self._is_begun = np.ones(len(self._places), dtype=np.bool_)

    def write_reach(self, reach: Int64Array) -> None:
        """Write the reach of each attempt that was begun to its row."""
        reach[self._places[self._is_begun]] = self._reach[self._is_begun]

    def try_every_row(self) -> None:
        """Make an attempt at each row."""
        at = np.flatnonzero(~self._fails)
        stop, labels = self._walk(at)
        _, kept = self._judge(at, stop)
        self._keep(at, stop, labels, kept)

    def take_turns(self) -> Int64Array:
        """Make attempts in turn; return the first row of each key whose attempt is undecided."""
        count = len(self._places)
        # What ends a turn: a walk, or a failed attempt that is undecided.
        is_turn = ~self._fails | self._is_open(self._reach)
        turns = np.where(is_turn, np.arange(count), count)
        self._turn = np.minimum.accumulate(turns[::-1])[::-1]
        self._begun = np.zeros(count + 1, dtype=np.int64)
        next_start = self._high.copy()
        key = np.arange(len(self._high))
        at = self._begin.copy()
        while key.size >= _FEW:
            self._begun[at] += 1
            at = np.minimum(self._turn[at], self._end[key])
            is_there = at < self._end[key]
            self._begun[at + is_there] -= 1
            key, at = key[is_there], at[is_there]
            is_open = self._fails[at]
            next_start[key[is_open]] = self._places[at[is_open]]
            key, at = key[~is_open], at[~is_open]
            stop, labels = self._walk(at)
            is_open, kept = self._judge(at, stop)
            next_start[key[is_open]] = self._places[at[is_open]]
            after = at + np.where(kept, self._advance(at, stop, labels), 1)
            self._keep(at, stop, labels, kept & ~is_open)
            goes_on = ~is_open & (after < self._end[key])
            key, at = key[goes_on], after[goes_on]
        for one, place in zip(key.tolist(), at.tolist(), strict=True):
            next_start[one] = self._take_turns_alone(one, place)
        self._is_begun = np.cumsum(self._begun[:-1]) > 0
        return next_start

    def _is_open(self, reach: Int64Array) -> NDArray[np.bool_]:
        """Return which attempts are undecided (P-5); at the end of the input, none is."""
        horizon = self._search.horizon
        return (reach >= horizon) & (horizon < END_OF_TIME)

    def _walk(self, at: Int64Array) -> tuple[Int64Array, NDArray[np.int16]]:
        """Walk the preferred parses of attempts that do not fail, and write their reach.

        Returns:
            (the row behind each, the labels of the rows of all).
        """
        program, tables = self._program, self._tables
        place, key, bound = self._places[at], self._key[at], self._bound[at]
        if len(at) < _FEW:
            return self._walk_few(at)
        start, stop = place, place.copy()
        limit = np.minimum(bound, END_OF_TIME - 1)
        reach = np.full(len(at), START_OF_TIME, dtype=np.int64)
        walk = np.arange(len(at))
        state = np.full(len(at), program.start)
        steps: list[tuple[Int64Array, Int64Array]] = []
        while True:
            split = np.flatnonzero(state > program.variables)
            while split.size:
                here = state[split]
                preferred = program.x[here]
                cell = tables.cell(place[split], preferred, key[split])
                fails = tables.ends[cell] > limit[split]
                failing = split[fails]
                touched = np.minimum(tables.touches[cell[fails]], bound[failing])
                reach[walk[failing]] = np.maximum(reach[walk[failing]], touched)
                here = np.where(fails, program.y[here], preferred)
                state[split] = here
                split = split[here > program.variables]
            goes_on = state > 0
            if not goes_on.all():
                stop[walk[~goes_on]] = place[~goes_on]
                walk, state, place = walk[goes_on], state[goes_on], place[goes_on]
                key, bound, limit = key[goes_on], bound[goes_on], limit[goes_on]
            if not walk.size:
                break
            steps.append((walk, program.label[state]))  # all walks take a row in each step
            state = program.x[state]
            place = place + 1
        count = stop - start
        taken = count > 0
        reach[taken] = np.maximum(reach[taken], self._times[stop[taken] - 1])
        self._reach[at] = reach
        offset = np.cumsum(count) - count
        labels = np.empty(int(count.sum()), dtype=np.int16)
        for step, (walking, label) in enumerate(steps):
            labels[offset[walking] + step] = label
        return stop, labels

    def _walk_few(self, at: Int64Array) -> tuple[Int64Array, NDArray[np.int16]]:
        walker = _Walker(self._program, self._tables, self._times)
        labels: list[int] = []
        stop = np.empty(len(at), dtype=np.int64)
        for i, one in enumerate(at.tolist()):
            stop[i], self._reach[one] = walker.walk(
                int(self._key[one]), int(self._places[one]), int(self._bound[one]), labels
            )
        return stop, np.array(labels, dtype=np.int16)

    def _judge(
        self, at: Int64Array, stop: Int64Array
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which walks are undecided, and which are matches; write their reach."""
        kept = stop > self._places[at]
        taken = at[kept]
        good, self._reach[taken] = self._absent.judge(
            stop[kept], self._high[self._key[taken]], self._reach[taken]
        )
        kept[kept] = good
        return self._is_open(self._reach[at]), kept

    def _advance(self, at: Int64Array, stop: Int64Array, labels: NDArray[np.int16]) -> Int64Array:
        """Return how many rows behind the first row of each match the search goes on."""
        count = stop - self._places[at]
        if self._search.skip_label < 0:
            return count
        walk = repeated(np.arange(len(at)), count)
        hits = np.flatnonzero(labels == self._search.skip_label)
        if self._search.skip == TO_FIRST:
            hits = hits[::-1]  # of several assignments the last one stays
        target = np.zeros(len(at), dtype=np.int64)
        target[walk[hits]] = hits - (np.cumsum(count) - count)[walk[hits]]
        return np.maximum(target, 1)

    def _keep(
        self,
        at: Int64Array,
        stop: Int64Array,
        labels: NDArray[np.int16],
        kept: NDArray[np.bool_],
    ) -> None:
        start = self._places[at]
        if not kept.all():
            labels = labels[repeated(kept, stop - start)]
            at, start, stop = at[kept], start[kept], stop[kept]
        self.found.append(Found(start, stop, self._reach[at], labels))

    def _take_turns_alone(self, key: int, at: int) -> int:
        """Make the attempts of one key from a position on; as :meth:`take_turns` does."""
        walker = _Walker(self._program, self._tables, self._times)
        turn, bound = self._turn.data, self._bound.data
        end, high = int(self._end[key]), int(self._high[key])
        horizon, skip_label = self._search.horizon, self._search.skip_label
        to_place = high - end
        labels: list[int] = []
        starts, stops, reaches = [], [], []
        next_start = high
        while at < end:
            self._begun[at] += 1
            at = min(turn[at], end)
            self._begun[min(at + 1, end)] -= 1
            if at == end:
                break
            start = at + to_place
            if self._fails[at]:
                next_start = start
                break
            before = len(labels)
            stop, reach = walker.walk(key, start, bound[at], labels)
            is_good = stop > start
            if is_good:
                is_good, reach = self._absent.judge_one(stop, high, reach)
            self._reach[at] = reach
            if reach >= horizon and horizon < END_OF_TIME:
                del labels[before:]
                next_start = start
                break
            if not is_good:
                del labels[before:]
                at += 1
                continue
            starts.append(start)
            stops.append(stop)
            reaches.append(reach)
            if skip_label < 0:
                at += stop - start
            else:
                at += max(1, _place_of(labels[before:], self._search))
        start_, stop_, reach_ = (
            np.array(column, dtype=np.int64) for column in (starts, stops, reaches)
        )
        self.found.append(Found(start_, stop_, reach_, np.array(labels, dtype=np.int16)))
        return next_start


def _place_of(labels: list[int], search: Search) -> int:
    """Return the place of the row of a match that is skipped to; -1 if there is none."""
    if search.skip_label not in labels:
        return -1
    if search.skip == TO_FIRST:
        return labels.index(search.skip_label)
    return len(labels) - 1 - labels[::-1].index(search.skip_label)


@final
class _Walker:
    """Walks one attempt at a time."""

    def __init__(self, program: Program, tables: Tables, times: Int64Array) -> None:
        self._program = program
        self._labels, self._x, self._y = (
            column.tolist() for column in (program.label, program.x, program.y)
        )
        self._ends, self._touches = tables.ends.data, tables.touches.data
        self._tables = tables
        self._times = times

    def walk(self, key: int, start: int, bound: int, labels: list[int]) -> tuple[int, int]:
        """Walk an attempt that does not fail, add its labels; return (the row behind it, reach)."""
        xs, ys, ends = self._x, self._y, self._ends
        variables, state = self._program.variables, self._program.start
        keys, states = len(self._tables.high), self._tables.states
        cell = (int(self._tables.high[key]) - start) * states * keys + key
        limit = min(bound, END_OF_TIME - 1)
        reach, stop = START_OF_TIME, start
        while state:
            preferred = xs[state]
            if state <= variables:
                labels.append(self._labels[state])
                stop += 1
                cell -= states * keys
                state = preferred
            elif ends[cell + preferred * keys] <= limit:
                state = preferred
            else:
                reach = max(reach, min(self._touches[cell + preferred * keys], bound))
                state = ys[state]
        if stop > start:
            reach = max(reach, int(self._times[stop - 1]))
        return stop, reach
