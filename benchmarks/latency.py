"""Latency of bundles of 1,000, from their arrival to the panes or records that they give.

``python -m benchmarks --only latency``: of windows and of a per-record process, in memory and with
a commit for each bundle, and of the process with worker processes.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lowwater as lw
from benchmarks.events import DISORDER_US, events_file
from benchmarks.machine import load
from lowwater.engine.graph.sources import Position
from lowwater.engine.local.delivery import Delivery, Place, Writer
from lowwater.engine.records.batch import Records
from lowwater.io.sinks import ParquetFolder
from lowwater.pipeline import Pipeline, Processed

BUNDLE = 1_000
P50_TARGET_MS, P95_TARGET_MS, IN_MEMORY_P50_TARGET_MS = 33.7, 93.8, 3.6
WORKERS: tuple[int | None, ...] = (None, 1, 2, 4)


class Numbered:
    """Emits the number of each record among those of its key."""

    count = lw.value_cell(0)

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        count = ctx.count.get() + 1
        ctx.count.set(count)
        ctx.emit({"count": count})


@final
@dataclass(frozen=True, slots=True)
class Case:
    """What is measured.

    Args:
        work: Windows of which each bundle gives panes, or a process per record.
        sink: Where these go; all but ``"memory"`` commit each bundle.
        workers: The number of worker processes.
    """

    work: Literal["windows", "process"]
    sink: Literal["memory", "a callback", "a Parquet folder"]
    workers: int | None = None

    @property
    def name(self) -> str:
        """What it is called."""
        sink = "in memory" if self.sink == "memory" else f"durable, {self.sink}"
        workers = "" if self.workers is None else f", workers={self.workers}"
        return f"{self.work}, {sink}{workers}"

    @property
    def target(self) -> str:
        """What it is to reach."""
        if self.workers is not None:
            return "no worse than without workers"
        if self.sink == "memory":
            return f"p50 ≤ {IN_MEMORY_P50_TARGET_MS}"
        return f"p50 ≤ {P50_TARGET_MS}, p95 ≤ {P95_TARGET_MS}"

    def seconds(self, path: Path, folder: Path) -> list[float]:
        """Return how long each bundle of a file took, without the first tenth."""
        source = Arrivals(path)
        options: dict[str, Any] = {"bundle_size": BUNDLE, "progress": False}
        if self.workers is not None:
            options["workers"] = self.workers
        spent = []
        if self.sink == "memory":
            for _ in self._pipeline(source).run_batches(**options):
                spent.append(time.perf_counter() - source.arrived)  # noqa: PERF401 (as they come)
        else:
            inner = ParquetFolder(str(folder / "out")) if self.sink == "a Parquet folder" else None
            sink = TimedSink(source, inner)
            self._pipeline(source).write_to(sink).run(
                state=folder / "state", commit_every="bundle", **options
            )
            spent = sink.seconds
        return spent[len(spent) // 10 :]

    def _pipeline(self, source: Arrivals) -> Pipeline | Processed:
        watermark = lw.BoundedDisorder(f"{2 * DISORDER_US}us")
        keyed = lw.from_source(source, time="at", watermark=watermark).key_by("key")
        if self.work == "process":
            return keyed.process(Numbered())
        return keyed.window(
            lw.FixedWindows("1m"),
            trigger=lw.AfterWatermark(early=lw.AfterCount(1), late=lw.AfterCount(1)),
            accumulation="discarding",
            allowed_lateness="1m",
        ).aggregate(total=lw.sum("value"))


CASES = (
    Case("windows", "memory"),
    Case("windows", "a callback"),
    Case("windows", "a Parquet folder"),
    *(Case("process", "memory", workers) for workers in WORKERS),
    *(Case("process", "a callback", workers) for workers in WORKERS),
)


@final
@dataclass(frozen=True, slots=True)
class Latency:
    """What a case came to: medians of the rounds.

    Args:
        case: The case.
        p50: The median in milliseconds.
        p95: The 95th percentile in milliseconds.
        cpu: Milliseconds of the CPU per bundle, of all processes and the whole run.
        against: p50 and p95 against those without workers, round by round; ``None`` without.
    """

    case: Case
    p50: float
    p95: float
    cpu: float
    against: tuple[float, ...] | None


def measure(bundles: int, rounds: int, folder: Path) -> list[Latency]:
    """Measure all cases in turn."""
    path = events_file(bundles * BUNDLE, folder)
    found: dict[Case, list[tuple[float, float, float]]] = {case: [] for case in CASES}
    for _ in range(rounds):
        for case, figures in found.items():
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                before = _cpu_seconds()
                spent = case.seconds(path, Path(scratch))
                cpu = (_cpu_seconds() - before) / bundles
            p50, p95 = np.percentile(spent, [50, 95])
            figures.append((float(p50) * 1e3, float(p95) * 1e3, cpu * 1e3))
    latencies = []
    for case, figures in found.items():
        p50, p95, cpu = (median(each) for each in zip(*figures, strict=True))
        against = None
        if case.workers is not None:
            pairs = list(zip(figures, found[Case(case.work, case.sink)], strict=True))
            against = tuple(median(own[at] / other[at] for own, other in pairs) for at in range(2))
        latencies.append(Latency(case, p50, p95, cpu, against))
    return latencies


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process, and of those it started that have ended."""
    # Not os.times(), which counts in hundredths of a second: a short run could take none.
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def show(bundles: int, rounds: int, folder: Path) -> None:
    """Print the table of latencies."""
    before = load()
    found = measure(bundles, rounds, folder)
    print(
        f"| {bundles:,} bundles of {BUNDLE:,}, load {before:.1f} to {load():.1f} | p50, ms "
        "| p95, ms | CPU, ms | p50 against no workers | p95 | target |"
    )
    print("|---|---|---|---|---|---|---|")
    for one in found:
        against = ("", "") if one.against is None else (f"{ratio:.2f}" for ratio in one.against)
        cells = " | ".join(against)
        print(
            f"| {one.case.name} | {one.p50:.1f} | {one.p95:.1f} | {one.cpu:.1f} "
            f"| {cells} | {one.case.target} |",
        )


@final
class Arrivals:
    """Gives a file's records in bundles, and notes when the last one was handed over."""

    def __init__(self, path: Path) -> None:
        self.arrived = 0.0
        self._batches = pq.read_table(path).to_batches(max_chunksize=BUNDLE)

    @property
    def schema(self) -> pa.Schema:
        return self._batches[0].schema

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        return (records for records, _ in self.batches_from(None, size, keys))

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        for at in range(0 if position is None else position["next"], len(self._batches)):
            records = Records.from_arrow(self._batches[at])
            self.arrived = time.perf_counter()
            yield records, {"next": at + 1}


@final
class TimedSink:
    """A sink that notes how long after its bundle's arrival each delivery was published."""

    def __init__(self, source: Arrivals, inner: ParquetFolder | None) -> None:
        self.seconds: list[float] = []
        self._source = source
        self._inner = inner

    def places(self) -> Iterable[Place]:
        return () if self._inner is None else self._inner.places()

    def open(self, writer: Writer) -> None:
        if self._inner is not None:
            self._inner.open(writer)

    def deliver(self, delivery: Delivery) -> None:
        if self._inner is not None:
            self._inner.deliver(delivery)
        self.seconds.append(time.perf_counter() - self._source.arrived)

    def close(self, *, complete: bool) -> None:
        if self._inner is not None:
            self._inner.close(complete=complete)
