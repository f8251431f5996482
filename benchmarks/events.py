"""The events that all benchmarks read: one Parquet file, made once, the same each time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lowwater.cli.bench import DISORDER_US as DISORDER_US
from lowwater.cli.bench import START_US as START_US
from lowwater.cli.bench import events_in_memory

KEYS = 10_000


def events_file(count: int, folder: Path) -> Path:
    """Return a Parquet file of events: one arrives per millisecond, event times 5 s off at most.

    Columns: ``at`` (timestamp[us, UTC]), ``key`` (one of 10 000 strings), ``value`` (int64 below
    1 000). Rows stand in order of arrival.
    """
    path = folder / f"events-{count}.parquet"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    table = events_in_memory(count, KEYS)
    at = table.schema.get_field_index("key")
    table = table.set_column(at, "key", table["key"].cast(pa.string()))
    half = path.with_suffix(".half")
    pq.write_table(table, half, row_group_size=1_000_000)
    half.replace(path)
    return path
