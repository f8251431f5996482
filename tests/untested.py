"""Reports what a run of the tests left untested.

Without Java, tests marked ``spark`` are deselected, and the run's last lines say so. With
``LOWWATER_STRICT=1``, as in CI, that is a failure; so is each skipped test that
``tests/allowed_skips.toml`` does not name.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Generator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, final

import pytest

ALLOWED = Path(__file__).with_name("allowed_skips.toml")
JAVA = 17
NO_JAVA = (
    f"Spark was not tested: no Java {JAVA}+ found; install a JDK, for instance"
    f" openjdk-{JAVA}-jre-headless, and run again"
)


@cache
def has_java() -> bool:
    """Return whether Spark would find a Java runtime of version 17 or later."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return False
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return False
    version = re.search(r'version "(\d+)', done.stderr)
    return version is not None and int(version[1]) >= JAVA


def allowed_skips(path: Path) -> Mapping[str, str]:
    """Return the reasons of the skips that are allowed, by the prefix of a test's id."""
    reasons: dict[str, str] = tomllib.loads(path.read_text())
    assert all(reasons.values()), f"{path}: each skip needs a reason"
    return reasons


@final
class Untested:
    """A pytest plugin, in each xdist worker and in the process that controls them."""

    def __init__(self) -> None:
        self._skipped: dict[str, str] = {}
        self._without_java = False
        self._strict = os.environ.get("LOWWATER_STRICT") == "1"

    @pytest.hookimpl(trylast=True)  # after -k and -m: a run without Spark tests misses nothing
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        spark = [item for item in items if item.get_closest_marker("spark")]
        if spark and not has_java():
            self._without_java = True
            config.hook.pytest_deselected(items=spark)
            items[:] = [item for item in items if not item.get_closest_marker("spark")]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            self._skipped[report.nodeid] = reason.removeprefix("Skipped: ")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what an xdist worker found: it sees skipped modules, this process does not."""
        untested = getattr(node, "workeroutput", {}).get("untested", {})
        self._skipped |= untested.get("skipped", {})
        self._without_java |= untested.get("without_java", False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # outermost: prints below pytest's own last line
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["untested"] = {
                "skipped": self._skipped,
                "without_java": self._without_java,
            }
            return (yield)
        allowed = tuple(allowed_skips(ALLOWED))
        refused = [(one, why) for one, why in self._skipped.items() if not one.startswith(allowed)]
        fails = self._strict and bool(refused or self._without_java)
        if fails and session.exitstatus in {0, pytest.ExitCode.NO_TESTS_COLLECTED}:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        result = yield
        lines = [NO_JAVA] if self._without_java else []
        if self._strict:
            lines += [f"{one} was skipped ({why}), and {ALLOWED.name} does not name it"
                      for one, why in sorted(refused)]  # fmt: skip
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        if lines and terminal is not None:
            terminal.section("not tested", "=", bold=True, red=fails, yellow=not fails)
            for line in lines:
                terminal.write_line(line, bold=True)
        return result
