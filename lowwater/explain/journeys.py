"""Follows an element through a stage, and its panes through the downstream stages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

from lowwater.display.text import counted, shown
from lowwater.engine.graph.trace import StageTrace, Trace, TracedElement
from lowwater.engine.graph.traced_parts import is_sampled
from lowwater.engine.records.panes import Pane
from lowwater.explain.lineage import Lineage
from lowwater.explain.partners import partner_lines
from lowwater.explain.text import Explanation, Times, element_text, values_text
from lowwater.explain.timers import timer_lines
from lowwater.time import format_duration, rounded_up, saturating_add


@final
class Origins:
    """Indexes the elements of stages by the record or pane they derive from. O(elements).

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
        """Return the elements derived from a record or pane, with stage names, in order. O(1).

        Args:
            origin: The name of the source or stage.
            number: The index of its record or pane.
        """
        return self._of.get((origin, number), [])


MOST = 10
"""The most elements to describe: of those asked for, and in each downstream stage."""


@final
class Journeys:
    """Describes what happened to the elements of a trace. Built in O(elements + merges + panes).

    Args:
        trace: The trace.
        stage: The only stage to describe; all by default.

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
        """Return the elements derived from a record or pane; see :meth:`Origins.made_of`."""
        return self._origins.made_of(origin, number)

    @property
    def is_sample(self) -> bool:
        """Whether the trace lacks elements of a stage to describe."""
        return any(stage.sample is not None for stage in self.stages)

    def may_lack(self, source: str, number: int) -> list[str]:
        """Return the stages that may have received a record, but whose sample cannot contain it."""
        return [
            stage.name
            for stage in self._trace.stages
            if source in stage.inputs and not _is_drawn(stage, number)
        ]

    def knows_origins_of(self, source: str) -> bool:
        """Whether the origin of every element that derives from a source is known."""
        return not any(
            self._lineages[stage.name].has_strangers
            for stage in self._trace.stages
            if source in stage.inputs
        )

    def elements_of(self, stage: str, element: TracedElement) -> list[tuple[str, TracedElement]]:
        """Return the elements to describe: this one, or those of its panes in the chosen stage."""
        if self._only is None or stage == self._only:
            return [(stage, element)]
        return [
            (arrival.stage.name, one)
            for arrival in self._arrivals(stage, element)
            if arrival.stage.name == self._only
            for one in arrival.elements
        ]

    def panes(self, stage: str, element: TracedElement) -> list[Pane]:
        """Return the panes of a stage that contain an element, in order."""
        return self._lineages[stage].showing(element)

    def of(self, stage: str, element: TracedElement) -> Explanation:
        """Describe what happened to an element in a stage, and to its panes downstream."""
        lineage = self._lineages[stage]
        lines = list(_lines(lineage, element))
        elements, panes = [element], self.panes(stage, element)
        for arrival in self._arrivals(stage, element):
            later = arrival.stage
            lines.append(f"  {_whose(arrival.given, stage)} were sent to `{later.name}`")
            if self._only is not None:
                continue
            lines += _downstream_lines(
                self._lineages[later.name],
                arrival.elements,
                len(self._trace.errors),
                arrival.unkept,
            )
            elements += arrival.elements
            panes += [later.panes[number] for number in arrival.panes]
        return Explanation(tuple(lines), tuple(elements), tuple(panes))

    def _arrivals(self, stage: str, element: TracedElement) -> Iterator[_Arrival]:
        """Yield each downstream stage that read panes which contain an element, in order."""
        reached = {stage: _handed_on(self._lineages[stage], [element])}
        for later in self._trace.stages:
            given = [name for name in later.inputs if reached.get(name)]
            if not given:
                continue
            found: list[TracedElement] = []
            unkept = 0
            for name in given:
                for number in reached[name]:
                    made = [one for of, one in self.made_of(name, number) if of == later.name]
                    unkept += not made and not _is_drawn(later, number)
                    found += made
            reached[later.name] = _handed_on(self._lineages[later.name], found)
            yield _Arrival(later, given, found, reached[later.name], unkept)


@final
@dataclass(frozen=True, slots=True)
class _Arrival:
    """A stage that read panes which contain an element.

    Args:
        stage: The stage.
        given: The stages that emitted the panes.
        elements: The panes as elements of this stage.
        panes: The panes of this stage that contain them.
        unkept: How many of the panes may have arrived, but cannot be in the sample of the stage.
    """

    stage: StageTrace
    given: list[str]
    elements: list[TracedElement]
    panes: list[int]
    unkept: int


def _is_drawn(stage: StageTrace, number: int) -> bool:
    """Return whether a stage has all elements that derive from a record or pane."""
    return stage.sample is None or is_sampled(number, stage.sample.thinning)


def _handed_on(lineage: Lineage, elements: Sequence[TracedElement]) -> list[int]:
    """Return the panes of a stage that contain any of these elements, and their retractions."""
    shown = dict.fromkeys(number for one in elements for number in lineage.shown_in(one))
    gone = [lineage.taken_back(number) for number in shown]
    return sorted({*shown, *(number for number in gone if number is not None)})


def _whose(given: Sequence[str], first: str) -> str:
    if list(given) == [first]:
        return "its panes"
    return f"panes of {' and '.join(f'`{name}`' for name in given)} that contain it"


def _downstream_lines(
    lineage: Lineage, elements: Sequence[TracedElement], errors: int, unkept: int
) -> Iterator[str]:
    """Describe what happened to panes in a downstream stage.

    ``errors`` is the number of dead letters of the run, in case panes are unaccounted for, and
    ``unkept`` the number of panes that the sample of the stage cannot contain.
    """
    for element in elements[:MOST]:
        for line in _lines(lineage, element):
            yield f"    {line}"
    if (more := len(elements) - MOST) > 0:
        yield f"    … and {counted(more, 'element')} more"
    if unkept:
        yield f"    the sample of the stage does not contain {counted(unkept, 'pane')}"
    elif not elements:
        yield (
            "    its elements cannot be traced back to them"
            if lineage.has_strangers
            else "    a step dropped them"
            + (f", or they became dead letters: the run has {errors:,}" if errors else "")
        )


def _lines(lineage: Lineage, element: TracedElement) -> Iterator[str]:
    """Describe what happened to an element in one stage."""
    stage, times = lineage.stage, Times.of(element.time)
    panes = lineage.showing(element)
    what = "retraction of " if element.retract else ""
    yield (
        f"{what}{element_text(element.values)} at {times.at(element.time)} on {times.day}, "
        f"key {shown(element.key)}"
    )
    yield (
        f"  {times.clock(element.clock)}  it reached stage `{stage.name}`, where the watermark was "
        f"{times.at(element.watermark)}"
    )
    if element.outcome == "duplicate":
        yield "  dropped as a duplicate: its id had arrived before"
        return
    if element.reason is not None:
        yield f"  {_dropped(stage, element, times)}"
    for window in element.windows:
        now = lineage.became(element.key, window, element.order)
        then = "" if now == window else f", which merged into {times.window(now)}"
        yield f"  it was assigned to window {times.window(window)}{then}"
    for pane in panes:
        yield (
            f"  {times.clock(pane.emitted_at)}  {pane.timing} #{pane.index} of "
            f"{times.window(pane.window)} contains it: {values_text(dict(pane.values))}"
        )
    if element.windows and not panes and stage.aggregates:
        yield "  no pane contains it yet: see explain(key, window)"
    if stage.joining is not None:
        yield from partner_lines(stage, element, times)
    elif stage.matching is not None:
        from lowwater.explain.matches import row_lines

        yield from row_lines(stage, lineage.histories(), element, times)
    elif stage.ranging is not None:
        from lowwater.explain.ranges import range_lines

        yield from range_lines(stage, element, times)
    elif stage.counting is not None:
        from lowwater.explain.counted import counted_lines

        yield from counted_lines(stage, element, times)
    elif not stage.aggregates and element.reason is None:
        lines = list(timer_lines(stage, element, times))
        yield from lines
        if stage.windowing is None and not lines:
            yield "  it was received; a trace does not record cells of processes, nor tables"


def _dropped(stage: StageTrace, element: TracedElement, times: Times) -> str:
    windows = ", ".join(times.window(window) for window in element.dropped)
    if element.reason == "unwindowed":
        return "dropped (unwindowed): no window contains its event time"
    if element.reason == "refused":
        return "dropped (refused): the process did, with ctx.late"
    if element.reason == "too_late":
        late_by = element.watermark - element.time
        return (
            f"dropped (too_late): it was {format_duration(late_by)!r} below the watermark; "
            f"{rounded_up(late_by)!r} would have admitted it"
        )
    if element.reason == "closed":
        return f"dropped from {windows} (closed): the trigger had already finished"
    lateness = 0 if stage.windowing is None else stage.windowing.lateness_us
    last = max(window.end for window in element.dropped)
    return (
        f"dropped from {windows} (expired): with allowed_lateness={format_duration(lateness)!r} it "
        f"expired at {times.at(saturating_add(last, lateness))}; "
        f"{rounded_up(element.watermark - last + 1)!r} would have admitted the element"
    )
