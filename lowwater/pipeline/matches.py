"""Builds the stages of ``match``, and checks them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._conditions import with_condition_columns
from lowwater.engine.graph.graph import Stage
from lowwater.engine.match.absence import Absent
from lowwater.engine.match.columns_read import columns_needed, expression_type
from lowwater.engine.match.conditions import DEFINE, MOST_VARIABLES
from lowwater.engine.match.measures import MEASURES, is_aggregate
from lowwater.engine.match.pattern import first_variables, takes_no_row, variables
from lowwater.engine.match.program import compile_pattern
from lowwater.engine.match.reading import parse_pattern
from lowwater.engine.match.references import check_expression, references_in
from lowwater.engine.match.rules import (
    EMITS,
    END,
    ROWS_OUT,
    START,
    VARIABLE,
    Absence,
    Matching,
    Skip,
)
from lowwater.engine.records.batch import ABSENT_WHERE, DEFINED_BY, HIDDEN
from lowwater.engine.records.expressions import Expressions
from lowwater.engine.records.other_rows import MatchedValue, reference_of
from lowwater.engine.records.stateless import WithColumns, require_names
from lowwater.engine.stages.searched import Searched, name_taken
from lowwater.errors import DataError, InvalidArgument, describe, nearest
from lowwater.pipeline.checks import (
    check_adds_up,
    check_no_table,
    check_retracted_in_time,
    inherited_lateness,
)
from lowwater.pipeline.joins import known_columns
from lowwater.pipeline.stages import StreamParts, emitted_as_records, public_names
from lowwater.time import DurationLike, duration, format_duration

if TYPE_CHECKING:
    import narwhals as nw

    from lowwater.engine.match.so_far import MatchSoFar

Condition: TypeAlias = "nw.Expr | Callable[[MatchSoFar], bool]"
Measure: TypeAlias = "AggregateSpec | nw.Expr"


def match_stage(
    stream: StreamParts,
    keys: tuple[str, ...],
    names: tuple[str, ...],
    pattern: str,
    *,
    define: Mapping[str, Condition] | None,
    measures: Mapping[str, Measure] | None,
    within: DurationLike | None,
    skip: object,
    rows: object,
    emit: object,
    allowed_lateness: DurationLike | None,
    order: str | None,
    without: Absent | None,
) -> Stage:
    """Return the stage of ``match``, checked as far as can be without running.

    Raises:
        InvalidArgument: An argument is wrong, or what comes in cannot be searched.
    """
    tree = parse_pattern(pattern)
    found = variables(tree)
    if len(found) > MOST_VARIABLES:
        raise InvalidArgument(
            f"the pattern has {len(found)} variables", where="match(pattern)",
            hint=f"Use at most {MOST_VARIABLES}",
        )  # fmt: skip
    if takes_no_row(tree):
        raise InvalidArgument(
            f"the pattern {pattern!r} prefers to take no row, so nothing matches it",
            where="match(pattern)",
            hint="Have it take a row: a+? in place of a*?",
        )
    compile_pattern(tree, dict.fromkeys(found, 0))  # it may be too large
    _check_choice("rows", rows, ROWS_OUT)
    _check_choice("emit", emit, EMITS)
    conditions = _checked_conditions(define, found, pattern)
    measured = _checked_measures(measures, found, pattern)
    check_no_table(stream._flows, "match")
    check_adds_up(stream._flows)
    check_retracted_in_time(stream._flows)
    stream, rules = _with_columns(stream, conditions, without)
    stream, measured = _with_measured(stream, measured)
    rules = replace(
        rules,
        text=pattern,
        pattern=tree,
        measures=measured,
        within_us=_within(within),
        skip=_checked_skip(skip, found, tree),
        rows=rows,  # type: ignore[arg-type]  # checked above
        emit=emit,  # type: ignore[arg-type]  # checked above
        lateness_us=_lateness(allowed_lateness, stream),
        order=_checked_order(order, stream),
        keys=keys,
    )
    if rules.corrects and rules.is_open_ended and rules.within_us is None:
        raise InvalidArgument(
            "rows behind a match may lengthen or change it, and it may be corrected after it came "
            "out: without within= that would be so for ever",
            where="match(within=)",
            hint='Set within=, as in within="1h"; or use emit="final", which corrects nothing',
        )
    if stream._known is not None:
        visible = public_names(stream._known)
        wanted = [name for name in columns_needed(rules) if not name.startswith(HIDDEN)]
        require_names(wanted, visible, "match")
        odd = next((name for name in visible if reference_of(name) is not None), None)
        if odd is not None:
            raise InvalidArgument(
                f"a column is called {odd!r}, which stands for a value of another row",
                where="match",
                hint="Rename it in a step in front of the match",
            )
    _require_types(rules, stream)
    columns = {
        name: kind
        for name, kind in (known_columns(stream) or {}).items()
        if not name.startswith(HIDDEN) and name not in keys
    }
    stage = Stage(stream._flows, keys, names, Searched(rules, columns), stream._deduplication)
    _check_output_names(rules, names, columns, signed=stage.retracts)
    return stage


def matches_as_records(stage: Stage, schema: pa.Schema | None) -> dict[str, Any]:
    """Return the parts of the stream of matches: its flow, and what is known of it."""
    from lowwater.engine.graph.input_types import InputTypes

    work = cast(Searched, stage.work)
    known = {} if schema is None else {name: schema.field(name).type for name in schema.names}
    if work.rules.rows == "all" and not work.columns:
        return emitted_as_records(stage, None)
    types: dict[str, pa.DataType | None] = {
        name: known.get(key) for key, name in zip(stage.keys, stage.key_names, strict=True)
    }
    types |= work.emitted_types(stage, InputTypes(known, {}, {}))
    return emitted_as_records(stage, types)


def _check_choice(argument: str, given: object, known: tuple[str, ...]) -> None:
    if given not in known:
        raise InvalidArgument(
            f"{describe(argument, given)} is not known",
            where=f"match({argument}=)",
            hint=nearest(str(given), known),
        )


def _checked_conditions(
    define: Mapping[str, Condition] | None, found: tuple[str, ...], pattern: str
) -> dict[str, Any]:
    if define is None:
        return {}
    if not isinstance(define, Mapping):
        raise InvalidArgument(
            f"{describe('define', define)} is no mapping from variables to conditions",
            where=DEFINE,
            hint='Write, say, define={"down": lw.col("price") < lw.prev("price")}',
        )
    for name, condition in define.items():
        _require_variable(name, found, pattern, DEFINE)
        if callable(condition):
            called = getattr(condition, "__call__", None)  # noqa: B004  # of an object's class
            if inspect.iscoroutinefunction(condition) or inspect.iscoroutinefunction(called):
                raise InvalidArgument(
                    f"the condition of {name!r} is async", where=DEFINE,
                    hint="Give a plain function",
                )  # fmt: skip
            continue
        check_expression(f"the condition of {name!r}", condition, DEFINE)
        _require_references(condition, found, pattern, DEFINE)
    return dict(define)


def _checked_measures(
    measures: Mapping[str, Measure] | None, found: tuple[str, ...], pattern: str
) -> dict[str, Any]:
    if measures is None:
        return {}
    if not isinstance(measures, Mapping):
        raise InvalidArgument(
            f"{describe('measures', measures)} is no mapping from names to aggregates",
            where=MEASURES,
            hint='Write, say, measures={"low": lw.min("price", of="down"), "n": lw.count()}',
        )
    for name, measure in measures.items():
        if not isinstance(name, str) or not name or name.startswith(HIDDEN):
            raise InvalidArgument(
                f"{describe('a measure', name)} is not a name for a column", where=MEASURES,
                hint='Write, say, measures={"low": lw.min("price", of="down")}',
            )  # fmt: skip
        if is_aggregate(measure):
            variable = getattr(measure, "of", None)
            if variable is not None:
                _require_variable(variable, found, pattern, f"{MEASURES[:-1]} of=)")
            continue
        if callable(measure):
            called = getattr(measure, "__name__", "")
            raise InvalidArgument(
                f"{describe(name, measure)} is neither an aggregate nor an expression",
                where=MEASURES,
                hint=f"Call it: lw.{called}(...)"
                if called.isidentifier()
                else 'Use, say, lw.min("price", of="down") or lw.matched("down").last("price")',
            )
        check_expression(f"the measure {name!r}", measure, MEASURES)
        _require_references(measure, found, pattern, MEASURES)
    return dict(measures)


def _require_variable(name: object, found: tuple[str, ...], pattern: str, where: str) -> None:
    if name not in found:
        raise InvalidArgument(
            f"the pattern {pattern!r} has no variable {name!r}",
            where=where,
            hint=nearest(str(name), found),
        )


def _require_references(expression: Any, found: tuple[str, ...], pattern: str, where: str) -> None:
    for reference in references_in(expression):
        if isinstance(reference, MatchedValue) and reference.variable is not None:
            _require_variable(reference.variable, found, pattern, where)


def _with_columns(
    stream: StreamParts, conditions: Mapping[str, Any], without: object
) -> tuple[Any, Matching]:
    """Return the stream with the results of conditions on rows by themselves, and the rules."""
    columns: dict[str, Any] = {}
    names: dict[str, str] = {}
    before: dict[str, Any] = {}
    so_far: dict[str, Any] = {}
    texts: dict[str, str] = {}
    for name, condition in conditions.items():
        if callable(condition):
            so_far[name] = condition
            texts[name] = f"{getattr(condition, '__qualname__', 'function')}(match)"
            continue
        texts[name] = repr(condition)
        references = references_in(condition)
        if any(isinstance(reference, MatchedValue) for reference in references):
            so_far[name] = condition
        elif references:
            before[name] = condition
        else:
            names[name] = f"{DEFINED_BY}{condition!r} {name}"
            columns[names[name]] = condition
    absence = None
    if without is not None:
        if not isinstance(without, Absent):
            raise InvalidArgument(
                f"{describe('without', without)} does not say what must be absent",
                where="match(without=)",
                hint='Write without=lw.absent(lw.col("kind") == "paid", within="30m")',
            )
        name = f"{ABSENT_WHERE}{without.condition!r} absent"
        absence = Absence(name, repr(without.condition), without.within_us)
        stream = _with_truths(stream, {name: without.condition}, "match(without=)")
    stream = _with_truths(stream, columns, DEFINE)
    rules = Matching("", parse_pattern("a"), names, before, so_far, texts, absence=absence)
    return stream, rules


def _with_truths(stream: StreamParts, columns: Mapping[str, Any], where: str) -> Any:
    """Return a stream with the results of conditions as columns.

    Raises:
        InvalidArgument: A condition reads a column that is missing, or its result is not bool.
    """
    if not columns:
        return stream
    stream = stream._with(WithColumns(Expressions((), dict(columns)), where))
    if stream._schema is not None:
        for name, condition in columns.items():
            _require_truth(condition, stream._schema.field(name).type, where)
    return stream


def _require_truth(condition: object, kind: pa.DataType | None, where: str) -> None:
    if kind is None or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return
    raise InvalidArgument(
        f"the condition {condition!r} has type {kind}, not bool",
        where=where,
        hint='Compare something, as in lw.col("price") < 10',
    )


def _require_types(rules: Matching, stream: StreamParts) -> None:
    """Raise if a condition on other rows cannot be computed of the types of the columns.

    Raises:
        InvalidArgument: It cannot, or its result is not bool.
    """
    if stream._schema is None:
        return
    types = {field.name: field.type for field in stream._schema}
    for condition in (*rules.before.values(), *rules.so_far.values()):
        if callable(condition):
            continue
        try:
            kind = expression_type(condition, types)
        except DataError as error:
            raise InvalidArgument(error.what, where=DEFINE, hint=error.hint) from None
        _require_truth(condition, kind, DEFINE)


def _with_measured(stream: Any, measures: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the stream with the conditions of aggregates as columns, and the measures."""
    specs = {name: one for name, one in measures.items() if is_aggregate(one)}
    ready, columns = with_condition_columns(specs)
    stream = _with_truths(stream, columns, MEASURES)
    return stream, {name: ready.get(name, one) for name, one in measures.items()}


