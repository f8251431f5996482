"""The stored form of keys whose records are not in memory.

::

    parts   (key group | hash of the key)            ->  all records of the keys of that hash
    queues  (key group | instant | hash of the key)  ->  nothing

    part    due i64 | due at the right i64 | hold i64 | bytes u32, keys | bytes u32, records of
            each side

A hash mostly has one key. ``key`` of a stored record is the place of its key among those of the
part. Where records of the left side refer to rows of the right one, they are stored with the place
of that row among those of the part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.records.columns import Column
from lowwater.engine.records.stored_keys import Kinds, key_columns
from lowwater.state.arrays import expand_ranges
from lowwater.state.formats import damaged, decoding
from lowwater.state.row_codec import Chunk, Layouts, joined, rows_as_bytes
from lowwater.time import Int64Array

WAITS = np.dtype([("due", "<i8"), ("right", "<i8"), ("hold", "<i8")])
"""What the records of a part wait for first: the watermark, that of the right side; and their hold.
"""

_LENGTH = np.dtype("<u4")
_WHAT = "a stored row of a stage"


@final
@dataclass(frozen=True, slots=True)
class StoredParts:
    """Some parts, taken apart.

    Args:
        waits: What each waits for, :data:`WAITS`, shape (n,).
        keys: The keys of each.
        sides: The records of each, for each side; empty for none.
    """

    waits: NDArray[np.void]
    keys: list[bytes]
    sides: list[list[bytes]]

    def values(self) -> list[bytes]:
        """Return the parts as they are stored."""
        pieces = [
            rows_as_bytes(
                np.ascontiguousarray(self.waits).view(np.uint8).reshape(-1, WAITS.itemsize)
            )
        ]
        for column in (self.keys, *self.sides):
            lengths = np.fromiter(map(len, column), dtype=_LENGTH, count=len(column))
            pieces += [rows_as_bytes(lengths.view(np.uint8).reshape(-1, _LENGTH.itemsize)), column]
        return list(map(b"".join, zip(*pieces, strict=True)))

    @classmethod
    def read(cls, values: Sequence[bytes], sides: int) -> StoredParts:
        """Return parts as they were stored.

        Args:
            values: The parts.
            sides: How many sides there are.

        Raises:
            StateError: One is damaged.
        """
        with decoding(_WHAT):
            size = WAITS.itemsize
            waits = joined([value[:size] for value in values], size).reshape(-1).view(WAITS)
            at = np.full(len(values), size)
            pieces = []
            for _ in range(1 + sides):
                heads = zip(values, at.tolist(), strict=True)
                width = _LENGTH.itemsize
                lengths = joined([value[low : low + width] for value, low in heads], width)
                low = at + width
                at = low + lengths.reshape(-1).view(_LENGTH)
                cuts = zip(values, low.tolist(), at.tolist(), strict=True)
                pieces.append([value[begin:end] for value, begin, end in cuts])
            if (at != list(map(len, values))).any():
                raise damaged(_WHAT, "it has another number of bytes than it says")
            return cls(waits, pieces[0], pieces[1:])


@final
@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Records of one side that were read, and that have one layout.

    Args:
        chunk: The records.
        part: The part that each is of, by place, int64.
        at: The place of each among all that were read, part by part, int64.
        sides: The encoded side columns of each part.
        counts: How many records each of these parts has, int64.
    """

    chunk: Chunk
    part: Int64Array
    at: Int64Array
    sides: list[bytes]
    counts: Int64Array


def read_records(values: Sequence[bytes], layouts: Layouts) -> tuple[list[ReadRecords], Int64Array]:
    """Read the records of a side.

    Args:
        values: Those of each part; empty for none.
        layouts: The layouts that they were packed in.

    Returns:
        (The records; for each part the place of its first among all that were read, and behind the
        last part how many there are, int64.)

    Raises:
        StateError: They are damaged.
    """
    some = np.array([at for at, value in enumerate(values) if value], dtype=np.int64)
    first = np.zeros(len(values) + 1, dtype=np.int64)
    if not some.size:
        return [], first
    with decoding(_WHAT):
        found = layouts.read_many([values[at] for at in some.tolist()])
        for at, counts, _, _ in found:
            first[some[at] + 1] = counts
        first = np.cumsum(first)
        read = []
        for at, counts, chunk, sides in found:
            parts = some[at]
            places, which = expand_ranges(first[parts], counts)
            read.append(ReadRecords(chunk, parts[which], places, sides, counts))
        return read, first


def read_part_keys(
    values: Sequence[bytes], layouts: Layouts, kinds: Kinds
) -> tuple[list[tuple[Int64Array, tuple[Column, ...]]], Int64Array]:
    """Read the keys of parts.

    Args:
        values: Those of each part.
        layouts: The layouts that they were packed in.
        kinds: The types of the parts of keys.

    Returns:
        ((Places among all keys that were read, part by part; a column for each part of the key);
        for each part the place of its first key, and behind the last how many there are.)

    Raises:
        StateError: They are damaged.
    """
    with decoding(_WHAT):
        read, first = read_records(values, layouts)
        columns = []
        for each in read:
            pairs = list(zip(each.sides, each.counts.tolist(), strict=True))
            columns.append((each.at, key_columns(each.chunk, pairs, layouts, kinds)))
        return columns, first
