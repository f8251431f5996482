"""A log as a replayable source of pipelines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias, final

import numpy as np
import pyarrow as pa

from lowwater.engine.graph.sources import Position, read_rows
from lowwater.engine.local.delivery import Place
from lowwater.engine.records.batch import Records, readable
from lowwater.errors import DataError
from lowwater.io.foretold import Part, foretold_batches, share_of
from lowwater.io.log.layout import Layout
from lowwater.io.log.reader import LogReader
from lowwater.io.log.values import LogBatch, Offsets, Start
from lowwater.kernels.positions import repeated
from lowwater.watermark.observed import PARTITION

Wait = Callable[[], bool]
"""Called when there is nothing new: waits, and returns whether to look again."""


@final
@dataclass(frozen=True, slots=True)
class Poll:
    """Waits for a fixed time, and then always looks again.

    Args:
        seconds: The time to wait.
    """

    seconds: float = 0.05

    def __call__(self) -> bool:
        time.sleep(self.seconds)
        return True


@final
@dataclass(frozen=True, slots=True)
class LogSource:
    """The records of a log, in order of append.

    Fsyncs what it reads before it reports a position, in case the writer has not, so that a
    position never refers to records that a crash could lose.

    Args:
        path: The log's folder.
        start: Where to start, as for :meth:`lowwater.io.Log.reader`.
        follow: Whether to continue with records appended during the run. Otherwise the source ends
            with the records that exist when the run starts.
        partitions: Which partitions; ``None`` for all.
        wait: What to do while there is nothing new, when following.
    """

    path: str
    start: Start = "earliest"
    follow: bool = False
    partitions: tuple[int, ...] | None = None
    wait: Wait = field(default_factory=Poll)

    def places(self) -> Iterable[Place]:
        """Return the log's folder, which holds neither outputs nor state."""
        return [Place(Path(self.path))]

    @property
    def schema(self) -> pa.Schema | None:
        schema = Layout.require(self.path).schema()
        return None if schema is None else readable(schema, self.path)

    def up_to_now(self) -> LogSource:
        """Return the source of the records that are there when it is read."""
        return replace(self, follow=False)

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        rows = size if self.follow else read_rows(size)
        for records, _ in self._batches(None, rows, rows):
            if records.length or self.follow:
                yield records

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        """Yield the records after a position, and with each batch the position after it.

        A position is ``{"at": offsets, "next": offsets}``: the exact offsets, and the end of the
        next batch if it is already fixed (:mod:`lowwater.io.foretold`).

        Compaction may remove records of the next batch before a restart reads it again, but the
        batch ends where the position says. Batches are no longer than a bundle, so a run that had
        done a bundle of that batch had done all of it, and what it skips is what it had done. Where
        a batch may be several bundles all the same, the run refuses to resume in the middle of one
        that has changed.

        A source that follows yields at most ``size`` records at a time, as soon as there are any.
        Before it waits it yields an empty batch, so that the clock of the run advances.

        Args:
            position: The position of the last batch that was read; ``None``: at ``start``.
            size: The largest number of elements in a bundle.
            keys: The key columns.

        Raises:
            DataError: The records at the position are no longer there, or the log is damaged.
        """
        yield from self._batches(position, size if self.follow else read_rows(size), size)

    def _batches(
        self, position: Position | None, rows: int, longest: int
    ) -> Iterator[tuple[Records, Position]]:
        """Yield the records after a position.

        Args:
            position: As for :meth:`batches_from`.
            rows: How many records are read at a time.
            longest: The largest number of records in a batch.
        """
        layout = Layout.require(self.path)
        numbers = layout.numbers(self.partitions)
        limit = {} if self.follow else {str(n): layout.view(n).latest() for n in numbers}
        start = self.start if position is None else position["at"]
        until: Offsets | None = None if position is None else position["next"]
        wait = self.wait if self.follow else None
        with closing(LogReader(layout, numbers, start, None)) as reader:
            yield from foretold_batches(
                _LogParts(layout, reader, limit, rows, longest, wait), until
            )


_LogPart: TypeAlias = Part[list[LogBatch], Offsets]


