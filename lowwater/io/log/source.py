"""A log as a source of pipelines, which can say where it is and start there again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
import pyarrow as pa

from lowwater.engine.graph.sources import Position, read_rows
from lowwater.engine.records.batch import Records
from lowwater.errors import DataError
from lowwater.io.log.layout import Layout
from lowwater.io.log.reader import LogReader
from lowwater.io.log.values import LogBatch, Start
from lowwater.watermark.observed import PARTITION

Wait = Callable[[], bool]
"""Called when there is nothing new: it waits, and says whether to look again."""


@final
@dataclass(frozen=True, slots=True)
class Poll:
    """Waits for a while, and always looks again.

    Args:
        seconds: How long.
    """

    seconds: float = 0.05

    def __call__(self) -> bool:
        time.sleep(self.seconds)
        return True


@final
@dataclass(frozen=True, slots=True)
class LogSource:
    """The records of a log, in the order of their appends.

    What a position lies behind is durable: the writer's fsync is made up for.

    Args:
        path: The log's folder.
        start: Where to begin, as :meth:`lowwater.io.Log.reader` takes it.
        follow: Whether to go on with what is appended during the run. Else it ends with what was
            there when it began.
        partitions: Which partitions; ``None`` for all.
        wait: What to do while there is nothing new, if it follows.
    """

    path: str
    start: Start = "earliest"
    follow: bool = False
    partitions: tuple[int, ...] | None = None
    wait: Wait = field(default_factory=Poll)

    @property
    def schema(self) -> pa.Schema | None:
        return Layout.require(self.path).schema()

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        for records, _ in self.batches_from(None, size, keys):
            if records.length or self.follow:
                yield records

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        """Yield the records after a position, and with each batch the position behind it.

        A position is ``{"at": offsets, "next": offsets}``: exact to the record, and up to where
        the next batch goes if that is known. How long a batch is depends on how much had been
        appended by then, so where a batch comes that was not foretold, one without records comes
        first and foretells it. From each position the next batch is therefore the same whenever
        it is read.

        A source that follows gives at most ``size`` records at a time, as soon as there are any,
        and before it waits a batch without records, so that its run can look to its clock.

        Args:
            position: What came with the last batch that was read; ``None``: at ``start``.
            size: How many elements a bundle will have at most.
            keys: The key columns.

        Raises:
            DataError: The position is no longer there, or the log is damaged.
        """
        layout = Layout.require(self.path)
        numbers = layout.numbers(self.partitions)
        limit = {} if self.follow else {str(n): layout.view(n).latest() for n in numbers}
        rows = size if self.follow else read_rows(size)
        start = self.start if position is None else position["at"]
        with closing(LogReader(layout, numbers, start, None)) as reader:
            begin = dict(reader.position)
            batches: list[LogBatch] = []
            empty: Records | None = None
            pause = self.wait.seconds if isinstance(self.wait, Poll) else 0.0
            rested = False  # while other sources were read
            if position is not None and position["next"] is not None:
                batches = _foretold(reader, position["next"])
            reader.stop_at(limit)
            while True:
                if not batches:
                    batches = _in_order(reader.read(rows))
                    coming = dict(reader.position) if batches else None
                    empty = _no_records(layout) if empty is None else empty
                    if empty is not None and (batches or self.follow):
                        reader.sync()
                        rest = 0.0 if batches else pause
                        asked = time.monotonic()
                        yield replace(empty, rest_seconds=rest), {"at": begin, "next": coming}
                        rested = bool(rest) and time.monotonic() - asked >= rest
                if not batches:
                    if not self.follow or not (rested or self.wait()):
                        return
                    continue
                records, begin = _records(layout, batches), dict(reader.position)
                batches = _in_order(reader.read(rows))
                coming = dict(reader.position) if batches else None
                reader.sync()
                yield records, {"at": begin, "next": coming}


def _foretold(reader: LogReader, until: Mapping[str, int]) -> list[LogBatch]:
    """Return the batch that a position says comes next."""
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
    """Return batches in an order that does not depend on when each became visible."""
    return sorted(batches, key=lambda batch: (batch.time, batch.partition, batch.offset))


def _records(layout: Layout, batches: list[LogBatch]) -> Records:
    first = batches[0]
    records = [batch.records for batch in batches]
    whole = records[0] if len(records) == 1 else pa.concat_batches(records)
    counts = [batch.records.num_rows for batch in batches]
    numbers = np.repeat(np.array([batch.partition for batch in batches], dtype=np.int64), counts)
    whole = whole.append_column(PARTITION, pa.array(numbers))
    if any(batch.partition != first.partition for batch in batches):
        return Records.from_arrow(whole, str(layout.path))
    return Records.from_arrow(whole, str(layout.partition(first.partition)), first.offset)


def _no_records(layout: Layout) -> Records | None:
    """Return a batch of none; ``None`` while the columns are not known."""
    schema = layout.schema()
    if schema is None:
        return None
    schema = schema.append(pa.field(PARTITION, pa.int64()))
    return Records.from_arrow(pa.RecordBatch.from_pylist([], schema=schema), str(layout.path))
