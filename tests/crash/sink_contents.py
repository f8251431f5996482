"""Reads back what the sinks of a run hold, in a canonical order."""

from __future__ import annotations

import os
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
import pyarrow.parquet as pq

SinkContents: TypeAlias = dict[str, list[str]]
Files: TypeAlias = dict[str, bytes]


def sink_contents(folder: Path) -> SinkContents:
    """Return the rows in ``out``, sorted, by place and kind; and the metrics."""
    out = folder / "out"
    found: SinkContents = {"metrics": [(out / "metrics.json").read_text()]}
    schemas: dict[str, set[str]] = {}

    def add(path: Path, name: str, lines: list[str]) -> None:
        found.setdefault(f"{path.name} {name}", []).extend(
            line.replace(str(folder), "") for line in lines
        )

    for path in out.glob("*/[!.]*"):
        kind = path.name.partition("-")[0]
        if path.suffix == ".jsonl":
            add(path.parent, kind, path.read_text().splitlines())
        else:
            table = pq.read_table(path)
            add(path.parent, kind, [repr(row) for row in table.to_pylist()])
            schemas.setdefault(f"{path.parent.name} schemas", set()).add(str(table.schema))
    for path in out.glob("*.sqlite"):
        with closing(sqlite3.connect(path)) as database:
            for name, columns in _tables(database):
                rows = database.execute(f'select {columns} from "{name}"').fetchall()
                add(path, name, [repr(row) for row in rows])
    for name, rows in _in_postgresql(folder.name):
        found[f"postgresql {name}"] = [repr(row) for row in rows]
    return {name: sorted(lines) for name, lines in {**found, **schemas}.items()}


def delivered_files(folder: Path) -> Files:
    """Return the contents of the files of one delivery each, by their paths.

    Which deliveries share a file, in folders that are compacted, depends on where a run was killed.
    """
    own = str(folder).encode()
    out = folder / "out"
    return {
        str(path.relative_to(out)): path.read_bytes().replace(own, b"")
        for path in out.glob("*/[!.]*")
        if not path.parent.name.startswith("large")
    }


def differences(found: SinkContents, wanted: SinkContents) -> Iterator[str]:
    """Yield a sentence for each place and kind with missing or surplus rows."""
    for name in sorted({*found, *wanted}):
        there, due = Counter(found.get(name, ())), Counter(wanted.get(name, ()))
        for what, lines in (("missing", due - there), ("too many", there - due)):
            if lines:
                yield f"{name}: {lines.total()} {what}, the first {min(lines)}"


def _in_postgresql(run: str) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """Yield what the server that the environment names has in the tables of a run."""
    if (dsn := os.environ.get("LOWWATER_DSN")) is None:
        return
    with psycopg.connect(dsn) as connection:
        tables = "select tablename from pg_tables where schemaname = 'public' order by 1"
        for (table,) in connection.execute(tables).fetchall():
            if (named := re.fullmatch(rf"(\w+)_{run}(|_late|_errors)", table)) is None:
                continue
            name, kind = named.groups()
            columns = {"": "*", "_late": "reason, record", "_errors": "reason"}[kind]
            rows = connection.execute(f'select {columns} from "{table}"').fetchall()
            yield f"{name}{kind}", rows


def _tables(database: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Yield tables and the columns to compare: how rows are cut into deliveries may differ."""
    known = database.execute("select name from sqlite_master where type = 'table'").fetchall()
    for (name,) in known:
        if name.endswith(("_late", "_errors")):
            yield name, "reason, record"
        elif not name.startswith("lowwater_"):
            yield name, "*"
