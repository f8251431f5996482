"""The inputs of a scenario as sources: each has its own watermark, and all share one clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeAlias, final

import numpy as np
import pyarrow as pa

from lowwater.engine.graph.graph import Flow, Graph, Read, Stage
from lowwater.engine.records.admit_times import TimeFormat
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.errors import InternalError, InvalidArgument, describe
from lowwater.pipeline import Stream
from lowwater.pipeline.fluent import EmittedStream
from lowwater.pipeline.forms import ElementForm, Form
from lowwater.pipeline.runnable import Runnable
from lowwater.pipeline.tables import Table
from lowwater.testing._arrivals import Arrivals, ScenarioElement
from lowwater.testing._drive import column_of
from lowwater.time import Instant
from lowwater.watermark import WatermarkEstimator

Built: TypeAlias = "Stream | EmittedStream[Any, Any] | Table[Stream]"
"""What a test builds on the inputs of a scenario: anything that can be run, or a table."""

Build: TypeAlias = "Callable[..., Any] | Built | BuiltPipeline"
"""Builds it from a stream for each input, in their order; or a pipeline, over whatever sources."""

TIME, KEY = "time", "key"
_MICROS = TimeFormat(unit="us")


@final
@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where a source's records have what an element has beside its value.

    A field of that name in the value goes before the key and the event time.

    Args:
        time: The column of event times.
        keys: The single columns that stages group its records by.
    """

    time: str
    keys: tuple[str, ...]


@final
@dataclass(frozen=True, eq=False, repr=False)
class ScenarioInput:
    """The elements of one input of a scenario; whoever runs the scenario hands them over.

    Args:
        name: The name of the input; ``None`` if it has none.
        elements: Its elements, in order of arrival.
        place: The source whose place it takes; ``None``: a function is built on it.
    """

    name: str | None
    elements: Sequence[ScenarioElement]
    place: SourcePlace | None = None
    schema: ClassVar[pa.Schema | None] = None
    endless: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"ScenarioInput({self.name or 'elements'})"

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        raise InternalError("the input of a scenario was read by a run")

    @property
    def writes_times(self) -> bool:
        """Whether its values have the event time as the source writes it."""
        place = self.place
        return place is not None and any(
            isinstance(element.value, Mapping) and place.time in element.value
            for element in self.elements
        )

    @cached_property
    def columns(self) -> Mapping[str, Column]:
        """All its elements as columns: the event time, the key, and those of the values."""
        rows = [columns_of(element.value, element.columns) for element in self.elements]
        values = dict.fromkeys(name for row in rows for name in row)
        if self.place is None and not values:
            values = {"value": None}
        columns = {name: column_of([row.get(name) for row in rows]) for name in values}
        times = times_of([element.time for element in self.elements])
        keys = [element.key for element in self.elements]
        if self.place is None:
            return {TIME: times, KEY: column_of(keys)} | columns
        if any(key is not None for key in keys):
            # Record by record: a field of one, such as a null, says nothing of the others.
            columns = columns | {
                name: column_of([row.get(name, key) for row, key in zip(rows, keys, strict=True)])
                for name in self.place.keys
            }
        return {self.place.time: times} | columns

    def records(self, start: int, stop: int) -> Records:
        """Return some of its elements."""
        part = {name: column.slice(start, stop) for name, column in self.columns.items()}
        return Records(part, stop - start, "the scenario", start)


