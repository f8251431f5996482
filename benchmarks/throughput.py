"""Events per second, each case beside a one-shot Polars ``group_by`` of the same file."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import polars as pl

import lowwater as lw
from benchmarks.events import events_file
from lowwater.windows import WindowFunction

_EARLY_AND_LATE = lw.AfterWatermark(early=lw.AfterCount(1000), late=lw.AfterCount(1))
_ACCUMULATING: Mapping[str, Any] = {
    "trigger": _EARLY_AND_LATE,
    "accumulation": "accumulating",
    "allowed_lateness": "1m",
}


@final
@dataclass(frozen=True, slots=True)
class Case:
    """A pipeline to time, and the share of Polars' speed it should reach."""

    name: str
    windows: WindowFunction
    bundle_size: int
    target: float
    options: Mapping[str, Any] = field(default_factory=dict)


CASES = (
    Case("fixed 1 min", lw.FixedWindows("1m"), 50_000, 0.4),
    Case("fixed 1 min", lw.FixedWindows("1m"), 1_000, 0.12),
    Case(
        "early each 1000, late each, accumulating", lw.FixedWindows("1m"), 50_000, 0.25,
        _ACCUMULATING,
    ),
    Case(
        "early each 1000, late each, retracting", lw.FixedWindows("1m"), 50_000, 0.2,
        {**_ACCUMULATING, "accumulation": "retracting"},
    ),
    Case("sessions 30 s", lw.Sessions("30s"), 50_000, 0.15),
    Case("sliding 1 min by 10 s", lw.SlidingWindows("1m", "10s"), 50_000, 0.1),
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Timing:
    """What a case came to: medians over the rounds, the ratio taken round by round."""

    case: Case
    events_per_second: float
    polars_per_second: float
    ratio: float
    panes: int


def measure(count: int, rounds: int, folder: Path) -> list[Timing]:
    """Time each case ``rounds`` times, in turn with Polars, after one round that does not count."""
    path = events_file(count, folder)
    timings = []
    for case in CASES:
        ours: list[float] = []
        theirs: list[float] = []
        panes = 0
        for turn in range(rounds + 1):
            yardstick, _ = _seconds(lambda: _polars(path))
            spent, panes = _seconds(lambda: _lowwater(path, case))  # noqa: B023 (used at once)
            if turn:
                theirs.append(count / yardstick)
                ours.append(count / spent)
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        timings.append(
            Timing(case, statistics.median(ours), statistics.median(theirs), ratio, panes)
        )
    return timings


def _lowwater(path: Path, case: Case) -> int:
    pipeline = (
        lw.read_parquet(str(path), time="at", watermark=lw.BoundedDisorder("10s"))
        .key_by("key")
        .window(case.windows, **case.options)
        .aggregate(total=lw.sum("value"))
    )
    return sum(len(batch) for batch in pipeline.run_batches(bundle_size=case.bundle_size))


def _polars(path: Path) -> int:
    minute = pl.col("at").dt.truncate("1m")
    return len(pl.read_parquet(path).group_by("key", minute).agg(pl.col("value").sum()))


def _seconds(run: Callable[[], int]) -> tuple[float, int]:
    began = time.perf_counter()
    result = run()
    return time.perf_counter() - began, result
