"""What became of an element in a stage, and of the panes that show it in the stages behind it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

from lowwater.engine.graph.trace import StageTrace, Trace, TracedElement
from lowwater.engine.records.panes import Pane
from lowwater.explain.lineage import Lineage
from lowwater.explain.text import Explanation, Times, counted, element_text, rounded_up, shown
from lowwater.time import format_duration, saturating_add


@final
class Origins:
    """The elements of some stages by what they are made of. Built in O(elements).

    Args:
        stages: The traces of the stages.
    """

    def __init__(self, stages: Iterable[StageTrace]) -> None:
        self._of: defaultdict[tuple[str, int], list[tuple[str, TracedElement]]] = defaultdict(list)
        for stage in stages:
            for element in stage.elements:
                for origin in element.origins:
                    self._of[origin].append((stage.name, element))
                if element.pane is not None:
                    self._of[element.pane].append((stage.name, element))

    def made_of(self, origin: str, number: int) -> list[tuple[str, TracedElement]]:
        """Return the elements, each with the name of its stage, in the order of the stages. O(1).

        Args:
            origin: The name of the source, or of the stage.
            number: Which of its records, or of its panes.
        """
        return self._of.get((origin, number), [])


MOST = 10
"""So many elements are told of at most: of those asked for, and in each stage behind them."""


@final
class Journeys:
    """Tells of the elements of a trace. Built in O(elements + merges + panes).

    Args:
        trace: The trace.
        stage: The one stage to tell of; all unless given.

    Raises:
        InvalidArgument: There is no such stage.
    """

    def __init__(self, trace: Trace, stage: str | None = None) -> None:
        self.stages: tuple[StageTrace, ...] = (
            trace.stages if stage is None else (trace.stage(stage),)
        )
        self._only = stage
        self._trace = trace
        self._lineages = {each.name: Lineage(each) for each in trace.stages}
        self._origins = Origins(trace.stages)

    def made_of(self, origin: str, number: int) -> list[tuple[str, TracedElement]]:
        """Return the elements of a record or a pane; see :meth:`Origins.made_of`."""
        return self._origins.made_of(origin, number)

    def knows_all_of(self, source: str) -> bool:
        """Whether what stages got of a source is known to be made of which of its records."""
        return not any(
            self._lineages[stage.name].has_strangers
            for stage in self._trace.stages
            if source in stage.inputs
        )

    def told_of(self, stage: str, element: TracedElement) -> list[tuple[str, TracedElement]]:
        """Return what there is to tell of an element: itself, or its panes' in the one stage."""
        if self._only is None or stage == self._only:
            return [(stage, element)]
        return [
            (arrival.stage.name, one)
            for arrival in self._arrivals(stage, element)
            if arrival.stage.name == self._only
            for one in arrival.elements
        ]

    def panes(self, stage: str, element: TracedElement) -> list[Pane]:
        """Return the panes of a stage that show an element of it, in order."""
        return self._lineages[stage].showing(element)

    def of(self, stage: str, element: TracedElement) -> Explanation:
        """Return what became of an element of a stage there, and of its panes behind it."""
        lineage = self._lineages[stage]
        lines = list(_lines(lineage, element))
        elements, panes = [element], self.panes(stage, element)
        for arrival in self._arrivals(stage, element):
            later = arrival.stage
            lines.append(f"  {_whose(arrival.given, stage)} went on to `{later.name}`")
            if self._only is not None:
                continue
            lines += _told(self._lineages[later.name], arrival.elements, len(self._trace.errors))
            elements += arrival.elements
            panes += [later.panes[number] for number in arrival.panes]
        return Explanation(tuple(lines), tuple(elements), tuple(panes))

    def _arrivals(self, stage: str, element: TracedElement) -> Iterator[_Arrival]:
        """Yield each stage behind that was given panes which show an element, in order."""
        reached = {stage: _handed_on(self._lineages[stage], [element])}
        for later in self._trace.stages:
            given = [name for name in later.inputs if reached.get(name)]
            if not given:
                continue
            found = [
                one
                for name in given
                for number in reached[name]
                for of, one in self.made_of(name, number)
                if of == later.name
            ]
            reached[later.name] = _handed_on(self._lineages[later.name], found)
            yield _Arrival(later, given, found, reached[later.name])


