"""Events per second with either kernels, each case beside a one-shot Polars query of the same file.

Polars decides at its import how many threads it uses. So this process has it on all of them, and a
child of it, ``python -m benchmarks.throughput``, on one.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import polars as pl

import lowwater as lw
from benchmarks.events import events_file
from lowwater.kernels import kernels, use
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
    """A pipeline to time, and the share of Polars' speed it should reach with compiled kernels.

    Args:
        name: What it is called.
        windows: Its windows.
        bundle_size: Its bundles.
        target: Its speed to that of Polars on all threads.
        options: Further arguments of ``window``.
        query: What Polars does.
    """

    name: str
    windows: WindowFunction
    bundle_size: int
    target: float
    options: Mapping[str, Any] = field(default_factory=dict)
    query: str = "grouped"


CASES = (
    Case("fixed 1 min", lw.FixedWindows("1m"), 50_000, 0.6),
    Case("fixed 1 min", lw.FixedWindows("1m"), 1_000, 0.3),
    Case(
        "early each 1000, late each, accumulating", lw.FixedWindows("1m"), 50_000, 0.5,
        _ACCUMULATING,
    ),
    Case(
        "early each 1000, late each, retracting", lw.FixedWindows("1m"), 50_000, 0.5,
        {**_ACCUMULATING, "accumulation": "retracting"},
    ),
    Case("sessions 30 s", lw.Sessions("30s"), 50_000, 0.5),
    Case("sliding 1 min by 10 s", lw.SlidingWindows("1m", "10s"), 50_000, 0.2),
    Case(
        "sliding, beside Polars' sliding", lw.SlidingWindows("1m", "10s"), 50_000, 0.7, {},
        "sliding",
    ),
)  # fmt: skip


KERNELS = ("numpy", "numba")


@final
@dataclass(frozen=True, slots=True)
class Timing:
    """What a case came to: medians of events per second over the rounds.

    Args:
        case: The case.
        speed: By kernels.
        polars: By the number of Polars' threads.
        ratio: With the compiled kernels to Polars on one thread and on all, taken round by round.
        panes: How many panes came out.
    """

    case: Case
    speed: Mapping[str, float]
    polars: tuple[float, float]
    ratio: tuple[float, float]
    panes: int


def measure(count: int, rounds: int, folder: Path) -> list[Timing]:
    """Time each case ``rounds`` times, in turn with Polars, after one round that does not count."""
    path = events_file(count, folder)
    timings = []
    before = kernels().NAME
    with _OneThread() as one_thread:
        for case in CASES:
            query = case.query
            found: dict[str, list[float]] = {name: [] for name in (*KERNELS, "one", "all")}
            panes = 0
            for turn in range(rounds + 1):
                spent = {"one": one_thread.seconds(path, query)}
                spent["all"] = _seconds(lambda: QUERIES[query](path))[0]  # noqa: B023 (used at once)
                for name in KERNELS:
                    use(name)
                    spent[name], panes = _seconds(lambda: _lowwater(path, case))  # noqa: B023
                if turn:
                    for name, seconds in spent.items():
                        found[name].append(count / seconds)
            use(before)
            median = {name: statistics.median(values) for name, values in found.items()}
            one, every = (
                statistics.median(a / b for a, b in zip(found["numba"], found[name], strict=True))
                for name in ("one", "all")
            )
            timings.append(
                Timing(
                    case, {name: median[name] for name in KERNELS},
                    (median["one"], median["all"]), (one, every), panes,
                )
            )  # fmt: skip
    return timings


def _lowwater(path: Path, case: Case) -> int:
    pipeline = (
        lw.read_parquet(str(path), time="at", watermark=lw.BoundedDisorder("10s"))
        .key_by("key")
        .window(case.windows, **case.options)
        .aggregate(total=lw.sum("value"))
    )
    return sum(len(batch) for batch in pipeline.run_batches(bundle_size=case.bundle_size))


def _grouped(path: Path) -> int:
    minute = pl.col("at").dt.truncate("1m")
    return len(pl.read_parquet(path).group_by("key", minute).agg(pl.col("value").sum()))


def _sliding(path: Path) -> int:
    frame = pl.read_parquet(path).sort("at")
    windows = frame.group_by_dynamic("at", every="10s", period="1m", group_by="key")
    return len(windows.agg(pl.col("value").sum()))


QUERIES: Mapping[str, Callable[[Path], int]] = {"grouped": _grouped, "sliding": _sliding}


def _seconds(run: Callable[[], int]) -> tuple[float, int]:
    began = time.perf_counter()
    result = run()
    return time.perf_counter() - began, result


class _OneThread:
    """A process in which Polars has one thread."""

    def __enter__(self) -> _OneThread:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env={**os.environ, "POLARS_MAX_THREADS": "1"},
        )  # fmt: skip
        return self

    def seconds(self, path: Path, query: str) -> float:
        """Return how long a query takes there."""
        pipes = self._process
        if pipes.stdin is None or pipes.stdout is None:
            raise RuntimeError("the process has no pipes")
        print(query, path, file=pipes.stdin, flush=True)
        return float(pipes.stdout.readline())

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def main() -> None:
    """Answer each line of the standard input, a query and a path, with the seconds it takes."""
    for line in sys.stdin:
        query, path = line.rstrip("\n").split(" ", 1)
        seconds, _ = _seconds(lambda: QUERIES[query](Path(path)))  # noqa: B023 (used at once)
        print(seconds, flush=True)


if __name__ == "__main__":
    main()
