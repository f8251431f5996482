"""Runs a pipeline with numbered elements, so that panes report which elements they contain.

In front of the stage that is looked at, a step numbers what comes; beside the user's aggregates,
the stage keeps the numbers. What the stage took is put through its own gate a second time, so that
it is known which windows each element was assigned to, whatever the engine made of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np

from lowwater.engine.aggregates import AggregateSpec, collect, count
from lowwater.engine.graph.graph import Graph, Read, Stage, admission_of
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import LateRecord, Pane
from lowwater.engine.records.stepping import StepKind, Stepped
from lowwater.engine.stages.windowed import Windowed
from lowwater.engine.window.windowing import Accumulation, Windowing
from lowwater.pipeline import Pipeline
from lowwater.pipeline.outcomes import Outcomes
from lowwater.testing.replay import ground
from lowwater.testing.scenario import Scenario
from lowwater.time import Instant
from lowwater.watermark import External
from lowwater.windows import Window

NUMBER = "#"
"""The column and the aggregate of elements' numbers."""


@final
@dataclass(frozen=True, slots=True)
class ProbedElement:
    """An element that arrived at a stage.

    Args:
        number: Its number, in order of arrival at the stage.
        record: Its columns.
        time: Its event time.
        windows: The (proto-)windows it was assigned to.
        watermark: The input watermark when it came; ``None`` behind another stage.
    """

    number: int
    record: Mapping[str, Any]
    time: int
    windows: tuple[Window, ...]
    watermark: int | None


@final
@dataclass(frozen=True, slots=True)
class Probed:
    """The input and output of one stage for a scenario.

    Args:
        scenario: What arrived when.
        name: What the stage is called.
        windowing: Its windowing.
        aggregates: The user's aggregates.
        panes: Its panes, in order, with the user's values alone.
        numbers: The numbers of the elements that each pane shows, in order of arrival; empty where
            elements were not numbered.
        held: How many elements each pane shows.
        late: What it dropped.
        late_numbers: The number of each of these.
        late_before: What stages before it dropped.
        taken: What it took, by number.
        unusable: The numbers of dead letters at its gate.
        dead_letters: The numbers of those that the run gave.
        duplicates: How many duplicates it dropped.
    """

    scenario: Scenario
    name: str
    windowing: Windowing
    aggregates: Mapping[str, AggregateSpec]
    panes: Sequence[Pane]
    numbers: Sequence[tuple[int, ...]]
    held: Sequence[int]
    late: Sequence[LateRecord]
    late_numbers: Sequence[int]
    late_before: Sequence[LateRecord]
    taken: Mapping[int, ProbedElement]
    unusable: frozenset[int]
    dead_letters: Counter[int]
    duplicates: int

    def shown(self) -> Iterator[tuple[Pane, tuple[int, ...]]]:
        """Yield each pane with the numbers of the elements it contains."""
        return zip(self.panes, self.numbers, strict=True)


def windowed_stages(pipeline: Pipeline) -> list[Stage]:
    """Return the windowed stages in topological order."""
    stages = Graph.of([pipeline._stage]).stages
    return [stage for stage in stages if stage.work.emits_panes]


