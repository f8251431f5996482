"""Records per second of Python that worker processes call, by their number.

``python -m benchmarks.workers [RECORDS [CASE ...]]``: medians of five rounds, in turn. *Two runs
side by side* are whole runs without workers in two processes, which share nothing: what two of this
machine's processors give at most. *CPU* is the time of one worker to that of the busier of two (the
run's own process is one): what two would be to one if no other work took their processors.
"""

from __future__ import annotations

import hmac
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
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


class Profile:
    """A combiner in Python: moments, extremes and a histogram with buckets of 2 %."""

    width = math.log(1.02)

    def create_accumulator(self) -> Any:
        return [0, 0.0, 0.0, 0.0, 0.0, math.inf, -math.inf, {}]

    def add_input(self, into: Any, value: float) -> Any:
        count, mean, square, cube, fourth, least, most, buckets = into
        count += 1
        delta = value - mean
        step = delta / count
        term = delta * step * (count - 1)
        fourth += term * step**2 * (count**2 - 3 * count + 3) + 6 * step**2 * square
        fourth -= 4 * step * cube
        cube += term * step * (count - 2) - 3 * step * square
        bucket = math.ceil(math.log1p(abs(value)) / self.width)
        buckets[bucket] = buckets.get(bucket, 0) + 1
        least, most = min(least, value), max(most, value)
        into[:] = (count, mean + step, square + term, cube, fourth, least, most, buckets)
        return into

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        raise NotImplementedError  # windows of a fixed length do not merge

    def extract_output(self, of: Any) -> dict[str, float]:
        count, mean, square, _, fourth, least, most, buckets = of
        kurtosis = count * fourth / square**2 if square else 0.0
        common = max(buckets, key=buckets.get) if buckets else 0
        return {"mean": mean, "kurtosis": kurtosis, "range": most - least, "common": common}


def hidden(record: dict[str, Any]) -> dict[str, Any]:
    """Replace the key by a keyed hash of it."""
    digest = hmac.new(b"secret", record["key"].encode(), "sha256").hexdigest()
    return {**record, "key": digest[:12]}


def processed(made: type) -> Callable[[lw.Stream], Any]:
    """Return a pipeline with a process."""
    return lambda source: source.key_by("key").process(made())


def combined(source: lw.Stream) -> Any:
    """Return a pipeline with a combiner."""
    windowed = source.key_by("key").window(lw.FixedWindows("10m"))
    return windowed.aggregate(profile=lw.combine(Profile(), "value"))


def mapped(source: lw.Stream) -> Any:
    """Return a pipeline with a function for each record."""
    windowed = source.map(hidden).key_by("key").window(lw.FixedWindows("10m"))
    return windowed.aggregate(total=lw.sum("value"))


CASES: dict[str, Callable[[lw.Stream], Any]] = {
    "count": processed(Count),
    "smoothed": processed(Smoothed),
    "combiner": combined,
    "map": mapped,
}


@dataclass(frozen=True)
class Spent:
    """Seconds of a run: in all, and of CPU here and in its workers."""

    wall: float
    here: float
    there: float

    @property
    def of_two(self) -> float:
        """What a run with two workers takes if each has a processor."""
        return max(self.here, self.there)


def spent(path: Path, case: str, workers: int | None) -> Spent:
    """Return how long a run takes."""
    watermark = lw.BoundedDisorder(f"{DISORDER_US}us")
    stage = CASES[case](lw.read_parquet(path, time="at", watermark=watermark))
    before, began = os.times(), time.perf_counter()
    for _ in stage.run_batches(progress=False, workers=workers):
        pass
    wall, now = time.perf_counter() - began, os.times()
    here = now.user + now.system - before.user - before.system
    there = sum(now[2:4]) - sum(before[2:4])
    return Spent(wall, here, there)


def side_by_side(path: Path, case: str) -> float:
    """Return how long two runs take that begin together."""
    forking = multiprocessing.get_context("fork")
    runs = [forking.Process(target=spent, args=(path, case, None)) for _ in range(2)]
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
    for case in sys.argv[2:] or CASES:
        found: dict[int | None, list[Spent]] = {each: [] for each in WORKERS}
        two: list[float] = []
        for _ in range(ROUNDS):
            for workers in WORKERS:
                found[workers].append(spent(path, case, workers))
            two.append(side_by_side(path, case))
        walls = {workers: [each.wall for each in some] for workers, some in found.items()}
        for workers in WORKERS:
            named = "no workers" if workers is None else f"workers={workers}"
            _tell(f"{case}, {named}", count, walls[workers], walls[1], "one worker")
        _tell(f"{case}, two runs", count, [each / 2 for each in two], walls[None], "one run")
        pairs = zip(found[1], found[2], strict=True)
        ratio = median(one.here / each.of_two for one, each in pairs)
        print(f"{case + ', CPU':<24} {'':>13}   {ratio:.2f} of one worker, workers=2; "
              f"load {load():.1f}", flush=True)  # fmt: skip


def _tell(case: str, count: int, spent: list[float], other: list[float], of: str) -> None:
    """Print a line: a rate, and its ratio to another one, round by round."""
    ratios = [b / a for a, b in zip(spent, other, strict=True)]
    between = f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(
        f"{case:<24} {count / median(spent):>10,.0f} /s   {median(ratios):.2f} of {of} ({between})"
    )


if __name__ == "__main__":
    main()
