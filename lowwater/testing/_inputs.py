"""The inputs of a scenario as sources: each has its own watermark, and all share one clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias, final

import numpy as np
import pyarrow as pa

from lowwater.engine.graph.graph import Flow, Read, Stage
from lowwater.engine.records.admit_times import TimeFormat
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.errors import InternalError, InvalidArgument, describe
from lowwater.pipeline import Stream
from lowwater.pipeline.fluent import EmittedStream
from lowwater.pipeline.forms import ElementForm, Form
from lowwater.pipeline.tables import Table
from lowwater.testing._arrivals import Arrivals, ScenarioElement
from lowwater.testing._drive import column_of
from lowwater.time import Instant
from lowwater.watermark import WatermarkEstimator

Built: TypeAlias = "Stream | EmittedStream[Any, Any] | Table[Stream]"
"""What a test builds on the inputs of a scenario: anything that can be run, or a table."""

Build: TypeAlias = Callable[..., Any]
"""Builds it from a stream for each input, in their order."""

TIME, KEY = "time", "key"
_MICROS = TimeFormat(unit="us")


@final
@dataclass(frozen=True, eq=False, repr=False)
class ScenarioInput:
    """The elements of one input of a scenario; whoever runs the scenario hands them over.

    Args:
        name: The name of the input; ``None`` if it has none.
        elements: Its elements, in order of arrival.
    """

    name: str | None
    elements: Sequence[ScenarioElement]
    schema: ClassVar[pa.Schema | None] = None
    endless: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"ScenarioInput({self.name or 'elements'})"

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        raise InternalError("the input of a scenario was read by a run")

    @cached_property
    def columns(self) -> Mapping[str, Column]:
        """All its elements as columns: the event time, the key, and those of the values."""
        rows = [columns_of(element.value, element.columns) for element in self.elements]
        names = dict.fromkeys(name for row in rows for name in row) or ("value",)
        columns = {
            TIME: times_of([element.time for element in self.elements]),
            KEY: column_of([element.key for element in self.elements]),
        }
        return columns | {name: column_of([row.get(name) for row in rows]) for name in names}

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


def inputs_of(scenario: Arrivals) -> tuple[ScenarioInput, ...]:
    """Return the inputs of a scenario; one that names none has one."""
    names: tuple[str | None, ...] = scenario.inputs or (None,)
    return tuple(ScenarioInput(name, scenario.elements_of(name)) for name in names)


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
    if not callable(build):
        raise InvalidArgument(
            f"{describe('build', build)} is not a function",
            where="run_pipeline",
            hint='Write, say, lambda left, right: left.join(right, on="key", within="1h")',
        )
    built = build(*(_stream(one, mark) for one, mark in zip(inputs, watermarks, strict=True)))
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
