"""The durable form of a table with whole records in its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, final

import numpy as np

from lowwater.state.arrays import NONE
from lowwater.state.bag import Bag
from lowwater.state.formats import damaged
from lowwater.state.journal import Due, Groups, Journal
from lowwater.state.key_layout import StoredPlace
from lowwater.state.row_codec import RowCodec
from lowwater.state.store import Batch, StateStore
from lowwater.state.table import RowTable
from lowwater.time import Int64Array


class Kept(Protocol):
    """The columns of records in a table, which come and widen while a pipeline runs."""

    def kinds(self) -> Any:
        """Return what :meth:`expect` needs to know."""

    def expect(self, kinds: Any) -> None:
        """Create the columns that existed when rows were stored; the table is empty."""

    def note_changes(self, changed: Callable[[Int64Array], None]) -> None:
        """Call a function with rows whose stored form is out of date."""


@final
class StoredRecords:
    """Writes the rows that changed, and reads them all.

    ``journal`` is to be told which rows change; ``codec`` packs rows.

    Args:
        table: The rows.
        kept: What is in the columns of the records.
        place: Where they are stored.
        tag: Tag of their blocks in the store; the next one is that of deletions.
        groups: Returns the key group of rows.
        due: Returns when rows expire: they are gone once the watermark is there; ``None``: never.
        bags: Returns the bags whose rows are the table's, by name.
    """

    def __init__(
        self,
        table: RowTable,
        kept: Kept,
        place: StoredPlace,
        tag: int,
        *,
        groups: Groups,
        due: Due | None,
        bags: Callable[[], Mapping[str, Bag]] = dict,
    ) -> None:
        self._table = table
        self._kept = kept
        self._expires = due is not None
        self.codec = RowCodec(table, bags=bags)
        kept.note_changes(self._touch)
        self.journal = Journal(self.codec, place, tag, groups=groups, due=due)

    def _touch(self, rows: Int64Array) -> None:
        self.journal.touch(rows)

    def write(self, batch: Batch, watermark: int) -> Int64Array:
        """Add what changed since the last time to a batch; return the live rows among it."""
        return self.journal.write(batch, watermark)

    def record(self) -> dict[str, Any]:
        """Return what :meth:`load` needs to know."""
        return {
            "rows": self.journal.limit,
            "live": len(self._table),
            "expires": self._expires,
            "columns": self._kept.kinds(),
            "layouts": self.codec.layouts.stored,
        }

    def load(
        self, store: StateStore, record: Mapping[str, Any], watermark: int, what: str
    ) -> Int64Array:
        """Fill the empty table; return its rows, rising.

        Args:
            store: The store.
            record: What :meth:`record` returned.
            watermark: Rows that expire then or before are gone.
            what: What is read, for messages.

        Raises:
            StateError: What is stored is damaged.
        """
        table, codec = self._table, self.codec
        self._kept.expect(record["columns"])
        codec.layouts.expect(record["layouts"])
        for pieces in self.journal.load(store, record["rows"], watermark):
            table.prepare(np.concatenate([piece.rows for piece in pieces] or [NONE]))
            taken = []
            for piece in pieces:
                chunk = codec.layouts.read(piece.chunk)
                codec.fill(piece.rows, chunk, piece.at)
                taken.append(((piece.rows, chunk.side, piece.at), len(chunk)))
            codec.side.put([one for one, _ in taken], [count for _, count in taken])
        rows = table.restore_prepared()
        self.journal.reschedule()
        if len(rows) != record["live"]:
            raise damaged(what, f"{len(rows)} of {record['live']} records are there")
        return rows
