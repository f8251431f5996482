"""The search for patterns whose conditions depend on the match so far: backtracking, in lockstep.

Such a condition is no bit of a row: it may be true of the same row after one parse and false after
another. So failures cannot be remembered, and the time may grow exponentially with the rows of a
match. Two tables of the plain search cut it short. If there is no match even with every such
condition true, only the reach of an attempt is open; and that is settled, too, where it is the same
with every such condition true and with every one false, or where it cannot grow.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TypeAlias, final

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
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

__all__ = ["Test", "find_matches_carefully"]

_CELLS_AT_ONCE = 4_000_000  # labels of attempts that are made together
_FEW = 16  # so few keys are searched one by one, several attempts ahead
_AHEAD = 256  # so many attempts at most
_CELLS_AHEAD = 100_000  # rows that these may take in sum

Test: TypeAlias = Callable[
    [int, Int64Array, Int64Array, NDArray[np.int16], Int64Array], NDArray[np.bool_]
]
"""``test(label, starts, places, labels, depth)`` returns which of several attempts can take a row.

Args:
    label: The label of the variable that would take it.
    starts: The first row of each attempt, int64, shape (attempts,).
    places: The row under test.
    labels: The labels of the rows that were taken, int16, shape (attempts, at least the largest
        depth); that of the row under test included, what is behind it may be anything.
    depth: How many rows that are, the one under test included.