@final
@dataclass(frozen=True, slots=True)
class BuiltPipeline:
    """What a test built, on the inputs of a scenario.

    Args:
        stage: The stage that its output comes from.
        form: How its output is read.
    """

    stage: Stage
    form: Form[Any, Any]

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns of the output, which are not in the values of its elements."""
        return self.stage.key_names


_PIPELINES = (Runnable, Table, BuiltPipeline)


def inputs_of(scenario: Arrivals, build: Build | None = None) -> tuple[ScenarioInput, ...]:
    """Return the inputs of a scenario; one that names none has one.

    Args:
        scenario: The scenario.
        build: What is built on them, or the pipeline whose sources they take the place of;
            ``None``: a function.

    Raises:
        InvalidArgument: The pipeline has other sources.
    """
    names: tuple[str | None, ...] = scenario.inputs or (None,)
    found = tuple(ScenarioInput(name, scenario.elements_of(name)) for name in names)
    if not isinstance(build, _PIPELINES):
        return found
    graph = Graph.of([_built(build).stage])
    places = dict(zip(input_names(graph), graph.reads, strict=True))
    if len(found) == len(places) == 1:
        places = {found[0].name: graph.reads[0]}
    if set(places) != set(names):
        raise InvalidArgument(
            f"the pipeline reads {_listed(places)}, and the scenario has {_listed(names)}",
            where="run_pipeline",
            hint=f"Begin the scenario with Scenario({', '.join(map(repr, places))})",
        )
    return tuple(replace(one, place=place_of(graph, places[one.name])) for one in found)


def built_stage(pipeline: Build) -> Stage:
    """Return the stage that the output of a pipeline comes from."""
    return _built(pipeline).stage


def input_names(graph: Graph) -> list[str | None]:
    """Return the name of the input for each source of a graph; ``None`` for the only one.

    It is the source's name, with ``_`` for what Python's names cannot have.
    """
    if len(graph.reads) == 1:
        return [None]
    names: list[str | None] = []
    for read in graph.reads:
        name = re.sub(r"\W", "_", graph.name_of(read))
        name = name if name.isidentifier() else f"_{name}"
        while name in names:
            name += "_"
        names.append(name)
    return names


def place_of(graph: Graph, read: Read) -> SourcePlace:
    """Return where the records of a source have their event time and key."""
    keys = (graph.stages[at].keys_of(nth) for at, nth in graph.into(read))
    return SourcePlace(read.time, tuple(dict.fromkeys(k[0] for k in keys if len(k) == 1)))


def _listed(names: Iterable[str | None]) -> str:
    return ", ".join("one input" if name is None else repr(name) for name in names)


def built_on(
    build: Build, inputs: Sequence[ScenarioInput], watermarks: Sequence[WatermarkEstimator]
) -> BuiltPipeline:
    """Return what a test builds on inputs.

    Args:
        build: Builds it.
        inputs: The inputs.
        watermarks: The watermark of each.

    Raises:
        InvalidArgument: It built nothing that can be run.
    """
    if isinstance(build, _PIPELINES):
        return _in_place(_built(build), inputs, watermarks)
    if not callable(build):
        raise InvalidArgument(
            f"{describe('build', build)} is neither a function nor a pipeline",
            where="run_pipeline",
            hint='Write, say, lambda left, right: left.join(right, on="key", within="1h")',
        )
    return _built(
        build(*(_stream(one, mark) for one, mark in zip(inputs, watermarks, strict=True)))
    )


def _in_place(
    built: BuiltPipeline,
    inputs: Sequence[ScenarioInput],
    watermarks: Sequence[WatermarkEstimator],
) -> BuiltPipeline:
    """Return a pipeline with inputs in the place of its sources."""
    graph = Graph.of([built.stage])
    reads = graph.reads
    if len(reads) > 1:
        numbers = {name: at for at, name in enumerate(input_names(graph))}
        reads = tuple(reads[numbers[one.name]] for one in inputs)
    others = {
        read: replace(
            read, source=one, watermark=mark, clock=None, max_ahead_us=None, idle_after_us=None,
            times=read.times if one.writes_times else replace(read.times, unit="us"),
            arrives=False,
        )
        for read, one, mark in zip(reads, inputs, watermarks, strict=True)
    }  # fmt: skip
    return replace(built, stage=with_other_sources(built.stage, others))


def with_other_sources(end: Stage, others: Mapping[Read, Read]) -> Stage:
    """Return a stage over other sources. O(stages)."""
    made: dict[Stage, Stage] = {}
    for stage in Graph.of([end]).stages:
        flows = tuple(
            replace(flow, origin=others[flow.origin], times=others[flow.origin].times)
            if isinstance(flow.origin, Read)
            else replace(flow, origin=made[flow.origin])
            for flow in stage.inputs
        )
        made[stage] = replace(stage, inputs=flows)
    return made[end]


def _built(built: Any) -> BuiltPipeline:
    """Return the stage of what was built, and how its output is read."""
    if isinstance(built, BuiltPipeline):
        return built
    if isinstance(built, Table):
        flow = built.changes()._flows[0]
        if isinstance(flow.origin, Stage) and flow.origin.makes_table and not flow.steps:
            return BuiltPipeline(flow.origin, ElementForm(flow.origin.key_names))
        built = built.changes()
    stage, form = getattr(built, "_stage", None), getattr(built, "_form", None)
    if not isinstance(stage, Stage) or form is None:
        raise InvalidArgument(
            f"the function returned {built!r} ({type(built).__name__}), which cannot be run",
            where="run_pipeline",
            hint="Return what join(...), aggregate(...), table(...) or process(...) returned",
        )
    return BuiltPipeline(stage, form())


def _stream(one: ScenarioInput, watermark: WatermarkEstimator) -> Stream:
    read = Read(one, TIME, _MICROS, watermark, name=one.name)
    return Stream((Flow(read, (), TIME, _MICROS),), _names=tuple(one.columns))


def columns_of(value: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of an element's value, and those it has beside that."""
    return {**(value if isinstance(value, Mapping) else {"value": value}), **more}


def times_of(times: list[Any]) -> Column:
    """Return event times as a column; unreadable ones are kept as they are."""
    if times and all(isinstance(at, Instant) for at in times):
        instants = pa.array(np.array(times, dtype=np.int64), pa.timestamp("us", "UTC"))
        return Column.from_arrow(instants)
    return Column.of_objects(times)
