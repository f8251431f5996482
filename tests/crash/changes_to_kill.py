"""A view of a table to kill: the changes of a PostgreSQL table, written to another one.

Connects as the file ``dsn`` of its folder says, and reads until the position in the file ``end``,
or for ever if there is none. Its process id is in the file ``pid``.
"""

from __future__ import annotations

import logging
import os

import lowwater as lw
from lowwater.io.sinks import PostgresTable
from tests.crash.killed_process import instructions


def main() -> None:
    """Keep the view up to date, until the end or death."""
    work = instructions()
    (work.folder / "pid").write_text(str(os.getpid()))
    handler = logging.FileHandler(work.folder / "log")
    logger = logging.getLogger("lowwater.io")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    end, name = work.folder / "end", work.folder.name
    dsn = (work.folder / "dsn").read_text()
    changes = lw.read_postgres_changes(
        dsn,
        f"source_{name}",
        publication=f"published_{name}",
        slot=f"slot_{name}",
        end=end.read_text() if end.exists() else "never",
    )
    view = lw.debezium(changes, key=("id", "part"))
    work.run(view.write_to(PostgresTable(dsn, f"view_{name}")), bundle_size=10)


if __name__ == "__main__":
    main()
