"""A scenario as lines of text: event time to the right, what happens downwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from lowwater.engine.records.panes import Pane
from lowwater.testing._arrivals import Add, ClockMove, InputEnd, Step, WatermarkMove
from lowwater.testing._moments import show
from lowwater.testing.scenario import Scenario
from lowwater.time import Instant

_WIDTH = 48


def timeline(scenario: Scenario, panes: Sequence[Pane] = ()) -> str:
    """Return the scenario as text, a line per step, and below it the panes.

    Elements are ``o`` at their event times, or their number where several are at one place; the
    watermark is ``|``; what is below it is dotted. Panes are ``[===)`` over their windows.

    >>> scenario = Scenario().add((5, "12:00:26", "A")).watermark("12:00:50")
    >>> print(timeline(scenario.add((7, "12:00:40", "A"))))
    12:00:26                                12:00:50
    o                                                add 5@A
    ...............................................| watermark 12:00:50
    ...........................o...................| add 7@A late
    """
    points = _points(scenario)
    if not points:
        return ""
    low, high = min(points), max(points)
    scale = _Scale(low, high)
    left, right = str(show(low)), str(show(high))
    lines = [left + right.rjust(_WIDTH - len(left))]
    watermark = int(scenario.watermark_at_start)
    for step in scenario.steps:
        if isinstance(step, WatermarkMove):
            watermark = max(watermark, int(step.to))
        lines.append(f"{_line(step, scale, watermark)} {_said(step, watermark)}".rstrip())
    lines.extend(f"{_box(pane, scale)} {_pane_said(pane)}" for pane in panes)
    return "\n".join(lines)


class _Scale:
    def __init__(self, low: int, high: int) -> None:
        self._low, self._span = low, max(high - low, 1)

    def place(self, at: int) -> int:
        """Return the column of an instant, within the picture."""
        return min(max((at - self._low) * (_WIDTH - 1) // self._span, 0), _WIDTH - 1)

    def behind(self, at: int) -> bool:
        return at < self._low


def _points(scenario: Scenario) -> list[int]:
    times = [int(e.time) for e in scenario.elements if isinstance(e.time, Instant)]
    moves = [int(step.to) for step in scenario.steps if isinstance(step, WatermarkMove)]
    # A watermark far from all elements would leave no room for these.
    reach = (max(times) - min(times)) // 2 + 10_000_000 if times else 0
    near = [at for at in moves if times and min(times) - reach <= at <= max(times) + reach]
    return times + near


def _line(step: Step, scale: _Scale, watermark: int) -> str:
    cells = [" "] * _WIDTH
    if not scale.behind(watermark):
        at = scale.place(watermark)
        cells[:at] = ["."] * at
        cells[at] = "|"
    if isinstance(step, Add):
        count: dict[int, int] = {}
        for element in step.elements:
            if isinstance(element.time, Instant):
                place = scale.place(int(element.time))
                count[place] = count.get(place, 0) + 1
        for place, number in count.items():
            cells[place] = "o" if number == 1 else str(min(number, 9))
    return "".join(cells)


def _said(step: Step, watermark: int) -> str:
    at = "" if step.at is None else f" at {show(step.at)}"
    match step:
        case Add(elements):
            texts = [
                f"{e.value!r}@{e.key}"
                + (" late" if isinstance(e.time, Instant) and e.time < watermark else "")
                for e in elements
            ]
            return "add " + ", ".join(texts) + at
        case WatermarkMove(to):
            return f"watermark {show(to)}{at}"
        case ClockMove():
            return f"clock {show(step.at)}"
        case InputEnd():
            return f"end{at}"
        case _:
            assert_never(step)


def _box(pane: Pane, scale: _Scale) -> str:
    start, stop = scale.place(pane.window.start), scale.place(pane.window.max_timestamp)
    cells = [" "] * _WIDTH
    cells[start : stop + 1] = ["=" if pane.kind == "insert" else "-"] * (stop + 1 - start)
    cells[start] = "["
    cells[stop] = ")" if stop > start else "["
    return "".join(cells)


def _pane_said(pane: Pane) -> str:
    values = ", ".join(str(value) for value in pane.values.values())
    sign = "takes back " if pane.kind == "retract" else ""
    return f"{sign}{values} @{pane.key} {pane.timing} #{pane.index}"
