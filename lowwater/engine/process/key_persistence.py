"""The stored keys of a process: a row for each key that has state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.records.columns import Column, type_to_bytes
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.window.persistence import read_keys
from lowwater.state.codec import encode
from lowwater.state.damage import damaged
from lowwater.state.store import Batch, StateStore
from lowwater.time import Int64Array

Kinds: TypeAlias = list[tuple[bytes | None, str]]

_WIDTH = 8
_BIAS = 1 << 63


@final
class StoredKeys:
    """Writes keys that have come to have state, and deletes those that no longer do.

    Args:
        prefix: What their rows begin with in the store.
    """

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._dead: set[int] = set()
        self.written: set[int] = set()

    def forget(self, kept: NDArray[np.bool_]) -> None:
        """Note that the dictionary is about to take back the ids that are not kept."""
        gone = {key for key in self.written if key >= len(kept) or not kept[key]}
        self._dead |= gone
        self.written -= gone

    def write(
        self, batch: Batch, keys: KeyDictionary | None, live: Iterable[int], gone: Iterable[int]
    ) -> None:
        """Add to a batch the keys that are new, and that others are gone.

        Args:
            batch: The batch.
            keys: The dictionary.
            live: Ids of keys that have state, those that came to have it among them.
            gone: Ids of keys that have none any more.
        """
        gone = self.written.intersection(gone)
        self.written -= gone
        batch.delete([self._prefix + number(key) for key in sorted(gone | self._dead)])
        self._dead = set()
        ids = sorted(set(live) - self.written)
        if not ids or keys is None:
            return
        self.written.update(ids)
        columns = keys.decode(np.array(ids, dtype=np.int64))
        parts = zip(*(column.to_list() for column in columns), strict=True)
        batch.put(
            [self._prefix + number(key) for key in ids], [encode(list(values)) for values in parts]
        )

    def load(
        self, store: StateStore, kinds: Kinds | None, limit: int
    ) -> tuple[KeyDictionary | None, Int64Array, tuple[Column, ...]]:
        """Return the dictionary (``None`` if there are no keys), its ids and the key columns.

        Raises:
            StateError: The stored keys are damaged.
        """
        ids, columns = read_keys(store, self._prefix, kinds or [], limit)
        if not len(ids):
            return None, ids, columns  # the next bundle begins a dictionary
        keys = KeyDictionary(len(columns))
        keys.restore(ids, columns)
        if len(keys) != len(ids):
            raise damaged("a stored key", "it is stored twice")
        self.written = set(ids.tolist())
        return keys, ids, columns


def kinds_of(keys: KeyDictionary | None) -> Kinds | None:
    """Return the types of the key columns, as :meth:`StoredKeys.load` wants them back."""
    if keys is None:
        return None
    return [(None if kind is None else type_to_bytes(kind), name) for kind, name in keys.kinds()]


def number(value: int) -> bytes:
    """Return a number as :func:`~lowwater.state.key_layout.encode_int64` writes it."""
    return (value + _BIAS).to_bytes(_WIDTH)


def declared(cells: Any, timers: Any) -> list[list[Any]]:
    """Return what a process declares, as it is stored beside its state."""
    return [["cell", name, cell.kind, cell.dtype] for name, cell in cells.items()] + [
        ["timer", name, each.domain] for name, each in timers.items()
    ]
