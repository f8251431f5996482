"""What a state directory knows of its pipeline, and how another pipeline differs from it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import Field, fields, is_dataclass
from typing import Any

from lowwater.engine.graph.clocks import ArrivalClock, ClockLike
from lowwater.engine.graph.described import repr_text
from lowwater.engine.graph.graph import Flow, Graph, Origin, Read, Stage, name_of_output
from lowwater.engine.graph.sources import QUIET, Source
from lowwater.engine.join.views import View
from lowwater.engine.process.key_parts import PARTS
from lowwater.engine.records.stepping import Step
from lowwater.errors import StateError
from lowwater.state.key_layout import stage_prefix
from lowwater.time import format_duration

# How a source is waited for, where a run without a state begins and where it ends may change.
_FREE = frozenset({"end", "follow", "start", "wait"})


def describe_graph(
    graph: Graph,
    outputs: Sequence[tuple[int, str]],
    clock: ClockLike,
    bundle_size: int,
    views: Sequence[View | None] = (),
    parted: Collection[str] = (),
) -> dict[str, Any]:
    """Return what a state directory must know of the pipeline it belongs to.

    Args:
        graph: The graph.
        outputs: The number of the stage and the tag of each output of the run.
        clock: Where processing time comes from.
        bundle_size: How many elements a bundle has at most.
        views: How each output becomes the changes of a table; ``None`` for one that does not.
        parted: The names of the stages whose keys are in parts.
    """
    leaving = [output_name(graph, graph.stages[stage], tag) for stage, tag in outputs]
    for at, view in enumerate(views):
        if view is not None:  # what the table outside holds depends on it
            leaving[at] = " → ".join([leaving[at], *map(_step, view.steps), f"table {view.key!r}"])
    stages = {graph.name_of(stage): _describe_stage(graph, stage) for stage in graph.stages}
    for name in parted:
        stages[name]["parts"] = PARTS
    return {
        "sources": {graph.name_of(read): _describe_read(read) for read in graph.reads},
        "stages": stages,
        "outputs": leaving,
        # It cuts bundles; what other clocks say has no part in where bundles are cut.
        "clock": repr(clock) if isinstance(clock, ArrivalClock) else "none of the stream's",
        "bundle_size": bundle_size,
    }


def describe_stages(graph: Graph) -> dict[str, Any]:
    """Return what a state must know of the pipeline where another system reads the sources."""
    reads = {graph.name_of(read): _describe_read(read) for read in graph.reads}
    where = {"source", "paths"}  # that system knows what it has read
    return {
        "sources": {
            name: {part: one for part, one in read.items() if part not in where}
            for name, read in reads.items()
        },
        "stages": {graph.name_of(stage): _describe_stage(graph, stage) for stage in graph.stages},
    }


def stored_stages(graph: Graph) -> dict[str, Any]:
    """Return what is stored of each stage: its kind, the names of its keys, and its inputs.

    Raises:
        StateError: Two stages cannot be told apart in the store.
    """
    found: dict[str, Any] = {}
    names: dict[bytes, str] = {}
    for stage in graph.stages:
        name = graph.name_of(stage)
        if (other := names.setdefault(stage_prefix(name), name)) != name:
            raise StateError(
                f"the stages {other!r} and {name!r} have the same hash, and cannot both be stored",
                hint="Call one of them otherwise: .named(...)",
            )
        found[name] = {
            "kind": stage.work.stored_as,
            "keys": list(stage.key_names),
            "deduplicated": stage.deduplication is not None,
            "origins": [graph.name_of(flow.origin) for flow in stage.inputs],
            "left": stage.work.inputs_on_left(len(stage.inputs)),
            "signed": stage.signed,
        }
    return found


def _describe_read(read: Read) -> dict[str, Any]:
    unit = read.times.unit
    return {
        "source": _source(read.source),
        "paths": list(getattr(read.source, "paths", ())),
        "time": read.time,
        "timezone": read.times.timezone,
        **({"arrives": True} if read.arrives else {}),  # likewise
        **({} if unit is None else {"unit": unit}),  # left out, as older states have none
    }


def _describe_stage(graph: Graph, stage: Stage) -> dict[str, Any]:
    windowing = stage.windowing
    parts: dict[str, Any] = {
        "reads": [_describe_flow(graph, flow) for flow in stage.inputs],
        "keys": list(stage.keys),
        "key names": list(stage.key_names),
        "deduplicate": None if stage.deduplication is None else repr_text(stage.deduplication),
    }
    if windowing is not None:
        parts |= {
            "windows": repr_text(windowing.windows),
            "allowed_lateness": windowing.lateness_us,
        }
    return parts | stage.work.described()


def _describe_flow(graph: Graph, flow: Flow) -> str:
    return " → ".join([output_name(graph, flow.origin, flow.output), *map(_step, flow.steps)])


def output_name(graph: Graph, origin: Origin, output: str) -> str:
    """Return the name of an output of a source or stage, as errors and ``remove=`` have it."""
    return name_of_output(graph.name_of(origin), output)


def differences(stored: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield how the sources and the stages of two pipelines differ, by name."""
    for what in ("source", "stage"):
        yield from _differences(what, stored[f"{what}s"], now[f"{what}s"])


