"""Bytewax: its windowing operators on one worker, fed batches of the Parquet file.

The fold takes values as they come (``ordered=False``, the faster way). The clock stands still:
this is a replay, so the watermark follows from event times alone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from bytewax import operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.operators import windowing as win
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from benchmarks.peers.job import DELAY_S, Timed, answer_of
from benchmarks.peers.stopwatch import Stopwatch

DISTRIBUTION = "bytewax"
_STILL = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
_BATCH = 1_000
_ORIGIN = dt.datetime(2023, 1, 1, tzinfo=dt.UTC)


def run(path: Path, windows: str) -> Timed:
    """Sum per key and window."""
    kinds = {
        "fixed": win.TumblingWindower(length=dt.timedelta(minutes=1), align_to=_ORIGIN),
        "sessions": win.SessionWindower(gap=dt.timedelta(seconds=30)),
    }
    clock = win.EventClock(
        ts_getter=lambda event: event[0],
        wait_for_system_duration=dt.timedelta(seconds=DELAY_S),
        now_getter=lambda: _STILL,
        to_system_utc=lambda _: None,
    )
    sums: list[int] = []
    flow = Dataflow("sums")
    events = op.input("events", flow, _Source(path))
    summed = win.fold_window(
        "sum",
        events,
        clock,
        kinds[windows],
        builder=lambda: 0,
        folder=lambda total, event: total + event[1],
        merger=lambda one, other: one + other,
        ordered=False,
    )
    op.output("sums", summed.down, _Sink(sums))
    with Stopwatch() as watch:
        run_main(flow)
    return Timed(answer_of(sums), watch.seconds, watch.cpu)


class _Events(StatelessSourcePartition[Any]):
    """Batches of (key, (instant, value))."""

    def __init__(self, path: Path) -> None:
        self._batches = _batches(path)

    def next_batch(self) -> Any:
        return next(self._batches)


def _batches(path: Path) -> Iterator[Any]:
    for batch in pq.ParquetFile(path).iter_batches(batch_size=_BATCH):
        at, keys, values = (batch[name].to_pylist() for name in ("at", "key", "value"))
        yield list(zip(keys, zip(at, values, strict=True), strict=True))


class _Source(DynamicSource[Any]):
    def __init__(self, path: Path) -> None:
        self._path = path

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Events:
        return _Events(self._path)


class _Sums(StatelessSinkPartition[Any]):
    def __init__(self, sums: list[int]) -> None:
        self._sums = sums

    def write_batch(self, items: list[Any]) -> None:
        self._sums.extend(total for _, (_, total) in items)


class _Sink(DynamicSink[Any]):
    def __init__(self, sums: list[int]) -> None:
        self._sums = sums

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Sums:
        return _Sums(self._sums)
