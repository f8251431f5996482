"""``python -m benchmarks.spark_driver QUERY FOLDER``: runs one query in a driver of its own.

It prints one JSON object: what each micro-batch took, and, if tasks are recorded, what Python
workers ran them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession, udf

from benchmarks.spark_daemon import STEP, TASKS
from benchmarks.spark_queries import COLUMNS, QUERIES
from lowwater.spark import recommended
from lowwater.spark.session import CHECKS

CORES = 2
# All queries run with what is recommended for this library's.
_CONFIGURATION = {
    "spark.master": f"local[{CORES}]",
    "spark.driver.memory": "6g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    CHECKS: "false",  # so that graphs of several levels run on applyInPandasWithState
    **recommended(partitions=CORES),
}


def run(
    name: str,
    folder: Path,
    settings: dict[str, Any],
    *,
    most_seconds: float = 180,
    before: Path | None = None,
    record: bool = False,
    own_workers: bool = False,
) -> dict[str, Any]:
    """Run a query over a folder, a file per batch, as far as it comes; return what it took.

    Args:
        name: Which of :data:`~benchmarks.spark_queries.QUERIES`.
        folder: The files; or folders of them, ``left`` and ``right``, for a join.
        settings: Options of ``to_spark``; and of Spark, whose names begin with ``spark.``.
        most_seconds: About how long, if a few batches are done by then.
        before: Files that the query runs over first, in a run that does not count.
        record: Whether workers record what tasks they run.
        own_workers: Whether each Python step of a query has workers of its own. Otherwise all
            share one queue of idle workers, and a step meets those that another one has left.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    of_spark = {key: value for key, value in settings.items() if key.startswith("spark.")}
    options = {key: value for key, value in settings.items() if key not in of_spark}
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        recorded = Path(scratch, "tasks")
        builder = SparkSession.builder.appName(name)
        for key, value in {**_CONFIGURATION, **of_spark}.items():
            builder = builder.config(key, value)
        if record:
            os.environ[TASKS] = str(recorded)
            builder = builder.config("spark.python.daemon.module", "benchmarks.spark_daemon")
        if own_workers:
            _separate_workers()
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        if before is not None:
            streamed(spark, name, before, Path(scratch, "before"), options, most_seconds)
        at = Path(scratch, "counted")
        query, progress = streamed(spark, name, folder, at, options, most_seconds)
        spark.stop()  # and the workers with it, so that all of them have recorded their tasks
        lines = recorded.read_text().splitlines() if record else []
    tasks = [json.loads(line) for line in lines]
    return {
        "batches": [
            {
                "number": each["batchId"],
                "rows": each["numInputRows"],
                "seconds": each["durationMs"]["triggerExecution"] / 1e3,
                "add_batch": each["durationMs"]["addBatch"] / 1e3,
            }
            for each in progress
        ],
        "tasks": [task for task in tasks if task.pop("query") == query],
    }


def streamed(
    spark: SparkSession,
    name: str,
    folder: Path,
    scratch: Path,
    options: dict[str, Any],
    most_seconds: float,
) -> tuple[str, list[dict[str, Any]]]:
    """Run a query; return its id, and the progress reports of the batches that had records."""
    reader = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    sides = [folder / side for side in ("left", "right") if (folder / side).is_dir()]
    events = [reader.parquet(str(each)) for each in sides or [folder]]
    # Where state lies whose place is not said.
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(scratch / "checkpoints"))
    query = (
        QUERIES[name](*events, **options)
        .writeStream.format("noop")
        .outputMode("append")
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    start = time.perf_counter()
    while not query.awaitTermination(1):
        took, done = time.perf_counter() - start, len(_progress(query))
        # What is slow is measured less often, or not while it is warm: but once, if it can be.
        if took > most_seconds * (1 if done > 2 else 2 if done else 4):
            query.stop()
    return str(query.id), _progress(query)


def _progress(query: Any) -> list[dict[str, Any]]:
    every = [json.loads(each.json) for each in query.recentProgress]
    return [each for each in every if each["numInputRows"]]


def _separate_workers() -> None:
    """Give each Python step its own environment, for each of which Spark starts own workers."""
    functions: Any = udf
    wrap, numbers = functions._wrap_function, itertools.count(1)

    def wrapped(context: SparkContext, *given: Any) -> Any:
        environment: dict[str, str] = context.environment
        environment[STEP] = str(next(numbers))
        return wrap(context, *given)

    functions._wrap_function = wrapped


def main() -> None:
    """Run the query that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_driver", description=__doc__)
    parser.add_argument("query", choices=QUERIES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most-seconds", type=float, default=180)
    parser.add_argument("--settings", type=json.loads, default={}, help="of to_spark and Spark")
    parser.add_argument("--before", type=Path, help="a folder to run over first")
    parser.add_argument("--record", action="store_true", help="what tasks the workers run")
    parser.add_argument("--own-workers", action="store_true", help="for each Python step")
    given = vars(parser.parse_args())
    found = run(given.pop("query"), given.pop("folder"), given.pop("settings"), **given)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
