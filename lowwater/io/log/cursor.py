"""Reads one partition in order, from any offset."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, final

import pyarrow as pa

from lowwater.errors import DataError
from lowwater.io.log.frame_format import LAST_OFFSET, Damaged, Kind, decode_schema
from lowwater.io.log.frame_records import FrameRecords
from lowwater.io.log.index import SparseIndex
from lowwater.io.log.segment_files import (
    Frame,
    Gap,
    Segment,
    SegmentReader,
    damaged,
    schema_of,
    segments_in,
)
from lowwater.io.log.values import LogBatch
from lowwater.time import Instant

T = TypeVar("T")


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

        def latest(segments: list[Segment]) -> int:
            return self.index(segments[-1]).next_offset() if segments else 0

        return self._look(latest)

    def schema(self) -> pa.Schema | None:
        """Return the schema of the records; ``None`` while there are none.

        Raises:
            DataError: It is damaged.
        """

        def schema(segments: list[Segment]) -> pa.Schema | None:
            found = (schema_of(segment) for segment in reversed(segments))
            return next((one for one in found if one is not None), None)

        return self._look(schema)

    def offset_at(self, time: int) -> int:
        """Return the first offset appended at a time (microseconds) or later, or the next one."""
        return self._look(lambda segments: self._offset_at(time, segments))

    def _look(self, at: Callable[[list[Segment]], T]) -> T:
        """Look at the segments, again if retention or compaction removes one meanwhile."""
        while True:
            segments = self.segments()
            try:
                return at(segments)
            except FileNotFoundError:
                if segments == self.segments():
                    raise

    def _offset_at(self, time: int, segments: list[Segment]) -> int:
        at = bisect_left(segments, time, key=lambda segment: self.index(segment).first_time())
        for segment in segments[max(0, at - 1) :]:
            found = self.index(segment).find_time(time)
            if found is not None:
                return found
        return self.index(segments[-1]).next_offset() if segments else 0

    def index(self, segment: Segment) -> SparseIndex:
        """Return the index of a segment."""
        known = self._indexes.get(segment.base)
        if known is None or known.segment != segment:  # it was compacted
            known = self._indexes[segment.base] = SparseIndex(segment)
        return known


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
        self._records: FrameRecords | None = None
        self._outlives = False  # the open file was removed, and nothing has taken its place

    def refresh(self) -> None:
        """Leave the open file, and the frame in memory, if another segment has taken its place.

        Else what was erased could come from there. A file that retention has removed is read to its
        end. One system call.
        """
        if self._reader is None or self._outlives or self._reader.is_listed():
            return
        segments = self._view.segments()
        at = bisect_right(segments, self.offset, key=lambda other: other.base) - 1
        if at >= 0 and segments[at] != self._segment:
            self.close()
        else:
            self._outlives = True

    def peek(self) -> int | None:
        """Return when the next records were appended; ``None`` if there are none yet.

        Raises:
            DataError: The log is damaged there, or retention has removed the records.
        """
        while self.offset < self.limit:
            if self._records is None and not self._load():
                return None
            stored = self._records
            assert stored is not None
            first = stored.offset_from(self.offset)
            if first < min(stored.next_offset, self.limit):
                return stored.time
            self._move_to(min(first, self.limit))  # compaction has removed those before it
        return None

    def take(self, rows: int) -> LogBatch | None:
        """Return up to ``rows`` of the next records, from one frame, and move past them."""
        if self.peek() is None or self._records is None:
            return None
        stored = self._records
        start = stored.place_of(self.offset)
        stop = min(start + rows, stored.place_of(self.limit))
        offsets = None if stored.offsets is None else stored.offsets[start:stop]
        first = stored.offset_from(self.offset)
        batch = LogBatch(
            self._view.number,
            first,
            Instant(stored.time),
            stored.records.slice(start, stop - start),
            offsets,
        )
        self._move_to(batch.next_offset)
        return batch

    def _move_to(self, offset: int) -> None:
        self.offset = offset
        if self._records is not None and offset >= self._records.next_offset:
            self._records = None

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
        self._segment = self._reader = self._schema = self._records = None
        self._outlives = False

    def _load(self) -> bool:
        """Read the frame with the offset; return whether it exists."""
        while self._reader is not None or self._open():
            reader, segment = self._reader, self._segment
            assert reader is not None
            assert segment is not None
            found = reader.next()
            if isinstance(found, Gap):
                if self._is_last(segment):
                    self._require_unfinished(reader, found)
                    return False
                found = reader.next()  # its writer may have completed it before the next segment
                if isinstance(found, Gap):
                    if not reader.ends_at(found) or not self._continues(segment):
                        raise damaged(reader.path, found.position, self.offset, found.reason)
                    self.close()
                    continue
            self._accept(reader, found)
            return True
        return False

    def _accept(self, reader: SegmentReader, frame: Frame) -> None:
        try:
            self._records = FrameRecords.decode(frame, self.offset, self._schema)
        except Damaged as error:
            reader.position = frame.position
            raise damaged(reader.path, frame.position, self.offset, str(error)) from None

    def _require_unfinished(self, reader: SegmentReader, gap: Gap) -> None:
        if reader.size() < gap.position:
            raise damaged(reader.path, gap.position, self.offset, "the file has become shorter")
        if reader.more_behind(gap):
            raise damaged(reader.path, gap.position, self.offset, gap.reason)

    def _is_last(self, segment: Segment) -> bool:
        """Return whether no segment begins after one."""
        segments = self._view.segments()
        return not segments or segments[-1].base <= segment.base

    def _continues(self, segment: Segment) -> bool:
        """Return whether another segment has, or begins with, the next record.

        A segment that ends before it is the other one if it has been replaced since it was opened.
        A folder is not listed in one instant, so a list may lack what was renamed meanwhile: only
        if a second list agrees is the record missing.
        """
        seen: list[Segment] | None = None
        while True:
            segments = self._view.segments()
            at = bisect_right(segments, self.offset, key=lambda other: other.base) - 1
            if at < 0 or segments[at] != segment:
                return True
            if segments == seen:
                return False
            seen = segments

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
                begun = self._begin(reader, segments[at], last=at == len(segments) - 1)
            except FileNotFoundError:  # retention or compaction removed it meanwhile: look again
                continue
            if begun:
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
