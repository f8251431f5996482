"""The events that all benchmarks read: Parquet files, made once, the same each time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lowwater.cli.bench import DISORDER_US as DISORDER_US
from lowwater.cli.bench import START_US as START_US
from lowwater.cli.bench import events_in_memory

KEYS = 10_000


def events_file(count: int, folder: Path, *, keys: int = KEYS, integer_keys: bool = False) -> Path:
    """Return a Parquet file of events: one arrives per millisecond, event times 5 s off at most.

    Columns: ``at`` (timestamp[us, UTC]), ``key`` (string or int64), ``value`` (int64 below 1 000).
    Rows stand in order of arrival.

    Args:
        count: How many events.
        folder: Where the file is, or is made.
        keys: How many keys they have.
        integer_keys: Whether keys are integers instead of strings.
    """
    of_keys = f"-{keys}-keys" if keys != KEYS else ""
    path = folder / f"events-{count}{of_keys}{'-integers' if integer_keys else ''}.parquet"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    table = events_in_memory(count, keys)
    at = table.schema.get_field_index("key")
    key = table["key"].combine_chunks()
    key = key.indices.cast(pa.int64()) if integer_keys else key.cast(pa.string())
    table = table.set_column(at, "key", key)
    half = path.with_suffix(".half")
    pq.write_table(table, half, row_group_size=1_000_000)
    half.replace(path)
    return path
