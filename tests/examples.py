"""How many examples a property is worth, relative to the Hypothesis profile."""

from __future__ import annotations

import math
import os

from hypothesis import settings


def examples(times: float) -> settings:
    """Return settings with ``times`` as many examples as the profile gives.

    The profile decides how thorough a run is (``tests/conftest.py``); a test only says how much it
    is worth compared with others.
    """
    return settings(max_examples=math.ceil(times * settings().max_examples))


def is_campaign() -> bool:
    """Whether this run is to be thorough, however long it takes."""
    return os.environ.get("LOWWATER_HYPOTHESIS_PROFILE") in {"nightly", "fuzz"}
