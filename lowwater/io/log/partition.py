"""The writing side of a partition: append, roll, retention."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

import pyarrow as pa

from lowwater.errors import InvalidArgument, StateError
from lowwater.io.log._files import LogLock
from lowwater.io.log.frame_format import (
    LONGEST_PAYLOAD,
    Kind,
    encode_header,
    encode_payload,
)
from lowwater.io.log.index import SparseIndex
from lowwater.io.log.recovery import recover
from lowwater.io.log.segment_files import remove_covered, segment_path, segments_in
from lowwater.io.log.values import Recovered
from lowwater.state.ownership import sync_directory
from lowwater.time import START_OF_TIME

_FRAME_ROWS = 1 << 16
_FRAME_BYTES = 1 << 24


@final
@dataclass(frozen=True, slots=True)
class RollbackPoint:
    """The end of a partition before an append, to restore if the append fails."""

    base: int | None
    size: int
    next_offset: int
    last_time: int
    schema: pa.Schema | None


@final
class PartitionWriter:
    """Appends to the last segment of a partition; there must be only one writer.

    Every segment except the last is complete and durable: it is fsynced before the next begins.

    Args:
        number: The number of the partition.
        folder: Its folder; created if it does not exist.
        segment_bytes: The size above which a new segment is started.
        changing: The lock on changes to the set of segments. An append takes it with a new segment
            and whoever called it releases it, once it is certain that nothing will be undone: what
            an append may still undo must not be compacted.

    Raises:
        DataError: A segment that is not the last is damaged where it has to be read.
        StateError: The folder cannot be written to.
    """

    def __init__(self, number: int, folder: Path, segment_bytes: int, changing: LogLock) -> None:
        self._descriptor = -1
        self.number = number
        self.next_offset = 0
        self.last_time = START_OF_TIME
        self.schema: pa.Schema | None = None
        self.recovered: Recovered | None = None
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._changing = changing
        self._base: int | None = None
        self._size = 0
        self._dirty = False
        try:
            if not folder.is_dir():
                folder.mkdir(parents=True)
                sync_directory(folder.parent)
            remove_covered(folder)
            if segments_in(folder):
                self._resume()
        except OSError as error:
            raise self._failed("opened for writing", error) from None

    def append(self, batch: pa.RecordBatch, time: int) -> range:
        """Append records and return their offsets; durable only after ``sync``.

        Raises:
            StateError: The write failed; call ``undo``.
        """
        first = self.next_offset
        try:
            for part in _parts(batch):
                self._write(part, time)
        except OSError as error:
            raise self._failed("written to", error) from None
        return range(first, self.next_offset)

    def sync(self) -> None:
        """Fsync everything that was appended.

        Raises:
            StateError: The fsync failed; what is on disk is then unknown.
        """
        if self._dirty:
            try:
                os.fdatasync(self._descriptor)
            except OSError as error:
                raise self._failed("made durable", error) from None
            self._dirty = False

    def complete_segment(self) -> None:
        """Start a new segment, unless the last one is empty. The caller holds the lock on changes.

        Raises:
            StateError: The folder cannot be written to; call ``undo``.
        """
        try:
            if self._size:
                self._roll()
        except OSError as error:
            raise self._failed("written to", error) from None

    def mark(self) -> RollbackPoint:
        """Return the current end of the partition."""
        return RollbackPoint(self._base, self._size, self.next_offset, self.last_time, self.schema)

    def undo(self, mark: RollbackPoint) -> None:
        """Truncate the partition to an earlier end.

        Raises:
            StateError: The truncation failed.
        """
        try:
            if mark.base != self._base:
                self._close()
                for segment in reversed(segments_in(self._folder)):
                    if mark.base is None or segment.base > mark.base:
                        segment.path.unlink()
                sync_directory(self._folder)
            if mark.base is not None:
                if self._descriptor < 0:
                    self._open(mark.base, os.O_WRONLY)
                os.ftruncate(self._descriptor, mark.size)
            self._dirty = mark.base is not None
        except OSError as error:
            raise self._failed("put back as it was", error) from None
        self._base, self._size = mark.base, mark.size
        self.next_offset, self.last_time = mark.next_offset, mark.last_time
        self.schema = mark.schema

    def retain(self, size: int | None, since: int | None) -> int:
        """Delete whole segments from the front, never the last; return how many.

        The caller holds the lock on changes.

        Args:
            size: Delete the first segment while the partition has more bytes than this.
            since: Delete segments whose records were all appended before this time.
        """
        try:
            remove_covered(self._folder)  # or what a deleted segment covers would appear again
            removed = self._remove_first(size, since)
            if removed:
                sync_directory(self._folder)
        except OSError as error:
            raise self._failed("made shorter", error) from None
        return removed

    def close(self) -> None:
        """Fsync and close."""
        try:
            self.sync()
        finally:
            self._close()

    def _write(self, batch: pa.RecordBatch, time: int) -> None:
        payload = encode_payload(batch)
        if payload.size > LONGEST_PAYLOAD:
            raise InvalidArgument(
                f"a record takes {payload.size} bytes, which is too long",
                hint="Records may take up to 4 GiB",
            )
        count = batch.num_rows
        header = encode_header(Kind.RECORDS, self.next_offset, time, count, payload)
        length = len(header) + payload.size
        if self._base is None or (self._size and self._size + length > self._segment_bytes):
            self._roll()
        parts: list[bytes | memoryview[int]] = [header, memoryview(payload)]
        if not self._size:
            schema = memoryview(encode_payload(batch.schema))
            parts = [encode_header(Kind.SCHEMA, self.next_offset, time, 0, schema), schema, *parts]
        self._dirty = True
        self._size += _write_all(self._descriptor, parts)
        self.schema = batch.schema
        self.next_offset += count
        self.last_time = time

    def _remove_first(self, size: int | None, since: int | None) -> int:
        segments = segments_in(self._folder)
        sizes = [segment.path.stat().st_size for segment in segments]
        total = sum(sizes)
        removed = 0
        for segment, own in zip(segments[:-1], sizes, strict=False):
            last = None if since is None else SparseIndex(segment).last_time()
            old = since is not None and last is not None and last < since
            if not old and (size is None or total <= size):
                break
            segment.path.unlink()
            total -= own
            removed += 1
        return removed

    def _roll(self) -> None:
        self._changing.take()
        self.sync()
        self._close()
        self._create(self.next_offset)
        self._size = 0

    def _create(self, base: int) -> None:
        self._open(base, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        sync_directory(self._folder)

    def _open(self, base: int, flags: int) -> None:
        path = segment_path(self._folder, base)
        # O_APPEND, so that writes go to the end even after the file was truncated.
        self._descriptor = os.open(path, flags | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._base = base

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    __del__ = _close

    def _resume(self) -> None:
        last = segments_in(self._folder)[-1]
        if last.end is None:
            self._open(last.base, os.O_WRONLY)
        else:  # the file after it was lost: what is compacted never changes
            self._create(last.end)
        segments = segments_in(self._folder)
        end = recover(self.number, segments, self._descriptor)
        self._size, self.next_offset, self.last_time = end.size, end.next_offset, end.last_time
        self.schema, self.recovered = end.schema, end.recovered

    def _failed(self, what: str, error: OSError) -> StateError:
        return StateError(
            f"a partition of the log cannot be {what}: {error.strerror or error}",
            where=str(self._folder),
            hint="Make room on the disk and see that the folder may be written to, then try again",
        )


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch into parts of the size of a frame."""
    rows = batch.num_rows
    per_frame = max(1, min(_FRAME_ROWS, _FRAME_BYTES * rows // max(1, batch.nbytes)))
    for start in range(0, rows, per_frame):
        yield batch.slice(start, per_frame)


def _write_all(descriptor: int, parts: list[bytes | memoryview[int]]) -> int:
    total = sum(map(len, parts))
    written = os.writev(descriptor, parts)
    if written < total:  # a short write: the disk is nearly full, or the frame very long
        rest = memoryview(b"".join(parts))[written:]
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    return total
