"""The events that all benchmarks read: one Parquet file, made once, the same each time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

KEYS = 10_000
DISORDER_US = 5_000_000
START_US = 1_700_000_040_000_000  # a full minute
_SEED = 20_240_101


def events_file(count: int, folder: Path) -> Path:
    """Return a Parquet file of events: one arrives per millisecond, event times 5 s off at most.

    Columns: ``at`` (timestamp[us, UTC]), ``key`` (one of 10 000 strings), ``value`` (int64 below
    1 000). Rows stand in order of arrival.
    """
    path = folder / f"events-{count}.parquet"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(_SEED)
    arrival = START_US + np.arange(count, dtype=np.int64) * 1_000
    at = arrival + random.integers(-DISORDER_US, DISORDER_US + 1, count)
    names = pa.array([f"key-{number:05d}" for number in range(KEYS)])
    table = pa.table(
        {
            "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
            "key": names.take(pa.array(random.integers(0, KEYS, count))),
            "value": pa.array(random.integers(0, 1_000, count)),
        }
    )
    half = path.with_suffix(".half")
    pq.write_table(table, half, row_group_size=1_000_000)
    half.replace(path)
    return path
