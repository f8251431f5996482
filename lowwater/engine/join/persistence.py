"""The durable form of joins and tables: the rows of each side, as columns, and their keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from lowwater.engine.join.keyed_records import KeyedRecords
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.records.stored_keys import StoredKeys
from lowwater.engine.records.stored_records import StoredRecords
from lowwater.state.arrays import NONE, distinct
from lowwater.state.codec import decode, encode
from lowwater.state.formats import FORMATS, check_format, damaged, decoding
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.time import Int64Array, saturating_add_array

FORMAT = "join state"
FACTS, KEYS, KEYS_GONE, FIRST_ROWS = range(4)
"""Tags of the tables. The rows of the sides follow, with two tags for each."""
_WHAT = "the stored state of a join or table"


@final
class StoredSides:
    """Writes the rows that changed, and reads them all.

    Args:
        sides: The sides, with nothing in them yet.
        dues: How long after their time the rows of each are gone, in microseconds of the watermark;
            ``None``: not by time.
        place: Where they are stored.
        names: What is stored beside them, by name.
    """

    def __init__(
        self,
        sides: Sequence[KeyedRecords],
        dues: Sequence[int | None],
        place: StoredPlace,
        names: frozenset[str],
    ) -> None:
        self._sides = sides
        self._names = names
        self._place = place
        self.keys = StoredKeys(place, KEYS)
        self._rows = [self._stored_rows(number, due) for number, due in enumerate(dues)]

    def write(self, batch: Batch, keys: KeyDictionary | None, facts: dict[str, int]) -> None:
        """Add what changed since the last time to a batch, and the facts."""
        self.keys.use(keys)
        sides = []
        gone = [NONE]
        for side, stored in zip(self._sides, self._rows, strict=True):
            rows = stored.write(batch, facts["watermark"])
            gone.append(side.gone_keys())
            self.keys.want(side.table["key"][rows])
            sides.append({"births": side.births, **stored.record()})
        left = distinct(np.concatenate(gone))
        held = np.logical_or.reduce([side.has_rows(left) for side in self._sides])
        self.keys.drop(left[~held])
        self.keys.write(batch)
        record = {
            "layout": FORMATS[FORMAT],
            "facts": facts,
            "sides": sides,
            "keys": self.keys.record(),
            "groups": self._place.count,
        }
        batch.put([self._place.prefix(FACTS)], [encode(record)])

    def load(self, store: StateStore) -> dict[str, int] | None:
        """Fill the sides from a store, and return the facts; ``None`` if nothing is stored.

        Raises:
            StateError: What is stored is damaged.
        """
        (data,) = store.get([self._place.prefix(FACTS)])
        if data is None:
            return None
        with decoding(_WHAT):
            record = decode(data)
            check_format(FORMAT, record["layout"])
            facts: dict[str, int] = record["facts"]
            if facts.keys() != self._names or len(record["sides"]) != len(self._sides):
                raise damaged(_WHAT, "its facts are not those of this one")
            if record["groups"] != self._place.count:
                groups = f"{record['groups']} key groups, not {self._place.count}"
                raise damaged(_WHAT, f"it is in {groups}")
            ids = self.keys.load(store, record["keys"])
            used = [
                self._fill(store, number, stored, facts["watermark"])
                for number, stored in enumerate(record["sides"])
            ]
            if not np.array_equal(distinct(np.concatenate(used)), np.sort(ids)):
                raise damaged(_WHAT, "records and keys do not go together")
            return facts

    def _fill(
        self, store: StateStore, number: int, stored: dict[str, Any], watermark: int
    ) -> Int64Array:
        """Fill one side; return the keys of its rows."""
        side = self._sides[number]
        side.births = stored["births"]
        rows = self._rows[number].load(store, stored, watermark, _WHAT)
        return side.table["key"][rows]

    def _stored_rows(self, number: int, after: int | None) -> StoredRecords:
        side = self._sides[number]

        def due(rows: Int64Array) -> Int64Array:
            return saturating_add_array(side.table["start"][rows], after or 0)

        stored = StoredRecords(
            side.table,
            side,
            self._place,
            FIRST_ROWS + 2 * number,
            groups=lambda rows: self.keys.groups(side.table["key"][rows]),
            due=None if after is None else due,
            bags=side.bags,
        )
        side.journal = stored.journal
        return stored
