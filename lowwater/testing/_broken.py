"""What a law says when it is broken: what differs, a scenario to run again, and a timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, final

from lowwater.engine.records.panes import Pane
from lowwater.testing._moments import show
from lowwater.testing._timeline import timeline
from lowwater.testing.scenario import Scenario
from lowwater.windows import Window

_MOST = 12


@final
class Broken(AssertionError):
    """A law that does not hold.

    Args:
        law: What it says, with its rule.
        differences: What was found instead, a line each.
        call: The call that shows it again, with ``scenario`` and ``other`` for the scenarios.
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
            parts += ["", "To see it again:", "", _code(call, scenario, other)]
            parts += ["", timeline(scenario, panes)]
        super().__init__("\n".join(parts))


def pane_text(pane: Pane) -> str:
    """Return a pane in one line."""
    values = ", ".join(f"{name}={value!r}" for name, value in pane.values.items())
    taken = "takes back " if pane.kind == "retract" else ""
    return f"{taken}{pane.key!r} {window_text(pane.window)} {values} {pane.timing} #{pane.index}"


def window_text(window: Window) -> str:
    """Return a window as scenarios write times."""
    return f"[{show(window.start)}, {show(window.end)})"


def code_of(scenario: Scenario) -> str:
    """Return the expression that builds a scenario, a step per line."""
    steps = [Scenario(start=scenario.start)._with(step) for step in scenario.steps]
    bare = repr(Scenario(start=scenario.start, watermark=scenario.watermark_at_start))
    head = len(repr(Scenario(start=scenario.start)))
    if not steps:
        return bare
    return "\n".join(["(", f"    {bare}", *(f"    {repr(one)[head:]}" for one in steps), ")"])


def _code(call: str, scenario: Scenario, other: Scenario | None) -> str:
    name = call.partition("(")[0]
    lines = [f"from lowwater.testing import Scenario, {name}", ""]
    lines.append(f"scenario = {code_of(scenario)}")
    if other is not None:
        lines.append(f"other = {code_of(other)}")
    lines.append(call)
    return "\n".join(lines)


def difference(name: str, one: Any, other: Any) -> str:
    """Return a line that says how two things of one name differ."""
    return f"{name}: {one!r}, but {other!r}"
