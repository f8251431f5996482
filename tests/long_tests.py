"""Which tests ``make long`` runs beside those that are marked: what proves least for its seconds.

``long_tests.toml`` lists them, a line for each test or case. The blocks of code that each test
executes were recorded with its seconds. ``make test`` keeps the comparisons with oracles, and the
tests that execute every block as often as the whole suite does, up to four times, for the least
time. What is listed executes the same with more data, or costs much for what no other test meets.

``make quick`` leaves out what is slow by the record (``tests/record.py``), too.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import final

import pytest

from tests.record import recorded

FILE = Path(__file__).with_name("long_tests.toml")


@cache
def listed(path: Path = FILE) -> Mapping[str, str]:
    """Return the reasons by the id of a test, or of one of its cases."""
    reasons: dict[str, str] = {}
    for reason, names in tomllib.loads(path.read_text(encoding="utf-8")).items():
        reasons |= dict.fromkeys(names, reason)
    return reasons


@final
class LongTests:
    """A pytest plugin that marks what is listed, before ``-m`` chooses."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        reasons = listed()
        is_quick = os.environ.get("LOWWATER_HYPOTHESIS_PROFILE") == "quick"
        for item in items:
            reason = reasons.get(item.nodeid) or reasons.get(item.nodeid.partition("[")[0])
            if reason is not None:
                item.add_marker(pytest.mark.long(reason=reason))
            elif is_quick and is_slow(item.nodeid):
                item.add_marker(pytest.mark.slow(reason="it was when it was recorded"))


def is_slow(nodeid: str) -> bool:
    """Whether a test is slow by the record."""
    file, _, name = nodeid.partition("[")[0].partition("::")
    return file in recorded() and name in recorded()[file].slow
