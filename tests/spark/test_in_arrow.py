"""Levels on ``mapInArrow``, with state of their own, give what the embedded runner gives.

``kill_campaign.py`` and ``graph_campaign.py`` have more; :mod:`tests.spark.test_cell_files` has
every history of deaths, without Spark.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.errors import InvalidArgument, UnsupportedByRunner
from tests.examples import sampled
from tests.spark.graphs_on_spark import expected_of, frame_of, output, start, write_files
from tests.spark.graphs_to_kill import GRAPHS
from tests.spark.killed_drivers import Query
from tests.spark.query_to_kill import OWN, Fault, backend_of, operator_of
from tests.spark.restarted_graphs import Way, check_restarted, graph_number, settings, side_by_side
from tests.spark.test_to_spark import (
    SECOND,
    START,
    cut,
    embedded,
    plain,
    run,
    stream,
    table,
    write,
)

MINUTE = lw.FixedWindows("1m")
PARTITIONS = "spark.sql.shuffle.partitions"


def counted(begun: lw.Stream) -> lw.Pipeline:
    return begun.key_by("key").window(MINUTE).aggregate(n=lw.count(), total=lw.sum("value"))


def run_here(
    spark: Any, query: Query, faults: Mapping[int, Fault], **changed: str
) -> list[list[str]]:
    """Run a query in the tests' session, to the end of its source; return what it gave."""
    backend = backend_of(query.folder, query.state, faults)
    with settings(spark, changed):
        frame = frame_of(
            spark, GRAPHS[query.graph](), query.folder, state=backend, key_groups=2,
            operator=operator_of(query.adapter),
        )  # fmt: skip
        running = start(frame, query.folder)
        assert running.awaitTermination(300)
    assert query.saves() > max(faults)
    return output(query.folder)


@pytest.mark.long(reason="proves again on Spark")
def test_graphs_that_are_restarted(spark: Any, tmp_path: Path) -> None:
    """One has a stage that reads retractions, the other has three levels."""
    case = side_by_side([graph_number(0), graph_number(21)])
    check_restarted(spark, case, tmp_path, Way(OWN, "inline", 3, splits=True, stops="before"))


@pytest.mark.long(reason="proves again on Spark")
def test_a_driver_is_killed_and_then_workers_and_tasks_fail(spark: Any, tmp_path: Path) -> None:
    """Its successor has other partitions; tasks that ended wrote versions that do not count."""
    write_files(GRAPHS["retractions"](), tmp_path / "in")
    query = Query(tmp_path, "retractions", OWN, "rocksdb")
    assert query.run("9=after:driver") == -signal.SIGKILL
    begun = query.saves()
    worker, failed = Fault("after", "worker"), Fault("after", "raise")
    faults = {begun + 2: failed, begun + 4: worker, begun + 11: failed}
    found = run_here(spark, query, faults, **{PARTITIONS: "1"})
    assert found == expected_of(GRAPHS["retractions"](), tmp_path, drained=False)


@pytest.mark.parametrize("state", sampled(["rocksdb", "inline"], every=2))
def test_one_level(spark: Any, tmp_path: Path, state: str) -> None:
    """Restarted with other partitions."""
    data = table(800)
    first, second, third, fourth = cut(data, 200)
    folder = write(tmp_path / "in", first, second)

    def made() -> Any:
        begun = lw.from_spark(stream(spark, folder), time="at", watermark="5s")
        return counted(begun).to_spark(
            spark, key_groups=4, operator="mapInArrow", state=state,
            state_location=tmp_path / "state",
        )  # fmt: skip

    rows, progress = run(made(), tmp_path / "checkpoint")
    assert [report["batchId"] for report in progress] == [0, 1]
    write(folder, third, fourth)
    with settings(spark, {PARTITIONS: "3"}):
        more, progress = run(made(), tmp_path / "checkpoint")
    assert [report["batchId"] for report in progress] == [2, 3]
    assert not progress[0]["stateOperators"]
    begun = lw.from_arrow(data, time="at", watermark=lw.BoundedDisorder("5s"))
    wanted = embedded(counted(begun), bundle_size=200)
    assert plain(rows + more) == plain(row for row in wanted if row["watermark"] is not None)
    assert rows
    assert more


