"""A log as a source of pipelines, which can say where it is and start there again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import final

import pyarrow as pa

from lowwater.engine.records import Records
from lowwater.engine.sources import read_rows
from lowwater.io.log.layout import Layout
from lowwater.io.log.reader import LogReader
from lowwater.io.log.values import LogBatch, Position, Start

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

    Read from the same position again, each partition gives the same records. What a position lies
    behind is durable: the writer's fsync is made up for.

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

    def seek(self, position: Mapping[str, int]) -> LogSource:
        """Return the same source, to begin at a position."""
        return replace(self, start=dict(position))

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        for records, _ in self.batches_from(None, size, keys):
            yield records

    def batches_from(
        self, position: Mapping[str, int] | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        """Yield the records, each time with the position behind them, exact to the record.

        A source that follows gives at most ``size`` records at a time, as soon as there are any,
        and no records at all each time before it waits, so that its run can look to its clock.

        Args:
            position: Where to begin; ``None``: at ``start``.
            size: How many elements a bundle will have at most.
            keys: The key columns.

        Raises:
            DataError: The position is no longer there, or the log is damaged.
        """
        layout = Layout.require(self.path)
        numbers = layout.numbers(self.partitions)
        start = self.start if position is None else position
        rows = size if self.follow else read_rows(size)
        with closing(LogReader(layout, numbers, start, None)) as reader:
            if not self.follow:
                reader.stop_at({str(n): layout.view(n).latest() for n in numbers})
            while True:
                batches = reader.read(rows)
                if batches:
                    reader.sync()
                    yield _records(layout, batches), reader.position
                elif not self.follow:
                    return
                else:
                    schema = layout.schema()
                    if schema is not None:
                        empty = pa.RecordBatch.from_pylist([], schema=schema)
                        yield Records.from_arrow(empty, self.path), reader.position
                    if not self.wait():
                        return


def _records(layout: Layout, batches: list[LogBatch]) -> Records:
    first = batches[0]
    records = [batch.records for batch in batches]
    whole = records[0] if len(records) == 1 else pa.concat_batches(records)
    if any(batch.partition != first.partition for batch in batches):
        return Records.from_arrow(whole, str(layout.path))
    return Records.from_arrow(whole, str(layout.partition(first.partition)), first.offset)
