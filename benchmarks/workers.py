"""Records per second of keyed computations, by the number of worker processes.

``python -m benchmarks.workers [RECORDS]``: medians of five rounds, in turn. *Two runs side by side*
are whole runs without workers in two processes, which share nothing: what two of this machine's
processors give at most.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import lowwater as lw
from benchmarks.events import DISORDER_US, events_file
from benchmarks.machine import load, machine
from benchmarks.process import Count
from lowwater.cli.bench import Smoothed

ROUNDS = 5
WORKERS: tuple[int | None, ...] = (None, 1, 2, 4)


def seconds(path: Path, made: type, workers: int | None) -> float:
    """Return how long a run takes."""
    watermark = lw.BoundedDisorder(f"{DISORDER_US}us")
    stage = lw.read_parquet(path, time="at", watermark=watermark).key_by("key").process(made())
    began = time.perf_counter()
    for _ in stage.run_batches(progress=False, workers=workers):
        pass
    return time.perf_counter() - began


def side_by_side(path: Path, made: type) -> float:
    """Return how long two runs take that begin together."""
    forking = multiprocessing.get_context("fork")
    runs = [forking.Process(target=seconds, args=(path, made, None)) for _ in range(2)]
    began = time.perf_counter()
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    return time.perf_counter() - began


def main() -> None:
    """Print the table."""
    count = int(sys.argv[1]) if sys.argv[1:] else 1_000_000
    path = events_file(count, Path(__file__).parent / ".data")
    print(f"{machine('lowwater', 'pyarrow', 'numpy')}; load {load():.1f}; {count:,} records")
    for made in (Count, Smoothed):
        spent: dict[Any, list[float]] = {each: [] for each in (*WORKERS, "two")}
        for _ in range(ROUNDS):
            for workers in WORKERS:
                spent[workers].append(seconds(path, made, workers))
            spent["two"].append(side_by_side(path, made))
        for workers in WORKERS:
            named = "no workers" if workers is None else f"workers={workers}"
            _tell(f"{made.__name__}, {named}", count, spent[workers], spent[1], "one worker")
        whole = [seconds / 2 for seconds in spent["two"]]
        _tell(f"{made.__name__}, two runs", count, whole, spent[None], "one run")


def _tell(case: str, count: int, spent: list[float], other: list[float], of: str) -> None:
    """Print a line: a rate, and its ratio to another one, round by round."""
    ratios = [b / a for a, b in zip(spent, other, strict=True)]
    between = f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(
        f"{case:<24} {count / median(spent):>10,.0f} /s   {median(ratios):.2f} of {of} ({between})"
    )


if __name__ == "__main__":
    main()
