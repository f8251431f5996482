"""Validates the records of a source's partition and packs them for the key groups that read them.

Runs in ``mapInArrow``, with the reader of the embedded runner: what is validated, in front of which
step, and what the watermark's estimator observes, are the same. Every partition sends a message to
every key group, even if there is nothing in it, so that each micro-batch that reads anything calls
all key groups, and all of them compute the same watermark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from lowwater.engine.graph.clocks import ArrivalClock, ClockLike
from lowwater.engine.local.health.conservation import Differences
from lowwater.engine.local.source_reader import SourceCut, SourceReader
from lowwater.engine.records.admission import OnError
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import ErrorRecord
from lowwater.errors import DataError
from lowwater.spark.instants import in_utc
from lowwater.spark.level import entry_of, needs_records
from lowwater.spark.levels import Levels
from lowwater.spark.messages import Elements, Message, Port, joined_tables, observed_table
from lowwater.spark.signals import Signal, Signals
from lowwater.spark.text_files import FileText
from lowwater.time import START_OF_TIME
from lowwater.watermark import Telling, WatermarkEstimator, columns_read, telling
from lowwater.watermark.observed import ORIGIN, PARTITION

NOW = HIDDEN + "now"
"""The column of the micro-batch's own time, int64 microseconds."""

_ROWS_AT_ONCE = 500_000
_ALL = 1 << 62


@final
class BatchClock:
    """The time of the micro-batch, as its records carry it."""

    def __init__(self) -> None:
        self.at = 0

    def now(self) -> int:
        """Return the time, int microseconds."""
        return self.at


@final
@dataclass(slots=True)
class PackedRecords:
    """What a stretch of a partition's records gives.

    Args:
        events: How many records were read, invalid ones included.
        sent: How many elements are sent, to all stages together.
        messages: What is sent: the level, the key group and the message.
        dead_letters: The invalid records.
    """

    events: int = 0
    sent: int = 0
    messages: list[tuple[int, int, Message]] = field(default_factory=list)
    dead_letters: list[ErrorRecord] = field(default_factory=list)


