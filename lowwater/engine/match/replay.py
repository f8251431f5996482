"""Searches the rows of one key again, step by step, to learn what a run found and when.

A run records nothing of its searches. They depend on nothing but the rows of a key and the
watermark, so a trace, which has both, is enough to repeat them for the key that is asked about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

import numpy as np

from lowwater.engine.keyed.operator import record_hashes
from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.match.attempts import Attempts
from lowwater.engine.match.conditions import Conditions
from lowwater.engine.match.key_rows import KeyRows
from lowwater.engine.match.measures import Measures
from lowwater.engine.match.outcome import Decided
from lowwater.engine.match.rules import Matching
from lowwater.engine.match.search import PatternSearch
from lowwater.engine.match.taken import Values
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.columns import Column
from lowwater.engine.records.followed import Event
from lowwater.engine.records.steps import Bundle
from lowwater.state.table import Field
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

_FIELDS = (
    Field("bits", np.int64),
    Field("judged", np.bool_, False),
    Field("context", np.bool_, False),
)


_Identity: TypeAlias = tuple[tuple[int, ...], tuple[str | None, ...], str]


@final
@dataclass(frozen=True, slots=True)
class FoundMatch:
    """A match of one key.

    Args:
        rows: The numbers of its rows, in order.
        variables: The variable of each; ``None`` for a row of a gap.
        start: The event time of its first row, int microseconds.
        end: That of its last row.
        decided_at: The watermark at which it was decided.
        measures: The measures; empty if each row is emitted.
    """

    rows: tuple[int, ...]
    variables: tuple[str | None, ...]
    start: int
    end: int
    decided_at: int
    measures: Mapping[str, Any] = field(hash=False)

    @property
    def parts(self) -> tuple[tuple[int, str | None], ...]:
        """The number and the variable of each row."""
        return tuple(zip(self.rows, self.variables, strict=True))


@final
@dataclass(frozen=True, slots=True)
class Change:
    """What one event changed.

    Args:
        event: The event.
        retracted: The matches that were retracted.
        emitted: Those that were emitted.
        regrouped: Those whose rows are others now, while what was emitted of them is the same:
            before, and now.
    """

    event: Event
    retracted: tuple[FoundMatch, ...]
    emitted: tuple[FoundMatch, ...]
    regrouped: tuple[tuple[FoundMatch, FoundMatch], ...] = ()


@final
class Replay:
    """The searches of one key.

    Args:
        rules: The rules.
        rows: All rows of the key, retractions included, in order of arrival, with the columns that
            the operator reads. A row's number is its index here.
    """

    def __init__(self, rules: Matching, rows: Bundle) -> None:
        self._rules, self._all = rules, rows
        self._conditions = Conditions(rules)
        self._search = PatternSearch(rules, self._conditions)
        self._measures = Measures(rules.measures)
        self._bits = self._conditions.of_bundle(rows)
        self._hashes: list[int] = []
        if rows.signs is not None:
            seen = {n: one for n, one in rows.values.items() if not n.startswith(HIDDEN)}
            self._hashes = record_hashes(Bundle(rows.times, (), seen)).tolist()
        self._present: list[int] = []
        self._held: list[int] = []  # those of the present rows that the operator still has
        self._context: set[int] = set()
        self._standing: dict[_Identity, FoundMatch] = {}
        self._final: list[FoundMatch] = []
        self._due = END_OF_TIME
        self.watermark = START_OF_TIME
        self.changes: list[Change] = []

    @property
    def standing(self) -> tuple[FoundMatch, ...]:
        """The matches that were emitted and not retracted, by start."""
        return tuple(sorted((*self._final, *self._standing.values()), key=lambda one: one.start))

    def is_final(self, match: FoundMatch) -> bool:
        """Return whether no late row can change a match any more."""
        return _identity(match) not in self._standing

    def follow(self, event: Event) -> None:
        """Search again after an event, if it matters to the key. O(rows that are not released)."""
        is_due = event.watermark > self.watermark and event.watermark >= self._due
        self.watermark = max(self.watermark, event.watermark)
        if is_due or (self.watermark == END_OF_TIME and self._held):
            self._searched(Event(event.order, event.clock, event.watermark))
        if event.rows:
            for number in event.rows:
                self._take(number)
            self._searched(event)

    def attempts(self) -> Attempts:
        """Return what became of each start, of all rows that are not taken back. O(rows)."""
        rows, values, numbers, records = self._rows(np.array(self._present, dtype=np.int64), set())
        return Attempts(
            self._rules, self._search, self._conditions, rows, values, records.table, numbers,
            self.watermark,
        )  # fmt: skip

    def _take(self, number: int) -> None:
        """Add a row, or remove the equal row that came last (P-13)."""
        signs, times = self._all.signs, self._all.times
        if signs is None or signs[number] > 0:
            self._present.append(number)
            self._held.append(number)
            return
        for one in reversed(self._held):
            if times[one] == times[number] and self._hashes[one] == self._hashes[number]:
                self._present.remove(one)
                self._held.remove(one)
                return

    def _searched(self, event: Event) -> None:
        alive = np.array(self._held, dtype=np.int64)
        rows, values, numbers, records = self._rows(alive, self._context)
        decided = self._search.decided(records.table, rows, values, self.watermark)
        settled = int(decided.settled[0])
        is_over = settled >= len(rows)
        self._due = END_OF_TIME if is_over else int(decided.due[0])
        found = self._found(rows, values, decided, numbers)
        self._compare(event, found, [start >= settled for start in decided.start.tolist()])
        place = np.arange(len(rows))
        self._context = set(numbers[place < settled].tolist())
        gone = set(numbers[place < settled - self._conditions.depth].tolist())
        self._held = [number for number in self._held if number not in gone]

    def _rows(
        self, alive: Int64Array, context: set[int]
    ) -> tuple[KeyRows, Values, Int64Array, KeyedRecords]:
        """Return rows in order, with the number of each."""
        records = KeyedRecords({}, _FIELDS)
        key = np.zeros(len(alive), dtype=np.int64)
        bundle = self._all.take(alive)
        columns = {n: one for n, one in bundle.values.items() if self._search.keeps(n)}
        at = records.insert(key, bundle.times, columns, None)
        table = records.table
        table["bits"][at] = self._bits[alive]
        table["context"][at] = [number in context for number in alive.tolist()]
        rows = KeyRows(records, np.zeros(1, dtype=np.int64), self._rules.order)
        numbers = np.zeros(int(at.max(initial=-1)) + 1, dtype=np.int64)
        numbers[at] = alive
        values = Values(rows, self._conditions.labels)
        if self._conditions.reads_before:
            self._conditions.judge(records, rows, values, every=True)
        return rows, values, numbers[rows.rows], records

    def _found(
        self, rows: KeyRows, values: Values, decided: Decided, numbers: Int64Array
    ) -> list[FoundMatch]:
        taken = decided.taken()
        names = [*self._rules.variables, None]
        columns: dict[str, Column] = {}
        if taken.count and self._rules.rows == "one":
            columns = self._measures.of_matches(values, taken)
        measures = {name: column.to_list() for name, column in columns.items()}
        ends = np.cumsum(decided.stop - decided.start)
        return [
            FoundMatch(
                tuple(numbers[start:stop].tolist()),
                tuple(names[label] for label in decided.labels[end - (stop - start) : end]),
                int(rows.times[start]),
                int(rows.times[stop - 1]),
                int(decided.decided_at[at]),
                {name: some[at] for name, some in measures.items()},
            )
            for at, (start, stop, end) in enumerate(
                zip(decided.start.tolist(), decided.stop.tolist(), ends.tolist(), strict=True)
            )
        ]

    def _compare(self, event: Event, found: Sequence[FoundMatch], stays: Sequence[bool]) -> None:
        """Note what differs from before (P-7)."""
        before, now = self._standing, {_identity(one): one for one in found}
        new = [one for name, one in now.items() if name not in before]
        gone = [one for name, one in before.items() if name not in now]
        regrouped: list[tuple[FoundMatch, FoundMatch]] = []
        if self._rules.rows == "one":
            for one in list(gone):
                same = next((other for other in new if _content(one) == _content(other)), None)
                if same is not None:
                    gone.remove(one)
                    new.remove(same)
                    regrouped.append((one, same))
        self._final += [one for one, stay in zip(found, stays, strict=True) if not stay]
        self._standing = {
            _identity(one): one for one, stay in zip(found, stays, strict=True) if stay
        }
        if gone or new or regrouped:
            change = Change(event, tuple(gone), tuple(new), tuple(regrouped))
            self.changes.append(change)


def _identity(match: FoundMatch) -> _Identity:
    return match.rows, match.variables, repr(match.measures)


def _content(match: FoundMatch) -> tuple[Any, ...]:
    """Return what is emitted of a match."""
    return match.start, match.end, repr(match.measures)
