"""The examples for Spark run; and what is said of Spark Connect holds."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lowwater.cli import demo, demo_spark
from tests.paths import ROOT


@pytest.mark.slow
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


@pytest.mark.slow
def test_it_works_over_spark_connect(tmp_path: Path) -> None:
    """In a process of its own, as each has one kind of session; with state of both kinds."""
    pytest.importorskip("grpc")
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_client", str(tmp_path)],
        cwd=ROOT,
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert not done.returncode, done.stderr
    assert done.stdout.split() == ["static", "5", "inline", "4", "rocksdb", "4", "refused"]


@pytest.mark.slow
def test_the_demo_gives_the_same_on_spark(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = demo.load_flights().slice(0, 60_000)
    monkeypatch.setattr(demo_spark, "load_flights", lambda: first)
    out = io.StringIO()
    assert demo_spark.demo_spark(out, spark)
    text = out.getvalue()
    assert "60,000 flights" in text
    assert "equal, every value" in text
    assert "DIFFERENT" not in text
