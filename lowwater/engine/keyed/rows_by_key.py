"""The durable form of rows by key: those that changed, and the keys that have any."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, final

import numpy as np

from lowwater.engine.keyed.row_counts import RowCounts, have_rows
from lowwater.engine.keyed.rows import Kept, StoredRows
from lowwater.engine.records.stored_keys import StoredKeys
from lowwater.state.arrays import NONE, distinct
from lowwater.state.bag import Bag
from lowwater.state.formats import damaged
from lowwater.state.journal import Due, Journal
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.state.table import RowTable
from lowwater.time import Int64Array


class RowsByKey(Protocol):
    """Rows of a table whose column ``key`` has the ids of keys."""

    table: RowTable
    births: int
    """How many rows there have been."""
    row_counts: RowCounts
    journal: Journal | None


@final
class StoredRowsByKey:
    """Writes what changed in one or several tables, and the keys that any has rows of.

    A key is stored while it has rows, in the key group in which its rows are.

    Args:
        place: Where it is stored.
        tag: Tag of the keys' blocks.
        what: What it is part of, for messages.
    """

    def __init__(self, place: StoredPlace, tag: int, what: str) -> None:
        self.keys = StoredKeys(place, tag)
        self._place = place
        self._what = what
        self._tables: list[tuple[RowsByKey, StoredRows]] = []

    def add(
        self,
        rows: RowsByKey,
        tag: int,
        *,
        due: Due | None = None,
        kept: Kept | None = None,
        bags: Callable[[], Mapping[str, Bag]] = dict,
    ) -> StoredRows:
        """Store a table too, whose changes are tracked from now on; it has no rows yet.

        Args:
            rows: The rows.
            tag: Tag of their blocks; the next one is that of deletions.
            due: Returns when rows expire; ``None``: never.
            kept: What is in the columns of whole records.
            bags: Returns the bags whose rows are the table's, by name.
        """
        table = rows.table
        stored = StoredRows(
            table,
            self._place,
            tag,
            self._what,
            groups=lambda some: self.keys.groups(table["key"][some]),
            due=due,
            kept=kept,
            bags=bags,
        )
        rows.journal = stored.journal
        rows.row_counts.track()
        self._tables.append((rows, stored))
        return stored

    def write(self, batch: Batch, watermark: int) -> list[dict[str, Any]]:
        """Add what changed since the last time to a batch; ``keys`` uses the dictionary.

        Returns:
            What :meth:`load` needs to know of each table.
        """
        gone = [NONE]
        for rows, stored in self._tables:
            changed = stored.write(batch, watermark)
            gone.append(rows.row_counts.take_left())
            self.keys.want(rows.table["key"][changed])
        left = distinct(np.concatenate(gone))
        self.keys.drop(left[~have_rows(left, [rows.row_counts for rows, _ in self._tables])])
        self.keys.write(batch)
        return [{"births": rows.births, **stored.record()} for rows, stored in self._tables]

    def load(
        self,
        store: StateStore,
        keys: dict[str, Any] | None,
        tables: Sequence[Mapping[str, Any]],
        watermark: int,
    ) -> Int64Array:
        """Fill the tables and a dictionary; return the ids of the keys, rising.

        Args:
            store: The store.
            keys: What ``keys.record()`` returned.
            tables: What :meth:`write` returned.
            watermark: Rows that expire then or before are gone.

        Raises:
            StateError: What is stored is damaged.
        """
        ids = self.keys.load(store, keys)
        used = []
        for (rows, stored), record in zip(self._tables, tables, strict=True):
            rows.births = record["births"]
            loaded = stored.load(store, record, watermark)  # the table may grow by it
            used.append(rows.table["key"][loaded])
        check_keys(used, ids, self._what)
        return ids

    def _check(self) -> None:
        """Assert what must hold between rows and what is stored of them. O(rows and copies)."""
        self.keys._check()
        for _, stored in self._tables:
            stored.journal._check()


def check_keys(used: Sequence[Int64Array], ids: Int64Array, what: str) -> None:
    """Raise ``StateError`` unless stored keys are those of stored rows.

    Args:
        used: The ids of the keys of all rows, by table.
        ids: Those of the keys, distinct and rising.
        what: What they are part of, for messages.
    """
    if not np.array_equal(distinct(np.concatenate(used)), ids):
        raise damaged(what, "rows and keys do not go together")
