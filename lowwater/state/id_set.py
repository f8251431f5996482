"""An exact set of ids that expire, kept in a store, with Bloom filters in front of it.

In the store the ids of a commit are a run, sorted by hash and cut into pages of about 512 ids,
under the stretch of time that their expiry lies in, so that what has expired is a range::

    prefix   level    number     run      page       ->   hashes | expiries | lengths | ids
             1 byte   8 bytes    4 bytes  4 bytes

A page is one row, because writing or reading a row costs far more than a few thousand bytes in it.
Runs are only appended. When eight of about one size have come together they are merged into one,
unless they are large, so an id is written a few times in all, however small the commits.

Stretch ``number`` of a level is ``[number * size, (number + 1) * size)`` where ``size`` is the
usual time to live, doubled ``level`` times. Ids that live long are in long stretches: so there are
few stretches at a time, about two per level in use, however far apart the expiries lie.

In memory each stretch has a Bloom filter and each run another one, about four bytes per id, and
there are the ids that are not written yet. A filter that says no is right; if both say perhaps, the
page is read that has the id, if any has.
"""

from __future__ import annotations

from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from lowwater.errors import InternalError, StateError
from lowwater.state.id_columns import HashFilter, IdColumns
from lowwater.state.id_runs import PLACE, IdRun, StoredIdRun, may_have
from lowwater.state.key_layout import decode_int64, encode_int64, prefix_range
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

Stretch: TypeAlias = tuple[int, int]
"""Level and number."""