def probe(
    pipeline: Pipeline,
    scenario: Scenario,
    *,
    accumulation: Accumulation | None = None,
    numbered: bool = True,
) -> Probed:
    """Run a scenario through a pipeline; return the input and output of its last stage.

    Args:
        pipeline: The pipeline.
        scenario: What arrives when.
        accumulation: Another accumulation for the last stage; its own if left out.
        numbered: Whether elements are numbered: not where they may be taken back.
    """
    grounded = ground(pipeline, scenario)
    stage = grounded.pipeline._stage
    work = stage.work
    assert isinstance(work, Windowed)
    windowing = work.windowing
    if accumulation is not None:
        windowing = windowing.with_(accumulation=accumulation)
    aggregates = dict(work.aggregates)
    tap = _Tap(grounded.watermark)
    if numbered:
        flows = tuple(replace(f, steps=(*f.steps, tap.on(at))) for at, f in enumerate(stage.inputs))
        stage = replace(stage, inputs=flows)
    aggregates[NUMBER] = collect(NUMBER) if numbered else count()
    stage = replace(stage, work=Windowed(windowing, aggregates))
    graph = Graph.of([stage])
    panes: list[Pane] = []
    late: list[LateRecord] = []
    before: list[LateRecord] = []
    dead_letters: Counter[int] = Counter()
    run = Outcomes((stage,), grounded.options, tells_late=False)  # a law is told of them here
    for outcome in run:
        mine = outcome.stage == len(graph.stages) - 1
        panes.extend(outcome.panes or ())
        if outcome.late is not None:
            (late if mine else before).extend(outcome.late.to_records())
        for error in outcome.errors:
            if isinstance(error.record, Mapping) and NUMBER in error.record:
                dead_letters[error.record[NUMBER]] += 1
    taken = {one.number: one for one in _taken(stage, tap, windowing)}
    return Probed(
        scenario=scenario,
        name=graph.name_of(stage),
        windowing=windowing,
        aggregates=work.aggregates,
        panes=[_without_numbers(pane) for pane in panes],
        numbers=[tuple(pane.values[NUMBER]) if numbered else () for pane in panes],
        held=[len(p.values[NUMBER]) if numbered else p.values[NUMBER] for p in panes],
        late=late,
        late_numbers=[record.value[NUMBER] for record in late] if numbered else [],
        late_before=before,
        taken=taken,
        unusable=frozenset(range(tap.count)) - frozenset(taken),
        dead_letters=dead_letters,
        duplicates=run.metrics.stages[graph.name_of(stage)].duplicates,
    )


@final
class _Tap:
    """Numbers the elements that pass, and keeps them."""

    def __init__(self, watermark: External) -> None:
        self.watermark = watermark
        self.count = 0
        self.batches: list[tuple[int, Records, int]] = []

    def on(self, flow: int) -> _Numbering:
        return _Numbering(self, flow)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Numbering(StepKind):
    """A step that adds the numbers; one for each flow into the stage."""

    tap: _Tap
    flow: int

    method: ClassVar[str] = "number"

    def apply(self, records: Records) -> Stepped:
        tap = self.tap
        numbers = np.arange(tap.count, tap.count + records.length, dtype=np.int64)
        tap.count += records.length
        columns = {**records.columns, NUMBER: Column(numbers)}
        numbered = replace(records, columns=columns)
        tap.batches.append((self.flow, numbered, int(tap.watermark.at)))
        return Stepped(numbered)


def _taken(stage: Stage, tap: _Tap, windowing: Windowing) -> Iterator[ProbedElement]:
    admissions = [admission_of(stage, nth, "dead_letter") for nth in range(len(stage.inputs))]
    for flow, records, watermark in tap.batches:
        admitted = admissions[flow].admit(records)
        bundle = admitted.bundle
        if not len(bundle):
            continue
        windows = windowing.windows
        columns = {name: bundle.values[name].data for name in windows.columns}
        assigned = windows.assign(bundle.times, columns)
        elements = np.arange(len(bundle)) if assigned.element is None else assigned.element
        of: list[list[Window]] = [[] for _ in range(len(bundle))]
        for element, start, end in zip(
            elements.tolist(), assigned.start.tolist(), assigned.end.tolist(), strict=True
        ):
            of[element].append(Window(Instant(start), Instant(end)))
        rows = np.arange(records.length) if admitted.kept is None else admitted.kept
        direct = isinstance(stage.inputs[flow].origin, Read)
        for record, at, found in zip(records.rows(rows), bundle.times.tolist(), of, strict=True):
            known = watermark if direct and len(stage.inputs) == 1 else None
            yield ProbedElement(record[NUMBER], record, at, tuple(found), known)


def _without_numbers(pane: Pane) -> Pane:
    values = {name: value for name, value in pane.values.items() if name != NUMBER}
    return replace(pane, values=values)