def _within(given: DurationLike | None) -> int | None:
    if given is None:
        return None
    found = duration(given, name="within")
    if found < 0:
        raise InvalidArgument(
            f"{describe('within', given)} is below zero",
            where="match(within=)",
            hint="Give how much later than its first row a row of a match may be",
        )
    return found


def _checked_skip(given: object, found: tuple[str, ...], tree: Any) -> Skip:
    hint = 'Use "past_last", "next", ("first", "down") or ("last", "down")'
    if given in ("past_last", "next"):
        return given
    if isinstance(given, list):
        given = tuple(given)
    if not isinstance(given, tuple) or len(given) != 2 or given[0] not in ("first", "last"):
        raise InvalidArgument(
            f"{describe('skip', given)} is not known", where="match(skip=)", hint=hint
        )
    which, name = given
    if name not in found:
        raise InvalidArgument(
            f"the pattern has no variable {name!r}",
            where="match(skip=)",
            hint=nearest(str(name), found),
        )
    if which == "first" and first_variables(tree) == {name}:
        raise InvalidArgument(
            f"the first row of a match is always one of {name!r}, so the search would not move on",
            where="match(skip=)",
            hint='Use "next", which goes on behind the first row',
        )
    return (which, name)


def _lateness(given: DurationLike | None, stream: StreamParts) -> int:
    least = inherited_lateness(stream._flows)
    found = least if given is None else duration(given, name="allowed_lateness")
    if found < 0:
        raise InvalidArgument(
            f"{describe('allowed_lateness', given)} is below zero",
            where="match(allowed_lateness=)",
            hint='Write, say, allowed_lateness="1h"',
        )
    if found < least:
        raise InvalidArgument(
            f"allowed_lateness={format_duration(found)!r} is shorter than the lateness of the "
            f"upstream stage, {format_duration(least)!r}, so what it emits late would be dropped "
            "here",
            where="match(allowed_lateness=)",
            hint="Leave allowed_lateness out, or make it as long",
        )
    return found


