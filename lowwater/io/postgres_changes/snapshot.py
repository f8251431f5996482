"""Reads a table's rows as of one snapshot, in the order of its key, some at a time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import pyarrow as pa
from pyarrow import csv

from lowwater.engine.records.batch import Records
from lowwater.io.postgres_changes.client import client, session
from lowwater.io.postgres_changes.table_definition import TableDefinition

_FILE = "(FORMAT csv, FORCE_QUOTE *)"  # so that null and the empty string differ
_NOW = """
SELECT (extract(epoch FROM now()) * 1000000)::int8, (pg_current_wal_insert_lsn() - '0/0')::int8
"""

Key = tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class RowChunk:
    """Some rows of the table.

    Args:
        texts: The text of each column that is read.
        count: How many rows there are.
        keys: The text of each column of their keys.
    """

    texts: list[pa.Array]
    count: int
    keys: list[pa.Array]

    def key(self, row: int) -> Key:
        """Return the key of a row."""
        return tuple(column[row].as_py() for column in self.keys)


@final
class TableSnapshot:
    """A transaction in which the table stays as it was when it began.

    Args:
        dsn: How to connect.
        table: The table.
        exported: The name of a snapshot that another connection has exported; ``None``: now.

    Attributes:
        time: When it began, in microseconds since 1970.
        exact: A position at or after the end of every transaction that it includes.
    """

    def __init__(self, dsn: str, table: TableDefinition, exported: str | None) -> None:
        sql = client().sql
        self._table = table
        with ExitStack() as undo:
            self._connection = undo.enter_context(session(dsn))
            self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            if exported is not None:
                self._connection.execute(
                    sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(exported))
                )
            self._connection.execute("SELECT 1 FROM pg_class LIMIT 1")  # fixes what is visible
            self.time, self.exact = self._connection.execute(_NOW).fetchone()
            undo.pop_all()

    def chunk(self, after: Key | None, until: Key | None, most: int) -> RowChunk | None:
        """Return the next rows; ``None`` if there are none.

        Args:
            after: They come after this key; ``None``: from the first one.
            until: They end with this key; ``None``: after ``most`` rows.
            most: How many.
        """
        data = bytearray()
        statement = self._statement(after, until, most)
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for block in copy:
                data += block
        if not data:
            return None
        read, key = len(self._table.columns), len(self._table.key)
        names = [f"c{at}" for at in range(read + key)]
        found = csv.read_csv(
            pa.py_buffer(data),
            csv.ReadOptions(column_names=names, block_size=len(data) + 1),
            csv.ParseOptions(newlines_in_values=True),
            csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False,
            ),
        ).combine_chunks()  # fmt: skip
        columns = [found.column(at).combine_chunks() for at in range(read + key)]
        return RowChunk(columns[:read], found.num_rows, columns[read:])

    def _statement(self, after: Key | None, until: Key | None, most: int) -> Any:
        sql = client().sql
        key = sql.SQL(", ").join(sql.Identifier(one.name) for one in self._table.key)
        conditions = [
            sql.SQL("({}) {} ({})").format(key, sql.SQL(mark), self._literals(bound))
            for mark, bound in ((">", after), ("<=", until))
            if bound is not None
        ]
        if self._table.row_filter is not None:
            conditions.append(sql.SQL("({})").format(sql.SQL(self._table.row_filter)))
        columns = (*self._table.columns, *self._table.key)
        return sql.SQL("COPY (SELECT {} FROM {}{}{} ORDER BY {}{}) TO STDOUT {}").format(
            sql.SQL(", ").join(sql.Identifier(one.name) for one in columns),
            sql.SQL("ONLY " if self._table.only else ""),
            sql.Identifier(self._table.schema, self._table.name),
            sql.SQL(" WHERE " if conditions else "") + sql.SQL(" AND ").join(conditions),
            key,
            sql.SQL("" if until is not None else f" LIMIT {most}"),
            sql.SQL(_FILE),
        )

    def _literals(self, key: Sequence[str]) -> Any:
        sql = client().sql
        return sql.SQL(", ").join(
            sql.SQL("{}::{}").format(sql.Literal(text), sql.SQL(column.sql))
            for text, column in zip(key, self._table.key, strict=True)
        )

    def close(self) -> None:
        """Release the snapshot."""
        self._connection.close()


def snapshot_records(table: TableDefinition, chunk: RowChunk, lsn: int, time: int) -> Records:
    """Return rows as records.

    Args:
        table: The table.
        chunk: The rows.
        lsn: Where the changes begin.
        time: When the snapshot began, in microseconds since 1970.

    Raises:
        DataError: A value does not fit its column's type here.
    """
    count = chunk.count
    batch = pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar("r"), count),
            pa.nulls(count, table.row_type),
            table.rows(chunk.texts, None),
            pa.repeat(pa.scalar(lsn, pa.int64()), count),
            pa.nulls(count, pa.int64()),
            pa.repeat(pa.scalar(time, pa.int64()), count).cast(pa.timestamp("us", "UTC")),
        ],
        schema=table.arrow_schema,
    )
    names = ", ".join(column.name for column in table.key)

    def place_of(row: int) -> str:
        return f"{table.shown}, the row with {names} = {', '.join(chunk.key(row))}"

    records = Records.from_arrow(batch, table.shown)
    return replace(records, row_numbers=np.arange(count), place_of=place_of)
