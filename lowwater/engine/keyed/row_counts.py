"""How many rows each key has: which ids can be recycled, and which stored keys deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from lowwater.kernels import kernels
from lowwater.state.arrays import NONE, widened
from lowwater.time import Int64Array


@final
class RowCounts:
    """Counts rows by key id."""

    def __init__(self) -> None:
        self._count: Int64Array = np.zeros(64, dtype=np.int64)
        self._left: list[Int64Array] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the counts take."""
        return self._count.nbytes

    def track(self) -> None:
        """Note from now on which keys lose rows, for :meth:`take_left`."""
        self._left = []

    def add(self, keys: Int64Array) -> None:
        """Count new rows, given the key of each."""
        need = int(keys.max(initial=-1)) + 1
        if need > len(self._count):
            self._count = widened(self._count, 2 * need)
        kernels().add_at(self._count, keys, 1)

    def remove(self, keys: Int64Array) -> None:
        """Count rows that are gone, given the key of each."""
        kernels().add_at(self._count, keys, -1)
        if self._left is not None:
            self._left.append(keys)

    def of(self, keys: Int64Array) -> Int64Array:
        """Return how many rows each key has."""
        count = np.zeros(len(keys), dtype=np.int64)
        known = keys < len(self._count)
        count[known] = self._count[keys[known]]
        return count

    def take_left(self) -> Int64Array:
        """Return keys that have lost rows since the last call; a key may be there twice."""
        left = np.concatenate(self._left) if self._left else NONE
        self._left = None if self._left is None else []
        return left

    def _check(self, keys: Int64Array) -> None:
        """Assert that rows are counted as they are, given the key of each."""
        assert np.array_equal(np.bincount(keys, minlength=len(self._count)), self._count)


def have_rows(keys: Int64Array, counts: Sequence[RowCounts]) -> NDArray[np.bool_]:
    """Return which keys have rows by one of several counts, at least one."""
    held: NDArray[np.bool_] = np.logical_or.reduce([count.of(keys) > 0 for count in counts])
    return held
