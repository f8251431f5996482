"""The error for a broken law: the differences, a scenario to reproduce it, and a timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, assert_never, final

from lowwater.engine.records.panes import Pane
from lowwater.testing._arrivals import Add, ClockMove, InputEnd, Step, WatermarkMove
from lowwater.testing._moments import show
from lowwater.testing._text import calls_of
from lowwater.testing.scenario import Scenario
from lowwater.time import Instant
from lowwater.windows import Window

_MOST = 12


@final
class Broken(AssertionError):
    """Raised when a law does not hold.

    Args:
        law: The law, with its rule.
        differences: The differences found, a line each.
        call: The call that reproduces it, with ``scenario`` and ``other`` for the scenarios.
        scenario: What arrived when.
        other: The scenario it was compared with.
        panes: Panes to draw.
    """

    def __init__(
        self,
        law: str,
        differences: Iterable[str],
        *,
        call: str,
        scenario: Scenario | None = None,
        other: Scenario | None = None,
        panes: Sequence[Pane] = (),
    ) -> None:
        lines = list(differences)
        more = [f"... and {len(lines) - _MOST} more"] if len(lines) > _MOST else []
        parts = [law, *(f"  {line}" for line in (*lines[:_MOST], *more))]
        if scenario is not None:
            parts += ["", "To reproduce it:", "", _code(call, scenario, other)]
            parts += ["", timeline(scenario, panes)]
        super().__init__("\n".join(parts))


def pane_text(pane: Pane) -> str:
    """Format a pane on one line."""
    values = ", ".join(f"{name}={value!r}" for name, value in pane.values.items())
    taken = "retraction of " if pane.kind == "retract" else ""
    return f"{taken}{pane.key!r} {window_text(pane.window)} {values} {pane.timing} #{pane.index}"


def window_text(window: Window) -> str:
    """Format a window with times as scenarios write them."""
    return f"[{show(window.start)}, {show(window.end)})"


def code_of(scenario: Scenario) -> str:
    """Return the expression that builds a scenario, a step per line."""
    bare, *steps = calls_of(scenario)
    if not steps:
        return bare
    return "\n".join(["(", f"    {bare}", *(f"    {step}" for step in steps), ")"])


def _code(call: str, scenario: Scenario, other: Scenario | None) -> str:
    name = call.partition("(")[0]
    lines = [f"from lowwater.testing import Scenario, {name}", ""]
    lines.append(f"scenario = {code_of(scenario)}")
    if other is not None:
        lines.append(f"other = {code_of(other)}")
    lines.append(call)
    return "\n".join(lines)


def difference(name: str, one: Any, other: Any) -> str:
    """Format the difference between two values of the same name."""
    return f"{name}: {one!r}, but {other!r}"


_WIDTH = 48


def timeline(scenario: Scenario, panes: Sequence[Pane] = ()) -> str:
    """Draw a scenario as text, a line per step, with the panes below.

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
        """Return the column of an instant, clipped to the picture."""
        return min(max((at - self._low) * (_WIDTH - 1) // self._span, 0), _WIDTH - 1)

    def behind(self, at: int) -> bool:
        return at < self._low


def _points(scenario: Scenario) -> list[int]:
    times = [int(e.time) for e in scenario.elements if isinstance(e.time, Instant)]
    moves = [int(step.to) for step in scenario.steps if isinstance(step, WatermarkMove)]
    # Ignore watermarks far from all elements: they would squeeze the elements together.
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
    sign = "retracts " if pane.kind == "retract" else ""
    return f"{sign}{values} @{pane.key} {pane.timing} #{pane.index}"
