"""Events per second of each aggregate, beside a count over the same windows.

``python -m benchmarks --only aggregates --events 1000000``. 1,000 keys, windows that share the
events evenly, so that there are 10,000 pairs of a key and a window. Columns are in memory; each
case runs in turn with the count, once for each round after one that does not count.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, final

import numpy as np
import pyarrow as pa

import lowwater as lw
from benchmarks.machine import load
from lowwater.kernels import is_installed, use

KEYS, WINDOWS = 1_000, 10
BUNDLES = (50_000, 1_000)
_HALF = lw.col("part") < 500
AGGREGATES: Mapping[str, Any] = {
    "count": lw.count(),
    "count, where": lw.count(where=_HALF),
    "sum": lw.sum("float"),
    "sum, where": lw.sum("float", where=_HALF),
    "approx_quantile": lw.approx_quantile("float", 0.99),
    "approx_count_distinct": lw.approx_count_distinct("int"),
    "top(3)": lw.top(3, by="int"),
    "top(3, keep, ties)": lw.top(3, by="int", keep=("float", "part"), ties="part"),
    "quantile of ints": lw.quantile("int", 0.99),
    "quantile of floats": lw.quantile("float", 0.99),
    "most_frequent": lw.most_frequent("part"),
    "count_distinct of ints": lw.count_distinct("int"),
    "count_distinct of floats": lw.count_distinct("float"),
}


@final
@dataclass(frozen=True, slots=True)
class Speed:
    """How fast an aggregate is.

    Args:
        name: The aggregate.
        bundle_size: The size of bundles.
        speed: Events per second of the CPU.
        ratio: Its speed relative to the count's, by rounds.
    """

    name: str
    bundle_size: int
    speed: float
    ratio: float


def table_of(events: int) -> pa.Table:
    """Return events, one each millisecond, with columns of integers and floats."""
    random = np.random.default_rng(1)
    return pa.table(
        {
            "at": pa.array(np.arange(events) * 1_000, pa.timestamp("us", "UTC")),
            "key": random.integers(0, KEYS, events),
            "int": random.integers(0, 1_000_000, events),
            "float": random.random(events) * 1e3,
            "part": random.integers(0, 1_000, events),
        }
    )


def measure(events: int, rounds: int) -> Iterator[Speed]:
    """Yield the speed of each aggregate with large and with small bundles."""
    if is_installed():
        use("numba")
    table = table_of(events)
    length = f"{events // WINDOWS}ms"
    for size in BUNDLES:
        for name, spec in AGGREGATES.items():
            pairs = [
                (_seconds(table, length, spec, size), _seconds(table, length, lw.count(), size))
                for _ in range(rounds + 1)
            ][1:]
            seconds = median(own for own, _ in pairs)
            yield Speed(name, size, events / seconds, median(base / own for own, base in pairs))


def show(events: int, rounds: int) -> None:
    """Print the table."""
    print("| aggregate | bundle | events per CPU second | relative to count |")
    print("|---|---|---|---|")
    for one in measure(events, rounds):
        print(
            f"| {one.name} | {one.bundle_size:,} | {one.speed / 1e6:.2f} M | {one.ratio:.2f} |",
            flush=True,
        )
    print(f"\nload {load()}")


def _seconds(table: pa.Table, length: str, spec: Any, bundle_size: int) -> float:
    stream = lw.from_arrow(table, time="at").key_by("key").window(lw.FixedWindows(length))
    pipeline = stream.aggregate(found=spec)
    begun = time.process_time()
    panes = sum(map(len, pipeline.run_batches(bundle_size=bundle_size, progress=False)))
    if panes != KEYS * WINDOWS:
        raise RuntimeError(f"{panes} panes")
    return time.process_time() - begun
