"""What the plugin of times reports and refuses, on a small test suite of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

CONFTEST = """\
from tests import timing

timing.LIMIT_S, timing._LEAST_S = 0.05, 0.0
timing._COUNTS_S = 10.0  # no machine is slower than that

def pytest_configure(config):
    for name in ("slow", "long"):
        config.addinivalue_line("markers", name)
    config.pluginmanager.register(timing.Timing())
"""
TESTS = """\
import time, pytest
from tests.timing import not_counted

def work():
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass

@pytest.fixture(scope="module")
def of_the_file():
    work()

@pytest.fixture
def own():
    work()

def test_quick(of_the_file): ...
def test_waiting(): time.sleep(0.1)
def test_sharing():
    with not_counted():
        work()

@pytest.mark.long(reason="as we know")
def test_with_a_reason(): work()

@pytest.mark.slow
def test_without_a_reason(): work()

def test_with_a_slow_fixture(own): ...
"""


@pytest.mark.parametrize("strict", [True, False])
def test_slow_tests_give_a_reason_in_ci(tmp_path: Path, strict: bool) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q -p no:cacheprovider -rf\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest"],
        cwd=tmp_path,
        env={
            **{n: v for n, v in os.environ.items() if not n.startswith("PYTEST_")},
            "PYTHONPATH": str(ROOT),
            "LOWWATER_STRICT": "1" if strict else "",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    failed = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED")}
    slow = {"test_some.py::test_without_a_reason", "test_some.py::test_with_a_slow_fixture"}
    assert failed == (slow if strict else set())
    assert ("pytest.mark.slow(reason=...)" in done.stdout) is strict
    assert "s  test_some.py::test_waiting" in done.stdout
    assert "s  in test_some.py" in done.stdout
