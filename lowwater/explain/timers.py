"""Describes the timers that a process set for a record, and what became of them."""

from __future__ import annotations

from collections.abc import Iterator

from lowwater.display.text import shown
from lowwater.engine.graph.trace import StageTrace, TracedElement, TracedTimer
from lowwater.explain.text import Times


def timer_lines(stage: StageTrace, element: TracedElement, times: Times) -> Iterator[str]:
    """Yield what a process did with timers at a record, and what came of it. O(timer events).

    Args:
        stage: The trace of the process.
        element: The record, one of its elements.
        times: Formats times.
    """
    of_key = [one for one in stage.timers if one.key == element.key]
    for number, one in enumerate(of_key):
        if one.what == "fired" or one.time != element.time or one.order < element.order:
            continue
        if one.what == "cleared":
            yield f"  it cleared {_name(one, times)}, which was set to {times.at(one.at)}"
            continue
        yield f"  it set {_name(one, times)} to {times.at(one.at)}"
        later = (two for two in of_key[number + 1 :] if _is_same(one, two))
        yield f"  {_fate(next(later, None), times)}"


def _is_same(one: TracedTimer, other: TracedTimer) -> bool:
    return (one.name, one.tag, one.window) == (other.name, other.tag, other.window)


def _name(one: TracedTimer, times: Times) -> str:
    tag = "" if one.tag is None else f" with tag {shown(one.tag)}"
    window = "" if one.window is None else f" of {times.window(one.window)}"
    return f"timer `{one.name}`{tag}{window}"


def _fate(next_one: TracedTimer | None, times: Times) -> str:
    """Describe what happened to a timer that was set, given what happened to it next."""
    if next_one is None:
        return "it was still set when the run ended, or it went with its window"
    when = times.clock(next_one.clock)
    if next_one.what == "fired":
        return f"{when}  it fired, with the watermark at {times.at(next_one.watermark)}"
    by = f"by what came at {times.at(next_one.time)}"
    if next_one.what == "cleared":
        return f"{when}  it was cleared {by}, before it fired"
    return f"{when}  it was set anew {by}, to {times.at(next_one.at)}, before it fired"
