"""Checks what a reader of changes is given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Literal, TypeAlias, get_args

import pyarrow as pa

from lowwater.errors import InvalidArgument, describe
from lowwater.io.postgres_changes.catalog import definition
from lowwater.io.postgres_changes.client import client, connected, told
from lowwater.io.postgres_changes.pgoutput import lsn_of
from lowwater.io.postgres_changes.table_source import PostgresChanges
from lowwater.io.postgres_dsn import checked_dsn

Truncates: TypeAlias = Literal["error", "record"]
"""What becomes of a truncate: an error, or a record with the operation ``"t"``."""

_SLOT = re.compile(r"[a-z0-9_]{1,63}")
_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def changes_of(
    dsn: str,
    table: str,
    *,
    publication: str,
    slot: str,
    snapshot: bool,
    columns: Iterable[str] | None,
    types: Mapping[str, pa.DataType],
    truncate: Truncates,
    end: str,
) -> PostgresChanges:
    """Return the changes of a table as a source, its definition looked up.

    Raises:
        InvalidArgument: An argument is wrong.
        DataError: The server, the table or the publication does not allow to read its changes.
    """
    client()
    checked_dsn(dsn)
    for option, given in (("table", table), ("publication", publication)):
        if not isinstance(given, str) or not given:
            raise InvalidArgument(
                f"{describe(option, given)} is not text",
                where="read_postgres_changes",
                hint='Use, say, "host=db dbname=shop", "public.orders", publication="lowwater"',
            )
    if not isinstance(slot, str) or not _SLOT.fullmatch(slot):
        raise InvalidArgument(
            f"{describe('slot', slot)} is not the name of a replication slot",
            hint="Use lower-case letters, digits and _, at most 63 of them",
        )
    if truncate not in get_args(Truncates):
        raise InvalidArgument(
            f"{describe('truncate', truncate)} is not known", hint='Use "error" or "record"'
        )
    if not isinstance(snapshot, bool):
        raise InvalidArgument(
            f"{describe('snapshot', snapshot)} is not a bool", hint="Use True or False"
        )
    if isinstance(columns, str):
        columns = (columns,)
    wanted = None if columns is None else tuple(columns)
    until = _end_of(end)
    with told(table, dsn), closing(connected(dsn)) as connection:
        found = definition(connection, table, publication, wanted, types, snapshot=snapshot)
    return PostgresChanges(dsn, found, publication, slot, snapshot, until, truncate == "record")


def _end_of(end: object) -> int | str:
    """Return where the input ends.

    >>> _end_of("0/1717028")
    24211496
    """
    if end in ("never", "latest"):
        return str(end)
    if isinstance(end, str) and (found := _LSN.fullmatch(end)):
        return lsn_of(found[0])
    raise InvalidArgument(
        f"{describe('end', end)} is no place in the changes",
        hint='Use "never", "latest", or a position in the write-ahead log such as "0/1717028"',
    )