@pytest.mark.long(reason="proves again on Spark")
def test_a_micro_batch_that_is_read_twice_or_to_no_end(spark: Any, tmp_path: Path) -> None:
    """Rows that nobody takes cost no state; what was not begun is missed in the next one."""
    folder = write(tmp_path / "in", *(table(100, seed=seed) for seed in range(4)))
    begun = lw.from_spark(stream(spark, folder), time="at", watermark="30s")
    frame = counted(begun).to_spark(spark, operator="mapInArrow", state_location=tmp_path / "state")
    rows: list[Any] = []

    def keep(part: Any, number: int) -> None:
        first, second = part.toArrow().to_pylist(), part.toArrow().to_pylist()
        assert plain(first) == plain(second)
        rows.extend(first)

    def start(name: str, each: Callable[[Any, int], None]) -> Any:
        return (
            frame.writeStream.foreachBatch(each)
            .option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )

    assert start("twice", keep).awaitTermination(300)
    wanted, _ = run(counted(begun).to_spark(spark), tmp_path / "other")
    assert plain(rows) == plain(wanted)

    def leave_one(part: Any, number: int) -> None:
        if number != 1:
            part.count()

    with pytest.raises(Exception, match="after micro-batch 1 is not there"):
        start("unread", leave_one).awaitTermination(300)

    def threaded(part: Any, number: int) -> None:
        caught: list[Exception] = []

        def count() -> None:
            try:
                part.count()
            except Exception as error:
                caught.append(error)

        thread = threading.Thread(target=count)
        thread.start()
        thread.join()
        raise caught[0]

    with pytest.raises(Exception, match="does not tell this task its micro-batch"):
        start("threaded", threaded).awaitTermination(300)

    def grouped(part: Any, number: int) -> None:
        part.sparkSession.sparkContext.setJobGroup("mine", "")
        part.count()

    with pytest.raises(Exception, match="the group of Spark's jobs is 'mine'"):
        start("grouped", grouped).awaitTermination(300)


def test_a_micro_batch_of_nothing(spark: Any, tmp_path: Path) -> None:
    """A file without a byte has no partitions: no task packs anything, and no state moves."""
    texts = [[1, 70], [], [65, 130], [], [], [300]]
    folder = tmp_path / "in"
    folder.mkdir()
    for at, seconds in enumerate(texts):
        path = folder / f"{at}.jsonl"
        rows = [{"at": START + second * SECOND, "key": "a", "value": 1} for second in seconds]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (1_000_000 + at, 1_000_000 + at))
    begun = lw.read_jsonl(folder, time="at", watermark=lw.Ascending())
    first = counted(begun)
    again = first.key_by("key").window(lw.FixedWindows("2m")).aggregate(n=lw.sum("n"))
    frame = lw.to_spark(
        spark, first, again, files_per_batch=1, operator="mapInArrow",
        state_location=tmp_path / "state",
    )  # fmt: skip
    rows, progress = run(frame, tmp_path / "checkpoint")
    assert len(progress) == len(texts)
    assert sorted((row["output"], row["n"]) for row in rows) == [
        ("stage 1", 1), ("stage 1", 1), ("stage 1", 2), ("stage 2", 1), ("stage 2", 3)
    ]  # fmt: skip


def test_what_needs_another_source_of_time_is_refused(spark: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "in", table(5))
    begun = lw.read_parquet(folder, time="at", watermark=lw.Ascending())
    own: dict[str, Any] = {"operator": "mapInArrow", "state_location": tmp_path / "state"}
    with pytest.raises(UnsupportedByRunner, match="a micro-batch without records") as raised:
        counted(begun).to_spark(spark, drain=True, **own)
    assert "CarriedTime" in str(raised.value)
    waits = begun.key_by("key").window(
        MINUTE, trigger=lw.AfterWatermark(early=lw.AfterProcessingTime("5s")),
        accumulation="discarding",
    )  # fmt: skip
    with pytest.raises(UnsupportedByRunner, match="waits for the clock") as raised:
        waits.aggregate(n=lw.count()).to_spark(spark, **own)
    assert 'timers="batches"' in str(raised.value)
    assert waits.aggregate(n=lw.count()).to_spark(spark, timers="batches", **own).isStreaming
    with pytest.raises(InvalidArgument, match="operator"):
        counted(begun).to_spark(spark, operator="mapInPandas")
    at_rest = lw.from_arrow(table(50), time="at")
    rows = counted(at_rest).to_spark(spark, operator="mapInArrow").toArrow().to_pylist()
    assert plain(rows) == plain(counted(at_rest).to_arrow().to_pylist())
