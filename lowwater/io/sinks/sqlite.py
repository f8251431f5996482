"""A table of panes in an SQLite file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import pyarrow as pa

from lowwater.engine.local.delivery import Delivery, Place, Writer
from lowwater.errors import (
    DataError,
    InvalidArgument,
    LowwaterError,
    StateError,
    constructor,
    describe,
)
from lowwater.io.paths import require_local
from lowwater.io.sinks import dialect as _values
from lowwater.io.sinks.dialect import (
    ColumnNames,
    Dialect,
    check_columns,
    check_table,
    double_quoted,
)
from lowwater.io.sinks.output_owner import check_closed, check_overwrite, lost
from lowwater.io.sinks.upserts import Upserts, tables_of

_PATIENCE_S = 10.0


def _folded(name: str) -> str:
    """Return a name as SQLite compares it: case matters beyond ASCII only."""
    return "".join(char.lower() if char.isascii() else char for char in name)


_SQLITE = Dialect(
    mark="?",
    begin="BEGIN IMMEDIATE",
    guard="",
    lock="",
    named=double_quoted,
    quoted=double_quoted,
    schemas=False,
    exists="SELECT 1 FROM sqlite_master WHERE name = ? COLLATE NOCASE",
    name_type="TEXT COLLATE NOCASE",
    keys=" WITHOUT ROWID",
    types={
        "boolean": "INTEGER",
        "integer": "INTEGER",
        "unsigned": "TEXT",
        "decimal": "TEXT",
        "real": "REAL",
        "text": "TEXT",
        "binary": "BLOB",
        "instant": "TEXT",
        "timestamp": "TEXT",
        "date": "TEXT",
        "time": "TEXT",
        "duration": "INTEGER",
        "json": "TEXT",
        "record": "TEXT",
    },
    shapes={
        "unsigned": _values.as_text,
        "decimal": _values.as_text,
        "instant": _values.instants_as_text,
        "timestamp": _values.timestamps_as_text,
        "date": _values.as_iso,
        "time": _values.as_iso,
        "duration": _values.as_microseconds,
    },
    widen="",
    refuses=lambda error: isinstance(error, (sqlite3.DataError, OverflowError, UnicodeError)),
    names=ColumnNames("SQLite", folded=_folded, most=2_000),
)


@constructor(file="path", database="path", db="path", name="table", table_name="table")
@final
@dataclass(frozen=True, slots=True)
class SqliteTable:
    """A table with the latest pane of each key and window, in an SQLite file.

    Guarantee: exactly once for a run with a state directory. Each delivery is one transaction,
    which also notes its epoch and piece in the table ``lowwater_outputs``; what is noted already
    is skipped. A transaction is on disk before the delivery counts as taken. The ledger says whose
    output the table holds, and whether that run is complete; the output of another run or state
    directory is refused, or dropped with ``overwrite=True``.

    The primary key is the panes' key with ``window_start`` and ``window_end``. An insert puts its
    row in place of the one before; a retraction takes the row away if it is of that very pane. So
    the table is at any time the answer over the elements shown so far, given windows that do not
    merge, or ``accumulation="retracting"``. (Without retractions, sessions that merged leave their
    last row behind; of a discarding pipeline it shows each window's last pane, not their sum.)

    Of a table (``stream.table(...)``) it keeps the rows that stand, one for each primary key,
    without columns of windows. Where the primary key may hold nulls, as behind an outer join or
    ``group_by``, the column ``row_key`` is the primary key: the key as a JSON list, such as
    ``[7, null]``.

    The table is made at the first delivery with panes, a column once it has a value. Instants are
    text such as ``2015-03-01T12:00:00.000000Z``, of one width, which sorts and which SQLite's
    date functions read; dates and times of day are ISO text, durations integer microseconds,
    booleans 0 and 1, lists and all else JSON text. Decimals and unsigned 64-bit integers are
    text, as SQLite has no exact type for them. NaN is null.

    Late elements and dead letters are appended to ``<table>_late`` and ``<table>_errors``:
    delivery, place, reason, and the record as JSON. A pane that SQLite cannot hold, as one with
    text of more than a gigabyte, is a dead letter too, with the reason ``not_storable``. Names of
    columns that differ in case only are refused when the sink is given to a pipeline, as SQLite
    takes them for one.

    Args:
        path: The file; made if it is not there. Several tables may share it.
        table: The table's name.
        overwrite: Whether the output of another run or state directory is to be replaced.
    """

    path: str
    table: str
    overwrite: bool = False
    _open: list[tuple[sqlite3.Connection, Upserts]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        path = self.path
        if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
            raise InvalidArgument(f"{describe('path', path)} is not a path", hint="Name a file")
        object.__setattr__(self, "path", os.fspath(path))
        require_local(self.path, writes=True)
        if self.path in {"", ":memory:"}:
            raise InvalidArgument(
                f"{describe('path', path)} is a database in memory, which no restart finds again",
                hint='Name a file, such as "counts.sqlite"',
            )
        check_overwrite(self.overwrite)
        check_table(self.table)
        if self.table.lower().startswith(("sqlite_", "lowwater_")):
            raise InvalidArgument(
                f"{describe('table', self.table)}: names that begin so are reserved",
                hint='Use another, such as "counts"',
            )

    def check(self, panes: pa.Table) -> None:
        check_columns(panes, _SQLITE.names, self)

    def places(self) -> Iterable[Place]:
        # SQLite's names of tables do not depend on case.
        return [Place(Path(self.path), self.path, tables_of(self.table.lower()))]

    def look(self, writer: Writer) -> None:
        check_closed(self, self._open)
        if Path(self.path).exists():  # connecting would make the file
            connection, upserts = self._connected(writer)
            try:
                with self._told():
                    upserts.look(overwrite=self.overwrite)
            finally:
                connection.close()
        elif writer.delivered:
            raise lost(self.path, is_another=False)

    def open(self, writer: Writer) -> None:
        check_closed(self, self._open)
        if writer.delivered and not Path(self.path).exists():
            raise lost(self.path, is_another=False)
        connection, upserts = self._connected(writer)
        try:
            with self._told():
                upserts.prepare(overwrite=self.overwrite)
        except BaseException:
            connection.close()
            raise
        self._open.append((connection, upserts))

    def _connected(self, writer: Writer) -> tuple[sqlite3.Connection, Upserts]:
        with self._told():
            connection = sqlite3.connect(
                self.path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False
            )
            try:
                # What FULL does, and the folder is synced too when a journal goes: without that a
                # power cut could undo a transaction that had been reported.
                connection.execute("PRAGMA synchronous = EXTRA")
                return connection, Upserts(connection.cursor(), self.table, _SQLITE, writer)
            except BaseException:
                connection.close()
                raise

    def deliver(self, delivery: Delivery) -> None:
        if not self._open:
            raise InvalidArgument("this SqliteTable is not open", hint="Call open() first")
        with self._told():
            self._open[0][1].apply(delivery)

    def close(self, *, complete: bool) -> None:
        try:
            for _, upserts in self._open:
                with nullcontext() if complete else suppress(DataError), self._told():
                    upserts.finish(complete=complete)
        finally:
            self._disconnect()

    def _disconnect(self) -> None:
        while self._open:
            self._open.pop()[0].close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OverflowError) as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> LowwaterError:
        where = f"the table {self.table!r} in {self.path!r}"
        code = getattr(error, "sqlite_errorname", None) or ""
        if code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
            return StateError(
                f"{self.path!r} is damaged, or no SQLite database: {error}",
                hint="Name another file; or restore it, together with the state directory",
            )
        hints = {
            "SQLITE_FULL": "Free some space and start again: with durable state nothing is lost",
            "SQLITE_BUSY": "End what holds the database locked, and start again",
            "SQLITE_READONLY": "Give this process the right to write the file and its folder",
            "SQLITE_CANTOPEN": "See that its folder is there and can be written",
        }
        found = [hint for name, hint in hints.items() if code.startswith(name)]
        hint = found[0] if found else "See to that and start again: nothing of it was written"
        return DataError(f"{where} could not be written: {error}", hint=hint)
