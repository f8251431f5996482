"""A job for spark-submit: two stages in one query, written to a database exactly once.

    spark-submit --py-files lowwater.zip spark_graph.py INPUT DATABASE STATE

The first stage scores teams by minute, and emits and retracts as rides arrive. The second one finds
the best score of each minute. INPUT is a folder of JSON lines, and STATE one for the checkpoint;
all workers can reach both. DATABASE is the connection string of a PostgreSQL database, or the file
of an SQLite one. The job ends when it has read all files; started again, it resumes with the files
that arrived since.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

import lowwater as lw
from lowwater.spark import configure, progress, split

TABLES = """
CREATE TABLE IF NOT EXISTS done (batch bigint PRIMARY KEY);
CREATE TABLE IF NOT EXISTS scores (
    team text, start text, points bigint, PRIMARY KEY (team, start));
CREATE TABLE IF NOT EXISTS best (start text PRIMARY KEY, most bigint, teams bigint);
"""


def main(source: str, database: str, state: str) -> None:
    spark = configure(SparkSession.builder.appName("scores"), partitions=2).getOrCreate()
    print(run(spark, source, database, f"{state}/checkpoint"))


def run(spark: SparkSession, source: str, database: str, checkpoint: str) -> str:
    """Run the query to the end of its input; return what it has done."""
    rides = spark.readStream.schema("at string, team string, points long").json(source)
    scores, best = graph(lw.from_spark(rides, time="at", watermark="30s"))
    query = (
        lw.to_spark(spark, scores, best, key_groups=4)
        .writeStream.foreachBatch(writer(database))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    metrics = progress(query)
    panes = {name: stage.panes.total() for name, stage in sorted(metrics.stages.items())}
    return f"{metrics.events} rides, panes: {panes}"


def graph(rides: lw.Stream) -> tuple[lw.Pipeline, lw.Pipeline]:
    """Return both stages; ``rides`` has ``team`` and ``points``."""
    each_time = lw.AfterWatermark(early=lw.AfterCount(1), late=lw.AfterCount(1))
    scores = (
        rides.key_by("team")
        .window(
            lw.FixedWindows("1m"),
            trigger=each_time,
            accumulation="retracting",
            allowed_lateness="1h",
        )
        .aggregate(points=lw.sum("points"))
        .named("scores")
    )
    best = (
        scores.key_by(all=lw.lit("all"))
        .window(lw.FixedWindows("1m"), trigger=each_time, accumulation="retracting")
        .aggregate(most=lw.max("points"), teams=lw.count())
        .named("best")
    )
    return scores, best


def writer(database: str) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that writes to a database."""
    with closing(connect(database)) as made, made:
        for statement in TABLES.split(";")[:-1]:
            made.cursor().execute(statement)

    def write(frame: DataFrame, batch: int) -> None:
        with split(frame) as rows:
            scores, best = rows["scores"].collect(), rows["best"].collect()
        with closing(connect(database)) as connection, connection:
            store(connection, batch, scores, best)

    return write


def store(connection: Any, batch: int, scores: list[Row], best: list[Row]) -> None:
    """Write a micro-batch; nothing if it was written before, as after a crash of the driver.

    Rows of one key and window are in the order of emission. A retraction precedes the pane that
    replaces what it retracts.
    """
    cursor = connection.cursor()
    mark = "?" if isinstance(connection, sqlite3.Connection) else "%s"

    def execute(statement: str, *values: object) -> None:
        cursor.execute(statement.replace("?", mark), values)

    execute("INSERT INTO done VALUES (?) ON CONFLICT DO NOTHING", batch)
    if not cursor.rowcount:
        return
    for row in scores:
        if row.kind == "retract":
            execute("DELETE FROM scores WHERE team = ? AND start = ?", row.team, start(row))
        else:
            execute("INSERT INTO scores VALUES (?, ?, ?)", row.team, start(row), row.points)
    for row in best:
        if row.kind == "retract":
            execute("DELETE FROM best WHERE start = ?", start(row))
        else:
            execute("INSERT INTO best VALUES (?, ?, ?)", start(row), row.most, row.teams)


def start(row: Row) -> str:
    """Return when a row's window starts, in UTC."""
    return f"{row.window_start.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def connect(database: str) -> Any:
    """Connect; as a context manager, the connection is a transaction."""
    if database.startswith(("postgresql://", "host=")):
        import psycopg

        return psycopg.connect(database)
    return sqlite3.connect(database)


if __name__ == "__main__":
    main(*sys.argv[1:])
