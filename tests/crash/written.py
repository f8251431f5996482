"""What the sinks of a run hold, in an order of its own."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import pyarrow.parquet as pq

Written: TypeAlias = dict[str, list[str]]
Files: TypeAlias = dict[str, bytes]


def written(folder: Path) -> Written:
    """Return everything that is in ``out``, by place and kind, sorted; and what was counted."""
    out = folder / "out"
    found: Written = {"metrics": [(out / "metrics.json").read_text()]}
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
    return {name: sorted(lines) for name, lines in {**found, **schemas}.items()}


def files(folder: Path) -> Files:
    """Return the files of deliveries, by place and name, byte for byte."""
    own = str(folder).encode()
    out = folder / "out"
    return {
        str(path.relative_to(out)): path.read_bytes().replace(own, b"")
        for path in out.glob("*/[!.]*")
    }


def differences(found: Written, wanted: Written) -> Iterator[str]:
    """Yield in words what is missing, or is too much, by place and kind."""
    for name in sorted({*found, *wanted}):
        there, due = Counter(found.get(name, ())), Counter(wanted.get(name, ()))
        for what, lines in (("missing", due - there), ("too much", there - due)):
            if lines:
                yield f"{name}: {lines.total()} {what}, the first {min(lines)}"


def _tables(database: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Yield the tables and their columns, but for deliveries, which may be cut otherwise."""
    known = database.execute("select name from sqlite_master where type = 'table'").fetchall()
    for (name,) in known:
        if name.endswith(("_late", "_errors")):
            yield name, "reason, record"
        elif not name.startswith("lowwater_"):
            yield name, "*"
