"""Events for Spark: folders of Parquet files, each one micro-batch."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.events import DISORDER_US, START_US

_SEED = 20_240_102
WITHIN_US = 5_000_000
"""How long after a row of the left side its partner happened, at most."""


def batches_folder(rows: int, keys: int, batches: int, folder: Path) -> Path:
    """Return a folder of files: events one per millisecond, 5 s off at most, keys at random.

    Columns: ``t`` (timestamp[us, UTC]), ``key`` (string), ``value`` (int64 below 1 000).
    """
    random = np.random.default_rng(_SEED)
    path = folder / f"spark-{rows}-{keys}-{batches}"
    if path.exists():
        return path
    return _write(path, _arriving((random.integers(0, keys, rows) for _ in range(batches)), random))


def growing_folder(rows: int, batches: int, folder: Path) -> Path:
    """Return a folder of files in which each row has a key of its own: as many windows as rows."""
    path = folder / f"spark-growing-{rows}-{batches}"
    if path.exists():
        return path
    random = np.random.default_rng(_SEED)
    return _write(path, _arriving((np.arange(rows) + rows * n for n in range(batches)), random))


def touching_folder(windows: int, rows: int, touched: int, batches: int, folder: Path) -> Path:
    """Return a folder of files that open windows, and then of files that touch some of these.

    Args:
        windows: How many windows to open: each has a key of its own.
        rows: How many of them a file opens.
        touched: How many windows, chosen at random, each file behind those touches, by a row each.
        batches: How many such files.
        folder: Where to make it.
    """
    path = folder / f"spark-touching-{windows}-{rows}-{touched}-{batches}"
    if path.exists():
        return path
    random = np.random.default_rng(_SEED)
    opening = list(
        _arriving((np.arange(n, min(n + rows, windows)) for n in range(0, windows, rows)), random)
    )
    times = np.concatenate([each for _, each in opening])

    def touching() -> Iterator[_Events]:
        for _ in range(batches):
            ids = random.choice(windows, min(touched, windows), replace=False)
            yield ids, times[ids]

    return _write(path, (*opening, *touching()))


def joining_folder(rows: int, keys: int, batches: int, folder: Path) -> Path:
    """Return a folder of two folders of files, ``left`` and ``right``, to be joined by time.

    Each row of the left side has a partner, one of the same key at most five seconds after it.
    Columns as in :func:`batches_folder`; ``value`` says which rows were made for each other.

    Args:
        rows: How many rows a file has; the files of both sides with a number are a batch.
        keys: From which each row of the left side has one at random.
        batches: How many files each side has.
        folder: Where to make it.
    """
    path = folder / f"spark-joining-{rows}-{keys}-{batches}"
    if path.exists():
        return path
    random = np.random.default_rng(_SEED)
    ids = [random.integers(0, keys, rows) for _ in range(batches)]
    left = list(_arriving(iter(ids), random))
    at = np.concatenate([times for _, times in left])
    later = at + random.integers(0, WITHIN_US + 1, len(at))
    # A partner arrives as long after its row as it happened after it.
    arrival = np.arange(len(at)) * 1_000 + (later - at)
    order = np.argsort(arrival, kind="stable")
    parts = [order[n : n + rows] for n in range(0, len(order), rows)]
    every = np.concatenate(ids)
    right = tuple((every[part], later[part]) for part in parts)
    numbers = [np.arange(n, n + rows) for n in range(0, len(at), rows)]
    half = path.with_suffix(".half")
    shutil.rmtree(half, ignore_errors=True)
    _write(half / "left", tuple(left), numbers)
    _write(half / "right", right, parts)
    half.replace(path)
    return path


_Events = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Numbers of keys, and times in microseconds."""


def _arriving(
    parts: Iterator[npt.NDArray[np.int64]], random: np.random.Generator
) -> Iterator[_Events]:
    at = START_US
    for ids in parts:
        arrival = at + np.arange(len(ids), dtype=np.int64) * 1_000
        at += len(ids) * 1_000
        yield ids, arrival + random.integers(-DISORDER_US, DISORDER_US + 1, len(ids))


def _write(
    path: Path,
    parts: Iterator[_Events] | tuple[_Events, ...],
    values: Sequence[npt.NDArray[np.int64]] | None = None,
) -> Path:
    half = path.with_suffix(".half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    random = np.random.default_rng(_SEED)
    for number, (ids, times) in enumerate(parts):
        table = pa.table(
            {
                "t": pa.array(times).cast(pa.timestamp("us", tz="UTC")),
                "key": pa.array(np.char.mod("key-%07d", ids)),
                "value": pa.array(
                    random.integers(0, 1_000, len(ids)) if values is None else values[number]
                ),
            }
        )
        # Two row groups: Spark reads a file in as many tasks as it has cores.
        size = (len(ids) + 1) // 2
        pq.write_table(table, half / f"{number:04d}.parquet", row_group_size=size)
    half.replace(path)
    return path
