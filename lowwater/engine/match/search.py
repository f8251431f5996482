"""Searches the rows of keys, and says what is decided of them (P-5, P-6, P-8 to P-10, P-12)."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.match.careful import Test, find_matches_carefully
from lowwater.engine.match.columns_read import keeps_all, kept_columns
from lowwater.engine.match.conditions import DEFINE, Conditions
from lowwater.engine.match.key_rows import KeyRows
from lowwater.engine.match.measures import Measures, is_aggregate
from lowwater.engine.match.outcome import Decided
from lowwater.engine.match.pattern import AnyRow, Concatenation, Node, Repeat, Variable
from lowwater.engine.match.program import compile_pattern
from lowwater.engine.match.references import references_in
from lowwater.engine.match.rules import Matching
from lowwater.engine.match.so_far import PythonRows
from lowwater.engine.match.taken import Taken, Values
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.columns import Mask
from lowwater.engine.records.other_rows import MatchedValue
from lowwater.kernels import kernels
from lowwater.kernels.pattern_tables import (
    PAST_LAST,
    TO_FIRST,
    TO_LAST,
    TO_NEXT,
    Matches,
    Search,
)
from lowwater.state.arrays import expand_ranges
from lowwater.state.table import RowTable
from lowwater.time import END_OF_TIME, Int64Array, saturating_add, saturating_add_array

_SKIPS = {"past_last": PAST_LAST, "next": TO_NEXT, "first": TO_FIRST, "last": TO_LAST}


@final
class PatternSearch:
    """The search for a pattern.

    Args:
        rules: The rules.
        conditions: The conditions of the variables.
    """

    def __init__(self, rules: Matching, conditions: Conditions) -> None:
        self._rules = rules
        self._conditions = conditions
        labels = conditions.labels
        bits = {name: at for name, at in labels.items() if at in conditions.bits}
        self.program = compile_pattern(rules.pattern, labels, bits)
        self._names = tuple(labels)
        self.depends = frozenset(labels[name] for name in rules.so_far)
        """The labels of variables whose conditions depend on the match so far."""
        self._kept, self._keeps_all = kept_columns(rules), keeps_all(rules)
        self.skips_idle_rows = _may_skip(rules)
        """Whether rows that meet no condition need not be kept: only gaps can take them."""

    def keeps(self, name: str) -> bool:
        """Return whether a column of the records is kept."""
        return name in self._kept or (self._keeps_all and not name.startswith(HIDDEN))

    def decided(self, table: RowTable, rows: KeyRows, values: Values, watermark: int) -> Decided:
        """Search the rows of keys from the first that may begin a match.

        Args:
            table: The table of the rows.
            rows: The rows.
            values: Computes over them.
            watermark: The input watermark.
        """
        rules = self._rules
        settle, hold, emit = self.horizons(watermark)
        found = self.found(table, rows, values, emit)
        settled = _first_from(found.reach, settle, rows.begin, found.next_start)
        open_ = _first_from(found.reach, hold, rows.begin, np.full(len(rows.keys), -1))
        start, stop, reach, labels = self.emitted(found, emit)
        key = np.searchsorted(rows.begin, start, side="right") - 1
        return Decided(
            settled,
            open_,
            self._due(rows, found.reach, settled, hold),
            key,
            start,
            stop,
            _decided_at(key, reach, self._delay, turns=rules.skip != "next"),
            labels,
        )

    def horizons(self, watermark: int) -> tuple[int, int, int]:
        """Return three horizons: what is decided there can never change, holds nothing, comes out.

        Args:
            watermark: The input watermark.
        """
        rules = self._rules
        settle = saturating_add(watermark, -rules.lateness_us)
        if watermark == END_OF_TIME:
            settle = END_OF_TIME
        # A start that is undecided at the second holds the output watermark.
        hold = settle if rules.emit == "final" else watermark
        return settle, hold, END_OF_TIME if rules.emit == "early" else hold

    @property
    def _delay(self) -> int:
        """How long after the watermark has passed what a match depends on it comes out."""
        return self._rules.lateness_us if self._rules.emit == "final" else 0

    def emitted(
        self, found: Matches, emit: int
    ) -> tuple[Int64Array, Int64Array, Int64Array, NDArray[np.int16]]:
        """Return the matches that are decided at a horizon: start, stop, reach and labels."""
        if self._rules.skip != "next" or emit == END_OF_TIME:
            return found.start, found.stop, found.match_reach, found.labels
        some = np.flatnonzero(found.match_reach < emit)
        counts = found.stop - found.start
        begin = np.cumsum(counts) - counts
        places, _ = expand_ranges(begin[some], counts[some])
        return found.start[some], found.stop[some], found.match_reach[some], found.labels[places]

    def _due(self, rows: KeyRows, reach: Int64Array, settled: Int64Array, hold: int) -> Int64Array:
        """Return the watermark at which something about each key is decided next."""
        due = np.full(len(rows.keys), END_OF_TIME)
        some = np.flatnonzero(settled < rows.begin[1:])
        late = saturating_add(self._rules.lateness_us, 1)
        due[some] = saturating_add_array(reach[settled[some]], late)
        waiting = np.flatnonzero(reach >= hold)
        if hold < END_OF_TIME and waiting.size:
            at = saturating_add_array(reach[waiting], saturating_add(self._delay, 1))
            np.minimum.at(due, rows.key_of[waiting], at)
        return due

    def test(self, rows: KeyRows, values: Values) -> Test:
        """Return what judges rows by the conditions that depend on the match so far."""
        return _Tests(self._rules, self._names, self._conditions, rows, values)

    def found(self, table: RowTable, rows: KeyRows, values: Values, horizon: int) -> Matches:
        """Return what the search finds, as the kernels do; see :meth:`decided`.

        Args:
            table: The table of the rows.
            rows: The rows.
            values: Computes over them.
            horizon: An attempt is decided that looked only at what is before.
        """
        context = np.bincount(rows.key_of[table["context"][rows.rows]], minlength=len(rows.keys))
        first, bits = rows.begin[:-1] + context, table["bits"][rows.rows]
        rules = self._rules
        skip, label = rules.skip, -1
        if not isinstance(skip, str):
            label = self._conditions.labels[skip[1]]
            skip = skip[0]  # type: ignore[assignment]  # its kind
        search = Search(
            -1 if rules.within_us is None else rules.within_us,
            self._conditions.absent_bit,
            0 if rules.absence is None else rules.absence.within_us,
            horizon,
            _SKIPS[skip],  # type: ignore[index]  # a text now
            label,
        )
        unsigned = bits.view(np.uint64)
        if not self.depends:
            return kernels().find_matches(
                self.program, search, rows.begin, first, rows.times, unsigned
            )
        return find_matches_carefully(
            self.program, search, rows.begin, first, rows.times, unsigned, self.depends,
            self.test(rows, values),
        )  # fmt: skip


@final
class _Tests:
    """Judges rows by the conditions that depend on the match so far."""

    def __init__(
        self,
        rules: Matching,
        names: tuple[str, ...],
        conditions: Conditions,
        rows: KeyRows,
        values: Values,
    ) -> None:
        self._rules = rules
        self._names = names
        self._conditions = conditions
        self._values = values
        visible = tuple(name for name in rows.names if not name.startswith(HIDDEN))
        self._python = PythonRows(rows, visible, conditions.labels)

    def __call__(
        self,
        label: int,
        starts: Int64Array,
        places: Int64Array,
        labels: NDArray[Any],
        depth: Int64Array,
    ) -> Mask:
        """Return which searches may take a row as a variable.

        Args:
            label: The number of the variable.
            starts: The place of the first row of each search, int64, shape (n,).
            places: That of the row under test.
            labels: The labels of what each has taken, the row under test included, shape (n, at
                least the deepest).
            depth: How many rows that is, int64.
        """
        name = self._names[label]
        condition = self._rules.so_far[name]
        if callable(condition):
            return self._python.truths(name, condition, starts, places, labels, depth)
        at, search = expand_ranges(np.zeros(len(depth), dtype=np.int64), depth)
        taken = Taken(len(starts), search, starts[search] + at, labels[search, at])
        return self._values.truths({name: condition}, places, taken, DEFINE)[name]


def _first_from(
    reach: Int64Array, horizon: int, begin: Int64Array, otherwise: Int64Array
) -> Int64Array:
    """Return each key's first place whose attempt is undecided at a horizon.

    Args:
        reach: What each attempt depends on, int64, shape (n,).
        horizon: The horizon; at the end of time all is decided.
        begin: Where the rows of each key begin, and the end of the last.
        otherwise: The result for keys that have none.
    """
    if horizon == END_OF_TIME:
        return otherwise
    undecided = np.flatnonzero(reach >= horizon)
    at = np.searchsorted(undecided, begin[:-1])
    places = np.append(undecided, len(reach))[at]
    return np.where(places < begin[1:], places, otherwise)


def _decided_at(key: Int64Array, reach: Int64Array, delay: int, *, turns: bool) -> Int64Array:
    """Return the watermark at which each match is decided.

    Args:
        key: The key of each, rising.
        reach: What each depends on.
        delay: How much later the watermark has to be.
        turns: Whether a match has to wait for those before it.
    """
    at = reach
    if turns and len(key):
        # The latest so far of each key: ranks of instants, told apart by an offset for each key.
        order = kernels().argsort(reach)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        so_far = np.maximum.accumulate(key * len(order) + rank) - key * len(order)
        at = reach[order[so_far]]
    return saturating_add_array(at, saturating_add(delay, 1))


def _may_skip(rules: Matching) -> bool:
    """Return whether rows that meet no condition can be left out."""
    return (
        not rules.so_far
        and not rules.before
        and rules.rows == "one"
        and _is_gapped(rules.pattern, rules)
        and all(_is_of_variables(measure) for measure in rules.measures.values())
    )


def _is_gapped(pattern: Node, rules: Matching) -> bool:
    """Whether a pattern is variables, each with a condition, and gaps between all of them."""
    parts = pattern.parts if isinstance(pattern, Concatenation) else (pattern,)
    gap = Repeat(AnyRow(), 0, None, greedy=False)
    variables = parts[::2]
    return (
        len(parts) % 2 == 1
        and all(part == gap for part in parts[1::2])
        and all(isinstance(one, Variable) and one.name in rules.columns for one in variables)
    )


def _is_of_variables(measure: Any) -> bool:
    """Whether a measure reads only rows of variables, and the first or last row of the match."""
    if is_aggregate(measure):
        return getattr(measure, "of", None) is not None
    measures = Measures({"": measure})
    of_variables = (
        reference.variable is not None
        for reference in references_in(measure)
        if isinstance(reference, MatchedValue)
    )
    return not measures.reads_before and all(of_variables)