_ROOM = 1 << 14
_LONGEST = 1 << 62
_HEAD = 9
_LARGE = 1 << 14
_MERGED = 8
"""Runs of about one size that are merged: the sizes differ at most by this factor."""
_OCTAVE = (_MERGED - 1).bit_length()
_LARGEST = 1 << 20
"""Ids that are merged at a time, at most: they are in memory meanwhile."""


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
        self._stretches: dict[Stretch, _StretchIds] = {}
        self._dropped: list[Stretch] = []
        self._origin: int | None = None
        self.look_ups = 0

    def __len__(self) -> int:
        """Return how many ids the filters stand for: those that expired in a live stretch too."""
        return sum(len(one.filter) for one in self._stretches.values())

    @property
    def size_bytes(self) -> int:
        """Memory the filters take."""
        return sum(one.size_bytes for one in self._stretches.values())

    def known(self, ids: IdColumns, watermark: int) -> NDArray[np.bool_]:
        """Return which of some ids are remembered at a watermark; bool, shape (n,).

        O(ids * stretches) look-ups in filters; a page is read for those that pass. Fastest where
        the ids are sorted by hash: filters, runs and pages are then gone through in order.
        """
        found = np.zeros(len(ids), dtype=np.bool_)
        for stretch in self._stretches.values():
            rows = np.flatnonzero(stretch.filter.perhaps(ids.hashes) & ~found)
            if not rows.size:
                continue
            for run in stretch.fresh:
                found[list(run.remembers(ids, rows, watermark))] = True
            for stored in stretch.runs:
                self._look_up(stored, ids, rows[~found[rows]], watermark, found)
        return found

    def _look_up(
        self,
        run: StoredIdRun,
        ids: IdColumns,
        rows: Int64Array,
        watermark: int,
        found: NDArray[np.bool_],
    ) -> None:
        """Mark those of some ids, by row, that a stored run has and that have not expired."""
        at, keys = run.keys(ids.hashes[rows])
        if not keys:
            return
        self.look_ups += len(keys)
        by_page: dict[bytes, list[int]] = {}
        for key, row in zip(keys, rows[at].tolist(), strict=True):
            by_page.setdefault(key, []).append(row)
        pages = self._opened().get(list(by_page))
        for page, own in zip(pages, by_page.values(), strict=True):
            if page is None:
                raise _damaged()
            asked = np.array(own, dtype=np.int64)
            if may_have(page, ids.hashes[asked]):
                found[list(IdRun.from_bytes(page).remembers(ids, asked, watermark))] = True

    def add(self, ids: IdColumns, expiry: Int64Array, watermark: int) -> None:
        """Remember ids that are not: distinct, sorted by hash, expiring after the watermark."""
        if not len(ids):
            return
        run = IdRun(ids, expiry)
        first, last = int(expiry.min()), int(expiry.max())
        # From the first watermark on, levels rise with the expiry: where its ends agree, nothing is
        # to be split. Before that they do not, as ids may expire before the time taken for it.
        ends = expiry if watermark == START_OF_TIME else np.array([first, last])
        reached = self._levels(ends, watermark)
        low, high = int(reached.min()), int(reached.max())
        levels = None if low == high else self._levels(expiry, watermark)
        for level in range(low, high + 1):
            size = self._length(level)
            if levels is None and first // size == last // size:
                self._stretch((level, first // size)).add(run)
                continue
            there = np.flatnonzero(levels == level) if levels is not None else np.arange(len(ids))
            numbers = expiry[there] // size
            for number in np.unique(numbers).tolist():
                self._stretch((level, number)).add(run.at(there[numbers == number]))

    def forget(self, watermark: int) -> None:
        """Drop the stretches that a watermark has passed. O(stretches)."""
        for stretch in [s for s in self._stretches if self._is_over(s, watermark)]:
            del self._stretches[stretch]
            self._dropped.append(stretch)

    def save(self, batch: Batch, watermark: int) -> None:
        """Add what changed since the last time to a batch, which is committed before the next use.

        Ids that came and expired in between are never written. Amortised O(ids added * log ids).
        """
        for level, number in self._dropped:
            batch.delete_range(*prefix_range(self._head((level, number))))
        self._dropped = []
        for stretch in self._stretches.values():
            if stretch.fresh and (crowd := stretch.crowd()):
                stretch.merge(crowd, batch, self._opened(), watermark)
            stretch.write(batch, watermark)

    def restore(self, store: StateStore, watermark: int) -> None:
        """Look in this store from now on, and take up what is there. O(ids in it).

        Raises:
            StateError: What is stored is damaged.
        """
        self._store = store
        skip = len(self._prefix)
        for key, value in store.scan(*prefix_range(self._prefix)):
            head = key[skip : skip + _HEAD]
            if len(key) != skip + _HEAD + PLACE.size:
                raise _damaged()
            number = decode_int64(np.frombuffer(head[1:], dtype=np.uint8))
            run, _ = PLACE.unpack_from(key, skip + _HEAD)
            self._stretch((head[0], int(number[0]))).load(run, IdRun.from_bytes(value), watermark)
        self.forget(watermark)

    def _check(self) -> None:
        """Assert every invariant; print the structure if one does not hold. O(ids unwritten)."""
        try:
            assert not self._stretches.keys() & set(self._dropped)
            for stretch, one in self._stretches.items():
                assert one.head == self._head(stretch)
                one._check()
        except AssertionError:
            print(f"StoredIds: dropped={self._dropped}")
            print({stretch: len(one.filter) for stretch, one in self._stretches.items()})
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

    def _stretch(self, stretch: Stretch) -> _StretchIds:
        one = self._stretches.get(stretch)
        if one is None:
            # It will likely hold as many as its neighbours.
            room = max((len(other.filter) for other in self._stretches.values()), default=0)
            room = max(_ROOM, room + room // 4)
            one = self._stretches[stretch] = _StretchIds(self._head(stretch), room)
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
class _StretchIds:
    """The ids of one stretch.

    Args:
        head: What its keys begin with.
        room: How many ids to expect.

    ``fresh`` are the runs that are not written yet: large ones, and small ones of which each is
    at least twice as large as the next. ``runs`` are those that are written.
    """

    def __init__(self, head: bytes, room: int) -> None:
        self.head = head
        self.filter = HashFilter(room)
        self.fresh: list[IdRun] = []
        self.runs: list[StoredIdRun] = []
        self._next = 0

    @property
    def size_bytes(self) -> int:
        """Memory the filters take."""
        return self.filter.size_bytes + sum(run.size_bytes for run in self.runs)

    def add(self, run: IdRun) -> None:
        """Add ids. Amortised O(n log n)."""
        self.filter.add(run.ids.hashes)
        self.fresh.append(run)
        while len(self.fresh) > 1 and len(self.fresh[-2]) < min(_LARGE, 2 * len(self.fresh[-1])):
            self.fresh[-2:] = [IdRun.merged(self.fresh[-2:])]

    def load(self, number: int, page: IdRun, watermark: int) -> None:
        """Note a stored page; pages come in the order of their keys."""
        if not self.runs or self.runs[-1].number != number:
            self.runs.append(StoredIdRun(self.head, number))
        self.runs[-1].load(page)
        self.filter.add(page.ids.hashes[page.expiry > watermark])
        self._next = max(self._next, number + 1)

    def crowd(self) -> list[StoredIdRun]:
        """Return the runs of about one size that are to be merged, if they are many."""
        alike: dict[int, list[StoredIdRun]] = {}
        for run in self.runs:
            alike.setdefault(len(run).bit_length() // _OCTAVE, []).append(run)
        for runs in alike.values():
            if len(runs) >= _MERGED and sum(map(len, runs)) <= _LARGEST:
                return runs
        return []

    def merge(
        self, old: list[StoredIdRun], batch: Batch, store: StateStore, watermark: int
    ) -> None:
        """Replace some runs by one, without what has expired."""
        kept: list[IdRun] = []
        for run in old:
            kept += [IdRun.from_bytes(value) for _, value in store.scan(*run.key_range)]
            batch.delete_range(*run.key_range)
        self.runs = [run for run in self.runs if run not in old]
        lasting = IdRun.merged(kept).lasting(watermark)
        if len(lasting):
            self._append(batch, lasting)

    def write(self, batch: Batch, watermark: int) -> None:
        """Write what is not written yet, as a run."""
        if not self.fresh:
            return
        lasting = IdRun.merged(self.fresh).lasting(watermark)
        self.fresh = []
        if len(lasting):
            self._append(batch, lasting)

    def _append(self, batch: Batch, run: IdRun) -> None:
        self.runs.append(StoredIdRun.write(batch, self.head, self._next, run))
        self._next += 1

    def _check(self) -> None:
        self.filter._check()
        for run in self.fresh:
            assert len(run.ids) == len(run.expiry) > 0
            assert (run.ids.hashes[1:] >= run.ids.hashes[:-1]).all()
            assert self.filter.perhaps(run.ids.hashes).all(), "a filter denies an id"
        numbers = [run.number for run in self.runs]
        assert numbers == sorted(set(numbers))
        assert all(number < self._next for number in numbers)


def _damaged() -> StateError:
    return StateError(
        "a stored record id is not as it must be",
        hint="The state is damaged: restore a copy, or reset it",
    )
