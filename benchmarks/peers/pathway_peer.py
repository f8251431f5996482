"""Pathway: its windows with a behaviour, over a table whose rows come in engine batches.

The rows are in a data frame before time counts, as its own connectors read no Parquet; its Rust
engine then takes them batch by batch. Each window is given once, when the largest event time
seen is the delay past its end.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pathway as pw
import pyarrow.parquet as pq

from benchmarks.peers.job import BATCH, DELAY_S, GAP_US, MINUTE_US, Answer, Timed

DISTRIBUTION = "pathway"
COUNTED = 1_000_000


def run(path: Path, windows: str) -> Timed:
    """Sum per key and window."""
    kinds = {
        "fixed": pw.temporal.tumbling(duration=MINUTE_US),
        "sessions": pw.temporal.session(max_gap=GAP_US),
    }
    pw.internals.parse_graph.G.clear()
    frame = pq.read_table(path).to_pandas()
    frame["at"] = frame["at"].astype("int64")
    frame["__time__"] = 2 * (1 + np.arange(len(frame)) // BATCH)
    events = pw.debug.table_from_pandas(frame)
    behavior = pw.temporal.exactly_once_behavior(shift=DELAY_S * 1_000_000)
    sums = events.windowby(
        events.at, window=kinds[windows], instance=events.key, behavior=behavior
    ).reduce(total=pw.reducers.sum(pw.this.value))
    answers = sums.reduce(
        windows=pw.reducers.count(),
        total=pw.reducers.sum(pw.this.total),
        squares=pw.reducers.sum(pw.this.total * pw.this.total),
    )
    last: list[Answer] = []

    def keep(key: Any, row: dict[str, int], time: int, is_addition: bool) -> None:
        if is_addition:
            last[:] = [Answer(row["windows"], row["total"], row["squares"])]

    pw.io.subscribe(answers, on_change=keep)
    began = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds = time.perf_counter() - began
    return Timed(last[0], seconds)
