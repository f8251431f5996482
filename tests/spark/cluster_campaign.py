"""The example of a cluster with two workers, sent a job: ``make nightly``."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.spark


def test_a_job_is_sent_to_a_cluster_of_two_workers() -> None:
    """With lowwater as an archive: neither the driver nor the workers have it otherwise."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "spark_standalone.py")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert not done.returncode, done.stderr
    shown = done.stdout.splitlines()
    assert "360 rides, 15 panes, 3 windows open" in shown
    assert "executors: 2; lowwater from lowwater.zip/lowwater" in shown
    assert "A 2000-01-01 12:01:00 570 20 ON_TIME" in shown
