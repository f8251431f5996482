"""The trace of a run as a scenario: the bundles that arrived, and where the watermarks then stood.

A scenario has one watermark for each source as stages saw it, so estimators, idle sources and the
order in which a run reads its sources need not be repeated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from lowwater.engine.graph.graph import Graph, Read
from lowwater.engine.graph.trace import Trace, TracedElement, TracedTurn
from lowwater.engine.graph.traced_parts import TracedRecords
from lowwater.engine.local.trace_parts import ReadPart
from lowwater.engine.records.admit_times import TimeFormat, event_times
from lowwater.engine.records.columns import Column
from lowwater.engine.records.problems import Problems
from lowwater.explain.lineage import Lineage
from lowwater.testing._arrivals import (
    Add,
    ClockMove,
    InputEnd,
    ScenarioElement,
    Step,
    WatermarkMove,
)
from lowwater.testing._inputs import SourcePlace, input_names, place_of
from lowwater.testing.orders import with_steps
from lowwater.testing.scenario import Scenario
from lowwater.time import START_OF_TIME, Instant
from lowwater.windows import Window

Numbers: TypeAlias = Mapping[int, Collection[int]]
"""The numbers of some records, by the number of their source."""


def scenario_of(
    trace: Trace, graph: Graph, numbers: Numbers | None = None, *, every_turn: bool = True
) -> Scenario:
    """Return what arrived in a run as a scenario, with or without the rest of its records.

    Args:
        trace: The trace of the run.
        graph: Its graph.
        numbers: The records to keep; ``None`` for all that the trace has.
        every_turn: Whether to keep the advances of clock and watermarks apart that come between
            two bundles; else there is one of each.
    """
    elements = [
        _elements(trace.read[graph.name_of(read)], read, place_of(graph, read), wanted)
        for read, wanted in (
            (read, None if numbers is None else set(numbers.get(at, ())))
            for at, read in enumerate(graph.reads)
        )
    ]
    return scenario_of_turns(trace.turns, graph, elements, every_turn=every_turn)


def scenario_of_turns(
    turns: Sequence[TracedTurn],
    graph: Graph,
    elements: Sequence[Mapping[int, ScenarioElement]],
    *,
    every_turn: bool = True,
) -> Scenario:
    """Return turns of a run as a scenario.

    Args:
        turns: The turns.
        graph: The graph of the run, whose sources become the inputs.
        elements: The elements of each source, by their numbers.
        every_turn: See :func:`scenario_of`.
    """
    start = turns[0].clock if turns else START_OF_TIME
    names = input_names(graph)
    scenario = Scenario(*(name for name in names if name is not None), start=Instant(start))
    steps = list(_steps(turns, names, graph.reads, elements, start, every_turn=every_turn))
    return with_steps(scenario, steps)


def _steps(
    turns: Sequence[TracedTurn],
    names: Sequence[str | None],
    reads: Sequence[Read],
    elements: Sequence[Mapping[int, ScenarioElement]],
    start: int,
    *,
    every_turn: bool,
) -> Iterator[Step]:
    at = TracedTurn(start, None, 0, 0, (START_OF_TIME,) * len(names), (False,) * len(names))
    waiting: TracedTurn | None = None  # where clock and watermarks are, but not in the scenario yet
    for turn in turns:
        bundle: tuple[ScenarioElement, ...] = ()
        if turn.source is not None:
            of = elements[turn.source]
            bundle = tuple(of[n] for n in range(turn.first, turn.stop) if n in of)
            if reads[turn.source].arrives:
                bundle = tuple(_arrived(one, turn, reads[turn.source]) for one in bundle)
        if bundle:
            if waiting is not None:
                yield from _moves(at, waiting, names)
                at = waiting
            to = None if turn.source is None else names[turn.source]
            clock = Instant(turn.clock) if turn.clock > at.clock else None
            mark, own = None, turn.source or 0
            if turn.watermarks[own] > at.watermarks[own] and not turn.ended[own]:
                mark = Instant(turn.watermarks[own])
            yield Add(bundle, clock, to, mark)
            marks = list(at.watermarks)
            marks[own] = max(marks[own], turn.watermarks[own]) if mark else marks[own]
            at = at._replace(clock=max(at.clock, turn.clock), watermarks=tuple(marks))
        waiting = turn
        if every_turn:
            yield from _moves(at, waiting, names)
            at, waiting = waiting, None
    if waiting is not None:
        yield from _moves(at, waiting, names)


def _arrived(element: ScenarioElement, turn: TracedTurn, read: Read) -> ScenarioElement:
    """Return an element with the event time of its bundle, the clock (S-T5).

    The source does not have it, unless as a field of nulls.
    """
    value = element.value
    if isinstance(value, dict):
        value = {name: one for name, one in value.items() if name != read.time}
    return replace(element, time=Instant(turn.clock), value=value)


def _moves(before: TracedTurn, now: TracedTurn, names: Sequence[str | None]) -> Iterator[Step]:
    """Yield the advances between two turns."""
    clock = Instant(now.clock) if now.clock > before.clock else None
    sources = range(len(names))
    over = [at for at in sources if now.ended[at] and not before.ended[at]]
    moved: defaultdict[int, list[int]] = defaultdict(list)
    for at in sources:
        if now.watermarks[at] > before.watermarks[at] and not now.ended[at]:
            moved[now.watermarks[at]].append(at)
    for to, which in moved.items():
        for of in [None] if len(which) == len(names) else [names[at] for at in which]:
            yield WatermarkMove(Instant(to), clock, of)
            clock = None
    for of in [None] if len(over) == len(names) else [names[at] for at in over]:
        yield InputEnd(clock, of)
        clock = None
    if clock is not None:
        yield ClockMove(clock)


def _elements(
    records: Sequence[Any], read: Read, place: SourcePlace, wanted: Collection[int] | None
) -> dict[int, ScenarioElement]:
    """Return records of a source as elements, by their numbers."""
    assert isinstance(records, TracedRecords)
    found: dict[int, ScenarioElement] = {}
    for part in records.parts:
        assert isinstance(part, ReadPart)
        numbers = part.numbers.tolist()
        rows = [at for at, number in enumerate(numbers) if wanted is None or number in wanted]
        if not rows:
            continue
        values = part.some(rows)
        times = _times(part.records.columns.get(place.time), read.times)
        for row, value in zip(rows, values, strict=True):
            at = None if times is None else times[row]
            found[numbers[row]] = element_of(value, at, place)
    return found


def element_of(record: Any, time: Any, place: SourcePlace) -> ScenarioElement:
    """Return a record of a source as an element."""
    if not isinstance(record, dict):
        return ScenarioElement(record, time, None, {})
    # It keeps the event time as the source wrote it, which steps may read and joins emit.
    value, key = dict(record), None
    if place.keys and value.get(place.keys[0]) is not None:
        key = value.pop(place.keys[0])
    return ScenarioElement(value, time, key, {})


def _times(column: Column | None, format: TimeFormat) -> list[Any] | None:
    """Return event times as instants, and unreadable ones as they are."""
    if column is None:
        return None
    problems = Problems()
    times: list[Any] = [Instant(at) for at in event_times(column, "time", problems, format)]
    if problems.found:
        values = column.to_list()
        for row in problems.rows().tolist():
            times[row] = values[row]
    return times


# -- the records that a window is made of --------------------------------------------------------


def records_behind(
    trace: Trace, sources: Sequence[str], key: Any, windows: Collection[Window] | None
) -> Numbers | None:
    """Return the records that reached some windows of a key in the last stage, through all stages.

    Args:
        trace: The trace.
        sources: The names of the sources, in order.
        key: The key.
        windows: The windows; ``None`` for all elements of the key.

    Returns:
        Their numbers; ``None`` if a step or a process hides which records an element is made of.
    """
    lineages = {stage.name: Lineage(stage) for stage in trace.stages}
    found: dict[int, set[int]] = {at: set() for at in range(len(sources))}
    waiting = _elements_of(lineages[trace.stages[-1].name], key, windows)
    seen: set[tuple[str, int]] = set()
    while waiting:
        element = waiting.pop()
        if not element.origins and element.pane is None:
            return None
        for source, number in element.origins:
            found[sources.index(source)].add(number)
        if element.pane is not None and element.pane not in seen:
            seen.add(element.pane)
            lineage = lineages[element.pane[0]]
            pane = lineage.stage.panes[element.pane[1]]
            waiting += _elements_of(lineage, pane.key, {pane.window})
    return found


def _elements_of(
    lineage: Lineage, key: Any, windows: Collection[Window] | None
) -> list[TracedElement]:
    """Return the elements that were in a window, or were dropped from it, and those it merged."""
    if windows is None or lineage.stage.windowing is None:
        return lineage.of_key(key)
    found = [
        element
        for window in windows
        for some in (
            lineage.elements(key, window),
            lineage.passing(key, window),
            lineage.dropped(key, window),
        )
        for element in some
    ]
    return list({id(element): element for element in found}.values())
