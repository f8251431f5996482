"""Keys that have left memory for the store with all their windows, and are loaded when wanted.

::

    keys        (key group | hash of the key)                       ->  keys and windows
    dues        (key group | watermark that one is due at | hash)   ->  nothing
    timers      (key group | clock that one is due at | hash)       ->  nothing
    holds       (key group | hold of the output watermark | hash)   ->  nothing

    keys and windows    due i64 | timer i64 | hold i64 | bytes of keys u32 | keys | windows

All keys of a hash, mostly one, are stored as one value: they leave together, and one element or
one instant that wants any of them brings back all. Nothing of them stays in memory: what is there
is asked of the store, whose Bloom filters answer for keys that are not. So a run that resumes
reads what it touches, however much there is.

A value that was loaded stays in the store until the next commit, which replaces or deletes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import hash_keys
from lowwater.engine.records.stored_keys import (
    Kinds,
    StoredKeys,
    common_kinds,
    key_columns,
    kinds_of,
    pack_keys,
)
from lowwater.engine.window.window_state import PLACE, WindowState
from lowwater.errors import InternalError
from lowwater.state.arrays import NONE, distinct, expand_ranges, run_starts
from lowwater.state.formats import damaged, decoding
from lowwater.state.key_layout import StoredPlace, encode_int64, prefix_range
from lowwater.state.row_codec import Chunk, Layouts, joined
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, Int64Array, saturating_add

AT_ONCE = 1 << 17
"""Windows due at one watermark come back in portions of about so many."""

_CHUNK = 1 << 12
_HASH = np.dtype(">u8")
_HEAD = np.dtype([("due", "<i8"), ("timer", "<i8"), ("hold", "<i8"), ("keys", "<u4")])
_QUEUES = ("due", "timer", "hold")
_WHAT = "a stored key"


class Waits(Protocol):
    """Returns what rows wait for: (watermark due at, clock due at, hold), int64 each."""

    def __call__(self, rows: Int64Array, /) -> tuple[Int64Array, Int64Array, Int64Array]: ...


@final
class SpilledKeys:
    """The keys of an operator that are in the store alone, with their windows.

    Args:
        state: The windows in memory.
        keys: Their keys.
        place: Where they are stored.
        tables: Tags of keys, dues, timers and holds.
    """

    def __init__(
        self,
        state: WindowState,
        keys: StoredKeys,
        place: StoredPlace,
        tables: tuple[int, int, int, int],
    ) -> None:
        self._state = state
        self._keys = keys
        self._place = place
        self._prefix = {group: place.prefix(tables[0], group) for group in place.groups}
        # A window that never expires is due at the end of time itself.
        self.dues = _Queue(place, tables[1], ends=True)
        self.timers = _Queue(place, tables[2])
        self.holds = _Queue(place, tables[3])
        self._windows = 0
        self._finished = 0
        self._kinds: Kinds = []
        # The longest allowed lateness that dues were written under, which count until it.
        self._lateness = state.windowing.lateness_us
        self._layouts = Layouts()
        # By hash: the values that are both in memory, where they may have changed, and stored.
        self._loaded: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        """Return how many windows there are."""
        return self._windows

    @property
    def open_windows(self) -> int:
        """How many of them are open."""
        return self._windows - self._finished

    def record(self) -> dict[str, Any]:
        """Return what :meth:`resume` needs to know."""
        return {
            "windows": self._windows,
            "finished": self._finished,
            "lateness": self._lateness if self._windows else self._state.windowing.lateness_us,
            "firsts": [self.dues.first, self.timers.first, self.holds.first],
            "kinds": self._kinds,
            "layouts": self._layouts.known,
        }

    def resume(self, record: dict[str, Any]) -> None:
        """Take up what :meth:`record` said."""
        self._windows, self._finished = record["windows"], record["finished"]
        self.dues.first, self.timers.first, self.holds.first = record["firsts"]
        self._lateness = max(self._lateness, record["lateness"])
        self._kinds = [(kind, dtype) for kind, dtype in record["kinds"]]
        self._layouts.expect(record["layouts"])

    # -- leaving memory ------------------------------------------------------------------------

    def together(self, ids: Int64Array, others: Int64Array) -> Int64Array:
        """Return keys with those of ``others`` that have the hash of one of them."""
        hashes, theirs = self._keys.hashes(ids), self._keys.hashes(others)
        return distinct(np.concatenate((ids, others[np.isin(theirs, hashes)])))

    def write(self, batch: Batch, leaving: Int64Array, waits: Waits) -> None:
        """Have rows leave memory, and put in order what was loaded since the last commit.

        Args:
            batch: The batch.
            leaving: The rows: all those of the keys that leave.
            waits: Returns what rows wait for.
        """
        if not self._loaded and not leaving.size:
            return
        before, self._loaded = self._loaded, {}
        after = self._packed(leaving, waits) if leaving.size else {}
        gone = [name for name in before if name not in after]
        fresh = [name for name, value in after.items() if before.get(name) != value]
        batch.delete([group + name for group, name in self._placed(gone)])
        batch.put(
            [group + name for group, name in self._placed(fresh)], [after[name] for name in fresh]
        )
        old, new = _heads(before), _heads(after)
        for queue, column in zip((self.dues, self.timers, self.holds), _QUEUES, strict=True):
            queue.change(batch, (before, old[column]), (after, new[column]))
        if leaving.size:
            finished = int(self._state.table["finished"][leaving].sum())
            self._windows += len(leaving)
            self._finished += finished
            self._state.drop(leaving)

    def _packed(self, rows: Int64Array, waits: Waits) -> dict[bytes, bytes]:
        """Return the value of each hash."""
        state = self._state
        if state.keys is None:
            raise InternalError("windows leave memory before any key was seen")
        table = state.table
        hashes = self._keys.hashes(table["key"][rows])
        order = np.lexsort((table["start"][rows], table["end"][rows], table["key"][rows], hashes))
        rows, hashes = rows[order], hashes[order]
        ids = table["key"][rows]
        one = run_starts(hashes.view(np.int64))
        each = run_starts(hashes.view(np.int64), ids)
        begin, key_begin = np.flatnonzero(one), np.flatnonzero(each)
        key = np.cumsum(each) - 1
        first_key = key[begin]
        packed = state.codec.pack(rows)
        # Ids are this run's own: what is stored says which of the value's keys a window has.
        of_key = packed.records.reshape(-1).view(state.codec.layouts.dtype(packed.layout))
        of_key["key"] = key - np.repeat(first_key, np.diff(begin, append=len(rows)))
        self._kinds = common_kinds(self._kinds, kinds_of(state.keys))
        keys = pack_keys(state.keys, ids[key_begin], self._layouts)
        key_values = keys.cut(first_key, len(key_begin))
        heads = np.empty(len(begin), dtype=_HEAD)
        for name, times in zip(_QUEUES, waits(rows), strict=True):
            heads[name] = np.minimum.reduceat(times, begin)
        heads["keys"] = [len(value) for value in key_values]
        head, size = heads.tobytes(), _HEAD.itemsize
        values = [
            b"".join((head[at * size : at * size + size], of_keys, windows))
            for at, (of_keys, windows) in enumerate(
                zip(key_values, packed.cut(begin, len(rows)), strict=True)
            )
        ]
        return dict(zip(_names(hashes[begin]), values, strict=True))

    # -- coming back ---------------------------------------------------------------------------

    def load_keys(self, store: StateStore, ids: Int64Array) -> Int64Array:
        """Load what there is of keys without rows in memory; return the rows.

        Args:
            store: The store.
            ids: Key ids, int64, which may repeat.
        """
        if not self._windows:
            return NONE
        ids = self._state.without_rows(distinct(ids))
        if not ids.size:
            return NONE
        self._keys.use(self._state.keys)
        return self._load(store, list(dict.fromkeys(_names(self._keys.hashes(ids)))))

    def is_due(self, to: int) -> bool:
        """Whether a watermark may make a key due."""
        return bool(self._windows) and self.dues.first <= self._reach(to)

    def load_due(self, store: StateStore, to: int, most: int) -> tuple[Int64Array, int | None]:
        """Load a portion of the keys that a watermark makes due.

        Args:
            store: The store.
            to: The watermark.
            most: About how many windows; all that come due at one instant come together.

        Returns:
            (their rows; up to where all that is due is loaded, ``None`` if that is all).
        """
        reach = self._reach(to)
        if reach > to:
            most = len(self)
        found: list[Int64Array] = []
        names: list[bytes] = []
        windows, last = 0, None
        for at, name in self.dues.upto(store, reach):
            if name in self._loaded:
                continue
            if at != last and last is not None:
                if windows + len(names) >= most or len(names) >= _CHUNK:
                    found.append(self._load(store, names))
                    windows, names = windows + len(found[-1]), []
                if windows >= most:
                    self.dues.first = at
                    return np.concatenate(found), last
            last = at
            names.append(name)
        found.append(self._load(store, names))
        self.dues.first = self.dues.after(store, reach)
        return np.concatenate(found), None

    def _reach(self, to: int) -> int:
        """Return until when what a watermark makes due may be queued."""
        return saturating_add(to, self._lateness - self._state.windowing.lateness_us)

    def load_timers(self, store: StateStore, to: int) -> Int64Array:
        """Load all keys whose timers are due at a clock; return their rows."""
        rows = self._load(store, [name for _, name in self.timers.upto(store, to)])
        self.timers.first = self.timers.after(store, to)
        return rows

    def load_holder(self, store: StateStore, low: int) -> Int64Array:
        """Load the key with the earliest hold, if it is before an instant; return its rows."""
        for at, name in self.holds.upto(store, low - 1):
            self.holds.first = at
            if name not in self._loaded:
                return self._load(store, [name])
        self.holds.first = low
        return NONE

    def load_all(self, store: StateStore) -> Iterator[Int64Array]:
        """Load all, portion by portion; yield the rows of each."""
        for prefix in self._prefix.values():
            found = store.scan(*prefix_range(prefix))
            while chunk := list(islice(found, _CHUNK)):
                values = {key[len(prefix) :]: value for key, value in chunk}
                yield self._fill({n: v for n, v in values.items() if n not in self._loaded})
        for queue in (self.dues, self.timers, self.holds):
            queue.first = END_OF_TIME

    def _load(self, store: StateStore, names: Sequence[bytes]) -> Int64Array:
        names = [name for name in names if name not in self._loaded]
        if not names:
            return NONE
        values = store.get([group + name for group, name in self._placed(names)])
        return self._fill({n: v for n, v in zip(names, values, strict=True) if v is not None})

    def _fill(self, values: dict[bytes, bytes]) -> Int64Array:
        """Put stored values into memory; return the rows."""
        if not values:
            return NONE
        state, table = self._state, self._state.table
        with decoding(_WHAT):
            stored = read_spilled(list(values.values()), state.codec.layouts, self._layouts)
            hashes = np.repeat(_hashes(list(values)), stored.keys_of_each)
            ids = np.empty(len(hashes), dtype=np.int64)
            for at, columns in stored.keys(self._kinds):
                if (hash_keys(columns) != hashes[at]).any():
                    raise damaged(_WHAT, "it is stored under another one")
                ids[at] = state.encode_keys(columns)
            self._keys.use(state.keys)
            self._keys.know(ids, hashes)
            found: list[Int64Array] = []
            for part in stored.windows:
                records = part.chunk.records
                rows = table.allocate(len(records))
                if (records["start"] >= records["end"]).any():
                    raise damaged(_WHAT, "it has a window that ends before it starts")
                state.codec.fill(rows, part.chunk, np.arange(len(rows)))
                table["key"][rows] = ids[part.key]
                taken, counts, low = [], [], 0
                for side, count in part.sides:
                    if side:
                        taken.append((rows[low : low + count], side, np.arange(count)))
                        counts.append(count)
                    low += count
                state.codec.side.put(taken, counts)
                places = records[PLACE]
                if not 0 <= places.min() <= places.max() < state.places_given:
                    raise damaged(_WHAT, "it is in no order among the others")
                state.readmit(rows)
                state.count_keys(table["key"][rows], places)
                found.append(rows)
        self._loaded.update(values)
        rows = np.concatenate(found)
        self._windows -= len(rows)
        self._finished -= int(table["finished"][rows].sum())
        if self._windows < 0:
            raise damaged(_WHAT, "there are more windows outside of memory than had left it")
        return rows

    def _placed(self, names: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield each hash behind the prefix of its key group."""
        return zip(_prefixes(self._place, self._prefix, names), names, strict=True)


