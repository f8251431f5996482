"""The queries that benchmarks compare on Spark run, and workers record what they ran.

For ``make nightly``: each starts a driver of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.spark_events import growing_folder, joining_folder
from benchmarks.spark_runs import Task
from benchmarks.spark_state import meetings
from tests.paths import ROOT
from tests.spark.light import FAST


@pytest.mark.slow
def test_each_query_runs(spark: Any, tmp_path: Path) -> None:
    from benchmarks.spark_driver import streamed
    from benchmarks.spark_queries import QUERIES

    events, sides = growing_folder(10, 1, tmp_path), joining_folder(5, 3, 1, tmp_path)
    for name in QUERIES:
        folder = sides if name.endswith("join") else events
        # A session of its own, as the place of checkpoints is set in it.
        _, progress = streamed(spark.newSession(), name, folder, tmp_path / name, {}, 60)
        assert [each["numInputRows"] for each in progress] == [10], name


@pytest.mark.slow
@pytest.mark.spark
def test_workers_record_what_they_ran(tmp_path: Path) -> None:
    """In a driver of its own: a JVM that runs has a daemon already."""
    folder = growing_folder(40, 2, tmp_path)
    given = ["lowwater-growing", str(folder), "--record", "--own-workers"]
    settings = {
        "state": "rocksdb",
        "key_groups": 2,
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": FAST,
        "spark.sql.codegen.wholeStage": "false",
    }
    given += ["--settings", json.dumps(settings)]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.spark_driver", *given],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [each["rows"] for each in found["batches"]] == [40, 40]
    tasks = [Task(**each) for each in found["tasks"]]
    assert 1 in meetings(tasks)
    workers = {step: {task.pid for task in tasks if task.step == step} for step in (1, 2)}
    assert workers[1]
    assert not workers[1] & workers[2]
    assert all(0 < task.resident_bytes <= task.peak_bytes for task in tasks)
