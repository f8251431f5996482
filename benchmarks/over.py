"""Events per second of values over the rows before each row.

``python -m benchmarks --only over --events 1000000``. 10,000 keys over six hours, five seconds of
disorder: some 1.4 rows of a key are in a range of five minutes, and 17 in one of an hour. Columns
are in memory; each case runs once for each round after one that does not count.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import lowwater as lw
from benchmarks.machine import load
from benchmarks.patterns import KEYS, Speed
from lowwater.kernels import is_installed, use

BUNDLES = (50_000, 1_000)
_SPAN_US = 6 * 3_600_000_000
_DISORDER_US = 5_000_000


@final
@dataclass(frozen=True, slots=True)
class Case:
    """A range, and what is computed over it."""

    length: str | None
    results: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)


CASES: Mapping[str, Case] = {
    'over("5m"), mean': Case("5m", {"mean": lw.mean("v")}),
    'over("5m"), count, sum': Case("5m", {"n": lw.count(), "total": lw.sum("i")}),
    'over("1h"), mean, max': Case("1h", {"mean": lw.mean("v"), "most": lw.max("v")}),
    "over(rows=10), mean, prev": Case(
        None, {"mean": lw.mean("v"), "before": lw.prev("v")}, {"rows": 10}
    ),
}


def table_of(events: int) -> pa.Table:
    """Return events of 10,000 keys, in the order in which they arrive."""
    random = np.random.default_rng(1)
    times = np.sort(random.integers(0, _SPAN_US, events))
    arrival = np.argsort(times + random.integers(0, _DISORDER_US, events), kind="stable")
    return pa.table(
        {
            "at": pa.array(times[arrival], pa.timestamp("us", "UTC")),
            "key": np.char.add("k", random.integers(0, KEYS, events).astype("U6")),
            "v": random.normal(size=events),
            "i": random.integers(0, 100, events),
        }
    )


def run(table: pa.Table, case: Case, bundle_size: int, *, durable: bool) -> tuple[float, int]:
    """Return the seconds of CPU of a run, and how many records came out."""
    watermark = lw.BoundedDisorder("5s")
    if not durable:
        output = _over(lw.from_arrow(table, time="at", watermark=watermark), case)
        began = time.process_time()
        count = sum(map(len, output.run_batches(bundle_size=bundle_size)))
        return time.process_time() - began, count
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "events.parquet"), Path(folder, "out")
        pq.write_table(table, source)
        events = lw.read_parquet(str(source), time="at", watermark=watermark)
        writing = _over(events, case).write_parquet(out)
        began = time.process_time()
        writing.run(state=Path(folder, "state"), bundle_size=bundle_size)
        seconds = time.process_time() - began
        return seconds, ds.dataset(out).count_rows()


def _over(stream: lw.Stream, case: Case) -> lw.RangedStream:
    return stream.key_by("key").over(case.length, **case.options, **case.results)


def measure(events: int, rounds: int) -> Iterator[Speed]:
    """Yield the speed of each case: with both kinds of kernels, and durable."""
    table = table_of(events)
    ways = [("numpy", False), *([("numba", False), ("numba", True)] if is_installed() else [])]
    for kernels, durable in ways:
        use(kernels)
        for name, case in CASES.items():
            for bundle_size in BUNDLES:
                run(table.slice(0, min(events, 20_000)), case, bundle_size, durable=durable)
                runs = [run(table, case, bundle_size, durable=durable) for _ in range(rounds)]
                seconds = median(duration for duration, _ in runs)
                how = f"{kernels}, durable" if durable else kernels
                yield Speed(name, how, bundle_size, events / seconds, runs[0][1])


def show(events: int, rounds: int) -> None:
    """Print the speed of each case."""
    print(f"values over rows, {events:,} events, {KEYS:,} keys; load {load()}")
    for speed in measure(events, rounds):
        print(
            f"{speed.name:28} {speed.how:16} bundles of {speed.bundle_size:6,} "
            f"{speed.speed / 1e6:6.3f} M events/s, {speed.matches:,} records",
            flush=True,
        )
