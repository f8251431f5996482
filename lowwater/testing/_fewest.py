"""Finds the fewest elements of two scenarios that still break a law."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from lowwater.errors import LowwaterError
from lowwater.testing._arrivals import Add, Step
from lowwater.testing.orders import _with_steps
from lowwater.testing.scenario import Scenario

_RUNS = 300
"""How often a law is tried again at most."""

Pair: TypeAlias = tuple[Scenario, Scenario]


def fewest(pair: Pair, is_broken: Callable[[Pair], bool]) -> Pair:
    """Return a pair of scenarios with fewer of the same elements that breaks a law, too.

    No element can be left out of it, unless that took more than ``_RUNS`` trials. Hypothesis
    shrinks its own scenarios: they are returned as they are, and so are those whose elements are
    not the same.

    Args:
        pair: Two scenarios of the same elements, in any orders, which break the law.
        is_broken: Whether others break it.
    """
    numbers = None if _is_shrunk_elsewhere() else _numbers(*pair)
    if numbers is None:
        return pair
    left, runs = list(range(len(numbers))), 0
    size = max(1, len(left) // 2)
    while size and runs < _RUNS:
        at, before = 0, len(left)
        while at < len(left) and runs < _RUNS:
            fewer = left[:at] + left[at + size :]
            runs += 1
            if fewer and _breaks(_kept(pair, numbers, fewer), is_broken):
                left = fewer
            else:
                at += size
        if size == 1 and len(left) == before:
            break
        size = max(1, size // 2)
    return _kept(pair, numbers, left)


def _breaks(pair: Pair, is_broken: Callable[[Pair], bool]) -> bool:
    try:
        return is_broken(pair)
    except (AssertionError, LowwaterError):  # broken otherwise: not what is to be shown
        return False


def _is_shrunk_elsewhere() -> bool:
    hypothesis = sys.modules.get("hypothesis")
    return hypothesis is not None and bool(hypothesis.currently_in_test_context())


def _numbers(one: Scenario, other: Scenario) -> list[int] | None:
    """Return the place in the other scenario of each element of one; ``None`` if they differ.

    Elements are the same if they are written the same, as NaN and arrays have no better equality.
    """
    places: defaultdict[str, deque[int]] = defaultdict(deque)
    for at, element in enumerate(other.elements):
        places[repr(element)].append(at)
    written = [repr(element) for element in one.elements]
    if Counter(written) != {text: len(those) for text, those in places.items()}:
        return None
    return [places[text].popleft() for text in written]


def _kept(pair: Pair, numbers: Sequence[int], left: Sequence[int]) -> Pair:
    return _only(pair[0], set(left)), _only(pair[1], {numbers[at] for at in left})


def _only(scenario: Scenario, places: set[int]) -> Scenario:
    """Return a scenario with some of its elements, by their places; empty bundles go."""
    steps: list[Step] = []
    at = 0
    for step in scenario.steps:
        if not isinstance(step, Add):
            steps.append(step)
            continue
        elements = tuple(e for n, e in enumerate(step.elements, at) if n in places)
        at += len(step.elements)
        if elements:
            steps.append(Add(elements, step.at, step.of))
    return _with_steps(scenario, steps)
