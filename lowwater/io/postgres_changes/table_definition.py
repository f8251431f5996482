"""What is known of the table whose changes are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import pyarrow as pa

from lowwater.errors import DataError
from lowwater.io.postgres_changes.text_values import from_text

OPS = ("c", "u", "d", "r", "t")
"""Insert, update, delete, read by the snapshot, truncate."""


@final
@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of the table.

    Args:
        name: Its name.
        type_id: The OID of its type.
        sql: Its type as SQL writes it.
        type: The type of its values here.
    """

    name: str
    type_id: int
    sql: str
    type: pa.DataType


@final
@dataclass(frozen=True, slots=True)
class TableDefinition:
    """A table as it is published.

    Args:
        schema: The name of its schema.
        name: Its name.
        columns: The columns that are read.
        key: The columns of its primary key, or of the index that is its replica identity.
        row_filter: The publication's condition on rows, if it has one.
        only: Whether its rows are its own, not those of partitions.
        any_columns: Whether columns may come and go beside those that are read.
        relatives: Its partitions and what it is a partition of, with their schemas.
        oid: What the server calls it, whatever its name is; ``None`` if that is not known.
    """

    # A state directory knows the fields that are not ``repr=False``: they must not change.

    schema: str
    name: str
    columns: tuple[TableColumn, ...]
    key: tuple[TableColumn, ...] = ()
    row_filter: str | None = None
    only: bool = True
    any_columns: bool = False
    relatives: tuple[str, ...] = field(default=(), repr=False, compare=False)
    oid: int | None = field(default=None, repr=False, compare=False)

    @property
    def shown(self) -> str:
        """Its name for messages."""
        return f"{self.schema}.{self.name}"

    def is_of(self, oid: int, schema: str, name: str) -> bool:
        """Return whether it is the table that has this OID and, at some time, had this name.

        Raises:
            DataError: Another table has its name.
        """
        has_name = (self.schema, self.name) == (schema, name)
        if self.oid is None or oid == self.oid:
            return has_name or oid == self.oid
        if has_name:
            raise self.replaced()
        return False

    def replaced(self) -> DataError:
        """Return the error for another table of its name."""
        return DataError(
            f"the table {self.shown} is not the one that was read before: it was dropped and "
            "created anew, or another one was renamed to its name",
            where=self.shown,
            hint="Begin with a state directory and a slot of their own, so that the table is read "
            "anew; or put the former table back. To replace what a table holds, use DELETE and "
            "INSERT",
        )

    @property
    def row_type(self) -> pa.DataType:
        """The type of ``before`` and ``after``."""
        return pa.struct([(column.name, column.type) for column in self.columns])

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the records."""
        return pa.schema(
            [
                ("op", pa.string()),
                ("before", self.row_type),
                ("after", self.row_type),
                ("lsn", pa.int64()),
                ("xid", pa.int64()),
                ("committed_at", pa.timestamp("us", "UTC")),
            ]
        )

    def rows(self, texts: Sequence[pa.Array], mask: pa.Array | None) -> pa.Array:
        """Return rows as structs.

        Args:
            texts: The text of each column that is read.
            mask: Where there is no row; ``None``: nowhere.

        Raises:
            DataError: A value does not fit its column's type here.
        """
        fields = [
            from_text(text, column.type, column.name, self.shown)
            for text, column in zip(texts, self.columns, strict=True)
        ]
        return pa.StructArray.from_arrays(fields, fields=list(self.row_type), mask=mask)
