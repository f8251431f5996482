"""Compaction by key: rewrites closed segments of a partition without superseded records.

The new segment is written beside the old ones, fsynced, and renamed to a name that covers them
(:mod:`lowwater.io.log.segment_files`); then they are removed. The rename is the one instant at
which readers that open a file see the new segment. A crash leaves either an unfinished file, which
is never listed, or old files that are covered. Segments are replaced from the front, so a record is
removed before the one that supersedes it can be: an older record never comes back without it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, final

import numpy as np
import pyarrow as pa

from lowwater.errors import StateError
from lowwater.io.log._files import LogLock
from lowwater.io.log.frame_format import (
    LONGEST_SPAN,
    Damaged,
    Kind,
    Sparse,
    decode_schema,
    encode_header,
    encode_payload,
    encode_sparse,
)
from lowwater.io.log.frame_records import FrameRecords
from lowwater.io.log.last_records import LastRecords
from lowwater.io.log.layout import Layout
from lowwater.io.log.segment_files import (
    Gap,
    Segment,
    SegmentReader,
    compacted_path,
    damaged,
    remove_covered,
    segments_in,
)
from lowwater.io.log.values import Compacted
from lowwater.time import Int64Array

_UNFINISHED = re.compile(r"\.\d{20}-\d{20}\.\d{1,9}\.segment\.part")


@final
@dataclass(frozen=True, slots=True)
class _Closed:
    """A segment that is closed, and what compaction would make of it."""

    segment: Segment
    end: int
    schema: pa.Schema
    size: int
    records: int
    kept: int
    changes: bool

    @property
    def estimate(self) -> int:
        """About the bytes that it would take."""
        return self.size * self.kept // max(1, self.records)


@final
class _Overtaken(Exception):
    """Retention removed a segment that was being compacted."""


@final
class PartitionCompactor:
    """Compacts one partition. The caller holds the lock on compaction.

    Args:
        layout: The log.
        number: The number of the partition.
        last: Creates the :class:`LastRecords` of segments, given the first offset of each.
        segment_bytes: Neighbours are joined up to about this size.
        now: The time, microseconds.
        changing: The lock on changes to the set of segments.
    """

    def __init__(
        self,
        layout: Layout,
        number: int,
        last: Callable[[Int64Array], LastRecords],
        *,
        segment_bytes: int,
        now: int,
        changing: LogLock,
    ) -> None:
        self._layout = layout
        self._folder = layout.partition(number)
        self._make_last = last
        self._segment_bytes = segment_bytes
        self._now = now
        self._changing = changing

    def run(self) -> Compacted:
        """Compact the closed segments. Reads each twice and writes it once: O(records).

        Raises:
            InvalidArgument: There is no such column, or it cannot be a key.
            DataError: A segment is damaged. Nothing is then changed.
            StateError: The folder cannot be written to. What was compacted until then stays so.
        """
        try:
            with self._changing.held():
                remove_unfinished(self._folder)
                remove_covered(self._folder)
            while True:
                try:
                    return self._run()
                except (_Overtaken, FileNotFoundError):  # retention is ahead: fewer are left
                    continue
        except OSError as error:
            raise StateError(
                f"a partition of the log cannot be compacted: {error.strerror or error}",
                where=str(self._folder),
                hint="Make room on the disk and see that the folder may be written to, then try "
                "again",
            ) from None

    def _run(self) -> Compacted:
        with self._changing.held():  # no append is in progress that could undo a closed segment
            segments = segments_in(self._folder)
        ends = [segment.base for segment in segments[1:]]
        last = self._make_last(np.array([one.base for one in segments[:-1]], dtype=np.int64))
        counted = [_count(segment, end, last) for segment, end in zip(segments, ends, strict=False)]
        last.finish()
        closed = [
            _Closed(segment, end, schema, size, records, int(kept), bool(changes))
            for segment, end, (schema, size, records), kept, changes in zip(
                segments, ends, counted, last.kept, last.changes, strict=False
            )
        ]
        bytes_after = 0
        for group in _groups(closed, self._segment_bytes):
            if any(one.changes for one in group):
                bytes_after += self._replace(group, last)
            else:
                bytes_after += sum(one.size for one in group)
        return Compacted(
            records_before=sum(one.records for one in closed),
            records_after=sum(one.kept for one in closed),
            bytes_before=sum(one.size for one in closed),
            bytes_after=bytes_after,
        )

    def _replace(self, group: list[_Closed], last: LastRecords) -> int:
        """Write a segment in place of several; return its size."""
        generation = 1 + max(one.segment.generation for one in group)
        path = compacted_path(self._folder, group[0].segment.base, group[-1].end, generation)
        unfinished = path.with_name(f".{path.name}.part")
        try:
            with unfinished.open("wb") as file:
                _Rewriting(file, last, self._now).write(group)
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            with self._changing.held():
                self._publish(unfinished, path, group)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise
        return size

    def _publish(self, unfinished: Path, path: Path, group: list[_Closed]) -> None:
        if not {one.segment for one in group} <= set(segments_in(self._folder)):
            raise _Overtaken
        self._layout.mark_compacted()
        os.replace(unfinished, path)  # noqa: PTH105  # os.replace, os.fsync: where tests crash
        remove_covered(self._folder)


def remove_unfinished(folder: Path) -> None:
    """Remove the files that a crash of a compaction left; none may be in progress.

    Raises:
        OSError: A file cannot be removed.
    """
    for path in list(folder.iterdir()) if folder.is_dir() else ():
        if _UNFINISHED.fullmatch(path.name):
            path.unlink()


@final
class _Rewriting:
    """Writes what stays of segments as one segment.

    Args:
        file: The new segment.
        last: Decides which records stay.
        now: The time of this compaction, microseconds.
    """

    def __init__(self, file: BinaryIO, last: LastRecords, now: int) -> None:
        self._file = file
        self._last = last
        self._now = now
        self._removed: tuple[int, int, int] | None = None  # from, to, time

    def write(self, group: list[_Closed]) -> None:
        """Write the schema and the records."""
        first = group[0]
        self._frame(Kind.SCHEMA, first.segment.base, self._now, 0, encode_payload(first.schema))
        for one in group:
            with closing(_SegmentFrames(one.segment, one.end)) as frames:
                for stored in frames.records():
                    self._rewrite(stored, frames.payload)
        self._flush()

    def _rewrite(self, stored: FrameRecords, payload: memoryview) -> None:
        stays, changes = self._last.stay(stored)
        if not stays.any():
            self._remove(stored)
            return
        self._flush()
        count = stored.next_offset - stored.offset
        place = stored.offset, stored.time, count
        if not changes:
            kind = Kind.RECORDS if stored.since is None else Kind.SPARSE
            self._frame(kind, *place, payload)
            return
        offsets = np.arange(count) if stored.offsets is None else stored.offsets - stored.offset
        since = self._now if stored.since is None else stored.since
        records = stored.records.filter(pa.array(stays))
        self._frame(Kind.SPARSE, *place, encode_sparse(Sparse(since, offsets[stays], records)))

    def _remove(self, stored: FrameRecords) -> None:
        """Note that no record of a frame stays; neighbours of that kind become one frame."""
        start = stored.offset if self._removed is None else self._removed[0]
        if stored.next_offset - start > LONGEST_SPAN:
            self._flush()
            start = stored.offset
        # The time of the last: the clock of a partition must not go back with its last frame.
        self._removed = start, stored.next_offset, stored.time

    def _flush(self) -> None:
        if self._removed is not None:
            start, stop, time = self._removed
            nothing = encode_sparse(Sparse(self._now, np.empty(0, dtype=np.int64), None))
            self._frame(Kind.SPARSE, start, time, stop - start, nothing)
            self._removed = None

    def _frame(
        self,
        kind: Kind,
        offset: int,
        time: int,
        count: int,
        payload: pa.Buffer | memoryview | bytes,
    ) -> None:
        self._file.write(encode_header(kind, offset, time, count, payload))
        self._file.write(payload)


@final
class _SegmentFrames:
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


def _count(segment: Segment, end: int, last: LastRecords) -> tuple[pa.Schema, int, int]:
    """Add the records of a segment; return its schema, its size and their number."""
    count = 0
    with closing(_SegmentFrames(segment, end)) as frames:
        for stored in frames.records():
            last.add(stored, str(segment.path))
            count += stored.records.num_rows
        return frames.schema, frames.size, count


def _groups(closed: list[_Closed], size: int) -> Iterator[list[_Closed]]:
    """Yield neighbours of one schema that together come to about a size, or single segments."""
    group: list[_Closed] = []
    total = 0
    for one in closed:
        alike = not group or one.schema.equals(group[0].schema, check_metadata=True)
        if group and (total + one.estimate > size or not alike):
            yield group
            group, total = [], 0
        group.append(one)
        total += one.estimate
    if group:
        yield group