"""


def find_matches_carefully(
    program: Program,
    search: Search,
    begin: Int64Array,
    first: Int64Array,
    times: Int64Array,
    bits: NDArray[np.uint64],
    depends: AbstractSet[int],
    test: Test,
) -> Matches:
    """Find what the kernels' ``find_matches`` finds, with conditions on the match so far.

    Exponential in the rows of a match at worst.

    Args:
        program: The states of the search.
        search: Its bounds.
        begin: Where the rows of each key begin, and the end of the last, int64, shape (keys + 1,).
        first: The first row of each key that may begin a match, int64, shape (keys,).
        times: The instant of each row, before the end of time; never falls within a key.
        bits: The conditions that are true of each row, uint64.
        depends: The labels of variables whose conditions depend on the match so far. Their bits,
            if they have any, must be set besides.
        test: Says whether such a condition is true.
    """
    reach = np.full(len(times), START_OF_TIME, dtype=np.int64)
    next_start = begin[1:].copy()
    absent = AbsentRows(search, times, bits)
    takers = range(1, program.variables + 1)
    dependent = np.zeros(len(program.x), dtype=np.bool_)
    dependent[1 : program.variables + 1] = [program.label[state] in depends for state in takers]
    found: list[Found] = []
    for keys in groups_of(program, begin[1:] - first):
        low, high = first[keys], begin[keys + 1]
        tables = tables_of(program, low, high, times, bits)
        surely = tables.touches
        if dependent.any():
            surely = tables_of(program, low, high, times, bits, dependent).touches
        ahead = search.skip != TO_NEXT and len(keys) < _FEW
        attempts_of = partial(
            _Attempts, program, search._replace(skip=TO_NEXT) if ahead else search, tables, surely,
            times, bits, dependent, test, absent,
        )  # fmt: skip
        if ahead:
            turns = _Ahead(search, attempts_of, high, len(times))
            for one in range(len(keys)):
                next_start[keys[one]] = turns.take(one, int(low[one]), reach)
            found += turns.found
            continue
        if search.skip == TO_NEXT:
            starts, key = expand_ranges(low, high - low)
            size = max(1, _CELLS_AT_ONCE // int(high[0] - low[0]))
        else:
            starts, key, size = low, np.arange(len(keys)), len(keys)
        for at in range(0, len(starts), size):
            part = slice(at, at + size)
            attempts = attempts_of(starts[part], key[part], reach)
            attempts.run()
            if search.skip != TO_NEXT:
                next_start[keys[key[part]]] = attempts.undecided
            found += attempts.found
    return in_order(reach, next_start, found)


@final
class _Attempts:
    """Attempts that are made at the same time, each with a stack of the branches still to try."""

    def __init__(
        self,
        program: Program,
        search: Search,
        tables: Tables,
        surely: Int64Array,
        times: Int64Array,
        bits: NDArray[np.uint64],
        dependent: NDArray[np.bool_],
        test: Test,
        absent: AbsentRows,
        starts: Int64Array,
        key: Int64Array,
        reach: Int64Array,
    ) -> None:
        count = len(starts)
        self.found: list[Found] = []
        self.undecided = tables.high[key]
        self._program, self._search, self._tables = program, search, tables
        self._times, self._bits, self._masks = times, bits, program.masks
        self._surely, self._dependent, self._test = surely, dependent, test
        self._absent = absent
        self._written = reach
        self._start, self._key, self._high = starts.copy(), key, tables.high[key]
        self._state = np.full(count, program.start)
        self._depth, self._height = np.zeros((2, count), dtype=np.int64)
        self._reach = np.full(count, START_OF_TIME, dtype=np.int64)
        self._bound = bounds_of(search, times[starts])
        self._labels = np.empty((count, 8), dtype=np.int16)
        self._stack = np.empty((2, count, 8), dtype=np.int64)

    def run(self) -> None:
        """Make the attempts; where they are made in turn, one behind the other."""
        active = np.arange(len(self._start))
        while active.size:
            failed = self._settled(active)
            state = self._state[active]
            goes_on = ~failed
            split = active[goes_on & (state > self._program.variables)]
            if split.size:
                self._split(split)
            taking = goes_on & (state > 0) & (state <= self._program.variables)
            failed[taking] = ~self._take(active[taking])
            over = goes_on & (state == 0)
            over[failed] = ~self._backtrack(active[failed])
            if over.any():
                failing = failed[over]
                ended = self._finish(active[over], failing)
                stays = ~over
                stays[over] = ~ended
                active = active[stays]

    def _settled(self, active: Int64Array) -> NDArray[np.bool_]:
        """Return which attempts fail where they are, as far as the tables know."""
        state = self._state[active]
        place = self._start[active] + self._depth[active]
        bound, reach = self._bound[active], self._reach[active]
        cell = self._tables.cell(place, state, self._key[active])
        ends = self._tables.ends[cell]
        touched = np.minimum(self._tables.touches[cell], bound)
        fails = (ends > bound) | (ends == END_OF_TIME)
        fails &= (touched <= reach) | (touched == np.minimum(self._surely[cell], bound))
        looked = active[fails]
        self._reach[looked] = np.maximum(self._reach[looked], touched[fails])
        return fails

    def _split(self, split: Int64Array) -> None:
        """Take the preferred branch, and put the other on the stack."""
        height = self._height[split]
        if int(height.max()) == self._stack.shape[2]:
            self._stack = np.concatenate([self._stack, np.empty_like(self._stack)], axis=2)
        state = self._state[split]
        self._stack[0, split, height] = self._program.y[state]
        self._stack[1, split, height] = self._depth[split]
        self._height[split] = height + 1
        self._state[split] = self._program.x[state]

    def _backtrack(self, failed: Int64Array) -> NDArray[np.bool_]:
        """Go back to the last branch that was not tried; return for which attempts there is one."""
        has = self._height[failed] > 0
        back = failed[has]
        height = self._height[back] - 1
        self._height[back] = height
        self._state[back] = self._stack[0, back, height]
        self._depth[back] = self._stack[1, back, height]
        return has

    def _take(self, taking: Int64Array) -> NDArray[np.bool_]:
        """Take a row where that is possible; return for which attempts it is."""
        state, depth = self._state[taking], self._depth[taking]
        place = self._start[taking] + depth
        bound = self._bound[taking]
        is_there = place < self._high[taking]
        time = np.full(len(taking), END_OF_TIME, dtype=np.int64)
        time[is_there] = self._times[place[is_there]]
        self._reach[taking] = np.maximum(self._reach[taking], np.minimum(time, bound))
        can = is_there & (time <= bound)
        mask = self._masks[state[can]]
        can[can] = self._bits[place[can]] & mask == mask
        taking, state, depth, place = taking[can], state[can], depth[can], place[can]
        if not taking.size:
            return can
        if int(depth.max()) == self._labels.shape[1]:
            self._labels = np.concatenate([self._labels, np.empty_like(self._labels)], axis=1)
        label = self._program.label[state]
        self._labels[taking, depth] = label
        is_met = np.ones(len(taking), dtype=np.bool_)
        asked = self._dependent[state]
        for one in np.unique(label[asked]).tolist():
            which = np.flatnonzero(asked & (label == one))
            tested = taking[which]
            is_met[which] = self._test(
                one, self._start[tested], place[which],
                self._labels[tested, : int(depth[which].max()) + 1], depth[which] + 1,
            )  # fmt: skip
        taken = taking[is_met]
        self._depth[taken] += 1
        self._state[taken] = self._program.x[state[is_met]]
        can[can] = is_met
        return can

    def _finish(self, over: Int64Array, failing: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Note attempts that are over, begin the next ones; return where there is none."""
        start, high, depth = self._start[over], self._high[over], self._depth[over]
        kept = ~failing & (depth > 0)
        taken = over[kept]
        kept[kept], self._reach[taken] = self._absent.judge(
            start[kept] + depth[kept], high[kept], self._reach[taken]
        )
        reach = self._reach[over]
        self._written[start] = reach
        turns = self._search.skip != TO_NEXT
        is_open = turns & (reach >= self._search.horizon) & (self._search.horizon < END_OF_TIME)
        self.undecided[over[is_open]] = start[is_open]
        kept &= ~is_open
        labels, step = self._labels[over[kept]], np.ones(len(over), dtype=np.int64)
        inside = np.arange(labels.shape[1]) < depth[kept, None]
        self.found.append(
            Found(start[kept], start[kept] + depth[kept], reach[kept], labels[inside])
        )
        if not turns:
            return np.ones(len(over), dtype=np.bool_)
        step[kept] = steps_of(self._search, labels, depth[kept])
        start = start + step
        ended = is_open | (start >= high)
        again, start = over[~ended], start[~ended]
        self._start[again] = start
        self._state[again] = self._program.start
        self._depth[again] = self._height[again] = 0
        self._reach[again] = START_OF_TIME
        self._bound[again] = bounds_of(self._search, self._times[start])
        return ended


