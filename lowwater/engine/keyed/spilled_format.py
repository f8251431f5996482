"""The stored form of keys whose records are not in memory.

::

    parts   (key group | hash of the key)            ->  all records of the keys of that hash
    queues  (key group | instant | hash of the key)  ->  nothing

    part    due i64 | due at the right i64 | hold i64 | bytes u32 of the keys, and of each side |
            keys | records of each side

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
        columns = [self.keys, *self.sides]
        lengths = np.empty((len(self.keys), len(columns)), dtype=_LENGTH)
        for at, column in enumerate(columns):
            lengths[:, at] = list(map(len, column))
        waits = np.ascontiguousarray(self.waits).view(np.uint8).reshape(len(lengths), -1)
        heads = rows_as_bytes(np.hstack([waits, lengths.view(np.uint8)]))
        return list(map(b"".join, zip(heads, *columns, strict=True)))

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
            size = WAITS.itemsize + (1 + sides) * _LENGTH.itemsize
            heads = joined([value[:size] for value in values], size)
            waits = heads[:, : WAITS.itemsize].copy().reshape(-1).view(WAITS)
            lengths = heads[:, WAITS.itemsize :].copy().view(_LENGTH).astype(np.int64)
            bounds = size + np.cumsum(lengths, axis=1)
            ends = list(map(len, values))
            if (bounds[:, -1] != ends).any():
                raise damaged(_WHAT, "it has another number of bytes than it says")
            pieces = []
            low = [size] * len(values)
            for high in bounds.T.tolist():
                cuts = zip(values, low, high, strict=True)
                pieces.append([value[begin:end] for value, begin, end in cuts])
                low = high
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
