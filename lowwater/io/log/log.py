"""An embedded partitioned log: one writer appends records, any number of readers read them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Self, final

import pyarrow as pa

from lowwater.engine.graph.clocks import Clock, WallClock
from lowwater.errors import InvalidArgument, StateError, describe
from lowwater.io.log._files import LogLock
from lowwater.io.log.conditions import Condition
from lowwater.io.log.conform import as_batch, require_one_schema, split_by_key
from lowwater.io.log.erasure import RecordsToErase, has_records_to_erase, refuse_cut_tails
from lowwater.io.log.last_records import LastRecords, require_keys
from lowwater.io.log.layout import MOST_PARTITIONS, Layout
from lowwater.io.log.partition import PartitionWriter
from lowwater.io.log.reader import LogReader
from lowwater.io.log.rewriting import CompactionLock
from lowwater.io.log.values import Compacted, Erased, Recovered, Start
from lowwater.time import DurationLike, Int64Array, duration

_SEGMENT_BYTES = 64 << 20


@final
class Log:
    """A log in a folder: partitions of records, each record at a permanent offset.

    One thread of one process may write at a time; any number may read. Records survive a crash of
    the process once :meth:`append` has returned, and with ``fsync=1`` a crash of the machine. A
    batch that was half written in a crash is cut off when the log is next opened for writing (see
    :attr:`recovered`). All records have the schema of the first.

    Args:
        path: The log's folder; created if it does not exist.
        partitions: The number of partitions of a new log, 1 by default. It never changes.
        segment_bytes: Approximate size at which a partition starts a new segment file.
        fsync: Fsync after this many appends: 1 for every one; 0 for only in :meth:`sync` and
            :meth:`close`.
        retention_bytes: The size of a partition above which its oldest segments are deleted.
        retention_age: The age of a segment's last record above which the segment is deleted.
        read_only: Whether the log is opened for reading only; it must then exist.
        clock: The clock for append times.

    Raises:
        InvalidArgument: An argument is invalid, or contradicts the existing log.
        StateError: The log has a writer already, has another version, or cannot be written.
        DataError: The log is damaged where writing must read it.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, Log(folder, partitions=2) as log:
    ...     log.append([{"user": "ann", "points": 5}, {"user": "bob", "points": 3}], partition=1)
    ...     with log.reader(1, start=1) as reader:
    ...         [batch.records.to_pylist() for batch in reader]
    {1: range(0, 2)}
    [[{'user': 'bob', 'points': 3}]]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        partitions: int | None = None,
        *,
        segment_bytes: int = _SEGMENT_BYTES,
        fsync: int = 1,
        retention_bytes: int | None = None,
        retention_age: DurationLike | None = None,
        read_only: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._fsync = _count(fsync, "fsync", least=0)
        self._segment_bytes = _count(segment_bytes, "segment_bytes", least=1)
        self._retention_bytes = (
            None if retention_bytes is None else _count(retention_bytes, "retention_bytes", least=0)
        )
        self._retention_age = (
            None if retention_age is None else duration(retention_age, name="retention_age")
        )
        self._clock = WallClock() if clock is None else clock
        self._unsynced = 0
        self._rolled = False
        self._broken: str | None = None
        self._writers: list[PartitionWriter] = []
        self._lock: LogLock | None = None
        self._changing: LogLock | None = None
        if partitions is not None:
            _count(partitions, "partitions", least=1, most=MOST_PARTITIONS)
        if read_only:
            self._layout = Layout.require(path)
            _require_same(partitions, self._layout)
        else:
            self._layout = self._open(Path(path), partitions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return self._layout.partitions

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the records; ``None`` while there are none."""
        for writer in self._writers:
            if writer.schema is not None:
                return writer.schema
        return None if self._writers else self._layout.schema()

    @property
    def recovered(self) -> tuple[Recovered, ...]:
        """The damaged tails that were cut off when the log was opened, as a crash leaves them."""
        return tuple(w.recovered for w in self._writers if w.recovered is not None)

    @property
    def earliest(self) -> dict[int, int]:
        """The offset of each partition's first retained record."""
        return {n: self._layout.view(n).earliest() for n in range(self.partitions)}

    @property
    def latest(self) -> dict[int, int]:
        """The offset that each partition's next record will have."""
        if self._writers:
            return {writer.number: writer.next_offset for writer in self._writers}
        return {n: self._layout.view(n).latest() for n in range(self.partitions)}

    def append(
        self,
        records: Any,
        *,
        partition: int | None = None,
        key: str | Iterable[str] | None = None,
    ) -> dict[int, range]:
        """Append records; return their offsets by partition, in the order of the records.

        When it returns, all records are in the log; when it raises, none are. A crash in between
        may leave part of a long batch, or the records of some partitions.

        Args:
            records: An Arrow table or batch, or mappings. Columns may be in any order.
            partition: The partition to append to.
            key: The column, or columns, that select the partition: equal values always go to the
                same one. With neither, all records go to the partition with the fewest records.

        Raises:
            InvalidArgument: An argument is invalid.
            DataError: The schema of the records differs from the log's; the message says how.
            StateError: The records cannot be written or made durable.
        """
        writers = self._writable()
        batch = as_batch(records, self.schema)
        shares = self._shares(batch, partition, key)
        if not shares:
            return {}
        if self._rolled:
            self.retain()
        time = max(self._clock.now(), *(writer.last_time for writer in writers))
        marks = {number: writers[number].mark() for number in shares}
        try:
            offsets = {n: writers[n].append(share, time) for n, share in shares.items()}
            self._unsynced += 1
            if self._fsync and self._unsynced >= self._fsync:
                self.sync()
        except BaseException as error:
            self._undo(marks, error)
            raise
        finally:
            if self._changing is not None:
                self._changing.release()
        self._rolled = any(writers[n].mark().base != mark.base for n, mark in marks.items())
        return offsets

    def sync(self) -> None:
        """Fsync everything that was appended.

        Raises:
            StateError: The fsync failed. The log then refuses further appends: what is on disk is
                unknown until it is opened again.
        """
        try:
            for writer in self._writable():
                writer.sync()
        except StateError as error:
            self._broken = self._broken or error.what
            raise
        self._unsynced = 0

    def retain(self) -> int:
        """Apply retention now; return how many segments were deleted.

        Runs by itself before an append after a segment was completed. Deletes whole segments from
        the front, never the last one.

        Raises:
            StateError: A segment cannot be deleted.
        """
        writers = self._writable()
        self._rolled = False
        size, age = self._retention_bytes, self._retention_age
        if size is None and age is None:
            return 0
        since = None if age is None else self._clock.now() - age
        assert self._changing is not None
        with self._changing.held():
            return sum(writer.retain(size, since) for writer in writers)

    def compact(
        self,
        key: str | Iterable[str],
        *,
        deleted: Any = None,
        keep_deleted: DurationLike = "1d",
        partitions: int | Iterable[int] | None = None,
    ) -> Compacted:
        """Remove superseded records: of each key, and in each partition, only the last one stays.

        Compacts closed segments, but not the last one of a partition, to which records are
        appended. Offsets and times stay as they are, so positions stay valid: a reader continues
        with the next record that is there. Partitions are compacted separately, so append with
        ``key=`` if there are several. Records whose key has a null stay, all of them. Small
        neighbouring segments are joined up to ``segment_bytes``.

        Runs beside readers and the writer: in another thread, or in another process with
        ``Log(path, read_only=True).compact(...)``. A crash at any time leaves a log without damage.

        Args:
            key: The column, or columns, of the key.
            deleted: A condition such as ``lw.col("points").is_null()``, or the name of a boolean
                column, that is true for records that delete their key.
            keep_deleted: How long a record that deletes stays after the first compaction that finds
                it in a closed segment; a later compaction removes it. A reader that has read an
                older record of the key has this long to reach it.
            partitions: One partition or several; all by default.

        Returns:
            How many records and bytes the closed segments had and have. O(records) time. Memory:
            the distinct keys of one partition's closed segments, some 50 bytes for a number or a
            time, some 250 for text, and one frame.

        Raises:
            InvalidArgument: There is no such column, or it cannot be a key; or ``deleted`` is no
                condition.
            DataError: The log is damaged, or its values cannot be read. Partitions before the
                damaged one are compacted; it is not.
            StateError: Another compaction is in progress, or files cannot be written.

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, Log(folder, segment_bytes=1) as log:
        ...     for points in (5, 6, 7):
        ...         _ = log.append([{"user": "ann", "points": points}])
        ...     done = log.compact("user")
        ...     with log.reader() as reader:
        ...         done.records_before, done.records_after, [batch.offset for batch in reader]
        (2, 1, [1, 2])
        """
        names = (key,) if isinstance(key, str) else tuple(key)
        kept = duration(keep_deleted, name="keep_deleted")
        numbers = self._layout.numbers(partitions)
        if not names:
            raise InvalidArgument("key= names no column", hint='Write, say, key="user"')
        schema = self.schema
        deletes = None
        if deleted is not None:
            deletes = Condition(deleted, "compact", "deleted", 'lw.col("value").is_null()')
        if schema is not None:
            require_keys(schema, names)
            if deletes is not None:
                deletes.check(schema, str(self._layout.path))
        now = self._clock.now()

        def choose(bases: Int64Array) -> LastRecords:
            return LastRecords(names, deletes, bases, now - kept)

        done = Compacted(0, 0, 0, 0)
        with closing(CompactionLock(self._layout, "compacted")) as lock:
            lock.take()
            for _, change in lock.rewrite(
                numbers, choose, segment_bytes=self._segment_bytes, now=now, compacts=True
            ):
                done += change
        return done

    def erase(self, *, where: Any, partitions: int | Iterable[int] | None = None) -> Erased:
        """Remove the records that a condition is true of, wherever they are in the log.

        Their bytes are gone from the log's files when it returns. Offsets and times of the others
        stay as they are, so positions stay valid, as after :meth:`compact`. The log must be open
        for writing: a last segment with such records is closed first. A reader that has a file open
        continues with what is left: no later read returns such a record.

        A crash at any time leaves each segment as it was or without those records; erase again to
        finish. What was read from the log before, such as state, outputs and copies, is not
        changed.

        Args:
            where: A condition such as ``lw.col("user") == "ann"``, or the name of a boolean column.
                A record for which it is null stays.
            partitions: One partition or several; all by default.

        Returns:
            How many records were removed. O(records) time: each segment is read once, and those
            that change are read again and written. Memory: 8 bytes for each removed record of a
            partition, and some frames.

        Raises:
            InvalidArgument: ``where`` is no condition, or names a column that does not exist.
            DataError: The log is damaged, or the condition cannot be computed. Partitions before
                that place are done; that one is not changed.
            StateError: The log is closed or open for reading only, a compaction is in progress,
                files cannot be written, or a damaged tail was saved in a file beside the segments.

        >>> from tempfile import TemporaryDirectory
        >>> import lowwater as lw
        >>> with TemporaryDirectory() as folder, Log(folder) as log:
        ...     _ = log.append([{"user": user, "points": 5} for user in ("ann", "bob", "ann")])
        ...     erased = log.erase(where=lw.col("user") == "ann")
        ...     with log.reader() as reader:
        ...         erased.records, [batch.offsets.tolist() for batch in reader]
        (2, [[1]])
        """
        writers = self._writable()
        condition = Condition(where, "erase", "where", '(lw.col("user") == "ann")')
        numbers = self._layout.numbers(partitions)
        if (schema := self.schema) is not None:
            condition.check(schema, str(self._layout.path))
        erased: dict[int, int] = {}
        choose = partial(RecordsToErase, condition)
        with closing(CompactionLock(self._layout, "erased from")) as lock:
            lock.take()
            refuse_cut_tails(self._layout, numbers)
            for number in numbers:
                self._close_last_segment(writers[number], condition)
            now = self._clock.now()
            for number, change in lock.rewrite(
                numbers, choose, segment_bytes=self._segment_bytes, now=now, compacts=False
            ):
                if count := change.records_before - change.records_after:
                    erased[number] = count
        return Erased(erased)

    def reader(
        self,
        partitions: int | Iterable[int] | None = None,
        start: Start = "earliest",
        *,
        name: str | None = None,
    ) -> LogReader:
        """Return a reader. Close it after use, or use it as a context manager.

        Args:
            partitions: One partition or several; all by default.
            start: Where to start: ``"earliest"``, ``"latest"``, an offset, a time of append (an
                ``Instant``, an aware ``datetime`` or ISO-8601 text; starts at the first batch
                appended then or later), or the ``position`` of a reader.
            name: The name for committing offsets. If offsets are committed under it, the reader
                starts there.

        Raises:
            InvalidArgument: There is no such partition, or ``start`` is invalid.
            DataError: The start is after the end, or before the first retained record.
        """
        return LogReader(self._layout, self._layout.numbers(partitions), start, name)

    def close(self) -> None:
        """Fsync and close the log; idempotent. Readers stay open."""
        writers, self._writers = self._writers, []
        try:
            for writer in writers:
                writer.close()
        finally:
            for lock in (self._lock, self._changing):
                if lock is not None:
                    lock.close()
            self._lock = self._changing = None

    def _open(self, path: Path, partitions: int | None) -> Layout:
        if path.exists() and not path.is_dir():
            raise InvalidArgument(f"{str(path)!r} is a file", hint="Give the name of a folder")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(
                f"the log's folder cannot be made: {error.strerror or error}",
                where=str(path),
                hint="See that the folder above it may be written to",
            ) from None
        self._lock = LogLock(path / "lock", "opened for writing")
        if not self._lock.take(wait=False):
            self.close()
            raise StateError(
                "the log has a writer already",
                where=str(path),
                hint="Close that one first, or open the log with read_only=True",
            )
        try:
            self._changing = LogLock(path / "segments.lock", "opened for writing")
            layout = Layout.find(path)
            if layout is None:
                layout = Layout(path, partitions or 1)
                if layout.view(0).segments():
                    raise StateError(
                        "the folder has segments, but not the file that says what log this is",
                        where=str(path / "log.json"),
                        hint="Put the file back from a copy",
                    )
                layout.create()
            _require_same(partitions, layout)
            with closing(CompactionLock(layout, "opened for writing")) as lock:
                lock.clear_up()
            with self._changing.held():
                for number in range(layout.partitions):
                    folder = layout.partition(number)
                    self._writers.append(
                        PartitionWriter(number, folder, self._segment_bytes, self._changing)
                    )
            require_one_schema({one.number: one.schema for one in self._writers}, str(path))
        except BaseException:
            self.close()
            raise
        return layout

    def _shares(
        self, batch: pa.RecordBatch, partition: int | None, key: str | Iterable[str] | None
    ) -> dict[int, pa.RecordBatch]:
        """Split a batch by partition."""
        if key is not None:
            if partition is not None:
                raise InvalidArgument("both partition= and key= are given", hint="Give one of them")
            names = (key,) if isinstance(key, str) else tuple(key)
            return split_by_key(batch, names, self.partitions)
        if partition is None:
            partition = min(self._writers, key=lambda writer: writer.next_offset).number
        (partition,) = self._layout.numbers(partition, "partition")
        return {partition: batch} if batch.num_rows else {}

    def _close_last_segment(self, writer: PartitionWriter, condition: Condition) -> None:
        """Close the last segment of a partition if a condition is true of one of its records."""
        segments = self._layout.view(writer.number).segments()
        if not segments or segments[-1].base == writer.next_offset:
            return
        if not has_records_to_erase(segments[-1], writer.next_offset, condition):
            return
        assert self._changing is not None
        mark = writer.mark()
        with self._changing.held():
            try:
                writer.complete_segment()
            except BaseException as error:
                self._undo({writer.number: mark}, error)
                raise
        self._rolled = True

    def _undo(self, marks: dict[int, Any], error: BaseException) -> None:
        try:
            for number, mark in marks.items():
                self._writers[number].undo(mark)
        except StateError as second:
            self._broken = f"{error}; {second.what}"

    def _writable(self) -> list[PartitionWriter]:
        if self._lock is not None:
            self._lock.check_process()
        if self._broken is not None:
            raise StateError(
                f"the log takes no more since a write failed: {self._broken}",
                where=str(self._layout.path),
                hint="Close it and open it again: a half-written batch is then cut off",
            )
        if not self._writers:
            raise StateError(
                "the log is closed, or open for reading alone",
                where=str(self._layout.path),
                hint="Open it for writing: Log(path)",
            )
        return self._writers


def _require_same(partitions: int | None, layout: Layout) -> None:
    if partitions is not None and partitions != layout.partitions:
        raise InvalidArgument(
            f"partitions={partitions}, but the log has {layout.partitions}",
            where=str(layout.path),
            hint="Leave it out: the number of partitions never changes, or keys would move",
        )


def _count(value: object, name: str, *, least: int, most: int = 2**62) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    bounds = f"{least} or more" if most == 2**62 else f"from {least} to {most}"
    raise InvalidArgument(f"{describe(name, value)} is not possible", hint=f"Give an int, {bounds}")