@final
class _Ahead:
    """The attempts of a key in turn, made several at a time: those that a match skips are lost.

    While attempts fail, twice as many are made at once; after a match, one.

    Args:
        search: The search.
        attempts_of: Returns attempts at some starts of some keys, each by itself, which write their
            reach.
        high: The end of each key, int64.
        rows: How many rows there are.
    """

    def __init__(
        self,
        search: Search,
        attempts_of: Callable[[Int64Array, Int64Array, Int64Array], _Attempts],
        high: Int64Array,
        rows: int,
    ) -> None:
        self.found: list[Found] = []
        self._search = search
        self._attempts_of = attempts_of
        self._high = high
        self._reach = np.full(rows, START_OF_TIME, dtype=np.int64)

    def take(self, key: int, low: int, reach: Int64Array) -> int:
        """Make the attempts of a key; return the first that is undecided, or the key's end.

        Args:
            key: The place of the key.
            low: Its first row that may begin a match.
            reach: Is given the reach of each attempt.
        """
        high, start, size = int(self._high[key]), low, 1
        while start < high:
            stop = min(start + size, high)
            starts = np.arange(start, stop)
            attempts = self._attempts_of(starts, np.full(len(starts), key), self._reach)
            attempts.run()
            matches = in_order(self._reach, self._high, attempts.found)
            before = start
            start, begun, is_open = self._turns(matches, start, stop, reach)
            if is_open:
                return start
            longest = int((matches.stop - matches.start).max(initial=1))
            most = max(1, min(_AHEAD, _CELLS_AHEAD // longest))
            size = min(2 * size, most) if begun == stop - before else 1
        return high

    def _turns(
        self, matches: Matches, start: int, stop: int, reach: Int64Array
    ) -> tuple[int, int, bool]:
        """Return where the next attempt is, how many were made in turn, and if the last is open."""
        horizon, begun = self._search.horizon, 0
        undecided = np.flatnonzero(self._reach[start:stop] >= horizon) + start
        if horizon == END_OF_TIME:
            undecided = undecided[:0]
        lengths = matches.stop - matches.start
        begin = np.cumsum(lengths) - lengths
        while start < stop:
            at = int(np.searchsorted(matches.start, start))
            match = int(matches.start[at]) if at < len(matches.start) else stop
            place = int(np.searchsorted(undecided, start))
            open_ = int(undecided[place]) if place < len(undecided) else stop
            last = min(match, open_, stop - 1)
            reach[start : last + 1] = self._reach[start : last + 1]
            begun += last + 1 - start
            if open_ <= match and open_ < stop:
                return open_, begun, True
            if match == stop:
                return stop, begun, False
            labels = matches.labels[begin[at] : begin[at] + lengths[at]]
            self.found.append(
                Found(
                    matches.start[at : at + 1], matches.stop[at : at + 1],
                    matches.match_reach[at : at + 1], labels,
                )
            )  # fmt: skip
            start = match + steps_of(self._search, labels[None], lengths[at : at + 1]).item()
        return start, begun, False


def steps_of(search: Search, labels: NDArray[np.int16], depth: Int64Array) -> Int64Array:
    """Return how many rows behind the first row of each match the search goes on.

    Args:
        search: The search.
        labels: The labels of each match, int16, shape (matches, at least the longest).
        depth: How many rows each has.
    """
    if search.skip_label < 0 or not len(depth):
        return depth
    hits = (np.arange(labels.shape[1]) < depth[:, None]) & (labels == search.skip_label)
    if search.skip == TO_FIRST:
        target = hits.argmax(axis=1)
    else:
        target = labels.shape[1] - 1 - hits[:, ::-1].argmax(axis=1)
    return np.where(hits.any(axis=1), np.maximum(target, 1), 1)
