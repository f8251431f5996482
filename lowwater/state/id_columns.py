"""Record ids as columns: their bytes in one buffer, and a hash of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from lowwater.kernels import kernels
from lowwater.kernels.positions import repeated
from lowwater.state.xxh64 import UInt64Array, hash_bytes
from lowwater.time import Int64Array

_NO_BYTES = np.zeros(0, dtype=np.uint8)


@final
@dataclass(frozen=True, slots=True)
class IdColumns:
    """Some ids, each of any bytes.

    Args:
        hashes: The hash of each, which depends only on its bytes, uint64, shape (n,).
        starts: Where its bytes begin in ``data``, int64, shape (n,).
        lengths: How many there are, int64, shape (n,).
        data: The bytes of all, uint8.
        width: The length of all, if the bytes are nothing but theirs in order; 0 if not.
    """

    hashes: UInt64Array
    starts: Int64Array
    lengths: Int64Array
    data: NDArray[np.uint8]
    width: int = 0

    @classmethod
    def of(cls, ids: Sequence[bytes]) -> Self:
        """Return the columns of ids. O(bytes)."""
        lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
        return cls.packed(lengths, np.frombuffer(b"".join(ids), dtype=np.uint8))

    @classmethod
    def fixed(cls, rows: NDArray[np.uint8]) -> Self:
        """Return the columns of ids of one length: uint8, shape (n, length)."""
        count, width = rows.shape
        return cls.packed(np.full(count, width, dtype=np.int64), rows.reshape(-1))

    @classmethod
    def packed(
        cls, lengths: Int64Array, data: NDArray[np.uint8], hashes: UInt64Array | None = None
    ) -> Self:
        """Return the columns of ids whose bytes follow each other."""
        starts = np.cumsum(lengths) - lengths
        if hashes is None:
            hashes = hash_bytes(data if data.size else None, starts, lengths)
        width = int(lengths[0]) if len(lengths) else 0
        is_fixed = width > 0 and bool((lengths == width).all())
        return cls(hashes, starts, lengths, data, width if is_fixed else 0)

    @classmethod
    def concat(cls, parts: Sequence[IdColumns]) -> IdColumns:
        """Return the ids of some columns, one after the other, at least one."""
        if len(parts) == 1:
            return parts[0]
        return cls.packed(
            np.concatenate([part.lengths for part in parts]),
            np.concatenate([part.buffer() for part in parts]),
            np.concatenate([part.hashes for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.hashes)

    def __getitem__(self, at: int) -> bytes:
        start = int(self.starts[at])
        return self.data[start : start + int(self.lengths[at])].tobytes()

    def take(self, rows: Int64Array) -> IdColumns:
        """Return the ids at ``rows``, with their bytes one after the other. O(bytes)."""
        return self._taken(rows, self.hashes[rows])

    def sorted(self) -> tuple[IdColumns, Int64Array]:
        """Return the ids sorted by hash, and the stable order that sorts them. O(bytes)."""
        hashes, order = kernels().sort_hashes(self.hashes)
        return self._taken(order, hashes), order

    def _taken(self, rows: Int64Array, hashes: UInt64Array) -> IdColumns:
        count = len(rows)
        if self.width and count <= len(self):  # then starts and lengths are those of any ids here
            data = self._bytes(rows, self.lengths)
            return IdColumns(hashes, self.starts[:count], self.lengths[:count], data, self.width)
        lengths = self.lengths[rows]
        return IdColumns.packed(lengths, self._bytes(rows, lengths), hashes)

    def buffer(self) -> NDArray[np.uint8]:
        """Return the bytes of all ids, one after the other."""
        if self.width:
            return self.data
        return self._bytes(np.arange(len(self), dtype=np.int64), self.lengths)

    def _bytes(self, rows: Int64Array, lengths: Int64Array) -> NDArray[np.uint8]:
        if not len(rows):
            return _NO_BYTES
        if self.width:
            whole = np.ascontiguousarray(self.data).view(np.dtype((np.void, self.width)))
            return whole[rows].view(np.uint8)
        starts = self.starts[rows]
        first = np.cumsum(lengths) - lengths
        places = repeated(starts - first, lengths) + np.arange(int(lengths.sum()))
        return self.data[places]


@final
class HashFilter:
    """Says of a hash that it was not added, or that it may have been.

    It consists of Bloom filters, the next one larger when one is full.

    Args:
        room: How many hashes to expect.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._left = room
        self._count = 0
        self._words = [_words(room)]

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """Memory it takes."""
        return sum(words.nbytes for words in self._words)

    def add(self, hashes: UInt64Array) -> None:
        """Add hashes. Amortised O(n)."""
        at = 0
        while at < len(hashes):
            if not self._left:
                self._room *= _GROWTH
                self._left = self._room
                self._words.append(_words(self._room))
            part = hashes[at : at + self._left]
            kernels().add_to_filter(self._words[-1], part)
            self._left -= len(part)
            at += len(part)
        self._count += len(hashes)

    def perhaps(self, hashes: UInt64Array) -> NDArray[np.bool_]:
        """Return which hashes may have been added; bool, shape (n,). Fastest if they are sorted."""
        found = kernels().may_be_in_filter(self._words[0], hashes)
        for words in self._words[1:]:
            found |= kernels().may_be_in_filter(words, hashes)
        return found

    def _check(self) -> None:
        rooms = [self._room // _GROWTH**age for age in reversed(range(len(self._words)))]
        assert 0 <= self._left <= self._room
        assert self._count == sum(rooms) - self._left


# Two bytes per id: about one new id in a hundred passes, and costs a look at the filters of runs.
BITS_PER_ID = 16
_GROWTH = 4


def _words(room: int) -> UInt64Array:
    return np.zeros(max(1, int(room * BITS_PER_ID) >> 6), dtype=np.uint64)
