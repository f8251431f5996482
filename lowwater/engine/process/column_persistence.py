"""The durable form of a vectorised process: its table, as columns, and its keys."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from lowwater.engine.process.column_state import NO_HOLD, UNSET, ColumnState
from lowwater.engine.process.definition import Definition
from lowwater.engine.process.persistence import (
    FACTS,
    FORMAT,
    KEYS,
    ROWS,
    check_record,
    declared,
)
from lowwater.engine.records.columns import Mask
from lowwater.engine.records.stored_keys import StoredKeys
from lowwater.engine.window.placement import Placement
from lowwater.state.arrays import NONE
from lowwater.state.codec import decode, encode
from lowwater.state.formats import FORMATS, damaged, decoding
from lowwater.state.journal import Journal
from lowwater.state.key_layout import StoredPlace
from lowwater.state.row_codec import RowCodec
from lowwater.state.store import Batch, StateStore
from lowwater.time import START_OF_TIME, Int64Array

_WHAT = "the stored state of a process"


@final
class StoredColumns:
    """Writes the rows that changed, and reads them all.

    Args:
        definition: What the process declares.
        state: Its state, with nothing in it yet.
        placing: Its windows; ``None`` for none.
        place: Where it is stored.
    """

    def __init__(
        self,
        definition: Definition,
        state: ColumnState,
        placing: Placement | None,
        place: StoredPlace,
    ) -> None:
        self._definition = definition
        self._state = state
        self._placing = placing
        self._place = place
        self._facts = place.prefix(FACTS)
        self._keys = StoredKeys(place, KEYS)
        self._codec = RowCodec(state.table)
        self._journal = state.journal = Journal(
            self._codec,
            place,
            ROWS,
            groups=lambda rows: self._keys.groups(state.table["key"][rows]),
        )

    def forget(self, kept: Mask) -> None:
        """Note that the dictionary is about to take back the ids that are not kept."""
        self._keys.forget(kept)

    def write(self, batch: Batch, facts: dict[str, int]) -> None:
        """Add what changed since the last time to a batch, and the facts."""
        state, placing = self._state, self._placing
        self._keys.use(state.keys)
        rows = self._journal.write(batch)
        self._keys.drop(state.gone_keys())
        self._keys.want(state.table["key"][rows])
        self._keys.write(batch)
        record = {
            "layout": FORMATS[FORMAT],
            "facts": {
                **facts,
                "births": state.births,
                "lateness": 0 if placing is None else placing.windowing.lateness_us,
                "gone until": START_OF_TIME if placing is None else placing.gone_until,
                "rows": self._journal.limit,
                "live": len(state.table),
            },
            "declared": declared(self._definition.cells, self._definition.timers),
            "windows": None if placing is None else repr(placing.windowing.windows),
            "keys": self._keys.record(),
            "groups": self._place.count,
            "table": self._codec.layouts.known,
        }
        batch.put([self._facts], [encode(record)])

    def load(self, store: StateStore) -> tuple[dict[str, int], Int64Array] | None:
        """Fill the state from a store, and return the facts and the rows.

        Raises:
            StateError: What is stored is damaged, or another process's.
        """
        (data,) = store.get([self._facts])
        if data is None:
            return None
        with decoding(_WHAT):
            record = decode(data)
            check_record(record, self._definition, self._placing)
            facts: dict[str, int] = record["facts"]
            rows = self.fill(store, record)
            self._state.rebuild(rows)
            if (placing := self._placing) is not None:
                placing.resume(facts["lateness"], facts["watermark"], facts["gone until"])
            return facts, rows

    def fill(self, store: StateStore, record: dict[str, Any]) -> Int64Array:
        """Fill the state from a store, see that all of it is there, and return the rows.

        Args:
            store: The store.
            record: The facts, checked.

        Raises:
            StateError: What is stored is damaged.
        """
        state, facts = self._state, record["facts"]
        state.births = facts["births"]
        if record["groups"] != self._place.count:
            groups = f"{record['groups']} key groups, not {self._place.count}"
            raise damaged(_WHAT, f"it is in {groups}")
        ids = self._keys.load(store, record["keys"])
        state.keys = self._keys.keys
        self._codec.layouts.expect(record["table"])
        for pieces in self._journal.load(store, facts["rows"], START_OF_TIME):
            state.table.prepare(np.concatenate([piece.rows for piece in pieces] or [NONE]))
            for piece in pieces:
                self._codec.fill(piece.rows, self._codec.layouts.read(piece.chunk), piece.at)
        rows = state.table.restore_prepared()
        self._check(rows, ids, facts)
        return rows

    def _check(self, rows: Int64Array, ids: Int64Array, facts: dict[str, Any]) -> None:
        state, table = self._state, self._state.table
        keys, start, end = (table[name][rows] for name in ("key", "start", "end"))
        if len(rows) != facts["live"]:
            raise damaged(_WHAT, f"{len(rows)} of {facts['live']} rows are there")
        if not np.array_equal(np.unique(keys), np.sort(ids)):
            raise damaged(_WHAT, "rows and keys do not go together")
        order = np.lexsort((end, start, keys))
        same = [np.diff(column[order]) == 0 for column in (keys, start, end)]
        if np.logical_and.reduce(same).any():
            raise damaged(_WHAT, "there is a key twice")
        if state.windowed and (start >= end).any():
            raise damaged(_WHAT, "there is a window that ends before it starts")
        for name in self._definition.timers:
            free = table[f"time:{name}"][rows] == UNSET
            if (table[f"hold:{name}"][rows][free] != NO_HOLD).any():
                raise damaged(_WHAT, f"the timer {name!r} is not set, and holds")
