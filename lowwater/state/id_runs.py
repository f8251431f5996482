"""Runs of record ids: sorted by hash, and stored in pages of which a look-up reads one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import final

import numpy as np

from lowwater.state.formats import damaged
from lowwater.state.id_columns import HashFilter, IdColumns
from lowwater.state.store import Batch
from lowwater.state.xxh64 import UInt64Array
from lowwater.time import Int64Array

PAGE = 512
"""About the number of ids of a page."""
PLACE = Struct(">II")
"""The number of a run in its stretch, and of a page in its run."""

_COUNT = Struct("<I")
_HASH, _EXPIRY, _LENGTH = np.dtype("<u8"), np.dtype("<i8"), np.dtype("<u4")
_SIZES = (_HASH.itemsize, _EXPIRY.itemsize, _LENGTH.itemsize)
_PER_ID = sum(_SIZES)


@final
@dataclass(frozen=True, slots=True)
class IdRun:
    """Distinct ids in memory, sorted by hash.

    Args:
        ids: The ids.
        expiry: The watermark at which each is forgotten, int64, shape (n,).
    """

    ids: IdColumns
    expiry: Int64Array

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def merged(cls, runs: Sequence[IdRun]) -> IdRun:
        """Return the ids of some runs, at least one. O(n log n)."""
        if len(runs) == 1:
            return runs[0]
        ids, order = IdColumns.concat([run.ids for run in runs]).sorted()
        return cls(ids, np.concatenate([run.expiry for run in runs])[order])

    def lasting(self, watermark: int) -> IdRun:
        """Return the ids that have not expired at a watermark."""
        return self.at(np.flatnonzero(self.expiry > watermark))

    def at(self, rows: Int64Array) -> IdRun:
        """Return the ids at ``rows``, ascending."""
        return self if len(rows) == len(self) else IdRun(self.ids.take(rows), self.expiry[rows])

    def remembers(self, ids: IdColumns, rows: Int64Array, watermark: int) -> Iterator[int]:
        """Yield which of some ids, by row, are here and have not expired."""
        hashes = self.ids.hashes
        wanted = ids.hashes[rows]
        at = np.searchsorted(hashes, wanted)
        found = np.flatnonzero(hashes[np.minimum(at, len(hashes) - 1)] == wanted)
        for row, place in zip(rows[found].tolist(), at[found].tolist(), strict=True):
            one, own, at_hand = ids[row], ids.hashes[row], place
            while at_hand < len(hashes) and hashes[at_hand] == own:  # hashes may collide
                if self.ids[at_hand] == one:
                    if self.expiry[at_hand] > watermark:
                        yield row
                    break
                at_hand += 1

    def pages(self) -> tuple[UInt64Array, list[bytes]]:
        """Cut the run into pages, ids of one hash in one page. O(bytes).

        Returns:
            (the first hash of each page, its stored form).
        """
        hashes = self.ids.hashes
        bounds = [0]
        while bounds[-1] < len(hashes):
            stop = min(bounds[-1] + PAGE, len(hashes))
            while stop < len(hashes) and hashes[stop] == hashes[stop - 1]:
                stop += 1
            bounds.append(stop)
        lengths = self.ids.lengths
        ends = np.cumsum(lengths)[np.array(bounds[1:]) - 1]
        # Views of whole columns: a page is then a few slices, joined.
        columns = [
            np.ascontiguousarray(column, dtype=kind).data.cast("B")
            for column, kind in ((hashes, _HASH), (self.expiry, _EXPIRY), (lengths, _LENGTH))
        ]
        data = np.ascontiguousarray(self.ids.buffer()).data
        pages = []
        begin = 0
        for (start, stop), end in zip(pairwise(bounds), ends.tolist(), strict=True):
            one, two, three = (
                column[start * size : stop * size]
                for column, size in zip(columns, _SIZES, strict=True)
            )
            pages.append(b"".join((_COUNT.pack(stop - start), one, two, three, data[begin:end])))
            begin = end
        return hashes[bounds[:-1]], pages

    @classmethod
    def from_bytes(cls, value: bytes) -> IdRun:
        """Return the ids of a page of :meth:`pages`.

        Raises:
            StateError: The bytes are damaged.
        """
        hashes = _hashes(value)
        count, at = len(hashes), _COUNT.size
        head = at + count * _PER_ID
        expiry = np.frombuffer(value, _EXPIRY, count, at + _HASH.itemsize * count)
        lengths = np.frombuffer(value, _LENGTH, count, head - _LENGTH.itemsize * count)
        data = np.frombuffer(value, np.uint8, offset=head)
        if int(lengths.sum(dtype=np.int64)) != len(data) or (hashes[1:] < hashes[:-1]).any():
            raise damaged("stored record ids", "a page does not have the ids that it announces")
        ids = IdColumns.packed(lengths.astype(np.int64), data, hashes.astype(np.uint64))
        return cls(ids, expiry.astype(np.int64))


def may_have(page: bytes, hashes: UInt64Array) -> bool:
    """Return whether a stored page has an id with one of some hashes.

    Raises:
        StateError: The bytes are damaged.
    """
    own = _hashes(page)
    at = np.minimum(own.searchsorted(hashes), len(own) - 1)
    return bool((own[at] == hashes).any())


def _hashes(page: bytes) -> UInt64Array:
    if len(page) < _COUNT.size:
        raise damaged("stored record ids", f"a page has {len(page)} bytes")
    (count,) = _COUNT.unpack_from(page)
    if not count or len(page) < _COUNT.size + count * _PER_ID:
        raise damaged("stored record ids", f"a page of {count} ids has {len(page)} bytes")
    hashes: UInt64Array = np.frombuffer(page, _HASH, count, _COUNT.size)
    return hashes


@final
class StoredIdRun:
    """A run in the store: only its filter and the first hash of each page are in memory.

    Args:
        prefix: What the keys of its stretch begin with.
        number: Its number in the stretch.
    """

    def __init__(self, prefix: bytes, number: int) -> None:
        self._prefix = prefix
        self.number = number
        self._firsts: list[int] = []
        self._pages: UInt64Array = np.zeros(0, dtype=np.uint64)
        self._filter = HashFilter(PAGE)

    def __len__(self) -> int:
        return len(self._filter)

    @property
    def size_bytes(self) -> int:
        """Memory it takes."""
        return self._filter.size_bytes + self._pages.nbytes

    @property
    def key_range(self) -> tuple[bytes, bytes]:
        """The first key of its pages, and the first one behind them."""
        return self._prefix + PLACE.pack(self.number, 0), self._prefix + PLACE.pack(
            self.number + 1, 0
        )

    @classmethod
    def write(cls, batch: Batch, prefix: bytes, number: int, run: IdRun) -> StoredIdRun:
        """Add the pages of a run to a batch, and return it as it is then stored."""
        stored = cls(prefix, number)
        stored._filter = HashFilter(len(run))
        stored._filter.add(run.ids.hashes)
        firsts, pages = run.pages()
        stored._firsts = firsts.tolist()
        keys = [prefix + PLACE.pack(number, at) for at in range(len(pages))]
        batch.put(keys, pages)
        return stored

    def load(self, page: IdRun) -> None:
        """Note the next page of the run."""
        self._firsts.append(int(page.ids.hashes[0]))
        self._filter.add(page.ids.hashes)

    def keys(self, hashes: UInt64Array) -> tuple[Int64Array, list[bytes]]:
        """Return which of some hashes may be here, and the key of the page of each."""
        if len(self._pages) != len(self._firsts):
            self._pages = np.array(self._firsts, dtype=np.uint64)
        rows = np.flatnonzero(self._filter.perhaps(hashes))
        page = np.searchsorted(self._pages, hashes[rows], side="right") - 1
        rows, page = rows[page >= 0], page[page >= 0]
        return rows, [self._prefix + PLACE.pack(self.number, at) for at in page.tolist()]
