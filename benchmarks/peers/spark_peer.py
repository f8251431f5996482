"""Spark: Structured Streaming's own windows, a file of events per micro-batch.

The events are cut into files of a micro-batch each before time counts. What comes out goes to
Spark's no-op sink; ``observe`` sums it up on the way.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from benchmarks.peers.job import DELAY_S, JOIN, WITHIN_S, Answer, Timed
from benchmarks.peers.stopwatch import Stopwatch

DISTRIBUTION = "pyspark"
_ROWS = 500_000  # of a micro-batch
_CONFIGURATION = {
    "spark.driver.memory": "4g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
}


def run(path: Path, windows: str) -> Timed:
    """Sum per key and window, or join."""
    with _session() as spark:
        return _query(spark, _batches(path), windows)


def _query(spark: SparkSession, folder: Path, windows: str) -> Timed:
    events = (
        spark.readStream.schema("at timestamp, key string, value long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder))
        .withWatermark("at", f"{DELAY_S} seconds")
    )
    sums = _joined(events) if windows == JOIN else _summed(events, windows)
    with tempfile.TemporaryDirectory(dir=folder.parent) as checkpoint:
        with Stopwatch() as watch:
            query = (
                _observed(sums)
                .writeStream.format("noop")
                .outputMode("append")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        seen: list[Any] = [progress.observedMetrics["sums"] for progress in query.recentProgress]
    answer = Answer(*(sum(row[name] or 0 for row in seen) for name in ("n", "total", "squares")))
    return Timed(answer, watch.seconds, watch.cpu)


def _summed(events: DataFrame, windows: str) -> DataFrame:
    kinds = {
        "fixed": F.window("at", "1 minute"),
        "sessions": F.session_window("at", "30 seconds"),
    }
    return events.groupBy(kinds[windows], "key").agg(F.sum("value").alias("total"))


def _joined(events: DataFrame) -> DataFrame:
    even, odd = (
        events.where(f"value % 2 = {rest}").alias(name) for rest, name in ((0, "e"), (1, "o"))
    )
    near = f"e.key = o.key AND o.at BETWEEN e.at AND e.at + INTERVAL {WITHIN_S} SECONDS"
    return even.join(odd, F.expr(near)).selectExpr("e.value * 1000 + o.value AS total")


def _observed(sums: DataFrame) -> DataFrame:
    total = F.col("total")
    return sums.observe(
        "sums",
        F.count(F.lit(1)).alias("n"),
        F.sum(total).alias("total"),
        F.sum(total * total).alias("squares"),
    )


_SPARK: list[SparkSession] = []


@contextmanager
def _session() -> Iterator[SparkSession]:
    """Give the session of this process, which the second run finds warm."""
    if not _SPARK:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        cores = os.cpu_count() or 1
        builder = SparkSession.builder.master(f"local[{cores}]")
        for key, value in {**_CONFIGURATION, "spark.sql.shuffle.partitions": str(cores)}.items():
            builder = builder.config(key, value)
        _SPARK.append(builder.getOrCreate())
        _SPARK[0].sparkContext.setLogLevel("ERROR")
    yield _SPARK[0]


def _batches(path: Path) -> Path:
    folder = path.with_suffix(".batches")
    if not folder.exists():
        half = path.with_suffix(".half")
        half.mkdir()
        for number, batch in enumerate(pq.ParquetFile(path).iter_batches(_ROWS)):
            table = pa.Table.from_batches([batch])
            # Row groups for each core to read one.
            pq.write_table(table, half / f"{number:04d}.parquet", row_group_size=_ROWS // 2)
        _write_end(half / "end.parquet", table)
        half.replace(folder)
    return folder


def _write_end(path: Path, like: pa.Table) -> None:
    """Write an event an hour on, to close all: Spark's watermark does not end with the input."""
    last = pc.max(like["at"]).as_py() + dt.timedelta(hours=1)
    pq.write_table(pa.table([[last], ["end"], [0]], schema=like.schema), path)
