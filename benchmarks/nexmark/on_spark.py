"""The queries on Spark: each as a batch query over the same events, compared in the same way."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import lowwater as lw
from benchmarks.nexmark.answers import Compared, compare
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.measuring import Measured, lines_of, streams_of
from benchmarks.nexmark.queries import QUERIES, Answer
from benchmarks.nexmark.references import REFERENCES, Frames
from lowwater.spark import configure

TYPES = {
    "q6": {"seller": "bigint", "average": "double"},
    "q19": {
        "auction": "bigint", "bidder": "bigint", "price": "bigint", "channel": "string",
        "url": "string", "date_time": "timestamp", "extra": "string", "rank_number": "bigint",
    },
}  # fmt: skip
"""The columns that Python code makes, which Spark has to be told."""


def session() -> SparkSession:
    """Return a local session with two cores, whose times are in UTC."""
    builder = SparkSession.builder.master("local[2]").appName("nexmark")
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.ui.enabled", "false")
    spark: SparkSession = configure(builder, partitions=2).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def measure_on_spark(events: Events, names: list[str]) -> Iterator[Measured]:
    """Run queries one after the other; of a refused one, return the library's own words.

    Args:
        events: What they run over; it is made first, which is not timed.
        names: Which queries.
    """
    table = events.table()
    frames = Frames(table)
    spark = session()
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            try:
                answer = QUERIES[name](streams_of(events, table, folder))
                found = run_on_spark(spark, answer, TYPES.get(name))
            except lw.LowwaterError as error:
                compared = Compared(0, "", refused=str(error))
                yield Measured(name, compared, lines_of(name), events.count, 0.0, None)
                continue
            seconds = time.perf_counter() - began
        compared = compare(found, REFERENCES[name](frames))
        yield Measured(name, compared, lines_of(name), events.count, seconds, None)
    spark.stop()


def run_on_spark(spark: Any, answer: Answer, types: dict[str, str] | None = None) -> pa.Table:
    """Run a query over events at rest, and return what it emitted, retractions too.

    Args:
        spark: The session.
        answer: What a query returned.
        types: Those of columns that Python code makes.
    """
    query: Any = answer.changes() if isinstance(answer, lw.Table) else answer
    made = query.to_spark(spark, types=types) if types else query.to_spark(spark)
    found: pa.Table = made.toArrow()
    return found
