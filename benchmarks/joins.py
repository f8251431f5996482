"""Records per second of joins and tables, beside a join of everything at once.

``python -m benchmarks --only joins``, or ``python -m benchmarks.joins [RECORDS]``. In each round
all cases run in turn, and medians are given.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, final

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

import lowwater as lw
from benchmarks.machine import load, machine
from lowwater.pipeline import Stream

BUNDLE = 50_000
KEYS = 10_000
_HOUR_US = 3_600_000_000
_WITHIN_US = 5_000_000
_UTC = pa.timestamp("us", "UTC")
_WINDOWS = lw.FixedWindows("1m")


@final
@dataclass(frozen=True, slots=True)
class Timing:
    """What one case gave.

    Args:
        case: The case.
        per_second: Records of both sides per second; facts, for joins as of event time.
        against: What it is compared with, and its records per second; ``None`` for nothing.
        target: What it is to reach.
    """

    case: str
    per_second: float
    against: tuple[str, float] | None
    target: str


@final
class Sides:
    """Two inputs of as many records: each record of the left has a partner within five seconds.

    Args:
        count: How many records a side has.
    """

    def __init__(self, count: int) -> None:
        random_ = np.random.default_rng(1)
        at = np.sort(random_.integers(0, _HOUR_US * max(1, count // 1_000_000), count))
        keys = random_.integers(0, KEYS, count)
        later = at + random_.integers(0, _WITHIN_US, count)
        order = np.argsort(later, kind="stable")
        self.count = count
        self.left = pa.table({"at": pa.array(at, _UTC), "key": keys, "l": np.arange(count)})
        self.right = pa.table(
            {"at": pa.array(later[order], _UTC), "key": keys[order], "r": np.arange(count)}
        )

    def in_windows(self) -> tuple[Stream, Stream]:
        """Return both as streams in which each record has one partner in its minute.

        Each minute has a record of every key on each side, in its first half or its second.
        """
        minute, half = 60_000_000, 30_000_000
        turn, key = np.divmod(np.arange(self.count), KEYS)
        at = turn * minute + key * (half // KEYS)
        one = pa.table({"at": pa.array(at, _UTC), "key": key, "l": self.left["l"]})
        other = pa.table({"at": pa.array(at + half, _UTC), "key": key, "r": self.right["r"]})
        return lw.from_arrow(one, time="at", watermark=lw.Ascending()), lw.from_arrow(
            other, time="at", watermark=lw.Ascending()
        )

    def streams(self) -> tuple[Stream, Stream]:
        """Return both as streams that may be a second out of order."""
        disorder = lw.BoundedDisorder("1s")
        return (
            lw.from_arrow(self.left, time="at", watermark=disorder),
            lw.from_arrow(self.right, time="at", watermark=disorder),
        )


def _all_at_once(sides: Sides) -> int:
    """Join with numpy, everything in memory: sort one side, and search for the other."""

    def columns(table: pa.Table) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        times = table.column("at").cast(pa.int64()).to_numpy()
        return times, table.column("key").to_numpy(), table.column(2).to_numpy()

    (left_at, left_key, left), (right_at, right_key, right) = map(
        columns, (sides.left, sides.right)
    )
    span = int(right_at.max()) + 2 * _WITHIN_US
    packed = right_key * span + right_at
    order = np.argsort(packed, kind="stable")
    packed = packed[order]
    wanted = left_key * span + left_at
    low = np.searchsorted(packed, wanted)
    high = np.searchsorted(packed, wanted + _WITHIN_US, side="right")
    count = high - low
    of_left = np.repeat(np.arange(len(left)), count)
    begins = np.cumsum(count) - count
    of_right = order[np.arange(len(of_left)) - begins[of_left] + low[of_left]]
    times = np.maximum(left_at[of_left], right_at[of_right])
    made = (times, left_key[of_left], left[of_left], right[of_right], left_at[of_left])
    return len(made[0])


def _polars_as_of(sides: Sides) -> int:
    left, right = (pl.DataFrame(table).sort("at") for table in (sides.left, sides.right))
    return len(left.join_asof(right, on="at", by="key"))


def _run(pipeline: Any) -> int:
    return sum(len(batch) for batch in pipeline.run_batches(bundle_size=BUNDLE))


def _joined(sides: Sides, how: Any) -> int:
    left, right = sides.streams()
    return _run(left.join(right, on="key", within=f"{_WITHIN_US}us", how=how))


def _in_windows(sides: Sides, **options: Any) -> int:
    left, right = sides.in_windows()
    return _run(left.join(right, on="key", within=_WINDOWS, **options))


def _grouped_in_python(sides: Sides) -> int:
    """Group both sides together, and make the pairs of each pane in Python."""
    left, right = sides.in_windows()
    both = left.with_columns(r=lw.lit(-1)) | right.with_columns(l=lw.lit(-1))

    def pairs(pane: dict[str, Any]) -> list[dict[str, Any]]:
        records = pane["records"]
        return [
            {"timestamp": pane["timestamp"], "key": pane["key"], "l": one["l"], "r": other["r"]}
            for one in records
            if one["r"] < 0
            for other in records
            if other["l"] < 0
        ]

    windowed = both.key_by("key").window(_WINDOWS)
    return _run(windowed.group().flat_map(pairs))


def _as_of(sides: Sides, **options: Any) -> int:
    left, right = sides.streams()
    return _run(left.join_as_of(right, on="key", keep="10s", **options))


def _tables(sides: Sides) -> int:
    left, right = (stream.table(key="key") for stream in sides.streams())
    return _run(left.join(right, on="key").changes())


_CASES: dict[str, Callable[[Sides], int]] = {
    "all at once, numpy": _all_at_once,
    "inner": lambda sides: _joined(sides, "inner"),
    "outer": lambda sides: _joined(sides, "outer"),
    "in windows": _in_windows,
    "in windows, left, retracting": lambda sides: _in_windows(
        sides, how="left", accumulation="retracting", allowed_lateness="10s"
    ),
    "as of, Polars": _polars_as_of,
    "as of event time": _as_of,
    "as of, the next": lambda sides: _as_of(sides, direction="forward", tolerance="1m"),
    "as of, the nearest": lambda sides: _as_of(sides, direction="nearest", tolerance="1m"),
    "two tables": _tables,
}


def measure(count: int, rounds: int) -> Iterator[Timing]:
    """Yield the figures of all cases: medians of some rounds, after one that does not count."""
    sides = Sides(count)
    seconds: dict[str, list[float]] = {name: [] for name in _CASES}
    for _ in range(rounds + 1):
        for name, run in _CASES.items():
            begun = time.perf_counter()
            run(sides)
            seconds[name].append(time.perf_counter() - begun)
    speed = {name: 2 * count / median(taken[1:]) for name, taken in seconds.items()}
    begun = time.perf_counter()
    _grouped_in_python(sides)  # once: it takes as long as all the others
    speed["in windows, Python"] = 2 * count / (time.perf_counter() - begun)
    for name in _CASES:
        if name.startswith("as of"):
            speed[name] /= 2  # facts alone
    for name, against, target in (
        ("inner", "all at once, numpy", "≥ 1 M, ≥ 0.3"),
        ("outer", "inner", "≥ 0.7"),
        ("in windows", "in windows, Python", ""),
        ("in windows, left, retracting", "in windows", ""),
        ("as of event time", "as of, Polars", "≥ 1 M, ≥ 0.1"),
        ("as of, the next", "as of event time", ""),
        ("as of, the nearest", "as of event time", ""),
        ("two tables", None, "≥ 0.3 M"),
    ):
        beside = None if against is None else (against, speed[against])
        yield Timing(name, speed[name], beside, target)


def show(count: int, rounds: int) -> None:
    """Print the table of joins."""
    print(
        f"| join of two inputs of {count:,} records, load {load():.1f} | records/s | against "
        "| ratio | target |"
    )
    print("|---|---|---|---|---|")
    for found in measure(count, rounds):
        against, ratio = "", ""
        if found.against is not None:
            name, speed = found.against
            against, ratio = f"{name}: {speed / 1e6:.2f} M", f"{found.per_second / speed:.2f}"
        print(
            f"| {found.case} | {found.per_second / 1e6:.2f} M | {against} | {ratio} "
            f"| {found.target} |",
            flush=True,
        )


if __name__ == "__main__":
    print(machine("numpy", "polars"))
    show(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, 3)
