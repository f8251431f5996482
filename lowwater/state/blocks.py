"""Which rows each stored block holds, and which of its copies are the live ones."""

from __future__ import annotations

from itertools import pairwise
from typing import final

import numpy as np
from numpy.typing import NDArray

from lowwater.errors import InternalError
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import NONE, widened
from lowwater.time import Int64Array

FULL = 1 << 14
"""Rows of a block at most."""
FEW = 16
"""Blocks of a size of a key group at most, about: with one more they are merged."""

_ABSENT = -1
_SIZES = np.array([FEW, FEW**2, FEW**3], dtype=np.int64)
"""Where sizes part; blocks of the largest are not merged."""
_SMALLEST = 64
_Rows = NDArray[np.uint32]


@final
class Blocks:
    """The blocks of one table: each of a key group, with a sequence number and some rows.

    A row has one live copy at most, in the block that was written last with it. The copies in
    earlier blocks are dead. A block without live copies is to be deleted.

    Blocks are merged in sizes, each 16 times the one before, so a row is written a few times in
    all, however small the commits. A block of which more than half is dead is merged too, which
    bounds what is stored by twice the live rows, about.
    """

    def __init__(self) -> None:
        self.next = 0
        self._sequence: Int64Array = np.zeros(_SMALLEST, dtype=np.int64)
        self._group: Int64Array = np.zeros(_SMALLEST, dtype=np.int64)
        self._count: Int64Array = np.zeros(_SMALLEST, dtype=np.int64)
        self._live: Int64Array = np.zeros(_SMALLEST, dtype=np.int64)
        self._rows: list[_Rows | None] = [None] * _SMALLEST
        self._free = list(range(_SMALLEST))[::-1]
        self._of_row: NDArray[np.int32] = np.full(0, _ABSENT, dtype=np.int32)

    def cover(self, capacity: int) -> None:
        """Allocate room for the rows below a number."""
        if capacity > len(self._of_row):
            self._of_row = widened(self._of_row, capacity, _ABSENT)

    def is_stored(self, rows: Int64Array) -> NDArray[np.bool_]:
        """Return which rows have a live copy."""
        return self._of_row[rows] >= 0

    def groups(self, rows: Int64Array) -> Int64Array:
        """Return the key groups of the live copies of rows that have one."""
        return self._group[self._of_row[rows]]

    def add(self, groups: Int64Array, rows: Int64Array, bounds: Int64Array) -> range:
        """Add blocks with the live copies of rows that have none; return their sequence numbers.

        Args:
            groups: The key group of each block.
            rows: The rows, block by block.
            bounds: Where each block begins in them, and where the last one ends.
        """
        count = len(groups)
        while len(self._free) < count:
            self._grow()
        blocks = [self._free.pop() for _ in range(count)]
        sequences = range(self.next, self.next + count)
        counts = np.diff(bounds)
        self._sequence[blocks], self._group[blocks] = sequences, groups
        self._count[blocks] = self._live[blocks] = counts
        numbers = rows.astype(np.uint32)
        for block, (low, high) in zip(blocks, pairwise(bounds.tolist()), strict=True):
            self._rows[block] = numbers[low:high].copy()  # or all live as long as the last of them
        self._of_row[rows] = repeated(np.array(blocks, dtype=np.int64), counts)
        self.next = sequences.stop
        return sequences

    def load(self, group: int, sequence: int, rows: Int64Array, live: Int64Array) -> None:
        """Add a block that is stored: its rows, and those whose live copies it has."""
        if not self._free:
            self._grow()
        block = self._free.pop()
        self._sequence[block], self._group[block] = sequence, group
        self._count[block], self._live[block] = len(rows), len(live)
        self._rows[block] = rows.astype(np.uint32)
        self._of_row[live] = block
        self.next = max(self.next, sequence + 1)

    def release(self, rows: Int64Array) -> None:
        """Mark the live copies of rows as dead; each row has one."""
        blocks = self._of_row[rows]
        self._live -= np.bincount(blocks, minlength=len(self._live))
        self._of_row[rows] = _ABSENT

    def take_dead(self) -> list[tuple[int, int]]:
        """Forget the blocks without live copies; return (group, sequence number) of each."""
        dead = np.flatnonzero((self._count > 0) & (self._live == 0)).tolist()
        found = [(int(self._group[block]), int(self._sequence[block])) for block in dead]
        for block in dead:
            self._count[block] = 0
            self._rows[block] = None
            self._free.append(block)
        return found

    def to_merge(self, most: int) -> Int64Array:
        """Return the live rows of blocks that are better merged, ``most`` at most, about."""
        used = np.flatnonzero(self._live)
        live, count = self._live[used], self._count[used]
        size = np.searchsorted(_SIZES, live, side="right")
        kind = self._group[used] * (len(_SIZES) + 1) + size
        crowded = (np.bincount(kind)[kind] > FEW) & (size < len(_SIZES)) if used.size else size > 0
        chosen = np.flatnonzero(crowded | (2 * live < count))
        if not chosen.size:
            return NONE
        chosen = chosen[np.lexsort((live[chosen], kind[chosen]))]
        within = np.cumsum(live[chosen]) - live[chosen] < most
        blocks = used[chosen[within]].tolist()
        return np.concatenate([self._live_rows(block) for block in blocks])

    def stored(self) -> dict[int, tuple[int, int]]:
        """Return, by group, how many live copies and how many copies there are."""
        live = np.bincount(self._group, weights=self._live).astype(np.int64)
        count = np.bincount(self._group, weights=self._count).astype(np.int64)
        return {int(g): (int(live[g]), int(count[g])) for g in np.flatnonzero(count)}

    def dead_rows(self, group: int) -> Int64Array:
        """Return the distinct rows of which a group has dead copies, and no live one."""
        blocks = np.flatnonzero((self._count > 0) & (self._group == group))
        every = [rows for block in blocks.tolist() if (rows := self._rows[block]) is not None]
        if not every:
            return NONE
        rows = np.unique(np.concatenate(every)).astype(np.int64)
        here = self._of_row[rows]
        return rows[(here < 0) | (self._group[here] != group)]

    def _live_rows(self, block: int) -> Int64Array:
        rows = self._rows[block]
        if rows is None:
            raise InternalError("a block was forgotten that has live rows")
        wide = rows.astype(np.int64)
        return wide[self._of_row[wide] == block]

    def _grow(self) -> None:
        old = len(self._rows)
        for name in ("_sequence", "_group", "_count", "_live"):
            wider = np.zeros(2 * old, dtype=np.int64)
            wider[:old] = getattr(self, name)
            setattr(self, name, wider)
        self._rows += [None] * old
        self._free += range(2 * old - 1, old - 1, -1)

    def _check(self) -> None:
        """Assert what must hold between the arrays. O(copies)."""
        used = np.flatnonzero(self._count)
        assert len(np.unique(self._sequence[used])) == len(used)
        assert not set(used.tolist()) & set(self._free)
        assert len(used) + len(self._free) == len(self._rows)
        for block in used.tolist():
            rows = self._rows[block]
            assert rows is not None
            assert len(rows) == self._count[block] == len(np.unique(rows))
            assert len(self._live_rows(block)) == self._live[block]
            assert self._sequence[block] < self.next
        stored = self._of_row[self._of_row >= 0]
        assert np.array_equal(np.bincount(stored, minlength=len(self._live)), self._live)
