"""The rows that matches, or searches on their way, have taken; and values over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates import specs as aggregates
from lowwater.engine.aggregates._base import columns_read, condition_read, strictest_needs
from lowwater.engine.match.key_rows import KeyRows, masked
from lowwater.engine.match.quick import quick_truths
from lowwater.engine.match.references import plain_columns, references_in
from lowwater.engine.records.admit_values import ValueAdmission
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column, Mask
from lowwater.engine.records.evaluation import Evaluated, evaluated
from lowwater.engine.records.expressions import Expressions
from lowwater.engine.records.other_rows import MatchedValue, Prev, reference_of
from lowwater.engine.records.problems import Problems
from lowwater.engine.records.steps import Bundle
from lowwater.engine.window.aggregation import Aggregation
from lowwater.errors import DataError, DataWarning, warn
from lowwater.state.arrays import expand_ranges
from lowwater.state.table import RowTable
from lowwater.time import Int64Array

SPECS: Mapping[str, Callable[[str], AggregateSpec]] = {
    "count": aggregates.count,
    "min": aggregates.min,
    "max": aggregates.max,
    "sum": aggregates.sum,
    "mean": aggregates.mean,
}
_VALUE = "value"


@final
@dataclass(frozen=True, slots=True)
class Taken:
    """Rows that several matches have taken, match by match.

    Args:
        count: How many matches there are.
        match: The match of each row, int64, shape (n,), rising.
        places: The place of each row, int64.
        labels: The number of its variable, int64; -1 for a row of a gap.
    """

    count: int
    match: Int64Array
    places: Int64Array
    labels: NDArray[np.integer[Any]]

    def of(self, label: int | None) -> Taken:
        """Return the rows of one variable; ``None`` for all."""
        if label is None:
            return self
        chosen = np.flatnonzero(self.labels == label)
        return Taken(self.count, self.match[chosen], self.places[chosen], self.labels[chosen])

    def picked(self, k: int, *, last: bool) -> tuple[Int64Array, Mask]:
        """Return the place of the k-th row of each match, or of its k-th last; and if there is one.

        The place is 0 where there is none.
        """
        counts = np.bincount(self.match, minlength=self.count)
        stops = np.cumsum(counts)
        at = stops - 1 - k if last else stops - counts + k
        inside = counts > k
        if not len(self.places):
            return np.zeros(self.count, dtype=np.int64), inside
        found = self.places[np.where(inside, at, 0)]
        return np.where(inside, found, 0), inside

    def prefixes(self, most: int) -> Iterator[tuple[int, int, Taken]]:
        """Yield each match as many times as it has rows: its first row, its first two, ...

        Args:
            most: About how many rows are yielded at a time: in sum there are as many as the squares
                of the lengths of the matches.

        Yields:
            (The first and the last row but one of these; what was taken up to each.)
        """
        counts = np.bincount(self.match, minlength=self.count)
        begin = (np.cumsum(counts) - counts)[self.match]
        length = np.arange(len(self.match)) - begin + 1
        total = np.cumsum(length)
        low = 0
        while low < len(length):
            before = int(total[low - 1]) if low else 0
            high = max(low + 1, int(np.searchsorted(total, before + most, side="right")))
            rows, owner = expand_ranges(begin[low:high], length[low:high])
            yield low, high, Taken(high - low, owner, self.places[rows], self.labels[rows])
            low = high


@final
class Values:
    """Computes expressions and aggregates over taken rows.

    Args:
        rows: The rows of the keys.
        labels: The number of each variable.
    """

    def __init__(self, rows: KeyRows, labels: Mapping[str, int]) -> None:
        self._rows = rows
        self._labels = labels

    def computed(self, expression: Any, at: Int64Array, taken: Taken | None, where: str) -> Column:
        """Return the values of an expression, one for each place; null where it fails.

        Args:
            expression: The expression.
            at: The places of the rows that it is of, int64, shape (n,).
            taken: What each has taken so far; ``None`` if it does not refer to that.
            where: What it is, for messages.
        """
        return self._together({_VALUE: expression}, at, taken, where)[_VALUE]

    def _together(
        self, expressions: Mapping[str, Any], at: Int64Array, taken: Taken | None, where: str
    ) -> dict[str, Column]:
        """Return the values of expressions by name, as :meth:`computed` does."""
        columns: dict[str, Column] = {}
        for expression in expressions.values():
            for name in plain_columns(expression) or ():
                if name not in columns:
                    columns[name] = self._rows.typed(name).take(at)
            for reference in references_in(expression):
                if reference.name not in columns:
                    columns[reference.name] = self._operand(reference.name, at, taken)
        found = evaluated(where, Records(columns, len(at)), Expressions((), dict(expressions)))
        if found.rows is None:
            return found.columns
        if len(expressions) > 1:  # one that fails for a row says nothing of the others
            return {name: self.computed(one, at, taken, where) for name, one in expressions.items()}
        _say_failed(found, where)
        if not len(found.rows):
            return {name: Column.of_objects([None] * len(at)) for name in expressions}
        place = np.zeros(len(at), dtype=np.int64)
        place[found.rows] = np.arange(len(found.rows))
        inside = np.zeros(len(at), dtype=np.bool_)
        inside[found.rows] = True
        return {name: masked(column.take(place), inside) for name, column in found.columns.items()}

    def truths(
        self, conditions: Mapping[str, Any], at: Int64Array, taken: Taken | None, where: str
    ) -> dict[str, Mask]:
        """Return where conditions are true; null is not.

        Raises:
            DataError: One is neither true nor false.
        """
        found: dict[str, Mask] = {}
        left: dict[str, Any] = {}

        def operand(name: str) -> Column:
            return self._operand(name, at, taken)

        for name, condition in conditions.items():
            truths = quick_truths(condition, operand, len(at))
            if truths is None:
                left[name] = condition
            else:
                found[name] = truths
        if left:
            columns = self._together(left, at, taken, where)
            found |= {name: _truths(left[name], columns[name], where) for name in left}
        return found

    def _operand(self, name: str, at: Int64Array, taken: Taken | None) -> Column:
        """Return the values of a column, which may be a virtual one."""
        reference = reference_of(name)
        if reference is None:
            return self._rows.typed(name).take(at)
        if isinstance(reference, Prev):
            return self._rows.before(reference).take(at)
        assert taken is not None
        return self._matched(reference, taken)

    def _matched(self, reference: MatchedValue, taken: Taken) -> Column:
        """Return a value over the rows of a variable, one for each match."""
        label = None if reference.variable is None else self._labels[reference.variable]
        some = taken.of(label)
        name = reference.column
        if reference.function in ("first", "last"):
            assert name is not None
            place, inside = some.picked(reference.k, last=reference.function == "last")
            return masked(self._rows.typed(name).take(place), inside)
        if name is None:
            return Column(np.bincount(some.match, minlength=some.count).astype(np.int64))
        spec: AggregateSpec = (
            aggregates.count(name)
            if reference.function == "count"
            else SPECS[reference.function](name)
        )
        return self.aggregated({_VALUE: spec}, some)[_VALUE]

    def aggregated(self, specs: Mapping[str, AggregateSpec], taken: Taken) -> dict[str, Column]:
        """Return aggregates over the rows that each match has taken, one value for each match.

        Conditions (``where``) are columns of the records, or those of :meth:`of_variables`.
        """
        table = RowTable([])
        aggregation = Aggregation(specs, table)
        owners = table.allocate(taken.count)
        order = np.arange(len(taken.places), dtype=np.int64)
        aggregation.add(self._bundle(specs, taken), None, owners[taken.match], order)
        return aggregation.results(owners)

    def running(self, specs: Mapping[str, AggregateSpec], taken: Taken) -> dict[str, Column]:
        """Return aggregates over the rows of each match up to each of its rows.

        All matches go on by a row at a time: as many passes as the longest has rows.
        """
        table = RowTable([])
        aggregation = Aggregation(specs, table)
        owners = table.allocate(taken.count)
        bundle = self._bundle(specs, taken)
        counts = np.bincount(taken.match, minlength=taken.count)
        begin = np.cumsum(counts) - counts
        parts: list[dict[str, Column]] = []
        places: list[Int64Array] = []
        for depth in range(int(counts.max(initial=0))):
            going = np.flatnonzero(counts > depth)
            at = begin[going] + depth
            aggregation.add(bundle.take(at), None, owners[going], at)
            parts.append(aggregation.results(owners[going]))
            places.append(at)
        back = np.argsort(np.concatenate(places), kind="stable")
        return {
            name: Column.concat_as_is([part[name] for part in parts]).take(back) for name in specs
        }

    def _bundle(self, specs: Mapping[str, AggregateSpec], taken: Taken) -> Bundle:
        """Return what aggregates read of taken rows; the time of a row is its place."""
        values: dict[str, Column] = {}
        needs = strictest_needs(specs)
        for spec in specs.values():
            for name, _ in columns_read(spec):
                if name not in values:
                    column = self._rows.column(name).take(taken.places)
                    if column.data.dtype == object and column.type is None:
                        column = ValueAdmission(name, needs[name]).admit(column, Problems())
                    values[name] = column
            condition = condition_read(spec)
            if condition is not None and condition not in values:
                values[condition] = self._condition(condition, taken)
        return Bundle(taken.places, (), values)

    def _condition(self, name: str, taken: Taken) -> Column:
        """Return which of some rows count, given the name of :func:`counted` or a column's."""
        variable, column = split_counted(name)
        found = np.ones(len(taken.places), dtype=np.bool_)
        if variable is not None:
            found = taken.labels == self._labels[variable]
        if column:
            given = self._rows.column(column).take(taken.places)
            truths = given.data.astype(np.bool_)
            found = found & (truths if given.valid is None else truths & given.valid)
        return Column(found)


