"""A small durable pipeline over files, and how to stop it on the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

import lowwater as lw
from lowwater.engine.local import durable
from lowwater.pipeline import Pipeline

SECOND = 1_000_000
ROWS = 100
KEYS = 7


class Stopped(Exception):
    """What ends a run half way, as a failure of the user's own code would."""


def write_file(path: Path, number: int, rows: int = ROWS) -> Path:
    """Write a file of records a second apart, the last of every ten a minute late."""
    at = [(number * ROWS + n - (60 if n % 10 == 9 else 0)) * SECOND for n in range(rows)]
    table = pa.table(
        {
            "at": pa.array(at, pa.int64()),
            "key": [f"k{n % KEYS}" for n in range(rows)],
            "value": pa.array([number * ROWS + n for n in range(rows)], pa.int64()),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


def write_files(folder: Path, count: int = 3) -> Path:
    """Write some files into a folder and return it."""
    for number in range(count):
        write_file(folder / f"{number}.parquet", number)
    return folder


def pipeline(
    source: str | Path,
    *,
    windows: Any = None,
    lateness: str = "10s",
    watermark: Any = None,
    accumulation: Any = "accumulating",
    value: str = "value",
    **options: Any,
) -> Pipeline:
    """Return a pipeline over such files."""
    estimator = lw.BoundedDisorder("5s") if watermark is None else watermark
    return (
        lw.read_parquet(source, time="at", watermark=estimator, clock=lw.ManualClock(0), **options)
        .key_by("key")
        .window(
            lw.FixedWindows("20s") if windows is None else windows,
            trigger=lw.AfterWatermark(late=lw.AfterCount(1)),
            accumulation=accumulation,
            allowed_lateness=lateness,
        )
        .aggregate(n=lw.count(), total=lw.sum(value), values=lw.collect(value))
    )


def run(pipeline: Pipeline, folder: Path, **options: Any) -> Any:
    """Run durably, with the state and the output in a folder."""
    options = {"bundle_size": 10, "commit_every": "bundle", "progress": False, **options}
    return pipeline.write_jsonl(folder / "out").run(state=folder / "state", **options)


@contextmanager
def stopping(point: str, count: int, how: Callable[[], Any] | None = None) -> Iterator[None]:
    """Stop a run, or do something else, when it passes a point for that time. May be nested."""
    left = count
    former = durable.on_point

    def on_point(passed: str) -> None:
        nonlocal left
        former(passed)
        left -= passed == point
        if not left:
            left -= 1
            if how is None:
                raise Stopped(point)
            how()

    with mock.patch.object(durable, "on_point", on_point):
        yield


def stopped(pipeline: Pipeline, folder: Path, commits: int = 12, **options: Any) -> None:
    """Run until so many commits are written, and stop there."""
    with stopping("before forgetting", commits):
        try:
            run(pipeline, folder, **options)
        except Stopped:
            return
    raise AssertionError("the run ended before it was stopped")


def output(folder: Path) -> dict[str, list[Any]]:
    """Return the panes and late elements that were written, in an order of their own."""
    found = {}
    for name in ("part", "late", "errors"):
        lines = [
            line
            for path in sorted((folder / "out").glob(f"{name}-*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        found[name] = [json.loads(line) for line in sorted(lines)]
    return found
