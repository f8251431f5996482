"""Runs the query of :mod:`tests.spark.query_to_kill` with a driver of its own, and kills it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.paths import ROOT

_FILES, _ROWS = 5, 80
_START = 1_700_000_000_000_000


@dataclass(frozen=True)
class Ran:
    """How a driver ended: its exit code, negative for a signal; and how long its query ran."""

    code: int
    seconds: float


def write_events(folder: Path) -> None:
    """Write files of events: out of order, some late, some without a time."""
    random_ = np.random.default_rng(5)
    count = _FILES * _ROWS
    arrived = np.arange(count, dtype=np.int64) * 250_000 + _START
    at = arrived - random_.integers(0, 28_000_000, count)
    instants = pa.timestamp("us", "UTC")
    table = pa.table(
        {
            "at": pa.array(at, mask=random_.random(count) < 0.02).cast(instants),
            "key": pa.array([f"k{n}" for n in random_.integers(0, 40, count)]),
            "value": random_.integers(-50, 50, count),
            "name": pa.array([f"n{n}" for n in random_.integers(0, 99, count)]),
            "arrived": pa.array(arrived).cast(instants),
        }
    )
    for number in range(_FILES):
        path = folder / f"events-{number}.parquet"
        pq.write_table(table.slice(number * _ROWS, _ROWS), path)
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))


def query_folder(events: Path, folder: Path) -> Path:
    """Make a folder for one query: Spark's logs name the input files by their whole paths."""
    shutil.copytree(events, folder / "in", copy_function=shutil.copy2)
    return folder


def run_driver(folder: Path, state: str, how: str, *, seconds: float | None = None) -> Ran:
    """Run a driver; with ``seconds``, kill it and its JVM that long after its query starts."""
    with (folder / "stderr").open("wb") as errors:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.query_to_kill", str(folder), state, how],
            cwd=ROOT,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # a group of its own, to be killed as one
        )
        assert driver.stdout is not None
        with driver.stdout:
            driver.stdout.readline()
            began = time.perf_counter()
            try:
                driver.wait(300 if seconds is None else seconds)
            except subprocess.TimeoutExpired:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
                assert seconds is not None, "the query did not end"
    assert driver.returncode <= 0, (folder / "stderr").read_text()
    return Ran(driver.returncode, time.perf_counter() - began)


def output(folder: Path) -> list[str]:
    """Return the rows of the files in the sink's log, sorted."""
    named = {
        json.loads(line)["path"].removeprefix("file://")
        for log in (folder / "out" / "_spark_metadata").iterdir()
        if not log.name.startswith(".")
        for line in log.read_text().splitlines()[1:]
    }
    rows = [row for path in named for row in pq.read_table(path).to_pylist()]
    return sorted(map(repr, rows))
