"""Runs of queries on Spark, each in a driver of its own, and what the tables have in common."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from benchmarks.machine import load

_STORE = "spark.sql.streaming.stateStore.providerClass"
_STATE = "org.apache.spark.sql.execution.streaming.state"
PROVIDERS: dict[str, dict[str, Any]] = {
    "RocksDB": {_STORE: f"{_STATE}.RocksDBStateStoreProvider"},
    "HDFS-backed": {_STORE: f"{_STATE}.HDFSBackedStateStoreProvider"},
}
"""Spark's state store providers; its own windows run with both."""


NONE = "none"
"""What stands in a table where no query gave a figure."""


class RunFailed(Exception):
    """A query did not run, or gave no micro-batch in time."""


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: its number, its rows, seconds from trigger to commit, and of its query."""

    number: int
    rows: int
    seconds: float
    add_batch: float


@final
@dataclass(frozen=True, slots=True)
class Task:
    """A task that a Python worker ran; see :mod:`benchmarks.spark_daemon`.

    Args:
        batch: The number of the micro-batch.
        stage: Spark's number of the stage; of those of a batch the last one keeps state.
        partition: Which key groups it had: the same in all batches.
        step: The number of the Python step; 0 if all steps share workers.
        pid: The worker.
        resident_bytes: Its memory behind the task.
        peak_bytes: The most that it ever had.
    """

    batch: int
    stage: int
    partition: int
    step: int
    pid: int
    resident_bytes: int
    peak_bytes: int


@final
@dataclass(frozen=True, slots=True)
class Run:
    """What a query took.

    Args:
        batches: Those with records, in order.
        tasks: Those of Python workers, if they were recorded.
    """

    batches: list[Batch]
    tasks: list[Task] = field(default_factory=list)

    def median(self, first: int = 0) -> float:
        """Return the median seconds of the batches from one on; of the last one if there is none.

        What is slow does not come as far as it would have to be warm.
        """
        return statistics.median(each.seconds for each in self.batches[first:] or self.batches[-1:])


Measure = Callable[..., Run]
"""How a table has a query run: :func:`measured`, but for tests of the tables."""


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """How a table is measured.

    Args:
        ways: Settings that this library runs with, each in turn.
        rounds: How often.
        batches: How many micro-batches a query has, at most; where windows are opened first, how
            many there are behind.
        warm_up: How many of these do not count as warm.
        most_seconds: About how long a query may take.
        data: Where events lie.
        measure: Runs a query.
    """

    ways: Sequence[dict[str, Any]]
    rounds: int
    batches: int
    warm_up: int
    most_seconds: float
    data: Path
    measure: Measure


def measured(
    query: str,
    folder: Path,
    settings: dict[str, Any],
    *,
    most_seconds: float,
    before: Path | None = None,
    record: bool = False,
    own_workers: bool = False,
) -> Run:
    """Run a query in a driver of its own; see :func:`benchmarks.spark_driver.run`.

    Raises:
        RunFailed: It failed, or no batch was done in time.
    """
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.spark_driver", query, str(folder)]
    command += ["--most-seconds", str(most_seconds), "--settings", json.dumps(settings)]
    command += [] if before is None else ["--before", str(before)]
    command += ["--record"] * record + ["--own-workers"] * own_workers
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.stderr.write(done.stderr[-4_000:])
        errors = [line for line in done.stderr.splitlines() if "Error: " in line]
        raise RunFailed(errors[-1] if errors else f"it ended with {done.returncode}")
    found = json.loads(done.stdout.strip().rpartition("\n")[2])
    if not found["batches"]:
        raise RunFailed(f"no batch within {4 * most_seconds:.0f} s")
    return Run(
        [Batch(**each) for each in found["batches"]], [Task(**each) for each in found["tasks"]]
    )


def named(settings: dict[str, Any]) -> str:
    """Return what a way to run is called in a table."""
    return ", ".join(f"{name.rpartition('.')[2]}={v}" for name, v in settings.items()) or "default"


def heading(*columns: str) -> None:
    """Print the head of a table."""
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")


def line(*cells: object) -> None:
    """Print a line of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


@final
@dataclass(slots=True)
class Rounds:
    """Runs the same queries in turn, some times over, and keeps what each gave.

    Args:
        queries: What to call each, and what runs it.
        count: How often.
    """

    queries: dict[str, Callable[[], Run]]
    count: int
    runs: dict[str, list[Run]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    load: float = 0.0

    def run(self) -> Rounds:
        """Run all of them; what fails once is not run again."""
        self.load = load()
        for _ in range(self.count):
            for name, query in self.queries.items():
                if name in self.failed:
                    continue
                try:
                    self.runs.setdefault(name, []).append(query())
                except RunFailed as failure:
                    self.failed[name] = str(failure)
                    line(name, failure)
        return self

    def figures(self, name: str, figure: Callable[[Run], float]) -> list[float]:
        """Return a figure of each round; none of a query that failed."""
        return [] if name in self.failed else [figure(run) for run in self.runs[name]]

    def short(self, count: int) -> str:
        """Say for a table which queries had not more batches: of them the last one counts alone."""
        names = [
            name
            for name, runs in self.runs.items()
            if any(len(run.batches) <= count for run in runs)
        ]
        return f"; too slow, so the last one of: {', '.join(names)}" if names else ""


def seconds(figures: Sequence[float]) -> str:
    """Return the median for a table."""
    return f"{statistics.median(figures):.2f}" if figures else NONE


def ratio(above: Iterable[float], below: Iterable[float]) -> str:
    """Return the median of the rounds' ratios for a table, with the least and the largest."""
    each = [one / other for one, other in zip(above, below, strict=False)]
    if not each:
        return NONE
    extent = f"{min(each):.2f} to {max(each):.2f}" if len(each) > 1 else "one round"
    return f"{statistics.median(each):.2f} ({extent})"
