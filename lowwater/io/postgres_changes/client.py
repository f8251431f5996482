"""The connection to the server, and its errors in words."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lowwater.errors import DataError, load_extra
from lowwater.io.postgres_changes.text_values import SESSION
from lowwater.io.postgres_dsn import said_of

LOG = logging.getLogger("lowwater.io")
_CONNECT_S = 15

_HINTS = {
    "42501": "Give the user the attribute REPLICATION, and the right to SELECT from the table",
    "53400": "Raise max_replication_slots, of which a run needs two, or drop slots that are not "
    "used: SELECT pg_drop_replication_slot('...')",
    "53300": "Raise max_connections or max_wal_senders, or end other connections",
    "55006": "Another connection reads the slot: give each run a slot of its own",
    "3D000": "Create the database, or correct its name in dsn",
}


def client() -> Any:
    """Return the client library.

    Raises:
        InvalidArgument: It is not installed.
    """
    return load_extra("psycopg", extra="postgres", purpose="read_postgres_changes")


def connected(dsn: str, **settings: Any) -> Any:
    """Return a connection that commits each statement."""
    return client().connect(dsn, autocommit=True, connect_timeout=_CONNECT_S, **settings)


def session(dsn: str) -> Any:
    """Return a connection on which the text of values is what :mod:`text_values` reads."""
    connection = connected(dsn)
    try:
        for statement in SESSION:
            connection.execute(statement)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def told(table: str, dsn: str) -> Iterator[None]:
    """Turn an error of the client library into one that says what failed.

    Args:
        table: The table.
        dsn: The connection string, whose password is not shown.

    Raises:
        DataError: The library raised.
    """
    psycopg = client()
    try:
        yield
    except psycopg.Error as error:
        text, shown = said_of(error, dsn)
        raise DataError(
            f"the changes of {table!r} in PostgreSQL could not be read: {text.rstrip('.')}",
            hint=_hint(error),
        ) from shown


def _hint(error: Any) -> str:
    state, text = error.sqlstate or "", str(error)
    if state == "55000" and "wal_level" in text:
        return "Set wal_level = logical on the server and restart it"
    if state == "42704" and "publication" in text:
        return "Create it: CREATE PUBLICATION name FOR TABLE name; it must be older than the slot"
    if state == "55000":
        return (
            "Begin with a state directory and a slot of their own; max_slot_wal_keep_size says how "
            "far behind a slot may be"
        )
    if "REPLICATION attribute" in text:  # a connection that fails has no state
        return _HINTS["42501"]
    if state.startswith("28") or "authentication failed" in text or "pg_hba.conf" in text:
        return "Correct user and password in dsn, and allow the connection in pg_hba.conf"
    if state in _HINTS:
        return _HINTS[state]
    if isinstance(error, client().OperationalError):
        return "See that the server can be reached and start again: with a state nothing is lost"
    return "See to that and start again: with a state directory nothing is lost"
