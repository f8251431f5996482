"""The rows that Spark moves between this library's operators, and the counters in them.

A row is a message to the key groups of a level, or something that leaves the pipeline: output rows,
and counters. It has few columns, since each costs in every conversion between Spark, Arrow and
pandas: counters are one text, of which Spark makes numbers again only where it adds them up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, final

import pyarrow as pa

from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.steps import REASONS, TIMINGS
from lowwater.spark.group_numbers import numbers_of_groups
from lowwater.spark.messages import Message, table_of
from lowwater.time import START_OF_TIME

LEAVES = 0
"""The level of rows that leave the pipeline."""

COUNTS = (
    "events", *(name.lower() for name in TIMINGS), "retractions", "emitted", *REASONS,
    "duplicates", "superseded", "dead_letters", "open_windows", "state_bytes",
    "received", "sent", "admitted", "dropped", "waiting",
)  # fmt: skip
"""The counters of a row, int64: what happened in one call, or what is there after it."""
INSTANTS = ("watermark", "output_watermark", "clock")
"""The instants of a row, int64 microseconds."""
NUMBERS = ("place", "tells", *COUNTS, *INSTANTS)
"""The numbers of a row, in order: the stage that its counters are of, or the source below zero;
whether its instants mean something, 1 or 0; counters and instants."""
ROW_SCHEMA = pa.schema(
    [
        ("key_group", pa.int32()),
        ("level", pa.int32()),
        ("body", pa.binary()),
        ("counted", pa.binary()),
    ]
)
"""A row: the number of a key group (:mod:`lowwater.spark.group_numbers`); the level that it is for,
less than zero if it is for all key groups of that level, or 0; a message, or an Arrow stream of
output rows; and what :func:`counted_bytes` gives, if it leaves. Text is sent as UTF-8 bytes: pandas
has several types of text, of which Spark takes not all."""
ROW_DDL = "key_group int, level int, body binary, counted binary"

_NOTHING: Mapping[str, int] = {
    **dict.fromkeys(NUMBERS, 0),
    **dict.fromkeys(INSTANTS, START_OF_TIME),
}


def counted_bytes(place: int, counted: Mapping[str, int], held_by: str | None) -> bytes:
    """Return the counters of a row: :data:`NUMBERS` in a line of text, and then a name.

    Args:
        place: The stage, or the source below zero, that they are of.
        counted: Those that differ from nothing.
        held_by: What holds the output watermark.

    >>> counted_bytes(-1, {"events": 3}, "the latest").decode().startswith("-1,0,3,0,")
    True
    """
    numbers = {**_NOTHING, "place": place, **counted}
    line = ",".join([str(int(numbers[name])) for name in NUMBERS])
    return (line if held_by is None else f"{line}\n{held_by}").encode()


def counted_of(text: str) -> dict[str, Any]:
    """Return what :func:`counted_bytes` encoded, of its text: every number, and ``held_by``.

    >>> counted_of(counted_bytes(0, {"events": 3, "tells": True}, None).decode())["events"]
    3
    """
    line, _, held_by = text.partition("\n")
    numbers = map(int, line.split(","))
    return {**dict(zip(NUMBERS, numbers, strict=True)), "held_by": held_by or None}


def receivers(number: int, level: int, key_groups: int) -> Iterator[tuple[int, int]]:
    """Yield the level and the key groups that a row with a message is for.

    Args:
        number: The row's number of a key group.
        level: The row's level.
        key_groups: How many key groups there are.
    """
    if level >= 0:
        yield level, numbers_of_groups(key_groups).index(number)
    else:
        for group in range(key_groups):
            yield -level, group


def unpacked_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the output rows that are in the first column of batches, as Arrow streams."""
    for batch in batches:
        for table in _output_rows(batch.column(0)):
            yield from table.to_batches()


COUNTED = HIDDEN + "counted"
"""The column of counters beside output rows: null in those, and only there."""


def with_counters(rows: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the output rows that are in rows which leave, and then the counters of these.

    Args:
        rows: Rows of :data:`ROW_SCHEMA`.
        schema: The columns of output rows. :data:`COUNTED` is behind them.
    """
    whole = schema.append(pa.field(COUNTED, pa.binary()))
    for table in _output_rows(rows.column("body")):
        nothing = pa.nulls(len(table), pa.binary())
        yield from pa.table([*table.columns, nothing], schema=whole).to_batches()
    empty = [pa.nulls(len(rows), field.type) for field in schema]
    yield pa.RecordBatch.from_arrays([*empty, rows.column("counted")], schema=whole)


def _output_rows(bodies: pa.Array) -> Iterator[pa.Table]:
    return (table_of(stream.as_buffer()) for stream in bodies if stream.is_valid)


@final
class SentRows:
    """Collects rows of :data:`ROW_SCHEMA`.

    Args:
        key_groups: How many key groups there are.
    """

    def __init__(self, key_groups: int) -> None:
        self._numbers = numbers_of_groups(key_groups)
        self._groups: list[int] = []
        self._levels: list[int] = []
        self._bodies: list[bytes | None] = []
        self._counted: list[bytes | None] = []

    def send(self, level: int, key_group: int, message: Message) -> None:
        """Add a message."""
        self._add(key_group, level, message.to_bytes(), None)

    def send_to_all(self, level: int, key_group: int, message: Message) -> None:
        """Add a message to all key groups of a level; until then it goes where one of them is."""
        self._add(key_group, -level, message.to_bytes(), None)

    def leave(
        self,
        key_group: int,
        place: int,
        counted: Mapping[str, int],
        *,
        body: bytes | None = None,
        held_by: str | None = None,
    ) -> None:
        """Add what leaves the pipeline: counters, and output rows as an Arrow stream."""
        self._add(key_group, LEAVES, body, counted_bytes(place, counted, held_by))

    def table(self) -> pa.Table:
        """Return all rows."""
        columns = [self._groups, self._levels, self._bodies, self._counted]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, ROW_SCHEMA, strict=True)]
        return pa.Table.from_arrays(arrays, schema=ROW_SCHEMA)

    def _add(self, group: int, level: int, body: bytes | None, counted: bytes | None) -> None:
        self._groups.append(self._numbers[group])
        self._levels.append(level)
        self._bodies.append(body)
        self._counted.append(counted)
