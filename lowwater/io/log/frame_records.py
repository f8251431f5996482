"""The records of one frame, as appended or as rewriting left them, and their offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, final

import numpy as np
import pyarrow as pa

from lowwater.io.log.frame_format import Damaged, Kind, decode_records, decode_sparse
from lowwater.io.log.segment_files import Frame
from lowwater.time import Int64Array


@final
@dataclass(frozen=True, slots=True, eq=False)
class FrameRecords:
    """The records of one frame.

    Args:
        offset: The first offset that the frame covers.
        next_offset: The offset after the last.
        time: When they were appended, microseconds.
        records: The records.
        offsets: The offset of each record, int64, rising; ``None``: all that the frame covers.
        since: When they were first compacted, microseconds; ``None``: never.
    """

    offset: int
    next_offset: int
    time: int
    records: pa.RecordBatch
    offsets: Int64Array | None = None
    since: int | None = None

    @classmethod
    def decode(cls, frame: Frame, offset: int, schema: pa.Schema) -> Self:
        """Decode a frame that covers an offset, without copying the records.

        Raises:
            Damaged: It does not cover it, or does not contain valid records of this schema.
        """
        header = frame.header
        if not header.offset <= offset < header.next_offset:
            raise Damaged(f"records {header.offset} to {header.next_offset - 1} stand there")
        place = header.offset, header.next_offset, header.time
        if header.kind is not Kind.SPARSE:
            return cls(*place, decode_records(frame.payload, schema, header.count))
        found = decode_sparse(frame.payload, schema, header.count)
        records = found.records
        if records is None:
            records = pa.RecordBatch.from_pylist([], schema=schema)
        return cls(*place, records, header.offset + found.places, found.since)

    def every_offset(self) -> Int64Array:
        """Return the offset of each record, int64, rising."""
        if self.offsets is not None:
            return self.offsets
        return np.arange(self.offset, self.next_offset, dtype=np.int64)

    def place_of(self, offset: int) -> int:
        """Return how many of the records come before an offset."""
        if self.offsets is not None:
            return int(np.searchsorted(self.offsets, offset))
        return min(max(offset, self.offset), self.next_offset) - self.offset

    def offset_from(self, offset: int) -> int:
        """Return the offset of the first record at an offset or later, or the one after all."""
        if self.offsets is None:
            return offset
        place = self.place_of(offset)
        return int(self.offsets[place]) if place < len(self.offsets) else self.next_offset
