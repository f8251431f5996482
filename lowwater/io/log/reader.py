"""Reads several partitions of a log as one stream, from any position, with named offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self, final

from lowwater.engine.graph.sources import READ_ROWS
from lowwater.errors import DataError, InvalidArgument, StateError
from lowwater.io.log.cursor import PartitionCursor, PartitionView
from lowwater.io.log.frame_format import LAST_OFFSET
from lowwater.io.log.layout import Layout
from lowwater.io.log.values import (
    LogBatch,
    Offsets,
    Start,
    as_offset,
    as_offsets,
    as_time,
)


@final
class LogReader:
    """Reads some or all partitions of a log, in the order of their appends.

    Many readers may read while the writer appends; none sees half a batch. Records of a partition
    are returned in order of offset. Across partitions, records are merged by time of append, as
    far as they exist at the time of the read.

    Args:
        layout: The log.
        partitions: Which partitions.
        start: Where to start. Partitions that a position leaves out start at ``"earliest"``.
        name: The name for committing offsets. Committed offsets take precedence over ``start``.

    Raises:
        InvalidArgument: ``start`` is invalid.
        DataError: The start is after the end, or before the first retained record.
    """

    def __init__(
        self, layout: Layout, partitions: tuple[int, ...], start: Start, name: str | None
    ) -> None:
        self._layout = layout
        self._name = name
        self._views = {number: layout.view(number) for number in partitions}
        committed = (None if name is None else layout.committed(name)) or {}
        begin = _resolve(self._views, start, layout.partitions, committed)
        self._cursors = {
            number: PartitionCursor(self._views[number], begin[number]) for number in begin
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[LogBatch]:
        """Yield the batches that exist now; iterate again for later ones."""
        while batches := self.read(READ_ROWS):
            yield from batches

    def read(self, records: int = READ_ROWS) -> list[LogBatch]:
        """Return up to ``records`` of the next records; none if there are none yet.

        Raises:
            DataError: The log is damaged, or retention has removed the records. The reader stays
                before that place; all earlier records have been returned.
        """
        found: list[LogBatch] = []
        times: dict[int, int] = {}
        try:
            for number, cursor in self._cursors.items():
                cursor.refresh()
                time = cursor.peek()
                if time is not None:
                    times[number] = time
            while times and records > 0:
                number = min(times, key=lambda one: (times[one], one))
                cursor = self._cursors[number]
                batch = cursor.take(records)
                if batch is not None:
                    found.append(batch)
                    records -= len(batch)
                time = cursor.peek()
                if time is None:
                    del times[number]
                else:
                    times[number] = time
        except DataError:
            if not found:
                raise
        return found

    @property
    def position(self) -> Offsets:
        """The next offset of each partition, by its number as text."""
        return {str(number): cursor.offset for number, cursor in self._cursors.items()}

    @property
    def lag(self) -> dict[int, int]:
        """The number of unread offsets in each partition, those that were compacted included."""
        return {
            number: max(0, view.latest() - self._cursors[number].offset)
            for number, view in self._views.items()
        }

    def seek(self, start: Start) -> None:
        """Move to another position. Partitions that it leaves out stay where they are.

        Raises:
            InvalidArgument: ``start`` is invalid.
            DataError: The start is after the end, or before the first retained record.
        """
        here = self.position if isinstance(start, Mapping) else {}
        begin = _resolve(self._views, start, self._layout.partitions, {}, here)
        for number, offset in begin.items():
            self._cursors[number].seek(offset)

    def stop_at(self, position: Offsets) -> None:
        """Stop reading at a position; partitions that it leaves out have no limit."""
        given = as_offsets(position, self._layout.partitions)
        for number, cursor in self._cursors.items():
            cursor.limit = given.get(str(number), LAST_OFFSET)

    def commit(self, position: Offsets | None = None) -> None:
        """Store the position to resume from under the reader's name, atomically and durably.

        Fsyncs the records before it first, so that a position is never ahead of the log.

        Args:
            position: The position up to which records are processed; by default all that were
                read.

        Raises:
            InvalidArgument: The reader has no name, or the position is invalid.
            StateError: The position cannot be written.
        """
        if self._name is None:
            raise InvalidArgument(
                "a reader without a name has nowhere to commit to",
                hint='Give it one: log.reader(name="billing")',
            )
        given = self.position if position is None else position
        self.sync()
        self._layout.commit(self._name, as_offsets(given, self._layout.partitions))

    def sync(self) -> None:
        """Fsync what was read, in case the writer has not.

        Raises:
            StateError: The fsync failed.
        """
        for number, cursor in self._cursors.items():
            try:
                cursor.sync()
            except OSError as error:
                raise StateError(
                    f"the records cannot be made durable: {error.strerror or error}",
                    where=str(self._views[number].folder),
                    hint="Check the disk",
                ) from None

    def close(self) -> None:
        """Close the files; idempotent."""
        for cursor in self._cursors.values():
            cursor.close()


def _resolve(
    views: Mapping[int, PartitionView],
    start: Start,
    partitions: int,
    committed: Offsets,
    otherwise: Offsets | None = None,
) -> dict[int, int]:
    """Return the offset at which to start in each partition."""
    if isinstance(start, Mapping):
        committed = {**(otherwise or {}), **as_offsets(start, partitions, "start"), **committed}
        start = "earliest"
    time = as_time(start)
    found: dict[int, int] = {}
    for number, view in views.items():
        given = committed.get(str(number))
        if given is None and start == "earliest":
            found[number] = view.earliest()
        elif given is None and start == "latest":
            found[number] = view.latest()
        elif given is None and time is not None:
            found[number] = view.offset_at(time)
        else:
            offset = as_offset(start, "start") if given is None else given
            _require_within(view, offset, committed=given is not None)
            found[number] = offset
    return found


def _require_within(view: PartitionView, offset: int, *, committed: bool) -> None:
    first, behind = view.earliest(), view.latest()
    if first <= offset <= behind:
        return
    what = "the next one will be" if offset > behind else "the first one kept is"
    known = behind if offset > behind else first
    remedy = f'Start at "earliest", or at an offset from {first} to {behind}'
    if committed:
        remedy += "; what a named reader has committed is in the folder readers/ of the log"
    raise DataError(
        f"partition {view.number} has no record {offset}: {what} {known}",
        where=str(view.folder),
        hint=remedy,
    )
