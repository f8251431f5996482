"""The benchmarks on Spark: their queries run and agree, and their tables say what was measured."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks import spark as command
from benchmarks.spark_beside import Beside, Sizes
from benchmarks.spark_events import batches_folder, joining_folder, touching_folder
from benchmarks.spark_runs import PROVIDERS, Batch, Plan, Run, RunFailed, Task, named
from benchmarks.spark_state import meetings

MINUTE_US = 60_000_000


def windows(path: Path) -> list[tuple[str, int]]:
    """The key and the minute of each row of a file."""
    table = pq.read_table(path)
    starts = (time // MINUTE_US for time in table["t"].cast("int64").to_pylist())
    return list(zip(table["key"].to_pylist(), starts, strict=True))


def rows_in(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return found


def test_what_is_touched_is_open(tmp_path: Path) -> None:
    *opening, first, second = sorted(touching_folder(70, 30, 12, 2, tmp_path).iterdir())
    opened = [window for path in opening for window in windows(path)]
    assert [len(windows(path)) for path in opening] == [30, 30, 10]
    assert len(set(opened)) == 70
    for path in (first, second):
        assert len(set(windows(path))) == 12
        assert set(windows(path)) <= set(opened)
    assert windows(first) != windows(second)


def test_batches_are_told_apart_by_the_workers_that_their_state_meets() -> None:
    tasks = []
    for batch, met in enumerate([(1, 2), (1, 2), (2, 1), (2, 3), (2, 3)]):
        for partition, pid in enumerate(met):
            told = {"partition": partition, "resident_bytes": 0, "peak_bytes": 0, "batch": batch}
            stage = 2 * batch  # packing, then state, and behind it what unpacks
            tasks += [
                Task(stage=stage, step=1, pid=10 + batch, **told),
                Task(stage=stage + 1, step=3, pid=20 + batch, **told),
                Task(stage=stage + 1, step=2, pid=pid, **told),
            ]
    assert meetings(tasks) == {1: "same", 2: "other", 3: "some", 4: "same"}


class Faked:
    """Runs in which batches take as long as is said of each query."""

    def __init__(self, **seconds: Sequence[float]) -> None:
        self.seconds = seconds
        self.ran: list[str] = []

    def __call__(self, query: str, folder: Path, settings: dict[str, Any], **_: Any) -> Run:
        side = "lowwater" if query.startswith("lowwater") else "RocksDB"
        if settings == PROVIDERS["HDFS-backed"]:
            side = "HDFS"
        self.ran.append(side)
        if side not in self.seconds:
            raise RunFailed("it is not to run")
        return Run([Batch(at, 1, took, took) for at, took in enumerate(self.seconds[side])])


def cells(printed: str) -> Iterator[list[str]]:
    for text in printed.splitlines():
        if text.startswith("| "):
            yield [cell.strip() for cell in text.strip("|").split("|")]


def beside(folder: Path, faked: Faked, rounds: int = 1) -> Beside:
    return Beside(Plan([{}], rounds, 8, 6, 1, folder, faked))


def test_the_yardstick_is_what_is_faster_in_each_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faked = Faked(
        RocksDB=[3, 1, 1, 1, 1, 9, 2, 2],
        HDFS=[1, 1, 1, 1, 1, 9, 4, 4],
        lowwater=[2, 2, 2, 2, 2, 9, 1, 1],
    )
    beside(tmp_path, faked, rounds=2).speed(Sizes("fixed", 10, 3))
    assert faked.ran == 2 * ["RocksDB", "HDFS", "lowwater"]
    cold, warm = cells(capsys.readouterr().out)
    assert cold[4:10] == [
        "first 5, together",
        "7.00",
        "5.00",
        "default",
        "10.00",
        "0.50 (0.50 to 0.50)",
    ]
    assert warm[4:10] == [
        "warm, from 7 on",
        "2.00",
        "4.00",
        "default",
        "1.00",
        "2.00 (2.00 to 2.00)",
    ]


def test_what_is_not_warm_is_said_not_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faked = Faked(RocksDB=[2] * 6, HDFS=[3] * 7, lowwater=[4, 4, 1])
    beside(tmp_path, faked).speed(Sizes("fixed", 10, 3))
    _, warm = cells(capsys.readouterr().out)
    assert warm[4] == "warm, from 7 on; too slow, so the last one of: RocksDB, default"
    assert warm[5:10] == ["2.00", "3.00", "default", "1.00", "2.00 (one round)"]


def test_growth_is_read_where_as_many_windows_are_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    each = list(range(10))
    theirs = [2 * one for one in each]
    beside(tmp_path, Faked(RocksDB=theirs, HDFS=theirs, lowwater=each)).growth(5, 40)
    lines = list(cells(capsys.readouterr().out))
    once = "2.00 (one round)"
    assert [(line[3], line[8], line[9]) for line in lines] == [
        ("10", "2.00", once), ("20", "4.00", once), ("40", "8.00", once),
    ]  # fmt: skip


def test_a_table_does_without_a_query_that_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faked = Faked(RocksDB=[2.0] * 8, lowwater=[1.0] * 8)
    beside(tmp_path, faked, rounds=3).speed(Sizes("fixed", 10, 3))
    assert faked.ran.count("HDFS") == 1
    failed, cold, warm = cells(capsys.readouterr().out)
    assert failed == ["HDFS-backed", "it is not to run"]
    assert cold[5:7] == ["10.00", "none"]
    assert warm[5:7] == ["2.00", "none"]
    assert warm[9].startswith("2.00 ")


def test_ways_have_names() -> None:
    assert named({}) == "default"
    assert named({"state": "rocksdb", "key_groups": 4}) == "state=rocksdb, key_groups=4"


def answered(given: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
    """What a program would print: a driver, an embedded run, or Java."""
    if "benchmarks.spark_driver" in given:
        files = len(list(Path(given[given.index("benchmarks.spark_driver") + 2]).iterdir()))
        batches = [
            {"number": at, "rows": 1, "seconds": 1.0, "add_batch": 0.5} for at in range(files)
        ]
        plain = {"step": 1, "resident_bytes": 5_000_000, "peak_bytes": 7_000_000}
        tasks = [
            {"batch": at, "stage": at, "partition": part, "pid": (part + at // 2) % 2, **plain}
            for at in range(files)
            for part in range(2)
        ]
        told = {"batches": batches, "tasks": tasks if "--record" in given else []}
        return subprocess.CompletedProcess(given, 0, json.dumps(told), "")
    if "benchmarks.spark_cores" in given:
        batch = {"number": 0, "rows": 50_000, "seconds": 1.0, "add_batch": 1.0}
        return subprocess.CompletedProcess(given, 0, json.dumps(batch), "")
    return subprocess.CompletedProcess(given, 0, "", "openjdk")


def test_each_table_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subprocess, "run", answered)
    monkeypatch.setattr(command, "DATA", tmp_path)
    command.main(["--quick", "--only", *command._TABLES])
    lines = list(cells(capsys.readouterr().out))
    kinds = Counter(line[0] for line in lines)
    assert kinds["fixed"] == 2  # cold and warm
    assert kinds["inner join"] == kinds["left join"] == 4  # and in two ways
    assert kinds["none ends"] == 3 * len(command._STATES)
    rows = {line[0]: line for line in lines}
    assert rows["Spark's own, HDFS-backed"][1:4] == ["1.00", "1.00", "1.00 (one round)"]
    assert rows["process per record: count"][3:7] == [
        "1.00",
        "10,000",
        "50,000",
        "0.20 (one round)",
    ]
    assert rows["windows over a retracting stage"][7] == "≥ 0.6"
    assert rows["state=rocksdb, memory_limit=256MB"][1:4] == ["5", "7", "10 (2)"]
    assert rows["per-key"][1:] == ["1.00", "1.00 (one round)"]
    shared = next(line for line in lines if line[1:3] == ["40,000", "500"])
    assert [shared[3].split()[0], shared[4].split()[0], shared[5]] == ["1.00", "1.00", "1.00"]


@pytest.mark.long(reason="is about benchmarks, not the library")
@pytest.mark.parametrize("windowed", ["fixed", "sessions"])
def test_what_is_compared_is_equal(spark: Any, tmp_path: Path, windowed: str) -> None:
    from benchmarks.spark_queries import COLUMNS, QUERIES

    folder = batches_folder(4_000, 10, 2, tmp_path)
    events = spark.read.schema(COLUMNS).parquet(str(folder))
    totals = [
        Counter((row.key, row.total) for row in QUERIES[f"{side}-{windowed}"](events).collect())
        for side in ("spark", "lowwater")
    ]
    assert totals[0] == totals[1]
    assert len(totals[0]) >= 10


@pytest.mark.long(reason="is about benchmarks, not the library")
def test_joins_that_are_compared_are_equal(spark: Any, tmp_path: Path) -> None:
    """J-4: a left join has the pairs of an inner one, so that one of them is tried here."""
    from benchmarks.spark_queries import COLUMNS, QUERIES

    folder = joining_folder(400, 300, 2, tmp_path)
    rows = {
        side: [row for path in sorted((folder / side).iterdir()) for row in rows_in(path)]
        for side in ("left", "right")
    }
    times = {row["value"]: row["t"] for row in rows["left"]}
    assert all(0 <= (row["t"] - times[row["value"]]).total_seconds() <= 5 for row in rows["right"])
    left, right = (spark.read.schema(COLUMNS).parquet(str(folder / side)) for side in rows)
    right = right.where("value % 4 = 0")
    columns = ("key", "t", "value", "t_right", "value_right")
    found = [
        Counter(map(tuple, QUERIES[f"{side}-left join"](left, right).select(*columns).collect()))
        for side in ("spark", "lowwater")
    ]
    assert found[0] == found[1]
    assert {row[-1] is None for row in found[0]} == {False, True}
