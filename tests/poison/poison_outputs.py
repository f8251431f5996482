"""Files and tables that poison values are written to."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import lowwater as lw
from lowwater.engine.records.pane_table import to_values
from lowwater.io.sinks import JsonLinesFile, JsonLinesFolder, ParquetFolder, SqliteTable
from tests.poison.poison_places import PLACES, EmitsRecord, Place


def _passed(stream: Any) -> Any:
    return stream.filter(lw.col("n") >= 0)


def _collected(stream: Any) -> Any:
    windowed = stream.key_by("k").window(lw.FixedWindows("1h"))
    return windowed.aggregate(a=lw.collect("v"), c=lw.count())


def _last(stream: Any) -> Any:
    return stream.key_by("k").window(lw.FixedWindows("1h")).aggregate(a=lw.last("v"))


def _emitted(stream: Any) -> Any:
    return stream.key_by("k").process(EmitsRecord())


def _json(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.parent.glob("out/part-*.jsonl")) or [folder.with_suffix(".jsonl")]:
        yield from map(json.loads, filter(None, path.read_text().split("\n")))


def _parquet(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("part-*.parquet")):
        table = pq.read_table(path)
        columns = [to_values(*pair) for pair in zip(table.schema, table.columns, strict=True)]
        for row in zip(*columns, strict=True):
            yield dict(zip(table.schema.names, map(_said, row), strict=True))


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    with sqlite3.connect(folder.with_suffix(".db")) as database:
        database.row_factory = sqlite3.Row
        for row in database.execute("SELECT * FROM panes"):
            yield {name: _said(row[name]) for name in row.keys()}  # noqa: SIM118  # of no dict
    database.close()


def _said(value: Any) -> Any:
    """Return a value that is JSON where its column has values of several types in a delivery."""
    if isinstance(value, float) and math.isnan(value):
        return None  # as JSON has it
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _file(folder: Path) -> Any:
    return JsonLinesFile(str(folder.with_suffix(".jsonl")))


def _table(folder: Path) -> Any:
    return SqliteTable(str(folder.with_suffix(".db")), "panes")


def _folder(folder: Path) -> Any:
    return ParquetFolder(str(folder))


def _lines(folder: Path) -> Any:
    return JsonLinesFolder(str(folder))


PLACES |= {
    "passed to JSON lines": Place(_passed, sink=_file, stored=_json),
    "collected to JSON lines": Place(_collected, sink=_lines, stored=_json),
    "passed to Parquet": Place(_passed, sink=_folder, stored=_parquet),
    "collected to Parquet": Place(_collected, sink=_folder, stored=_parquet),
    "last to Parquet": Place(_last, sink=_folder, stored=_parquet),
    "emitted to Parquet": Place(_emitted, "", sink=_folder, stored=_parquet, python=True),
    "collected to SQLite": Place(_collected, sink=_table, stored=_rows),
    "last to SQLite": Place(_last, sink=_table, stored=_rows),
    "key to SQLite": Place(_last, "k", lambda n: f"k{n % 3}", sink=_table, stored=_rows),
    "key to Parquet": Place(_last, "k", lambda n: f"k{n % 3}", sink=_folder, stored=_parquet),
}
