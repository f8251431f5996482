"""Runs a pipeline over Spark Connect.

``python -m tests.spark.connect_client URL FOLDER`` prints how many panes a static run gives, and a
stream with each state backend.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import lowwater as lw
from lowwater.errors import UnsupportedByRunner
from lowwater.spark import counts, progress, recommended
from lowwater.spark.versioned import CHECKPOINTS


def main(url: str, folder: Path) -> None:
    """Run it."""
    spark = session(url)
    rides = folder / "rides"
    rides.mkdir()
    lines = [
        json.dumps({"at": f"2000-01-01T12:{n:02}:00Z", "team": "A", "points": n}) for n in range(50)
    ]
    (rides / "0.json").write_text("\n".join(lines))
    print("static", panes(spark, spark.read, rides).count())
    for state, options in (
        ("inline", {}),
        ("rocksdb", {"state_location": folder / "windows"}),
    ):
        shown = panes(spark, spark.readStream, rides, state=state, **options)
        query = (
            shown.writeStream.format("parquet")
            .option("path", str(folder / state))
            .option("checkpointLocation", str(folder / f"{state}-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        told, reports = progress(query), query.recentProgress
        summed = sum(counts(report)["lowwater"]["on_time"] for report in reports)
        print("told", told.events, sum(told.panes.values()), summed)
        print(state, spark.read.parquet(str(folder / state)).count())
    spark.conf.set(CHECKPOINTS, str(folder / "checkpoints"))
    try:
        panes(spark, spark.readStream, rides, state="rocksdb")
    except UnsupportedByRunner:
        print("refused")
    spark.stop()


def panes(spark: SparkSession, reader: Any, rides: Path, **options: Any) -> Any:
    """Return the panes of windows of ten minutes."""
    frame = reader.schema("at string, team string, points long").json(str(rides))
    return (
        lw.from_spark(frame, time="at", watermark="30s")
        .key_by("team")
        .window(lw.FixedWindows("10m"))
        .aggregate(points=lw.sum("points"))
        .to_spark(spark, key_groups=2, **options)
    )


def session(url: str) -> SparkSession:
    """Return a session of Spark Connect."""
    builder = SparkSession.builder.remote(url)
    for name, value in recommended(partitions=2).items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    return made


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
