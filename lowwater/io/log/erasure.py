"""Decides which records erasure removes: those that a condition is true of."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.records.columns import Mask
from lowwater.errors import StateError
from lowwater.io.log.conditions import Condition
from lowwater.io.log.frame_records import FrameRecords
from lowwater.io.log.layout import Layout
from lowwater.io.log.rewriting import add
from lowwater.io.log.segment_files import Segment
from lowwater.time import Int64Array

_ROWS = 1 << 16
_BYTES = 1 << 24
"""Evaluations have about so many rows and bytes."""
_CUT = re.compile(r".+\.segment\.cut-\d+")


@final
class RecordsToErase:
    """The records of some segments that a condition is true of; a :class:`.Choice`.

    Evaluates the condition over many frames at once, because one append of a record is a frame.
    Memory: 8 bytes for each record to erase, and the frames of one evaluation.

    Args:
        where: The condition.
        bases: The first offset of each segment, int64, rising.
    """

    def __init__(self, where: Condition, bases: Int64Array) -> None:
        self._where = where
        self._bases = bases
        self._waiting: list[FrameRecords] = []
        self._rows = self._bytes = 0
        self._file = ""
        self._found: list[Int64Array] = []
        self._offsets: Int64Array = np.empty(0, dtype=np.int64)
        self.kept: Int64Array = np.zeros(len(bases), dtype=np.int64)
        self.changes: NDArray[np.bool_] = np.zeros(len(bases), dtype=np.bool_)

    def add(self, stored: FrameRecords, where: str) -> None:
        """Add the records of the next frame. O(n).

        Raises:
            InvalidArgument: The condition does not fit the columns.
            DataError: The condition cannot be computed.
        """
        count = stored.records.num_rows
        if not count:
            return
        self.kept[int(np.searchsorted(self._bases, stored.offset, side="right")) - 1] += count
        if where != self._file or self._rows + count > _ROWS or self._bytes > _BYTES:
            self._evaluate()
        self._file = where
        self._waiting.append(stored)
        self._rows += count
        self._bytes += stored.records.nbytes

    def finish(self) -> None:
        """Complete ``kept`` and ``changes`` when all frames were added."""
        self._evaluate()
        if self._found:
            self._offsets = np.concatenate(self._found)
        segments = np.searchsorted(self._bases, self._offsets, side="right") - 1
        self.kept -= np.bincount(segments, minlength=len(self._bases))
        self.changes[segments] = True

    def stay(self, stored: FrameRecords) -> tuple[Mask, bool]:
        """Return which records of a frame stay, bool, and whether some do not."""
        start, stop = np.searchsorted(self._offsets, (stored.offset, stored.next_offset))
        stays = np.ones(stored.records.num_rows, dtype=np.bool_)
        going = self._offsets[start:stop]
        if stored.offsets is None:
            stays[going - stored.offset] = False
        else:
            stays[np.searchsorted(stored.offsets, going)] = False
        return stays, bool(len(going))

    def _evaluate(self) -> None:
        """Find what to erase of the frames that wait."""
        waiting, self._waiting = self._waiting, []
        self._rows = self._bytes = 0
        if not waiting:
            return
        records = pa.concat_batches([stored.records for stored in waiting])
        which = self._where.which(records, self._file)
        if which.any():
            self._found.append(np.concatenate([stored.every_offset() for stored in waiting])[which])


def has_records_to_erase(segment: Segment, end: int, where: Condition) -> bool:
    """Return whether a condition is true of a record of a segment, up to an offset. O(records).

    Raises:
        InvalidArgument: The condition does not fit the columns.
        DataError: The segment is damaged, or the condition cannot be computed.
        StateError: The segment cannot be read.
    """
    choice = RecordsToErase(where, np.array([segment.base], dtype=np.int64))
    try:
        add(segment, end, choice)
    except OSError as error:
        raise StateError(
            f"a segment of the log cannot be read: {error.strerror or error}",
            where=str(segment.path),
            hint="Check the disk, and erase again",
        ) from None
    choice.finish()
    return bool(choice.changes[0])


def refuse_cut_tails(layout: Layout, numbers: Iterable[int]) -> None:
    """Refuse a log with bytes that recovery saved, which may contain records to erase.

    Raises:
        StateError: There are some.
    """
    for number in numbers:
        folder = layout.partition(number)
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if _CUT.fullmatch(path.name):
                raise StateError(
                    "a damaged tail of the log was saved in a file, and what to erase of it cannot "
                    "be told",
                    where=str(path),
                    hint="Take what you need from the file, remove it, and erase again",
                )
