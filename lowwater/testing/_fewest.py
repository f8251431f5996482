"""Finds the fewest elements of two scenarios that still break a law."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from lowwater.errors import LowwaterError
from lowwater.testing.orders import only_elements
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
    left = fewest_of(
        len(numbers),
        lambda fewer: bool(fewer) and _breaks(_kept(pair, numbers, fewer), is_broken),
    )
    return _kept(pair, numbers, left)


def fewest_of(
    count: int, holds: Callable[[Sequence[int]], bool], *, runs: int = _RUNS
) -> list[int]:
    """Return few of the numbers below ``count`` for which something still holds, ascending.

    None can be left out, unless that took more than ``runs`` trials. Leaves out halves first, then
    ever smaller parts: delta debugging (Zeller and Hildebrandt, IEEE TSE 28(2), 2002), without its
    second half, the trial of each part alone.

    Args:
        count: How many numbers there are; it holds for all of them.
        holds: Whether it holds for some.
        runs: How often to try at most.
    """
    left = list(range(count))
    size = max(1, count // 2)
    while left and runs > 0:
        at, before = 0, len(left)
        while at < len(left) and runs > 0:
            fewer = left[:at] + left[at + size :]
            runs -= 1
            if holds(fewer):
                left = fewer
            else:
                at += size
        if size == 1 and len(left) == before:
            break
        size = max(1, size // 2)
    return left


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
    return (
        only_elements(pair[0], set(left)),
        only_elements(pair[1], {numbers[at] for at in left}),
    )
