"""What became of each row of a key as the first of a match, and how far an attempt came."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import numpy as np

from lowwater.engine.match.conditions import Conditions
from lowwater.engine.match.key_rows import KeyRows
from lowwater.engine.match.rules import Matching
from lowwater.engine.match.search import PatternSearch
from lowwater.engine.match.taken import Values
from lowwater.state.table import RowTable
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array, saturating_add

Fate: TypeAlias = Literal["matched", "failed", "undecided", "behind", "skipped"]
"""What became of a start: ``behind`` an undecided one it is not tried yet, and ``skipped`` because
a match before it took its row or went on behind it (P-9)."""
Reason: TypeAlias = Literal["condition", "within", "end", "absent", "empty", "too many"]
"""Why an attempt came no further: no condition is true of the next row; it is later than ``within``
allows; there is none; what must be absent came; the preferred parse takes no row; or there are too
many ways to follow."""

MOST_WAYS = 1_000
"""How many ways through a pattern are followed at once where conditions depend on the match."""


@final
@dataclass(frozen=True, slots=True)
class Progress:
    """How far an attempt came.

    Args:
        variables: The variable of each row that it took; ``None`` for a row of a gap.
        row: The number of the row at which it failed, or which must be absent; ``None`` for none.
        wanted: The variables of which one would have had to take the next row.
        why: Why it came no further.
    """

    variables: tuple[str | None, ...]
    row: int | None
    wanted: tuple[str, ...]
    why: Reason


@final
@dataclass(frozen=True, slots=True)
class Attempt:
    """A start, and what became of it.

    Args:
        row: The number of its row.
        fate: What became of it.
        reach: The latest instant that it depends on, int microseconds; ``START_OF_TIME`` if it was
            not tried.
        by: The number of the first row of the match, or of the undecided start, that it is behind.
        is_final: Whether no late row can change that.
    """

    row: int
    fate: Fate
    reach: int
    by: int | None
    is_final: bool


@final
class Attempts:
    """The starts of one key, searched at a watermark.

    Args:
        rules: The rules.
        search: The search for their pattern.
        conditions: Their conditions.
        rows: All rows of the key.
        values: Computes over them.
        table: Their table.
        numbers: The number of each, int64.
        watermark: The input watermark.
    """

    def __init__(
        self,
        rules: Matching,
        search: PatternSearch,
        conditions: Conditions,
        rows: KeyRows,
        values: Values,
        table: RowTable,
        numbers: Int64Array,
        watermark: int,
    ) -> None:
        self._rules, self._search, self._conditions = rules, search, conditions
        self._rows, self._values = rows, values
        self._bits = table["bits"][rows.rows]
        self._times = rows.times.tolist()
        self.numbers: list[int] = numbers.tolist()
        """The numbers of the rows, in the order of the rules (P-1)."""
        self._settle, self._hold, emit = search.horizons(watermark)
        found = search.found(table, rows, values, emit)
        self._reach = found.reach.tolist()
        start, stop, _, _ = search.emitted(found, emit)
        self._stops = dict(zip(start.tolist(), stop.tolist(), strict=True))
        self._next = len(rows) if rules.skip == "next" else int(found.next_start[0])
        self._emit = emit

    def __iter__(self) -> Iterator[Attempt]:
        """Yield what became of each start, by row."""
        by: int | None = None
        settles = True
        for place, number in enumerate(self.numbers):
            reach = self._reach[place]
            fate: Fate = "failed"
            before = by
            if place in self._stops:
                fate, by = "matched", number
            elif reach >= self._emit and self._emit < END_OF_TIME:
                fate, by = "undecided", number
            elif reach == START_OF_TIME:
                fate = "behind" if place >= self._next else "skipped"
            own = reach < self._settle or self._settle == END_OF_TIME
            # With other skips than "next", what comes behind a start depends on it.
            settles = own and (settles or self._rules.skip == "next")
            tried = fate not in ("behind", "skipped")
            yield Attempt(number, fate, reach, None if tried else before, settles)

    def progress(self, number: int) -> Progress:
        """Return how far the attempt at a row came, on the way that is preferred.

        Of ways that came equally far, in rows and in those of variables, it is the preferred one.
        """
        start = self.numbers.index(number)
        bound = END_OF_TIME
        if self._rules.within_us is not None:
            bound = saturating_add(self._times[start], self._rules.within_us)
        program = self._search.program
        ways = self._ways([(program.start, ())])
        ended: tuple[int, ...] | None = None
        place = start
        while True:
            # What is less preferred than a parse that has ended does not count.
            over = next((at for at, (state, _) in enumerate(ways) if not state), None)
            if over is not None:
                ended, ways = ways[over][1], ways[:over]
            if not ways:
                return self._ended(start, ended or ())
            if len(ways) > MOST_WAYS:
                return self._stopped(ways, None, "too many")
            is_there = place < len(self.numbers)
            row = self.numbers[place] if is_there else None
            taken = []
            if is_there and self._times[place] <= bound:
                taken = [
                    (int(program.x[state]), (*labels, int(program.label[state])))
                    for state, labels in ways
                    if self._can_take(state, labels, start, place)
                ]
            if not taken:
                if ended is not None:
                    return self._ended(start, ended)
                why: Reason = "end" if not is_there else "condition"
                if is_there and self._times[place] > bound:
                    why = "within"
                return self._stopped(ways, row, why)
            ways = self._ways(taken)
            place += 1

    def _ways(self, ways: list[_Way]) -> list[_Way]:
        """Return what can be reached from some states without a row, in order of preference."""
        program, depends = self._search.program, self._search.depends
        seen: dict[object, _Way] = {}
        waiting = ways[::-1]
        while waiting:
            state, labels = waiting.pop()
            name = (state, labels) if depends else state
            if state < 0 or name in seen:
                continue
            seen[name] = (state, labels)
            if state > program.variables:
                waiting += [(int(program.y[state]), labels), (int(program.x[state]), labels)]
        return [way for way in seen.values() if way[0] <= program.variables]

    def _can_take(self, state: int, labels: tuple[int, ...], start: int, place: int) -> bool:
        program = self._search.program
        label, bit = int(program.label[state]), int(program.bit[state])
        if bit >= 0 and not (int(self._bits[place]) >> bit) & 1:
            return False
        if label not in self._search.depends:
            return True
        some = np.array([[*labels, label]], dtype=np.int16)
        one = np.ones(1, dtype=np.int64)
        test = self._search.test(self._rows, self._values)
        return bool(test(label, start * one, place * one, some, some.shape[1] * one)[0])

    def _ended(self, start: int, labels: tuple[int, ...]) -> Progress:
        """Return why a parse that ended is no match: what must be absent came behind it."""
        variables = self._named(labels)
        if not labels:
            return Progress((), None, (), "empty")
        absence, bit = self._rules.absence, self._conditions.absent_bit
        stop = start + len(labels)
        if absence is not None:
            until = saturating_add(self._times[stop - 1], absence.within_us)
            for place in range(stop, len(self._times)):
                if self._times[place] > until:
                    break
                if (int(self._bits[place]) >> bit) & 1:
                    return Progress(variables, self.numbers[place], (), "absent")
        return Progress(variables, None, (), "end")

    def _stopped(self, ways: list[_Way], row: int | None, why: Reason) -> Progress:
        """Return how far the ways came that took most rows as variables."""
        most = max(_of_variables(labels) for _, labels in ways)
        ahead = [way for way in ways if _of_variables(way[1]) == most]
        labels = [int(self._search.program.label[state]) for state, _ in ahead]
        names = self._rules.variables
        wanted = tuple(dict.fromkeys(names[label] for label in labels if label >= 0))
        return Progress(self._named(ahead[0][1]), row, wanted, why)

    def _named(self, labels: tuple[int, ...]) -> tuple[str | None, ...]:
        names = (*self._rules.variables, None)
        return tuple(names[label] for label in labels)


_Way: TypeAlias = tuple[int, tuple[int, ...]]
"""A state, and the labels of the rows that were taken on the way to it."""


def _of_variables(labels: tuple[int, ...]) -> int:
    return sum(label >= 0 for label in labels)
