"""Builds the stages of ``over``, and checks them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates.built_in import check_no_variable
from lowwater.engine.graph.graph import Stage, is_signed
from lowwater.engine.match.columns_read import expression_type
from lowwater.engine.match.measures import is_aggregate
from lowwater.engine.match.references import check_expression, plain_columns, references_in
from lowwater.engine.over.row_numbers import Rank, RowNumber
from lowwater.engine.over.rules import LATE, Over
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.other_rows import MatchedValue, Prev
from lowwater.engine.records.stateless import require_names
from lowwater.engine.stages.ranged import Ranged, name_taken
from lowwater.errors import DataError, InvalidArgument, describe, nearest
from lowwater.pipeline.checks import (
    check_adds_up,
    check_no_table,
    check_retracted_in_time,
    inherited_lateness,
)
from lowwater.pipeline.joins import known_columns
from lowwater.pipeline.stages import (
    StreamParts,
    emitted_as_records,
    public_names,
    with_conditions,
)
from lowwater.time import DurationLike, duration, format_duration

if TYPE_CHECKING:
    import narwhals as nw

RangeResult: TypeAlias = "AggregateSpec | RowNumber | Rank | nw.Expr"
"""What ``over`` computes of a row."""

_MOST_ROWS = 1_000_000


def over_stage(
    stream: StreamParts,
    keys: tuple[str, ...],
    names: tuple[str, ...],
    length: DurationLike | None,
    results: Mapping[str, RangeResult],
    *,
    rows: object,
    order: object,
    keep: DurationLike | None,
    allowed_lateness: DurationLike | None,
    late: object,
) -> Stage:
    """Return the stage of ``over``, checked as far as can be without running.

    Raises:
        InvalidArgument: An argument is wrong, or the input cannot be taken.
    """
    length_us = _checked_length(length, rows)
    row_count = None if length_us is not None else _checked_rows(rows)
    if late not in LATE:
        raise InvalidArgument(
            f"{describe('late', late)} is not known",
            where="over(late=)",
            hint=nearest(str(late), LATE),
        )
    aggregates, numbers, expressions = _checked_results(results, by_rows=row_count is not None)
    if length_us is not None and order is not None:
        raise InvalidArgument(
            "rows of one time all belong to the range of each other, and are taken as they arrived",
            where="over(order=)",
            hint="Leave order= out, or give a number of rows: over(rows=10, order=...)",
        )
    keep_us = _checked_keep(keep, length_us, numbers)
    check_no_table(stream._flows, "over")
    check_adds_up(stream._flows)
    check_retracted_in_time(stream._flows)
    lateness_us = _lateness(allowed_lateness, stream, drops=late == "drop")
    columns = {
        name: kind
        for name, kind in (known_columns(stream) or {}).items()
        if not name.startswith(HIDDEN) and name not in keys
    }
    stream, aggregates = with_conditions(stream, aggregates)
    depth = max(
        (
            reference.k
            for expression in expressions.values()
            for reference in references_in(expression)
            if isinstance(reference, Prev)
        ),
        default=0,
    )
    rules = Over(
        tuple(results),
        aggregates,
        numbers,
        expressions,
        length_us,
        row_count,
        _checked_order(order, stream),
        keep_us,
        lateness_us,
        cast(Any, late),
        depth,
    )
    work = Ranged(rules, columns)
    if stream._known is not None:
        wanted = [name for name in work.needs() if not name.startswith(HIDDEN)]
        require_names(wanted, public_names(stream._known), "over")
    _require_types(rules, stream)
    stage = Stage(stream._flows, keys, names, work, stream._deduplication)
    _check_output_names(rules, names, columns, signed=stage.retracts)
    return stage


def ranged_as_records(stage: Stage, schema: pa.Schema | None) -> dict[str, Any]:
    """Return the parts of the stream of a stage's output: its flow, and what is known of it."""
    from lowwater.engine.graph.input_types import InputTypes

    work = cast(Ranged, stage.work)
    if schema is None and not work.columns:
        return emitted_as_records(stage, None)
    known = {} if schema is None else {name: schema.field(name).type for name in schema.names}
    types: dict[str, pa.DataType | None] = {
        name: known.get(key) for key, name in zip(stage.keys, stage.key_names, strict=True)
    }
    types |= work.emitted_types(stage, InputTypes(known, {}, {}))
    return emitted_as_records(stage, types)


def _checked_length(length: DurationLike | None, rows: object) -> int | None:
    if is_aggregate(rows) or isinstance(rows, (RowNumber, Rank)):
        raise InvalidArgument(
            "rows= is how many rows a range has, so no result can be called rows",
            where="over(rows=)",
            hint="Give the result another name, as in over(..., n=lw.count())",
        )
    if (length is None) == (rows is None):
        given = "neither is" if length is None else "both are"
        raise InvalidArgument(
            f"a range is a time or a number of rows, and {given} given",
            where="over",
            hint='Write over("5m", ...) or over(rows=10, ...)',
        )
    if length is None:
        return None
    if hasattr(length, "bind"):
        raise InvalidArgument(
            f"{describe('length', length)} is an aggregate without a name",
            where="over",
            hint='Name it: over("5m", n=lw.count())',
        )
    found = duration(length, name="length")
    if found <= 0:
        raise InvalidArgument(
            f"{describe('length', length)} is not above zero",
            where="over",
            hint='Give how far back a range reaches, as in over("5m", ...)',
        )
    return found


def _checked_rows(rows: object) -> int:
    if isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows <= _MOST_ROWS:
        raise InvalidArgument(
            f"{describe('rows', rows)} is not an int from 1 to {_MOST_ROWS:_}",
            where="over(rows=)",
            hint="Give how many rows a range has, the row itself included",
        )
    return rows


