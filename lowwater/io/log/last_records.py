"""Decides which records compaction keeps: of each key the last, unless it deletes the key."""

from __future__ import annotations

from enum import IntEnum
from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.records.columns import Mask
from lowwater.engine.records.keys import KeyDictionary
from lowwater.io.log.conditions import Condition
from lowwater.io.log.conform import key_column
from lowwater.io.log.frame_records import FrameRecords
from lowwater.state.arrays import widened
from lowwater.time import Int64Array


class _Fate(IntEnum):
    """How compaction treats the last record of a key."""

    STAYS = 0
    DELETES = 1  # deletes its key, and compaction has not seen it before
    WAITS = 2  # deletes its key, and is kept so that readers see it
    GOES = 3  # deletes its key, and was kept long enough


@final
class LastRecords:
    """The offset of the last record of each key, of the segments of a partition that are closed.

    Memory: the distinct keys of these segments, some 50 bytes for a key that is a number or a
    time, some 250 bytes for one that is text. Records whose key has a null always stay.

    Args:
        key: The key columns.
        deleted: Is true for a record that deletes its key; ``None``: none does.
        bases: The first offset of each segment, int64, rising.
        compacted_before: Records that delete go if they were first compacted before this time.
    """

    def __init__(
        self,
        key: tuple[str, ...],
        deleted: Condition | None,
        bases: Int64Array,
        compacted_before: int,
    ) -> None:
        self._key = key
        self._deleted = deleted
        self._bases = bases
        self._compacted_before = compacted_before
        self._ids = KeyDictionary(len(key))
        self._last: Int64Array = np.empty(0, dtype=np.int64)
        self._fate: NDArray[np.int8] = np.empty(0, dtype=np.int8)
        self.kept: Int64Array = np.zeros(len(bases), dtype=np.int64)
        """How many records stay in each segment; those that go are not counted before `finish`."""
        self.changes: NDArray[np.bool_] = np.zeros(len(bases), dtype=np.bool_)
        """Whether each segment has to be rewritten."""

    def add(self, stored: FrameRecords, where: str) -> None:
        """Add the records of the next frame. O(n) expected.

        Args:
            stored: The records; those of all earlier offsets were taken in before.
            where: Their file.

        Raises:
            InvalidArgument: There is no such column, or ``deleted`` is not boolean.
            DataError: The values cannot be read.
        """
        records = stored.records
        if not records.num_rows:
            return
        (segment,) = self._segments(np.array([stored.offset]))
        self.kept[segment] += records.num_rows
        ids, rows = self._encode(records)
        offsets = stored.every_offset()[rows]
        fates = self._fates(stored, where)[rows]
        self._widen()
        last, at = np.unique(ids[::-1], return_index=True)
        self._drop(np.full(len(ids) - len(last), segment))
        before = self._last[last]
        self._drop(self._segments(before[before >= 0]))
        at = len(ids) - 1 - at
        self._last[last] = offsets[at]
        self._fate[last] = fates[at]

    def finish(self) -> None:
        """Complete ``kept`` and ``changes`` when all frames were taken in."""
        known = self._last >= 0
        self._drop(self._segments(self._last[known & (self._fate == _Fate.GOES)]))
        self.changes[self._segments(self._last[known & (self._fate == _Fate.DELETES)])] = True

    def stay(self, stored: FrameRecords) -> tuple[Mask, bool]:
        """Return which records of a frame stay, bool, and whether the frame must be rewritten.

        It must be if a record goes, or if one that deletes is to be kept for a time from now on.
        """
        records = stored.records
        stays = np.ones(records.num_rows, dtype=np.bool_)
        if not records.num_rows:
            return stays, False
        ids, rows = self._encode(records)
        is_last = self._last[ids] == stored.every_offset()[rows]
        fates = self._fate[ids]
        stays[rows] = is_last & (fates != _Fate.GOES)
        return stays, not stays.all() or bool((is_last & (fates == _Fate.DELETES)).any())

    def _encode(self, records: pa.RecordBatch) -> tuple[Int64Array, Int64Array]:
        """Return the ids of the keys without nulls, and the rows that have them."""
        columns = [key_column(records, name) for name in self._key]
        full = np.ones(records.num_rows, dtype=np.bool_)
        for column in columns:
            if column.arrow is not None and column.arrow.null_count:
                full &= column.arrow.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(full)
        if len(rows) < records.num_rows:
            columns = [column.take(rows) for column in columns]
        return self._ids.encode(tuple(columns)), rows

    def _fates(self, stored: FrameRecords, where: str) -> NDArray[np.int8]:
        if self._deleted is None:
            return np.zeros(stored.records.num_rows, dtype=np.int8)
        fate = _Fate.DELETES
        if stored.since is not None:
            fate = _Fate.GOES if stored.since < self._compacted_before else _Fate.WAITS
        deleted = self._deleted.which(stored.records, where)
        return np.where(deleted, np.int8(fate), np.int8(_Fate.STAYS))

    def _segments(self, offsets: Int64Array) -> Int64Array:
        return np.searchsorted(self._bases, offsets, side="right") - 1

    def _drop(self, segments: Int64Array) -> None:
        """Count one record of each of these segments as removed."""
        self.kept -= np.bincount(segments, minlength=len(self._bases))
        self.changes[segments] = True

    def _widen(self) -> None:
        room = self._ids.capacity
        if room > len(self._last):
            room = max(room, 2 * len(self._last))
            self._last = widened(self._last, room, -1)
            self._fate = widened(self._fate, room)


def require_keys(schema: pa.Schema, key: tuple[str, ...]) -> None:
    """Check the columns of a key.

    Raises:
        InvalidArgument: There is no such column, or it cannot be a key.
    """
    nothing = pa.RecordBatch.from_pylist([], schema=schema)
    for name in key:
        key_column(nothing, name)
