"""Keys whose records have left memory for the store, and are loaded when touched or due.

Records of a key, of both sides, leave and come back together, and with them those of other keys of
the same hash. Nothing that grows with them stays in memory: what is there is asked of the store.
A part that was loaded stays in the store until the next commit, which replaces or deletes it.
How they are stored: :mod:`lowwater.engine.keyed.spilled_format`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.keyed.sides import LEFT, RIGHT
from lowwater.engine.keyed.spilled_format import WAITS, StoredParts, read_part_keys, read_records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import hash_keys
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.records.stored_keys import (
    Kinds,
    StoredKeys,
    common_kinds,
    key_values,
    kinds_of,
)
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import NONE, among, distinct, run_starts, widened
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
from lowwater.state.row_codec import Layouts, PackedRows, RowCodec
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, Int64Array, saturating_add

AT_ONCE = 1 << 15
"""Parts due at one watermark come back in portions of about so many."""

_CHUNK = 1 << 12
_LOADED_BYTES = 300  # of a name, what it waits for, and their place in a dict
_WHAT = "a stored row of a stage"


class Spilling(Protocol):
    """The operator whose records leave."""

    sides: tuple[KeyedRecords, ...]
    link: str | None
    """The column of the left side that refers to rows of the right one, if there is any."""

    def waits(self, side: int, rows: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return what all rows of some keys wait for: (watermark, the right side's, hold)."""

    def readmitted(self, side: int, rows: Int64Array) -> None:
        """Queue rows that were loaded, in no order, for all that they wait for."""

    def encode_keys(self, columns: tuple[Column, ...]) -> tuple[KeyDictionary, Int64Array]:
        """Return the dictionary of keys, and the id of each."""


