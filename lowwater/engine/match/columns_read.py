"""Which columns of the records a stage of ``match`` reads, and the types of what it computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from lowwater.engine.aggregates._base import Needs, strictest_needs
from lowwater.engine.match.measures import is_aggregate, over_rows
from lowwater.engine.match.references import plain_columns, references_in
from lowwater.engine.match.rules import Matching
from lowwater.engine.match.taken import split_counted
from lowwater.engine.records.columns import Column
from lowwater.engine.records.other_rows import MatchedValue
from lowwater.engine.window.aggregation import result_type


def columns_needed(rules: Matching) -> dict[str, Needs]:
    """Return what is needed of the columns that are computed with, by name."""
    needs: dict[str, Needs] = {}
    for expression in _expressions(rules):
        needs |= dict.fromkeys(plain_columns(expression) or (), "anything")
        for reference in references_in(expression):
            if reference.column is not None:
                needs[reference.column] = "anything"
    for name, need in _of_measures(rules).items():
        # Rows come out as they are, and other conditions read them: none becomes a float.
        needs[name] = "exact numbers" if need == "numbers" else need
    if rules.functions:  # they may read any column
        needs = {**dict.fromkeys(rules.keys, "anything"), **needs}
    needs |= dict.fromkeys(rules.columns.values(), "booleans")
    if rules.absence is not None:
        needs[rules.absence.column] = "booleans"
    return needs


def keeps_all(rules: Matching) -> bool:
    """Return whether all columns that users see are kept of each row."""
    return rules.rows == "all" or bool(rules.functions)


def kept_columns(rules: Matching) -> frozenset[str]:
    """Return the columns that are kept of each row in any case."""
    bits = {*rules.columns.values()}
    if rules.absence is not None:
        bits.add(rules.absence.column)
    names = {*columns_needed(rules)} - bits
    return frozenset(names if rules.order is None else {*names, rules.order})


def measure_types(
    rules: Matching, columns: Mapping[str, pa.DataType]
) -> dict[str, pa.DataType | None]:
    """Return the types of the measures, as far as those of the columns are known."""
    found: dict[str, pa.DataType | None] = {}
    for name, one in rules.measures.items():
        if is_aggregate(one):
            spec = over_rows(one)
            where = getattr(spec, "where", None)
            known = dict(columns)
            if where is not None and where.column is not None:
                known[where.column] = pa.bool_()
            found[name] = result_type(spec, known)
        else:
            found[name] = expression_type(one, columns)
    return found


def expression_type(
    expression: Any, columns: Mapping[str, pa.DataType], method: str = "match"
) -> pa.DataType | None:
    """Return the type of an expression, as far as those of the columns are known.

    Args:
        expression: The expression.
        columns: The types of the columns.
        method: What messages call the step.

    Raises:
        InvalidArgument: It reads a column that there is not.
        DataError: It cannot be computed of columns of these types.
    """
    from lowwater.engine.records.batch import Records
    from lowwater.engine.records.evaluation import evaluated
    from lowwater.engine.records.expressions import Expressions

    given: dict[str, Column] = {}
    for name in plain_columns(expression) or ():
        if name not in columns:
            return None
        given[name] = _nothing(columns[name])
    for reference in references_in(expression):
        kind: pa.DataType | None = pa.int64()
        if reference.column is not None:
            if reference.column not in columns:
                return None
            kind = columns[reference.column]
        if isinstance(reference, MatchedValue) and reference.function in ("sum", "mean", "count"):
            kind = _aggregate_type(reference, columns)
        if kind is None:
            return None
        given[reference.name] = _nothing(kind)
    found = evaluated(method, Records(given, 0), Expressions((), {"value": expression}))
    return found.columns["value"].type


def _aggregate_type(
    reference: MatchedValue, columns: Mapping[str, pa.DataType]
) -> pa.DataType | None:
    from lowwater.engine.match.taken import SPECS

    if reference.column is None or reference.function == "count":
        return pa.int64()
    return result_type(SPECS[reference.function](reference.column), columns)


def _nothing(kind: pa.DataType) -> Column:
    return Column.from_arrow(pa.array([], kind))


def _expressions(rules: Matching) -> Iterator[Any]:
    yield from rules.before.values()
    yield from (one for one in rules.so_far.values() if not callable(one))
    yield from (one for one in rules.measures.values() if not is_aggregate(one))


def _of_measures(rules: Matching) -> dict[str, Needs]:
    """Return what aggregates need, with the columns of their conditions."""
    specs = {name: over_rows(one) for name, one in rules.measures.items() if is_aggregate(one)}
    needs: dict[str, Needs] = {}
    for name, need in strictest_needs(specs).items():
        variable, column = split_counted(name)
        if variable is None:
            needs[name] = need
        elif column:
            needs[column] = "booleans"
    return needs
