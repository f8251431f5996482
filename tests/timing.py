"""Reports which tests a run spent its time on, and refuses slow ones that give no reason.

With ``LOWWATER_STRICT=1``, as in CI, a test fails if it takes more than ``LIMIT_S`` of its
process's CPU time and its mark ``slow`` or ``long`` has no ``reason=``. CPU time, as by the clock a
test would fail when the machine is busy; and that of a machine that counts to a million in
``_COUNTS_S``, as shared processors lose half of their speed at times. What a fixture of a wider
scope takes is its file's.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

import pytest

from tests.examples import CORE

LIMIT_S = 5.0
SHOWN = 10
_LEAST_S = 30.0  # below that nobody asks where the time went
_COUNTS_S = 0.04  # CPU seconds in which the machine of the limit counts to a million
_NOT_ITS_OWN = 0.0  # CPU seconds of what a process does once, for whichever test comes first
_SPENT = pytest.StashKey[float]()
_REASON = pytest.StashKey[str | None]()
_SETTINGS = "_hypothesis_internal_use_settings"  # of a function that Hypothesis runs


@contextmanager
def not_counted() -> Iterator[None]:
    """Charge no test with what happens in a block: it is done once for the process."""
    global _NOT_ITS_OWN  # noqa: PLW0603  # one clock for the process, as is its CPU time
    start = time.process_time()
    try:
        yield
    finally:
        _NOT_ITS_OWN += time.process_time() - start


def _own_seconds() -> float:
    return time.process_time() - _NOT_ITS_OWN


def slowness() -> float:
    """Return how many times as long as on the machine of the limit work takes now; at least 1."""
    taken = []
    for _ in range(3):
        start, total = time.process_time(), 0
        for number in range(1_000_000):
            total += number
        taken.append(time.process_time() - start)
    return max(1.0, sorted(taken)[1] / _COUNTS_S)


def reason_of(item: pytest.Item) -> str | None:
    """Return why a test is slow, as its marks say, or that it is a core property."""
    if id(getattr(getattr(item, "obj", None), _SETTINGS, None)) in CORE:
        return "an operator beside its oracle, with as many examples as its faults need"
    marks = (mark for name in ("slow", "long") for mark in item.iter_markers(name))
    return next((mark.kwargs["reason"] for mark in marks if mark.kwargs.get("reason")), None)


@final
class Timing:
    """A pytest plugin, in each xdist worker and in the process that controls them."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._strict = os.environ.get("LOWWATER_STRICT") == "1"

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:  # now, as Hypothesis gives tests other settings when they run
            item.stash[_REASON] = reason_of(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        if fixturedef.scope == "function":
            return (yield)
        with not_counted():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._spend(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._spend(item))

    def _spend(self, item: pytest.Item) -> Generator[None, Any, Any]:
        start = _own_seconds()
        try:
            return (yield)
        finally:
            item.stash[_SPENT] = item.stash.get(_SPENT, 0.0) + _own_seconds() - start

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        report = yield
        spent = item.stash.get(_SPENT, 0.0)
        is_judged = self._strict and report.when == "call" and report.passed
        # The speed is measured last, as it takes a tenth of a second.
        is_long = is_judged and spent > LIMIT_S and item.stash[_REASON] is None
        if is_long and spent > LIMIT_S * slowness():
            report.outcome = "failed"
            report.longrepr = (
                f"it took {spent:.1f} s of CPU time, and a test may take {LIMIT_S:g}: make it"
                " smaller, or mark it pytest.mark.slow(reason=...), or long, with the reason"
            )
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        total = sum(self._seconds.values())
        if total < _LEAST_S:
            return
        write = terminalreporter.write_line
        terminalreporter.section(f"where {total:.0f} s went", "=")
        for nodeid, seconds in _largest(self._seconds)[:SHOWN]:
            write(f"{seconds:7.1f} s  {nodeid}")
        folders: dict[str, float] = defaultdict(float)
        for nodeid, seconds in self._seconds.items():
            folders["/".join(nodeid.partition("::")[0].split("/")[:3])] += seconds
        for folder, seconds in _largest(folders):
            if seconds >= total / 100:
                write(f"{seconds:7.1f} s  in {folder}")


def _largest(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda pair: -pair[1])
