"""The stored form of windows that are not in memory.

::

    keys    (key group | hash of the key)                            ->  the keys of that hash
    parts   (key group | phase | end | hash of the key | its place)  ->  windows
    queues  (key group | instant | name of the part)                 ->  nothing

    keys    bytes of keys u32 | keys | place i64 and number of windows i64 of each key
    parts   due i64 | timer i64 | hold i64 | windows

A hash mostly has one key; the place of a key in the order of first-seen keys is its own. Windows of
a key that end together are one part. Parts of windows that are not complete, and of those that are
and have not expired, are in order of time, so that what is due is a range. Windows of a key that
merge are all in one part, and it, as those with triggers of a user's own, is in a queue by when it
is due.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.records.columns import Column
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.records.stored_keys import Kinds, key_columns, key_values
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import expand_ranges, run_starts
from lowwater.state.formats import damaged, decoding
from lowwater.state.hashed_places import (
    Hashes,
    Places,
    decode_instant,
    encode_hashes,
    encode_instant,
    hashes_of,
    merged,
)
from lowwater.state.key_layout import decode_int64, encode_int64
from lowwater.state.row_codec import Chunk, Layouts, PackedRows, joined, rows_as_bytes
from lowwater.state.store import StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array, saturating_add_array

WAITS = np.dtype([("due", "<i8"), ("timer", "<i8"), ("hold", "<i8")])
"""What the windows of a part wait for first: the watermark and the clock, and their hold.

Where a part is in order of time, ``due`` is the end of its windows.
"""
PART_BYTES = 25
OPEN, COMPLETE, QUEUED = range(3)
"""The phase of a part: of windows that are not complete, or are; or its windows may be either."""
_LENGTH = Struct("<I")
_OF_KEY = np.dtype([("place", "<i8"), ("windows", "<i8")])
_WHAT = "a stored window"


@final
@dataclass(frozen=True, slots=True)
class PartOf:
    """Which part of its key each of some windows is in, int64 each.

    Windows that end together become complete together: so a part goes from one phase to the next
    as a whole, and never meets another one there.

    Args:
        phase: :data:`OPEN`, :data:`COMPLETE` or :data:`QUEUED`.
        end: Where they end; 0 for windows that merge.
    """

    phase: Int64Array
    end: Int64Array

    @classmethod
    def whole(cls, count: int) -> PartOf:
        """Return that of windows that merge: one for all windows of a key."""
        return cls(np.full(count, QUEUED), np.zeros(count, dtype=np.int64))

    def take(self, rows: Int64Array) -> PartOf:
        """Select some."""
        return PartOf(self.phase[rows], self.end[rows])

    @property
    def columns(self) -> tuple[Int64Array, Int64Array]:
        """What tells one from another."""
        return self.phase, self.end


def part_names(part: PartOf, hashes: Hashes, places: Int64Array) -> list[bytes]:
    """Return the names of parts: those of one time are near each other."""
    encoded = encode_hashes(hashes)
    phase = part.phase.astype(np.uint8).reshape(-1, 1)
    return rows_as_bytes(np.hstack([phase, encode_int64(part.end), encoded, encode_int64(places)]))


def is_queued(name: bytes) -> bool:
    """Whether a part is in a queue by when it is due."""
    return name[0] == QUEUED


def places_of(names: Sequence[bytes]) -> Int64Array:
    """Return the places of the keys of parts."""
    return decode_int64(joined(list(names), PART_BYTES)[:, -8:])


@final
class PartsByTime:
    """The parts of a phase, in order of time.

    Args:
        places: Where parts are.
        phase: The phase.
    """

    def __init__(self, places: Places, phase: int) -> None:
        self._places = places
        self._phase = phase
        self.first = END_OF_TIME
        """No part that is not in memory has an earlier end."""
        self.taken = START_OF_TIME
        """All parts that end until then are in memory: they need not be looked for again."""
        self.last = START_OF_TIME
        """No part that is not in memory has a later end."""

    def note(self, ends: Int64Array) -> None:
        """Note where parts end that leave memory."""
        if ends.size:
            self.first = min(self.first, int(ends.min()))
            self.last = max(self.last, int(ends.max()))

    def upto(self, store: StateStore, to: int, most: int) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield (name, value) of the parts that end until then, in order, some at a time.

        Once the iterator has ended, no part that is not in memory ends before :attr:`first`.

        Args:
            store: The store.
            to: The time.
            most: How many parts to read ahead, about.
        """
        if self.first > to:
            return
        phase, high = bytes([self._phase]), bytes([self._phase + 1])
        low = phase + encode_instant(min(self.taken, END_OF_TIME - 1) + 1)
        beyond = high if to >= END_OF_TIME else phase + encode_instant(to + 1)
        yield from merged(list(self._places.scans(store, low, beyond)), most)
        firsts = [next(scan, None) for scan in self._places.scans(store, beyond, high)]
        self.first = min(
            (decode_instant(one[0][1:]) for one in firsts if one is not None), default=END_OF_TIME
        )


