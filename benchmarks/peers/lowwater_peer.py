"""lowwater: bundles of 50 000 of the Parquet file, panes as Arrow batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import lowwater as lw
from benchmarks.peers.job import BATCH, DELAY_S, JOIN, PATTERN, WITHIN_S, Timed, answer_of
from benchmarks.peers.stopwatch import Stopwatch
from lowwater.kernels import WORTH_LOADING, count_records
from lowwater.windows import WindowFunction

DISTRIBUTION = "lowwater"
WATERMARK = lw.BoundedDisorder(f"{DELAY_S}s")


def run(path: Path, windows: str) -> Timed:
    """Sum per key and window, join, or find a pattern, in a process that has run for long."""
    load_kernels()
    return fresh(path, windows)


def load_kernels() -> None:
    """Load the compiled kernels, unless the environment says no."""
    count_records(WORTH_LOADING)


def fresh(path: Path, windows: str) -> Timed:
    """Do the same in a process that has just begun."""
    return timed(lw.read_parquet(str(path), time="at", watermark=WATERMARK), windows)


def timed(events: lw.Stream, windows: str) -> Timed:
    """Run the job over any source."""
    if windows == JOIN:
        return _joined(events)
    if windows == PATTERN:
        return _matched(events)
    kinds: dict[str, WindowFunction] = {
        "fixed": lw.FixedWindows("1m"),
        "sessions": lw.Sessions("30s"),
    }
    panes = events.key_by("key").window(kinds[windows]).aggregate(total=lw.sum("value"))
    with Stopwatch() as watch:
        totals = [batch.values["total"].data for batch in panes.run_batches(bundle_size=BATCH)]
    return Timed(answer_of(np.concatenate(totals)), watch.seconds, watch.cpu)


def _joined(events: lw.Stream) -> Timed:
    even, odd = (events.filter(lw.col("value") % 2 == rest) for rest in (0, 1))
    pairs = even.join(odd, on="key", within=f"{WITHIN_S}s")
    with Stopwatch() as watch:
        found = [
            batch.values["value"].data * 1_000 + batch.values["value_right"].data
            for batch in pairs.run_batches(bundle_size=BATCH)
        ]
    return Timed(answer_of(np.concatenate(found)), watch.seconds, watch.cpu)


def _matched(events: lw.Stream) -> Timed:
    value, before = lw.col("value"), lw.prev("value")
    matches = events.key_by("key").match(
        "start down+ up",
        define={"down": value < before, "up": value > before},
        measures={"low": lw.last("value", of="down")},
        order="value",
    )
    with Stopwatch() as watch:
        lows = [batch.columns()["low"].data for batch in matches.run_batches(bundle_size=BATCH)]
    return Timed(answer_of(np.concatenate(lows)), watch.seconds, watch.cpu)
