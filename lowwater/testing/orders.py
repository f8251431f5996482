"""Derives scenarios from scenarios: other orders, other bundles, or a watermark that waits.

The laws of :mod:`lowwater.testing.laws` compare a scenario with these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from lowwater.errors import InvalidArgument
from lowwater.testing._arrivals import (
    Add,
    ClockMove,
    InputEnd,
    ScenarioElement,
    Step,
    WatermarkMove,
)
from lowwater.testing.scenario import Scenario, of_one_input
from lowwater.time import END_OF_TIME, START_OF_TIME, Instant, saturating_add


def waiting(scenario: Scenario, *, by: int = 0) -> Scenario:
    """Return the scenario with a watermark that waits for all elements still to come.

    Each advance of the watermark stops at the earliest event time still to arrive, so that no
    element is late (S-T3). Nothing else changes.

    Args:
        scenario: The scenario.
        by: How far below that event time it stops, in microseconds; 1 if windows that only touch
            merge.

    >>> waiting(Scenario().watermark("12:05").add((1, "12:00", "A")))
    Scenario(start='00:00:00').watermark('12:00:00').add((1, '12:00:00', 'A'))
    """
    scenario = of_one_input(scenario)
    earliest = END_OF_TIME
    limits: list[int] = []
    for step in reversed(scenario.steps):
        limits.append(earliest)
        if isinstance(step, Add):
            times = [int(e.time) for e in step.elements if isinstance(e.time, Instant)]
            earliest = min([earliest, *(saturating_add(at, -by) for at in times)])
    start = min(scenario.watermark_at_start, earliest)
    steps = [
        WatermarkMove(Instant(min(step.to, limit)), step.at)
        if isinstance(step, WatermarkMove)
        else step
        for step, limit in zip(scenario.steps, reversed(limits), strict=True)
    ]
    return with_steps(scenario, steps, watermark=Instant(start))


def until_all_came(scenario: Scenario) -> Scenario:
    """Return the scenario with a watermark that does not advance before the last element."""
    scenario = of_one_input(scenario)
    last = max((n for n, step in enumerate(scenario.steps) if isinstance(step, Add)), default=-1)
    steps = [
        WatermarkMove(Instant(START_OF_TIME), step.at)
        if isinstance(step, WatermarkMove) and number < last
        else step
        for number, step in enumerate(scenario.steps)
    ]
    return with_steps(scenario, steps, watermark=Instant(START_OF_TIME))


def reordered(scenario: Scenario, order: Sequence[int]) -> Scenario:
    """Return the scenario with its elements in another order, in bundles of the same sizes.

    Args:
        scenario: The scenario.
        order: The number of the element at each place, a permutation.

    Raises:
        InvalidArgument: ``order`` is not a permutation.

    >>> reordered(Scenario().add((1, "12:00", "A"), (2, "12:01", "A")), [1, 0])
    Scenario(start='00:00:00').add((2, '12:01:00', 'A'), (1, '12:00:00', 'A'))
    """
    scenario = of_one_input(scenario)
    elements = scenario.elements
    if sorted(order) != list(range(len(elements))):
        raise InvalidArgument(
            f"order= is not a permutation of the numbers of {len(elements)} elements",
            hint=f"Give each of 0 to {len(elements) - 1} once",
        )
    coming = iter([elements[number] for number in order])
    steps = [
        Add(tuple(next(coming) for _ in step.elements), step.at) if isinstance(step, Add) else step
        for step in scenario.steps
    ]
    return with_steps(scenario, steps)


def rebundled(scenario: Scenario, sizes: Sequence[int]) -> Scenario:
    """Return the scenario with its elements in the same order, split into other bundles.

    Elements stay between the same two advances of the watermark or the clock.

    Args:
        scenario: The scenario.
        sizes: The sizes of the bundles, repeated as needed; each at least 1.

    >>> rebundled(Scenario().add((1, "12:00", "A"), (2, "12:01", "A")), [1])
    Scenario(start='00:00:00').add((1, '12:00:00', 'A')).add((2, '12:01:00', 'A'))
    """
    scenario = of_one_input(scenario)
    if not sizes or min(sizes) < 1:
        raise InvalidArgument(
            f"sizes={list(sizes)!r} are not sizes of bundles", hint="Give ints of at least 1"
        )
    steps: list[Step] = []
    turn = 0
    for run in _runs(scenario.steps):
        if not isinstance(run, list):
            steps.append(run)
            continue
        elements = [element for add in run for element in add.elements]
        at = run[0].at
        while elements:
            size = sizes[turn % len(sizes)]
            steps.append(Add(tuple(elements[:size]), at))
            elements, at, turn = elements[size:], None, turn + 1
    return with_steps(scenario, steps)


def ended(scenario: Scenario) -> Scenario:
    """Return the scenario with the end of its input, if it has none."""
    scenario = of_one_input(scenario)
    if scenario.steps and isinstance(scenario.steps[-1], InputEnd):
        return scenario
    return scenario.end()


def some_orders(scenario: Scenario) -> Iterator[Scenario]:
    """Yield a few other orders: backwards, by event time, its reverse, every other one first."""
    elements = scenario.elements
    numbers = list(range(len(elements)))
    by_time = sorted(numbers, key=lambda n: _sortable(elements[n]))
    for order in (numbers[::-1], by_time, by_time[::-1], numbers[1::2] + numbers[::2]):
        if order != numbers:
            yield reordered(scenario, order)


def some_bundlings(scenario: Scenario) -> Iterator[Scenario]:
    """Yield a few other bundlings: single elements, pairs, and the largest possible bundles."""
    for sizes in ([1], [2], [1, 3], [max(1, len(scenario.elements))]):
        other = rebundled(scenario, sizes)
        if other != scenario:
            yield other


def _runs(steps: Sequence[Step]) -> Iterator[list[Add] | Step]:
    """Yield the bundles that come at one clock and watermark together, the other steps alone."""
    run: list[Add] = []
    for step in steps:
        if isinstance(step, Add):
            if run and step.at is not None:
                yield run
                run = []
            run.append(step)
            continue
        if run:
            yield run
            run = []
        yield step
    if run:
        yield run


def _sortable(element: ScenarioElement) -> int:
    return int(element.time) if isinstance(element.time, Instant) else END_OF_TIME


def only_elements(
    scenario: Scenario, places: Collection[int], *, keep_moves: bool = False
) -> Scenario:
    """Return a scenario with some of its elements; empty bundles go.

    Args:
        scenario: The scenario.
        places: The places of the elements to keep among all of them.
        keep_moves: Whether clock and watermark still advance where a bundle went that moved them.
    """
    steps: list[Step] = []
    at = 0
    for step in scenario.steps:
        if not isinstance(step, Add):
            steps.append(step)
            continue
        elements = tuple(e for n, e in enumerate(step.elements, at) if n in places)
        at += len(step.elements)
        if elements:
            steps.append(replace(step, elements=elements))
        elif keep_moves and step.watermark is not None:
            steps.append(WatermarkMove(step.watermark, step.at, step.of))
        elif keep_moves and step.at is not None:
            steps.append(ClockMove(step.at))
    return with_steps(scenario, steps)


def with_steps(
    scenario: Scenario, steps: Sequence[Step], *, watermark: Instant | None = None
) -> Scenario:
    """Return a scenario with other steps. O(steps).

    Args:
        scenario: The scenario.
        steps: Its steps.
        watermark: The watermark at the start; ``None``: that of the scenario.
    """
    at = scenario.watermark_at_start if watermark is None else watermark
    made = Scenario(*scenario.inputs, start=scenario.start, watermark=at)
    object.__setattr__(made, "steps", tuple(steps))
    return made