@final
@dataclass(frozen=True, slots=True)
class SourcePacker:
    """Packs the records of one source; a value that Spark ships to the workers.

    Args:
        levels: The graph.
        source: The number of the source in it.
        signals: Reads the clock and the watermark that records carry, if they do.
        key_groups: How many key groups there are.
        on_error: How invalid records are handled; ``None``: they are dead letters, but a function
            that fails stops the query.
        keep_records: Whether late elements leave the pipeline, with their records.
        files: What the paths of files that are read begin with: whole, and as the source writes it.
        text: Reads the text of files; ``None``: Spark reads the source.
    """

    levels: Levels
    source: int
    signals: Signals
    key_groups: int
    on_error: OnError | None
    keep_records: bool
    files: tuple[tuple[str, str], ...] = ()
    text: FileText | None = None

    def pack(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[PackedRecords]:
        """Yield what is sent of a partition, for each of its stretches; at least once.

        Args:
            batches: The records of the partition.
            partition: The number of the partition.
        """
        read = self.levels.graph.reads[self.source]
        edges = self.levels.out_of_source(self.source)
        clock = BatchClock()
        ahead = read.max_ahead_us if len(edges) == 1 else None
        entries = [
            entry_of(at, edge, edge.flow, self.on_error, ahead)
            for at, edge in enumerate(edges)
            if edge.flow is not None
        ]
        used: ClockLike = read.clock if isinstance(read.clock, ArrivalClock) else clock
        reader = SourceReader(
            read,
            entries,
            (),
            bundle_size=_ALL,
            clock=used,
            on_error=self.on_error or "dead_letter",
            durable=False,
        )
        ledger = _Ledger(self.levels.graph.name_of(read), reader)
        text = None if self.text is None else self.text.reader()
        sequence = 0
        for given in stretches(batches):
            stretch, now = in_utc(given), None
            if NOW in stretch.schema.names:
                now = stretch.column(NOW)[0].as_py()
                stretch = stretch.drop_columns([NOW])
            records = Records.from_arrow(stretch) if text is None else text.read(stretch)
            letters = self._set_aside(records.unreadable)
            packed = PackedRecords(records.length + len(letters), dead_letters=letters)
            if ORIGIN in records.columns:
                named = {**records.columns, ORIGIN: self._names(records.columns[ORIGIN])}
                records = records.replaced(named)
            signal, records = self.signals.split(records)
            clock.at = (now or 0) if signal.clock is None else signal.clock
            cuts: list[SourceCut] = []
            ledger.read(records.length)
            if records.length:
                for cut in reader.cuts(records):
                    if isinstance(cut, SourceCut):
                        cuts.append(cut)
                        ledger.hand(cut)
                    else:
                        packed.dead_letters.extend(cut)
                        ledger.reported += len(cut)
            ledger.check()
            self._send(packed, cuts, signal, now, partition, sequence)
            yield packed
            sequence += 1
        if not sequence:
            packed = PackedRecords()
            self._send(packed, [], Signal(), None, partition, sequence)
            yield packed

    def _names(self, uris: Column) -> Column:
        """Return the names of files as the source writes them."""
        encoded = uris.to_arrow().dictionary_encode()
        names = [self._name(unquote(uri)) for uri in encoded.dictionary.to_pylist()]
        return Column(arrow=pa.DictionaryArray.from_arrays(encoded.indices, pa.array(names)))

    def _name(self, uri: str) -> str:
        if not uri.startswith("file:"):
            return uri
        path = Path("/" + uri.removeprefix("file:").lstrip("/"))
        for whole, written in self.files:
            if path.is_relative_to(whole):
                return str(written / path.relative_to(whole))
        return str(path)

    def _set_aside(self, letters: Sequence[ErrorRecord]) -> list[ErrorRecord]:
        """Return what is set aside of what cannot be read; raise if nothing is to be."""
        if letters and self.on_error == "raise":
            raise DataError(
                f"a record cannot be read: {letters[0].record!r}: {letters[0].detail}",
                hint='Fix it, or use on_error="dead_letter" to set such records aside',
            )
        return list(letters)

    def _send(
        self,
        packed: PackedRecords,
        cuts: Sequence[SourceCut],
        signal: Signal,
        now: int | None,
        partition: int,
        sequence: int,
    ) -> None:
        edges = self.levels.out_of_source(self.source)
        told = set(self.levels.levels_told())
        observed = self._observed(cuts)
        for level in sorted(told):
            tables: list[dict[Port, pa.Table]] = [{} for _ in range(self.key_groups)]
            for at, edge in enumerate(edges):
                if edge.to.level != level:
                    continue
                whole = _elements(cuts, at)
                if whole is None:
                    continue
                if not needs_records(edge.to, self.keep_records):
                    whole = whole.without_records()
                if edge.to.by_id:
                    n = len(whole)
                    came = (Column(np.full(n, one, np.int64)) for one in (partition, sequence))
                    whole = whole.in_order(*came)
                for group, part in whole.by_group(self.key_groups, by_id=edge.to.by_id):
                    packed.sent += len(part)
                    tables[group][edge.to.number, edge.nth] = part.to_table()
            for group in range(self.key_groups):
                message = Message(
                    origin=-1 - self.source,
                    part=partition,
                    sequence=sequence,
                    watermark=signal.watermark,
                    now=now,
                    clock=signal.clock,
                    observed=observed,
                    elements=tables[group],
                )
                packed.messages.append((level, group, message))

    def _observed(self, cuts: Sequence[SourceCut]) -> pa.Table | None:
        """Return what the watermark's estimator observes of cuts, no more than it needs."""
        if not cuts:
            return None
        estimator = self.levels.graph.reads[self.source].watermark
        tables: list[pa.Table] = []
        for cut in cuts:
            names = _columns_needed(estimator, cut)
            bundle = cut.batch.bundle(cut.times, cut.start, START_OF_TIME)
            times = cut.times
            columns = {
                name: cut.batch.column(name, cut.start, cut.start + len(times)) for name in names
            }
            rows = telling(estimator, bundle)
            if rows is not None:
                times = times[rows]
                columns = {name: column.take(rows) for name, column in columns.items()}
            tables.append(observed_table(times, columns))
        return joined_tables(tables)


@final
class _Ledger:
    """Checks that each record of a partition is sent to each stage, filtered or dead (S-B2).

    Args:
        name: The name of the source.
        reader: Cuts its records.
    """

    def __init__(self, name: str, reader: SourceReader) -> None:
        self._name = name
        self._reader = reader
        self._differences = Differences()
        self._read = 0
        self.reported = 0

    def read(self, count: int) -> None:
        """Count records that were read."""
        self._read += count

    def hand(self, cut: SourceCut) -> None:
        """Count records that are about to be sent."""
        for bundle in cut.bundles:
            self._reader.entries[bundle.stage].counts.handed += len(bundle.bundle)

    def check(self) -> None:
        """Compare what was read with what was cut, for each stage."""
        dead = self._reader.invalid
        for entry in self._reader.entries:
            dead += entry.counts.dead
            for difference in entry.counts.differences(self._read, whole=True):
                self._differences.report(self._name, difference)
        self._differences.compare(self._name, dead, self.reported, "dead letters")


def _columns_needed(estimator: WatermarkEstimator | None, cut: SourceCut) -> list[str]:
    if estimator is None:
        return []
    every = cut.batch.names()
    named = columns_read(estimator)
    if not named and not isinstance(estimator, Telling):
        return every  # it does not say, as a function of records cannot
    return [name for name in every if name in named or name in (PARTITION, ORIGIN)]


def _elements(cuts: Sequence[SourceCut], edge: int) -> Elements | None:
    """Return what all cuts have for an edge; ``None`` if that is nothing."""
    found = [
        Elements.of(one.admitted, one.records, one.bundle, one.start)
        for cut in cuts
        for one in cut.bundles
        if one.stage == edge
    ]
    if len(found) < 2:
        return found[0] if found else None
    return Elements.of_tables([one.to_table() for one in found])


def stretches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combine batches into chunks of several hundred thousand rows; skip empty batches."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            rows += batch.num_rows
        if rows >= _ROWS_AT_ONCE:
            yield _joined(held)
            held, rows = [], 0
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
