"""Positions in the changes of a PostgreSQL table, as commit 07f6227b stored them.

``python -m tests.goldens.changes`` writes them to ``positions_of_changes.json``: what was read,
batch by batch, and the position behind each batch. A position belongs to one server, whose log
sequence numbers no other has. So the test makes the same changes on a server of its own, and
resumes from positions with the fields of the stored ones and the values of that server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from lowwater.io.postgres_changes.options import changes_of
from lowwater.io.postgres_changes.table_source import PostgresChanges

STORED = Path(__file__).parent / "positions_of_changes.json"
SIZE = 4
_IDS = 11


def prepare(execute: Callable[[str], object]) -> None:
    """Create the table that is read, with some rows."""
    execute("CREATE TABLE golden (id int, part text, n numeric, at timestamptz, doc jsonb, "
            "PRIMARY KEY (id, part))")  # fmt: skip
    execute("CREATE PUBLICATION of_goldens FOR TABLE golden")
    execute(
        "INSERT INTO golden SELECT i, 'p' || i % 2, i / 4.0, '2024-05-01 12:00Z', "
        f"jsonb_build_object('i', i) FROM generate_series(1, {_IDS}) AS i"
    )


def change(execute: Callable[[str], object]) -> None:
    """Change the table, in transactions of several sizes."""
    execute("UPDATE golden SET n = n + 1")
    execute("DELETE FROM golden WHERE id = 3")
    execute("INSERT INTO golden VALUES (99, 'x', NULL, NULL, NULL)")
    execute("UPDATE golden SET id = id + 100 WHERE id < 7")


def source(dsn: str, slot: str = "golden") -> PostgresChanges:
    """Return the source."""
    return changes_of(
        dsn, "golden", publication="of_goldens", slot=slot, snapshot=True, columns=None, types={},
        truncate="error", end="never",
    )  # fmt: skip


def batches(
    read: PostgresChanges, position: Mapping[str, Any] | None, changed: Callable[[], None]
) -> list[tuple[list[Any], dict[str, Any]]]:
    """Return what is read from a position on, and the position behind each batch.

    Args:
        read: The source.
        position: Where to begin.
        changed: Called when there is nothing to read; the second time reading ends.
    """
    found, silent = [], 0
    every: Any = read.batches_from(None if position is None else dict(position), SIZE, ())
    with closing(every):
        for records, after in every:
            if records.length:
                found.append((_comparable(records.rows()), dict(after)))
                silent = 0
            elif records.rest_seconds:
                silent += 1
                if silent == 1:
                    changed()
                elif silent > 3:
                    break
    return found


def _comparable(rows: list[Any]) -> list[Any]:
    """Return changes without when they were made and where they are in the log."""
    return [
        json.loads(json.dumps({name: row[name] for name in ("op", "before", "after")}, default=str))
        for row in rows
    ]


def main() -> None:
    """Write what a server of its own gives."""
    import psycopg

    from tests.unit.io.postgresql import running_server

    with running_server() as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        execute: Any = connection.execute
        prepare(execute)
        done: list[int] = []

        def changed() -> None:
            if not done:
                done.append(1)
                change(execute)

        found = batches(source(dsn), None, changed)
    STORED.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(found)} batches")


if __name__ == "__main__":
    main()
