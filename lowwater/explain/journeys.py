"""What became of an element in a stage, and of the panes that show it in the stages behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

from lowwater.engine.panes import Pane
from lowwater.engine.trace import StageTrace, Trace, TracedElement
from lowwater.explain.lineage import Lineage
from lowwater.explain.origins import Origins
from lowwater.explain.text import Explanation, Times, counted, element_text, rounded_up, shown
from lowwater.time import format_duration, saturating_add

MOST = 10
"""So many elements are told of at most: of those asked for, and in each stage behind them."""


@final
class Journeys:
    """Tells of the elements of a trace. Built in O(elements + merges + panes).

    Args:
        trace: The trace.
        stages: The stages to look at, all of the trace's or some, each behind those it reads.
    """

    def __init__(self, trace: Trace, stages: Sequence[StageTrace]) -> None:
        self.stages = stages
        self._trace = trace
        self._lineages = {stage.name: Lineage(stage) for stage in stages}
        self._origins = Origins(stages)

    def made_of(self, origin: str, number: int) -> list[tuple[str, TracedElement]]:
        """Return the elements of a record or a pane; see :meth:`Origins.made_of`."""
        return self._origins.made_of(origin, number)

    def panes(self, stage: str, element: TracedElement) -> list[Pane]:
        """Return the panes of a stage that show an element of it, in order."""
        return self._lineages[stage].showing(element)

    def of(self, stage: str, element: TracedElement) -> Explanation:
        """Return what became of an element of a stage there, and of its panes behind it."""
        lineage = self._lineages[stage]
        lines = list(_lines(lineage, element))
        elements, panes = [element], self.panes(stage, element)
        reached = {stage: _handed_on(lineage, [element])}
        for later in self._trace.stages:
            given = [name for name in later.inputs if reached.get(name)]
            if not given:
                continue
            lines.append(f"  {_whose(given, stage)} went on to `{later.name}`")
            if later.name not in self._lineages:
                continue
            found = [
                one
                for name in given
                for number in reached[name]
                for of, one in self.made_of(name, number)
                if of == later.name
            ]
            behind = self._lineages[later.name]
            lines += _told(behind, found)
            elements += found
            reached[later.name] = _handed_on(behind, found)
            panes += [later.panes[number] for number in reached[later.name]]
        return Explanation(tuple(lines), tuple(elements), tuple(panes))


def _handed_on(lineage: Lineage, elements: Sequence[TracedElement]) -> list[int]:
    """Return which panes of a stage show any of these elements, or take such a pane back."""
    shown = dict.fromkeys(number for one in elements for number in lineage.shown_in(one))
    gone = [lineage.taken_back(number) for number in shown]
    return sorted({*shown, *(number for number in gone if number is not None)})


def _whose(given: Sequence[str], first: str) -> str:
    if list(given) == [first]:
        return "its panes"
    return f"panes of {' and '.join(f'`{name}`' for name in given)} with it"


def _told(lineage: Lineage, elements: Sequence[TracedElement]) -> Iterator[str]:
    """Yield what became of panes in a stage behind theirs."""
    for element in elements[:MOST]:
        for line in _lines(lineage, element):
            yield f"    {line}"
    if (more := len(elements) - MOST) > 0:
        yield f"    … and {counted(more, 'element')} more"
    if not elements:
        unknown = any(not (one.origins or one.pane) for one in lineage.stage.elements)
        yield (
            "    which of its elements they are is not known"
            if unknown
            else "    no step has kept them"
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
    if element.fate == "duplicate":
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
