"""Rows by deadline: the ones due are found without looking at the others."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import final

import numpy as np
from numpy.typing import NDArray

from lowwater.kernels import kernels
from lowwater.time import END_OF_TIME, Int64Array

_FEW = 16
_HEAP = 1024


@final
class Deadlines:
    """A queue of (instant, row) entries, held as few sorted runs of growing size.

    Entries are never taken back: whoever pops a row asks the row whether the entry still holds, so
    a deadline that moves later costs nothing until the earlier entry comes due. Pushing n entries
    is amortised O(n log size), popping O(due + log size).
    """

    def __init__(self) -> None:
        self._times: list[Int64Array] = []
        self._rows: list[np.ndarray[tuple[int, ...], np.dtype[np.int32]]] = []
        self._heads: list[int] = []
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        """Return the number of entries, those that no longer hold included."""
        return len(self._heap) + sum(map(len, self._times))

    @property
    def first(self) -> int:
        """The earliest entry's instant, or the end of time."""
        first = min(self._heads, default=END_OF_TIME)
        return min(first, self._heap[0][0]) if self._heap else first

    def push(self, times: Int64Array, rows: Int64Array) -> None:
        """Add entries; entries at the end of time are kept like others."""
        if len(times) <= _FEW:
            for entry in zip(times.tolist(), rows.tolist(), strict=True):
                heapq.heappush(self._heap, entry)
            if len(self._heap) <= _HEAP:
                return
            times, rows = (np.array(part, dtype=np.int64) for part in zip(*self._heap, strict=True))
            self._heap = []
        order = kernels().argsort(times)
        self._add_run(times[order], rows[order].astype(np.int32))

    def pop(self, upto: int) -> tuple[Int64Array, Int64Array]:
        """Remove and return all entries at or before ``upto``: (times, rows), in no order."""
        times: list[Int64Array] = []
        rows: list[Int64Array] = []
        for at in range(len(self._heads) - 1, -1, -1):
            if self._heads[at] > upto:
                continue
            count = int(np.searchsorted(self._times[at], upto, side="right"))
            times.append(self._times[at][:count])
            rows.append(self._rows[at][:count].astype(np.int64))
            if count == len(self._times[at]):
                del self._times[at], self._rows[at], self._heads[at]
            else:
                self._times[at] = self._times[at][count:]
                self._rows[at] = self._rows[at][count:]
                self._heads[at] = int(self._times[at][0])
        few: list[tuple[int, int]] = []
        while self._heap and self._heap[0][0] <= upto:
            few.append(heapq.heappop(self._heap))
        if few:
            times.append(np.array([at for at, _ in few], dtype=np.int64))
            rows.append(np.array([row for _, row in few], dtype=np.int64))
        if not times:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        return np.concatenate(times), np.concatenate(rows)

    def retain(self, holds: Callable[[Int64Array, Int64Array], NDArray[np.bool_]]) -> None:
        """Remove the entries that are no longer valid. O(entries).

        Args:
            holds: Returns which entries still hold, given (times, rows).
        """
        runs = list(zip(self._times, self._rows, strict=True))
        if self._heap:
            few = np.array(sorted(self._heap), dtype=np.int64)
            runs.append((few[:, 0].copy(), few[:, 1].astype(np.int32)))
        self._times, self._rows, self._heads, self._heap = [], [], [], []
        for times, rows in runs:
            kept = holds(times, rows.astype(np.int64))
            if kept.any():
                self._add_run(times[kept], rows[kept])

    def first_that(
        self, holds: Callable[[Int64Array, Int64Array], NDArray[np.bool_]], below: int
    ) -> int:
        """Return the earliest instant of an entry that still holds, or ``below``.

        Entries before it that no longer hold are taken out: amortised O(entries pushed).

        Args:
            holds: Returns which entries still hold, given (times, rows).
            below: Later entries do not matter.
        """
        stride = 0
        while (first := self.first) < below:
            times, rows = self.pop(min(first + stride, below - 1))
            kept = holds(times, rows)
            if kept.any():
                self.push(times[kept], rows[kept])
                below = int(times[kept].min())
            stride = 2 * stride + 1
        return below

    def entries(self) -> tuple[Int64Array, Int64Array]:
        """Return all entries, those that no longer hold included: (times, rows). O(entries)."""
        few = np.array(self._heap, dtype=np.int64).reshape(-1, 2)
        times = np.concatenate([*self._times, few[:, 0]])
        rows = np.concatenate([*(rows.astype(np.int64) for rows in self._rows), few[:, 1]])
        return times, rows

    def _check(self) -> None:
        """Assert every invariant; print the structure if one does not hold. O(entries)."""
        try:
            assert len(self._times) == len(self._rows) == len(self._heads)
            assert len(self._heap) <= _HEAP
            for times, rows, head in zip(self._times, self._rows, self._heads, strict=True):
                assert len(times) == len(rows) > 0
                assert times[0] == head
                assert (times[1:] >= times[:-1]).all(), "a run is not sorted"
            for at, entry in enumerate(self._heap):
                assert self._heap[(at - 1) // 2] <= entry or at == 0, "the heap is no heap"
            assert len(self) == len(self.entries()[0])
            assert self.first == min(self.entries()[0].tolist(), default=END_OF_TIME)
        except AssertionError:
            print(f"Deadlines: heads={self._heads} heap={self._heap}")
            print(self._times, self._rows)
            raise

    def _add_run(
        self, times: Int64Array, rows: np.ndarray[tuple[int, ...], np.dtype[np.int32]]
    ) -> None:
        while self._times and 2 * len(times) >= len(self._times[-1]):
            times = np.concatenate((self._times.pop(), times))
            rows = np.concatenate((self._rows.pop(), rows))
            self._heads.pop()
            order = kernels().argsort(times)
            times, rows = times[order], rows[order]
        self._times.append(times)
        self._rows.append(rows)
        self._heads.append(int(times[0]))