@final
class SpilledKeys:
    """The keys of an operator whose records are in the store alone.

    Args:
        operator: The operator.
        codecs: Pack the rows of each side.
        keys: The stored keys of those that are in memory.
        place: Where they are stored.
        tables: Tags of parts, dues, dues at the right side, and holds.
    """

    def __init__(
        self,
        operator: Spilling,
        codecs: Sequence[RowCodec],
        keys: StoredKeys,
        place: StoredPlace,
        tables: tuple[int, int, int, int],
    ) -> None:
        self._operator = operator
        self._codecs = codecs
        self._keys = keys
        self._places = Places(place, tables[0])
        self.dues, self.right_dues, self.holds = (Queue(place, table) for table in tables[1:])
        self._queues = {"due": self.dues, "right": self.right_dues, "hold": self.holds}
        self._count = 0
        self.rows = [0] * len(codecs)
        """How many records of each side are not in memory."""
        self._kinds: Kinds = []
        self._layouts = Layouts()
        # By key id: whether it is certain that no record of its hash is in the store alone.
        self._known: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        # The parts that are both in memory, where they may have changed, and stored.
        self._loaded: dict[bytes, Any] = {}
        self._dropped = False

    def __bool__(self) -> bool:
        return self._count > 0

    @property
    def loaded_bytes(self) -> int:
        """About how many bytes of memory are taken by what was loaded, until the next commit."""
        return len(self._loaded) * _LOADED_BYTES

    def record(self) -> dict[str, Any]:
        """Return what :meth:`resume` needs to know."""
        return {
            "parts": self._count,
            "rows": self.rows,
            "firsts": [queue.first for queue in self._queues.values()],
            "kinds": self._kinds,
            "layouts": self._layouts.stored,
            "former": [side.kept.former_kinds() for side in self._operator.sides],
        }

    def resume(self, record: dict[str, Any], ids: Int64Array) -> None:
        """Restore what :meth:`record` returned.

        Args:
            record: The record.
            ids: The keys that are in memory.
        """
        self._count, self.rows = record["parts"], list(record["rows"])
        for queue, first in zip(self._queues.values(), record["firsts"], strict=True):
            queue.first = first
        self._kinds = [(kind, dtype) for kind, dtype in record["kinds"]]
        self._layouts.expect(record["layouts"])
        for side, former in zip(self._operator.sides, record["former"], strict=True):
            side.kept.expect_former(former)
        self._know(ids)

    def forget(self, kept: NDArray[np.bool_]) -> None:
        """Note that the dictionary is about to take back the ids that are not kept."""
        stays = np.zeros(max(len(kept), len(self._known)), dtype=np.bool_)
        stays[: len(kept)] = kept
        self._known &= stays[: len(self._known)]

    def drop(self) -> None:
        """Mark all that is not in memory to be deleted at the next commit, without loading it."""
        self._count, self.rows = 0, [0] * len(self.rows)
        self._loaded, self._dropped = {}, True
        for queue in self._queues.values():
            queue.first = END_OF_TIME

    # -- leaving memory ------------------------------------------------------------------------

    def write(self, batch: Batch, leaving: Int64Array) -> None:
        """Spill keys; rewrite or delete the stored copies of those loaded since the last commit.

        Args:
            batch: The batch.
            leaving: Ids of keys with records: all there are of each hash.
        """
        if self._dropped:
            self._places.clear(batch)
            for queue in self._queues.values():
                queue.clear(batch)
            self._dropped = False
        before, self._loaded = self._loaded, {}
        names: list[bytes] = []
        new = np.empty(0, dtype=WAITS)
        if leaving.size:
            names, parts = self._pack(leaving)
            new = parts.waits
            self._places.put(batch, names, hashes_of(names), parts.values())
            self._evict(leaving)
            self._count += len(names)
        elif not before:
            return
        stay = set(names)
        gone = [name for name in before if name not in stay]
        self._places.delete(batch, gone, hashes_of(gone))
        old = np.array(list(before.values()), dtype=WAITS)
        for name, queue in self._queues.items():
            former = queue.entries(list(before), old[name])
            queue.change(batch, former, queue.entries(names, new[name]), None)

    def _pack(self, ids: Int64Array) -> tuple[list[bytes], StoredParts]:
        """Return the names of parts, and the parts."""
        dictionary = self._keys.keys
        assert dictionary is not None
        hashes = self._keys.hashes(ids)
        order = np.lexsort((ids, hashes))
        ids, hashes = ids[order], hashes[order]
        starts = run_starts(hashes.view(np.int64))
        begin = np.flatnonzero(starts)
        part = np.full(dictionary.capacity, -1)
        part[ids] = np.cumsum(starts) - 1
        place = np.zeros(dictionary.capacity, dtype=np.int64)
        place[ids] = np.arange(len(ids)) - begin[part[ids]]
        self._kinds = common_kinds(self._kinds, kinds_of(dictionary))
        keys = key_values(dictionary, ids, begin, self._layouts)
        waits = np.full(len(begin), END_OF_TIME).astype(WAITS)
        packed: list[list[bytes]] = [[] for _ in self._codecs]
        at_right = NONE
        for number in reversed(range(len(self._codecs))):  # the left side refers to the right one
            side, codec = self._operator.sides[number], self._codecs[number]
            rows = side.table.live()
            rows = rows[part[side.table["key"][rows]] >= 0]
            times = self._operator.waits(number, rows)
            for name, each in zip(WAITS.names or (), times, strict=True):
                np.minimum.at(waits[name], part[side.table["key"][rows]], each)
            of = part[side.table["key"][rows]]
            order = np.lexsort((side.table["born"][rows], side.table["start"][rows], of))
            rows, of = rows[order], of[order]
            first = np.flatnonzero(run_starts(of))
            chunk = codec.pack(rows)
            fields = chunk.records.reshape(-1).view(codec.layouts.dtype(chunk.layout))
            fields["key"] = place[fields["key"]]
            if number == LEFT and self._operator.link is not None:
                met = fields[self._operator.link]
                refers = met >= 0
                met[refers] = at_right[met[refers]]
            if number == RIGHT:
                at_right = np.zeros(side.table.capacity, dtype=np.int64)
                at_right[rows] = _places(first, len(rows))
            packed[number] = _by_part(chunk, of[first], first, len(begin))
        return hash_names(hashes[begin]), StoredParts(waits, keys, packed)

    def _evict(self, ids: Int64Array) -> None:
        """Release the rows of keys."""
        if not self._count:  # all keys are in memory with all their records
            self._known[:] = False
            for side in self._operator.sides:
                self._know(distinct(side.table["key"][side.table.live()]))
        leaves = np.zeros(int(ids.max()) + 1, dtype=np.bool_)
        leaves[ids] = True
        for number, side in enumerate(self._operator.sides):
            rows = side.table.live()
            keys = side.table["key"][rows]
            rows = rows[(keys < len(leaves)) & leaves[np.minimum(keys, len(leaves) - 1)]]
            self.rows[number] += len(rows)
            side.evict(rows)
        # Those without records too: what is added to them must meet what is stored of their hash.
        known = np.flatnonzero(self._known)
        hashes = self._keys.hashes(known)
        self._known[known[among(hashes, self._keys.hashes(ids))]] = False

    # -- coming back ---------------------------------------------------------------------------

    def load_touched(self, store: StateStore, ids: Int64Array) -> None:
        """Load the records of keys; ids may repeat."""
        self._cover(int(ids.max(initial=-1)) + 1)
        unknown = distinct(ids[~self._known[ids]])
        if unknown.size:
            self._load(store, hash_names(distinct_hashes(self._keys.hashes(unknown))))
            self._know(unknown)

    def load_due(self, store: StateStore, queue: Queue, to: int) -> int | None:
        """Load a portion of what is due at a watermark.

        Args:
            store: The store.
            queue: Which watermark: :attr:`dues` or :attr:`right_dues`.
            to: The watermark.

        Returns:
            The watermark until which all that is due has been loaded; ``None`` if that is all.
        """
        names: list[bytes] = []
        taken, last = 0, None
        for at, name in queue.upto(store, to):
            if name in self._loaded:
                continue
            if at != last and last is not None:
                if taken + len(names) >= AT_ONCE:
                    self._load_queued(store, names)
                    queue.first = at
                    return last
                if len(names) >= _CHUNK:
                    self._load_queued(store, names)
                    taken, names = taken + len(names), []
            last = at
            names.append(name)
        self._load_queued(store, names)
        queue.first = queue.after(store, to)
        return None

    def load_last(self, store: StateStore, queue: Queue, after: int) -> int | None:
        """Load a portion of what comes out as the input ends; have all else deleted.

        Nothing stays then, so what is loaded need not be remembered until the next commit.

        Args:
            store: The store.
            queue: What comes out.
            after: How much later than its instant in the queue, in microseconds.

        Returns:
            The watermark until which all that comes out has been loaded; ``None`` if that is all.
        """
        before = self._loaded
        bound: int | None = END_OF_TIME
        while bound == END_OF_TIME:  # beyond the last instant there are no portions
            self._loaded = dict(before)
            last = self.load_due(store, queue, END_OF_TIME)
            bound = None if last is None else saturating_add(last, after)
        self._loaded = before
        if bound is None:
            self.drop()
        return bound

    def load_holder(self, store: StateStore, low: int) -> None:
        """Load the part with the earliest hold, if it is before an instant."""
        for at, name in self.holds.upto(store, low - 1):
            self.holds.first = at
            if name not in self._loaded:
                self._load_queued(store, [name])
                return
        self.holds.first = low

    def load_all(self, store: StateStore) -> None:
        """Load all."""
        for found in self._places.scans(store):
            for values in some_of(found, _CHUNK):
                self._fill(values)

    def _load(self, store: StateStore, names: Sequence[bytes]) -> None:
        """Load parts, those of them that there are."""
        names = [name for name in names if name not in self._loaded]
        if names:
            self._fill(self._places.get(store, names))

    def _load_queued(self, store: StateStore, names: Sequence[bytes]) -> None:
        """Load parts that a queue names; each must be there."""
        values = self._places.get(store, names) if names else {}
        if len(values) < len(names):
            gone = len(names) - len(values)
            raise damaged(_WHAT, f"{gone} of {len(names)} that are queued are not there")
        self._fill(values)

    def _fill(self, values: dict[bytes, bytes]) -> None:
        """Put parts into memory."""
        if not values:
            return
        names = list(values)
        sides = self._operator.sides
        parts = StoredParts.read(list(values.values()), len(sides))
        ids, first = self._read_keys(parts.keys, hashes_of(names))
        filled = [
            self._fill_side(number, records, ids, first)
            for number, records in enumerate(parts.sides)
        ]
        link = self._operator.link
        if link is not None:
            self._refer(sides[LEFT].table[link], filled[LEFT], filled[RIGHT])
        self._loaded.update(zip(names, parts.waits, strict=True))
        self._count -= len(names)
        for number, (every, _) in enumerate(filled):
            self.rows[number] -= len(every)
            if self._count < 0 or self.rows[number] < 0:
                raise damaged(_WHAT, "there are more than had left memory")
            # In the order in which they were packed, so those of a key by time and arrival. Between
            # keys no order is needed: what is due is sorted when it is taken.
            sides[number].readmit(every)
            self._operator.readmitted(number, every)

    def _read_keys(self, values: Sequence[bytes], hashes: Hashes) -> tuple[Int64Array, Int64Array]:
        """Return the ids of the keys of parts, and the place of the first of each part."""
        read, first = read_part_keys(values, self._layouts, self._kinds)
        ids = np.empty(int(first[-1]), dtype=np.int64)
        of_each = repeated(hashes, np.diff(first))
        for at, columns in read:
            if (hash_keys(columns) != of_each[at]).any():
                raise damaged(_WHAT, "its key is stored under another one")
            dictionary, ids[at] = self._operator.encode_keys(columns)
            self._keys.use(dictionary)
        self._keys.know(ids, of_each)
        self._know(ids)
        return ids, first

    def _fill_side(
        self, number: int, values: Sequence[bytes], ids: Int64Array, first: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """Fill rows of one side; return them, part by part, and the first of each part."""
        side, codec = self._operator.sides[number], self._codecs[number]
        read, begin = read_records(values, codec.layouts)
        rows = np.empty(int(begin[-1]), dtype=np.int64)
        with decoding(_WHAT):
            for each in read:
                own = side.table.allocate(len(each.chunk))
                every = np.arange(len(own))
                codec.fill(own, each.chunk, every)
                side.kept.convert(own, each.chunk.records)
                place = each.chunk.records["key"]
                if (place < 0).any() or (place >= np.diff(first)[each.part]).any():
                    raise damaged(_WHAT, "it is of no key")
                side.table["key"][own] = ids[first[each.part] + place]
                codec.side.put(own, each.sides, each.counts, every)
                rows[each.at] = own
        return rows, begin

    def _refer(
        self,
        met: Int64Array,
        left: tuple[Int64Array, Int64Array],
        right: tuple[Int64Array, Int64Array],
    ) -> None:
        """Restore the references from rows of the left side to rows of the right one."""
        rows, begin = left
        part = repeated(np.arange(len(begin) - 1), np.diff(begin))
        refers = met[rows] >= 0
        rows, part = rows[refers], part[refers]
        if (met[rows] >= np.diff(right[1])[part]).any():
            raise damaged(_WHAT, "it refers to a record that is not there")
        met[rows] = right[0][right[1][part] + met[rows]]

    def _know(self, ids: Int64Array) -> None:
        self._cover(int(ids.max(initial=-1)) + 1)
        self._known[ids] = True

    def _cover(self, need: int) -> None:
        if need > len(self._known):
            self._known = widened(self._known, max(need, 2 * len(self._known)), False)

    def _check(self) -> None:
        """Assert what must hold between keys and records. O(keys)."""
        assert self._count >= 0
        assert all(count >= 0 for count in self.rows)
        assert bool(self._count) == any(self.rows)
        if self._count:
            for side in self._operator.sides:
                ids = distinct(side.table["key"][side.table.live()])
                assert self._known[ids].all()


def _places(first: Int64Array, count: int) -> Int64Array:
    """Return the place of each of some rows in its part, given where parts begin."""
    every = np.arange(count)
    return every - repeated(first, np.diff(first, append=count))


def _by_part(packed: PackedRows, parts: Int64Array, first: Int64Array, count: int) -> list[bytes]:
    """Return the packed rows of each part, empty for those without any."""
    values = [b""] * count
    chunks = packed.cut(first, len(packed.records)) if len(first) else []
    for at, chunk in zip(parts.tolist(), chunks, strict=True):
        values[at] = chunk
    return values
