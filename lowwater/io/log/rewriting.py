"""Rewrites closed segments of a partition without some of their records.

Compaction by key and erasure differ only in which records stay (:class:`Choice`).
The new segment is written beside the old ones, fsynced, and renamed to a name that covers them
(:mod:`lowwater.io.log.segment_files`); then they are removed. The rename is the one instant at
which readers that open a file see the new segment. A crash leaves either an unfinished file, which
is never listed, or old files that are covered. Segments are replaced from the front, so compaction
removes a record before the one that supersedes it: an older record never comes back without it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.records.columns import Mask
from lowwater.errors import StateError
from lowwater.io.log._files import LogLock
from lowwater.io.log.frame_format import (
    LONGEST_SPAN,
    Kind,
    Sparse,
    encode_header,
    encode_payload,
    encode_sparse,
)
from lowwater.io.log.frame_records import FrameRecords
from lowwater.io.log.layout import Layout
from lowwater.io.log.segment_files import (
    Segment,
    compacted_path,
    remove_covered,
    segments_in,
)
from lowwater.io.log.segment_frames import SegmentFrames
from lowwater.io.log.values import Compacted
from lowwater.time import Int64Array

_UNFINISHED = re.compile(r"\.\d{20}-\d{20}\.\d{1,9}\.segment\.part")


class Choice(Protocol):
    """Chooses which records of the closed segments of a partition stay.

    Every frame is added first, in order. Then the segments that change are read again, and each of
    their frames is asked about.
    """

    kept: Int64Array
    """How many records stay in each segment, int64; complete after ``finish``."""
    changes: NDArray[np.bool_]
    """Whether each segment must be rewritten; complete after ``finish``."""

    def add(self, stored: FrameRecords, where: str) -> None:
        """Add the records of the next frame of a file."""
        ...

    def finish(self) -> None:
        """Complete the choice when all frames were added."""
        ...

    def stay(self, stored: FrameRecords) -> tuple[Mask, bool]:
        """Return which records of a frame stay, and whether the frame must be rewritten."""
        ...


@final
@dataclass(frozen=True, slots=True)
class _Closed:
    """A segment that is closed, and what rewriting would make of it."""

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
    """Retention removed a segment that was being rewritten."""


@final
class CompactionLock:
    """The lock that lets one compaction or erasure of a log run at a time.

    Args:
        layout: The log.
        purpose: What it is for, as in "compacted".

    Raises:
        StateError: The folder cannot be written to.
    """

    def __init__(self, layout: Layout, purpose: str) -> None:
        self._layout = layout
        self._purpose = purpose
        self._lock = LogLock(layout.path / "compaction.lock", purpose)

    def take(self) -> None:
        """Acquire the lock.

        Raises:
            StateError: Another compaction or erasure is in progress.
        """
        if not self._lock.take(wait=False):
            raise StateError(
                "the log is being compacted already, or records are being erased",
                where=str(self._layout.path),
                hint="Wait until that has ended",
            )

    def rewrite(
        self,
        numbers: Iterable[int],
        choose: Callable[[Int64Array], Choice],
        *,
        segment_bytes: int,
        now: int,
        compacts: bool,
    ) -> Iterator[tuple[int, Compacted]]:
        """Rewrite partitions one after the other; yield the number of each, and what changed.

        The arguments are those of :class:`PartitionRewriter`, and so are the errors.
        """
        with closing(LogLock(self._layout.path / "segments.lock", self._purpose)) as changing:
            for number in numbers:
                rewriter = PartitionRewriter(
                    self._layout,
                    number,
                    choose,
                    segment_bytes=segment_bytes,
                    now=now,
                    compacts=compacts,
                    changing=changing,
                )
                yield number, rewriter.run()

    def clear_up(self) -> None:
        """Remove what a crash left unfinished, unless a compaction or erasure is in progress.

        Raises:
            StateError: It cannot be removed.
        """
        if not self._lock.take(wait=False):
            return
        try:
            for number in range(self._layout.partitions):
                _remove_unfinished(self._layout.partition(number))
        except OSError as error:
            raise StateError(
                f"what a compaction left cannot be removed: {error.strerror or error}",
                where=str(self._layout.path),
                hint="See that the folder may be written to",
            ) from None

    def close(self) -> None:
        """Release the lock; idempotent."""
        self._lock.close()


@final
class PartitionRewriter:
    """Rewrites the closed segments of one partition. The caller holds the lock on compaction.

    Args:
        layout: The log.
        number: The number of the partition.
        choose: Creates the :class:`Choice`, given the first offset of each segment.
        segment_bytes: Neighbours are joined up to about this size.
        now: The time, microseconds.
        compacts: Whether this is a compaction, from which records that delete their key are kept
            for a time.
        changing: The lock on changes to the set of segments.
    """

    def __init__(
        self,
        layout: Layout,
        number: int,
        choose: Callable[[Int64Array], Choice],
        *,
        segment_bytes: int,
        now: int,
        compacts: bool,
        changing: LogLock,
    ) -> None:
        self._layout = layout
        self._folder = layout.partition(number)
        self._choose = choose
        self._segment_bytes = segment_bytes
        self._now = now
        self._compacts = compacts
        self._changing = changing

    def run(self) -> Compacted:
        """Rewrite the closed segments. Reads each once, and those that change twice: O(records).

        Raises:
            InvalidArgument: The choice refuses a column.
            DataError: A segment is damaged. Nothing is then changed.
            StateError: The folder cannot be written to. What was rewritten until then stays so.
        """
        try:
            with self._changing.held():
                _remove_unfinished(self._folder)
                remove_covered(self._folder)
            while True:
                try:
                    return self._run()
                except (_Overtaken, FileNotFoundError):  # retention is ahead: fewer are left
                    continue
        except OSError as error:
            raise StateError(
                f"a partition of the log cannot be rewritten: {error.strerror or error}",
                where=str(self._folder),
                hint="Make room on the disk and see that the folder may be written to, then try "
                "again",
            ) from None

    def _run(self) -> Compacted:
        with self._changing.held():  # no append is in progress that could undo a closed segment
            segments = segments_in(self._folder)
        ends = [segment.base for segment in segments[1:]]
        choice = self._choose(np.array([one.base for one in segments[:-1]], dtype=np.int64))
        counted = [add(segment, end, choice) for segment, end in zip(segments, ends, strict=False)]
        choice.finish()
        closed = [
            _Closed(segment, end, schema, size, records, int(kept), bool(changes))
            for segment, end, (schema, size, records), kept, changes in zip(
                segments, ends, counted, choice.kept, choice.changes, strict=False
            )
        ]
        bytes_after = 0
        for group in _groups(closed, self._segment_bytes):
            if any(one.changes for one in group):
                bytes_after += self._replace(group, choice)
            else:
                bytes_after += sum(one.size for one in group)
        return Compacted(
            records_before=sum(one.records for one in closed),
            records_after=sum(one.kept for one in closed),
            bytes_before=sum(one.size for one in closed),
            bytes_after=bytes_after,
        )

    def _replace(self, group: list[_Closed], choice: Choice) -> int:
        """Write a segment in place of several; return its size."""
        generation = 1 + max(one.segment.generation for one in group)
        path = compacted_path(self._folder, group[0].segment.base, group[-1].end, generation)
        unfinished = path.with_name(f".{path.name}.part")
        try:
            with unfinished.open("wb") as file:
                _Rewriting(file, choice, self._now, compacts=self._compacts).write(group)
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


def _remove_unfinished(folder: Path) -> None:
    """Remove the files that a crash during rewriting left; none may be in progress.

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
        choice: Decides which records stay.
        now: The time, microseconds.
        compacts: Whether this is a compaction.
    """

    def __init__(self, file: BinaryIO, choice: Choice, now: int, *, compacts: bool) -> None:
        self._file = file
        self._choice = choice
        self._now = now
        self._compacts = compacts
        self._removed: tuple[int, int, int] | None = None  # from, to, time

    def write(self, group: list[_Closed]) -> None:
        """Write the schema and the records."""
        first = group[0]
        self._frame(Kind.SCHEMA, first.segment.base, self._now, 0, encode_payload(first.schema))
        for one in group:
            with closing(SegmentFrames(one.segment, one.end)) as frames:
                for stored in frames.records():
                    self._rewrite(stored, frames.payload)
        self._flush()

    def _rewrite(self, stored: FrameRecords, payload: memoryview) -> None:
        stays, changes = self._choice.stay(stored)
        if not stays.any():
            self._remove(stored)
            return
        self._flush()
        count = stored.next_offset - stored.offset
        place = stored.offset, stored.time, count
        if not changes:
            kind = Kind.RECORDS if stored.offsets is None else Kind.SPARSE
            self._frame(kind, *place, payload)
            return
        offsets = np.arange(count) if stored.offsets is None else stored.offsets - stored.offset
        # An erasure is no compaction: the time for which a record that deletes is kept has not
        # begun with it, or readers could miss that record.
        since = self._now if stored.since is None and self._compacts else stored.since
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


def add(segment: Segment, end: int, choice: Choice) -> tuple[pa.Schema, int, int]:
    """Add the records of a segment to a choice; return its schema, its size and their number.

    Raises:
        DataError: The segment is damaged.
    """
    count = 0
    with closing(SegmentFrames(segment, end)) as frames:
        for stored in frames.records():
            choice.add(stored, str(segment.path))
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
