"""Seconds a micro-batch of one, two and three levels on Spark, in one session.

::

    python -m benchmarks.levels_on_spark DIR
    python -m benchmarks.levels_on_spark DIR --operator transformWithStateInPandas

Each micro-batch has 250,000 records of 10,000 keys. The first level counts and adds per key and
minute, the second per key and ten minutes, the third all of an hour. Rounds alternate between the
depths; figures are medians over all micro-batches but the first two of each query.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lowwater as lw

FILES, ROWS, KEYS = 8, 250_000, 10_000
MINUTE = 60_000_000
START = 28_333_320 * MINUTE


def write_files(folder: Path) -> None:
    """Write a file per micro-batch, each of a minute."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(3)
    names = pa.array([f"key{number}" for number in range(KEYS)])
    for number in range(FILES):
        at = START + number * MINUTE + np.sort(rng.integers(0, MINUTE, ROWS))
        table = pa.table(
            {
                "at": pa.array(at).view(pa.timestamp("us", "UTC")),
                "key": names.take(pa.array(rng.integers(0, KEYS, ROWS))),
                "v": rng.integers(0, 100, ROWS),
            }
        )
        path = folder / f"{number}.parquet"
        pq.write_table(table, path)
        os.utime(path, (number + 1, number + 1))


def pipeline(folder: Path, depth: int) -> lw.Pipeline:
    """Return a pipeline of so many levels."""
    records = lw.read_parquet(folder, time="at", watermark=lw.BoundedDisorder("5s"))
    made = records.key_by("key").window(lw.FixedWindows("1m"))
    last: lw.Pipeline = made.aggregate(n=lw.count(), v=lw.sum("v"))
    for length in ["10m", "1h"][: depth - 1]:
        again = last.with_columns(all=lw.lit(0)).key_by("key" if length == "10m" else "all")
        last = again.window(lw.FixedWindows(length)).aggregate(n=lw.sum("n"), v=lw.sum("v"))
    return last


def seconds(session: Any, folder: Path, depth: int) -> list[float]:
    """Run a query over all files; return the seconds of each of its warm micro-batches."""
    checkpoint = folder / "checkpoint"
    frame = pipeline(folder / "in", depth).to_spark(session, files_per_batch=1)
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    shutil.rmtree(checkpoint)
    return [one["durationMs"]["triggerExecution"] / 1000 for one in query.recentProgress[2:]]


def main() -> None:
    """Print a line for each depth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--operator", default="applyInPandasWithState")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    from pyspark.sql import SparkSession

    import lowwater.spark

    write_files(options.folder / "in")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.memory", "3g").config("spark.log.level", "ERROR")
    chains = options.operator == "applyInPandasWithState"
    session = lowwater.spark.configure(builder, partitions=2, chains=chains).getOrCreate()
    seconds(session, options.folder, 3)  # warms the machine up
    took: dict[int, list[float]] = defaultdict(list)
    for _ in range(options.rounds):
        for depth in (1, 2, 3):
            took[depth] += seconds(session, options.folder, depth)
    session.stop()
    one = statistics.median(took[1])
    for depth, times in took.items():
        median = statistics.median(times)
        print(
            f"{depth} levels: {median:.2f} s a micro-batch ({min(times):.2f} to {max(times):.2f}), "
            f"{median / one:.2f} times that of one"
        )


if __name__ == "__main__":
    main()
