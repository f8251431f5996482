"""Recovers an existing partition for writing: finds its end and cuts off a damaged tail."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import final

import pyarrow as pa

from lowwater.io.log.frame_format import Damaged, Kind, decode_schema
from lowwater.io.log.index import SparseIndex
from lowwater.io.log.segment_files import Frame, Gap, Segment, SegmentReader, schema_of
from lowwater.io.log.values import Recovered
from lowwater.state.ownership import sync_directory
from lowwater.time import START_OF_TIME


@final
@dataclass(slots=True)
class PartitionEnd:
    """The end of a partition.

    Args:
        next_offset: The offset of the next record.
        last_time: When the last record was appended.
        schema: The schema of the records, if there are any.
        size: Size of the last segment in bytes.
        recovered: The tail that was cut off, if any.
    """

    next_offset: int
    last_time: int = START_OF_TIME
    schema: pa.Schema | None = None
    size: int = 0
    recovered: Recovered | None = None


def recover(number: int, segments: list[Segment], descriptor: int) -> PartitionEnd:
    """Find the end of a partition and truncate its last segment there.

    The end is the first frame that is incomplete, has a wrong checksum or is out of place, as an
    unfinished write leaves it. If valid frames follow, it is damage rather than an unfinished
    write, and the cut bytes are saved in a file next to the segment. O(bytes of the last segment).

    Args:
        number: The number of the partition.
        segments: Its segments, at least one.
        descriptor: The last segment, open for writing.

    Raises:
        DataError: The segment before an empty last one is damaged.
        OSError: The file cannot be read or cut.
    """
    last = segments[-1]
    end = PartitionEnd(last.base)
    with closing(SegmentReader(last.path)) as reader:
        gap = _scan(reader, end)
        cut = reader.size() - gap.position
        if cut:
            kept = _keep(last.path, gap.position) if reader.more_behind(gap) else None
            os.ftruncate(descriptor, gap.position)
            end.recovered = Recovered(
                partition=number,
                file=str(last.path),
                position=gap.position,
                offset=end.next_offset,
                cut=cut,
                reason=gap.reason,
                kept=kept,
            )
    os.fsync(descriptor)  # what the last writer left may not be durable yet
    end.size = gap.position
    if len(segments) > 1 and end.next_offset == last.base:  # the last one is still empty
        before = SparseIndex(segments[-2]).last_time()
        end.last_time = START_OF_TIME if before is None else before
        end.schema = end.schema or schema_of(segments[-2])
    return end


def _scan(reader: SegmentReader, end: PartitionEnd) -> Gap:
    """Step through the valid frames to their end."""
    while True:
        frame = reader.next()
        if isinstance(frame, Gap):
            return frame
        reason = _take_in(frame, end)
        if reason is not None:
            reader.position = frame.position
            return Gap(frame.position, reason, cut=False, skip=frame.header.size)


def _take_in(frame: Frame, end: PartitionEnd) -> str | None:
    """Move the end past a frame; return what is wrong with the frame, if anything."""
    header = frame.header
    if header.offset != end.next_offset:
        return f"record {header.offset} stands where {end.next_offset} was to come"
    if (header.kind is Kind.SCHEMA) != (frame.position == 0):
        return "records stand where a schema was to come, or a schema where records were"
    if header.kind is Kind.SCHEMA:
        try:
            end.schema = decode_schema(frame.payload)
        except Damaged as error:
            return str(error)
    else:
        end.next_offset = header.next_offset
        end.last_time = max(end.last_time, header.time)
    return None


def _keep(path: Path, position: int) -> str:
    """Save the end of a file in a new file next to it, durably; return its path."""
    kept = path.with_name(f"{path.name}.cut-{position}")
    with path.open("rb") as file, kept.open("wb") as copy:
        file.seek(position)
        while block := file.read(1 << 20):
            copy.write(block)
        copy.flush()
        os.fsync(copy.fileno())
    sync_directory(path.parent)
    return str(kept)
