"""Runs a scenario through the gate for bad input and the window operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lowwater.engine.aggregates import collect
from lowwater.engine.aggregates._base import AggregateSpec, Needs
from lowwater.engine.columns import Column
from lowwater.engine.ingest import Ingest, OnError, Records
from lowwater.engine.operator import WindowOperator
from lowwater.engine.panes import ErrorRecord, LateRecord, Pane
from lowwater.engine.steps import (
    REASONS,
    UNWINDOWED,
    ClockAdvance,
    EndOfInput,
    LateBatch,
    StepInput,
    WatermarkAdvance,
)
from lowwater.engine.trace import StageTrace
from lowwater.engine.windowing import Windowing
from lowwater.testing._traced import ScenarioRecorder
from lowwater.testing.scenario import (
    Add,
    Aggregates,
    ClockMove,
    Element,
    Scenario,
    ScenarioRun,
    WatermarkMove,
)
from lowwater.time import END_OF_TIME, START_OF_TIME, Instant
from lowwater.windows import Window

_STRICTEST: tuple[Needs, ...] = (
    "nothing", "presence", "anything", "ordered", "numbers", "booleans",
)  # fmt: skip


def drive(
    scenario: Scenario,
    windowing: Windowing,
    aggregate: Aggregates | None,
    on_error: OnError,
    signs: Sequence[int] | None = None,
) -> ScenarioRun:
    """Return what the engine makes of a scenario.

    Args:
        scenario: What arrived when.
        windowing: Where, when and how.
        aggregate: What panes show.
        on_error: What becomes of bad elements.
        signs: +1 or -1 of each element, in order of arrival (S-C1); ``None`` for an operator that
            takes nothing back.
    """
    specs = _named(collect() if aggregate is None else aggregate)
    source = _Source(scenario, windowing, specs, on_error, signs)
    operator = WindowOperator(
        windowing,
        specs,
        watermark=scenario.watermark_at_start,
        clock=scenario.start,
        signed=signs is not None,
    )
    panes: list[Pane] = []
    late: list[LateRecord] = []
    for step, kept in source.inputs():
        output = operator.step(step)
        if output.panes is not None:
            panes.extend(output.panes)
        if output.late is not None:
            late.extend(_late_records(output.late, kept))
    return ScenarioRun(
        scenario=scenario,
        windowing=windowing,
        panes=panes,
        late=late,
        errors=source.errors,
        open_windows=operator.open_windows,
        state_rows=operator.state_rows,
    )


def trace(scenario: Scenario, windowing: Windowing, aggregate: Aggregates | None) -> StageTrace:
    """Return what the engine does with a scenario, step by step."""
    specs = _named(collect() if aggregate is None else aggregate)
    source = _Source(scenario, windowing, specs, "dead_letter", None)
    operator = WindowOperator(
        windowing, specs, watermark=scenario.watermark_at_start, clock=scenario.start
    )
    recorder = ScenarioRecorder(windowing, specs, operator)
    for step, kept in source.inputs():
        recorder.stepped(step, kept, operator.step(step))
    return recorder.trace()


class _Source:
    """The steps of a scenario as inputs of an operator, each column of one kind throughout."""

    def __init__(
        self,
        scenario: Scenario,
        windowing: Windowing,
        specs: Mapping[str, AggregateSpec],
        on_error: OnError,
        signs: Sequence[int] | None,
    ) -> None:
        self.errors: list[ErrorRecord] = []
        self._signs = None if signs is None else np.array(signs, dtype=np.int8)
        self._scenario = scenario
        elements = scenario.elements
        durations = windowing.windows.columns
        extra = dict.fromkeys(name for element in elements for name in element.columns)
        names = dict.fromkeys((*extra, *durations, "value"))
        self._columns = {
            "time": _column([element.time for element in elements]),
            "key": _column([element.key for element in elements]),
            **{name: _column([_read(element, name) for element in elements]) for name in names},
        }
        self._ingest = Ingest(
            time="time", keys=("key",), needs=_needs(specs), durations=durations, on_error=on_error
        )

    def inputs(self) -> Iterator[tuple[StepInput, Sequence[Element]]]:
        """Yield each input, with the elements that a bundle's rows stand for."""
        position = 0
        for step in self._scenario.steps:
            if step.at is not None:
                yield ClockAdvance(step.at), ()
            match step:
                case Add(elements):
                    bundle, kept = self._admit(elements, position)
                    position += len(elements)
                    yield bundle, kept
                case WatermarkMove(to):
                    yield WatermarkAdvance(to), ()
                case ClockMove():
                    pass
                case _:
                    yield EndOfInput(), ()

    def _admit(
        self, elements: tuple[Element, ...], position: int
    ) -> tuple[StepInput, Sequence[Element]]:
        stop = position + len(elements)
        columns = {name: column.slice(position, stop) for name, column in self._columns.items()}
        admitted = self._ingest.admit(Records(columns, len(elements)))
        self.errors.extend(admitted.errors)
        bundle, kept = admitted.bundle, admitted.kept
        if self._signs is not None:
            signs = self._signs[position:stop]
            bundle = replace(bundle, signs=signs if kept is None else signs[kept])
        return bundle, elements if kept is None else [elements[row] for row in kept.tolist()]


def _named(aggregate: Aggregates) -> dict[str, AggregateSpec]:
    return dict(aggregate) if isinstance(aggregate, Mapping) else {"value": aggregate}


def _needs(specs: Mapping[str, AggregateSpec]) -> dict[str, Needs]:
    """Return the strictest need of each column that an aggregate reads."""
    needs: dict[str, Needs] = {}
    for spec in specs.values():
        if spec.needs == "nothing" and spec.column is None:
            continue
        column = spec.column or "value"
        known = needs.get(column, "nothing")
        needs[column] = max(known, spec.needs, key=_STRICTEST.index)
    return needs


def _read(element: Element, name: str) -> Any:
    return element.value if name == "value" else element.columns.get(name)


def _column(values: list[Any]) -> Column:
    """Return a column of the narrowest kind that holds all the values."""
    given = [value for value in values if value is not None]
    kinds = {type(value) for value in given}
    if Instant in kinds:
        kinds = kinds - {Instant} | {int}
    dtype = _dtype(kinds, given)
    if dtype is None or not given:
        return Column.of_objects(values)
    valid = np.array([value is not None for value in values], dtype=np.bool_)
    data = np.array([0 if value is None else value for value in values], dtype=dtype)
    return Column(data, None if valid.all() else valid)


def _dtype(kinds: set[type], given: list[Any]) -> type[np.generic] | None:
    if kinds == {bool}:
        return np.bool_
    if kinds == {int} and all(START_OF_TIME <= value <= END_OF_TIME for value in given):
        return np.int64
    if kinds in ({float}, {int, float}):
        return np.float64
    return None


def _late_records(late: LateBatch, elements: Sequence[Element]) -> Iterator[LateRecord]:
    for index, start, end, reason in zip(
        late.element.tolist(),
        late.start.tolist(),
        late.end.tolist(),
        late.reason.tolist(),
        strict=True,
    ):
        element = elements[index]
        yield LateRecord(
            value=element.record,
            time=element.time,
            key=element.key,
            window=None if reason == UNWINDOWED else Window(Instant(start), Instant(end)),
            watermark=Instant(late.watermark),
            reason=REASONS[reason],
        )
