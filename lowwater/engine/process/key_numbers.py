"""The numbers under which the keys of a part of a process are stored; only the part deals them."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any, final

import numpy as np
import pyarrow as pa

from lowwater.engine.process.key_parts import BELOW
from lowwater.engine.process.state_keys import StateKeys
from lowwater.engine.records.columns import Column
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.records.stored_keys import StoredKeys
from lowwater.errors import InternalError
from lowwater.state.arrays import widened
from lowwater.state.store import StateStore
from lowwater.time import Int64Array


@final
class KeyNumbers:
    """Keys by the numbers they are stored under: the lowest that are free when a key comes.

    The ids of a dictionary depend on what else is in it, and on when it forgets.

    Args:
        state_keys: Has the dictionary.
        stored: Stores the keys.
    """

    def __init__(self, state_keys: StateKeys, stored: StoredKeys) -> None:
        self._state_keys = state_keys
        self._stored = stored
        self._ids = np.zeros(
            0, dtype=np.int64
        )  # of each number: the dictionary's, without the part
        self._free: list[int] = []
        self.capacity = 0

    def decode(self, ids: Int64Array) -> tuple[Column, ...]:
        """Return the key columns of numbers. O(n)."""
        return self._keys.decode(self._ids[ids])

    def kinds(self) -> list[tuple[pa.DataType | None, str]]:
        """Return the Arrow type (if known) and the numpy dtype of each key column."""
        return self._keys.kinds()

    def take_back(self, numbers: Sequence[int]) -> None:
        """Have keys deleted; their numbers are free."""
        self._stored.release(np.array(numbers, dtype=np.int64))
        for number in numbers:
            heappush(self._free, number)

    def give(self, keys: Sequence[int]) -> list[int]:
        """Return numbers for keys that have none, in order, and have them stored.

        Args:
            keys: Their ids, with the part.
        """
        numbers = []
        for _ in keys:
            if self._free:
                numbers.append(heappop(self._free))
            else:
                numbers.append(self.capacity)
                self.capacity += 1
        if self.capacity > len(self._ids):
            self._ids = widened(self._ids, 2 * self.capacity)
        rows = np.array(numbers, dtype=np.int64)
        self._ids[rows] = ids = np.array(keys, dtype=np.int64) & BELOW
        self._stored.use(self)
        if (hashes := self._state_keys.hashes(ids)) is not None:
            self._stored.know(rows, hashes)
        self._stored.want(rows)
        return numbers

    def groups(self, numbers: Sequence[int]) -> list[int]:
        """Return the key groups of keys."""
        return self._stored.groups(np.array(numbers, dtype=np.int64)).tolist()

    def use(self) -> None:
        """Have the keys taken from here."""
        self._stored.use(None if self._state_keys.keys is None else self)

    def load(
        self, store: StateStore, record: dict[str, Any] | None
    ) -> tuple[Int64Array, Int64Array]:
        """Put the stored keys into the dictionary; return their numbers, rising, and their ids.

        Raises:
            StateError: The stored keys are damaged.
        """
        numbers, columns = self._stored.read(store, record)
        if not len(numbers):
            return numbers, numbers
        ids = self._state_keys.encode_ids(columns)
        self.capacity = int(numbers[-1]) + 1
        self._ids = np.zeros(self.capacity, dtype=np.int64)
        self._ids[numbers] = ids & BELOW
        free = np.ones(self.capacity, dtype=np.bool_)
        free[numbers] = False
        self._free = np.flatnonzero(free).tolist()
        heapify(self._free)
        self.use()
        return numbers, ids

    @property
    def _keys(self) -> KeyDictionary:
        keys = self._state_keys.keys
        if keys is None:
            raise InternalError("a key was asked for before any was seen")
        return keys
