"""Killed at any instant and started again, a query gives what an uninterrupted one gives.

``LOWWATER_SPARK_KILLS`` says how often drivers are killed in all, half of them with each backend.
"""

from __future__ import annotations

import json
import os
import random
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
import pytest

from tests.paths import ROOT

KILLS = int(os.environ.get("LOWWATER_SPARK_KILLS", "10"))
STATES = ("inline", "rocksdb")
_FILES, _ROWS = 5, 80
_KILLS_PER_ROUND = 5
_START = 1_700_000_000_000_000


@dataclass(frozen=True)
class Ran:
    """How a driver ended: its exit code, negative for a signal; and how long its query ran."""

    code: int
    seconds: float


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of files of events: out of order, some late, some without a time."""
    folder = tmp_path_factory.mktemp("events")
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
    return folder


@pytest.fixture(scope="module")
def uninterrupted(
    events: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[str], float]:
    """Return what an uninterrupted query gives, and the seconds it takes once it is started."""
    folder = _folder(events, tmp_path_factory.mktemp("whole"))
    ran = _run(folder, "inline", "none")
    assert ran.code == 0
    return _output(folder), ran.seconds


def test_the_query_has_everything(uninterrupted: tuple[list[str], float]) -> None:
    text = "\n".join(uninterrupted[0])
    for shown in ("EARLY", "ON_TIME", "LATE", "retract", "expired", "null_time"):
        assert repr(shown) in text


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_killed_at_any_instant(
    state: str, events: Path, tmp_path: Path, uninterrupted: tuple[list[str], float]
) -> None:
    """Twice around a save of state, otherwise at random."""
    output, seconds = uninterrupted
    chance = random.Random(state)
    wanted = -(-KILLS // len(STATES))
    hows = ["before:5", "after:4"]
    kills = rounds = 0
    while kills < wanted:
        folder = _folder(events, tmp_path / str(rounds))
        rounds += 1
        ended = False
        while not ended and kills < min(wanted, rounds * _KILLS_PER_ROUND):
            if hows:
                ran = _run(folder, state, hows.pop())
            else:
                # What is left takes ever less.
                ran = _run(folder, state, "none", seconds=chance.uniform(0.0, 0.5) * seconds)
            ended = ran.code == 0
            assert ended or ran.code == -signal.SIGKILL
            kills += not ended
        assert ended or _run(folder, state, "none").code == 0
        assert _output(folder) == output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "state"),
    [
        ("worker:100", "rocksdb"),
        ("raise:150", "rocksdb"),
        ("executor:200", "rocksdb"),
    ],
)
def test_a_task_is_tried_again(
    how: str, state: str, events: Path, tmp_path: Path, uninterrupted: tuple[list[str], float]
) -> None:
    """A Python worker or an executor dies amid a micro-batch; a task fails: once each."""
    folder = _folder(events, tmp_path)
    assert _run(folder, state, how).code == 0
    counter = folder / how.replace(":", "-")
    assert counter.stat().st_size > int(how.partition(":")[2])
    assert counter.with_suffix(".struck").exists() == (not how.startswith("raise"))
    assert _output(folder) == uninterrupted[0]


def _folder(events: Path, folder: Path) -> Path:
    """Return a folder of its own for a query: Spark's logs name the files by their whole paths."""
    shutil.copytree(events, folder / "in", copy_function=shutil.copy2)
    return folder


def _run(folder: Path, state: str, how: str, *, seconds: float | None = None) -> Ran:
    """Run a driver; with ``seconds``, kill it and its JVM that long after its query started."""
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


def _output(folder: Path) -> list[str]:
    """Return the rows of the files that the sink's log names, sorted."""
    named = {
        json.loads(line)["path"].removeprefix("file://")
        for log in (folder / "out" / "_spark_metadata").iterdir()
        if not log.name.startswith(".")
        for line in log.read_text().splitlines()[1:]
    }
    rows = [row for path in named for row in pq.read_table(path).to_pylist()]
    return sorted(map(repr, rows))
