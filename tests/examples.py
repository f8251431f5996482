"""How many examples a property is worth, relative to the Hypothesis profile."""

from __future__ import annotations

import math
import os

from hypothesis import settings


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
    return settings(max_examples=math.ceil(times * settings().max_examples))


def is_campaign() -> bool:
    """Whether this run is to be thorough, however long it takes."""
    return _profile() in {"nightly", "fuzz"}


def _profile() -> str:
    return os.environ.get("LOWWATER_HYPOTHESIS_PROFILE", "ci")
