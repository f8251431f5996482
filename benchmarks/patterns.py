"""Events per second of row patterns.

``python -m benchmarks --only patterns --events 1000000``. 10,000 keys over six hours, five seconds
of disorder, patterns within an hour. Columns are in memory; each case runs once for each round
after one that does not count.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import lowwater as lw
from benchmarks.machine import load
from lowwater.kernels import is_installed, use

KEYS = 10_000
BUNDLES = (10_000, 1_000)
_SPAN_US = 6 * 3_600_000_000
_DISORDER_US = 5_000_000


@final
@dataclass(frozen=True, slots=True)
class Case:
    """A pattern with its conditions and a measure."""

    pattern: str
    define: Mapping[str, Any]
    measures: Mapping[str, Any]


CASES: Mapping[str, Case] = {
    "view .. cart .. buy": Case(
        "view .. cart .. buy",
        {kind: lw.col("kind") == kind for kind in ("view", "cart", "buy")},
        {"carts": lw.count(of="cart")},
    ),
    "start down+ up+": Case(
        "start down+ up+",
        {
            "down": lw.col("price") < lw.prev("price"),
            "up": lw.col("price") > lw.prev("price"),
        },
        {"low": lw.min("price", of="down")},
    ),
    "failed{3} ok": Case(
        "failed{3} ok", {"failed": ~lw.col("good"), "ok": lw.col("good")}, {"rows": lw.count()}
    ),
    "a b*": Case("a b*", {"a": lw.col("good"), "b": ~lw.col("good")}, {"bs": lw.count(of="b")}),
}


@final
@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a pattern is found.

    Args:
        name: The pattern.
        how: With which kernels, and whether the run is durable.
        bundle_size: The size of bundles.
        speed: Events per second of the CPU.
        matches: How many matches came out.
    """

    name: str
    how: str
    bundle_size: int
    speed: float
    matches: int


def table_of(events: int) -> pa.Table:
    """Return events of 10,000 keys, in the order in which they arrive."""
    random = np.random.default_rng(1)
    times = np.sort(random.integers(0, _SPAN_US, events))
    arrival = np.argsort(times + random.integers(0, _DISORDER_US, events), kind="stable")
    kinds = np.array(["view", "cart", "buy", "other"])
    return pa.table(
        {
            "at": pa.array(times[arrival], pa.timestamp("us", "UTC")),
            "key": np.char.add("k", random.integers(0, KEYS, events).astype("U6")),
            "kind": kinds[random.choice(4, events, p=[0.4, 0.2, 0.1, 0.3])],
            "price": random.integers(0, 100, events),
            "good": random.random(events) < 0.3,
        }
    )


def matches_of(stream: lw.Stream, case: Case) -> lw.MatchedStream:
    """Return the stream of matches."""
    return stream.key_by("key").match(
        case.pattern, define=case.define, measures=case.measures, within="1h"
    )


def run(table: pa.Table, case: Case, bundle_size: int, *, durable: bool) -> tuple[float, int]:
    """Return the seconds of CPU of a run, and how many matches came out."""
    watermark = lw.BoundedDisorder("5s")
    if not durable:
        matches = matches_of(lw.from_arrow(table, time="at", watermark=watermark), case)
        began = time.process_time()
        count = sum(map(len, matches.run_batches(bundle_size=bundle_size)))
        return time.process_time() - began, count
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "events.parquet"), Path(folder, "out")
        pq.write_table(table, source)
        events = lw.read_parquet(str(source), time="at", watermark=watermark)
        output = matches_of(events, case).write_parquet(out)
        began = time.process_time()
        output.run(state=Path(folder, "state"), bundle_size=bundle_size)
        seconds = time.process_time() - began
        return seconds, ds.dataset(out).count_rows()


def measure(events: int, rounds: int) -> Iterator[Speed]:
    """Yield the speed of each pattern: with both kinds of kernels, and durable."""
    table = table_of(events)
    ways = [("numpy", False), *([("numba", False), ("numba", True)] if is_installed() else [])]
    for kernels, durable in ways:
        use(kernels)
        for name, case in CASES.items():
            for bundle_size in BUNDLES:
                run(table.slice(0, min(events, 20_000)), case, bundle_size, durable=durable)
                found = [run(table, case, bundle_size, durable=durable) for _ in range(rounds)]
                seconds = median(one for one, _ in found)
                how = f"{kernels}, durable" if durable else kernels
                yield Speed(name, how, bundle_size, events / seconds, found[0][1])


def show(events: int, rounds: int) -> None:
    """Print the speed of each pattern."""
    print(f"row patterns, {events:,} events, {KEYS:,} keys; load {load()}")
    for one in measure(events, rounds):
        print(
            f"{one.name:24} {one.how:16} bundles of {one.bundle_size:6,} "
            f"{one.speed / 1e6:6.3f} M events/s, {one.matches:,} matches",
            flush=True,
        )
