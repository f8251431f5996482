"""Rows a second and core on Spark beside the embedded runner, where Python does most of the work.

Spark has two cores. The embedded run of ``python -m benchmarks.spark_cores`` has a process of its
own that may use one of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

import lowwater as lw
from benchmarks.spark_events import batches_folder
from benchmarks.spark_pipelines import PIPELINES
from benchmarks.spark_runs import (
    NONE,
    Batch,
    Plan,
    Rounds,
    Run,
    RunFailed,
    heading,
    line,
    named,
    ratio,
    seconds,
)

_KEYS = 10_000
_SPARK_CORES = 2
_EMBEDDED_FILES = 10  # it is warm at once


@final
@dataclass(frozen=True, slots=True)
class Case:
    """What to measure.

    Args:
        pipeline: Which of :data:`~benchmarks.spark_pipelines.PIPELINES`.
        what: What it is called.
        wanted: The least ratio.
        one_bundle: Whether the embedded run takes what is a batch on Spark as one bundle, so that
            both emit the same panes; otherwise its bundles have the size that they have anyway.
    """

    pipeline: str
    what: str
    wanted: float
    one_bundle: bool = False


CASES = (
    Case("count", "process per record: count", 0.5),
    Case("expiring", "process per record: count and timer", 0.5),
    Case("retracting", "windows over a retracting stage", 0.6, one_bundle=True),
)


@final
@dataclass(frozen=True, slots=True)
class Cores:
    """How to measure.

    Args:
        plan: How often, how long and with what.
    """

    plan: Plan

    def heading(self) -> None:
        """Print the head of the table."""
        heading(
            *("pipeline", "rows a batch", "lowwater on Spark", "s a batch", "rows/s a core"),
            *("embedded, rows/s a core", "ratio (least to most)", "wanted", "load before"),
        )

    def report(self, case: Case, rows: int) -> None:
        """Print the lines of a case: each way, beside the embedded run."""
        folder = batches_folder(rows, _KEYS, self.plan.batches, self.plan.data)
        ways = {named(way): way for way in self.plan.ways}
        rounds = Rounds(
            {
                "embedded": partial(
                    embedded, case.pipeline, folder, rows if case.one_bundle else 0
                ),
                **{
                    name: partial(
                        self.plan.measure,
                        f"lowwater-{case.pipeline}",
                        folder,
                        way,
                        most_seconds=self.plan.most_seconds,
                    )
                    for name, way in ways.items()
                },
            },
            self.plan.rounds,
        ).run()
        on_spark = {name: runs for name, runs in rounds.runs.items() if name in ways}
        spark = Rounds({}, rounds.count, on_spark)  # the embedded run has one batch
        alone = rounds.figures("embedded", _rows_a_second)
        for name in ways:
            took = rounds.figures(name, lambda run: run.median(self.plan.warm_up))
            speeds = [rows / each / _SPARK_CORES for each in took]
            line(
                *(
                    case.what,
                    f"{rows:,}",
                    f"{name}{spark.short(self.plan.warm_up)}",
                    seconds(took),
                    _speed(speeds),
                    _speed(alone),
                ),
                *(ratio(speeds, alone), f"≥ {case.wanted}", f"{rounds.load:.1f}"),
            )


def embedded(pipeline: str, folder: Path, bundle: int) -> Run:
    """Run a pipeline embedded, on one core, in a process of its own; its result has one batch.

    Args:
        pipeline: Its name.
        folder: The files.
        bundle: The most records of a bundle; 0 for what is usual.

    Raises:
        RunFailed: It failed.
    """
    command = [sys.executable, "-m", "benchmarks.spark_cores", pipeline, str(folder), str(bundle)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stderr[-4_000:])
        raise RunFailed(f"embedded, it ended with {done.returncode}")
    return Run([Batch(**json.loads(done.stdout))])


def _run(pipeline: str, folder: Path, bundle: int) -> Batch:
    timed = PIPELINES[pipeline]
    files = sorted(folder.iterdir())[:_EMBEDDED_FILES]
    events = lw.read_parquet(files, time="t", watermark=lw.BoundedDisorder(timed.watermark))
    rows = 0
    took = 0.0

    def look(metrics: lw.Metrics) -> None:
        nonlocal rows, took
        if metrics.events > rows:  # what the end of the input brings does not count on Spark either
            rows, took = metrics.events, time.perf_counter() - began

    options: dict[str, Any] = {"bundle_size": bundle} if bundle else {}
    run = timed.build(events).run_batches(progress=look, **options)
    began = time.perf_counter()
    for _ in run:
        pass
    return Batch(0, rows, took, took)


def _rows_a_second(run: Run) -> float:
    return run.batches[0].rows / run.batches[0].seconds


def _speed(speeds: Sequence[float]) -> str:
    return f"{sorted(speeds)[len(speeds) // 2]:,.0f}" if speeds else NONE


def main() -> None:
    """Run the pipeline that the command line names, on one core, and print what it took as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_cores", description=__doc__)
    parser.add_argument("pipeline", choices=PIPELINES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("bundle", type=int)
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    found = _run(args.pipeline, args.folder, args.bundle)
    print(json.dumps({name: getattr(found, name) for name in Batch.__slots__}))


if __name__ == "__main__":
    main()
