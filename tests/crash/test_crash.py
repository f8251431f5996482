"""Killed at any instant and started again, a durable run gives what an uninterrupted one gives.

Some of the runs keep their windows in the store, others in memory.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
POINTS = (
    "before the write",
    "after the write",
    "before publishing",
    "between sinks",
    "before forgetting",
)
KILLS = int(os.environ.get("LOWWATER_KILLS", "25"))
_FILES, _ROWS = 3, 400
_START = 1_700_000_000_000_000


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of files of events: out of order, some late, without a time, or twice."""
    folder = tmp_path_factory.mktemp("events")
    random_ = np.random.default_rng(5)
    count = _FILES * _ROWS
    arrived = np.arange(count, dtype=np.int64) * 50_000 + _START
    at = arrived - random_.integers(0, 32_000_000, count)
    table = pa.table(
        {
            "at": pa.array(at, mask=random_.random(count) < 0.02),
            "key": pa.array([f"k{n}" for n in random_.integers(0, 150, count)]),
            "value": random_.integers(-50, 50, count),
            "name": pa.array([f"n{n}" for n in random_.integers(0, 99, count)]),
            "id": pa.array([f"id{n}" for n in range(count)], mask=random_.random(count) < 0.01),
        }
    )
    # One event in six comes again up to 15 s later, often in another bundle or file.
    again = (random_.random(count) < 0.17) & (np.arange(count) >= 300)
    back = np.where(again, random_.integers(1, 300, count), 0)
    table = table.take(pa.array(np.arange(count) - back)).append_column("arrived", [arrived])
    for number in range(_FILES):
        part = table.slice(number * _ROWS, _ROWS)
        pq.write_table(part, folder / f"events-{number}.parquet")
    return folder


@pytest.fixture(scope="module")
def uninterrupted(events: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, float]:
    """Return what an uninterrupted run gives, and the seconds it takes."""
    folder = _folder(events, tmp_path_factory.mktemp("whole"))
    began = time.perf_counter()
    assert _run(folder, "none") == 0
    return _outputs(folder), time.perf_counter() - began


def test_the_run_has_everything(uninterrupted: tuple[Any, float]) -> None:
    outputs, _ = uninterrupted
    rows = outputs["parquet"]
    assert {row["kind"] for row in rows} == {"insert", "retract"}
    assert {row["timing"] for row in rows} == {"EARLY", "ON_TIME", "LATE"}
    assert outputs["late"]
    assert {json.loads(line)["reason"] for line in outputs["errors"]} == {"null_time", "null_id"}
    assert outputs["sqlite"]
    assert int(outputs["duplicates"]) > 50


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_each_point(
    point: str, events: Path, tmp_path: Path, uninterrupted: tuple[Any, float]
) -> None:
    folder = _folder(events, tmp_path)
    kills = 0
    for count in (1, 4, 9):
        kills += _run(folder, f"point:{point}:{count}", cold=count == 4) != 0
    assert _run(folder, "none") == 0
    assert kills >= 2
    assert _outputs(folder) == uninterrupted[0]


def test_killed_at_random_instants(
    events: Path, tmp_path: Path, uninterrupted: tuple[Any, float]
) -> None:
    outputs, seconds = uninterrupted
    chance = random.Random(11)
    kills = rounds = 0
    while kills < max(1, KILLS - 3 * len(POINTS)):
        folder = _folder(events, tmp_path / str(rounds))
        rounds += 1
        for _ in range(6):
            micros = int(chance.uniform(0.2, 1.0) * seconds * 1e6)
            if _run(folder, f"alarm:{micros}", cold=chance.random() < 0.5) == 0:
                break
            kills += 1
        assert _run(folder, "none", cold=rounds % 2 == 0) == 0
        assert _outputs(folder) == outputs


def _folder(events: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "in").symlink_to(events)
    return folder


def _run(folder: Path, how: str, *, cold: bool = False) -> int:
    """Run the child; return its exit code, negative for a signal."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.child", str(folder), how, *["cold"] * cold],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode <= 0, done.stderr
    return done.returncode


def _outputs(folder: Path) -> dict[str, Any]:
    """Return everything the sinks hold, sorted."""
    panes = [
        row
        for path in sorted((folder / "parquet").glob("part-*.parquet"))
        for row in pq.read_table(path).to_pylist()
    ]
    with sqlite3.connect(folder / "panes.sqlite") as database:
        table = database.execute("select * from panes").fetchall()
    database.close()
    return {
        "parquet": sorted(panes, key=repr),
        "sqlite": sorted(table, key=repr),
        "duplicates": (folder / "duplicates").read_text(),
        **{
            name: sorted(
                line.replace(str(folder), "")
                for path in (folder / "jsonl").glob(f"{name}-*.jsonl")
                for line in path.read_text().splitlines()
            )
            for name in ("part", "late", "errors")
        },
    }
