"""Windows that have left memory for the store, and are loaded when touched or due.

Nothing that grows with them has to stay in memory: what is there is asked of the store, whose Bloom
filters answer for what is not. Keys stay if there is room. So a run that resumes reads what it
touches, however much there is.
How they are stored: :mod:`lowwater.engine.window.spilled_format`.

A key is *known* while it is certain how many of its windows are not in memory. All keys of a hash
are known or none, and the windows of a part are all in memory or none, so that values are written
whole. A part that was loaded stays in the store until the next commit, which
replaces or deletes it.

The file is long because a window is in memory, in the store or in both at different times of a
commit, and every change of that has to leave all of it right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.records.key_hash import hash_keys
from lowwater.engine.records.stored_keys import Kinds, StoredKeys, common_kinds, kinds_of
from lowwater.engine.window.spilled_format import (
    COMPLETE,
    OPEN,
    QUEUED,
    WAITS,
    PartOf,
    PartsByTime,
    TimedParts,
    pack_parts,
    pack_values,
    part_names,
    places_of,
    read_parts,
    read_values,
    read_waits,
)
from lowwater.engine.window.window_state import WindowState
from lowwater.state.arrays import NONE, among, distinct, mixed, run_starts, widened
from lowwater.state.formats import damaged, decoding
from lowwater.state.hashed_places import (
    Hashes,
    Places,
    Queue,
    distinct_hashes,
    hash_names,
    hashes_of,
    some_of,
)
from lowwater.state.key_layout import StoredPlace
from lowwater.state.row_codec import Layouts
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array, saturating_add

AT_ONCE = 1 << 17
"""Windows due at one watermark come back in portions of about so many."""

_CHUNK = 1 << 12
_FEW = 8
_LOADED_BYTES = 200  # of two objects and their place in a dict
_WHAT = "a stored window"


class Waits(Protocol):
    """Returns what rows wait for: (watermark due at, clock due at, hold), int64 each."""

    def __call__(self, rows: Int64Array, /) -> tuple[Int64Array, Int64Array, Int64Array]: ...


@final
class SpilledWindows:
    """The windows of an operator that are in the store alone.

    Args:
        state: The windows in memory.
        keys: Their keys.
        place: Where they are stored.
        tables: Tags of keys, parts, dues, timers and holds.
        key_bytes: About how many bytes keys may take: with more, those of which no window is in
            memory are forgotten until they are touched.
    """

    def __init__(
        self,
        state: WindowState,
        keys: StoredKeys,
        place: StoredPlace,
        tables: tuple[int, int, int, int, int],
        key_bytes: int,
    ) -> None:
        self._key_bytes = key_bytes
        self._state = state
        self._keys = keys
        self._of_hash, self._of_part = Places(place, tables[0]), Places(place, tables[1])
        # Windows that merge, or are woken at any time, are not due in the order of their ends.
        self._is_queued = state.merging is not None or state.machine.wakes
        self._open = PartsByTime(self._of_part, OPEN)
        self._complete = PartsByTime(self._of_part, COMPLETE)
        # A window that never expires is due at the end of time itself.
        self._dues = Queue(place, tables[2], ends=True)
        self.timers, self.holds = Queue(place, tables[3]), Queue(place, tables[4])
        self._windows = 0
        self._finished = 0
        self._kinds: Kinds = []
        self._layouts = Layouts()
        # The longest allowed lateness that dues were written under, which count until it.
        self._lateness = state.windowing.lateness_us
        # By key id: whether it is known, and how many of its windows are not in memory.
        self._known: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._away: Int64Array = np.zeros(0, dtype=np.int64)
        # The parts that are both in memory, where they may have changed, and stored.
        self._loaded: dict[bytes, bytes] = {}
        self.loaded_bytes = 0
        """About how many bytes of memory are taken by what was loaded, until the next commit."""
        # The hashes of keys whose stored value is out of date until the next commit.
        self._changed: list[Hashes] = []

    def __len__(self) -> int:
        """Return how many windows there are."""
        return self._windows

    @property
    def open_windows(self) -> int:
        """How many of them are open."""
        return self._windows - self._finished

    def record(self) -> dict[str, Any]:
        """Return what :meth:`resume` needs to know."""
        now = self._state.windowing.lateness_us
        return {
            "windows": self._windows,
            "finished": self._finished,
            "lateness": self._lateness if self._windows else now,
            "firsts": [queue.first for queue in self._firsts],
            "lasts": [self._open.last, self._complete.last],
            "kinds": self._kinds,
            "layouts": self._layouts.stored,
        }

    def resume(self, store: StateStore, record: dict[str, Any], ids: Int64Array) -> None:
        """Restore what :meth:`record` returned.

        Args:
            store: The store.
            record: The record.
            ids: The keys that are in memory.
        """
        self._windows, self._finished = record["windows"], record["finished"]
        self._lateness = max(self._lateness, record["lateness"])
        for queue, first in zip(self._firsts, record["firsts"], strict=True):
            queue.first = first
        self._open.last, self._complete.last = record["lasts"]
        self._kinds = [(kind, dtype) for kind, dtype in record["kinds"]]
        self._layouts.expect(record["layouts"])
        self._learn(store, ids)

    @property
    def _firsts(self) -> tuple[PartsByTime | Queue, ...]:
        return self._open, self._complete, self._dues, self.timers, self.holds

    def forget(self, kept: NDArray[np.bool_]) -> None:
        """Note that the dictionary is about to take back the ids that are not kept."""
        stays = np.zeros(max(len(kept), len(self._known)), dtype=np.bool_)
        stays[: len(kept)] = kept
        self._known &= stays[: len(self._known)]

    # -- leaving memory ------------------------------------------------------------------------

    def together(self, rows: Int64Array, others: Int64Array, complete: int) -> Int64Array:
        """Return those of some rows that are of the same parts as others.

        Args:
            rows: The rows.
            others: Some of them.
            complete: The watermark that windows are complete until.
        """
        key = self._state.table["key"]
        parts, theirs = (
            mixed((key[some], *self._part_of(some, complete).columns)) for some in (rows, others)
        )
        return rows[among(parts, theirs)]

    def write(self, batch: Batch, leaving: Int64Array, waits: Waits, passed: int) -> None:
        """Spill rows; rewrite or delete the stored copies of those loaded since the last commit.

        Args:
            batch: The batch.
            leaving: The rows: all that there are of each part.
            waits: Returns what rows wait for.
            passed: The watermark until which all that is due has been loaded.
        """
        if not (self._loaded or self._changed or leaving.size):
            return
        before, self._loaded, self.loaded_bytes = self._loaded, {}, 0
        after = self._parts(leaving, waits, passed) if leaving.size else {}
        _replace(batch, self._of_part, before, after)
        old, new = read_waits(list(before.values())), read_waits(list(after.values()))
        queues = (self._dues, passed), (self.timers, START_OF_TIME), (self.holds, START_OF_TIME)
        for name, (queue, until) in zip(WAITS.names or (), queues, strict=True):
            if queue is self._dues and not self._is_queued:
                continue
            entries = queue.entries(list(before), old[name]), queue.entries(list(after), new[name])
            queue.change(batch, *entries, until)
        if leaving.size:
            table = self._state.table
            # The first to leave: until then nobody asked which keys have windows elsewhere.
            if not self._windows:  # all keys are in memory with all their windows
                ids = distinct(table["key"][table.live()])
                self._cover(int(ids[-1]) + 1)
                self._known[ids] = True
            self._windows += len(leaving)
            self._finished += int(table["finished"][leaving].sum())
            keys = table["key"][leaving]
            np.add.at(self._away, keys, 1)
            self._changed.append(self._keys.hashes(distinct(keys)))
            if self._state.shown is not None:
                self._state.shown.drop(leaving)
            self._state.evict(leaving)
        self._write_keys(batch)

    def _parts(self, rows: Int64Array, waits: Waits, complete: int) -> dict[bytes, bytes]:
        """Return the values of parts, by name."""
        state, table = self._state, self._state.table
        places, part = state.places(rows), self._part_of(rows, complete)
        hashes = self._hashes(rows)
        # In the order of their names: the store takes rows in order in half the time.
        by = (places, hashes, part.end, part.phase, self._of_part.groups(hashes))
        order = np.lexsort((table["start"][rows], table["end"][rows], *by))
        rows, places, part, hashes = rows[order], places[order], part.take(order), hashes[order]
        begin = np.flatnonzero(run_starts(places, *part.columns))
        packed = state.codec.pack(rows)
        # Ids are this run's own; the name of the part says which key it is.
        packed.records.reshape(-1).view(state.codec.layouts.dtype(packed.layout))["key"] = 0
        first = np.empty(len(begin), dtype=WAITS)
        for name, times in zip(WAITS.names or (), waits(rows), strict=True):
            first[name] = np.minimum.reduceat(times, begin)
        if not self._is_queued:
            first["due"] = part.end[begin]
            for phase, parts in ((OPEN, self._open), (COMPLETE, self._complete)):
                parts.note(first["due"][part.phase[begin] == phase])
        names = part_names(part.take(begin), hashes[begin], places[begin])
        return dict(zip(names, pack_parts(packed, begin, first), strict=True))

    def _write_keys(self, batch: Batch) -> None:
        """Write the keys of which another number of windows is not in memory than was."""
        state = self._state
        if state.keys is None or not self._changed:
            return
        known = np.flatnonzero(self._known)
        hashes = self._keys.hashes(known)
        changed = distinct_hashes(np.concatenate(self._changed))
        self._changed = []
        of_changed = among(hashes, changed)
        ids, hashes = known[of_changed], hashes[of_changed]
        away = self._away[ids] > 0
        ids, hashes = ids[away], hashes[away]
        order = np.lexsort((state.place_of(ids), hashes, self._of_hash.groups(hashes)))
        ids, hashes = ids[order], hashes[order]
        some = hashes[:0]
        if ids.size:
            self._kinds = common_kinds(self._kinds, kinds_of(state.keys))
            some, values = pack_values(
                state.keys, ids, hashes, state.place_of(ids), self._away[ids], self._layouts
            )
            self._of_hash.put(batch, hash_names(some), some, values)
        gone = changed[~among(changed, some)]
        self._of_hash.delete(batch, hash_names(gone), gone)
        # Keys are forgotten last, as reading them again costs a lookup for each bundle.
        if state.key_bytes > self._key_bytes:
            self._leave(known)

    def _leave(self, known: Int64Array) -> None:
        """Forget keys without rows in memory, unless another key of their hash still has some."""
        out = self._state.rows_of(known) == self._away[known]
        hashes = self._keys.hashes(known)
        out &= ~among(hashes, hashes[~out])
        ids = known[out]
        self._state.count_keys(ids, -self._away[ids])
        self._away[ids], self._known[ids] = 0, False

    # -- coming back ---------------------------------------------------------------------------

    def load_touched(
        self,
        store: StateStore,
        keys: Int64Array,
        start: Int64Array,
        end: Int64Array,
        watermark: int,
    ) -> Int64Array:
        """Load the windows that elements may fall in or merge with; return their rows.

        Args:
            store: The store.
            keys: Key id of each element's window, int64, shape (n,).
            start: Its start.
            end: Its end.
            watermark: The watermark.
        """
        self._learn(store, distinct(keys))
        if not self._windows:
            return NONE
        away = self._away[keys] > 0
        keys, start, end = keys[away], start[away], end[away]
        if not keys.size:
            return NONE
        if self._state.merging is None:
            part = PartOf(self._phases(end, watermark), end)
            absent: NDArray[np.bool_] = self._state.index.find(keys, start, end) < 0
            if not self._is_queued:
                lasts = np.array([self._open.last, self._complete.last])
                absent &= end <= lasts[part.phase]
            keys, part = keys[absent], part.take(np.flatnonzero(absent))
        else:
            keys = distinct(keys)
            part = PartOf.whole(len(keys))
        hashes, places = self._keys.hashes(keys), self._state.place_of(keys)
        names = list(dict.fromkeys(part_names(part, hashes, places)))
        return self._load(store, names, distinct(keys))

    def is_due(self, to: int) -> bool:
        """Whether a watermark may make a window due."""
        if self._is_queued:
            return bool(self._windows) and self._dues.first <= self._reach(to)
        expired = self._expired_end(to)
        return bool(self._windows) and (self._open.first <= to or self._complete.first <= expired)

    def next_due(self) -> int:
        """Return a watermark before which no window is due; the end of time for none."""
        lateness = self._state.windowing.lateness_us
        if self._is_queued:
            return saturating_add(self._dues.first, lateness - self._lateness)
        return min(self._open.first, saturating_add(self._complete.first, lateness))

    def load_due(
        self, store: StateStore, to: int, after: int, most: int
    ) -> tuple[Int64Array, int | None]:
        """Load a portion of the windows that a watermark makes due.

        Args:
            store: The store.
            to: The watermark.
            after: The watermark before; or until when what is due has been dealt with.
            most: About how many windows; those that come due at one time come together.

        Returns:
            (their rows; up to where all that is due is loaded, ``None`` if that is all).
        """
        if self._is_queued:
            return self._load_queued(store, to, most)
        lateness = self._state.windowing.lateness_us
        ahead = -(-most // 4)  # what is read and not taken is read again in the next portion
        completing = TimedParts(self._open.upto(store, to, ahead), 0)
        expired = self._expired_end(to)
        expiring = TimedParts(self._complete.upto(store, expired, ahead), lateness)
        rows: list[Int64Array] = []
        until = START_OF_TIME
        while until < END_OF_TIME:
            min(completing, expiring, key=lambda parts: parts.until).read()
            until = min(completing.until, expiring.until)
            parts = dict(completing.take(until))
            parts.update(expiring.take(until))
            fresh = {name: parts[name] for name in parts if name not in self._loaded}
            rows.append(self._fill(store, fresh, NONE))
            if sum(map(len, rows)) >= most and after < until < to:
                self._note_taken(until)
                return np.concatenate(rows), until
        self._note_taken(to)
        return np.concatenate(rows), None

    def _note_taken(self, upto: int) -> None:
        self._open.taken, self._complete.taken = upto, self._expired_end(upto)

    def _load_queued(self, store: StateStore, to: int, most: int) -> tuple[Int64Array, int | None]:
        reach = self._reach(to)
        # A custom trigger that was woken in one portion must not be woken again in the next.
        if reach > to or self._state.machine.wakes:
            most = len(self)
        rows: list[Int64Array] = []
        names: list[bytes] = []
        windows, last = 0, None
        for at, name in self._dues.upto(store, reach):
            if name in self._loaded:
                continue
            # Windows that come due at one time fire together, so a portion never ends between them.
            if at != last and last is not None and len(names) >= min(most, _CHUNK):
                rows.append(self._load(store, names))
                windows, names = windows + len(rows[-1]), []
                if windows >= most:
                    self._dues.first = at
                    return np.concatenate(rows), last
            last = at
            names.append(name)
        rows.append(self._load(store, names))
        self._dues.first = self._dues.after(store, reach)
        return np.concatenate(rows), None

    def _expired_end(self, to: int) -> int:
        """Return where windows end at the latest that have expired at a watermark."""
        if to == END_OF_TIME:
            return to
        return saturating_add(to, -self._state.windowing.lateness_us)

    def load_timers(self, store: StateStore, to: int) -> Int64Array:
        """Load all windows whose timers are due at a clock; return their rows."""
        rows = self._load(store, [name for _, name in self.timers.upto(store, to)])
        self.timers.first = self.timers.after(store, to)
        return rows

    def load_holder(self, store: StateStore, low: int) -> Int64Array:
        """Load the part with the earliest hold, if it is before an instant; return its rows."""
        # A queue may still name parts that were loaded since: they hold by their rows in memory.
        for at, name in self.holds.upto(store, low - 1):
            self.holds.first = at
            if name not in self._loaded:
                return self._load(store, [name])
        self.holds.first = low
        return NONE

    def load_all(self, store: StateStore) -> Iterator[Int64Array]:
        """Load all, portion by portion; yield the rows of each."""
        for rows in self._of_part.scans(store):
            for values in some_of(rows, _CHUNK):
                yield self._fill(store, values, NONE)

    def _load(
        self, store: StateStore, names: Sequence[bytes], ids: Int64Array = NONE
    ) -> Int64Array:
        """Load parts; return the rows.

        Args:
            store: The store.
            names: Their names.
            ids: Keys that they may be of.
        """
        names = [name for name in names if name not in self._loaded]
        return self._fill(store, self._of_part.get(store, names), ids) if names else NONE

    def _fill(self, store: StateStore, values: dict[bytes, bytes], ids: Int64Array) -> Int64Array:
        """Put parts into memory; return the rows."""
        if not values:
            return NONE
        state, table = self._state, self._state.table
        names = list(values)
        hashes = hashes_of(names)
        of_part = self._keys_of(store, hashes, places_of(names), ids)
        self._changed.append(distinct_hashes(hashes))
        found: list[Int64Array] = []
        for part in read_parts(list(values.values()), state.codec.layouts):
            keys = of_part[part.part]
            with decoding(_WHAT):
                rows = table.allocate(len(part.chunk))
                every = np.arange(len(rows))
                state.codec.fill(rows, part.chunk, every)
                table["key"][rows] = keys
                state.codec.side.put(rows, part.sides, part.counts, every)
            state.readmit(rows)
            np.subtract.at(self._away, keys, 1)
            found.append(rows)
        self._loaded.update(values)
        self.loaded_bytes += len(values) * _LOADED_BYTES + sum(map(len, values.values()))
        rows = np.concatenate(found)
        self._windows -= len(rows)
        self._finished -= int(table["finished"][rows].sum())
        if self._windows < 0 or (self._away[table["key"][rows]] < 0).any():
            raise damaged(_WHAT, "there are more of its key than had left memory")
        return rows

    def _keys_of(
        self, store: StateStore, hashes: Hashes, places: Int64Array, ids: Int64Array
    ) -> Int64Array:
        """Return the ids of keys with some hashes and places; read them if they are not known."""
        # Looking through the keys in memory saves reads where many are asked for.
        if not ids.size and _FEW * len(hashes) >= len(self._known):  # few are read as quickly
            ids = np.flatnonzero(self._known & (self._away > 0))
            ids = ids[among(self._keys.hashes(ids), hashes)] if ids.size else ids
        key_ids = self._find(hashes, places, ids)
        if (unknown := key_ids < 0).any():
            read = self._read_keys(store, distinct_hashes(hashes[unknown]))
            key_ids[unknown] = self._find(hashes[unknown], places[unknown], read)
        if (key_ids < 0).any():
            raise damaged(_WHAT, "it is of no key")
        return key_ids

    def _find(self, hashes: Hashes, places: Int64Array, ids: Int64Array) -> Int64Array:
        """Return which of some keys have these hashes and places; -1 for none."""
        if not ids.size:
            return np.full(len(hashes), -1)
        own, place = self._keys.hashes(ids).view(np.int64), self._state.place_of(ids)
        codes = mixed((own, place))
        order = np.argsort(codes)
        at = np.searchsorted(codes[order], mixed((hashes.view(np.int64), places)))
        at = order[np.minimum(at, len(order) - 1)]
        same = (own[at] == hashes.view(np.int64)) & (place[at] == places)
        return np.where(same, ids[at], -1)

    # -- keys ----------------------------------------------------------------------------------

    def _learn(self, store: StateStore, ids: Int64Array) -> None:
        """Mark keys as known."""
        if not ids.size:
            return
        self._keys.use(self._state.keys)
        self._cover(int(ids[-1]) + 1)
        unknown = ids[~self._known[ids]]
        if not unknown.size:
            return
        if self._windows:
            self._read_keys(store, distinct_hashes(self._keys.hashes(unknown)))
        self._known[unknown] = True

    def _read_keys(self, store: StateStore, hashes: Hashes) -> Int64Array:
        """Read the keys with some hashes that have stored windows; return their ids."""
        state = self._state
        stored = self._of_hash.get(store, hash_names(hashes))
        if not stored:
            return NONE
        read = read_values(list(stored), list(stored.values()), self._layouts, self._kinds)
        ids = np.empty(len(read.hashes), dtype=np.int64)
        for at, columns in read.columns:
            if (hash_keys(columns) != read.hashes[at]).any():
                raise damaged("a stored key", "it is stored under another one")
            ids[at] = state.ids_of(columns)
        self._keys.use(state.keys)
        self._cover(int(ids.max()) + 1)
        self._keys.know(ids, read.hashes)
        if not 0 <= read.place.min() <= read.place.max() < state.places_given:
            raise damaged("a stored key", "it is in no order among the others")
        fresh = ~self._known[ids]
        if self._changed and fresh.any():  # the windows of a key that was forgotten are all gone
            fresh &= ~among(read.hashes, np.concatenate(self._changed))
        new = ids[fresh]
        self._away[new] = read.windows[fresh]
        self._known[new] = True
        state.count_keys(new, read.windows[fresh], read.place[fresh])
        return ids

    def _hashes(self, rows: Int64Array) -> Hashes:
        return self._keys.hashes(self._state.table["key"][rows])

    def _part_of(self, rows: Int64Array, complete: int) -> PartOf:
        if self._state.merging is not None:
            return PartOf.whole(len(rows))
        end = self._state.table["end"][rows]
        return PartOf(self._phases(end, complete), end)

    def _phases(self, end: Int64Array, complete: int) -> Int64Array:
        if self._is_queued:
            return np.full(len(end), QUEUED)
        return np.where(end <= complete, COMPLETE, OPEN)

    def _reach(self, to: int) -> int:
        """Return until when what a watermark makes due may be queued."""
        return saturating_add(to, self._lateness - self._state.windowing.lateness_us)

    def _cover(self, need: int) -> None:
        if need > len(self._known):
            room = max(need, 2 * len(self._known))
            self._known = widened(self._known, room, False)
            self._away = widened(self._away, room)

    def _check(self) -> None:
        """Assert what must hold between keys and windows. O(keys)."""
        assert (self._known | (self._away == 0)).all()
        assert (self._away >= 0).all()
        assert int(self._away.sum()) <= self._windows
        assert 0 <= self._finished <= self._windows
        self._state._check_keys(self._away)


def _replace(
    batch: Batch, places: Places, before: dict[bytes, bytes], after: dict[bytes, bytes]
) -> None:
    """Replace stored values by others, both by name."""
    gone = [name for name in before if name not in after]
    places.delete(batch, gone, hashes_of(gone))
    if before:
        after = {name: value for name, value in after.items() if before.get(name) != value}
    fresh = list(after)
    places.put(batch, fresh, hashes_of(fresh), list(after.values()))
