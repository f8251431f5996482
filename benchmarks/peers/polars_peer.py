"""Polars: one batch over all events at once, with no watermark and no state. The yardstick."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from benchmarks.peers.job import GAP_US, Timed, answer_of
from benchmarks.peers.stopwatch import Stopwatch

DISTRIBUTION = "polars"


def run(path: Path, windows: str) -> Timed:
    """Sum per key and window."""
    events = pl.scan_parquet(path)
    if windows == "fixed":
        by = ["key", pl.col("at").dt.truncate("1m")]
    else:
        gap = pl.col("at").diff() >= pl.duration(microseconds=GAP_US)
        new = gap | (pl.col("key") != pl.col("key").shift())
        events = events.sort("key", "at").with_columns(session=new.cum_sum().fill_null(0))
        by = [pl.col("session")]
    query = events.group_by(by).agg(pl.col("value").sum())
    with Stopwatch() as watch:
        totals = query.collect()["value"]
    return Timed(answer_of(totals.to_numpy()), watch.seconds, watch.cpu)
