"""The same windowed sum on Spark in five ways; ``python -m benchmarks.spark_queries`` runs one.

It prints one JSON object: seconds of each batch, and of the parts that Spark's progress tells.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from lowwater.spark import recommended

_DELAY = "10 seconds"
_MINUTE_US = 60_000_000
_PANES = "key string, start timestamp, total long"
_STATE = "ends array<long>, totals array<long>"
# All queries run with what is recommended for this library's.
_CONFIGURATION = {
    "spark.master": "local[2]",
    "spark.driver.memory": "4g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    **recommended(partitions=2),
}


def spark_fixed(events: DataFrame) -> DataFrame:
    """Spark's own windows."""
    by = events.withWatermark("t", _DELAY).groupBy(F.window("t", "1 minute"), "key")
    return by.agg(F.sum("value").alias("total"))


def spark_sessions(events: DataFrame) -> DataFrame:
    """Spark's own sessions."""
    by = events.withWatermark("t", _DELAY).groupBy(F.session_window("t", "30 seconds"), "key")
    return by.agg(F.sum("value").alias("total"))


def per_key(events: DataFrame) -> DataFrame:
    """The obvious use of ``applyInPandasWithState``: a group for each key."""
    return (
        events.withWatermark("t", _DELAY)
        .groupBy("key")
        .applyInPandasWithState(
            _sum_of_key,
            _PANES,
            "packed binary",
            "append",
            GroupStateTimeout.EventTimeTimeout,
        )
    )


