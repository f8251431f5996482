"""``python -m benchmarks.spark_fixed_cost``: what a small warm micro-batch costs on Spark.

Queries of increasing depth run in turn over the same files in one session: Spark alone, with an
exchange, with Python in it, with state in Python, and this library's. A figure is the median of the
warm batches of all rounds, in milliseconds: the part that runs the query (``addBatch``), and the
whole micro-batch. The time of processors is that of the driver, the JVM and all Python workers, for
each micro-batch of a run, its start included: it says more where other programs run too (Linux).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import lowwater as lw
from benchmarks.spark_events import batches_folder
from benchmarks.spark_queries import spark_fixed, spark_sessions
from lowwater.spark import configure

_DATA = Path(__file__).parent / ".data"
_GROUPS = 8


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def _counted(
    key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    count = sum(map(len, frames)) + (state.get[0] if state.exists else 0)
    state.update((count,))
    yield pd.DataFrame({"number": [key[0]], "count": [count]})


def _with_python(events: DataFrame) -> DataFrame:
    return events.mapInArrow(_same, events.schema)


def _with_state(events: DataFrame) -> DataFrame:
    numbered = events.withColumn("number", F.abs(F.hash("key")) % _GROUPS)
    return numbered.groupBy("number").applyInPandasWithState(
        _counted, "number int, count long", "count long", "append", GroupStateTimeout.NoTimeout
    )


def _levels(
    depth: int, key_groups: int, operator: str | None = None
) -> Callable[[DataFrame], DataFrame]:
    def query(events: DataFrame) -> DataFrame:
        keyed = lw.from_spark(events, time="t", watermark="10s").key_by("key")
        made = keyed.window(lw.FixedWindows("1m")).aggregate(total=lw.sum("value"))
        for minutes in range(2, depth + 1):
            again = made.key_by("key").window(lw.FixedWindows(f"{minutes}m"))
            made = again.aggregate(total=lw.sum("total"))
        return made.to_spark(events.sparkSession, key_groups=key_groups, operator=operator)

    return query


QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "nothing": lambda events: events,
    "exchange": lambda events: events.repartition(2, "key"),
    "mapInArrow": _with_python,
    "exchange, mapInArrow": lambda events: _with_python(events.repartition(2, "key")),
    "mapInArrow, exchange, mapInArrow": lambda events: _with_python(
        _with_python(events).repartition(2, "key")
    ),
    "applyInPandasWithState, 8 groups": _with_state,
    "Spark's windowed sum": spark_fixed,
    "Spark's sessions": spark_sessions,
    "lowwater's windowed sum": _levels(1, _GROUPS),
    "lowwater's, mapInArrow": _levels(1, _GROUPS, "mapInArrow"),
    "lowwater's, mapInArrow, one task": _levels(1, 1, "mapInArrow"),
    "lowwater, 3 levels": _levels(3, _GROUPS),
    "lowwater, 3 levels, mapInArrow, one partition": _levels(3, 1, "mapInArrow"),
    "lowwater, 3 levels of 32 groups": _levels(3, 32),
}


def taken(spark: SparkSession, name: str, folder: Path) -> list[dict[str, float]]:
    """Run a query over files, one for each micro-batch; return the milliseconds of their parts."""
    before = _processor_seconds()
    events = (
        spark.readStream.schema("t timestamp, key string, value long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder))
    )
    with tempfile.TemporaryDirectory(dir=folder.parent) as checkpoint:
        # Where state lies whose place is not said.
        spark.conf.set("spark.sql.streaming.checkpointLocation", checkpoint)
        query = (
            QUERIES[name](events)
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        reports = [json.loads(each.json) for each in query.recentProgress]
    parts = [each["durationMs"] for each in reports if each["numInputRows"]]
    processors = 1_000 * (_processor_seconds() - before) / len(reports)
    return [{**each, "processors": processors} for each in parts]


def _processor_seconds() -> float:
    """Return the time that this process and all that it started have had of processors."""
    ticks: dict[int, float] = {}
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        own = int(stat.parent.name)
        parents[own] = int(fields[1])
        ticks[own] = sum(map(int, fields[11:15]))  # with what its own, ended children had
    mine = {os.getpid()}
    while more := {own for own, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(ticks[own] for own in mine if own in ticks) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print a line for each query."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark_fixed_cost", description=__doc__
    )
    parser.add_argument("--rows", type=int, default=1_000, help="rows a batch")
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--warm-up", type=int, default=10, help="batches that do not count")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=QUERIES, default=list(QUERIES))
    parser.add_argument("--conf", nargs="*", default=[], help="settings of Spark's, name=value")
    args = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")
    folder = batches_folder(args.rows, 1_000, args.batches, _DATA)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.memory", "3g").config("spark.log.level", "ERROR")
    builder = configure(builder, partitions=2, chains=True)
    for setting in args.conf:
        builder = builder.config(*setting.split("=", 1))
    spark = builder.getOrCreate()
    took: dict[str, list[dict[str, float]]] = defaultdict(list)
    for name in args.only:
        taken(spark, name, folder)
    for _ in range(args.rounds):
        for name in args.only:
            took[name] += taken(spark, name, folder)[args.warm_up :]
    spark.stop()
    print(f"\n{args.rows:,} rows a batch\n")
    print("| query | addBatch, ms | whole batch, ms | processors, ms |\n|---|---|---|---|")
    for name, parts in took.items():
        figures = (
            statistics.median(each[part] for each in parts)
            for part in ("addBatch", "triggerExecution", "processors")
        )
        print(f"| {name} | " + " | ".join(f"{each:.0f}" for each in figures) + " |")


if __name__ == "__main__":
    main()
