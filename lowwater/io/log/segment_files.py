"""Segments: the files of a partition, each named by the offset of its first record.

A compacted segment replaces one segment or several neighbours. Its name says from which offset up
to which it covers, and how often the records were compacted, so that a name always means the same
content. It takes the place of all that it covers at the moment it appears: files that it covers
are not listed, and whether they have been removed yet makes no difference.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import final

import pyarrow as pa

from lowwater.errors import DataError
from lowwater.io.log.frame_format import (
    ALIGNMENT,
    HEADER_BYTES,
    MAGIC,
    Damaged,
    Header,
    decode_header,
    decode_schema,
    is_sound,
)
from lowwater.state.ownership import sync_directory

_NAME = re.compile(r"(\d{20})(?:-(\d{20})\.(\d{1,9}))?\.segment", re.ASCII)
_FRAMES_WINDOW = 1 << 20
_HEADERS_WINDOW = 1 << 14


@final
@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A file of a partition.

    Args:
        base: Offset of its first record.
        path: The file.
        end: Offset after its last, if it is compacted; else ``None``.
        generation: How often its records were compacted.
    """

    base: int
    path: Path
    end: int | None = None
    generation: int = 0


@final
@dataclass(frozen=True, slots=True)
class Frame:
    """A valid frame: its header, its payload, and its byte position."""

    header: Header
    payload: memoryview
    position: int


@final
@dataclass(frozen=True, slots=True)
class Gap:
    """A position without a valid frame.

    Args:
        position: The byte position.
        reason: What is wrong, in words.
        cut: Whether the file ends there or within the frame, which may still be being written.
        skip: Bytes to the next frame, if the header is valid.
    """

    position: int
    reason: str
    cut: bool
    skip: int | None = None


def segment_path(folder: Path, base: int) -> Path:
    """Return the path of the segment that begins at an offset."""
    return folder / f"{base:020d}.segment"


def compacted_path(folder: Path, base: int, end: int, generation: int) -> Path:
    """Return the path of a compacted segment."""
    return folder / f"{base:020d}-{end:020d}.{generation}.segment"


def segments_in(folder: Path) -> list[Segment]:
    """Return the segments of a partition in order; none if there is no such folder."""
    return _sorted_out(folder)[0]


def remove_covered(folder: Path) -> None:
    """Remove the files that a compacted segment has replaced. The caller holds the lock on changes.

    Raises:
        OSError: A file cannot be removed.
    """
    covered = _sorted_out(folder)[1]
    if covered:
        sync_directory(folder)  # or a power cut could undo the rename and not the removal
        for segment in covered:
            segment.path.unlink()
        sync_directory(folder)


def _sorted_out(folder: Path) -> tuple[list[Segment], list[Segment]]:
    """Return the segments of a partition, and those that others cover."""
    try:
        names = os.listdir(folder)  # noqa: PTH208  # once per poll: no Path per name
    except FileNotFoundError:
        return [], []
    found = [
        Segment(int(base), folder / name, None if end is None else int(end), int(generation or 0))
        for name in names
        if (match := _NAME.fullmatch(name))
        for base, end, generation in [match.groups()]
    ]
    # What a segment covers never overlaps another in part: of those that begin alike, the one that
    # ends last, and was compacted last, covers the others.
    found.sort(key=lambda one: (one.base, -(one.end or 0), -one.generation))
    seen: list[Segment] = []
    covered: list[Segment] = []
    until = 0
    for segment in found:
        (covered if segment.base < until else seen).append(segment)
        until = max(until, segment.end or 0)
    return seen, covered


