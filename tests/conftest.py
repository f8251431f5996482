"""Hypothesis profiles, and the plugins: what a run left untested, how long it took, its order."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.kernels import BOTH, using
from tests.long_tests import LongTests
from tests.record import plugin_of_environment
from tests.s3_server import s3_server as s3_server  # a fixture for all tests
from tests.scheduling import longest_first, scheduler
from tests.timing import Timing
from tests.untested import Untested


def _in_memory() -> str | None:
    """Return a folder for temporary files that no fsync waits for, where there is one."""
    folder = Path("/dev/shm")
    if "TMPDIR" in os.environ or not os.access(folder, os.W_OK | os.X_OK):
        return None
    system = os.statvfs(folder)
    roomy = system.f_bavail * system.f_frsize > 2**31
    return None if not roomy or system.f_flag & os.ST_NOEXEC else str(folder)


# What is durable no test can see without pulling the plug. The processes that tests start inherit
# this, and so do the workers of xdist.
if _FOLDER := _in_memory():
    os.environ["TMPDIR"] = tempfile.tempdir = _FOLDER

# Tests choose their kernels themselves (tests/kernels.py). The processes that they start do not
# load the compiled ones, which takes half a second.
os.environ.setdefault("LOWWATER_KERNELS", "numpy")


# A record that is nowhere stops the run (S-B2), also in the processes that tests start.
os.environ.setdefault("LOWWATER_CHECK", "1")


@pytest.fixture(params=BOTH, scope="module")
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a file's tests with both kinds of kernels."""
    with using(request.param):
        yield request.param


# How many examples a property gets in each tier; `tests.examples` scales them for some tests.
_EXAMPLES = {"quick": 5, "ci": 10, "nightly": 1_000, "fuzz": 2_000}
for _name, _count in _EXAMPLES.items():
    _campaign = _name in {"nightly", "fuzz"}
    settings.register_profile(
        _name,
        max_examples=_count,
        deadline=None,  # a test must not fail because the machine is busy
        derandomize=not _campaign,
        print_blob=_campaign,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
settings.load_profile(os.environ.get("LOWWATER_HYPOTHESIS_PROFILE", "ci"))

# Here many tests have one invalid record among a few, which is more than 1 %, and many compare
# every pane in a file, or follow sources that wait for one another. Elsewhere these are errors.
WARNED = (
    *(f"tests/{folder}/" for folder in ("crash", "hostile", "mutants", "property", "spark")),
    *(
        f"tests/unit/{folder}/"
        for folder in ("cli", "display", "engine", "explain", "io", "pipeline", "watermark")
    ),
)


@pytest.hookimpl(trylast=True)  # after -m, so that what does not run does not count
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests; ignore warnings about data and pipelines that tests give on purpose."""
    longest_first(items)
    ignored = [
        pytest.mark.filterwarnings(f"ignore::lowwater.errors.{warning}")
        for warning in ("DataWarning", "PipelineWarning")
    ]
    for item in items:
        if item.nodeid.startswith(WARNED):
            for ignore in ignored:
                item.add_marker(ignore, append=False)  # first, as the last one wins


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Group tests by their files, or by what they share."""
    return scheduler(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugins; let Ctrl-C work although a background shell starts us ignoring it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for plugin in (LongTests(), Untested(), Timing(), plugin_of_environment()):
        if plugin is not None:
            config.pluginmanager.register(plugin)
    gc.disable()  # while tests are collected, when almost nothing becomes garbage


def pytest_collection_finish() -> None:
    """Free the garbage collector of what lives as long as the tests: the modules and the tests.

    Otherwise each full collection looks at all of it, and the tests of memory make many.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