def _checked_order(order: object, stream: StreamParts) -> str | None:
    if order is None:
        return None
    if not isinstance(order, str) or not order:
        raise InvalidArgument(
            f"{describe('order', order)} is not the name of a column",
            where="match(order=)",
            hint='Write, say, order="seq"',
        )
    if stream._known is not None:
        require_names([order], public_names(stream._known), "match(order=)")
    return order


def _check_output_names(
    rules: Matching, keys: tuple[str, ...], columns: Mapping[str, Any], *, signed: bool
) -> None:
    """Raise if two columns of the output would have one name."""
    own = [START, END] if rules.rows == "one" else [START, VARIABLE]
    reserved = {*own, "kind", "timestamp"}
    for name in keys:
        if name in own:
            raise InvalidArgument(
                f"a key cannot be called {name!r}: the output has a column of that name",
                where="match",
                hint=f"Name it yourself: key_by(my_{name}=lw.col({name!r}))",
            )
    for name in rules.measures:
        if name in reserved or name in keys:
            raise InvalidArgument(
                f"a measure cannot be called {name!r}: the output has a column of that name",
                where=MEASURES,
                hint=f"Name it, as in measures={{'my_{name}': ...}}",
            )
    if rules.rows == "all":
        signs = ("kind",) if signed else ()
        for name in (START, VARIABLE, *signs, *rules.measures):
            if name in columns:
                raise name_taken(name)
