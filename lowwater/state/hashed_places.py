"""Values in the store that are found by the hash of a key, and queues of them by an instant.

Names begin with what a user says, and end with the hash of a key, or with it and the place of the
key among others of that hash. A value is in the key group that its hash says.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from lowwater.state.arrays import run_starts
from lowwater.state.key_layout import StoredPlace, encode_int64, prefix_range
from lowwater.state.row_codec import joined, rows_as_bytes
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, Int64Array

Hashes: TypeAlias = NDArray[np.uint64]

HASH_BYTES = 8
_HASH = np.dtype(">u8")
_PLACE_BYTES = 8
_AHEAD = 8_192
"""Entries of a queue that are read ahead: of those of all key groups, the first ones."""
_RANGE = 64
"""So many entries of a range are deleted as a range: few ranges keep reads fast."""


def encode_hashes(hashes: Hashes) -> NDArray[np.uint8]:
    """Return hashes as they are stored, uint8, shape (n, 8)."""
    return hashes.astype(_HASH).view(np.uint8).reshape(-1, HASH_BYTES)


def hash_names(hashes: Hashes) -> list[bytes]:
    """Return hashes as they are stored."""
    return rows_as_bytes(encode_hashes(hashes))


def hashes_of(names: Sequence[bytes]) -> Hashes:
    """Return the hashes in names, or in entries of queues: of a hash alone, or of one and a place.

    A name of a hash is 8 bytes, and its entry in a queue 16; others are longer.
    """
    if not names:
        return np.zeros(0, dtype=np.uint64)
    width = len(names[0])
    after = HASH_BYTES if width <= 2 * HASH_BYTES else HASH_BYTES + _PLACE_BYTES
    at = width - after
    hashes = joined(list(names), width)[:, at : at + HASH_BYTES]
    return np.ascontiguousarray(hashes).reshape(-1).view(_HASH).astype(np.uint64)


def distinct_hashes(hashes: Hashes) -> Hashes:
    """Return each hash once, rising: so names of them are."""
    rising = np.sort(hashes)
    return rising[run_starts(rising.view(np.int64))]


@final
class Places:
    """Where values are in the store, by the key group that their hash says.

    Args:
        place: Where they are.
        table: Their tag.
    """

    def __init__(self, place: StoredPlace, table: int) -> None:
        self._count = np.uint64(place.count)
        self.prefixes = [place.prefix(table, group) for group in place.groups]

    def groups(self, hashes: Hashes) -> Hashes:
        """Return the key group of each hash, from 0: what keys of the store are sorted by first."""
        return hashes % self._count

    def keys(self, names: Sequence[bytes], hashes: Hashes) -> list[bytes]:
        """Return the keys of the store for names that have these hashes."""
        if len(self.prefixes) == 1:
            (prefix,) = self.prefixes
            return [prefix + name for name in names]
        groups = self.groups(hashes).tolist()
        return [self.prefixes[at] + name for at, name in zip(groups, names, strict=True)]

    def put(
        self, batch: Batch, names: Sequence[bytes], hashes: Hashes, values: Sequence[bytes]
    ) -> None:
        """Write values under names that have these hashes."""
        batch.put(self.keys(names, hashes), values)

    def delete(self, batch: Batch, names: Sequence[bytes], hashes: Hashes) -> None:
        """Delete what is stored under names that have these hashes."""
        batch.delete(self.keys(names, hashes))

    def get(self, store: StateStore, names: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values of names that have any, in the order of the store."""
        keys = sorted(self.keys(names, hashes_of(names)))
        head = len(self.prefixes[0])  # that of all tables of a stage
        pairs = zip(keys, store.get(keys), strict=True)
        return {key[head:]: value for key, value in pairs if value is not None}

    def clear(self, batch: Batch) -> None:
        """Delete all."""
        for prefix in self.prefixes:
            batch.delete_range(*prefix_range(prefix))

    def scans(
        self, store: StateStore, low: bytes = b"", high: bytes | None = None
    ) -> Iterator[Iterator[tuple[bytes, bytes]]]:
        """Yield, for each key group, an iterator of (name, value), perhaps in a range of names."""
        for prefix in self.prefixes:
            stop = prefix_range(prefix)[1] if high is None else prefix + high
            found = store.scan(prefix + low, stop)
            yield ((key[len(prefix) :], value) for key, value in found)


