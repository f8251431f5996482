"""A sparse in-memory index of a segment, built by scanning its frame headers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import closing
from typing import final

from lowwater.io.log.frame_format import Header, Kind
from lowwater.io.log.segment_files import Frame, Segment, SegmentReader
from lowwater.time import END_OF_TIME

_STEP_BYTES = 1 << 16


@final
class SparseIndex:
    """Finds the records of an offset or a time in a segment.

    It exists in memory only, and catches up by scanning new headers. A lookup costs that scan plus
    O(log n) plus the headers of 64 KiB of frames.

    Args:
        segment: The segment.
    """

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._positions: list[int] = []
        self._offsets: list[int] = []
        self._times: list[int] = []
        self._end = 0
        self._last: tuple[int, Header] | None = None

    def find_offset(self, offset: int) -> int:
        """Return the position of the frame with an offset, or of the end if there is none."""
        self._catch_up()
        at = bisect_right(self._offsets, offset) - 1
        for position, header in self._from(at):
            if header.next_offset > offset:
                return position
        return self._end

    def find_time(self, time: int) -> int | None:
        """Return the offset of the first record appended at a time or later; ``None``: none."""
        self._catch_up()
        at = bisect_left(self._times, time) - 1
        for _, header in self._from(max(at, 0)):
            if header.time >= time:
                return header.offset
        return None

    def first_time(self) -> int:
        """Return when the first record was appended; the end of time if there is none."""
        if not self._times:
            self._catch_up()
        return self._times[0] if self._times else END_OF_TIME

    def last_time(self) -> int | None:
        """Return when the last record was appended; ``None``: there is none."""
        self._catch_up()
        return None if self._last is None else self._last[1].time

    def next_offset(self) -> int:
        """Return the offset after the last valid frame; only that frame's checksum is verified."""
        self._catch_up()
        if self._last is None:
            return self.segment.base
        position, header = self._last
        with closing(SegmentReader(self.segment.path)) as reader:
            reader.position = position
            sound = isinstance(reader.next(), Frame)
        return header.next_offset if sound else header.offset

    def _catch_up(self) -> None:
        if self.segment.path.stat().st_size < self._end:  # a damaged tail was cut: rebuild
            self._positions, self._offsets, self._times = [], [], []
            self._end, self._last = 0, None
        for position, header in self._scan(self._end):
            self._end = position + header.size
            if header.kind is Kind.SCHEMA:
                continue
            self._last = position, header
            if not self._positions or position - self._positions[-1] >= _STEP_BYTES:
                self._positions.append(position)
                self._offsets.append(header.offset)
                self._times.append(header.time)

    def _from(self, at: int) -> Iterator[tuple[int, Header]]:
        """Yield the frames of records, also of removed ones, from the ``at``-th entry on."""
        if 0 <= at < len(self._positions):
            for position, header in self._scan(self._positions[at]):
                if header.kind is not Kind.SCHEMA:
                    yield position, header

    def _scan(self, position: int) -> Iterator[tuple[int, Header]]:
        with closing(SegmentReader(self.segment.path)) as reader:
            reader.position = position
            yield from reader.headers()
