"""Runs a scenario through admission and the window operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, assert_never

import numpy as np

from lowwater.engine.aggregates import collect
from lowwater.engine.aggregates._base import AggregateSpec, strictest_needs
from lowwater.engine.aggregates._conditions import WHERE, with_condition_columns
from lowwater.engine.graph.graph import Stage
from lowwater.engine.graph.trace import Trace
from lowwater.engine.local.recorder import StageRecorder
from lowwater.engine.local.taken_bundles import TakenBundle
from lowwater.engine.records.admission import Admission, OnError
from lowwater.engine.records.batch import HIDDEN, TRACED, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.evaluation import evaluated
from lowwater.engine.records.expressions import Expressions
from lowwater.engine.records.panes import ErrorRecord, LateRecord, Pane
from lowwater.engine.records.stage_output import StageOutput
from lowwater.engine.records.steps import (
    REASONS,
    Bundle,
    ClockAdvance,
    EndOfInput,
    LateBatch,
    StepInput,
    WatermarkAdvance,
)
from lowwater.engine.stages.windowed import Windowed
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import DataError, InvalidArgument
from lowwater.pipeline.checks import checked_aggregate
from lowwater.testing._arrivals import (
    Add,
    Arrivals,
    ClockMove,
    InputEnd,
    ScenarioElement,
    WatermarkMove,
)
from lowwater.time import END_OF_TIME, START_OF_TIME, Instant, Int64Array

Aggregates: TypeAlias = "AggregateSpec | Mapping[str, AggregateSpec]"


class Driven(NamedTuple):
    """What the operator did with a scenario; the fields are those of ``ScenarioRun``."""

    panes: list[Pane]
    late: list[LateRecord]
    errors: list[ErrorRecord]
    open_windows: int
    state_rows: int
    recorded: Trace | None


def drive(
    scenario: Arrivals,
    windowing: Windowing,
    aggregate: Aggregates | None,
    on_error: OnError,
    signs: Sequence[int] | None = None,
    *,
    trace: bool = False,
) -> Driven:
    """Run the engine's window operator over a scenario.

    Args:
        scenario: What arrived when.
        windowing: Where, when and how.
        aggregate: The aggregates.
        on_error: How invalid elements are handled.
        signs: +1 or -1 of each element, in order of arrival (S-C1); ``None`` for an operator that
            whose input is not retracted.
        trace: Whether to record what happens to each element.

    Raises:
        InvalidArgument: No element has a column that the windows or the aggregates read.
    """
    named = _named(collect() if aggregate is None else aggregate)
    specs, conditions = with_condition_columns(named)
    _check_columns(scenario, windowing, specs)
    source = _Source(scenario, windowing, specs, on_error, signs, conditions)
    operator = WindowOperator(
        windowing,
        specs,
        watermark=scenario.watermark_at_start,
        clock=scenario.start,
        signed=signs is not None,
    )
    panes: list[Pane] = []
    late: list[LateRecord] = []
    recorder = _recorder(windowing, specs, operator) if trace else None
    for step, kept in source.inputs():
        output = operator.step(step)
        if recorder is not None:
            _record(recorder, source, step, output, operator)
        if output.panes is not None:
            panes.extend(output.panes)
        if output.late is not None:
            late.extend(_late_records(output.late, kept))
    return Driven(
        panes=panes,
        late=late,
        errors=source.errors,
        open_windows=operator.open_windows,
        state_rows=operator.state_rows,
        recorded=None
        if recorder is None
        else Trace((recorder.trace(),), tuple(source.errors), read={"scenario": source.read}),
    )


def _check_columns(
    scenario: Arrivals, windowing: Windowing, specs: Mapping[str, AggregateSpec]
) -> None:
    """Raise if a column is read that no element has; one that some have is null in the others."""
    elements = scenario.elements
    given = ("value", *dict.fromkeys(name for element in elements for name in element.columns))
    needs = (name for name in strictest_needs(specs) if not name.startswith(HIDDEN))
    read = dict.fromkeys((*windowing.windows.columns, *needs))
    missing = [name for name in read if name not in (*given, "key", "time")]
    if elements and missing:
        raise InvalidArgument(
            f"the scenario has no {_listed('column', missing)}: the windows and aggregates read "
            f"{_listed('column', list(read))}, its elements have {_listed('column', given)}",
            where="scenario",
            hint="Give its elements the missing ones, in columns of the Markdown table after `key` "
            f'or as in .add((5, "12:00:26", "A", {{{missing[0]!r}: 5}})); or have the pipeline '
            "read what they have",
        )


def _listed(noun: str, names: Sequence[str]) -> str:
    """Return names with what they are.

    >>> _listed("column", ["gap"]), _listed("column", ["gap", "value"])
    ("column 'gap'", "columns 'gap', 'value'")
    """
    return f"{noun}{'' if len(names) == 1 else 's'} {', '.join(map(repr, names))}"


def _recorder(
    windowing: Windowing, specs: Mapping[str, AggregateSpec], operator: WindowOperator
) -> StageRecorder:
    operator.report_to_trace()
    stage = Stage((), ("key",), ("key",), Windowed(windowing, specs))
    recorder = StageRecorder("scenario", stage, (), count(), ("scenario",))
    _stands(recorder, operator)  # where the scenario says that it starts
    return recorder


def _record(
    recorder: StageRecorder,
    source: _Source,
    step: StepInput,
    output: StageOutput,
    operator: WindowOperator,
) -> None:
    if isinstance(step, Bundle) and len(step):
        rows = np.arange(source.records.length, dtype=np.int64)
        rows = rows if source.kept is None else source.kept
        taken = TakenBundle(
            step, None, output.late, source.records, rows, operator.watermark, operator.clock
        )
        recorder.took(taken, output.merges)
    if output.panes is not None:
        recorder.showed(output.panes)
    _stands(recorder, operator)


def _stands(recorder: StageRecorder, operator: WindowOperator) -> None:
    held = (
        None
        if operator.watermark == END_OF_TIME
        else "the scenario: it does not advance the watermark further"
    )
    recorder.moved(operator.clock, operator.watermark, operator.output_watermark, held)


class _Source:
    """The steps of a scenario as inputs of an operator, each column of one kind throughout."""

    def __init__(
        self,
        scenario: Arrivals,
        windowing: Windowing,
        specs: Mapping[str, AggregateSpec],
        on_error: OnError,
        signs: Sequence[int] | None,
        conditions: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.errors: list[ErrorRecord] = []
        self.records = Records({}, 0)
        self.kept: Int64Array | None = None
        self._signs = None if signs is None else np.array(signs, dtype=np.int8)
        self._scenario = scenario
        elements = scenario.elements
        durations = windowing.windows.columns
        self.read = tuple(element.record for element in elements)
        extra = dict.fromkeys(name for element in elements for name in element.columns)
        names = dict.fromkeys((*extra, *durations, "value"))
        self._columns = {
            "time": column_of([element.time for element in elements]),
            "key": column_of([element.key for element in elements]),
            **{name: column_of([_read(element, name) for element in elements]) for name in names},
        }
        self._add_conditions(conditions)
        self._shown = ("value", *extra)  # what a record is: see ScenarioElement.record
        self._admission = Admission(
            time="time", keys=("key",), needs=strictest_needs(specs),
            windows=windowing.windows, on_error=on_error,
        )  # fmt: skip

    def _add_conditions(self, conditions: Mapping[str, Any]) -> None:
        """Add the columns that the conditions of aggregates make.

        Raises:
            DataError: A condition fails for an element.
        """
        count = len(self._scenario.elements)
        if not conditions or not count:
            return
        done = evaluated(WHERE, Records(self._columns, count), Expressions((), conditions))
        for failure in done.failed:
            raise DataError(failure.detail, where=WHERE)
        for wrong in done.missing.values():
            raise wrong
        self._columns |= done.columns

    def inputs(self) -> Iterator[tuple[StepInput, Sequence[ScenarioElement]]]:
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
                case InputEnd():
                    yield EndOfInput(), ()
                case _:
                    assert_never(step)

    def _admit(
        self, elements: tuple[ScenarioElement, ...], position: int
    ) -> tuple[StepInput, Sequence[ScenarioElement]]:
        stop = position + len(elements)
        columns = {name: column.slice(position, stop) for name, column in self._columns.items()}
        admitted = self._admission.admit(Records(columns, len(elements)))
        self.errors.extend(admitted.errors)
        bundle, kept = admitted.bundle, admitted.kept
        self.kept = kept
        numbers = Column(np.arange(position, stop, dtype=np.int64))
        seen = {name: self._columns[name].slice(position, stop) for name in self._shown}
        self.records = Records({**seen, TRACED: numbers}, len(elements))
        if self._signs is not None:
            signs = self._signs[position:stop]
            bundle = replace(bundle, signs=signs if kept is None else signs[kept])
        return bundle, elements if kept is None else [elements[row] for row in kept.tolist()]


def _named(aggregate: Aggregates) -> dict[str, AggregateSpec]:
    specs = dict(aggregate) if isinstance(aggregate, Mapping) else {"value": aggregate}
    return {name: checked_aggregate(name, spec) for name, spec in specs.items()}


def _read(element: ScenarioElement, name: str) -> Any:
    return element.value if name == "value" else element.columns.get(name)


def column_of(values: list[Any]) -> Column:
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


def _late_records(late: LateBatch, elements: Sequence[ScenarioElement]) -> Iterator[LateRecord]:
    for index, window, reason in zip(
        late.element.tolist(), late.windows(), late.reason.tolist(), strict=True
    ):
        element = elements[index]
        yield LateRecord(
            value=element.record,
            time=element.time,
            key=element.key,
            window=window,
            watermark=Instant(late.watermark),
            reason=REASONS[reason],
        )
