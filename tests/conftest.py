"""Hypothesis profiles: `ci` unless LOWWATER_HYPOTHESIS_PROFILE says otherwise."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

# No deadlines: a test must not fail because the machine is busy.
_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "ci",
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=_SLOW_IS_FINE,
)
settings.register_profile(
    "nightly",
    max_examples=2_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=_SLOW_IS_FINE,
)
settings.load_profile(os.environ.get("LOWWATER_HYPOTHESIS_PROFILE", "ci"))


def pytest_configure() -> None:
    """Let Ctrl-C mean what it does at a terminal: a background shell starts us with it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
