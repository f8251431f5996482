"""The durable form of a vectorised process: its table, as columns, and its keys."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from lowwater.engine.process.column_state import NO_HOLD, UNSET, ColumnState
from lowwater.engine.process.definition import Definition
from lowwater.engine.process.stored_facts import KEYS, ROWS, WAITING, WHAT, StoredFacts
from lowwater.engine.process.waiting_records import StoredWaiting, WaitingRecords
from lowwater.engine.records.stored_keys import StoredKeys
from lowwater.state.arrays import NONE
from lowwater.state.codec import Encoded
from lowwater.state.formats import damaged
from lowwater.state.journal import Journal
from lowwater.state.row_codec import RowCodec
from lowwater.state.store import Batch, StateStore
from lowwater.time import START_OF_TIME, Int64Array


@final
class StoredColumns:
    """Writes the rows that changed, and reads them all.

    Args:
        definition: What the process declares.
        state: Its state, with nothing in it yet.
        facts: Its facts.
        waiting: The records that wait; ``None`` in order of arrival.
    """

    def __init__(
        self,
        definition: Definition,
        state: ColumnState,
        facts: StoredFacts,
        waiting: WaitingRecords | None = None,
    ) -> None:
        self._definition = definition
        self._state = state
        self._facts = facts
        place = facts.place
        self._keys = StoredKeys(place, KEYS)
        self._keys_encoded = Encoded(None)
        self._keys_were: dict[str, Any] | None = None
        self._waiting = None if waiting is None else StoredWaiting(waiting, place, WAITING)
        state.on_forgetting = self._keys.forget
        self._codec = RowCodec(state.table)
        self._journal = state.journal = Journal(
            self._codec,
            place,
            ROWS,
            groups=lambda rows: self._keys.groups(state.table["key"][rows]),
        )

    def write(self, batch: Batch, facts: dict[str, int]) -> None:
        """Add what changed since the last time to a batch, and the facts."""
        state = self._state
        self._keys.use(state.keys)
        rows = self._journal.write(batch)
        self._keys.drop(state.gone_keys())
        self._keys.want(state.table["key"][rows])
        self._keys.write(batch)
        keys = self._keys.record()
        if keys != self._keys_were:
            self._keys_encoded, self._keys_were = Encoded(keys), keys
        beside: dict[str, Any] = {
            "keys": self._keys_encoded,
            "table": self._codec.layouts.stored,
        }
        if self._waiting is not None:
            beside["waiting"] = self._waiting.write(batch, facts["watermark"])
        counts = {
            "births": state.births,
            "rows": self._journal.limit,
            "live": len(state.table),
        }
        self._facts.write(batch, {**facts, **counts}, **beside)

    def load(self, store: StateStore) -> dict[str, int] | None:
        """Fill the state from a store, and return the facts; ``None`` if there is nothing.

        Raises:
            StateError: What is stored is damaged, or another process's.
        """
        return self._facts.load(store, self.fill)

    def fill(self, store: StateStore, record: dict[str, Any]) -> None:
        """Fill the state from a store, and see that all of it is there.

        Args:
            store: The store.
            record: The facts, checked.

        Raises:
            StateError: What is stored is damaged.
        """
        state, facts = self._state, record["facts"]
        state.births = facts["births"]
        self._facts.check_groups(record)
        ids = self._keys.load(store, record["keys"])
        state.keys = self._keys.keys
        self._codec.layouts.expect(record["table"])
        for pieces in self._journal.load(store, facts["rows"], START_OF_TIME):
            state.table.prepare(np.concatenate([piece.rows for piece in pieces] or [NONE]))
            for piece in pieces:
                self._codec.fill(piece.rows, self._codec.layouts.read(piece.chunk), piece.at)
        self._check(state.table.restore_prepared(), ids, facts)
        if self._waiting is not None:
            self._waiting.load(store, record["waiting"], facts["watermark"])

    def _check(self, rows: Int64Array, ids: Int64Array, facts: dict[str, Any]) -> None:
        state, table = self._state, self._state.table
        keys, start, end = (table[name][rows] for name in ("key", "start", "end"))
        if len(rows) != facts["live"]:
            raise damaged(WHAT, f"{len(rows)} of {facts['live']} rows are there")
        if not np.array_equal(np.unique(keys), np.sort(ids)):
            raise damaged(WHAT, "rows and keys do not go together")
        order = np.lexsort((end, start, keys))
        same = [np.diff(column[order]) == 0 for column in (keys, start, end)]
        if np.logical_and.reduce(same).any():
            raise damaged(WHAT, "there is a key twice")
        if state.windowed and (start >= end).any():
            raise damaged(WHAT, "there is a window that ends before it starts")
        for name in self._definition.timers:
            free = table[f"time:{name}"][rows] == UNSET
            if (table[f"hold:{name}"][rows][free] != NO_HOLD).any():
                raise damaged(WHAT, f"the timer {name!r} is not set, and holds")
