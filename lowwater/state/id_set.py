"""An exact set of ids that expire, kept in a store, with Bloom filters in front of it.

In the store an id is a row of its own, under the stretch of time that its expiry lies in, so that
what has expired is a range::

    prefix   level    number     id          ->   expiry
             1 byte   8 bytes    any bytes        8 bytes

Stretch ``number`` of a level is ``[number * size, (number + 1) * size)`` where ``size`` is the
usual time to live, doubled ``level`` times. Ids that live long are in long stretches: so there are
few stretches at a time, about two per level in use, however far apart the expiries lie.

In memory each stretch has a Bloom filter, one or two bytes per id, and there are the ids that are
not written yet. A filter that says no is right; if it says perhaps, the store is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, TypeAlias, final

import numpy as np
from rbloom import Bloom

from lowwater.errors import InternalError, StateError
from lowwater.state.key_layout import decode_int64, encode_int64, prefix_range
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

Stretch: TypeAlias = tuple[int, int]
"""Level and number."""

# One new id in a hundred costs a look-up per filter; a tenth of that would cost half as much
# memory again, and more time in the filter than it saves in the store.
_FALSE_POSITIVES = 0.01
_ROOM = 1 << 14
_GROWTH = 8
_LONGEST = 1 << 62
_HEAD = 9


@final
class StoredIds:
    """Remembers ids until they expire.

    What is added is found at once, and is in the store with the next :meth:`save`.

    Args:
        prefix: What its keys begin with in the store; no others may.
        size: How long an id usually lives, int microseconds, above zero.
    """

    def __init__(self, prefix: bytes, size: int) -> None:
        self._prefix = prefix
        self._size = size
        self._store: StateStore | None = None
        self._filters: dict[Stretch, _Filter] = {}
        self._heads: dict[Stretch, bytes] = {}
        self._unwritten: dict[bytes, int] = {}
        self._added: list[tuple[bytes, list[bytes], Int64Array]] = []
        self._dropped: list[Stretch] = []
        self._origin: int | None = None
        self.look_ups = 0

    def __len__(self) -> int:
        """Return how many ids the filters stand for: those that expired in a live stretch too."""
        return sum(len(one) for one in self._filters.values())

    @property
    def size_bytes(self) -> int:
        """Memory the filters take."""
        return sum(one.size_bytes for one in self._filters.values())

    def known(self, ids: Sequence[bytes], watermark: int) -> set[bytes]:
        """Return those of some ids that are remembered at a watermark.

        O(ids * stretches) look-ups in filters; one of rows for those that pass.
        """
        found: set[bytes] = set()
        asked: list[bytes] = []
        keys: list[bytes] = []
        unwritten = self._unwritten
        for stretch, one in self._filters.items():
            head = self._heads[stretch]
            for each in set(one.perhaps(ids)):
                if unwritten.get(each, START_OF_TIME) > watermark:
                    found.add(each)
                else:
                    asked.append(each)
                    keys.append(head + each)
        if not keys:
            return found
        self.look_ups += len(keys)
        for each, value in zip(asked, self._opened().get(keys), strict=True):
            if value is not None and _expiry(value) > watermark:
                found.add(each)
        return found

    def add(self, ids: Sequence[bytes], expiry: Int64Array, watermark: int) -> None:
        """Remember ids that are not: distinct, each expiring after the watermark."""
        if not len(ids):
            return
        levels = self._levels(expiry, watermark)
        for level in np.unique(levels).tolist():
            there = levels == level
            numbers = np.where(there, expiry // self._length(level), 0)
            for number in np.unique(numbers[there]).tolist():
                chosen = there & (numbers == number)
                some = list(compress(ids, chosen.tolist()))
                until = expiry[chosen]
                self._filter((level, number)).add(some)
                self._unwritten.update(zip(some, until.tolist(), strict=True))
                self._added.append((self._heads[level, number], some, until))

    def forget(self, watermark: int) -> None:
        """Drop the stretches that a watermark has passed. O(stretches)."""
        for stretch in [s for s in self._filters if self._is_over(s, watermark)]:
            del self._filters[stretch], self._heads[stretch]
            self._dropped.append(stretch)
        if not self._filters:
            self._unwritten, self._added = {}, []

    def save(self, batch: Batch, watermark: int) -> None:
        """Add what changed since the last time to a batch, which is committed before the next use.

        Ids that came and expired in between are never written. O(ids added).
        """
        for level, number in self._dropped:
            batch.delete_range(*prefix_range(self._head((level, number))))
        self._dropped = []
        for head, ids, expiry in self._added:
            left = expiry > watermark  # also: not added again since
            values: list[Any] = encode_int64(expiry[left]).view("V8").reshape(-1).tolist()
            batch.put([head + each for each in compress(ids, left.tolist())], values)
        self._unwritten, self._added = {}, []

    def restore(self, store: StateStore, watermark: int) -> None:
        """Look in this store from now on, and take up what is there. O(ids in it).

        Raises:
            StateError: What is stored is damaged.
        """
        self._store = store
        skip = len(self._prefix)
        found: dict[Stretch, list[bytes]] = {}
        for key, value in store.scan(*prefix_range(self._prefix)):
            head = key[skip : skip + _HEAD]
            if len(head) < _HEAD:
                raise _damaged()
            number = decode_int64(np.frombuffer(head[1:], dtype=np.uint8))
            stretch = (head[0], int(number[0]))
            ids = found.setdefault(stretch, [])
            if _expiry(value) > watermark:
                ids.append(key[skip + _HEAD :])
        for stretch, ids in found.items():
            self._filter(stretch).add(ids)
        self.forget(watermark)

    def _check(self) -> None:
        """Assert every invariant; print the structure if one does not hold. O(ids unwritten)."""
        try:
            assert self._filters.keys() == self._heads.keys()
            assert not self._filters.keys() & set(self._dropped)
            for stretch, one in self._filters.items():
                assert self._heads[stretch] == self._head(stretch)
                one._check()
            by_head = {head: self._filters[stretch] for stretch, head in self._heads.items()}
            for head, ids, expiry in self._added:
                assert len(ids) == len(set(ids)) == len(expiry)
                assert self._unwritten.keys() >= set(ids)
                if head in by_head:  # not dropped since
                    assert set(by_head[head].perhaps(ids)) == set(ids), "a filter denies an id"
        except AssertionError:
            print(f"StoredIds: {len(self._unwritten)} unwritten, dropped={self._dropped}")
            print({stretch: len(one) for stretch, one in self._filters.items()})
            raise

    def _levels(self, expiry: Int64Array, watermark: int) -> Int64Array:
        """Return which level each id belongs to: how often its time to live doubles the usual."""
        now = watermark
        if now == START_OF_TIME:  # there is no watermark yet: take the first ids' own time for it
            if self._origin is None:
                self._origin = int(np.median(expiry)) - self._size
            now = self._origin
        _, exponent = np.frexp((expiry.astype(np.float64) - float(now)) / self._size)
        levels: Int64Array = np.maximum(exponent.astype(np.int64) - 1, 0)
        return levels

    def _length(self, level: int) -> int:
        return min(self._size << level, _LONGEST)

    def _is_over(self, stretch: Stretch, watermark: int) -> bool:
        level, number = stretch
        return watermark == END_OF_TIME or (number + 1) * self._length(level) <= watermark

    def _filter(self, stretch: Stretch) -> _Filter:
        one = self._filters.get(stretch)
        if one is None:
            # It will likely hold as many as its neighbours.
            room = max((len(other) for other in self._filters.values()), default=0)
            one = self._filters[stretch] = _Filter(max(_ROOM, room + room // 4))
            self._heads[stretch] = self._head(stretch)
        return one

    def _head(self, stretch: Stretch) -> bytes:
        level, number = stretch
        place = encode_int64(np.array([number], dtype=np.int64)).tobytes()
        return self._prefix + bytes([level]) + place

    def _opened(self) -> StateStore:
        if self._store is None:
            raise InternalError("restore was not called")
        return self._store


@final
class _Filter:
    """Says of an id that it was not added, or that it may have been: Bloom filters as it grows."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._left = room
        self._count = 0
        self._blooms = [Bloom(room, _FALSE_POSITIVES)]

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        return sum(bloom.size_in_bits for bloom in self._blooms) // 8

    def add(self, ids: Sequence[bytes]) -> None:
        at = 0
        while at < len(ids):
            if not self._left:
                self._room *= _GROWTH
                self._left = self._room
                self._blooms.append(Bloom(self._room, _FALSE_POSITIVES))
            part = ids[at : at + self._left]
            self._blooms[-1].update(part)
            self._left -= len(part)
            at += len(part)
        self._count += len(ids)

    def _check(self) -> None:
        rooms = [self._room // _GROWTH**age for age in reversed(range(len(self._blooms)))]
        assert 0 <= self._left <= self._room
        assert self._count == sum(rooms) - self._left

    def perhaps(self, ids: Sequence[bytes]) -> Iterator[bytes]:
        """Yield those of some ids that may have been added."""
        for bloom in self._blooms:
            yield from filter(bloom.__contains__, ids)


def _expiry(value: bytes) -> int:
    if len(value) != 8:
        raise _damaged()
    return int.from_bytes(value) + START_OF_TIME


def _damaged() -> StateError:
    return StateError(
        "a stored record id is not as it must be",
        hint="The state is damaged: restore a copy, or reset it",
    )
