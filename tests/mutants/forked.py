"""Runs pytest again and again, each time in a fork of a process that has the heavy imports.

Speaks lines of JSON: reads ``{"tests": […], "seconds": n, "first": bool}`` and answers
``{"code": n or null, "failed": […]}``, where a null code says that the time was over. The package
under test is imported by the fork alone, so that each run sees the files as they are then. A
failing example of Hypothesis is not shrunk: that it fails is all that is asked.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import hypothesis
import numpy
import pandas
import pyarrow
import pyarrow.compute
import pyarrow.json
import pyarrow.parquet
import pytest

PRELOADED = (hypothesis, numpy, pandas, pyarrow, pytest)
PHASES = (hypothesis.Phase.explicit, hypothesis.Phase.generate)


class NoShrinking:
    """Replaces the phases of each property test, whatever profile it was made with."""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        for item in items:
            for holder in (getattr(item, "obj", None), getattr(item, "cls", None)):
                for name in ("_hypothesis_internal_use_settings", "settings"):
                    found = getattr(holder, name, None)
                    if isinstance(found, hypothesis.settings):
                        target = getattr(holder, "__func__", holder)
                        changed = hypothesis.settings(found, phases=PHASES, deadline=None)
                        setattr(target, name, changed)


def _child(tests: list[str], *, first: bool, output: str) -> None:
    os.setsid()
    where = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(where, 1)
    os.dup2(where, 2)
    calm = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    # What make test runs: a bug that a long test alone finds counts as missed.
    chosen = ["-m", "not long", *(["-x"] if first else [])]
    options = ["-q", "-n0", "-p", "no:cacheprovider", *calm, *chosen]
    code = pytest.main([*options, *tests], plugins=[NoShrinking()])
    sys.stdout.flush()
    os._exit(int(code))


def run(tests: list[str], seconds: float, *, first: bool) -> dict[str, Any]:
    """Run the tests in a fork and return how it ended and which tests failed."""
    # Not deleted by itself: tests fork too, and their children would delete it.
    descriptor, output = tempfile.mkstemp()
    os.close(descriptor)
    child = os.fork()
    if child == 0:
        _child(tests, first=first, output=output)
    end = time.monotonic() + seconds
    code: int | None = None
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.05)
    else:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    text = Path(output).read_text(encoding="utf-8", errors="replace")
    Path(output).unlink()
    # In the summary: what a test has logged may begin like that, too.
    failed = re.findall(r"^(?:FAILED|ERROR) tests/.*$", text, re.MULTILINE)
    return {"code": code, "failed": failed, "end": text[-2000:]}


if __name__ == "__main__":
    sys.path.pop(0)
    for line in sys.stdin:
        asked = json.loads(line)
        answer = run(asked["tests"], asked["seconds"], first=asked["first"])
        print(json.dumps(answer), flush=True)
