"""Reads one partition in order, from any offset."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import final

import pyarrow as pa

from lowwater.errors import DataError
from lowwater.io.log.frames import (
    LAST_OFFSET,
    Damaged,
    Header,
    Kind,
    decode_records,
    decode_schema,
)
from lowwater.io.log.index import SparseIndex
from lowwater.io.log.segment_files import Frame, Gap, Segment, SegmentReader, damaged, segments_in
from lowwater.io.log.values import LogBatch
from lowwater.time import Instant


@final
class PartitionView:
    """A partition as it is on disk at the time of each call.

    Args:
        number: The number of the partition.
        folder: Its folder.
    """

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self.folder = folder
        self._indexes: dict[int, SparseIndex] = {}

    def segments(self) -> list[Segment]:
        """Return the segments in order."""
        return segments_in(self.folder)

    def earliest(self) -> int:
        """Return the offset of the first retained record."""
        segments = self.segments()
        return segments[0].base if segments else 0

    def latest(self) -> int:
        """Return the offset that the next record will have."""
        segments = self.segments()
        return self.index(segments[-1]).next_offset() if segments else 0

    def offset_at(self, time: int) -> int:
        """Return the first offset appended at a time (microseconds) or later, or the next one."""
        while True:
            segments = self.segments()
            try:
                return self._offset_at(time, segments)
            except FileNotFoundError:
                if segments == self.segments():  # else retention removed one meanwhile: retry
                    raise

    def _offset_at(self, time: int, segments: list[Segment]) -> int:
        at = bisect_left(segments, time, key=lambda segment: self.index(segment).first_time())
        for segment in segments[max(0, at - 1) :]:
            found = self.index(segment).find_time(time)
            if found is not None:
                return found
        return self.latest()

    def index(self, segment: Segment) -> SparseIndex:
        """Return the index of a segment."""
        return self._indexes.setdefault(segment.base, SparseIndex(segment))


@final
class PartitionCursor:
    """Reads a partition. An incomplete last frame counts as not written yet.

    Args:
        view: The partition.
        offset: The first record to read.
    """

    def __init__(self, view: PartitionView, offset: int) -> None:
        self.offset = offset
        self.limit = LAST_OFFSET
        self._view = view
        self._segment: Segment | None = None
        self._reader: SegmentReader | None = None
        self._schema: pa.Schema | None = None
        self._frame: Header | None = None
        self._records: pa.RecordBatch | None = None

    def peek(self) -> int | None:
        """Return when the next records were appended; ``None`` if there are none yet.

        Raises:
            DataError: The log is damaged there, or retention has removed the records.
        """
        if self.offset >= self.limit:
            return None
        if self._records is None and not self._load():
            return None
        return None if self._frame is None else self._frame.time

    def take(self, rows: int) -> LogBatch | None:
        """Return up to ``rows`` of the next records, from one frame, and move past them."""
        if self.peek() is None or self._records is None or self._frame is None:
            return None
        start = self.offset - self._frame.offset
        stop = min(self._frame.next_offset, self.limit, self.offset + rows)
        batch = LogBatch(
            self._view.number,
            self.offset,
            Instant(self._frame.time),
            self._records.slice(start, stop - self.offset),
        )
        self.offset = stop
        if stop == self._frame.next_offset:
            self._records = None
        return batch

    def seek(self, offset: int) -> None:
        """Move to an offset."""
        self.close()
        self.offset = offset

    def sync(self) -> None:
        """Fsync what was read, in case its writer has not."""
        if self._reader is not None:
            self._reader.sync()

    def close(self) -> None:
        """Close the open file."""
        if self._reader is not None:
            self._reader.close()
        self._segment = self._reader = self._schema = self._frame = self._records = None

    def _load(self) -> bool:
        """Read the frame with the offset; return whether it exists."""
        while self._reader is not None or self._open():
            reader, segment = self._reader, self._segment
            assert reader is not None
            assert segment is not None
            found = reader.next()
            if isinstance(found, Gap):
                after = self._after(segment)
                if after is None:
                    self._require_unfinished(reader, found)
                    return False
                found = reader.next()  # its writer may have completed it before the next segment
                if isinstance(found, Gap):
                    if not reader.ends_at(found) or after.base != self.offset:
                        raise damaged(reader.path, found.position, self.offset, found.reason)
                    self.close()
                    continue
            self._accept(reader, found)
            return True
        return False

    def _accept(self, reader: SegmentReader, frame: Frame) -> None:
        header = frame.header
        try:
            if not header.offset <= self.offset < header.next_offset:
                raise Damaged(f"records {header.offset} to {header.next_offset - 1} stand there")
            self._records = decode_records(frame.payload, self._schema, header.count)
        except Damaged as error:
            reader.position = frame.position
            raise damaged(reader.path, frame.position, self.offset, str(error)) from None
        self._frame = header

    def _require_unfinished(self, reader: SegmentReader, gap: Gap) -> None:
        if reader.size() < gap.position:
            raise damaged(reader.path, gap.position, self.offset, "the file has become shorter")
        if reader.more_behind(gap):
            raise damaged(reader.path, gap.position, self.offset, gap.reason)

    def _after(self, segment: Segment) -> Segment | None:
        """Return the segment after one, or ``None`` if it is the last."""
        segments = self._view.segments()
        at = bisect_right(segments, segment.base, key=lambda other: other.base)
        return segments[at] if at < len(segments) else None

    def _open(self) -> bool:
        """Open the segment with the offset, at its frame; return whether it exists."""
        while True:
            segments = self._view.segments()
            at = bisect_right(segments, self.offset, key=lambda segment: segment.base) - 1
            if at < 0:
                if segments or self.offset:
                    raise self._gone(segments)
                return False
            try:
                reader = SegmentReader(segments[at].path)
            except FileNotFoundError:  # retention removed it meanwhile: look again
                continue
            if self._begin(reader, segments[at], last=at == len(segments) - 1):
                return True
            reader.close()
            return False

    def _begin(self, reader: SegmentReader, segment: Segment, *, last: bool) -> bool:
        frame = reader.next()
        if isinstance(frame, Gap):
            if last and not reader.more_behind(frame):
                return False
            raise damaged(reader.path, frame.position, self.offset, frame.reason)
        try:
            if frame.header.kind is not Kind.SCHEMA or frame.header.offset != segment.base:
                raise Damaged("the segment does not begin with its schema")
            self._schema = decode_schema(frame.payload)
        except Damaged as error:
            raise damaged(reader.path, frame.position, self.offset, str(error)) from None
        if self.offset > segment.base:
            reader.position = self._view.index(segment).find_offset(self.offset)
        self._segment, self._reader = segment, reader
        return True

    def _gone(self, segments: list[Segment]) -> DataError:
        first = segments[0].base if segments else 0
        return DataError(
            f"record {self.offset} of partition {self._view.number} is no longer there: the first "
            f"one kept is {first}",
            where=str(self._view.folder),
            hint='Start at "earliest", and let retention keep more',
        )