@final
class _Queue:
    """Keys by an instant, in the store.

    Args:
        place: Where they are stored.
        table: Their tag.
        ends: Whether the end of time is an instant like others; else it stands for never.
    """

    def __init__(self, place: StoredPlace, table: int, *, ends: bool = False) -> None:
        self._place = place
        self._ends = ends
        self._prefix = {group: place.prefix(table, group) for group in place.groups}
        self.first = END_OF_TIME
        """No key that is not in memory comes before it."""

    def upto(self, store: StateStore, to: int) -> Iterator[tuple[int, bytes]]:
        """Yield (instant, hash) of the keys until then, in order; those in memory too."""
        if self.first > to:
            return iter(())
        scans = [self._scan(store, prefix, to) for prefix in self._prefix.values()]
        tails = scans[0] if len(scans) == 1 else merge(*scans)
        return ((_instant(tail), tail[8:]) for tail in tails)

    def after(self, store: StateStore, to: int) -> int:
        """Return an instant after ``to`` that no key later than that comes before."""
        if to >= END_OF_TIME:
            return END_OF_TIME
        first = END_OF_TIME
        for prefix in self._prefix.values():
            low = prefix + _bytes(to + 1)
            for key, _ in islice(store.scan(low, prefix_range(prefix)[1]), 1):
                first = min(first, _instant(key[len(prefix) :]))
        return first

    def change(
        self,
        batch: Batch,
        before: tuple[dict[bytes, bytes], Int64Array],
        after: tuple[dict[bytes, bytes], Int64Array],
    ) -> None:
        """Replace the entries that keys had by those that they have, both (by hash, instants)."""
        old, new = (self._entries(*each) for each in (before, after))
        gone, fresh = sorted(old - new), sorted(new - old)
        batch.delete(self._keys(gone))
        batch.put(self._keys(fresh), [b""] * len(fresh))
        if fresh:
            self.first = min(self.first, _instant(fresh[0]))

    def _entries(self, names: dict[bytes, bytes], times: Int64Array) -> set[bytes]:
        encoded = encode_int64(times).tobytes()
        never = _bytes(END_OF_TIME)
        made = {encoded[8 * at : 8 * at + 8] + name for at, name in enumerate(names)}
        return made if self._ends else {one for one in made if one[:8] != never}

    def _keys(self, tails: list[bytes]) -> list[bytes]:
        prefixes = _prefixes(self._place, self._prefix, [tail[8:] for tail in tails])
        return [prefix + tail for prefix, tail in zip(prefixes, tails, strict=True)]

    def _scan(self, store: StateStore, prefix: bytes, to: int) -> Iterator[bytes]:
        start, stop = prefix_range(prefix)
        if to < END_OF_TIME:
            stop = prefix + _bytes(to + 1)
        return (key[len(prefix) :] for key, _ in store.scan(start, stop))


