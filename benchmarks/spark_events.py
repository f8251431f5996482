"""Events for Spark: folders of Parquet files, each one micro-batch."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.events import DISORDER_US, START_US

_SEED = 20_240_102


def batches_folder(rows: int, keys: int, batches: int, folder: Path) -> Path:
    """Return a folder of files: events one per millisecond, 5 s off at most, keys at random.

    Columns: ``t`` (timestamp[us, UTC]), ``key`` (string), ``value`` (int64 below 1 000).
    """
    random = np.random.default_rng(_SEED)
    path = folder / f"spark-{rows}-{keys}-{batches}"
    if path.exists():
        return path
    parts = (random.integers(0, keys, rows) for _ in range(batches))
    return _write(path, parts, random)


def growing_folder(rows: int, batches: int, folder: Path) -> Path:
    """Return a folder of files in which each row has a key of its own: as many windows as rows."""
    path = folder / f"spark-growing-{rows}-{batches}"
    if path.exists():
        return path
    parts = (np.arange(rows) + rows * number for number in range(batches))
    return _write(path, parts, np.random.default_rng(_SEED))


def _write(path: Path, parts: object, random: np.random.Generator) -> Path:
    half = path.with_suffix(".half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    at = START_US
    for number, ids in enumerate(parts):  # type: ignore[arg-type, var-annotated]
        count = len(ids)
        arrival = at + np.arange(count, dtype=np.int64) * 1_000
        at += count * 1_000
        times = arrival + random.integers(-DISORDER_US, DISORDER_US + 1, count)
        table = pa.table(
            {
                "t": pa.array(times).cast(pa.timestamp("us", tz="UTC")),
                "key": pa.array(np.char.mod("key-%07d", ids)),
                "value": pa.array(random.integers(0, 1_000, count)),
            }
        )
        # Two row groups: Spark reads a file in as many tasks as it has cores.
        pq.write_table(table, half / f"{number:04d}.parquet", row_group_size=(count + 1) // 2)
    half.replace(path)
    return path
