"""How many examples a property is worth, relative to the Hypothesis profile."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet
from hypothesis import settings

CORE: set[int] = set()
"""The settings of the core properties, which may take as long as their examples do."""


def examples(times: float, *, is_core: bool = False) -> settings:
    """Return settings with ``times`` as many examples as the profile gives.

    The profile decides how thorough a run is (``tests/conftest.py``); a test only says how much it
    is worth compared with others.

    Args:
        times: How much that is.
        is_core: Whether the test compares an operator with its oracle. ``make test`` tries three
            times as many then: with half of that, bugs planted in the operator were missed that no
            other test finds.
    """
    if is_core and _profile() == "ci":
        times *= 3
    made = settings(max_examples=math.ceil(times * settings().max_examples))
    if is_core:
        CORE.add(id(made))
    return made


def sampled(cases: Iterable[Any], every: int) -> list[Any]:
    """Return the parameters of a test whose cases repeat one proof with other data.

    Args:
        cases: Values, or what ``pytest.param`` returns.
        every: ``make test`` runs the first of so many cases in turn, ``make long`` the others.
    """
    return [
        _long(case) if place % every and not is_campaign() else case
        for place, case in enumerate(cases)
    ]


def _long(case: Any) -> Any:
    values = case if isinstance(case, ParameterSet) else pytest.param(case)
    marks = (*values.marks, pytest.mark.long(reason="repeats a proof with other data"))
    return pytest.param(*values.values, marks=marks, id=values.id)


def is_campaign() -> bool:
    """Whether this run is to be thorough, however long it takes."""
    return _profile() in {"nightly", "fuzz"}


def _profile() -> str:
    return os.environ.get("LOWWATER_HYPOTHESIS_PROFILE", "ci")
