"""Bags: any number of values per row of a table, in order of arrival."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from lowwater.kernels import kernels
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import (
    expand_ranges,
    object_bytes,
    run_starts,
    sort_by_key_and_time,
)
from lowwater.time import Int64Array

_NONE = -1
_MIN_POOL = 256


@final
class Bag:
    """Values per row, pooled: a row is a chain of pieces, each a stretch of the pool.

    Appending costs O(n log n) per bundle, whatever the bags hold. Reading a row's values costs
    their number; a row made of many pieces is put into one stretch as it is read. What removed
    rows leave behind is reclaimed once it is half of the pool.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self._values: NDArray[Any] = np.empty(_MIN_POOL, dtype=dtype)
        self._arrivals: Int64Array = np.empty(_MIN_POOL, dtype=np.int64)
        self._used = 0
        self._held = 0
        self._piece_start: Int64Array = np.empty(_MIN_POOL, dtype=np.int64)
        self._piece_count: Int64Array = np.empty(_MIN_POOL, dtype=np.int64)
        self._piece_next: Int64Array = np.empty(_MIN_POOL, dtype=np.int64)
        self._pieces = 0
        self._head: Int64Array = np.full(_MIN_POOL, _NONE, dtype=np.int64)
        self._tail: Int64Array = np.full(_MIN_POOL, _NONE, dtype=np.int64)
        self._count: Int64Array = np.zeros(_MIN_POOL, dtype=np.int64)

    def __len__(self) -> int:
        """Return the number of values held by all rows."""
        return self._held

    @property
    def nbytes(self) -> int:
        """Bytes that the values held take, about; of objects a sample is weighed."""
        each: float = self.dtype.itemsize
        if self.dtype.kind == "O":
            each = 8 + object_bytes(self._values[: self._used])
        return int((each + 2 * (8 + 24)) * self._held)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        return self._values.dtype

    def retype(self, dtype: DTypeLike) -> None:
        """Change the dtype of the values."""
        with np.errstate(invalid="ignore"):  # what is in no use holds anything
            self._values = self._values.astype(dtype)

    def counts(self, rows: Int64Array) -> Int64Array:
        """Return how many values each row holds."""
        self._cover(rows)
        return self._count[rows]

    def append(self, rows: Int64Array, values: NDArray[Any], arrivals: Int64Array) -> None:
        """Add ``values[i]`` to ``rows[i]``; a row may come many times. ``arrivals`` rise."""
        if not len(rows):
            return
        self._cover(rows)
        order = sort_by_key_and_time(rows, np.zeros(len(rows), dtype=np.int64))
        owner = rows[order]
        begin = np.flatnonzero(run_starts(owner))
        count = np.diff(np.append(begin, len(owner)))
        start = self._put(values[order], arrivals[order])
        self._link(owner[begin], self._new_pieces(start + begin, count), count)
        self._held += len(rows)

    def gather(self, rows: Int64Array) -> tuple[NDArray[Any], Int64Array]:
        """Return the values of rows one after another, in order of arrival, and how many each has.

        Returns:
            (values, counts): counts int64, shape (len(rows),).
        """
        values, _, counts = self.gather_with_arrivals(rows)
        return values, counts

    def gather_with_arrivals(self, rows: Int64Array) -> tuple[NDArray[Any], Int64Array, Int64Array]:
        """Return (values, arrival of each, counts), otherwise as :meth:`gather`."""
        self._cover(rows)
        place, _, arrivals, depth = self._walk_by_arrival(rows)
        counts = self._count[rows]
        values = self._values[place]
        if depth > 8:
            self._rewrite(rows, values, arrivals, counts)
        return values, arrivals, counts

    def replace(self, rows: Int64Array, owner: Int64Array, values: NDArray[Any]) -> None:
        """Replace all values of rows; the new ones have no order of arrival.

        Args:
            rows: Distinct rows.
            owner: The place in ``rows`` of the row of each value, rising.
            values: The values.
        """
        self._cover(rows)
        counts = np.bincount(owner, minlength=len(rows)).astype(np.int64)
        self._held += len(values) - int(self._count[rows].sum())
        self._rewrite(rows, values, np.zeros(len(values), dtype=np.int64), counts)

    def merge(self, into: Int64Array, rows: Int64Array) -> None:
        """Move all values of ``rows[i]`` to ``into[i]``; ``into`` may repeat, ``rows`` may not."""
        self._cover(np.concatenate((into, rows)))
        order = kernels().argsort(into)
        into, rows = into[order], rows[order]
        nth = np.arange(len(into)) - np.maximum.accumulate(
            np.where(run_starts(into), np.arange(len(into)), 0)
        )
        for turn in range(int(nth.max(initial=-1)) + 1):
            now = (nth == turn) & (self._count[rows] > 0)
            target, source = into[now], rows[now]
            fresh = self._head[target] == _NONE
            self._head[target[fresh]] = self._head[source[fresh]]
            linked = target[~fresh]
            self._piece_next[self._tail[linked]] = self._head[source[~fresh]]
            self._tail[target] = self._tail[source]
            self._count[target] += self._count[source]
        self._head[rows] = self._tail[rows] = _NONE
        self._count[rows] = 0

    def clear(self, rows: Int64Array) -> None:
        """Empty rows."""
        self._cover(rows)
        self._held -= int(self._count[rows].sum())
        self._head[rows] = self._tail[rows] = _NONE
        self._count[rows] = 0
        if self._used > _MIN_POOL and 2 * self._held < self._used:
            self._compact()

    def keep(
        self,
        rows: Int64Array,
        held: tuple[NDArray[Any], Int64Array, Int64Array],
        kept: NDArray[np.bool_],
    ) -> None:
        """Drop some of the values of rows.

        Args:
            rows: Distinct rows.
            held: What :meth:`gather_with_arrivals` gave for them: of another bag, arrivals and
                counts, if all its values came together with those of this one.
            kept: Which of the values stay, bool, the same shape.
        """
        values, arrivals, before = held
        which = repeated(np.arange(len(rows), dtype=np.int64), before)
        counts = np.bincount(which[kept], minlength=len(rows)).astype(np.int64)
        fewer = counts < before
        self._held -= int(before.sum() - counts.sum())
        if not fewer.all():
            kept = kept & fewer[which]
            rows, counts = rows[fewer], counts[fewer]
        self._rewrite(rows, values[kept], arrivals[kept], counts)

    def filled_rows(self) -> Int64Array:
        """Return all rows that hold something. O(rows)."""
        return np.flatnonzero(self._count)

    def _check(self) -> None:
        """Assert every invariant; print the structure if one does not hold. O(values)."""
        starts, counts, follows = self._piece_start, self._piece_count, self._piece_next
        chains: dict[int, list[int]] = {}
        try:
            assert self._used <= len(self._values) == len(self._arrivals)
            assert self._pieces <= len(starts) == len(counts) == len(follows)
            assert len(self._head) == len(self._tail) == len(self._count)
            assert int(self._count.sum()) == self._held <= self._used
            assert ((self._head == _NONE) == (self._count == 0)).all()
            assert ((self._tail == _NONE) == (self._count == 0)).all()
            for row in self.filled_rows().tolist():
                chain = chains[row] = [int(self._head[row])]
                while chain[-1] != self._tail[row]:
                    chain.append(int(follows[chain[-1]]))
                    assert len(chain) <= self._pieces, f"the chain of row {row} is a circle"
                assert follows[chain[-1]] == _NONE
                assert counts[chain].sum() == self._count[row], row
            pieces = [piece for chain in chains.values() for piece in chain]
            assert len(set(pieces)) == len(pieces), "a piece is in two chains"
            assert all(0 <= piece < self._pieces for piece in pieces)
            assert (counts[pieces] > 0).all()
            places, _ = expand_ranges(starts[pieces], counts[pieces])
            assert len(np.unique(places)) == len(places), "two pieces overlap"
            assert ((places >= 0) & (places < self._used)).all()
            for piece in pieces:
                came = self._arrivals[starts[piece] : starts[piece] + counts[piece]]
                assert (came[1:] >= came[:-1]).all(), "arrivals do not rise"
        except AssertionError:
            print(f"Bag: used={self._used} held={self._held} pieces={self._pieces}")
            print({row: [(starts[p], counts[p]) for p in chain] for row, chain in chains.items()})
            raise

    def _walk(self, rows: Int64Array) -> tuple[Int64Array, Int64Array, int]:
        """Return where the values of rows are, row after row; the row of each; the most pieces."""
        return kernels().follow_pieces(
            self._head[rows],
            self._piece_next,
            self._piece_start,
            self._piece_count,
            self._count[rows],
        )

    def _walk_by_arrival(self, rows: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array, int]:
        """Return what :meth:`_walk` does, a row's values by arrival, and their arrivals."""
        place, which, depth = self._walk(rows)
        arrivals = self._arrivals[place]
        if ((which[1:] == which[:-1]) & (arrivals[1:] < arrivals[:-1])).any():  # rows were merged
            order = sort_by_key_and_time(which, arrivals)
            place, which, arrivals = place[order], which[order], arrivals[order]
        return place, which, arrivals, depth

    def _put(self, values: NDArray[Any], arrivals: Int64Array) -> int:
        start, stop = self._used, self._used + len(values)
        if stop > len(self._values):
            room = max(stop, 2 * len(self._values))
            self._values = _resized(self._values, room)
            self._arrivals = _resized(self._arrivals, room)
        self._values[start:stop] = values
        self._arrivals[start:stop] = arrivals
        self._used = stop
        return start

    def _new_pieces(self, start: Int64Array, count: Int64Array) -> Int64Array:
        first, stop = self._pieces, self._pieces + len(start)
        if stop > len(self._piece_start):
            room = max(stop, 2 * len(self._piece_start))
            self._piece_start = _resized(self._piece_start, room)
            self._piece_count = _resized(self._piece_count, room)
            self._piece_next = _resized(self._piece_next, room)
        self._piece_start[first:stop] = start
        self._piece_count[first:stop] = count
        self._piece_next[first:stop] = _NONE
        self._pieces = stop
        return np.arange(first, stop, dtype=np.int64)

    def _link(self, rows: Int64Array, pieces: Int64Array, count: Int64Array) -> None:
        fresh = self._head[rows] == _NONE
        self._head[rows[fresh]] = pieces[fresh]
        linked = ~fresh
        self._piece_next[self._tail[rows[linked]]] = pieces[linked]
        self._tail[rows] = pieces
        self._count[rows] += count

    def _rewrite(
        self, rows: Int64Array, values: NDArray[Any], arrivals: Int64Array, counts: Int64Array
    ) -> None:
        start = self._put(values, arrivals)
        self._head[rows] = self._tail[rows] = _NONE
        self._count[rows] = 0
        some = counts > 0
        begin = np.cumsum(counts) - counts
        count = counts[some]
        self._link(rows[some], self._new_pieces(start + begin[some], count), count)
        if self._used > _MIN_POOL and 2 * self._held < self._used:
            self._compact()

    def _compact(self) -> None:
        rows = self.filled_rows()
        place, _, arrivals, _ = self._walk_by_arrival(rows)
        values, counts = self._values[place], self._count[rows]
        room = max(_MIN_POOL, 2 * len(values))
        self._values = np.empty(room, dtype=values.dtype)
        self._arrivals = np.empty(room, dtype=np.int64)
        self._used = self._pieces = 0
        size = max(_MIN_POOL, 2 * len(rows))
        self._piece_start, self._piece_count, self._piece_next = (
            np.empty(size, dtype=np.int64) for _ in range(3)
        )
        self._rewrite(rows, values, arrivals, counts)

    def _cover(self, rows: Int64Array) -> None:
        need = int(rows.max(initial=-1)) + 1
        if need > len(self._head):
            room = max(need, 2 * len(self._head))
            self._head = _resized(self._head, room, _NONE)
            self._tail = _resized(self._tail, room, _NONE)
            self._count = _resized(self._count, room, 0)


def _resized(array: NDArray[Any], room: int, fill: int | None = None) -> NDArray[Any]:
    new = np.empty(room, dtype=array.dtype)
    new[: len(array)] = array
    if fill is not None:
        new[len(array) :] = fill
    return new
