"""The shuffle: one row per partition of a micro-batch and key group, with elements as Arrow bytes.

The workers that read records also admit them, sort them by key group and send them through the
shuffle as Arrow: one row of bytes per partition and key group, so that neither Spark nor pandas
handles records individually. Every partition sends a row to every group, even if it only reports
its latest event time. So each micro-batch that reads anything calls all groups, and all of them
compute the same watermark.

Spark sends a row to the partition ``hash(number) mod partitions``, which would put three of the
numbers 0 to 3 into one of two partitions. A key group is therefore represented by a number whose
hash, modulo the number of groups, is the group itself. Groups are then spread evenly over any
number of partitions that divides theirs, and the numbers do not depend on the partitions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, final

import numpy as np
import pyarrow as pa

from lowwater.engine.graph.graph import Stage, admission_of
from lowwater.engine.records.admission import Admitted, OnError
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import key_groups
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.steps import Bundle
from lowwater.errors import DataError
from lowwater.spark.signals import Signal, Signals
from lowwater.time import Int64Array

NOW = HIDDEN + "now"
"""The column of the micro-batch's own time, int64 microseconds, if it is needed."""
CORRUPT = HIDDEN + "corrupt"
"""The column in which Spark reports lines that it cannot parse."""

SHUFFLE_SCHEMA = pa.schema(
    [
        ("key_group", pa.int32()),
        ("partition", pa.int32()),
        ("sequence", pa.int64()),
        ("events", pa.int64()),
        ("latest", pa.string()),
        ("clock", pa.string()),
        ("watermark", pa.string()),
        ("elements", pa.binary()),
        ("dead_letters", pa.binary()),
    ]
)
"""The columns of a shuffle row; ``elements`` and ``dead_letters`` are Arrow streams.

Instants, in microseconds, are text, because pandas converts integers to floats if there are nulls.
"""
SHUFFLE_DDL = (
    "key_group int, partition int, sequence long, events long, latest string, clock string, "
    "watermark string, elements binary, dead_letters binary"
)

_ROWS_AT_ONCE = 500_000
_KEY, _VALUE, _RECORD = "key:", "value:", "record:"


@final
@dataclass(frozen=True, slots=True)
class ShuffledElements:
    """The elements of several shuffle rows, with their records if those were kept."""

    bundle: Bundle
    records: Records | None