def _differences(what: str, stored: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield how sources or stages differ, by name."""
    for name in stored:
        if name not in now:
            yield f"the {what} {name!r} is gone"
    for name in now:
        if name not in stored:
            yield f"the {what} {name!r} is new"
    both = [name for name in stored if name in now]
    if (order := [name for name in now if name in stored]) != both:
        was, is_ = ", ".join(both), ", ".join(order)
        yield f"its {what}s came in the order {was} and come in the order {is_}"
    for name in both:
        prefix = f"{name}: " if len(now) > 1 else ""
        yield from changes(prefix, stored[name], now[name])


_TABLE = re.compile(r"digest [0-9a-f]{32}>|reloaded>")
_RELOADED = "reloaded>"


def with_reloaded(before: object, after: object) -> object:
    """Return what was, with the tables of ``lookup`` reloaded where those that are now are."""
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [with_reloaded(was, is_) for was, is_ in zip(before, after, strict=True)]
    if isinstance(before, str) and isinstance(after, str):
        now = iter(_TABLE.findall(after))

        def reloaded(table: re.Match[str]) -> str:
            return _RELOADED if next(now, "") == _RELOADED else table[0]

        return _TABLE.sub(reloaded, before)
    return before


def other_tables(before: object, after: object) -> bool:
    """Return whether two texts of inputs differ in the content of tables of ``lookup`` alone."""
    return before != after and _TABLE.sub("", str(before)) == _TABLE.sub("", str(after))


def changes(prefix: str, stored: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield how two descriptions of a source or a stage differ, each with a prefix."""
    for part in sorted({*stored, *now}):
        before, after = stored.get(part), now.get(part)
        name = prefix + part
        if part == "allowed_lateness" and before is not None and after is not None:
            if after < before:
                was, is_ = format_duration(before), format_duration(after)
                yield f"{name} was {was} and is {is_}, shorter"
        elif part == "paths" and before is not None and after is not None:
            gone = [one for one in before if one not in after]
            order = [one for one in dict.fromkeys(after) if one in before]
            if gone:
                yield f"the source no longer reads {', '.join(map(repr, gone))}"
            elif order != list(dict.fromkeys(before)):
                was, is_ = ", ".join(map(repr, before)), ", ".join(map(repr, order))
                yield f"{name} came in the order {was} and come in the order {is_}"
        elif part == "parts" and before != after:
            was, is_ = ("without" if one is None else "with" for one in (before, after))
            yield f"{prefix}it ran {was} workers=, and is to run {is_}"
        elif before != after and with_reloaded(before, after) != after:
            yield f"{name} was {before!r} and is {after!r}"


def _source(source: Source) -> str:
    """Return a source's kind and options, but for what may change."""
    kind = type(source).__name__
    if not is_dataclass(source):
        return kind
    free = {*_FREE, "paths"}
    shown = [
        f"{field.name}={repr_text(getattr(source, field.name))}"
        for field in fields(source)
        if field.repr and field.name not in free and not _is_quiet(source, field)
    ]
    return f"{kind}({', '.join(shown)})"


def _is_quiet(source: Source, option: Field[Any]) -> bool:
    return QUIET in option.metadata and not getattr(source, option.name)


def _step(step: Step) -> str:
    return repr_text(step) if step.vectorised else type(step).__name__
