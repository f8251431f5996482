"""The events as CSV, for peers whose own readers know no Parquet."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq


def csv_file(path: Path, *, unit: str, header: bool) -> Path:
    """Return a CSV file of the events beside the Parquet file, made once.

    Args:
        path: The Parquet file.
        unit: ``"us"``: instants are integers of microseconds; ``"ms"``: UTC text, cut to
            milliseconds.
        header: Whether the first line names the columns.
    """
    target = path.with_suffix(f".{unit}{'.named' if header else ''}.csv")
    if not target.exists():
        table = pq.read_table(path)
        kind = pa.int64() if unit == "us" else pa.timestamp("ms")
        at = table["at"].cast(kind, safe=unit == "us")
        half = target.with_suffix(".half")
        options = pyarrow.csv.WriteOptions(include_header=header, quoting_style="none")
        pyarrow.csv.write_csv(table.set_column(0, "at", at), half, options)
        half.replace(target)
    return target
