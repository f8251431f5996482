"""The rows of a table's snapshot, some at a time, as batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, final

from lowwater.engine.graph.sources import Position
from lowwater.engine.records.batch import Records
from lowwater.io.foretold import Part
from lowwater.io.postgres_changes.pgoutput import empty_batch
from lowwater.io.postgres_changes.snapshot import Key, RowChunk, TableSnapshot, snapshot_records
from lowwater.io.postgres_changes.table_definition import TableDefinition

RowPart: TypeAlias = Part[RowChunk | None, Key]
"""Some rows, ``None`` if they were deleted since an earlier run read them, and the last key."""


@final
class RowParts:
    """Reads the rows after a key.

    Args:
        snapshot: Where they are read.
        table: The table.
        after: The key; ``None``: all rows.
        size: The largest number of rows in a part.
        lsn: Where the changes begin.
        time: When the snapshot began, in microseconds since 1970.
        position: Makes positions, of the key of the last row that was read and of the one with
            which the next part ends.

    Attributes:
        count: How many rows were read.
    """

    def __init__(
        self,
        snapshot: TableSnapshot,
        table: TableDefinition,
        after: Key | None,
        size: int,
        lsn: int,
        time: int,
        position: Callable[[Key | None, Key | None], Position],
    ) -> None:
        self._snapshot, self._table, self._size = snapshot, table, size
        self._lsn, self._time, self._position = lsn, time, position
        self._nothing = Records.from_arrow(empty_batch(table.arrow_schema), table.shown)
        self._at = self._fetched = after
        self.count = 0

    def fetch(self, until: Key | None, seconds: float | None) -> list[RowPart]:
        chunk = self._snapshot.chunk(self._fetched, until, self._size)
        if until is None:
            until = None if chunk is None else chunk.key(chunk.count - 1)
        if until is None:
            return []
        self._fetched = until
        return [Part(chunk, until)]

    def rest(self) -> float | None:
        return None

    def batch(self, part: RowPart, following: Key | None) -> tuple[Records, Position]:
        self._at = part.end
        if part.content is None:
            return self.pause(following)
        records = snapshot_records(self._table, part.content, self._lsn, self._time)
        self.count += len(records)
        return records, self._position(self._at, following)

    def pause(self, following: Key | None) -> tuple[Records, Position]:
        return self._nothing, self._position(self._at, following)