@final
class TimedParts:
    """Reads parts in the order of when they are due, and knows until when it has read all.

    Args:
        found: Some parts at a time: their names and values, in order of their ends.
        lateness: How long after their ends they are due, in microseconds.
    """

    def __init__(self, found: Iterator[list[tuple[bytes, bytes]]], lateness: int) -> None:
        self._found = found
        self._lateness = lateness
        # What was read and not taken, and from where on: what was taken goes as more is read.
        self._read: list[tuple[bytes, bytes]] = []
        self._times: Int64Array = np.zeros(0, dtype=np.int64)
        self._from = 0
        self.until = START_OF_TIME
        """All that is due until then has been read."""

    def read(self) -> None:
        """Read more, if there is more."""
        more = next(self._found, None)
        if more is None:
            self.until = END_OF_TIME
            return
        ends = decode_int64(joined([name for name, _ in more], PART_BYTES)[:, 1:9])
        times = saturating_add_array(ends, self._lateness)
        self._read = self._read[self._from :] + more
        self._times = np.concatenate([self._times[self._from :], times])
        self._from = 0
        self.until = int(times[-1]) - 1

    def take(self, until: int) -> list[tuple[bytes, bytes]]:
        """Return what is due until a time, and was not taken."""
        low, self._from = self._from, int(np.searchsorted(self._times, until, side="right"))
        return self._read[low : self._from]


@final
@dataclass(frozen=True, slots=True)
class ReadKeys:
    """Keys that were read, those of a layout together.

    Args:
        hashes: The hash that each is stored under, shape (n,).
        place: Their places in the order of first-seen keys, int64.
        windows: How many of their windows are not in memory, int64.
        columns: (places among them; a column for each part).
    """

    hashes: Hashes
    place: Int64Array
    windows: Int64Array
    columns: list[tuple[Int64Array, tuple[Column, ...]]]


def pack_values(
    keys: KeyDictionary, ids: Int64Array, hashes: Hashes, place: Int64Array, windows: Int64Array,
    layouts: Layouts,
) -> tuple[Hashes, list[bytes]]:  # fmt: skip
    """Return the hashes, each once and in their order, and the value of each.

    Args:
        keys: The dictionary.
        ids: The ids of keys, those of a hash one after the other.
        hashes: Their hashes.
        place: Their places in the order of first-seen keys.
        windows: How many of their windows are not in memory.
        layouts: The layouts that keys are packed in.
    """
    begin = np.flatnonzero(run_starts(hashes.view(np.int64)))
    packed = key_values(keys, ids, begin, layouts)
    of_keys = np.empty(len(ids), dtype=_OF_KEY)
    of_keys["place"], of_keys["windows"] = place, windows
    if len(begin) == len(ids):  # a key each
        tails = rows_as_bytes(of_keys.view(np.uint8).reshape(len(ids), -1))
    else:
        bounds = pairwise([*begin.tolist(), len(ids)])
        tails = [of_keys[low:high].tobytes() for low, high in bounds]
    lengths = np.fromiter(map(len, packed), dtype="<u4", count=len(packed))
    heads = rows_as_bytes(lengths.view(np.uint8).reshape(-1, _LENGTH.size))
    values = [head + chunk + tail for head, chunk, tail in zip(heads, packed, tails, strict=True)]
    return hashes[begin], values


def read_values(
    names: Sequence[bytes], values: Sequence[bytes], layouts: Layouts, kinds: Kinds
) -> ReadKeys:
    """Read the values of hashes.

    Args:
        names: The names of the hashes.
        values: The values.
        layouts: The layouts that keys are packed in.
        kinds: The types of the parts of keys.

    Raises:
        StateError: They are damaged.
    """
    with decoding("a stored key"):
        start = _LENGTH.size
        ends = [start + _LENGTH.unpack_from(value)[0] for value in values]
        tails = [value[end:] for value, end in zip(values, ends, strict=True)]
        each = np.array([len(tail) // _OF_KEY.itemsize for tail in tails], dtype=np.int64)
        of_keys = np.frombuffer(b"".join(tails), _OF_KEY)
        first = np.cumsum(each) - each
        columns = []
        chunks = [value[start:end] for value, end in zip(values, ends, strict=True)]
        for at, counts, chunk, sides in layouts.read_many(chunks):
            if (counts != each[at]).any():
                raise damaged("a stored key", "how many windows it has is not there")
            pairs = list(zip(sides, counts.tolist(), strict=True))
            places = expand_ranges(first[at], counts)[0]
            columns.append((places, key_columns(chunk, pairs, layouts, kinds)))
        place, windows = (of_keys[name].astype(np.int64) for name in ("place", "windows"))
        if len(windows) and int(windows.min()) < 1:
            raise damaged("a stored key", "it has no windows")
        return ReadKeys(repeated(hashes_of(names), each), place, windows, columns)


@final
@dataclass(frozen=True, slots=True)
class ReadWindows:
    """Windows that were read, and that have one layout.

    Args:
        chunk: The windows.
        part: The part that each is of, by place, int64.
        sides: The encoded side columns of each part.
        counts: How many windows each of these parts has, int64.
    """

    chunk: Chunk
    part: Int64Array
    sides: list[bytes]
    counts: Int64Array


def pack_parts(packed: PackedRows, begin: Int64Array, waits: NDArray[np.void]) -> list[bytes]:
    """Return the values of parts.

    Args:
        packed: The windows, part by part.
        begin: The first window of each part.
        waits: What each part waits for.
    """
    return packed.cut(begin, len(packed.records), waits)


def read_waits(values: Sequence[bytes]) -> NDArray[np.void]:
    """Return what parts wait for."""
    size = WAITS.itemsize
    return joined([value[:size] for value in values], size).reshape(-1).view(WAITS)


def read_parts(values: Sequence[bytes], layouts: Layouts) -> list[ReadWindows]:
    """Read the values of parts.

    Raises:
        StateError: They are damaged.
    """
    with decoding(_WHAT):
        found = []
        for at, counts, chunk, sides in layouts.read_many([v[WAITS.itemsize :] for v in values]):
            if (chunk.records["start"] >= chunk.records["end"]).any():
                raise damaged(_WHAT, "it ends before it starts")
            found.append(ReadWindows(chunk, repeated(at, counts), sides, counts))
        return found
