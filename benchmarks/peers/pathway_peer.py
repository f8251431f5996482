"""Pathway: its windows over a CSV file, which its Rust engine reads by itself.

A file read as a whole is one batch of its engine, so that every window comes at the end; rows
pushed from Python in batches, the only way to replay event time here, took several times longer.
Fixed windows have the behaviour that gives each once, when the largest event time is the delay
past its end. Sessions have none: version 0.33 takes one there, and does nothing with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pathway as pw

from benchmarks.peers.csv_file import csv_file
from benchmarks.peers.job import DELAY_S, GAP_US, JOIN, MINUTE_US, WITHIN_S, Answer, Timed
from benchmarks.peers.stopwatch import Stopwatch

DISTRIBUTION = "pathway"


class _Event(pw.Schema):
    at: int
    key: str
    value: int


def run(path: Path, windows: str) -> Timed:
    """Sum per key and window, or join."""
    pw.internals.parse_graph.G.clear()
    events = pw.io.csv.read(
        str(csv_file(path, unit="us", header=True)), schema=_Event, mode="static"
    )
    sums = _joined(events) if windows == JOIN else _summed(events, windows)
    answers = sums.reduce(
        windows=pw.reducers.count(),
        total=pw.reducers.sum(pw.this.total),
        squares=pw.reducers.sum(pw.this.total * pw.this.total),
    )
    last: list[Answer] = []

    def keep(key: Any, row: dict[str, int], time: int, is_addition: bool) -> None:  # noqa: ARG001
        if is_addition:
            last[:] = [Answer(row["windows"], row["total"], row["squares"])]

    pw.io.subscribe(answers, on_change=keep)
    with Stopwatch() as watch:
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    return Timed(last[0], watch.seconds, watch.cpu)


def _summed(events: Any, windows: str) -> Any:
    kinds = {
        "fixed": pw.temporal.tumbling(duration=MINUTE_US),
        "sessions": pw.temporal.session(max_gap=GAP_US),
    }
    once = pw.temporal.exactly_once_behavior(shift=DELAY_S * 1_000_000)
    behavior = once if windows == "fixed" else None
    by = events.windowby(events.at, window=kinds[windows], instance=events.key, behavior=behavior)
    return by.reduce(total=pw.reducers.sum(pw.this.value))


def _joined(events: Any) -> Any:
    even, odd = (events.filter(events.value % 2 == rest) for rest in (0, 1))
    near = pw.temporal.interval(0, WITHIN_S * 1_000_000)
    pairs = even.interval_join(odd, even.at, odd.at, near, even.key == odd.key)
    return pairs.select(total=even.value * 1_000 + odd.value)
