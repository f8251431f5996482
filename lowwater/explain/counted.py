"""Explains, from a trace, which windows of a number of records have a record."""

from __future__ import annotations

from collections.abc import Iterator

from lowwater.display.text import counted
from lowwater.engine.graph.trace import StageTrace, TracedElement
from lowwater.explain.text import Times, values_text


def counted_lines(stage: StageTrace, element: TracedElement, times: Times) -> Iterator[str]:
    """Yield lines on the windows that have an element, and their panes (C-1, C-3)."""
    windows = stage.counting
    if windows is None or element.outcome not in ("kept", "late"):
        return
    if stage.sample is not None or stage.is_resumed:
        yield (
            "  which windows have it depends on all records before it, and the trace does not "
            "have them all"
        )
        return
    own = [one for one in stage.elements if one.key == element.key and one.outcome == "kept"]
    nth = next((at for at, one in enumerate(own) if one is element), None)
    if nth is None:
        return
    panes = [pane for pane in stage.panes if pane.key == element.key]
    full = max(0, (len(own) - windows.count) // windows.step + 1)
    yield f"  it is record {nth + 1} of its key, by arrival"
    lowest = max(0, (nth - windows.count) // windows.step + 1)
    for number in range(lowest, nth // windows.step + 1):
        first = number * windows.step
        which = f"window of records {first + 1} to {first + windows.count}"
        if number < full:
            pane = panes[number]
            yield (
                f"  {times.clock(pane.emitted_at)}  {pane.timing} pane of the {which} contains it: "
                f"{values_text(dict(pane.values))}"
            )
        elif len(panes) > full:
            yield f"  the {which} was not full as the input ended, and came out as it was"
        else:
            left = first + windows.count - len(own)
            yield f"  the {which} waits for {counted(left, 'more record')}"