@final
@dataclass(frozen=True, slots=True)
class _Arrival:
    """A stage that was given panes which show an element.

    Args:
        stage: The stage.
        given: The stages whose panes they are.
        elements: What they are there.
        panes: Which of its own panes show those.
    """

    stage: StageTrace
    given: list[str]
    elements: list[TracedElement]
    panes: list[int]


def _handed_on(lineage: Lineage, elements: Sequence[TracedElement]) -> list[int]:
    """Return which panes of a stage show any of these elements, or take such a pane back."""
    shown = dict.fromkeys(number for one in elements for number in lineage.shown_in(one))
    gone = [lineage.taken_back(number) for number in shown]
    return sorted({*shown, *(number for number in gone if number is not None)})


def _whose(given: Sequence[str], first: str) -> str:
    if list(given) == [first]:
        return "its panes"
    return f"panes of {' and '.join(f'`{name}`' for name in given)} with it"


def _told(lineage: Lineage, elements: Sequence[TracedElement], errors: int) -> Iterator[str]:
    """Yield what became of panes in a stage behind theirs, in a run with so many dead letters."""
    for element in elements[:MOST]:
        for line in _lines(lineage, element):
            yield f"    {line}"
    if (more := len(elements) - MOST) > 0:
        yield f"    … and {counted(more, 'element')} more"
    if not elements:
        yield (
            "    which of its elements they are is not known"
            if lineage.has_strangers
            else "    no step has kept them"
            + (f", or they became dead letters: the run has {errors:,}" if errors else "")
        )


def _lines(lineage: Lineage, element: TracedElement) -> Iterator[str]:
    """Yield what became of an element in one stage."""
    stage, times = lineage.stage, Times.of(element.time)
    panes = lineage.showing(element)
    what = "taken back: " if element.retract else ""
    yield (
        f"{what}{element_text(element.values)} at {times.at(element.time)} on {times.day}, "
        f"key {element.key!r}"
    )
    yield (
        f"  {times.at(element.clock)}  it came to stage `{stage.name}`, where the watermark was "
        f"{times.at(element.watermark)}"
    )
    if element.outcome == "duplicate":
        yield "  dropped as a duplicate: its id was seen before"
        return
    if element.reason is not None:
        yield f"  {_dropped(stage, element, times)}"
    for window in element.windows:
        now = lineage.became(element.key, window, element.order)
        then = "" if now == window else f", which merged into {times.window(now)}"
        yield f"  it went into window {times.window(window)}{then}"
    for pane in panes:
        yield (
            f"  {times.at(pane.emitted_at)}  {pane.timing} #{pane.index} of "
            f"{times.window(pane.window)} shows it: {shown(dict(pane.values))}"
        )
    if element.windows and not panes and stage.aggregates:
        yield "  no pane has shown it yet: ask explain(key, window)"
    if stage.windowing is None:
        yield "  it went to the process, whose state is its own"


def _dropped(stage: StageTrace, element: TracedElement, times: Times) -> str:
    windows = ", ".join(times.window(window) for window in element.dropped)
    if element.reason == "unwindowed":
        return "dropped, unwindowed: it falls between the windows"
    if element.reason == "closed":
        return f"dropped from {windows}, closed: the trigger had finished"
    lateness = 0 if stage.windowing is None else stage.windowing.lateness_us
    last = max(window.end for window in element.dropped)
    return (
        f"dropped from {windows}, expired: kept until "
        f"{times.at(saturating_add(last, lateness))} with allowed_lateness="
        f"{format_duration(lateness)!r}; {rounded_up(element.watermark - last + 1)!r} would have "
        "taken it"
    )
