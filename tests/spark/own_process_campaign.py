"""The demo and the notebook on Spark, each with a driver of its own, as users run them.

For ``make nightly``; ``test_examples.py`` runs both in the tests' session.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_notebooks import executed_as_committed
from tests.paths import ROOT

pytestmark = pytest.mark.spark

_DEMO = """
import sys
from lowwater.cli import demo, demo_spark

flights = demo.load_flights().slice(0, 12_000)
demo_spark.load_flights = lambda: flights
with open(sys.argv[1], "w") as out:
    raise SystemExit(not demo_spark.demo_spark(out))
"""


def test_the_demo_shows_nothing_but_its_own_lines(tmp_path: Path) -> None:
    """It writes to a file here, so what else would be on the screen is all there is."""
    done = subprocess.run(
        [sys.executable, "-c", _DEMO, str(tmp_path / "out")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "out").read_text().count("equal in every value") == 3


def test_the_notebook_gives_the_committed_output() -> None:
    executed_as_committed("6-on-spark")
