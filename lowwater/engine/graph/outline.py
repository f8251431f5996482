"""Formats a pipeline on one line, as its repr: ``source -> filter(...) -> key_by(...) -> ...``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any

from lowwater.display.text import shown
from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates.built_in import IS_FILLED
from lowwater.engine.graph.graph import MAIN, Flow, Read, Stage
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.deduplicate import Deduplication
from lowwater.engine.records.stepping import Step
from lowwater.engine.window.windowing import Windowing
from lowwater.time import format_duration
from lowwater.windows import CountWindows

_ARROW = " → "


def outline(
    flows: tuple[Flow, ...],
    keys: tuple[str, ...] = (),
    windowing: Windowing | CountWindows | None = None,
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
        parts.append(f"window({', '.join(window_options(windowing))})")
    aggregates = shown_aggregates(aggregates or {})
    if aggregates:
        named = ", ".join(f"{name}={spec_text(spec)}" for name, spec in aggregates.items())
        parts.append("group()" if named == "records=group()" else f"aggregate({named})")
    return _ARROW.join(parts)


def shown_aggregates(aggregates: Mapping[str, Any]) -> dict[str, Any]:
    """Return the aggregates that users wrote, without the one that ``fill`` adds."""
    return {
        name: spec for name, spec in aggregates.items() if getattr(spec, "name", None) != IS_FILLED
    }


def deduplication_text(deduplication: Deduplication) -> str:
    """Format a deduplication step as users write it."""
    names = ", ".join(map(repr, deduplication.columns))
    several = f"({names})" if len(deduplication.columns) > 1 else names
    within = format_duration(deduplication.within_us)
    return f"deduplicate(id={several}, within={within!r})"


def stage_outline(stage: Stage) -> str:
    """Format a stage and everything upstream of it."""
    return stage.work.outline(stage)


def spec_text(spec: AggregateSpec) -> str:
    """Format an aggregate as users wrote it, without the hidden column that ``group()`` reads."""
    column = getattr(spec, "column", None)
    hidden = isinstance(column, str) and column.startswith(HIDDEN)
    return "group()" if hidden else shown(spec)


def key_options(left: tuple[str, ...], right: tuple[str, ...]) -> list[str]:
    """Format the keys of a join's sides as the options that users write."""
    if left == right:
        return [f"on={names_text(left)}"]
    return [f"left_on={names_text(left)}", f"right_on={names_text(right)}"]


def names_text(names: tuple[str, ...]) -> str:
    """Format names as users write them: one by itself, or a tuple."""
    return repr(names[0]) if len(names) == 1 else repr(names)


def _origin_text(flow: Flow) -> str:
    origin = flow.origin
    if isinstance(origin, Read):
        return shown(origin.source)
    return stage_outline(origin) + output_suffix(flow.output)


def output_suffix(output: str) -> str:
    """Return the suffix that selects an output of a process; empty for the main output."""
    return "" if output == MAIN else f"[{output!r}]"


def step_texts(steps: tuple[Step, ...]) -> Iterator[str]:
    """Yield the text of each step that users wrote."""
    for step in steps:
        if text := step.text():
            yield text


def window_options(windowing: Windowing | CountWindows) -> Iterator[str]:
    """Yield the windows, then each option that differs from its default."""
    if isinstance(windowing, CountWindows):
        yield repr(windowing)
        return
    yield shown(windowing.windows)
    for option in fields(windowing):
        value = getattr(windowing, option.name)
        default = option.default_factory() if callable(option.default_factory) else option.default
        if option.name == "windows" or default is MISSING or value == default:
            continue
        if option.name == "allowed_lateness":
            value = format_duration(windowing.lateness_us)
        yield f"{option.name}={shown(value)}"
