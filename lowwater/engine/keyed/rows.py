"""The durable form of the rows of a table, whoever's they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, final

import numpy as np

from lowwater.state.arrays import NONE
from lowwater.state.bag import Bag
from lowwater.state.formats import damaged
from lowwater.state.journal import Due, GroupReader, Groups, Journal, fill_pieces
from lowwater.state.key_layout import StoredPlace
from lowwater.state.row_codec import Layouts, RowCodec
from lowwater.state.side_format import read_sides
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
class StoredRows:
    """Writes the rows that changed, and reads them all.

    ``journal`` is to be told which rows change; ``codec`` packs rows.

    Args:
        table: The rows.
        place: Where they are stored.
        tag: Tag of their blocks in the store; the next one is that of deletions.
        what: What they are part of, for messages.
        groups: Returns the key group of rows.
        due: Returns when rows expire: they are gone once the watermark is there; ``None``: never.
        kept: What is in the columns of whole records; ``None`` if all columns are declared.
        bags: Returns the bags whose rows are the table's, by name.
    """

    def __init__(
        self,
        table: RowTable,
        place: StoredPlace,
        tag: int,
        what: str,
        *,
        groups: Groups,
        due: Due | None = None,
        kept: Kept | None = None,
        bags: Callable[[], Mapping[str, Bag]] = dict,
    ) -> None:
        self._table = table
        self._what = what
        self._kept = kept
        self._expires = due is not None
        self.codec = RowCodec(table, bags=bags)
        self.journal = Journal(self.codec, place, tag, groups=groups, due=due)
        if kept is not None:
            kept.note_changes(self.journal.touch)

    def write(self, batch: Batch, watermark: int) -> Int64Array:
        """Add what changed since the last time to a batch; return the live rows among it."""
        return self.journal.write(batch, watermark)

    def record(self) -> dict[str, Any]:
        """Return what :meth:`load` needs to know."""
        return {
            "rows": self.journal.limit,
            "live": len(self._table),
            "expires": self._expires,
            "columns": None if self._kept is None else self._kept.kinds(),
            "layouts": self.codec.layouts.stored,
        }

    def load(self, store: StateStore, record: Mapping[str, Any], watermark: int) -> Int64Array:
        """Fill the empty table; return its rows, rising.

        Args:
            store: The store.
            record: What :meth:`record` returned.
            watermark: Rows that expire then or before are gone.

        Raises:
            StateError: What is stored is damaged.
        """
        table, codec = self._table, self.codec
        if self._kept is not None:
            self._kept.expect(record["columns"])
        codec.layouts.expect(record["layouts"])
        for pieces in self.journal.load(store, record["rows"], watermark):
            table.prepare(np.concatenate([piece.rows for piece in pieces] or [NONE]))
            fill_pieces(codec, pieces)
        rows = table.restore_prepared()
        self.journal.reschedule()
        _check_count(len(rows), record, self._what)
        return rows


def read_keys_of_rows(
    store: StateStore,
    place: StoredPlace,
    tag: int,
    record: Mapping[str, Any],
    watermark: int,
    what: str,
) -> Int64Array:
    """Read and decode the rows of a table without it; return the id of each row's key. O(rows).

    Args:
        store: The store.
        place: Where they are stored.
        tag: Tag of their blocks.
        record: What :meth:`StoredRows.record` returned.
        watermark: Rows that expire then or before are gone.
        what: What they are part of, for messages.

    Raises:
        StateError: They are damaged.
    """
    layouts = Layouts()
    layouts.expect(record["layouts"])
    keys = [NONE]
    expired = watermark if record["expires"] else None
    for _, group in GroupReader(store, place, tag, record["rows"], expired):
        for piece in group.pieces:
            chunk = layouts.read(piece.chunk)
            read_sides([chunk.side], np.array([len(chunk)]))
            keys.append(chunk.records["key"][piece.at].astype(np.int64))
    every = np.concatenate(keys)
    _check_count(len(every), record, what)
    return every


def _check_count(count: int, record: Mapping[str, Any], what: str) -> None:
    if count != record["live"]:
        raise damaged(what, f"{count} of {record['live']} rows are there")
