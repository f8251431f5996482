"""Reads all frames of a closed segment, and requires that none is damaged or missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from lowwater.io.log.frame_format import Damaged, Kind, decode_schema
from lowwater.io.log.frame_records import FrameRecords
from lowwater.io.log.segment_files import Gap, Segment, SegmentReader, damaged


@final
class SegmentFrames:
    """The frames of a closed segment, which must be complete and without a gap.

    Args:
        segment: The segment.
        end: The offset after its last.

    Raises:
        DataError: The segment does not begin with a schema.
    """

    def __init__(self, segment: Segment, end: int) -> None:
        self._end = end
        self._at = segment.base
        self._reader = SegmentReader(segment.path)
        self.size = self._reader.size()
        self.payload = memoryview(b"")
        """The payload of the frame that was read last."""
        frame = self._reader.next()
        try:
            if isinstance(frame, Gap) or frame.header.kind is not Kind.SCHEMA:
                raise Damaged("the segment does not begin with its schema")
            self.schema = decode_schema(frame.payload)
        except Damaged as error:
            self.close()
            raise damaged(segment.path, 0, segment.base, str(error)) from None

    def records(self) -> Iterator[FrameRecords]:
        """Yield the records of each frame.

        Raises:
            DataError: A frame is damaged or missing, or others come after the last.
        """
        reader = self._reader
        while True:
            frame = reader.next()
            try:
                if isinstance(frame, Gap):
                    if self._at != self._end or not reader.ends_at(frame):
                        raise Damaged(frame.reason)
                    return
                if frame.header.offset != self._at or frame.header.next_offset > self._end:
                    raise Damaged(f"record {frame.header.offset} is out of place")
                stored = FrameRecords.decode(frame, self._at, self.schema)
            except Damaged as error:
                raise damaged(reader.path, frame.position, self._at, str(error)) from None
            self.payload, self._at = frame.payload, stored.next_offset
            yield stored

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