@final
@dataclass(frozen=True, slots=True)
class StoredWindows:
    """The windows of some stored values that have one layout.

    Args:
        chunk: The windows.
        key: The place of each one's key among all keys that were read, int64.
        sides: Of each value, its encoded side columns, and how many windows it has.
    """

    chunk: Chunk
    key: Int64Array
    sides: list[tuple[bytes, int]]


@final
@dataclass(frozen=True, slots=True)
class StoredKeyWindows:
    """What stored values hold.

    Args:
        waits: What each value waits for: ``due``, ``timer`` and ``hold``.
        keys_of_each: How many keys each value has, int64.
        windows: The windows, by layout.
    """

    waits: NDArray[np.void]
    keys_of_each: Int64Array
    windows: list[StoredWindows]
    _keys: list[tuple[Int64Array, Chunk, list[tuple[bytes, int]]]]
    _layouts: Layouts

    def keys(self, kinds: Kinds) -> Iterator[tuple[Int64Array, tuple[Column, ...]]]:
        """Yield (places among all keys; a column for each part), by layout.

        Args:
            kinds: The types of the parts.
        """
        for at, chunk, sides in self._keys:
            yield at, key_columns(chunk, sides, self._layouts, kinds)


def read_spilled(
    values: Sequence[bytes], layouts: Layouts, key_layouts: Layouts
) -> StoredKeyWindows:
    """Read stored values of keys with their windows.

    Args:
        values: The values.
        layouts: The layouts of windows.
        key_layouts: Those of keys.

    Raises:
        StateError: One of them is damaged.
    """
    size = _HEAD.itemsize
    with decoding(_WHAT):
        heads = joined([value[:size] for value in values], size).reshape(-1).view(_HEAD)
        ends = (heads["keys"].astype(np.int64) + size).tolist()
        each = np.zeros(len(values), dtype=np.int64)
        read = key_layouts.read_many(
            [value[size:end] for value, end in zip(values, ends, strict=True)]
        )
        for at, counts, _, _ in read:
            each[at] = counts
        first = np.cumsum(each) - each
        keys = [
            (
                expand_ranges(first[at], counts)[0],
                chunk,
                list(zip(sides, counts.tolist(), strict=True)),
            )
            for at, counts, chunk, sides in read
        ]
        windows = []
        for at, counts, chunk, sides in layouts.read_many(
            [value[end:] for value, end in zip(values, ends, strict=True)]
        ):
            of_value, nth = np.repeat(at, counts), chunk.records["key"]
            if ((nth < 0) | (nth >= each[of_value])).any():
                raise damaged(_WHAT, "it has a window of no key")
            pairs = list(zip(sides, counts.tolist(), strict=True))
            windows.append(StoredWindows(chunk, first[of_value] + nth, pairs))
        return StoredKeyWindows(heads, each, windows, keys, key_layouts)


def _heads(values: dict[bytes, bytes]) -> NDArray[np.void]:
    size = _HEAD.itemsize
    return joined([value[:size] for value in values.values()], size).reshape(-1).view(_HEAD)


def _prefixes(
    place: StoredPlace, prefixes: dict[int, bytes], names: Sequence[bytes]
) -> list[bytes]:
    """Return the prefix of the key group of each hash."""
    if place.count == 1:
        return [prefixes[place.first]] * len(names)
    groups = _hashes(names) % np.uint64(place.count)
    return [prefixes[place.first + group] for group in groups.tolist()]


def _names(hashes: NDArray[np.uint64]) -> list[bytes]:
    whole: list[bytes] = hashes.astype(_HASH).view("V8").tolist()
    return whole


def _hashes(names: Sequence[bytes]) -> NDArray[np.uint64]:
    return joined(names, 8).reshape(-1).view(_HASH).astype(np.uint64)


def _bytes(value: int) -> bytes:
    return encode_int64(np.array([value], dtype=np.int64)).tobytes()


def _instant(tail: bytes) -> int:
    return int.from_bytes(tail[:8]) - (1 << 63)
