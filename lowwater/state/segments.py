"""The active windows of each key, sorted by start: a segment of a pool per key."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from lowwater.kernels import kernels
from lowwater.kernels.plain_merging import Gathered, Merging, gather_by
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import (
    Scratch,
    expand_ranges,
    run_lengths,
    run_starts,
    sort_by_key_and_time,
)
from lowwater.state.table import RowTable
from lowwater.time import END_OF_TIME, Int64Array, latest

_MIN_POOL = 256


@final
class Segments:
    """Finds a key's windows that overlap an interval by binary search, for many keys at once.

    Reads the columns ``key``, ``start`` and ``end`` of the table. Looking up costs O(log windows
    of the key); editing costs what stands behind the first edited place, which for time that
    mostly moves forward is little.

    Args:
        table: Where the windows are.
        disjoint: Whether the windows of a key never overlap. If they may, only :meth:`of_keys`
            can look them up, and an edit costs all windows of the key.
        end: The column of their ends. Instants are windows that end where they start, so that for
            them it is ``start``; several may be equal.
    """

    def __init__(self, table: RowTable, *, disjoint: bool, end: str = "end") -> None:
        self._table = table
        self._end = end
        self._disjoint = disjoint
        self._pool: Int64Array = np.empty(_MIN_POOL, dtype=np.int64)
        self._used = 0
        self._held = 0
        self._at: Int64Array = np.zeros(64, dtype=np.int64)
        self._count: Int64Array = np.zeros(64, dtype=np.int64)
        self._room: Int64Array = np.zeros(64, dtype=np.int64)
        self._scratch = Scratch()

    def __len__(self) -> int:
        """Return the number of windows held."""
        return self._held

    def overlapping(
        self, keys: Int64Array, start: Int64Array, end: Int64Array, *, touching: bool
    ) -> tuple[Int64Array, Int64Array]:
        """Return the windows that overlap each interval: (rows, index of the interval)."""
        self._cover(keys)
        at, count = self._at[keys], self._count[keys]
        ends, starts = self._table[self._end], self._table["start"]
        low = self._search(at, count, ends, start, below_or_equal=not touching)
        high = self._search(at, count, starts, end, below_or_equal=touching)
        places, which = expand_ranges(at + low, np.maximum(high - low, 0))
        return self._pool[places], which

    def gather(
        self,
        keys: Int64Array,
        start: Int64Array,
        end: Int64Array,
        merge: Merging | None = None,
        *,
        touching: bool = False,
    ) -> Gathered:
        """Merge new windows with each other, and with the disjoint ones that are here.

        Args:
            keys: Key of each new window, int64, shape (n,), n > 0, in any order.
            start: Its start.
            end: Its end.
            merge: How the windows of a key merge; ``None`` if all that overlap do.
            touching: Whether then those that touch merge, too.
        """
        self._cover(keys)
        columns = self._table.columns
        there = (
            self._pool, self._at, self._count,
            columns["key"], columns["start"], columns[self._end],
        )  # fmt: skip
        if merge is None:
            return kernels().gather(keys, start, end, touching, *there)
        return gather_by(merge, keys, start, end, *there)

    def latest(self, keys: Int64Array, at: Int64Array) -> Int64Array:
        """Return each key's last window that starts at or before an instant, -1 for none."""
        self._cover(keys)
        begin, count = self._at[keys], self._count[keys]
        place = self._search(begin, count, self._table["start"], at, below_or_equal=True)
        found = self._pool[begin + (place - 1)]  # any window where there is none
        found[place == 0] = -1
        return found

    def next_start(self, keys: Int64Array, at: Int64Array) -> Int64Array:
        """Return when each key's first window after an instant starts; the end of time for none."""
        self._cover(keys)
        begin, count = self._at[keys], self._count[keys]
        place = self._search(begin, count, self._table["start"], at, below_or_equal=True)
        found = np.full(len(keys), END_OF_TIME, dtype=np.int64)
        some = place < count
        found[some] = self._table["start"][self._pool[begin[some] + place[some]]]
        return found

    def counts(self, keys: Int64Array) -> Int64Array:
        """Return how many windows each key has."""
        self._cover(keys)
        return self._count[keys]

    def of_keys(self, keys: Int64Array) -> Int64Array:
        """Return all windows of some distinct keys, key by key."""
        self._cover(keys)
        places, _ = expand_ranges(self._at[keys], self._count[keys])
        return self._pool[places]

    def between(
        self, keys: Int64Array, low: Int64Array, high: Int64Array, before: int = 0
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return the windows of distinct keys that start between two instants, both included.

        Args:
            keys: The keys, int64, shape (k,).
            low: The first instant for each.
            high: The last instant for each.
            before: How many windows before these are returned, too, where there are as many; with
                all others that start when the first of them does.

        Returns:
            The rows key by key, how many each key has, and how many before these are left out.
        """
        self._cover(keys)
        at, count, starts = self._at[keys], self._count[keys], self._table["start"]
        stop = self._search(at, count, starts, high, below_or_equal=True)
        first = np.minimum(self._search(at, count, starts, low, below_or_equal=False), stop)
        if before:
            first = self._instants_begin(keys, np.maximum(first - before, 0))
        places, _ = expand_ranges(at + first, stop - first)
        return self._pool[places], stop - first, first

    def oldest(
        self, keys: Int64Array, below: int, left: int
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return the windows of distinct keys but for the last that start before an instant.

        Args:
            keys: The keys, int64, shape (k,), each with windows.
            below: The instant.
            left: How many of each key are left out, counted from the last that starts before it;
                with all others that start when the first of them does.

        Returns:
            The rows key by key, how many each key has, and the row that is first behind them, -1
            for none.
        """
        self._cover(keys)
        at, count, starts = self._at[keys], self._count[keys], self._table["start"]
        bound = np.full(len(keys), below, dtype=np.int64)
        stop = self._search(at, count, starts, bound, below_or_equal=False)
        stop = np.maximum(stop - left, 0)
        if left:
            stop = self._instants_begin(keys, stop)
        places, _ = expand_ranges(at, stop)
        behind = np.where(stop < count, self._pool[np.where(stop < count, at + stop, 0)], -1)
        return self._pool[places], stop, behind

    def start_after(self, keys: Int64Array, at: Int64Array, nth: int) -> Int64Array:
        """Return when the nth window of each key after an instant starts, from 1.

        It is the end of time where there are not as many.
        """
        self._cover(keys)
        begin, count = self._at[keys], self._count[keys]
        place = self._search(begin, count, self._table["start"], at, below_or_equal=True) + nth - 1
        starts = np.full(len(keys), END_OF_TIME, dtype=np.int64)
        some = place < count
        starts[some] = self._table["start"][self._pool[begin[some] + place[some]]]
        return starts

    def first(self, keys: Int64Array) -> Int64Array:
        """Return the first window of each key, -1 for none."""
        self._cover(keys)
        some = self._count[keys] > 0
        return np.where(some, self._pool[np.where(some, self._at[keys], 0)], -1)

    def _instants_begin(self, keys: Int64Array, places: Int64Array) -> Int64Array:
        """Return the first place of each key with the same start as at a place, if there is one."""
        at, count, starts = self._at[keys], self._count[keys], self._table["start"]
        inside = np.flatnonzero(places < count)
        rows = self._pool[at[inside] + places[inside]]
        places = places.copy()
        places[inside] = self._search(
            at[inside], count[inside], starts, starts[rows], below_or_equal=False
        )
        return places

    def insert(self, rows: Int64Array) -> None:
        """Add the windows of rows; none is here yet."""
        if not len(rows):
            return
        keys, starts = self._table["key"], self._table["start"]
        rows = rows[sort_by_key_and_time(keys[rows], starts[rows])]
        owner = keys[rows]
        self._cover(owner)
        first = np.flatnonzero(run_starts(owner))
        touched = owner[first]
        begin = self._places_before(touched, starts[rows[first]])
        lengths = run_lengths(first, len(rows))
        behind = self._count[touched] - begin
        if behind.any():
            tail, _ = expand_ranges(self._at[touched] + begin, behind)
            rows = np.concatenate((self._pool[tail], rows))
            rows = rows[sort_by_key_and_time(keys[rows], starts[rows])]
            lengths += behind
        self._replace_tails(touched, begin, rows, lengths)

    def remove(self, rows: Int64Array) -> None:
        """Remove the windows of rows; each must be here, under the start it was sorted by."""
        if not len(rows):
            return
        keys = self._table["key"][rows]
        order = kernels().argsort(keys)
        rows, keys = rows[order], keys[order]
        first = np.flatnonzero(run_starts(keys))
        touched = keys[first]
        removed = run_lengths(first, len(keys))
        front, _ = expand_ranges(self._at[touched], removed)
        front = self._pool[front]
        gone = front == rows
        if not gone.all():  # those of a key may be given in another order than they stand in
            gone = self._scratch.among(front, rows, self._table.capacity)
        # Mostly a key's oldest windows go, all at once: then its segment just begins later.
        whole = np.logical_and.reduceat(gone, first)
        if whole.all():
            self._begin_later(touched, removed)
            return
        self._begin_later(touched[whole], removed[whole])
        self._remove_inside(touched[~whole], rows[np.isin(keys, touched[~whole])])

    def cut(self, keys: Int64Array, upto: Int64Array) -> Int64Array:
        """Remove the windows that start at or before an instant, but for the last of each key.

        Args:
            keys: Distinct keys.
            upto: The instant for each.

        Returns:
            The rows of what is removed, key by key.
        """
        self._cover(keys)
        at, count = self._at[keys], self._count[keys]
        place = self._search(at, count, self._table["start"], upto, below_or_equal=True)
        removed = np.maximum(place - 1, 0)
        places, _ = expand_ranges(at, removed)
        self._begin_later(keys, removed)
        return self._pool[places]

    def _check(self) -> None:
        """Assert every invariant; print the structure if one does not hold. O(windows)."""
        table = self._table
        keys = np.flatnonzero(self._count)
        rows = self.of_keys(keys)
        owner = repeated(keys, self._count[keys])
        try:
            assert len(self._at) == len(self._count) == len(self._room)
            assert (self._count >= 0).all()
            assert (self._count <= self._room).all()
            assert int(self._count.sum()) == self._held == len(np.unique(rows))
            roomy = np.flatnonzero(self._room)
            roomy = roomy[np.argsort(self._at[roomy])]
            stops = self._at[roomy] + self._room[roomy]
            assert (stops[:-1] <= self._at[roomy][1:]).all(), "two segments overlap"
            assert stops.max(initial=0) <= self._used <= len(self._pool)
            assert table.alive(rows).all()
            assert (table["key"][rows] == owner).all()
            starts, ends = table["start"][rows], table[self._end][rows]
            same_key = owner[1:] == owner[:-1]
            assert (starts[1:] >= starts[:-1])[same_key].all(), "windows are not sorted by start"
            if self._disjoint:
                assert (ends[:-1] <= starts[1:])[same_key].all(), "windows of a key overlap"
        except AssertionError:
            print(f"Segments: used={self._used} held={self._held} disjoint={self._disjoint}")
            print(list(zip(owner, rows, table["start"][rows], table[self._end][rows], strict=True)))
            raise

    def _begin_later(self, keys: Int64Array, by: Int64Array) -> None:
        """Take so many windows from the front of each of some distinct keys."""
        self._at[keys] += by
        self._room[keys] -= by
        self._count[keys] -= by
        self._held -= int(by.sum())

    def _remove_inside(self, touched: Int64Array, rows: Int64Array) -> None:
        starts, keys = self._table["start"], self._table["key"]
        earliest = np.full(len(touched), np.iinfo(np.int64).max)
        np.minimum.at(earliest, np.searchsorted(touched, keys[rows]), starts[rows])
        begin = self._places_before(touched, earliest)
        tail, which = expand_ranges(self._at[touched] + begin, self._count[touched] - begin)
        windows = self._pool[tail]
        stays = ~self._scratch.among(windows, rows, self._table.capacity)
        lengths = np.bincount(which[stays], minlength=len(touched)).astype(np.int64)
        self._replace_tails(touched, begin, windows[stays], lengths)

    def _replace_tails(
        self, keys: Int64Array, begin: Int64Array, rows: Int64Array, lengths: Int64Array
    ) -> None:
        """Set each key's windows from place ``begin`` on to the next of ``rows``, so many each."""
        count = begin + lengths
        need = int((2 * count + 2).sum())
        if self._used + need > len(self._pool):
            self._compact(need)
        self._held += int((count - self._count[keys]).sum())
        small = count > self._room[keys]
        if small.any():
            self._move(keys[small], np.maximum(2 * count[small], 2), begin[small])
        places, _ = expand_ranges(self._at[keys] + begin, lengths)
        self._pool[places] = rows
        self._count[keys] = count

    def _move(self, keys: Int64Array, room: Int64Array, keep: Int64Array) -> None:
        at = self._used + np.cumsum(room) - room
        source, _ = expand_ranges(self._at[keys], keep)
        target, _ = expand_ranges(at, keep)
        self._pool[target] = self._pool[source]
        self._at[keys] = at
        self._room[keys] = room
        self._used += int(room.sum())

    def _compact(self, need: int) -> None:
        keys = np.flatnonzero(self._count)
        count = self._count[keys]
        source, _ = expand_ranges(self._at[keys], count)
        old = self._pool[source]
        used = len(source)
        self._pool = np.empty(max(_MIN_POOL, 2 * (used + need)), dtype=np.int64)
        self._pool[:used] = old
        self._room[:] = 0
        self._at[:] = 0
        self._at[keys] = np.cumsum(count) - count
        self._room[keys] = count
        self._used = used

    def _places_before(self, keys: Int64Array, start: Int64Array) -> Int64Array:
        """Return how many windows of each key stay in place when one that starts so is edited."""
        if not self._disjoint:
            return np.zeros(len(keys), dtype=np.int64)
        starts = self._table["start"]
        return self._search(self._at[keys], self._count[keys], starts, start, below_or_equal=False)

    def _search(
        self,
        at: Int64Array,
        count: Int64Array,
        column: Int64Array | NDArray[np.int64],
        bound: Int64Array,
        *,
        below_or_equal: bool,
    ) -> Int64Array:
        """Return how many of each segment's windows lie below (or at) a bound in a column."""
        return kernels().count_below(self._pool, at, count, column, bound, below_or_equal)

    def _cover(self, keys: Int64Array) -> None:
        need = latest(keys) + 1 if len(keys) else 0
        if need > len(self._at):
            room = max(need, 2 * len(self._at))
            for name in ("_at", "_count", "_room"):
                old = getattr(self, name)
                new = np.zeros(room, dtype=np.int64)
                new[: len(old)] = old
                setattr(self, name, new)