@final
class Queue:
    """Names of values by an instant, in the store.

    Args:
        place: Where they are stored.
        table: Their tag.
        ends: Whether the end of time is an instant like others; else it stands for never.
    """

    def __init__(self, place: StoredPlace, table: int, *, ends: bool = False) -> None:
        self._places = Places(place, table)
        self._ends = ends
        self.first = END_OF_TIME
        """No name of what is not in memory comes before it."""

    def upto(self, store: StateStore, to: int) -> Iterator[tuple[int, bytes]]:
        """Yield (instant, name) until then, in order: those too that are in memory by now."""
        if self.first > to:
            return
        high = None if to >= END_OF_TIME else encode_instant(to + 1)
        low = encode_instant(self.first)
        for found in merged(list(self._places.scans(store, low, high)), _AHEAD):
            for tail, _ in found:
                yield decode_instant(tail), tail[8:]

    def after(self, store: StateStore, to: int) -> int:
        """Return an instant after ``to`` that no later name comes before."""
        if to >= END_OF_TIME:
            return END_OF_TIME
        if self.first > to:
            return self.first
        firsts = [next(scan, None) for scan in self._places.scans(store, encode_instant(to + 1))]
        return min(
            (decode_instant(one[0]) for one in firsts if one is not None), default=END_OF_TIME
        )

    def change(self, batch: Batch, old: set[bytes], new: set[bytes], passed: int | None) -> None:
        """Replace the entries that names had by those that they have.

        Args:
            batch: The batch.
            old: The entries.
            new: Those to be.
            passed: All entries until then are among the old ones; ``None``: not known.
        """
        gone, fresh = sorted(old - new), sorted(new - old)
        if passed is not None:
            bound = encode_instant(min(passed, END_OF_TIME - 1) + 1)
            until = bisect_left(gone, bound)
            if until >= _RANGE:
                gone = gone[until:]
                for prefix in self._places.prefixes:
                    batch.delete_range(prefix, prefix + bound)
        batch.delete(self._keys(gone))
        batch.put(self._keys(fresh), [b""] * len(fresh))
        if new:  # those too that stay as they are: what they are of has left memory again
            self.first = min(self.first, decode_instant(min(new)))

    def clear(self, batch: Batch) -> None:
        """Delete all entries."""
        self._places.clear(batch)

    def entries(self, names: Sequence[bytes], times: Int64Array) -> set[bytes]:
        """Return the entries of names with these instants."""
        if not self._ends:
            some = np.flatnonzero(times != END_OF_TIME)
            names, times = [names[at] for at in some.tolist()], times[some]
        encoded = rows_as_bytes(encode_int64(times))
        return {time + name for time, name in zip(encoded, names, strict=True)}

    def _keys(self, tails: list[bytes]) -> list[bytes]:
        return self._places.keys(tails, hashes_of(tails))


def merged(
    scans: Sequence[Iterator[tuple[bytes, bytes]]], most: int
) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield the rows of several scans in one order, some at a time: a sort costs less than a heap.

    Args:
        scans: The scans, each in order; no two have a row in common.
        most: How many rows to read ahead, about.
    """
    each = max(1, most // max(1, len(scans)))
    ahead = {at: list(islice(scan, each)) for at, scan in enumerate(scans)}
    while ahead := {at: rows for at, rows in ahead.items() if rows}:
        # A scan that ended had fewer rows than were asked for: it holds back no other one.
        last = min((rows[-1] for rows in ahead.values() if len(rows) >= each), default=None)
        found: list[tuple[bytes, bytes]] = []
        for at, rows in ahead.items():
            taken = len(rows) if last is None else bisect_right(rows, last)
            found += rows[:taken]
            # Filled up, all of them: or the one with the fewest left would cut the next turn short.
            ahead[at] = rows[taken:] + list(islice(scans[at], taken))
        found.sort()
        yield found


def some_of(found: Iterator[tuple[bytes, bytes]], most: int) -> Iterator[dict[bytes, bytes]]:
    """Yield what there is, so many at once."""
    while chunk := dict(islice(found, most)):
        yield chunk


def encode_instant(value: int) -> bytes:
    """Return an instant as bytes that sort as instants do."""
    return encode_int64(np.array([value], dtype=np.int64)).tobytes()


def decode_instant(tail: bytes) -> int:
    """Return the instant that bytes begin with."""
    return int.from_bytes(tail[:8]) - (1 << 63)
