"""Graphs over files that are stopped at each point of a commit and run again (S-K3)."""

from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from tests.property.graphs import Alarms
from tests.unit.engine.local.durable_runs import SECOND, Stopped, stopping

POINTS = (
    "before the write", "after the write", "before publishing", "between sinks",
    "before forgetting",
)  # fmt: skip
EARLY = lw.AfterWatermark(early=lw.AfterCount(2), late=lw.AfterCount(1))

pytestmark = pytest.mark.slow(reason="stops runs at every point")


def write(path: Path, first: int) -> Path:
    """Write 60 records a second apart; each fifth is late, and each fourth comes twice."""
    numbers = [n for n in range(first, first + 60) for _ in range(1 + (n % 4 == 0))]
    table = pa.table(
        {
            "at": pa.array([(n - 25 * (n % 5 == 0)) * SECOND for n in numbers], pa.int64()),
            "id": pa.array(numbers, pa.int64()),
            "key": pa.array([n % 3 for n in numbers], pa.int64()),
            "v": pa.array([n % 10 for n in numbers], pa.int64()),
        }
    )
    path.mkdir(parents=True)
    pq.write_table(table, path / "0.parquet")
    return path


def ends(folder: Path) -> list[Any]:
    """Two sources, duplicates dropped, two stages behind one another, a process, three ends."""
    clock = lw.ManualClock(0)

    def read(name: str) -> lw.Stream:
        return lw.read_parquet(
            folder / name, time="at", watermark=lw.BoundedDisorder("5s"), clock=clock
        )

    union = read("a") | read("b")
    both = union.deduplicate(id="id", within="1m")
    first = (
        both.key_by("key")
        .window(
            lw.FixedWindows("10s"), trigger=EARLY, accumulation="retracting", allowed_lateness="8s"
        )
        .aggregate(v=lw.sum("v"), n=lw.count())
    )
    second = (
        first.key_by(all=lw.lit("all"))
        .window(lw.Sessions("15s"), trigger=EARLY, accumulation="retracting")
        .aggregate(v=lw.sum("v"), most=lw.max("n"))
    )
    alarms = union.key_by("key").process(Alarms())
    return [
        first.write_jsonl(folder / "first"),
        second.write_jsonl(folder / "second"),
        alarms.output("rang").write_jsonl(folder / "rang"),
    ]


def run(folder: Path) -> Any:
    return lw.run(
        *ends(folder), state=folder / "state", commit_every="bundle", bundle_size=7, progress=False
    )


def written(folder: Path) -> dict[str, list[Any]]:
    return {
        f"{end} {what}": [
            json.loads(line)
            for path in sorted((folder / end).glob(f"{what}-*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        for end in ("first", "second", "rang")
        for what in ("part", "late")
    }


def folder_of(path: Path) -> Path:
    write(path / "a", 0)
    write(path / "b", 30)  # their ids meet
    return path


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[Any]], Any]:
    folder = folder_of(tmp_path_factory.mktemp("whole"))
    metrics = run(folder)
    found = written(folder)
    for name in ("first part", "first late", "second part", "rang part"):
        assert found[name]
    assert metrics.duplicates > 30
    return found, metrics.remember()


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(POINTS, id="each in turn"),
        *(
            pytest.param(
                (point,), id=point, marks=pytest.mark.long(reason="stops runs at every point")
            )
            for point in POINTS
        ),
    ],
)
def test_stopped_at_points_again_and_again(
    points: tuple[str, ...], tmp_path: Path, wanted: Any
) -> None:
    folder = folder_of(tmp_path)
    stops = 0
    for point, count in zip(cycle(points), (1, 2, 5, 3, 1, 8, 4, 2, 6, 3)):
        with stopping(point, count):
            try:
                run(folder)
            except Stopped:
                stops += 1
    metrics = run(folder)
    assert stops >= 5
    assert written(folder) == wanted[0]
    assert metrics.remember() == wanted[1]


class Words:
    """Emits numbers, and words later on."""

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.emit({"x": record["v"] if record["at"] < 20 * SECOND else "a word"})


def test_what_was_learned_of_a_stages_records_is_not_forgotten(tmp_path: Path) -> None:
    """S-B1: what was no number before the kill is none after it."""
    write(tmp_path / "a", 0)

    def sums(folder: Path) -> Any:
        words = (
            lw.read_parquet(
                tmp_path / "a", time="at", watermark=lw.Ascending(), clock=lw.ManualClock(0)
            )
            .key_by("key")
            .process(Words())
        )
        chain = words.key_by("key").window(lw.FixedWindows("10s")).aggregate(x=lw.max("x"))
        return chain.write_jsonl(folder / "out").run(
            state=folder / "state", commit_every="bundle", bundle_size=1, progress=False
        )

    whole = sums(tmp_path / "whole")
    assert whole.errors["wrong_type"] > 10
    with stopping("before forgetting", 40), pytest.raises(Stopped):
        sums(tmp_path / "killed")
    assert sums(tmp_path / "killed").remember() == whole.remember()
