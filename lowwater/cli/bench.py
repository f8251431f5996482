"""``python -m lowwater bench``: what to expect on this machine, in a minute or two.

Events are made in memory and always the same, so figures are those of the engine: reading and
writing files come on top.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa

import lowwater as lw
from lowwater.engine.graph.sources import Position
from lowwater.engine.process.key_parts import PARTS
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.windowing import Windowing
from lowwater.kernels import kernels, use, use_best
from lowwater.pipeline import Pipeline
from lowwater.pipeline.installation import info
from lowwater.windows import WindowFunction

START_US = 1_700_000_040_000_000  # a full minute
DISORDER_US = 5_000_000
_SEED = 20_240_101
_WINDOWS: dict[str, WindowFunction] = {
    "fixed 1 min": lw.FixedWindows("1m"),
    "sessions 30 s": lw.Sessions("30s"),
    "sliding 1 min by 10 s": lw.SlidingWindows("1m", "10s"),
}
_CASES = (
    ("fixed 1 min", 50_000),
    ("fixed 1 min", 1_000),
    ("sessions 30 s", 50_000),
    ("sliding 1 min by 10 s", 50_000),
)
_BUNDLE = 1_000
_FEWER = 5  # a process takes that many times as long
_FILL = 50_000


class Smoothed:
    """Keeps a smoothed value of each key until it has been silent for a minute."""

    smoothed = lw.value_cell(0.0)
    count = lw.value_cell(0)
    silent = lw.timer()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        value = 0.9 * ctx.smoothed.get() + 0.1 * record["value"]
        ctx.smoothed.set(value)
        ctx.count.set(ctx.count.get() + 1)
        ctx.silent.set(ctx.time + 60_000_000)
        if record["value"] > 900:
            ctx.emit({"smoothed": value, "value": record["value"]})

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.emit({"count": ctx.count.get()})
        ctx.count.clear()


def bench(out: TextIO, *, events: int, keys: int, rounds: int) -> None:
    """Measure, and print tables.

    Args:
        out: Where to print.
        events: How many events a round has.
        keys: How many keys they have.
        rounds: How many rounds count: figures are medians. One more comes before them.
    """
    print(info(), file=out)
    print(f"{_load()}\n", file=out)
    print(f"Events per second, {events:,} events in memory, {keys:,} keys, one sum:", file=out)
    before = kernels().NAME
    use_best()  # which warns of compiled kernels that do not load
    names = ["numpy"] if kernels().NAME == "numpy" else ["numpy", "numba"]
    table = events_in_memory(events, keys)
    try:
        for windows, bundle_size in _CASES:
            pipeline = _summed(lw.from_arrow(table, time="at", watermark=_DELAY), windows)
            speed = _speeds(pipeline, names, events, bundle_size, rounds)
            found = "   ".join(f"{name} {speed[name] / 1e6:6.2f} M" for name in names)
            print(f"  {windows:22} bundles of {bundle_size:6,}   {found}", file=out, flush=True)
        few = table.slice(0, events // _FEWER)
        print(f"\nRecords per second of a process, {len(few):,} records:", file=out)
        for workers in _numbers_of_workers():
            named = "in the run" if workers is None else f"{workers} workers"
            rate = _records_per_second(few, workers, rounds)
            print(f"  hooks: {named:22} {rate / 1e3:8.0f} k", file=out, flush=True)
        print(f"\nCommits of a durable run, a bundle of {_BUNDLE:,} each, in ms:", file=out)
        p50, p95 = latencies(table.slice(0, min(events, 100 * _BUNDLE)))
        print(f"  p50 {p50:.1f}   p95 {p95:.1f}", file=out, flush=True)
        print("\nBytes per open window, one sum:", file=out)
        for windows in _WINDOWS:
            each, count = bytes_per_window(windows, events)
            print(f"  {windows:22} {each:.0f}   ({count:,} windows)", file=out, flush=True)
    finally:
        use(before)
    print(f"\n{_load()}", file=out)


_DELAY = lw.BoundedDisorder("10s")


def events_in_memory(count: int, keys: int) -> pa.Table:
    """Return events: one arrives per millisecond, event times 5 s off at most.

    Columns: ``at`` (timestamp[us, UTC]), ``key`` (strings), ``value`` (int64 below 1 000).
    """
    random = np.random.default_rng(_SEED)
    at = START_US + np.arange(count, dtype=np.int64) * 1_000
    at += random.integers(-DISORDER_US, DISORDER_US + 1, count)
    names = pa.array([f"key-{number:05d}" for number in range(keys)])
    key = pa.DictionaryArray.from_arrays(random.integers(0, keys, count).astype(np.int32), names)
    return pa.table(
        {
            "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
            "key": key,
            "value": pa.array(random.integers(0, 1_000, count)),
        }
    )


def _numbers_of_workers() -> list[int | None]:
    """Return the numbers of workers to try: none, and up to one for each processor."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return [None]
    most = min(os.cpu_count() or 1, PARTS)
    return [None, *(2**power for power in range(1, most.bit_length()))]


