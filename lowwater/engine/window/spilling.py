"""Windows that have left memory for the store, and are loaded when touched or due.

::

    (key group | end | key id | start)   ->  a chunk of one row
    (key group | key id | end | start)   ->  nothing                only for windows that merge

They are stored one by one, unlike those in memory, because single ones are loaded back. A window
that merges is looked for among those of its key that it may touch; any other by its exact place,
and mostly not at all, as a filter in memory knows what is not there. What is due at a watermark is
a range of each key group. A window that was loaded is deleted by the next commit; until then it
counts as gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.records.stored_keys import StoredKeys
from lowwater.engine.window.window_state import PLACE, WindowState
from lowwater.errors import InternalError
from lowwater.state.arrays import NONE, distinct, run_starts, sort_by_key_and_time, widened
from lowwater.state.formats import damaged, decoding
from lowwater.state.key_layout import StoredPlace, below, decode_int64, encode_int64, prefix_range
from lowwater.state.row_codec import joined
from lowwater.state.store import Batch, StateStore
from lowwater.state.window_filter import WindowFilter
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array
from lowwater.windows import MergingWindowFunction

AT_ONCE = 1 << 17
"""Windows due at one watermark come back in portions of about so many."""

_TAIL = 24
_FIRST = np.zeros(1, dtype=np.int64)
_GONE_BYTES = 250  # in a set, and to delete it
_CHUNK = 1 << 16
_RANGE = 64
"""So many keys of a range are deleted as a range: few ranges keep reads fast."""
_WHAT = "a stored window"


@final
class SpilledWindows:
    """The windows of an operator that are in the store alone.

    Args:
        state: The windows in memory.
        keys: Their keys.
        place: Where windows are stored.
        tables: Tags of the windows and of the index by key.
    """

    def __init__(
        self, state: WindowState, keys: StoredKeys, place: StoredPlace, tables: tuple[int, int]
    ) -> None:
        self._state = state
        self._keys = keys
        self._groups = place.groups
        self._of_group = {group: place.prefix(tables[0], group) for group in place.groups}
        self._by_key = {group: place.prefix(tables[1], group) for group in place.groups}
        self._filter = WindowFilter()
        self._count = 0
        self._finished = 0
        # Of each key, for windows that merge: how many there are, and the latest end.
        self._of_key: Int64Array = np.zeros(0, dtype=np.int64)
        self._latest: Int64Array = np.zeros(0, dtype=np.int64)
        self._longest = 0
        # No window ends before the first; none that ends after the watermark before the second.
        self._first = END_OF_TIME
        self._next = END_OF_TIME
        self._gone: set[bytes] = set()

    def __len__(self) -> int:
        """Return how many windows there are."""
        return self._count

    @property
    def open_windows(self) -> int:
        """How many of them are open."""
        return self._count - self._finished

    @property
    def nbytes(self) -> int:
        """Bytes of memory that knowing about them takes."""
        known = self._filter.nbytes + self._of_key.nbytes + self._latest.nbytes
        return known + _GONE_BYTES * len(self._gone)

    def spill(self, batch: Batch, rows: Int64Array, watermark: int) -> None:
        """Move rows from memory to the store, with the batch's commit."""
        state, table = self._state, self._state.table
        keys, start, end = (table[name][rows] for name in ("key", "start", "end"))
        finished = table["finished"][rows]
        values = state.codec.pack(rows).chunks()
        tails = _tails(keys, start, end)
        groups = self._keys.groups(keys).tolist()
        if state.shown is not None:
            state.shown.drop(rows)
        state.evict(rows)
        batch.put(
            [self._of_group[group] + tail for group, tail in zip(groups, tails, strict=True)],
            values,
        )
        if state.merging is not None:
            pairs = zip(groups, tails, strict=True)
            by_key = [self._by_key[group] + swapped(tail) for group, tail in pairs]
            batch.put(by_key, [b""] * len(by_key))
        self._know(keys, start, end, finished, watermark)

    def write(self, batch: Batch, expired: int) -> None:
        """Delete what was loaded since the last commit, with the batch's.

        Args:
            batch: The batch.
            expired: All windows that end here or before have expired.
        """
        if not self._gone:
            return
        tails, self._gone = sorted(self._gone), set()
        stop = min(expired + 1, END_OF_TIME)
        bound = below(b"", stop)[1]
        _, keys, _ = read_tails(tails)
        groups = self._keys.groups(keys)
        for group in np.unique(groups).tolist():
            gone = [tails[at] for at in np.flatnonzero(groups == group).tolist()]
            left = [tail for tail in gone if tail >= bound]
            if len(gone) - len(left) >= _RANGE:
                batch.delete_range(*below(self._of_group[group], stop))
            else:
                left = gone
            batch.delete([self._of_group[group] + tail for tail in left])
            if self._state.merging is not None:
                batch.delete([self._by_key[group] + swapped(tail) for tail in gone])
        self._filter.forget(stop)

    def load_touched(
        self, store: StateStore, keys: Int64Array, start: Int64Array, end: Int64Array
    ) -> Int64Array:
        """Load the windows that elements may fall in or merge with; return their rows.

        Args:
            store: The store.
            keys: Key id of each element's window, int64, shape (n,).
            start: Its start.
            end: Its end.
        """
        if not self._count:
            return NONE
        if self._state.merging is None:
            tails = self._wanted_places(keys, start, end)
        else:
            tails = self._touching(store, self._state.merging, keys, start, end)
        tails = [tail for tail in tails if tail not in self._gone]
        if not tails:
            return NONE
        groups = self._keys.groups(read_tails(tails)[1]).tolist()
        values = store.get(
            [self._of_group[group] + tail for group, tail in zip(groups, tails, strict=True)]
        )
        found = [at for at, value in enumerate(values) if value is not None]
        if self._state.merging is not None and len(found) < len(tails):
            raise damaged(_WHAT, "it is missing, but the index of its key has it")
        return self._load(store, [tails[at] for at in found], [values[at] or b"" for at in found])

    def is_due(self, to: int, lateness_us: int) -> bool:
        """Whether a window may become complete or expire as the watermark moves to ``to``."""
        return self._next <= to or self._first <= _expired_end(to, lateness_us)

    def load_due(
        self, store: StateStore, before: int, to: int, after: int | None, lateness_us: int
    ) -> tuple[Int64Array, int | None]:
        """Load a portion of the windows that an advance of the watermark completes or ends.

        Args:
            store: The store.
            before: The watermark before.
            to: The watermark to be.
            after: Up to where the portions before loaded what is due; ``None``: the first.
            lateness_us: The allowed lateness.

        Returns:
            (their rows; up to where all that is due is loaded, ``None`` if that is all).
        """
        ended = _expired_end(to, lateness_us)
        low, high = self._first - 1, min(before, ended)
        if after is not None:
            low = max(low, after - lateness_us)
        expiring, bound = self._ending(store, low, high, AT_ONCE)
        if bound is not None:
            bound += lateness_us
            if bound >= to:  # beyond the end of time: all the rest is due at once
                expiring, bound = self._ending(store, low, high, len(self))
        low, high = before if after is None else max(before, after), to
        if not self._state.machine.watches_completion:  # they are due if they expire too
            high = min(to, ended)
        completing, other = self._ending(store, low, high, AT_ONCE)
        if other is not None:
            bound = other if bound is None else min(bound, other)
        if bound is None and high < to:  # a window that is complete may hold the output watermark
            completing += self._ending(store, max(before, high), to, len(self))[0]
        if bound is not None:
            completing = [row for row in completing if _end(row[0]) <= bound]
            expiring = [row for row in expiring if _end(row[0]) + lateness_us <= bound]
        due = completing + expiring
        rows = self._load(store, [tail for tail, _ in due], [value for _, value in due])
        if bound is None:
            self._first = self._peek(store, ended)
            self._next = self._first if ended == to else self._peek(store, to)
        return rows, bound

    def load_all(self, store: StateStore) -> Iterator[Int64Array]:
        """Load all, portion by portion; yield the rows of each."""
        for group in self._groups:
            found = self._scan(store, group)
            while chunk := list(islice(found, _CHUNK)):
                yield self._load(store, [tail for tail, _ in chunk], [value for _, value in chunk])

    def resume(self, store: StateStore, watermark: int) -> Iterator[tuple[Int64Array, Int64Array]]:
        """Learn what is in the store; yield it portion by portion.

        Yields:
            (key ids, places of the keys): to be checked before going on.

        Raises:
            StateError: A window is damaged.
        """
        indexed = 0
        for group in self._groups:
            found = self._scan(store, group)
            while chunk := list(islice(found, _CHUNK)):
                end, keys, start = read_tails([tail for tail, _ in chunk])
                places = np.zeros(len(chunk), dtype=np.int64)
                finished = np.zeros(len(chunk), dtype=np.bool_)
                values = [value for _, value in chunk]
                for at, part, _ in self._state.codec.layouts.read_single(values):
                    places[at], finished[at] = part.records[PLACE], part.records["finished"]
                yield keys, places
                if (self._keys.groups(keys) != group).any():
                    raise damaged(_WHAT, "it is in the wrong key group")
                self._know(keys, start, end, finished, watermark)
            indexed += sum(1 for _ in store.scan(*prefix_range(self._by_key[group])))
        if indexed != (0 if self._state.merging is None else len(self)):
            raise damaged(_WHAT, f"keys have {indexed} windows of {len(self)}")

    def _know(
        self,
        keys: Int64Array,
        start: Int64Array,
        end: Int64Array,
        finished: NDArray[np.bool_],
        watermark: int,
    ) -> None:
        if not keys.size:
            return
        self._count += len(keys)
        self._finished += int(finished.sum())
        self._first = min(self._first, int(end.min()))
        self._next = min(self._next, int(end[end > watermark].min(initial=END_OF_TIME)))
        if self._state.merging is None:
            self._filter.add(keys, start, end)
            return
        self._cover(int(keys.max()) + 1)
        fresh = keys[self._of_key[keys] == 0]
        self._latest[fresh] = START_OF_TIME
        np.add.at(self._of_key, keys, 1)
        np.maximum.at(self._latest, keys, end)
        self._longest = max(self._longest, int((end - start).max()))

    def _wanted_places(self, keys: Int64Array, start: Int64Array, end: Int64Array) -> list[bytes]:
        maybe = np.flatnonzero(self._filter.may_hold(keys, start, end))
        if not maybe.size:
            return []
        keys, start, end = keys[maybe], start[maybe], end[maybe]
        absent = self._state.index.find(keys, start, end) < 0
        return _distinct_tails(keys[absent], start[absent], end[absent])

    def _touching(
        self,
        store: StateStore,
        function: MergingWindowFunction,
        keys: Int64Array,
        start: Int64Array,
        end: Int64Array,
    ) -> list[bytes]:
        self._cover(int(keys.max(initial=-1)) + 1)
        found: list[bytes] = []
        if function.merge_scope == "key":
            some = distinct(keys[self._of_key[keys] > 0])
            if some.size:
                for key, group in zip(some.tolist(), self._keys.groups(some).tolist(), strict=True):
                    of_key = self._by_key[group] + _bytes(key)
                    found.extend(self._indexed(store, *prefix_range(of_key)))
            return found
        may = (self._of_key[keys] > 0) & (start <= self._latest[keys])
        keys, start, end = keys[may], start[may], end[may]
        if not keys.size:
            return found
        order = sort_by_key_and_time(keys, start)
        keys = keys[order]
        local = function.merge(keys, start[order], end[order])
        keys = keys[run_starts(local.group)]
        spans = zip(keys.tolist(), self._keys.groups(keys).tolist(), local.start.tolist(),
                    local.end.tolist(), strict=True)  # fmt: skip
        for key, group, first, last in spans:
            of_key = self._by_key[group] + _bytes(key)
            upto = last + self._longest
            stop = prefix_range(of_key)[1]
            if upto < END_OF_TIME:
                stop = of_key + _bytes(upto + 1)
            rows = self._indexed(store, of_key + _bytes(first), stop)
            found.extend(tail for tail in rows if _start(tail) <= last)
        return list(dict.fromkeys(found))

    def _indexed(self, store: StateStore, low: bytes, high: bytes) -> list[bytes]:
        return [swapped(key[-_TAIL:]) for key, _ in store.scan(low, high)]

    def _ending(
        self, store: StateStore, low: int, high: int, most: int
    ) -> tuple[list[tuple[bytes, bytes]], int | None]:
        """Return windows that end in ``(low, high]``, and where to go on, ``None`` if at the end.

        About ``most`` of them: all of those that end at one time come together.
        """
        if high <= low:
            return [], None
        found: list[tuple[bytes, bytes]] = []
        last = b""
        stop = None if high >= END_OF_TIME else high + 1
        groups = [self._scan(store, group, low + 1, stop) for group in self._groups]
        for tail, value in groups[0] if len(groups) == 1 else merge(*groups):
            if tail in self._gone:
                continue
            if len(found) >= most and tail[:8] != last:
                return found, _end(found[-1][0])
            last = tail[:8]
            found.append((tail, value))
        return found, None

    def _peek(self, store: StateStore, after: int) -> int:
        """Return an end after ``after`` that none of those there are is before."""
        if after >= END_OF_TIME:
            return END_OF_TIME
        firsts = (next(self._scan(store, group, after + 1), None) for group in self._groups)
        return min((_end(first[0]) for first in firsts if first is not None), default=END_OF_TIME)

    def _scan(
        self, store: StateStore, group: int, low: int | None = None, high: int | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield (end, key id and start; value) of the windows of a group with such ends."""
        prefix = self._of_group[group]
        start, stop = prefix_range(prefix)
        if low is not None:
            start = prefix + _bytes(low)
        if high is not None:
            stop = prefix + _bytes(high)
        at = len(prefix)
        return ((key[at:], value) for key, value in store.scan(start, stop))

    def _load(
        self, store: StateStore, tails: Sequence[bytes], values: Sequence[bytes]
    ) -> Int64Array:
        if not tails:
            return NONE
        state = self._state
        end, keys, start = read_tails(tails)
        rows = state.table.allocate(len(tails))
        with decoding(_WHAT):
            for at, part, sides in state.codec.layouts.read_single(values):
                state.codec.fill(rows[at], part, np.arange(len(at)))
                some = [(place, side) for place, side in zip(at, sides, strict=True) if side]
                taken = [(rows[place : place + 1], side, _FIRST) for place, side in some]
                state.codec.side.put(taken, [1] * len(taken))
            for name, column in (("key", keys), ("start", start), ("end", end)):
                if (state.table[name][rows] != column).any():
                    raise damaged(_WHAT, f"it is stored under another {name}")
        state.readmit(rows)
        self._gone.update(tails)
        self._count -= len(rows)
        self._finished -= int(state.table["finished"][rows].sum())
        if self._count < 0:
            raise InternalError("more windows were loaded than had left")
        if state.merging is not None:
            np.subtract.at(self._of_key, keys, 1)
        return rows

    def _cover(self, need: int) -> None:
        if need > len(self._of_key):
            room = max(need, 2 * len(self._of_key))
            self._of_key = widened(self._of_key, room)
            self._latest = widened(self._latest, room)


def _expired_end(to: int, lateness_us: int) -> int:
    """Return where windows end at the latest that have expired at a watermark."""
    return to if to == END_OF_TIME else max(START_OF_TIME, to - lateness_us)


def _distinct_tails(keys: Int64Array, start: Int64Array, end: Int64Array) -> list[bytes]:
    order = np.lexsort((start, keys, end))
    keys, start, end = keys[order], start[order], end[order]
    first = run_starts(keys, start, end) if len(keys) else np.zeros(0, dtype=np.bool_)
    return _tails(keys[first], start[first], end[first])


def _tails(keys: Int64Array, start: Int64Array, end: Int64Array) -> list[bytes]:
    """Return what follows the prefix in the keys that windows are stored under."""
    tails = np.hstack([encode_int64(part) for part in (end, keys, start)])
    whole: list[bytes] = tails.view(f"V{_TAIL}").reshape(-1).tolist()
    return whole


def read_tails(tails: Sequence[bytes]) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return (end, key id, start) of the keys that windows are stored under.

    Raises:
        StateError: One of them is damaged.
    """
    with decoding(_WHAT):
        parts = joined(list(tails), _TAIL).reshape(-1, 3, 8)
        end, keys, start = (decode_int64(parts[:, at]) for at in range(3))
        if (start >= end).any():
            raise damaged(_WHAT, "it ends before it starts")
        return end, keys, start


def swapped(tail: bytes) -> bytes:
    """Return (end, key id, start) as (key id, end, start), and the other way round."""
    return tail[8:16] + tail[:8] + tail[16:]


def _bytes(value: int) -> bytes:
    return encode_int64(np.array([value], dtype=np.int64)).tobytes()


def _end(tail: bytes) -> int:
    return int.from_bytes(tail[:8]) - (1 << 63)


def _start(tail: bytes) -> int:
    return int.from_bytes(tail[16:24]) - (1 << 63)
