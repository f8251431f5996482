"""Looks up the table, its publication and the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lowwater.errors import DataError, InvalidArgument, PipelineWarning, warn
from lowwater.io.postgres_changes.identity import RELATIVES
from lowwater.io.postgres_changes.table_definition import TableColumn, TableDefinition
from lowwater.io.postgres_changes.text_values import arrow_type

_OLDEST = 150_000
_PUBLISHES_GENERATED = 180_000  # earlier servers list generated columns, and do not send them

_TABLE = """
SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relreplident::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass((SELECT string_agg(quote_ident(part), '.' ORDER BY place)
  FROM unnest(string_to_array(%s, '.')) WITH ORDINALITY AS parts (part, place)))
"""
_COLUMNS = """
SELECT a.attname, a.attgenerated::text, a.atttypid::int8, format_type(a.atttypid, a.atttypmod),
  CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod)
       ELSE format_type(a.atttypid, a.atttypmod) END
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEY = """
SELECT array_agg(a.attname::text ORDER BY k.place)
FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k (attnum, place), pg_attribute a
WHERE i.indrelid = %s AND (CASE WHEN %s THEN i.indisreplident ELSE i.indisprimary END)
  AND a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.place <= i.indnkeyatts
"""
_PUBLISHED = """
SELECT attnames::text[], rowfilter FROM pg_publication_tables
WHERE pubname = %s AND schemaname = %s AND tablename = %s
"""
_PUBLICATION = "SELECT pubupdate OR pubdelete FROM pg_publication WHERE pubname = %s"


def definition(
    connection: Any,
    table: str,
    publication: str,
    columns: tuple[str, ...] | None,
    types: Mapping[str, pa.DataType],
    *,
    snapshot: bool,
) -> TableDefinition:
    """Return the table as it is published.

    Args:
        connection: A connection.
        table: Its name.
        publication: The publication.
        columns: The columns that are wanted; ``None`` for all.
        types: The types of some of them, where they are not to follow the table's.
        snapshot: Whether its rows will be read.

    Raises:
        InvalidArgument: A name is wrong.
        DataError: The server, the table or the publication does not allow to read its changes.
    """
    _check_server(connection)
    found = connection.execute(_TABLE, (table,)).fetchone()
    if found is None:
        raise InvalidArgument(
            f"the database has no table {table!r}",
            hint='Names are taken as they are: use "name" or "schema.name"; and the user needs the '
            "right to USAGE of the schema",
        )
    number, schema, name, kind, identity = found
    shown = f"{schema}.{name}"
    named, row_filter = _published(connection, publication, schema, name, kind)
    every, generated = {}, []
    for column, kind_of, type_id, sql, base in connection.execute(_COLUMNS, (number,)).fetchall():
        every[column] = TableColumn(column, type_id, sql, arrow_type(base))
        generated += [column] if kind_of else []
    if connection.info.server_version < _PUBLISHES_GENERATED:
        named = [column for column in named if column not in generated]
    published = {column: every[column] for column in every if column in named}
    unpublished = [column for column in generated if column not in published]
    (key,) = connection.execute(_KEY, (number, identity == "i")).fetchone()
    if key is None and snapshot:
        raise DataError(
            f"{shown} has no primary key, in whose order its rows can be read",
            hint=f"ALTER TABLE {shown} ADD PRIMARY KEY (...); or read only what changes from now "
            "on, snapshot=False",
        )
    _check_identity(connection, publication, shown, identity, has_key=key is not None)
    for option, given in (("columns", columns or ()), ("types", types)):
        for column in given:
            if column in unpublished:
                raise InvalidArgument(
                    f"{option}= names {column!r}, a generated column, and the server does not "
                    "publish its values",
                    hint="Compute it from the others, with_columns(...); or, with PostgreSQL 18 "
                    "and a stored column, ALTER PUBLICATION "
                    f"{publication} SET (publish_generated_columns = stored)",
                )
            if column not in published:
                raise InvalidArgument(
                    f"{option}= names {column!r}, which {publication!r} does not publish",
                    hint=f"It publishes {', '.join(map(repr, published))}",
                )
    if unpublished and columns is None:
        warn(
            PipelineWarning,
            f"{shown} is read without {', '.join(map(repr, unpublished))}: the server does not "
            "publish the values of generated columns",
            where="read_postgres_changes",
            hint="Compute them from the others, with_columns(...); name the columns to read, "
            "columns=[...], and this is not said",
        )
    wanted = tuple(published) if columns is None else tuple(dict.fromkeys(columns))
    return TableDefinition(
        schema,
        name,
        tuple(
            TableColumn(one.name, one.type_id, one.sql, types.get(one.name, one.type))
            for one in map(published.__getitem__, wanted)
        ),
        tuple(every[column] for column in key or ()),
        row_filter,
        only=kind == "r",
        any_columns=columns is not None,
        relatives=tuple(one for (one,) in connection.execute(RELATIVES, {"table": number})),
    )


def _check_server(connection: Any) -> None:
    if connection.info.server_version < _OLDEST:
        raise DataError(
            f"the server is PostgreSQL {connection.info.server_version // 10_000}",
            hint=f"Changes are read from PostgreSQL {_OLDEST // 10_000} and later",
        )
    (level,) = connection.execute("SHOW wal_level").fetchone()
    if level != "logical":
        raise DataError(
            f"the server's wal_level is {level!r}, and changes are only kept with 'logical'",
            hint="Set wal_level = logical in postgresql.conf, or with ALTER SYSTEM, and restart "
            "the server",
        )


def _published(
    connection: Any, publication: str, schema: str, name: str, kind: str
) -> tuple[list[str], str | None]:
    """Return which columns of a table are published, and the condition on its rows."""
    found = connection.execute(_PUBLISHED, (publication, schema, name)).fetchone()
    if found is not None:
        return found[0], found[1]
    known = connection.execute(_PUBLICATION, (publication,)).fetchone()
    if known is None:
        raise DataError(
            f"there is no publication {publication!r}",
            hint=f"CREATE PUBLICATION {publication} FOR TABLE {schema}.{name}",
        )
    if kind == "p":
        raise DataError(
            f"the publication {publication!r} has not the partitioned table {schema}.{name}, but "
            "may have its partitions",
            hint=f"ALTER PUBLICATION {publication} SET (publish_via_partition_root = true), with "
            "the table in it",
        )
    raise DataError(
        f"the table {schema}.{name} is not in the publication {publication!r}",
        hint=f"ALTER PUBLICATION {publication} ADD TABLE {schema}.{name}",
    )


def _check_identity(
    connection: Any, publication: str, shown: str, identity: str, *, has_key: bool
) -> None:
    """Raise if updates and deletes are published and do not say which row they are about."""
    (published,) = connection.execute(_PUBLICATION, (publication,)).fetchone()
    if published and (identity == "n" or (identity == "d" and not has_key)):
        raise DataError(
            f"{shown} has no replica identity, so the server refuses its updates and deletes",
            hint=f"ALTER TABLE {shown} ADD PRIMARY KEY (...), or REPLICA IDENTITY FULL; or publish "
            f"inserts only: ALTER PUBLICATION {publication} SET (publish = 'insert')",
        )