@final
class SegmentReader:
    """Reads frames of a segment from a byte position, while it may be growing.

    Files are read, not memory-mapped: a mapped file that shrinks would kill the process (SIGBUS).

    Args:
        path: The file.

    Raises:
        FileNotFoundError: There is no such file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        self._descriptor = -1
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._window = memoryview(b"")
        self._window_start = 0
        self._durable = 0

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    __del__ = close

    def size(self) -> int:
        """Return the current size of the file in bytes."""
        return os.fstat(self._descriptor).st_size

    def is_listed(self) -> bool:
        """Return whether the open file still has a name."""
        return os.fstat(self._descriptor).st_nlink > 0

    def next(self) -> Frame | Gap:
        """Return the frame at the position and move past it; a gap leaves the position as it is."""
        at = self.position
        header = self._header(at, _FRAMES_WINDOW)
        if isinstance(header, Gap):
            return self._forget(header)
        frame = self._read(at, header.size, _FRAMES_WINDOW) if self._has(header, at) else None
        if frame is None or len(frame) < header.size:
            return self._forget(Gap(at, "the file ends within the frame", cut=True))
        if not is_sound(header, frame):
            return self._forget(Gap(at, "the checksum is wrong", cut=False, skip=header.size))
        self.position = at + header.size
        return Frame(header, frame[HEADER_BYTES:], at)

    def headers(self) -> Iterator[tuple[int, Header]]:
        """Yield the position and header of each complete frame, without checking payloads.

        Advances the position. O(frames).
        """
        size = self.size()
        while True:
            header = self._header(self.position, _HEADERS_WINDOW)
            if isinstance(header, Gap):
                self._forget(header)
                return
            if self.position + header.size > size:
                return
            yield self.position, header
            self.position += header.size

    def more_behind(self, gap: Gap) -> bool:
        """Return whether a frame follows a gap, which is then damage, not an unfinished write."""
        if gap.cut:
            return False
        if gap.skip is not None:
            return isinstance(self._header(gap.position + gap.skip, HEADER_BYTES), Header)
        rest = self._read(gap.position, max(0, self.size() - gap.position), 0).tobytes()
        at = rest.find(MAGIC, 1)
        while 0 <= at <= len(rest) - HEADER_BYTES:
            if at % ALIGNMENT == 0 and decode_header(rest[at : at + HEADER_BYTES]) is not None:
                return True
            at = rest.find(MAGIC, at + 1)
        return False

    def ends_at(self, gap: Gap) -> bool:
        """Return whether the file ends at a gap, after complete frames."""
        return self.size() == gap.position

    def sync(self) -> None:
        """Fsync what was read, in case its writer has not."""
        if self.position > self._durable:
            size = self.size()
            os.fdatasync(self._descriptor)
            self._durable = size

    def _header(self, at: int, window: int) -> Header | Gap:
        head = self._read(at, HEADER_BYTES, window)
        if len(head) < HEADER_BYTES:
            return Gap(at, "the file ends within the frame's header", cut=True)
        return decode_header(head) or Gap(at, "no frame begins here", cut=False)

    def _has(self, header: Header, at: int) -> bool:
        end = at + header.size
        return end <= self._window_start + len(self._window) or end <= self.size()

    def _read(self, at: int, length: int, window: int) -> memoryview:
        start = at - self._window_start
        if start < 0 or start + length > len(self._window):
            self._window = memoryview(_read_all(self._descriptor, max(length, window), at))
            self._window_start = at
            start = 0
        return self._window[start : start + length]

    def _forget(self, gap: Gap) -> Gap:
        self._window = memoryview(b"")  # drop the buffer: these bytes may still change
        return gap


def damaged(path: Path, position: int, offset: int, reason: str) -> DataError:
    """Return the error for damage where there should be valid frames."""
    return DataError(
        f"the log is damaged: {reason}; record {offset} was to come here",
        where=f"{path}, byte {position}",
        hint="Put the file back from a copy, or start behind it at the next segment's offset",
    )


def schema_of(segment: Segment) -> pa.Schema | None:
    """Return the schema at the start of a segment; ``None`` if it is not written yet.

    Raises:
        DataError: The schema is damaged.
    """
    with closing(SegmentReader(segment.path)) as reader:
        frame = reader.next()
    if isinstance(frame, Gap):
        if frame.cut:
            return None
        raise damaged(segment.path, 0, segment.base, frame.reason)
    try:
        return decode_schema(frame.payload)
    except Damaged as error:
        raise damaged(segment.path, 0, segment.base, str(error)) from None


def _read_all(descriptor: int, length: int, at: int) -> bytes:
    data = os.pread(descriptor, length, at)
    if not data or len(data) == length:
        return data
    parts = [data]
    got = len(data)
    while got < length and (data := os.pread(descriptor, length - got, at + got)):
        parts.append(data)
        got += len(data)
    return b"".join(parts)
