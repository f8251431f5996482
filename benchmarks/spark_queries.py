"""The queries that ``python -m benchmarks.spark`` times, each over the same streaming DataFrame."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import lowwater as lw
from benchmarks.spark_pipelines import PIPELINES

COLUMNS = "t timestamp, key string, value long"
_DELAY = "10 seconds"
_MINUTE_US = 60_000_000
_PANES = "key string, start timestamp, total long"


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
        self._totals: Any = handle.getMapState("totals", "end long", "total long")

    def handleInputRows(  # noqa: N802 - the name Spark calls
        self,
        key: Any,
        rows: Iterator[Any],
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


def spark_growing(events: DataFrame) -> DataFrame:
    """Spark's own windows, none of which ends."""
    by = events.withWatermark("t", "1000 hours").groupBy(F.window("t", "1 minute"), "key")
    return by.agg(F.sum("value").alias("total"))


def spark_join(how: str, left: DataFrame, right: DataFrame) -> DataFrame:
    """Spark's own join of two streams, by key and time."""
    one, other = left.withWatermark("t", _DELAY).alias("l"), right.withWatermark("t", _DELAY)
    near = "l.key = r.key AND r.t BETWEEN l.t AND l.t + INTERVAL 5 SECONDS"
    joined = one.join(other.alias("r"), F.expr(near), how)
    return joined.selectExpr("l.key", "l.t", "l.value", "r.t AS t_right", "r.value AS value_right")


def lowwater_join(how: Any, left: DataFrame, right: DataFrame, **options: Any) -> DataFrame:
    """This library's."""
    one, other = (
        lw.from_spark(events, time="t", watermark="10s").select("key", "t", "value")
        for events in (left, right)
    )
    joined = one.join(other, on="key", within="5s", how=how)
    made: DataFrame = joined.to_spark(left.sparkSession, **options)
    return made


def lowwater(name: str, events: DataFrame, **options: Any) -> DataFrame:
    """One of this library's pipelines."""
    timed = PIPELINES[name]
    stream = lw.from_spark(events, time="t", watermark=timed.watermark)
    types = {"types": dict(timed.types)} if timed.types else {}
    made: DataFrame = timed.build(stream).to_spark(events.sparkSession, **types, **options)
    return made


QUERIES: dict[str, Callable[..., DataFrame]] = {
    "spark-fixed": spark_fixed,
    "spark-sessions": spark_sessions,
    "spark-growing": spark_growing,
    "per-key": per_key,
    "transform-with-state": transform_with_state,
    **{f"lowwater-{name}": partial(lowwater, name) for name in PIPELINES},
    **{f"spark-{how} join": partial(spark_join, how) for how in ("inner", "left")},
    **{f"lowwater-{how} join": partial(lowwater_join, how) for how in ("inner", "left")},
}
"""All by name; joins take two DataFrames."""
