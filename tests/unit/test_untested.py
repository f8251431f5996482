"""What a run of the tests reports as untested, on small test suites of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.untested import ALLOWED, NO_JAVA, allowed_skips, has_java

pytestmark = pytest.mark.long(reason="each run of pytest takes a second")

CONFTEST = """\
from tests import untested

untested.ALLOWED = untested.Path(__file__).with_name("allowed_skips.toml")

def pytest_configure(config):
    config.addinivalue_line("markers", "spark: needs Java")
    config.pluginmanager.register(untested.Untested())
"""
SKIPPING = """\
import pytest

@pytest.mark.parametrize("at", [1, 2])
def test_skipped(at):
    pytest.skip("no reason")

def test_passed():
    pass

@pytest.mark.xfail
def test_known():
    raise AssertionError
"""
MODULE = "import pytest\npytest.skip('not this one', allow_module_level=True)\n"
SPARK = "import pytest\n@pytest.mark.spark\ndef test_query(): raise OSError\ndef test_other(): ..."


def run_tests(
    folder: Path, *arguments: str, allowed: str = "", strict: bool = True, java: bool = True
) -> tuple[int, str]:
    """Run the tests in a folder; return the exit code and the output."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "allowed_skips.toml").write_text(allowed)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -q -p no:cacheprovider -p xdist\n")
    settings = {
        name: value
        for name, value in os.environ.items()
        if name not in {"JAVA_HOME", "LOWWATER_STRICT"} and not name.startswith("PYTEST_")
    }
    settings |= {"PYTHONPATH": str(ROOT), "LOWWATER_STRICT": "1" if strict else ""}
    settings["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # each takes its time, in each run
    if not java:
        settings["PATH"] = str(folder)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=folder, env=settings, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_skipped_test_fails_unless_it_is_allowed(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_skipping.py").write_text(SKIPPING)
    (tmp_path / "test_module.py").write_text(MODULE)
    allowed = '"test_skipping.py::test_skipped[1]" = "as we know"\n'
    code, output = run_tests(tmp_path, "-n", workers, allowed=allowed)
    assert code == 1
    assert "test_skipped[2] was skipped (no reason)" in output
    assert "test_module.py was skipped (not this one)" in output
    assert "test_skipped[1] was" not in output
    allowed = '"test_skipping.py" = "as we know"\n"test_module.py" = "this, too"\n'
    code, output = run_tests(tmp_path, "-n", workers, allowed=allowed)
    assert (code, "not tested" in output) == (0, False)


def test_skips_matter_to_ci_alone(tmp_path: Path) -> None:
    (tmp_path / "test_skipping.py").write_text(SKIPPING)
    code, output = run_tests(tmp_path, "-n0", strict=False)
    assert (code, "not tested" in output) == (0, False)


@pytest.mark.parametrize("workers", ["0", "1"])
@pytest.mark.parametrize("strict", [False, True])
def test_without_java_the_last_line_says_so(tmp_path: Path, strict: bool, workers: str) -> None:
    (tmp_path / "test_spark.py").write_text(SPARK)
    code, output = run_tests(tmp_path, "-n", workers, strict=strict, java=False)
    assert code == int(strict)
    assert output.splitlines()[-1] == NO_JAVA
    assert "1 passed" in output


def test_a_run_without_spark_tests_misses_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_spark.py").write_text(SPARK)
    code, output = run_tests(tmp_path, "-n0", "-m", "not spark", java=False)
    assert (code, NO_JAVA in output) == (0, False)


def pretend_java(folder: Path, version: str) -> None:
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "recent"), [("1.8.0_402", False), ("11.0.2", False), ("17.0.1", True), ("21", True)]
)
def test_java_is_found_by_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, recent: bool
) -> None:
    pretend_java(tmp_path, version)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert has_java.__wrapped__() is recent


def test_spark_tests_run_where_java_is_found(tmp_path: Path) -> None:
    (tmp_path / "test_spark.py").write_text(SPARK)
    pretend_java(tmp_path, "17.0.1")
    code, output = run_tests(tmp_path, "-n0", strict=False, java=False)
    assert (code, NO_JAVA in output) == (1, False)


def test_each_allowed_skip_has_a_reason(tmp_path: Path) -> None:
    allowed_skips(ALLOWED)
    (tmp_path / "allowed.toml").write_text('"tests/test_it.py" = ""\n')
    with pytest.raises(AssertionError, match="needs a reason"):
        allowed_skips(tmp_path / "allowed.toml")
