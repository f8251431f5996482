"""Formats a pipeline on one line, as its repr: ``source -> filter(...) -> key_by(...) -> ...``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any, assert_never

from lowwater.display.text import cut, shown
from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.graph.graph import (
    MAIN,
    Computed,
    Flow,
    Grouped,
    Joined,
    Passed,
    Read,
    Stage,
    Upserted,
    Windowed,
    WindowJoined,
)
from lowwater.engine.join.changelog import FromChangelog
from lowwater.engine.join.changes import DebeziumForm, UpsertForm
from lowwater.engine.join.joining import LEFT, RIGHT, AsOf, Joining
from lowwater.engine.join.tables import Upserting
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.deduplicate import Deduplication
from lowwater.engine.records.expressions import Expressions
from lowwater.engine.records.stateless import (
    AddComputed,
    Filter,
    FlatMap,
    Map,
    MapBatches,
    Select,
    WithColumns,
)
from lowwater.engine.records.stepping import Step
from lowwater.engine.window.windowing import Windowing
from lowwater.time import format_duration

_ARROW = " → "
_LONGEST = 60


def outline(
    flows: tuple[Flow, ...],
    keys: tuple[str, ...] = (),
    windowing: Windowing | None = None,
    aggregates: Mapping[str, Any] | None = None,
    *,
    deduplication: Deduplication | None = None,
) -> str:
    """Format the steps from the sources onwards; data is left out."""
    ways = [_ARROW.join((_origin_text(flow), *step_texts(flow.steps))) for flow in flows]
    parts = [ways[0] if len(ways) == 1 else f"({' | '.join(ways)})"]
    if deduplication is not None:
        parts.append(deduplication_text(deduplication))
    if keys:
        parts.append(f"key_by({', '.join(map(repr, keys))})")
    if windowing is not None:
        parts.append(f"window({', '.join(_window_options(windowing))})")
    if aggregates:
        shown = ", ".join(f"{name}={spec_text(spec)}" for name, spec in aggregates.items())
        parts.append("group()" if shown == "records=group()" else f"aggregate({shown})")
    return _ARROW.join(parts)


def deduplication_text(deduplication: Deduplication) -> str:
    """Format a deduplication step as users write it."""
    names = ", ".join(map(repr, deduplication.columns))
    several = f"({names})" if len(deduplication.columns) > 1 else names
    within = format_duration(deduplication.within_us)
    return f"deduplicate(id={several}, within={within!r})"


def stage_outline(stage: Stage) -> str:
    """Format a stage and everything upstream of it."""
    work = stage.work
    match work:
        case Windowed():
            return _before(stage, work.aggregates)
        case Computed():
            return f"{_before(stage, None)}{_ARROW}process({_process(work)})"
        case Joined():
            left, right = stage.inputs[: work.left], stage.inputs[work.left :]
            name = "join_as_of" if isinstance(work.joining, AsOf) else "join"
            return f"{outline(left)}{_ARROW}{name}({outline(right)}, {_join_options(stage, work)})"
        case WindowJoined():
            left, right = stage.inputs[: work.left], stage.inputs[work.left :]
            return f"{outline(left)}{_ARROW}join({outline(right)}, {_window_join(stage, work)})"
        case Upserted():
            return f"{outline(stage.inputs)}{_ARROW}table({_table_options(stage, work.rules)})"
        case Grouped():
            by = ", ".join(map(repr, stage.key_names))
            return f"{outline(stage.inputs, (), None, work.aggregates)} by {by}"
        case Passed():
            return outline(stage.inputs, deduplication=stage.deduplication)
        case _:
            assert_never(work)


def _before(stage: Stage, aggregates: Mapping[str, AggregateSpec] | None) -> str:
    return outline(
        stage.inputs, stage.key_names, stage.windowing, aggregates,
        deduplication=stage.deduplication,
    )  # fmt: skip


def work_texts(stage: Stage) -> Iterator[str]:
    """Yield a line for each aggregate or output of a stage."""
    work = stage.work
    match work:
        case Windowed():
            for name, spec in work.aggregates.items():
                yield f"{name} = {spec_text(spec)}"
        case Computed():
            yield f"process {type(work.process).__name__}"
            if work.order != "arrival":
                yield "in event-time order"
            if len(work.outputs) > 1:
                yield f"outputs {', '.join(work.outputs)}"
            if work.retracts:
                yield "retracts what it emitted"
            if work.lateness_us:
                yield f"emits up to {format_duration(work.lateness_us)} late"
        case Joined():
            yield from _join_texts(work.joining)
        case WindowJoined():
            yield f"{work.how} join within windows"
        case Upserted():
            yield f"table({_table_options(stage, work.rules)})"
        case Grouped():
            for name, spec in work.aggregates.items():
                yield f"{name} = {spec_text(spec)}"
        case Passed():
            yield "records as they are"
        case _:
            assert_never(work)


def spec_text(spec: AggregateSpec) -> str:
    """Format an aggregate as users wrote it, without the hidden column that ``group()`` reads."""
    column = getattr(spec, "column", None)
    hidden = isinstance(column, str) and column.startswith(HIDDEN)
    return "group()" if hidden else shown(spec)


def _table_options(stage: Stage, rules: Upserting) -> str:
    options = [f"key={_names(stage.keys)}"]
    if rules.order is not None:
        options.append(f"order={rules.order!r}")
    if rules.ttl_us is not None:
        options.append(f"ttl={format_duration(rules.ttl_us)!r}")
    return ", ".join(options)


def _on(stage: Stage, right: tuple[str, ...]) -> list[str]:
    if stage.keys == right:
        return [f"on={_names(stage.keys)}"]
    return [f"left_on={_names(stage.keys)}", f"right_on={_names(right)}"]


def _window_join(stage: Stage, work: WindowJoined) -> str:
    windows, *options = _window_options(work.windowing)
    return ", ".join(
        [*_on(stage, work.right_keys), f"within={windows}", f"how={work.how!r}", *options]
    )


def _join_options(stage: Stage, work: Joined) -> str:
    joining, on = work.joining, _on(stage, work.right_keys)
    if isinstance(joining, AsOf):
        options = [*on, f"how={joining.how!r}"]
        if joining.order is not None:
            options.append(f"order={joining.order!r}")
        if joining.tolerance_us is not None:
            options.append(f"tolerance={format_duration(joining.tolerance_us)!r}")
        options.append(f"late_versions={joining.late_versions!r}")
        options.append(f"keep={format_duration(joining.keep_us)!r}")
        return ", ".join(options)
    if joining.within is None:
        return ", ".join([*on, f"how={joining.how!r}"])
    options = [*on, f"within={joining.within!r}", f"how={joining.how!r}"]
    if joining.unmatched != "final":
        options.append(f"unmatched={joining.unmatched!r}")
    if joining.lateness_us:
        options.append(f"allowed_lateness={format_duration(joining.lateness_us)!r}")
    return ", ".join(options)


def _join_texts(joining: Joining | AsOf) -> Iterator[str]:
    if isinstance(joining, AsOf):
        yield f"{joining.how} join as of event time, late versions {joining.late_versions}"
        yield f"remembers {format_duration(joining.keep_us)}"
        return
    if joining.within is None:
        yield f"{joining.how} join of tables"
        return
    yield f"{joining.how} join within {joining.within!r}"
    if joining.is_alone(LEFT) or joining.is_alone(RIGHT):
        yield f"unmatched {joining.unmatched}"
    if joining.lateness_us:
        yield f"allowed lateness: {format_duration(joining.lateness_us)}"


def _names(names: tuple[str, ...]) -> str:
    return repr(names[0]) if len(names) == 1 else repr(names)


def _process(work: Computed) -> str:
    order = "" if work.order == "arrival" else f", order={work.order!r}"
    return f"{type(work.process).__name__}{order}"


def _origin_text(flow: Flow) -> str:
    origin = flow.origin
    if isinstance(origin, Read):
        return shown(origin.source)
    return stage_outline(origin) + output_suffix(flow.output)


def output_suffix(output: str) -> str:
    """Return the suffix that selects an output of a process; empty for the main output."""
    return "" if output == MAIN else f"[{output!r}]"


def step_name(step: Step) -> str:
    """Return the name of the method that made a step."""
    match step:
        case Filter():
            return "filter"
        case WithColumns():
            return "with_columns"
        case Select():
            return "select"
        case Map():
            return "map"
        case FlatMap():
            return "flat_map"
        case MapBatches():
            return "map_batches"
        case FromChangelog():
            return "changelog"
        case UpsertForm() | DebeziumForm():
            return "changes"
        case AddComputed():
            return "key_by"
        case _:
            return "group"


def step_texts(steps: tuple[Step, ...]) -> Iterator[str]:
    """Yield the text of each step that users wrote."""
    for step in steps:
        match step:
            case Filter():
                yield f"filter({_short(step.condition)})"
            case WithColumns():
                yield f"with_columns({_expressions(step.expressions)})"
            case Select():
                yield f"select({_expressions(step.expressions)})"
            case Map():
                yield f"map({_short(step.function)})"
            case FlatMap():
                yield f"flat_map({_short(step.function)})"
            case MapBatches():
                yield f"map_batches({_short(step.function)})"
            case FromChangelog():
                yield f"changelog(op={step.op!r})"
            case UpsertForm():
                yield "changes(form='upsert')"
            case DebeziumForm():
                yield "changes(form='debezium')"


def _expressions(expressions: Expressions) -> str:
    named = (f"{name}={_short(value)}" for name, value in expressions.named.items())
    return ", ".join((*map(_short, expressions.unnamed), *named))


def _window_options(windowing: Windowing) -> Iterator[str]:
    yield shown(windowing.windows)
    for option in fields(windowing):
        value = getattr(windowing, option.name)
        default = option.default_factory() if callable(option.default_factory) else option.default
        if option.name == "windows" or default is MISSING or value == default:
            continue
        if option.name == "allowed_lateness":
            value = format_duration(windowing.lateness_us)
        yield f"{option.name}={shown(value)}"


def _short(value: Any) -> str:
    return cut(shown(value), _LONGEST)
