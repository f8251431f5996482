"""Runs the query of :mod:`tests.spark.query_to_kill` with a driver of its own, and kills it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.paths import ROOT

_FILES, _ROWS = 5, 80
_START = 1_700_000_000_000_000
_REFUSED = "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"


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


@dataclass(frozen=True)
class Query:
    """A query with a driver of its own: see :mod:`tests.spark.query_to_kill`."""

    folder: Path
    graph: str
    adapter: str
    state: str

    def run(self, faults: str = "none") -> int:
        """Run a driver to its end; return its exit code, negative for a signal."""
        with self._driver(faults) as driver:
            _wait(driver, 300)
        return self.run(faults) if self._is_refused(driver) else self._code(driver)

    def kill(self, saves: int, seconds: float, faults: str = "none") -> int:
        """Kill a driver and its JVM so long after it has saved state so often; unless it ended."""
        with self._driver(faults) as driver:
            while self.saves() < saves and driver.poll() is None:
                _wait(driver, 0.02)
            _wait(driver, seconds)
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
        if self._is_refused(driver):
            return self.kill(saves, seconds, faults)
        return self._code(driver)

    def saves(self) -> int:
        """Return how often all drivers have saved state."""
        counted = self.folder / "saves"
        return counted.stat().st_size if counted.exists() else 0

    @contextmanager
    def _driver(self, faults: str) -> Iterator[subprocess.Popen[str]]:
        command = [
            sys.executable, "-m", "tests.spark.query_to_kill",
            str(self.folder), self.graph, self.adapter, self.state, faults,
        ]  # fmt: skip
        with (self.folder / "stderr").open("wb") as errors:
            driver = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # a group of its own, to be killed as one
            )
            assert driver.stdout is not None
            try:
                with driver.stdout:
                    driver.stdout.readline()
                    yield driver
            finally:
                if driver.poll() is None:
                    os.killpg(driver.pid, signal.SIGKILL)
                    driver.wait()

    def _is_refused(self, driver: subprocess.Popen[str]) -> bool:
        """Delete a checkpoint that Spark refuses, as users do: of a first micro-batch's planning.

        Such a driver was killed before anything was committed; any other refusal is a failure.
        """
        if driver.returncode in {0, -signal.SIGKILL}:
            return False
        checkpoint = self.folder / "checkpoint"
        refused = _REFUSED in (self.folder / "stderr").read_text()
        if refused and not any((checkpoint / "commits").glob("[0-9]*")):
            shutil.rmtree(checkpoint)
            (self.folder / "refused").touch()
            return True
        return False

    def _code(self, driver: subprocess.Popen[str]) -> int:
        code = driver.returncode
        assert code in {0, -signal.SIGKILL}, (self.folder / "stderr").read_text()
        return code


def _wait(driver: subprocess.Popen[str], seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        driver.wait(seconds)


def output_of_stage(folder: Path) -> list[str]:
    """Return the rows of the files in the sink's log, sorted."""
    named = {
        json.loads(line)["path"].removeprefix("file://")
        for log in (folder / "out" / "_spark_metadata").iterdir()
        if not log.name.startswith(".")
        for line in log.read_text().splitlines()[1:]
    }
    rows = [row for path in named for row in pq.read_table(path).to_pylist()]
    return sorted(map(repr, rows))
