"""A table of panes in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, final

import pyarrow as pa

from lowwater.engine.local.delivery import Delivery, Place, Writer
from lowwater.errors import DataError, InvalidArgument, constructor, describe, load_extra
from lowwater.io.postgres_changes.identity import tables_at
from lowwater.io.postgres_dsn import checked_dsn, said_of
from lowwater.io.sinks.dialect import (
    ColumnNames,
    Dialect,
    check_columns,
    check_table,
    double_quoted,
)
from lowwater.io.sinks.output_owner import check_closed, check_overwrite
from lowwater.io.sinks.upserts import Upserts, tables_of

_LONGEST = 63  # bytes of a name; PostgreSQL cuts off the rest
_OF_VALUES = ("22", "54000")  # data exceptions; a limit exceeded, as that of an index's row


def _quoted(name: str) -> str:
    return double_quoted(name).replace("%", "%%")  # % is psycopg's mark


def _named(table: str) -> str:
    return ".".join(map(_quoted, table.split(".")))


def _refuses(error: Exception) -> bool:
    """Whether a row holds what PostgreSQL cannot: U+0000 in text, a key of many kilobytes."""
    state: str | None = getattr(error, "sqlstate", None)
    if state is not None:
        return state.startswith(_OF_VALUES)
    # The driver refuses U+0000 itself, and what the connection's encoding lacks.
    return isinstance(error, (_psycopg().DataError, UnicodeError, OverflowError))


_POSTGRES = Dialect(
    mark="%s",
    begin="BEGIN",
    # Two CREATE TABLE IF NOT EXISTS at once: one of them fails.
    guard="SELECT pg_advisory_xact_lock(7813589126512345)",
    lock=" FOR UPDATE",
    named=_named,
    quoted=_quoted,
    schemas=True,
    exists=(
        "SELECT 1 WHERE to_regclass((SELECT string_agg(quote_ident(part), '.' ORDER BY place) "
        "FROM unnest(string_to_array(%s, '.')) WITH ORDINALITY AS parts (part, place))) IS NOT NULL"
    ),
    name_type="text",
    keys="",
    types={
        "boolean": "boolean",
        "integer": "bigint",
        "unsigned": "numeric(20)",
        "decimal": "numeric",
        "real": "double precision",
        "text": "text",
        "binary": "bytea",
        "instant": "timestamptz",
        "timestamp": "timestamp",
        "date": "date",
        "time": "time",
        "duration": "interval",
        "json": "jsonb",
        "record": "json",  # as jsonb it could not hold the character U+0000
    },
    shapes={},
    widen="ALTER TABLE {table} ALTER COLUMN {column} TYPE {type}",
    refuses=_refuses,
    names=ColumnNames(
        "PostgreSQL",
        folded=str,  # names are quoted, so case matters
        most=1_600,
        longest=_LONGEST,
        reserved=frozenset({"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"}),
        most_keys=32,
    ),
)


@constructor(
    url="dsn", uri="dsn", connection="dsn", conninfo="dsn", name="table", table_name="table"
)
@final
@dataclass(frozen=True, slots=True)
class PostgresTable:
    """A table with the latest pane of each key and window, in PostgreSQL.

    Guarantee: exactly once for a run with a state directory. Each delivery is one transaction,
    which also notes its epoch and piece in the table ``lowwater_outputs`` of the same schema; what
    is noted already is skipped. A transaction is on the server's disk before the delivery counts
    as taken (``synchronous_commit`` is on, as far as the server itself syncs). Another run's
    output is refused or dropped as for :class:`~lowwater.io.sinks.SqliteTable`.

    Of a table (``stream.table(...)``) it keeps the rows that stand, one for each primary key,
    without columns of windows. Where the primary key may hold nulls, as behind an outer join or
    ``group_by``, the column ``row_key`` is the primary key: the key as a JSON list, such as
    ``[7, null]``.

    Rows come and go as for :class:`~lowwater.io.sinks.sqlite.SqliteTable`. Instants are
    ``timestamptz``, lists and values of no other type ``jsonb``, durations ``interval``; anything
    finer than microseconds is cut off. Late elements and dead letters are appended to
    ``<table>_late`` and ``<table>_errors``.

    A pane that PostgreSQL cannot hold is a dead letter too, with the reason ``not_storable``: one
    with the character U+0000 in text, with a key of more than some kilobytes (the row of an index
    has at most 2,704 bytes after compression), or with a character that the database's encoding
    lacks. The table then has no row for that key and window until the next pane of them. Names of
    columns that PostgreSQL would cut off or refuse are refused when the sink is given to a
    pipeline.

    Needs ``pip install "lowwater[postgres]"``.

    Args:
        dsn: How to connect, as ``"host=db dbname=counts"`` or ``"postgresql://db/counts"``. It is
            not shown in errors, as it may hold a password.
        table: The table's name; ``"schema.name"`` for one in a schema, which must be there.
        overwrite: Whether the output of another run or state directory is to be replaced.
    """

    dsn: str = field(repr=False)
    table: str
    overwrite: bool = False
    _open: list[tuple[Any, Upserts]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        checked_dsn(self.dsn)
        check_overwrite(self.overwrite)
        check_table(self.table)
        parts = self.table.split(".")
        name = parts[-1]
        if len(parts) > 2 or not all(parts) or name.startswith("lowwater_"):
            raise InvalidArgument(
                f"{describe('table', self.table)} cannot be used",
                hint='Use "name" or "schema.name", where the name does not begin with "lowwater_"',
            )
        if len(f"{name}_errors".encode()) > _LONGEST:
            raise InvalidArgument(
                f"{describe('table', self.table)} is too long a name for PostgreSQL",
                hint=f"Use at most {_LONGEST - len('_errors')} bytes",
            )

    def check(self, panes: pa.Table) -> None:
        check_columns(panes, _POSTGRES.names, self)

    def places(self) -> Iterable[Place]:
        return [tables_at(self.dsn, repr(self), tables_of(self.table))]

    def look(self, writer: Writer) -> None:
        check_closed(self, self._open)
        connection, upserts = self._connected(writer)
        try:
            with self._told(_psycopg()):
                upserts.look(overwrite=self.overwrite)
        finally:
            connection.close()

    def open(self, writer: Writer) -> None:
        check_closed(self, self._open)
        connection, upserts = self._connected(writer)
        try:
            with self._told(_psycopg()):
                upserts.prepare(overwrite=self.overwrite)
        except BaseException:
            connection.close()
            raise
        self._open.append((connection, upserts))

    def _connected(self, writer: Writer) -> tuple[Any, Upserts]:
        psycopg = _psycopg()
        with self._told(psycopg):
            connection = psycopg.connect(self.dsn, autocommit=True)
            try:
                cursor = connection.cursor()
                cursor.execute("SET synchronous_commit = on", ())
                return connection, Upserts(cursor, self.table, _POSTGRES, writer)
            except BaseException:
                connection.close()
                raise

    def deliver(self, delivery: Delivery) -> None:
        if not self._open:
            raise InvalidArgument("this PostgresTable is not open", hint="Call open() first")
        with self._told(_psycopg()):
            self._open[0][1].apply(delivery)

    def close(self, *, complete: bool) -> None:
        try:
            for _, upserts in self._open:
                with nullcontext() if complete else suppress(DataError), self._told(_psycopg()):
                    upserts.finish(complete=complete)
        finally:
            self._disconnect()

    def _disconnect(self) -> None:
        while self._open:
            self._open.pop()[0].close()

    @contextmanager
    def _told(self, psycopg: Any) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            state = error.sqlstate or ""
            if state == "53100":
                hint = "Free some space and start again: with durable state nothing is lost"
            elif state.startswith(("42501", "28")):
                hint = "Give the user the right to make and write tables there"
            elif isinstance(error, psycopg.OperationalError):
                hint = "See that the server can be reached and start again: nothing is lost"
            else:
                hint = "See to that and start again: nothing of it was written"
            text, shown = said_of(error, self.dsn)
            raise DataError(
                f"the table {self.table!r} in PostgreSQL could not be written: {text}", hint=hint
            ) from shown


def _psycopg() -> Any:
    return load_extra("psycopg", extra="postgres", purpose="PostgresTable")
