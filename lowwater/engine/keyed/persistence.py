"""The durable form of joins and tables: the rows of each side, their keys, and what is spilled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.keyed.rows_by_key import StoredRowsByKey
from lowwater.engine.keyed.spilled import SpilledKeys, Spilling
from lowwater.engine.records.keys import KeyDictionary
from lowwater.state.arrays import NONE, among, widened
from lowwater.state.codec import decode, encode
from lowwater.state.formats import FORMATS, check_format, damaged, decoding
from lowwater.state.key_layout import StoredPlace
from lowwater.state.row_codec import RowCodec
from lowwater.state.store import Batch, StateStore
from lowwater.time import Int64Array, saturating_add_array

FORMAT = "join state"
FACTS, KEYS, KEYS_GONE, FIRST_ROWS = range(4)
"""Tags of the tables. The rows of the sides follow, with two tags for each of at most two."""
SPILLED, DUES, RIGHT_DUES, HOLDS = range(7, 11)
"""Tags of keys whose records are not in memory."""
_FEWER = 0.94  # the fewer leave at once, the less it takes to write them
_GROWN = 1.1
WHAT = "the stored rows of a stage"


@final
class StoredSides:
    """Writes the rows that changed, and reads them all.

    Args:
        operator: Whose records they are; with nothing in them yet.
        dues: How long after their time the rows of each are gone, in microseconds of the watermark;
            ``None``: not by time.
        place: Where they are stored.
        names: What is stored beside them, by name.
        memory: How many bytes records and keys may take in memory, about: what is more stays in the
            store alone until it is wanted. ``None``: any number.
    """

    def __init__(
        self,
        operator: Spilling,
        dues: Sequence[int | None],
        place: StoredPlace,
        names: frozenset[str],
        memory: int | None,
    ) -> None:
        self._sides = operator.sides
        self._names = names
        self._place = place
        self._rows = StoredRowsByKey(place, KEYS, WHAT)
        self.keys = self._rows.keys
        codecs = [self._codec(number, due) for number, due in enumerate(dues)]
        tables = (SPILLED, DUES, RIGHT_DUES, HOLDS)
        self.spilled = SpilledKeys(operator, codecs, self.keys, place, tables)
        self._memory = memory
        self._spared = 0.0
        # By key id: the number of the commit that its last touch came after.
        self._turns: Int64Array = np.zeros(0, dtype=np.int64)
        self._turn = 0

    @property
    def is_bounded(self) -> bool:
        """Whether there is a limit of memory."""
        return self._memory is not None

    @property
    def is_over(self) -> bool:
        """Whether the state takes more memory than it may, and some can be spared."""
        if self._memory is None:
            return False
        return self._nbytes + self.spilled.loaded_bytes > max(self._memory, self._spared)

    def touched(self, ids: Int64Array) -> None:
        """Note that keys were touched; ids may repeat."""
        if self._memory is not None:
            need = int(ids.max(initial=-1)) + 1
            if need > len(self._turns):
                self._turns = widened(self._turns, 2 * need)
            self._turns[ids] = self._turn

    def forget(self, kept: NDArray[np.bool_]) -> None:
        """Note that the dictionary is about to take back the ids that are not kept."""
        self.keys.forget(kept)
        self.spilled.forget(kept)

    def write(self, batch: Batch, keys: KeyDictionary | None, facts: dict[str, int]) -> bool:
        """Add what changed since the last time to a batch, and the facts.

        Returns:
            Whether keys left memory for the store.
        """
        self.keys.use(keys)
        leaving = self._leaving()
        self.spilled.write(batch, leaving)
        sides = self._rows.write(batch, facts["watermark"])
        record = {
            "layout": FORMATS[FORMAT],
            "facts": facts,
            "sides": sides,
            "keys": self.keys.record(),
            "groups": self._place.count,
            "spilled": self.spilled.record(),
        }
        batch.put([self._place.prefix(FACTS)], [encode(record)])
        if self._memory is not None:
            self._turn += 1
            # Where what has to stay takes more than there is, only try again once it has grown.
            taken = self._nbytes
            self._spared = taken * _GROWN if taken > self._memory else 0.0
        return bool(leaving.size)

    @property
    def _nbytes(self) -> int:
        return sum(side.nbytes for side in self._sides) + self._key_bytes

    @property
    def _key_bytes(self) -> int:
        keys = self.keys.keys
        return 0 if keys is None else keys.nbytes + self._turns.nbytes

    def _leaving(self) -> Int64Array:
        """Return the keys that are to leave memory: those not touched for the longest time.

        All keys of a hash leave together.
        """
        keys = self.keys.keys
        count = sum(map(len, self._sides))
        if self._memory is None or keys is None or not count or not self.is_over:
            return NONE
        fixed = self._key_bytes
        each = (self._nbytes - fixed) / count
        few = count - int(max(0.0, _FEWER * self._memory - fixed) / each)
        if few <= 0:
            return NONE
        ids = np.arange(keys.capacity)
        rows = np.add.reduce([side.row_counts.of(ids) for side in self._sides])
        ids = ids[rows > 0]
        turns = np.zeros(len(ids), dtype=np.int64)
        some = ids < len(self._turns)
        turns[some] = self._turns[ids[some]]
        by_turn = np.argsort(turns, kind="stable")
        needed = int(np.searchsorted(np.cumsum(rows[ids[by_turn]]), few)) + 1
        if needed >= len(ids):
            return ids
        hashes = self.keys.hashes(ids)
        return ids[among(hashes, hashes[by_turn[:needed]])]

    def load(self, store: StateStore) -> dict[str, int] | None:
        """Fill the sides from a store, and return the facts; ``None`` if nothing is stored.

        Raises:
            StateError: What is stored is damaged.
        """
        record = read_facts(store, self._place)
        if record is None:
            return None
        with decoding(WHAT):
            facts: dict[str, int] = record["facts"]
            if facts.keys() != self._names or len(record["sides"]) != len(self._sides):
                raise damaged(WHAT, "its facts are not those of this one")
            self._place.check_groups(record["groups"], WHAT)
            ids = self._rows.load(store, record["keys"], record["sides"], facts["watermark"])
            self.spilled.resume(record["spilled"], ids)
            return facts

    def load_rest(self, store: StateStore) -> None:
        """Load what an earlier run with a limit of memory left in the store, if there is none now.

        Raises:
            StateError: What is stored is damaged.
        """
        if self._memory is None:
            self.spilled.load_all(store)

    def _check(self) -> None:
        """Assert what must hold between what is in memory and what is not. O(records)."""
        self._rows._check()
        self.spilled._check()

    def _codec(self, number: int, after: int | None) -> RowCodec:
        """Track the changes of a side; return what packs its rows."""
        side = self._sides[number]

        def due(rows: Int64Array) -> Int64Array:
            return saturating_add_array(side.table["start"][rows], after or 0)

        stored = self._rows.add(
            side,
            FIRST_ROWS + 2 * number,
            due=None if after is None else due,
            kept=side,
            bags=side.bags,
        )
        return stored.codec


def read_facts(store: StateStore, place: StoredPlace) -> dict[str, Any] | None:
    """Return what is stored beside the rows of a stage; ``None`` if nothing is.

    Raises:
        StateError: It is damaged, or of another layout.
    """
    (data,) = store.get([place.prefix(FACTS)])
    if data is None:
        return None
    with decoding(WHAT):
        record: dict[str, Any] = decode(data)
        check_format(FORMAT, record["layout"])
        return record
