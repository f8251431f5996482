"""What readers are told to write gives no warning of lowwater's."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a warning of lowwater's fail the tests of this folder."""
    for item in items:
        if item.nodeid.startswith("tests/docs/"):
            item.add_marker(pytest.mark.filterwarnings("error::lowwater.errors.LowwaterWarning"))
