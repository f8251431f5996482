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

from benchmarks.peers.job import DELAY_S, JOIN, WITHIN_S, Timed, answer_of
from benchmarks.peers.stopwatch import Stopwatch

DISTRIBUTION = "bytewax"
_STILL = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
_BATCH = 1_000
_ORIGIN = dt.datetime(2023, 1, 1, tzinfo=dt.UTC)


def run(path: Path, windows: str) -> Timed:
    """Sum per key and window, or join."""
    sums: list[int] = []
    flow = Dataflow("sums")
    events = op.input("events", flow, _Source(path))
    made = _joined(events) if windows == JOIN else _summed(events, windows)
    op.output("sums", made, _Sink(sums))
    with Stopwatch() as watch:
        run_main(flow)
    return Timed(answer_of(sums), watch.seconds, watch.cpu)


def _summed(events: Any, windows: str) -> Any:
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
    return op.map("totals", summed.down, lambda one: one[1][1])


def _joined(events: Any) -> Any:
    pairs = op.stateful_flat_map("pairs", events, _pairs)
    return op.map("totals", pairs, lambda one: one[1])


_Side = list[tuple[dt.datetime, int]]
_WITHIN = dt.timedelta(seconds=WITHIN_S)
_KEPT = dt.timedelta(seconds=DELAY_S + WITHIN_S)


def _pairs(
    state: tuple[_Side, _Side] | None, event: tuple[dt.datetime, int]
) -> tuple[tuple[_Side, _Side], list[int]]:
    """Join an event of a key with those before it: Bytewax has no join by interval."""
    even, odd = state or ([], [])
    at, value = event
    if value % 2:
        odd.append(event)
        found = [other * 1_000 + value for time, other in even if time <= at <= time + _WITHIN]
    else:
        even.append(event)
        found = [value * 1_000 + other for time, other in odd if at <= time <= at + _WITHIN]
    # What is kept is judged by the newest event of the key, as its windows do.
    newest = max(at, even[-1][0] if even else at, odd[-1][0] if odd else at)
    even, odd = ([one for one in side if one[0] >= newest - _KEPT] for side in (even, odd))
    return (even, odd), found


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
        self._sums.extend(items)


class _Sink(DynamicSink[Any]):
    def __init__(self, sums: list[int]) -> None:
        self._sums = sums

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Sums:
        return _Sums(self._sums)
