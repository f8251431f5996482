"""Panes and elements per second as Python objects, beside ``to_arrow`` of the same run.

``python -m benchmarks --only objects --events 1000000``. Columns are in memory; each way of reading
an output runs in turn with ``to_arrow``, once for each round after one that does not count. The
seconds of the CPU include the run itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, final

import numpy as np
import pyarrow as pa

import lowwater as lw
from benchmarks.machine import load
from lowwater.kernels import is_installed, use

KEYS = 1_000
RATIO_TARGET = 4
PER_SECOND_TARGET = 250_000
_SPAN_US = 3_600_000_000
_READ: Mapping[str, Mapping[str, Callable[[Any], int]]] = {
    "panes, windows of 10 s": {
        "for pane in run()": lambda pipeline: sum(1 for _ in pipeline.run(progress=False)),
        "collect().panes": lambda pipeline: len(pipeline.collect(progress=False).panes),
        "collect().late": lambda pipeline: len(pipeline.collect(progress=False).late),
    },
    "panes, sessions of 1 s": {
        "for pane in run()": lambda pipeline: sum(1 for _ in pipeline.run(progress=False)),
    },
    "elements, over 3 rows": {
        "for element in run()": lambda pipeline: sum(1 for _ in pipeline.run(progress=False)),
        "collect().elements()": lambda pipeline: len(pipeline.collect(progress=False).elements()),
        "collect().values()": lambda pipeline: len(pipeline.collect(progress=False).values()),
    },
}


@final
@dataclass(frozen=True, slots=True)
class Speed:
    """How fast an output is read.

    Args:
        output: What is emitted.
        way: How it is read.
        number: How many objects come.
        per_second: Objects per second of the CPU.
        ratio: The time relative to that of ``to_arrow``, by rounds.
    """

    output: str
    way: str
    number: int
    per_second: float
    ratio: float


def measure(events: int, rounds: int) -> Iterator[Speed]:
    """Yield the speed of each way to read each output."""
    if is_installed():
        use("numba")
    pipelines = _pipelines(events)
    for output, ways in _READ.items():
        for way, read in ways.items():
            pipeline = pipelines["late" if way == "collect().late" else output]
            pairs = [
                (_timed(read, pipeline), _timed(_arrow_rows, pipeline)) for _ in range(rounds + 1)
            ][1:]
            seconds = median(own for (own, _), _ in pairs)
            number = pairs[0][0][1]
            ratio = median(own / base for (own, _), (base, _) in pairs)
            yield Speed(output, way, number, number / seconds, ratio)


def show(events: int, rounds: int) -> None:
    """Print the table."""
    print("| output | read by | objects | per CPU second | time relative to `to_arrow` | target |")
    print("|---|---|---|---|---|---|")
    for one in measure(events, rounds):
        is_target = one.way == "for pane in run()"
        target = f"≥ {PER_SECOND_TARGET:,}, ≤ {RATIO_TARGET}" if is_target else ""
        print(
            f"| {one.output} | `{one.way}` | {one.number:,} | {one.per_second:,.0f} "
            f"| {one.ratio:.1f} | {target} |",
            flush=True,
        )
    print(f"\nload {load()}")


def _pipelines(events: int) -> dict[str, Any]:
    random = np.random.default_rng(1)
    at = np.sort(random.integers(0, _SPAN_US, events))

    def keyed(times: Any) -> Any:
        table = pa.table(
            {
                "at": pa.array(times, pa.timestamp("us", "UTC")),
                "user": random.integers(0, KEYS, events),
                "score": random.integers(0, 100, events),
            }
        )
        source = lw.from_arrow(table, time="at", watermark=lw.BoundedDisorder("10s"))
        return source.key_by("user")

    total = lw.sum("score")
    windows = lw.FixedWindows("10s")
    return {
        "panes, windows of 10 s": keyed(at).window(windows).aggregate(total=total),
        "late": keyed(random.permutation(at)).window(windows).aggregate(total=total),
        "panes, sessions of 1 s": keyed(at).window(lw.Sessions("1s")).aggregate(total=total),
        "elements, over 3 rows": keyed(at).over(rows=3, total=total),
    }


def _arrow_rows(pipeline: Any) -> int:
    rows: int = pipeline.to_arrow(progress=False).num_rows
    return rows


def _timed(read: Callable[[Any], int], pipeline: Any) -> tuple[float, int]:
    begun = time.process_time()
    number = read(pipeline)
    return time.process_time() - begun, number
