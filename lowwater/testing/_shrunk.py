"""Makes a scenario smaller while something still holds for it.

Each way of making it smaller is delta debugging over other parts: elements, advances of clock and
watermark, borders between bundles, fields of values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from lowwater.testing._arrivals import Add, ClockMove, ScenarioElement, Step
from lowwater.testing._fewest import fewest_of
from lowwater.testing.orders import only_elements, with_steps
from lowwater.testing.scenario import Scenario

Holds: TypeAlias = Callable[[Scenario], bool]


def shrunk(scenario: Scenario, holds: Holds) -> Scenario:
    """Return a smaller scenario for which something holds that holds for this one."""
    scenario = _without_clock(_begun(scenario, holds), holds)
    scenario = _fewer_elements(scenario, holds)
    scenario = _fewer_moves(scenario, holds)
    scenario = _fewer_bundles(scenario, holds)
    scenario = _fewer_elements(scenario, holds)
    scenario = _fewer_marks(scenario, holds)
    return _fewer_fields(scenario, holds)


def _begun(scenario: Scenario, holds: Holds) -> Scenario:
    """Leave out the last steps, by bisection: what a window has emitted is not undone by more."""
    low, high = 0, len(scenario.steps)
    while low < high:
        middle = (low + high) // 2
        if holds(with_steps(scenario, scenario.steps[:middle])):
            high = middle
        else:
            low = middle + 1
    return with_steps(scenario, scenario.steps[:high])


def _without_clock(scenario: Scenario, holds: Holds) -> Scenario:
    """Stop the clock, if nothing depends on it: a pane's ``emitted_at`` then says nothing."""
    steps: list[Step] = [
        replace(step, at=None) for step in scenario.steps if not isinstance(step, ClockMove)
    ]
    blank = Scenario(*scenario.inputs, watermark=scenario.watermark_at_start)
    still = with_steps(blank, steps)
    return still if holds(still) else scenario


def _fewer_elements(scenario: Scenario, holds: Holds) -> Scenario:
    def of(left: Sequence[int]) -> Scenario:
        return only_elements(scenario, frozenset(left), keep_moves=True)

    return of(fewest_of(len(scenario.elements), lambda left: holds(of(left))))


def _fewer_moves(scenario: Scenario, holds: Holds) -> Scenario:
    """Leave out advances, and then what the clock does before the steps that are left."""
    moves = [at for at, step in enumerate(scenario.steps) if not isinstance(step, Add)]

    def without(left: Sequence[int]) -> Scenario:
        kept = {moves[at] for at in left}
        steps = [s for at, s in enumerate(scenario.steps) if isinstance(s, Add) or at in kept]
        return with_steps(scenario, steps)

    scenario = without(fewest_of(len(moves), lambda left: holds(without(left))))
    timed = [
        at
        for at, step in enumerate(scenario.steps)
        if step.at is not None and not isinstance(step, ClockMove)
    ]

    def untimed(left: Sequence[int]) -> Scenario:
        kept = {timed[at] for at in left}
        steps: list[Step] = [
            step if at in kept or isinstance(step, ClockMove) else replace(step, at=None)
            for at, step in enumerate(scenario.steps)
        ]
        return with_steps(scenario, steps)

    return untimed(fewest_of(len(timed), lambda left: holds(untimed(left))))


def _fewer_marks(scenario: Scenario, holds: Holds) -> Scenario:
    """Leave out advances of the watermark that come in one turn with a bundle."""
    places = [
        at
        for at, step in enumerate(scenario.steps)
        if isinstance(step, Add) and step.watermark is not None
    ]

    def only(left: Sequence[int]) -> Scenario:
        gone = set(places) - {places[at] for at in left}
        steps: list[Step] = [
            replace(step, watermark=None) if isinstance(step, Add) and at in gone else step
            for at, step in enumerate(scenario.steps)
        ]
        return with_steps(scenario, steps)

    return only(fewest_of(len(places), lambda left: holds(only(left))))


def _fewer_bundles(scenario: Scenario, holds: Holds) -> Scenario:
    """Put bundles together that follow one another."""
    steps = scenario.steps
    borders = [
        at
        for at in range(1, len(steps))
        if isinstance(now := steps[at], Add)
        and isinstance(before := steps[at - 1], Add)
        and now.of == before.of
        and before.watermark is None
    ]

    def joined(left: Sequence[int]) -> Scenario:
        kept = {borders[at] for at in left}
        made: list[Step] = []
        for at, step in enumerate(steps):
            last = made[-1] if made else None
            if at in borders and at not in kept and isinstance(last, Add):
                assert isinstance(step, Add)
                made[-1] = replace(
                    last, elements=last.elements + step.elements, watermark=step.watermark
                )
            else:
                made.append(step)
        return with_steps(scenario, made)

    return joined(fewest_of(len(borders), lambda left: holds(joined(left))))


def _fewer_fields(scenario: Scenario, holds: Holds) -> Scenario:
    """Leave out fields of values that nothing reads."""
    values = [e.value for e in scenario.elements if isinstance(e.value, Mapping)]
    names = list(dict.fromkeys(name for value in values for name in value))

    def only(left: Sequence[int]) -> Scenario:
        kept = {names[at] for at in left}

        def part(element: ScenarioElement) -> ScenarioElement:
            if not isinstance(element.value, Mapping):
                return element
            fields = {name: value for name, value in element.value.items() if name in kept}
            return replace(element, value=fields)

        steps: list[Step] = [
            replace(step, elements=tuple(map(part, step.elements)))
            if isinstance(step, Add)
            else step
            for step in scenario.steps
        ]
        return with_steps(scenario, steps)

    return only(fewest_of(len(names), lambda left: holds(only(left))))