@final
@dataclass(frozen=True, slots=True)
class ShuffleWriter:
    """Validates the records of a partition and packs them by key group; runs in ``mapInArrow``.

    Args:
        stage: The stage; its steps are those that Spark does not run as columns.
        key_groups: How many there are.
        on_error: How invalid records are handled.
        signals: Extracts event times and clocks from the records.
        keep_records: Whether to keep whole records, for the output of late ones.
        max_ahead_us: How far ahead of the clock an event time may be, microseconds.
        partition: Returns the number of the current partition.
        names: The names of the columns, in order; by default the names in Spark.
    """

    stage: Stage
    key_groups: int
    on_error: OnError
    signals: Signals
    keep_records: bool
    max_ahead_us: int | None
    partition: Callable[[], int]
    names: tuple[str, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the shuffle rows of a partition, some for each of its stretches."""
        (flow,) = self.stage.inputs
        admission = admission_of(flow, self.stage, self.on_error, self.max_ahead_us)
        sequence = 0
        for stretch in _stretches(batches):
            named = stretch.rename_columns(self.names) if self.names else stretch
            signal, records = self.signals.split(Records.from_arrow(named))
            dead_letters: list[ErrorRecord] = []
            records = self._readable(records, dead_letters)
            for step in flow.steps:
                if records.length:
                    records = step.apply(records)
            if not records.length:
                yield self._shuffle_rows(sequence, signal, len(stretch), None, dead_letters)
            else:
                admitted = admission.admit(records, clock=self._came(records, signal))
                dead_letters.extend(admitted.errors)
                elements = self._sorted(records, admitted)
                if signal.observes and elements is not None and len(elements[0]):
                    signal = signal.observed(elements[0].column("time"))
                yield self._shuffle_rows(sequence, signal, len(stretch), elements, dead_letters)
            sequence += 1
        if not sequence:
            yield self._shuffle_rows(0, Signal(), 0, None, [])

    def _readable(self, records: Records, dead_letters: list[ErrorRecord]) -> Records:
        """Make dead letters of the lines that Spark could not parse."""
        corrupt = records.columns.get(CORRUPT)
        if corrupt is None:
            return records
        broken = corrupt.to_arrow().is_valid().to_numpy(zero_copy_only=False)
        if broken.any():
            lines = corrupt.take(np.flatnonzero(broken)).to_list()
            if self.on_error == "raise":
                raise DataError(
                    f"a line cannot be read: {lines[0]!r}",
                    hint='Fix it, or use on_error="dead_letter" to set such lines aside',
                )
            dead_letters += [ErrorRecord(line, "malformed", "it cannot be read") for line in lines]
            records = records.take(np.flatnonzero(~broken))
        return records

    def _came(self, records: Records, signal: Signal) -> int | Int64Array | None:
        """Return the clock at the records' arrival, if ``max_ahead`` limits event times by it."""
        if self.max_ahead_us is None:
            return None
        came = self.signals.came(records, signal)
        return int(records.columns[NOW].data[0]) if came is None else came

    def _sorted(self, records: Records, admitted: Admitted) -> tuple[pa.Table, Int64Array]:
        """Return the admitted elements sorted by key group, and where each group starts."""
        bundle, kept = admitted.bundle, admitted.kept
        group = key_groups(bundle.keys, self.key_groups)
        columns: dict[str, pa.Array] = {"time": pa.array(bundle.times)}
        for at, key in enumerate(bundle.keys):
            columns[f"{_KEY}{at}"] = key.to_arrow()
        for name, column in bundle.values.items():
            columns[f"{_VALUE}{name}"] = column.to_arrow()
        if self.keep_records:
            whole = records if kept is None else records.take(kept)
            for name in whole.names:
                columns[f"{_RECORD}{name}"] = whole.columns[name].to_arrow()
        table = pa.table(columns)
        # Key groups are uint16: numpy has a radix sort for 16 bits, and none for wider integers.
        order = np.argsort(group, kind="stable")
        counts = np.bincount(group, minlength=self.key_groups)
        return table.take(pa.array(order)), np.concatenate(([0], np.cumsum(counts)))

    def _shuffle_rows(
        self,
        sequence: int,
        signal: Signal,
        events: int,
        elements: tuple[pa.Table, Int64Array] | None,
        dead_letters: Sequence[ErrorRecord],
    ) -> pa.RecordBatch:
        groups = self.key_groups
        partition = self.partition()
        packed: list[bytes | None] = [None] * groups
        if elements is not None:
            table, bounds = elements
            for group in range(groups):
                low, high = int(bounds[group]), int(bounds[group + 1])
                if low < high:
                    packed[group] = to_bytes(table.slice(low, high - low))
        # Dead letters have no key, so any single group can carry them.
        carrier = partition % groups
        return pa.record_batch(
            {
                "key_group": pa.array(numbers_of_groups(groups), pa.int32()),
                "partition": pa.array([partition] * groups, pa.int32()),
                "sequence": pa.array([sequence] * groups, pa.int64()),
                "events": pa.array(
                    [events if group == carrier else 0 for group in range(groups)], pa.int64()
                ),
                "latest": pa.array([_text(signal.latest)] * groups, pa.string()),
                "clock": pa.array([_text(signal.clock)] * groups, pa.string()),
                "watermark": pa.array([_text(signal.watermark)] * groups, pa.string()),
                "elements": pa.array(packed, pa.binary()),
                "dead_letters": pa.array(
                    [
                        to_bytes(dead_letters_to_arrow(dead_letters))
                        if dead_letters and g == carrier
                        else None
                        for g in range(groups)
                    ],
                    pa.binary(),
                ),
            },
            schema=SHUFFLE_SCHEMA,
        )


def read_elements(streams: Sequence[bytes], keys: int) -> ShuffledElements | None:
    """Concatenate the elements of several shuffle rows; ``None`` if there are none.

    Args:
        streams: The ``elements`` of the shuffle rows, in their order.
        keys: The number of key columns.
    """
    tables = [from_bytes(stream) for stream in streams]
    if not tables:
        return None
    table = pa.concat_tables(tables).combine_chunks()
    columns = {name: Column.from_arrow(table.column(name)) for name in table.column_names}
    values = {
        name.removeprefix(_VALUE): column
        for name, column in columns.items()
        if name.startswith(_VALUE)
    }
    whole = {
        name.removeprefix(_RECORD): column
        for name, column in columns.items()
        if name.startswith(_RECORD)
    }
    bundle = Bundle(
        columns["time"].data, tuple(columns[f"{_KEY}{at}"] for at in range(keys)), values
    )
    return ShuffledElements(bundle, Records(whole, len(bundle)) if whole else None)


def to_bytes(table: pa.Table) -> bytes:
    """Serialise a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(data: bytes) -> pa.Table:
    """Read the table of an Arrow stream without copying."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()


def _stretches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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


def _text(instant: int | None) -> str | None:
    return None if instant is None else str(instant)


DEAD_LETTERS = pa.schema(
    [("reason", pa.string()), ("detail", pa.string()), ("record", pa.string())]
)


def dead_letters_to_arrow(dead_letters: Sequence[ErrorRecord]) -> pa.Table:
    """Convert dead letters to a table; each record is JSON."""
    return pa.table(
        {
            "reason": [letter.reason for letter in dead_letters],
            "detail": [letter.detail for letter in dead_letters],
            "record": [record_text(letter.record) for letter in dead_letters],
        },
        schema=DEAD_LETTERS,
    )


def record_text(record: Any) -> str:
    """Encode a record as JSON; values without a JSON form become text."""
    return json.dumps(record, default=str)


_SEED = 42
_BITS = 0xFFFFFFFF


@cache
def numbers_of_groups(key_groups: int) -> tuple[int, ...]:
    """Return the number that represents each key group. O(n log n) expected.

    >>> numbers_of_groups(4)
    (12, 6, 2, 0)
    """
    found: dict[int, int] = {}
    number = 0
    while len(found) < key_groups:
        found.setdefault(spark_hash(number) % key_groups, number)
        number += 1
    return tuple(found[group] for group in range(key_groups))


def spark_hash(number: int) -> int:
    """Return Spark's ``hash`` of an int: Murmur3 of 32 bits, signed.

    >>> spark_hash(0)
    933211791
    """
    key = (number * 0xCC9E2D51) & _BITS
    key = (_rotated(key, 15) * 0x1B873593) & _BITS
    mixed = (_rotated(_SEED ^ key, 13) * 5 + 0xE6546B64) & _BITS
    mixed ^= 4  # the length of an int
    mixed = ((mixed ^ (mixed >> 16)) * 0x85EBCA6B) & _BITS
    mixed = ((mixed ^ (mixed >> 13)) * 0xC2B2AE35) & _BITS
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def _rotated(bits: int, by: int) -> int:
    return ((bits << by) | (bits >> (32 - by))) & _BITS
