"""What state belongs to: keys, or keys and windows, as small numbers that are recycled."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import pyarrow as pa

from lowwater.engine.process.key_parts import BELOW, SHIFT, Dealt, parts_of_hashes
from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import hash_keys
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.records.stored_keys import Kinds, become
from lowwater.errors import InternalError
from lowwater.state.arrays import distinct, object_array, widened
from lowwater.state.xxh64 import UInt64Array
from lowwater.time import Instant, Int64Array
from lowwater.windows import Window

_GARBAGE = 64


@final
class StateKeys:
    """The keys (in windows: keys and windows) that have state, each as a number: its scope.

    Numbers are of the part of their key (:mod:`~lowwater.engine.process.key_parts`). ``born`` maps
    a live scope to its rank in the order in which those of its part came to hold state, ``births``
    a part to the next rank, ``live`` to how many scopes it has, ``top`` to the next new one (in
    windows only). ``changed`` are the scopes that became live or ceased to be since state was
    saved; ``left``, without windows, the keys that were without any since.

    Args:
        windowed: Whether there are windows.
        parted: Whether keys are in parts.
    """

    def __init__(self, *, windowed: bool, parted: bool = False) -> None:
        self.windowed = windowed
        self.keys: KeyDictionary | None = None
        self.born: dict[int, int] = {}
        self.births = Dealt()
        self.live: dict[int, int] = {}
        self.changed: set[int] = set()
        self.left: set[int] = set()
        self._parted = parted
        # Of each id of the dictionary: with the part of its key, always as the same object, which
        # dicts find sooner; the hash of its key; and its part, -1: not known.
        self._ids = np.empty(0, dtype=object)
        self._hash = np.zeros(0, dtype=np.uint64)
        self._part = np.zeros(0, dtype=np.int64)
        self._told: Kinds | None = None  # and what the dictionary's types were after it
        self._became: list[tuple[pa.DataType | None, str]] = []
        self._value: dict[int, Any] = {}
        self._places: dict[int, tuple[int, int, int]] = {}
        self.top = Dealt()
        self._windows: dict[tuple[int, int, int], int] = {}
        self._of_key: dict[int, dict[int, None]] = {}
        self._keys_of: dict[int, int] = {}
        self._free: dict[int, list[int]] = {}
        self._freed: list[int] = []

    def __len__(self) -> int:
        """Return how many scopes are live."""
        return len(self.born)

    def encode(self, columns: tuple[Column, ...], hashes: UInt64Array | None = None) -> list[int]:
        """Return the key id of each element: that of the dictionary, and the key's part.

        Args:
            columns: The key columns.
            hashes: The hash of each key, if it is known.
        """
        if self.keys is None:
            self.keys = KeyDictionary(len(columns))
        ids = self.keys.encode(columns)
        if self.keys.capacity > len(self._ids):
            self._cover(2 * self.keys.capacity)
        if self._parted:
            unknown = self._part[ids] < 0
            if unknown.any():
                new = ids[unknown] if hashes is not None else distinct(ids[unknown])
                of_new = hash_keys(self.keys.decode(new)) if hashes is None else hashes[unknown]
                self._hash[new] = of_new
                self._part[new] = parts = parts_of_hashes(of_new)
                self._ids[new] = object_array((new | parts << SHIFT).tolist())
        found: list[int] = self._ids[ids].tolist()
        return found

    def columns(self, ids: Int64Array) -> tuple[Column, ...]:
        """Return the columns of keys, by their ids."""
        if self.keys is None:
            raise InternalError("a key was asked for before any was seen")
        return self.keys.decode(ids & BELOW)

    def hashes(self, ids: Int64Array, columns: tuple[Column, ...]) -> UInt64Array:
        """Return the hashes of keys, by their ids and columns."""
        return self._hash[ids & BELOW] if self._parted else hash_keys(columns)

    def _cover(self, room: int) -> None:
        """Allocate space for ids below ``room``."""
        before = len(self._ids)
        self._ids = widened(self._ids, room, None)
        if self._parted:
            self._part = widened(self._part, room, -1)
            self._hash = widened(self._hash, room)
        else:
            self._ids[before:] = range(before, room)

    def become(self, kinds: Kinds) -> None:
        """Set the types of keys to those of the whole stage."""
        if self.keys is None:
            self.keys = KeyDictionary(len(kinds))
        elif kinds == self._told and self.keys.kinds() == self._became:
            return
        become(self.keys, kinds)
        self._told, self._became = kinds, self.keys.kinds()

    def key(self, scope: int) -> Any:
        """Return the key of a live scope, as Python values."""
        return self._value[scope]

    def window(self, scope: int) -> Window | None:
        """Return the window of a scope."""
        if not self.windowed:
            return None
        _, start, end = self._places[scope]
        return Window(Instant(start), Instant(end))

    def place(self, scope: int) -> tuple[int, int, int]:
        """Return key id, start and end; the latter 0 without windows."""
        return self._places[scope] if self.windowed else (scope, 0, 0)

    def find(self, key: int, start: int, end: int) -> int | None:
        """Return the live scope of a key and window."""
        return self._windows.get((key, start, end))

    def of_key(self, key: int) -> list[int]:
        """Return the live scopes of a key, the oldest first; in windows only."""
        return list(self._of_key.get(key, ()))

    def open(self, key: int, start: int, end: int, value: Any) -> int:
        """Make a key and window live, and return its scope."""
        place = (key, start, end)
        part = key >> SHIFT
        free = self._free.get(part)
        if free:
            scope = free.pop()
        else:
            scope = self.top[part]
            self.top[part] = scope + 1
        self._places[scope] = place
        self._windows[place] = scope
        self._note_window(key, scope)
        self.bear(scope, value)
        return scope

    def bear(self, scope: int, value: Any) -> None:
        """Make a scope live, of a key with this value."""
        part = scope >> SHIFT
        self.born[scope] = born = self.births[part]
        self.births[part] = born + 1
        self.live[part] = self.live.get(part, 0) + 1
        self._value[scope] = value
        self.changed.add(scope)

    def bury(self, scope: int) -> None:
        """Make a scope no longer live."""
        del self.born[scope], self._value[scope]
        self.changed.add(scope)
        self.live[scope >> SHIFT] -= 1
        if not self.windowed:
            self.left.add(scope)
            return
        place = self._places[scope]
        del self._windows[place]
        mine = self._of_key[place[0]]
        del mine[scope]
        if not mine:
            del self._of_key[place[0]]
            self._keys_of[scope >> SHIFT] -= 1
        self._freed.append(scope)

    def restore(self, scope: int, place: tuple[int, int, int], born: int, value: Any) -> None:
        """Make a scope live as it was."""
        part = scope >> SHIFT
        self.born[scope] = born
        self.live[part] = self.live.get(part, 0) + 1
        self._value[scope] = value
        if self.windowed:
            self._places[scope] = place
            self._windows[place] = scope
            self._note_window(place[0], scope)

    def in_order(self) -> list[int]:
        """Return the live scopes in the order in which they came to hold state, part by part."""
        return sorted(self.born, key=self.born.__getitem__)

    def keys_of(self, part: int) -> int:
        """Return how many keys of a part have a live scope."""
        return (self._keys_of if self.windowed else self.live).get(part, 0)

    def describe(
        self, scopes: Int64Array
    ) -> tuple[tuple[Column, ...], Int64Array | None, Int64Array | None]:
        """Return key columns, starts and ends of scopes, live or of this step."""
        if not self.windowed:
            return self.columns(scopes), None, None
        places = np.array([self._places[scope] for scope in scopes.tolist()], dtype=np.int64)
        return self.columns(places[:, 0]), places[:, 1].copy(), places[:, 2].copy()

    def tidy(self) -> None:
        """After a step: recycle numbers, and the ids of keys once they are many. Amortised."""
        for scope in self._freed:
            self._free.setdefault(scope >> SHIFT, []).append(scope)
        self._freed = []
        live = self._of_key if self.windowed else self.born
        if self.keys is None or len(self.keys) <= 2 * len(live) + _GARBAGE:
            return
        kept = np.zeros(self.keys.capacity, dtype=np.bool_)
        kept[np.fromiter(live, dtype=np.int64, count=len(live)) & BELOW] = True
        if self._parted:
            known = len(kept)
            self._part[:known][~kept[: len(self._part)]] = -1
        self.keys.retain(kept)

    def _note_window(self, key: int, scope: int) -> None:
        """Note that a key has a live scope."""
        mine = self._of_key.get(key)
        if mine is None:
            mine = self._of_key[key] = {}
            part = scope >> SHIFT
            self._keys_of[part] = self._keys_of.get(part, 0) + 1
        mine[scope] = None