def _checked_results(
    results: Mapping[str, RangeResult], *, by_rows: bool
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the aggregates, the row numbers and ranks, and the expressions."""
    if not results:
        raise InvalidArgument(
            "nothing is computed", where="over", hint='Write, say, over("5m", n=lw.count())'
        )
    aggregates: dict[str, Any] = {}
    numbers: dict[str, Any] = {}
    expressions: dict[str, Any] = {}
    for name, result in results.items():
        if name.startswith(HIDDEN):
            raise InvalidArgument(
                f"{describe('a result', name)} is not a name for a column",
                where="over",
                hint='Write, say, over("5m", n=lw.count())',
            )
        if isinstance(result, (RowNumber, Rank)):
            numbers[name] = result
        elif is_aggregate(result):
            check_no_variable(result, "over")
            aggregates[name] = result
        elif callable(result):
            called = getattr(result, "__name__", "")
            hint = f"Call it: lw.{called}(...)" if called.isidentifier() else 'Use lw.mean("v")'
            raise InvalidArgument(
                f"{describe(name, result)} is neither an aggregate nor an expression",
                where="over",
                hint=hint,
            )
        else:
            check_expression(f"the result {name!r}", result, "over")
            expressions[name] = result
        _check_by_rows(name, result, expressions, by_rows=by_rows)
    return aggregates, numbers, expressions


def _check_by_rows(
    name: str, result: object, expressions: Mapping[str, Any], *, by_rows: bool
) -> None:
    references = references_in(result) if name in expressions else frozenset()
    if any(isinstance(reference, MatchedValue) for reference in references):
        raise InvalidArgument(
            f"the result {name!r} refers to the rows of a match, and there is none",
            where="over",
            hint='Use an aggregate over the range, or lw.prev("...") for the row before',
        )
    if not by_rows and (isinstance(result, RowNumber) or references):
        raise InvalidArgument(
            f"the result {name!r} depends on the order of rows, and a range of time has none for "
            "rows of one time",
            where="over",
            hint="Give a number of rows: over(rows=10, ...); with order= for rows of one time",
        )


def _checked_keep(
    keep: DurationLike | None, length_us: int | None, numbers: Mapping[str, object]
) -> int | None:
    if keep is None:
        return None
    if length_us is not None:
        raise InvalidArgument(
            "rows are kept as long as a range of time reaches",
            where="over(keep=)",
            hint="Leave keep= out; it bounds over(rows=...)",
        )
    if any(isinstance(number, RowNumber) for number in numbers.values()):
        raise InvalidArgument(
            "row numbers count all rows of a key, and keep= forgets the old ones",
            where="over(keep=)",
            hint="Leave keep= or lw.row_number() out",
        )
    found = duration(keep, name="keep")
    if found <= 0:
        raise InvalidArgument(
            f"{describe('keep', keep)} is not above zero",
            where="over(keep=)",
            hint='Give how old a row may be to count, as in keep="30d"',
        )
    return found


def _lateness(given: DurationLike | None, stream: StreamParts, *, drops: bool) -> int:
    least = inherited_lateness(stream._flows)
    if drops:
        if given is not None:
            raise InvalidArgument(
                "late rows are dropped, so none is allowed",
                where="over(allowed_lateness=)",
                hint='Leave allowed_lateness= out, or late="drop"',
            )
        if any(map(is_signed, stream._flows)):
            raise InvalidArgument(
                "the input may retract records late, and these retractions would be dropped",
                where="over(late=)",
                hint='Leave late="drop" out, so that they correct the results',
            )
        return 0
    found = least if given is None else duration(given, name="allowed_lateness")
    if found < 0:
        raise InvalidArgument(
            f"{describe('allowed_lateness', given)} is below zero",
            where="over(allowed_lateness=)",
            hint='Write, say, allowed_lateness="1h"',
        )
    if found < least:
        raise InvalidArgument(
            f"allowed_lateness={format_duration(found)!r} is shorter than the lateness of the "
            f"upstream stage, {format_duration(least)!r}, so what it emits late would be dropped "
            "here",
            where="over(allowed_lateness=)",
            hint='Leave allowed_lateness out, make it as long, or say late="drop"',
        )
    return found


def _checked_order(order: object, stream: StreamParts) -> str | None:
    if order is None:
        return None
    if not isinstance(order, str) or not order:
        raise InvalidArgument(
            f"{describe('order', order)} is not the name of a column",
            where="over(order=)",
            hint='Write, say, order="seq"',
        )
    if stream._known is not None:
        require_names([order], public_names(stream._known), "over(order=)")
    return order


def _require_types(rules: Over, stream: StreamParts) -> None:
    """Raise if an expression cannot be computed of the types of the columns."""
    if stream._schema is None:
        return
    types = {field.name: field.type for field in stream._schema}
    for expression in rules.expressions.values():
        if plain_columns(expression) is None:
            continue
        try:
            expression_type(expression, types, "over")
        except DataError as error:
            raise InvalidArgument(error.what, where="over", hint=error.hint) from None


def _check_output_names(
    rules: Over, keys: tuple[str, ...], columns: Mapping[str, Any], *, signed: bool
) -> None:
    """Raise if two columns of the output would have one name."""
    for name in rules.names:
        if name in {"kind", "timestamp"} or name in keys:
            raise InvalidArgument(
                f"a result cannot be called {name!r}: the output has a column of that name",
                where="over",
                hint=f"Give it another name, as in over(..., my_{name}=...)",
            )
        if name in columns:
            raise name_taken(name)
    if signed and "kind" in columns:
        raise InvalidArgument(
            "the output may retract records, and then has a column 'kind' of its own",
            where="over",
            hint="Rename that column in a step in front",
        )
