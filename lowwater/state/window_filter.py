"""Which windows may be in a store: Bloom filters in memory, as arrays, segmented by time."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from lowwater.state.arrays import mixed
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

_BITS = 5
_BITS_PER_ROW = 16
_WORD_BITS = 64
_FEW, _MANY = 1 << 12, 1 << 20

Words = NDArray[np.uint64]


@final
class WindowFilter:
    """Tells which windows were never added; the others may have been.

    A segment takes in some windows, the next one twice as many, up to about a million; one whose
    windows have all ended before an instant is dropped with :meth:`forget`. Each window is five
    bits of one 64-bit word (a blocked Bloom filter, Putze, Sanders and Singler 2007), so that a
    look-up reads memory once; at two bytes a window, less than one in a hundred that were not added
    is taken for one.
    """

    def __init__(self) -> None:
        self._segments: list[_Segment] = []

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(segment.words.nbytes for segment in self._segments)

    def add(self, keys: Int64Array, start: Int64Array, end: Int64Array) -> None:
        """Add windows. O(n)."""
        at = 0
        while at < len(keys):
            if not self._segments or self._segments[-1].room <= 0:
                rows = 2 * self._segments[-1].rows if self._segments else _FEW
                self._segments.append(_Segment(min(rows, _MANY)))
            stop = at + self._segments[-1].room
            part = slice(at, stop)
            self._segments[-1].add(mixed((keys[part], start[part], end[part])), end[part])
            at = stop

    def may_hold(self, keys: Int64Array, start: Int64Array, end: Int64Array) -> NDArray[np.bool_]:
        """Return which windows may have been added, bool, shape (n,). O(n) per segment."""
        found = np.zeros(len(keys), dtype=np.bool_)
        hashes: Words | None = None
        for segment in self._segments:
            inside = (end >= segment.first) & (end <= segment.last)
            if inside.any():
                if hashes is None:
                    hashes = mixed((keys, start, end))
                at = np.flatnonzero(inside & ~found)
                found[at] = segment.may_hold(hashes[at])
        return found

    def forget(self, before: int) -> None:
        """Release segments whose windows all end before an instant."""
        self._segments = [segment for segment in self._segments if segment.last >= before]


@final
class _Segment:
    def __init__(self, rows: int) -> None:
        self.words: Words = np.zeros(rows * _BITS_PER_ROW // _WORD_BITS, dtype=np.uint64)
        self.rows = self.room = rows
        self.first = END_OF_TIME
        self.last = START_OF_TIME

    def add(self, hashes: Words, end: Int64Array) -> None:
        place, bits = self._bits(hashes)
        np.bitwise_or.at(self.words, place, bits)
        self.room -= len(hashes)
        self.first = min(self.first, int(end.min()))
        self.last = max(self.last, int(end.max()))

    def may_hold(self, hashes: Words) -> NDArray[np.bool_]:
        place, bits = self._bits(hashes)
        return (self.words[place] & bits) == bits

    def _bits(self, hashes: Words) -> tuple[NDArray[np.int64], Words]:
        """Return the word of each window, from the high bits, and its bits, from the low ones."""
        width = len(self.words).bit_length() - 1
        place = (hashes >> np.uint64(64 - width)).astype(np.int64)
        bits = np.zeros(len(hashes), dtype=np.uint64)
        for nth in range(_BITS):
            bits |= np.uint64(1) << ((hashes >> np.uint64(6 * nth)) & np.uint64(63))
        return place, bits