def _sum_of_key(
    key: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    totals: dict[int, int] = {}
    if state.exists:
        totals = {int(end): total for end, total in json.loads(state.get[0]).items()}
    for part in parts:
        times = part["t"].to_numpy().astype("datetime64[us]").astype("int64")
        for end, value in zip(
            times - times % _MINUTE_US + _MINUTE_US, part["value"].to_numpy(), strict=True
        ):
            totals[int(end)] = totals.get(int(end), 0) + int(value)
    watermark = state.getCurrentWatermarkMs() * 1_000
    due = sorted(end for end in totals if end <= watermark)
    shown = [totals.pop(end) for end in due]
    if totals:
        state.update((json.dumps(totals).encode(),))
        state.setTimeoutTimestamp(max(min(totals), watermark + 1_000) // 1_000)
    elif state.exists:
        state.remove()
    starts = pd.to_datetime([end - _MINUTE_US for end in due], unit="us")
    yield pd.DataFrame({"key": key[0], "start": starts, "total": shown})


class _SumProcessor(StatefulProcessor):
    """A sum per window in map state, and a timer at the end of each."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._totals = handle.getMapState("totals", "end long", "total long")

    def handleInputRows(  # noqa: N802 - the name Spark calls
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803 - so too
    ) -> Iterator[pd.DataFrame]:
        added: dict[int, int] = {}
        for part in rows:
            times = part["t"].to_numpy().astype("datetime64[us]").astype("int64")
            for end, value in zip(
                times - times % _MINUTE_US + _MINUTE_US, part["value"].to_numpy(), strict=True
            ):
                added[int(end)] = added.get(int(end), 0) + int(value)
        for end, total in added.items():
            if self._totals.containsKey((end,)):
                total += self._totals.getValue((end,))[0]  # noqa: PLW2901
            else:
                self._handle.registerTimer(end // 1_000)
            self._totals.updateValue((end,), (total,))
        yield pd.DataFrame()

    def handleExpiredTimer(  # noqa: N802 - the name Spark calls
        self,
        key: Any,
        timerValues: Any,  # noqa: N803 - so too
        expiredTimerInfo: Any,  # noqa: N803 - so too
    ) -> Iterator[pd.DataFrame]:
        end = expiredTimerInfo.getExpiryTimeInMs() * 1_000
        total = self._totals.getValue((end,))[0]
        self._totals.removeKey((end,))
        start = pd.to_datetime([end - _MINUTE_US], unit="us")
        yield pd.DataFrame({"key": [key[0]], "start": start, "total": [total]})

    def close(self) -> None:
        pass


def transform_with_state(events: DataFrame) -> DataFrame:
    """``transformWithStateInPandas``, a key at a time as it wants it."""
    return (
        events.withWatermark("t", _DELAY)
        .groupBy("key")
        .transformWithStateInPandas(
            _SumProcessor(), outputStructType=_PANES, outputMode="append", timeMode="EventTime"
        )
    )


def lowwater_fixed(events: DataFrame, delay: str = "10s", **options: Any) -> DataFrame:
    """This library."""
    import lowwater as lw

    keyed = lw.from_spark(events, time="t", watermark=delay).key_by("key")
    panes = keyed.window(lw.FixedWindows("1m")).aggregate(total=lw.sum("value"))
    return panes.to_spark(events.sparkSession, **options)


def lowwater_sessions(events: DataFrame, **options: Any) -> DataFrame:
    """This library."""
    import lowwater as lw

    keyed = lw.from_spark(events, time="t", watermark="10s").key_by("key")
    panes = keyed.window(lw.Sessions("30s")).aggregate(total=lw.sum("value"))
    return panes.to_spark(events.sparkSession, **options)


def spark_growing(events: DataFrame) -> DataFrame:
    """Spark's own windows, none of which ends."""
    by = events.withWatermark("t", "1000 hours").groupBy(F.window("t", "1 minute"), "key")
    return by.agg(F.sum("value").alias("total"))


def lowwater_growing(events: DataFrame, **options: Any) -> DataFrame:
    """This library's windows, none of which ends."""
    return lowwater_fixed(events, "1000h", **options)


QUERIES: dict[str, Callable[..., DataFrame]] = {
    "spark-fixed": spark_fixed,
    "spark-sessions": spark_sessions,
    "per-key": per_key,
    "transform-with-state": transform_with_state,
    "lowwater-fixed": lowwater_fixed,
    "lowwater-sessions": lowwater_sessions,
    "spark-growing": spark_growing,
    "lowwater-growing": lowwater_growing,
}


def run(
    name: str, folder: Path, most_seconds: float, options: dict[str, Any], before: Path | None
) -> dict[str, Any]:
    """Run a query over a folder, a file per batch, as far as it comes; return what it took.

    Args:
        name: Which of :data:`QUERIES`.
        folder: The files.
        most_seconds: About how long, if a few batches are done by then.
        options: Of ``to_spark``.
        before: Files that the query runs over first, in a run that does not count.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name)
    for key, value in _CONFIGURATION.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if before is not None:
        _streamed(spark, name, before, most_seconds, options)
    progress = _streamed(spark, name, folder, most_seconds, options)
    spark.stop()
    return {
        "batches": [each["durationMs"]["triggerExecution"] / 1e3 for each in progress],
        "add_batch": [each["durationMs"]["addBatch"] / 1e3 for each in progress],
        "parts": [each["durationMs"] for each in progress],
        "rows": [each["numInputRows"] for each in progress],
    }


def _streamed(
    spark: SparkSession, name: str, folder: Path, most_seconds: float, options: dict[str, Any]
) -> list[dict[str, Any]]:
    """Run a query, and return the progress of its batches."""
    events = (
        spark.readStream.schema("t timestamp, key string, value long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder))
    )
    with tempfile.TemporaryDirectory(dir=folder.parent) as checkpoint:
        if options.get("state") == "rocksdb":
            options = {"state_location": f"{checkpoint}/lowwater", **options}
        panes = QUERIES[name](events, **options)
        query = (
            panes.writeStream.format("noop")
            .outputMode("append")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        start = time.perf_counter()
        while not query.awaitTermination(1):
            took, done = time.perf_counter() - start, len(_progress(query))
            # What is slow is measured less often, or not while it is warm: but once, if it can be.
            if took > most_seconds * (1 if done > 2 else 2 if done else 4):
                query.stop()
        return _progress(query)


def _progress(query: Any) -> list[dict[str, Any]]:
    every = [json.loads(each.json) for each in query.recentProgress]
    return [each for each in every if each["numInputRows"]]


def main() -> None:
    """Run the query that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_queries", description=__doc__)
    parser.add_argument("query", choices=QUERIES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most-seconds", type=float, default=180)
    parser.add_argument("--options", type=json.loads, default={}, help="of to_spark, as JSON")
    parser.add_argument("--before", type=Path, help="a folder to run over first")
    args = parser.parse_args()
    found = run(args.query, args.folder, args.most_seconds, args.options, args.before)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