def _records_per_second(table: pa.Table, workers: int | None, rounds: int) -> float:
    stage = lw.from_arrow(table, time="at", watermark=_DELAY).key_by("key").process(Smoothed())
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in stage.run_batches(progress=False, workers=workers):
            pass
        found.append(len(table) / (time.perf_counter() - began))
    return statistics.median(found)


def latencies(table: pa.Table) -> tuple[float, float]:
    """Return the median and the 95th percentile of milliseconds from a bundle to its commit."""
    source = _Arrivals(table)
    pipeline = _summed(lw.from_source(source, time="at", watermark=_DELAY), "fixed 1 min")
    with tempfile.TemporaryDirectory() as folder:
        pipeline.write_jsonl(Path(folder) / "out").run(
            state=Path(folder) / "state", commit_every="bundle", bundle_size=_BUNDLE,
            progress=False,
        )  # fmt: skip
    p50, p95 = np.percentile(source.seconds, [50, 95]) * 1e3
    return float(p50), float(p95)


def bytes_per_window(windows: str, count: int) -> tuple[float, int]:
    """Return how many bytes of memory an open (key, window) takes, with one sum, and of how many.

    Args:
        windows: Which windows.
        count: At least so many are opened.
    """
    windowing = Windowing(windows=_WINDOWS[windows])
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        operator = WindowOperator(windowing, {"total": lw.sum("value")})
        while operator.open_windows < count:
            number = np.arange(operator.open_windows, operator.open_windows + _FILL)
            value = Column(np.ones(_FILL, dtype=np.int64))
            times = np.full(_FILL, START_US, dtype=np.int64)
            operator.step(Bundle(times, (Column(number),), {"value": value}))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    return grown / operator.open_windows, operator.open_windows


def _summed(stream: lw.Stream, windows: str) -> Pipeline:
    return stream.key_by("key").window(_WINDOWS[windows]).aggregate(total=lw.sum("value"))


def _speeds(
    pipeline: Pipeline, names: list[str], events: int, bundle_size: int, rounds: int
) -> dict[str, float]:
    """Return the events per second with each of some kernels, measured in turn."""
    speeds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        for name in names:
            use(name)
            seconds = _seconds(lambda: _drained(pipeline, bundle_size))
            if turn:
                speeds[name].append(events / seconds)
    return {name: statistics.median(found) for name, found in speeds.items()}


def _drained(pipeline: Pipeline, bundle_size: int) -> None:
    for _ in pipeline.run_batches(bundle_size=bundle_size, progress=False):
        pass


def _seconds(run: Callable[[], None]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _load() -> str:
    load = "unknown"
    with suppress(AttributeError, OSError):  # Windows does not tell
        load = f"{os.getloadavg()[0]:.1f}"
    return f"{os.cpu_count()} cores; load of the last minute: {load}"


class _Arrivals:
    """Gives events in bundles, and notes how long each takes to be committed."""

    def __init__(self, table: pa.Table) -> None:
        self._batches = table.to_batches(max_chunksize=_BUNDLE)
        self._arrived = 0.0
        self.seconds: list[float] = []

    @property
    def schema(self) -> pa.Schema:
        return self._batches[0].schema

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[lw.Records]:
        return (records for records, _ in self.batches_from(None, size, keys))

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[lw.Records, Position]]:
        for at in range(0 if position is None else position["next"], len(self._batches)):
            self._arrived = time.perf_counter()
            yield lw.Records.from_arrow(self._batches[at]), {"next": at + 1}

    def committed(self, position: Position) -> None:
        if len(self.seconds) < position["next"]:  # the end of the input is one more commit
            self.seconds.append(time.perf_counter() - self._arrived)
