"""The records that probes read, in memory and in files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

import lowwater as lw

SECOND = 1_000_000
TABLE = pa.table(
    {
        "at": pa.array([n * 7 * SECOND for n in range(40)]).cast(pa.timestamp("us", "UTC")),
        "key": pa.array([f"key {n % 3}" for n in range(40)]),
        "value": pa.array([n * n % 11 for n in range(40)]),
        "even": pa.array([n % 2 == 0 for n in range(40)]),
        "file": pa.array([0] * 20 + [1] * 10 + [2] * 10),
    }
)


ONE_FILE = {"files_per_batch": 1, "key_groups": 2}
"""Options of ``to_spark`` for :func:`in_files`."""


def begun(watermark: Any = None, **options: Any) -> lw.Stream:
    """Return the records, as a stream."""
    return lw.from_arrow(TABLE, time="at", watermark=watermark, **options)


def in_files(
    folder: Path, watermark: Any = None, rows: slice = slice(None), **options: Any
) -> lw.Stream:
    """Return the records in three files, each of which is a micro-batch; one of them is late.

    Args:
        folder: Where to write the files.
        watermark: The watermark estimator; by default it is ascending.
        rows: Which of the files there are.
        **options: Further options of the source.
    """
    late = TABLE.slice(1, 1).set_column(TABLE.schema.get_field_index("file"), "file", pa.array([2]))
    parts = [TABLE.slice(0, 20), TABLE.slice(20, 10), pa.concat_tables([late, TABLE.slice(30)])]
    folder.mkdir(exist_ok=True)
    for at, part in enumerate(parts[rows]):
        path = folder / f"{at}.parquet"
        pyarrow.parquet.write_table(part, path)
        os.utime(path, (1_000_000_000 + at, 1_000_000_000 + at))  # Spark reads the oldest first
    watermark = lw.Ascending() if watermark is None else watermark
    return lw.read_parquet(str(folder / "?.parquet"), time="at", watermark=watermark, **options)


def counted(stream: Any, key: Any = "key") -> lw.Pipeline:
    """Group by key and minute."""
    made: lw.Pipeline = (
        stream.key_by(key)
        .window(lw.FixedWindows("1m"), accumulation="accumulating")
        .aggregate(n=lw.count(), total=lw.sum("value"))
    )
    return made