@final
class _LogParts:
    """The parts of a log that a reader reads, as batches.

    Args:
        layout: The log's folder.
        reader: Reads the log.
        limit: Where each partition ends; those that are left out have no end.
        rows: How many records are read at a time.
        longest: The largest number of records in a part.
        wait: What to do while there is nothing new; ``None``: that is the end.
    """

    def __init__(
        self,
        layout: Layout,
        reader: LogReader,
        limit: Offsets,
        rows: int,
        longest: int,
        wait: Wait | None,
    ) -> None:
        self._layout, self._reader, self._limit = layout, reader, limit
        self._rows, self._longest, self._wait = rows, longest, wait
        self._at = reader.position
        self._nothing = Records({}, 0)
        self._partitions = tuple(
            int(number)
            for number, offset in self._at.items()
            if number not in limit or offset < limit[number]
        )
        self._waits = False
        self._begun = self._at
        reader.stop_at(limit)

    def fetch(self, until: Offsets | None, seconds: float | None) -> list[_LogPart]:
        if until is not None:
            part = Part(self._foretold(until), self._reader.position)
            self._reader.stop_at(self._limit)
            return [part]
        waits, self._waits = self._waits, False
        if waits and not self._look_again(seconds or 0.0):
            self._wait = None
            return []
        return self._read()

    def rest(self) -> float | None:
        self._waits = True
        if self._wait is None:
            return None
        return self._wait.seconds if isinstance(self._wait, Poll) else 0.0

    def batch(self, part: _LogPart, following: Offsets | None) -> tuple[Records, Position]:
        self._at = part.end
        if not part.content:  # compaction has removed them: an empty batch takes their place
            return self.pause(following)
        records = replace(
            _records(self._layout, part.content),
            partitions=self._partitions,
            share=share_of(self._begun, part.end, self._limit),
        )
        return records, self._position(following)

    def pause(self, following: Offsets | None) -> tuple[Records, Position]:
        if not self._nothing.columns:
            self._nothing = replace(_no_records(self._layout), partitions=self._partitions)
        return self._nothing, self._position(following)

    def _position(self, following: Offsets | None) -> Position:
        self._reader.sync()
        return {"at": self._at, "next": following}

    def _look_again(self, seconds: float) -> bool:
        """Wait, and return whether to look for records again."""
        if not isinstance(self._wait, Poll):
            return self._wait is not None and self._wait()
        return seconds <= 0 or replace(self._wait, seconds=seconds)()

    def _read(self) -> list[_LogPart]:
        """Return the next records in parts of at most ``longest``; none if there are none yet."""
        end = self._reader.position
        batches = _in_order(self._reader.read(self._rows))
        parts: list[_LogPart] = []
        for part in _split(batches, self._longest):
            end = {**end, **{str(one.partition): one.next_offset for one in part}}
            parts.append(Part(part, end))
        if parts:
            parts[-1] = Part(parts[-1].content, self._reader.position)
        return parts

    def _foretold(self, until: Offsets) -> list[LogBatch]:
        """Return the next batch, whose end the position has fixed."""
        reader = self._reader
        reader.stop_at(until)
        batches = _in_order(list(reader))
        for number, offset in reader.position.items():
            if offset < until.get(number, 0):
                raise DataError(
                    f"partition {number} has no record {offset}, but a run had read it before",
                    where="the log",
                    hint="Put the log back from a copy, or begin without the state of that run",
                )
        return batches


def _in_order(batches: list[LogBatch]) -> list[LogBatch]:
    """Sort batches into an order that does not depend on when each became visible."""
    return sorted(batches, key=lambda batch: (batch.time, batch.partition, batch.offset))


def _split(batches: list[LogBatch], longest: int) -> list[list[LogBatch]]:
    """Split batches into lists of so many records; the last may have fewer."""
    parts: list[list[LogBatch]] = []
    room = 0
    for batch in batches:
        start = 0
        while start < len(batch):
            if not room:
                parts.append([])
                room = longest
            count = min(room, len(batch) - start)
            parts[-1].append(batch.slice(start, count))
            start, room = start + count, room - count
    return parts


def _records(layout: Layout, batches: list[LogBatch]) -> Records:
    first = batches[0]
    records = [batch.records for batch in batches]
    whole = records[0] if len(records) == 1 else pa.concat_batches(records)
    counts = [batch.records.num_rows for batch in batches]
    numbers = repeated(np.array([batch.partition for batch in batches], dtype=np.int64), counts)
    whole = whole.append_column(PARTITION, pa.array(numbers))
    if any(batch.partition != first.partition for batch in batches):
        offsets = np.concatenate([batch.offsets for batch in batches])

        def place_of(row: int) -> str:
            return f"{layout.partition(int(numbers[row]))}, row {offsets[row]}"

        found = Records.from_arrow(whole, str(layout.path))
        return replace(found, row_numbers=np.arange(len(numbers)), place_of=place_of)
    found = Records.from_arrow(whole, str(layout.partition(first.partition)), first.offset)
    if batches[-1].next_offset - first.offset == whole.num_rows:
        return found
    return replace(found, row_numbers=np.concatenate([batch.offsets for batch in batches]))


def _no_records(layout: Layout) -> Records:
    """Return an empty batch, with the columns if they are known by now."""
    schema = layout.schema()
    if schema is None:
        return Records({}, 0)
    schema = schema.append(pa.field(PARTITION, pa.int64()))
    return Records.from_arrow(pa.RecordBatch.from_pylist([], schema=schema), str(layout.path))
