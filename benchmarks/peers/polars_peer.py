"""Polars: one batch over all events at once, with no watermark and no state. The yardstick."""

from __future__ import annotations

import time
from pathlib import Path

import polars as pl

from benchmarks.peers.job import GAP_US, Timed, answer_of

DISTRIBUTION = "polars"
COUNTED = 5_000_000


def run(path: Path, windows: str) -> Timed:
    """Sum per key and window."""
    events = pl.scan_parquet(path)
    if windows == "fixed":
        by = ["key", pl.col("at").dt.truncate("1m")]
    else:
        gap = pl.col("at").diff().over("key") >= pl.duration(microseconds=GAP_US)
        events = events.sort("at").with_columns(session=gap.cum_sum().over("key").fill_null(0))
        by = ["key", pl.col("session")]
    query = events.group_by(by).agg(pl.col("value").sum())
    began = time.perf_counter()
    totals = query.collect()["value"]
    seconds = time.perf_counter() - began
    return Timed(answer_of(totals.to_numpy()), seconds)