def _say_failed(found: Evaluated, where: str) -> None:
    """Warn of rows for which an expression cannot be computed; once for each that is said of it."""
    warn(
        DataWarning,
        f"{found.failed[0].detail}; for such rows it is null",
        where=where,
        hint="Convert the column in a step in front of the match, where such a record is a dead "
        "letter",
    )


def _truths(expression: Any, column: Column, where: str) -> Mask:
    if column.is_null() or not len(column):
        return np.zeros(len(column), dtype=np.bool_)
    if column.data.dtype == object:
        return np.array([one is True for one in column.to_list()], dtype=np.bool_)
    if column.data.dtype != np.bool_:
        raise DataError(
            f"the condition {expression!r} is of type {column.type}, not bool",
            where=where,
            hint="Compare something",
        )
    return column.data if column.valid is None else column.data & column.valid


_OF = HIDDEN + "of="


def counted(variable: str, column: str = "") -> str:
    """Return the name of the column that tells which rows are of a variable, and meet a condition.

    Args:
        variable: The variable.
        column: The hidden column with the result of the condition; empty for none.
    """
    return f"{_OF}{variable} {column}"


def split_counted(name: str) -> tuple[str | None, str]:
    """Return the variable and the column that :func:`counted` was given; no variable for others."""
    if not name.startswith(_OF):
        return None, name
    variable, _, column = name.removeprefix(_OF).partition(" ")
    return variable, column
