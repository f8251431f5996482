"""The durable form of a vectorised process: its table, as columns, and its keys."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from lowwater.engine.keyed.rows_by_key import StoredRowsByKey
from lowwater.engine.process.column_state import NO_HOLD, UNSET, ColumnState
from lowwater.engine.process.definition import Definition
from lowwater.engine.process.stored_facts import KEYS, ROWS, WAITING, WHAT, StoredFacts
from lowwater.engine.process.waiting_records import StoredWaiting, WaitingRecords
from lowwater.state.codec import Encoded
from lowwater.state.formats import damaged
from lowwater.state.store import Batch, StateStore
from lowwater.time import Int64Array

_COUNTS = ("births", "rows", "live")
"""What is stored of the table among the facts."""


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
        self._rows = StoredRowsByKey(place, KEYS, WHAT)
        self._rows.add(state, ROWS)
        self._keys_encoded = Encoded(None)
        self._keys_were: dict[str, Any] | None = None
        self._waiting = None if waiting is None else StoredWaiting(waiting, place, WAITING)
        state.on_forgetting = self._rows.keys.forget

    def write(self, batch: Batch, facts: dict[str, int]) -> None:
        """Add what changed since the last time to a batch, and the facts."""
        self._rows.keys.use(self._state.keys)
        (table,) = self._rows.write(batch, facts["watermark"])
        keys = self._rows.keys.record()
        if keys != self._keys_were:
            self._keys_encoded, self._keys_were = Encoded(keys), keys
        beside: dict[str, Any] = {"keys": self._keys_encoded, "table": table["layouts"]}
        if self._waiting is not None:
            beside["waiting"] = self._waiting.write(batch, facts["watermark"])
        counts = {name: table[name] for name in _COUNTS}
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
        facts = record["facts"]
        self._facts.place.check_groups(record["groups"], WHAT)
        table = {**{name: facts[name] for name in _COUNTS}, "layouts": record["table"]}
        self._rows.load(store, record["keys"], [table], facts["watermark"])
        self._state.keys = self._rows.keys.keys
        self._check(self._state.table.live())
        if self._waiting is not None:
            self._waiting.load(store, record["waiting"], facts["watermark"])

    def _check(self, rows: Int64Array) -> None:
        """Raise unless rows are what rows of the process can be, each there once."""
        state, table = self._state, self._state.table
        keys, start, end = (table[name][rows] for name in ("key", "start", "end"))
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
