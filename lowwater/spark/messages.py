"""What is sent to a key group of a level: elements as Arrow, and the watermark in band.

Every source's partition and every key group of an upstream node sends a message to all key groups
that read it, even if there is nothing in it but a watermark. So each of them is called in every
micro-batch in which anything moves, and knows the watermark of all that is upstream of it
(MillWheel's low watermark) in the same micro-batch.

::

    u32  length of the head
    ...  head: plain values, see :class:`Message`
    u32  length of an Arrow stream, and the stream; for each table that the head lists
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Any, TypeAlias, final

import numpy as np
import pyarrow as pa

from lowwater.engine.records.admission import Admitted
from lowwater.engine.records.batch import HIDDEN, SIDE, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import key_groups
from lowwater.engine.records.pane_table import SIGN
from lowwater.engine.records.steps import Bundle
from lowwater.errors import DataError, StateError
from lowwater.state.codec import decode, encode
from lowwater.time import Int64Array

Port: TypeAlias = tuple[int, int]
"""The number of a node, and which input of its stage is meant."""

_LENGTH = Struct("<I")
_TIME, _SIGN, _KEY, _ID, _VALUE, _RECORD = "time", "sign", "key:", "id:", "value:", "record:"
_ORDER = "order:"
_CODED = {b"lowwater": b"coded"}
"""Metadata of a column of Python values, each encoded by :mod:`lowwater.state.codec`."""
_SAME = b"lowwater.same"
"""Metadata of a table in which some columns are one: all names, each with that of the first."""


@final
@dataclass(frozen=True, slots=True)
class Elements:
    """Validated elements on their way to a node.

    Args:
        bundle: The elements.
        ids: The columns of their ids, if duplicates are to be dropped.
        records: The records that contain them; without columns if nobody needs them.
        order: Columns of integers that they are sorted by when they have arrived from several key
            groups, where their order makes a difference.
    """

    bundle: Bundle
    ids: tuple[Column, ...]
    records: Records
    order: tuple[Column, ...] = ()

    def __len__(self) -> int:
        return len(self.bundle)

    @classmethod
    def of(cls, admitted: Admitted, records: Records, bundle: Bundle, start: int) -> Elements:
        """Return consecutive elements of an admitted batch.

        Args:
            admitted: The batch, validated.
            records: The batch before.
            bundle: The elements.
            start: Index of the first among the admitted ones.
        """
        stop = start + len(bundle)
        own = records if admitted.kept is None else records.take(admitted.kept)
        own = own if len(own) == len(bundle) else own.slice(start, stop)
        return cls(bundle, tuple(one.slice(start, stop) for one in admitted.ids), own)

    def take(self, rows: Int64Array) -> Elements:
        """Select the elements at ``rows``, in that order; what is one column stays one."""
        bundle, times = self.bundle, self.bundle.times[rows]
        made: dict[int, Column] = {}

        def taken(column: Column) -> Column:
            if id(column) not in made:
                is_time = column.holds(bundle.times)
                made[id(column)] = (
                    Column(times, None, column.type) if is_time else column.take(rows)
                )
            return made[id(column)]

        return Elements(
            Bundle(
                times,
                tuple(map(taken, bundle.keys)),
                {name: taken(column) for name, column in bundle.values.items()},
                None if bundle.signs is None else bundle.signs[rows],
            ),
            tuple(map(taken, self.ids)),
            Records({name: taken(one) for name, one in self.records.columns.items()}, len(rows)),
            tuple(map(taken, self.order)),
        )

    def without_records(self) -> Elements:
        """Return the same elements, without the records that contain them."""
        return replace(self, records=Records({}, len(self)))

    def in_order(self, *before: Column) -> Elements:
        """Return the same elements with their order: by some columns, and then as they are."""
        return replace(self, order=(*before, Column(np.arange(len(self), dtype=np.int64))))

    def by_group(self, groups: int, *, by_id: bool) -> Iterator[tuple[int, Elements]]:
        """Yield the elements of each key group that has any, in their order. O(n).

        Args:
            groups: How many key groups there are.
            by_id: Whether the id places an element, rather than its key.
        """
        if not len(self):
            return
        if groups == 1:
            yield 0, self
            return
        # Key groups are uint16: numpy has a radix sort for 16 bits, and none for wider integers.
        group = key_groups(self.ids if by_id else self.bundle.keys, groups)
        order = np.argsort(group, kind="stable").astype(np.int64)
        bounds = np.concatenate(([0], np.cumsum(np.bincount(group, minlength=groups))))
        for at in np.flatnonzero(np.diff(bounds)).tolist():
            yield at, self.take(order[bounds[at] : bounds[at + 1]])

    def to_table(self) -> pa.Table:
        """Return the elements as a table."""
        bundle = self.bundle
        every = self.records.columns.values()
        time = next((one for one in every if one.holds(bundle.times)), Column(bundle.times))
        columns: dict[str, Column] = {_TIME: time}
        if bundle.signs is not None:
            columns[_SIGN] = Column(bundle.signs.astype(np.int64))
        columns |= {f"{_KEY}{at}": key for at, key in enumerate(bundle.keys)}
        columns |= {f"{_ID}{at}": one for at, one in enumerate(self.ids)}
        columns |= {f"{_ORDER}{at}": one for at, one in enumerate(self.order)}
        columns |= {_VALUE + name: column for name, column in bundle.values.items()}
        columns |= {
            _RECORD + name: column
            for name, column in self.records.columns.items()
            if name == SIGN or name.startswith(SIDE) or not name.startswith(HIDDEN)
        }
        return _to_table(columns)

    @classmethod
    def of_tables(cls, tables: Sequence[pa.Table]) -> Elements:
        """Concatenate the elements of one or more tables that :meth:`to_table` made, in order."""
        columns = _joined(tables)
        times = columns[_TIME].data
        signs = columns.get(_SIGN)
        bundle = Bundle(
            times,
            _numbered(columns, _KEY),
            _named(columns, _VALUE),
            None if signs is None else signs.data.astype(np.int8),
        )
        records = Records(_named(columns, _RECORD), len(times))
        order = _numbered(columns, _ORDER)
        made = cls(bundle, _numbered(columns, _ID), records, order)
        if not order:
            return made
        by = np.lexsort([one.data for one in reversed(order)]).astype(np.int64)
        return made if (by[1:] > by[:-1]).all() else made.take(by)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What one sender tells a key group of a level in one micro-batch.

    Args:
        origin: The number of the node, or of the source below zero: -1 is source 0.
        part: The key group or the partition that sends it.
        sequence: Counts the messages of one sender in a micro-batch.
        watermark: The output watermark of a node, or one that the source's records carry.
        now: The time of the micro-batch, int microseconds, if it is known.
        clock: The clock that the records carry, int microseconds, if they do.
        ended: Whether the source has ended.
        observed: What the source's watermark estimator observes, in order of arrival.
        elements: The elements, by where they go.
    """

    origin: int
    part: int
    sequence: int = 0
    watermark: int | None = None
    now: int | None = None
    clock: int | None = None
    ended: bool = False
    observed: pa.Table | None = None
    elements: Mapping[Port, pa.Table] = field(default_factory=dict)

    @property
    def source(self) -> int | None:
        """The number of the source that it comes from, if it comes from one."""
        return -1 - self.origin if self.origin < 0 else None

    @property
    def order(self) -> tuple[int, int]:
        """Where it stands among the messages of its origin."""
        return self.part, self.sequence

    def to_bytes(self) -> bytes:
        """Encode the message."""
        head = [
            self.origin, self.part, self.sequence, self.watermark, self.now, self.clock,
            self.ended, self.observed is not None, [list(port) for port in self.elements],
        ]  # fmt: skip
        tables = [] if self.observed is None else [self.observed]
        parts = [encode(head), *map(table_bytes, [*tables, *self.elements.values()])]
        return b"".join(piece for part in parts for piece in (_LENGTH.pack(len(part)), part))

    @classmethod
    def of_bytes(cls, data: bytes) -> Message:
        """Decode a message.

        Raises:
            StateError: The bytes are no message of this version.
        """
        parts = _split(data)
        try:
            origin, part, sequence, watermark, now, clock, ended, observes, ports = decode(
                bytes(parts[0])
            )
        except (IndexError, ValueError, TypeError, StateError) as error:
            raise StateError(
                f"a message between two levels cannot be read: {error}",
                where="Spark",
                hint="Run the same version of lowwater on all workers",
            ) from error
        tables = [table_of(part) for part in parts[1:]]
        observed = tables.pop(0) if observes else None
        return cls(
            origin=origin,
            part=part,
            sequence=sequence,
            watermark=watermark,
            now=now,
            clock=clock,
            ended=ended,
            observed=observed,
            elements={(to, nth): t for (to, nth), t in zip(ports, tables, strict=True)},
        )


def observed_table(times: Int64Array, columns: Mapping[str, Column]) -> pa.Table:
    """Return what an estimator observes as a table, for :func:`observed_records`."""
    return _to_table({_TIME: Column(times), **{_RECORD + name: c for name, c in columns.items()}})


def observed_records(tables: Sequence[pa.Table]) -> tuple[Int64Array, Records]:
    """Return event times, int64, shape (n,), and records, from what several messages carry."""
    columns = _joined(tables)
    times = columns[_TIME].data
    return times, Records(_named(columns, _RECORD), len(times))


def joined_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate one or more tables of one message."""
    return tables[0] if len(tables) == 1 else _to_table(_joined(tables))


def table_bytes(table: pa.Table) -> bytes:
    """Serialise a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def table_of(data: bytes | memoryview | pa.Buffer) -> pa.Table:
    """Read the table of an Arrow stream without copying."""
    with pa.ipc.open_stream(data if isinstance(data, pa.Buffer) else pa.py_buffer(data)) as reader:
        return reader.read_all()


def _split(data: bytes) -> list[memoryview]:
    whole, at = memoryview(data), 0
    parts = []
    while at < len(whole):
        (length,) = _LENGTH.unpack_from(whole, at)
        at += _LENGTH.size
        parts.append(whole[at : at + length])
        at += length
    return parts


def _to_table(columns: Mapping[str, Column]) -> pa.Table:
    """Return columns as a table; those that are one, such as a key and its record's, once."""
    arrays: list[pa.Array] = []
    fields: list[pa.Field] = []
    first: dict[int, str] = {}
    names = {name: first.setdefault(id(column), name) for name, column in columns.items()}
    for name, column in columns.items():
        if names[name] != name:
            continue
        if column.arrow is None and column.data.dtype == object and not _is_text(column.type):
            arrays.append(pa.array(_coded(name, column), pa.binary()))
            fields.append(pa.field(name, pa.binary(), metadata=_CODED))
        else:
            arrays.append(column.to_arrow())
            fields.append(pa.field(name, arrays[-1].type))
    metadata = {_SAME: json.dumps(names)} if len(fields) < len(names) else None
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata))


def _names(schema: pa.Schema) -> dict[str, str]:
    """Return the names of the columns that a table stands for, and which of its own each is."""
    names = (schema.metadata or {}).get(_SAME)
    return {name: name for name in schema.names} if names is None else json.loads(names)


def _is_text(kind: pa.DataType | None) -> bool:
    """Return whether values are known to be text or bytes, which Arrow gives back as they are."""
    types = pa.types
    is_any_of = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return kind is not None and any(is_of(kind) for is_of in is_any_of)


def _coded(name: str, column: Column) -> list[bytes]:
    try:
        return [encode(value) for value in column.to_list()]
    except StateError as error:
        raise DataError(
            f"the column {name.partition(':')[2]!r} cannot be sent to another task: {error.what}",
            where="to_spark",
            hint="Drop it before the stage, or make plain values of it: numbers, text, bytes, "
            "dates, lists, tuples, dicts or sets",
        ) from error


def _joined(tables: Sequence[pa.Table]) -> dict[str, Column]:
    """Concatenate tables whose columns may differ in type, or be missing in some."""
    first = tables[0].schema
    if all(table.schema.equals(first, check_metadata=True) for table in tables):
        whole = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
        found = {field.name: _column(field, whole.column(field.name)) for field in first}
        return {name: found[one] for name, one in _names(first).items()}
    names = dict.fromkeys(name for table in tables for name in _names(table.schema))
    columns = {name: _concat([_part(table, name) for table in tables]) for name in names}
    # One of them may be a column of its records, and have the type of that.
    columns[_TIME] = Column(np.concatenate([_part(table, _TIME).data for table in tables]))
    return columns


def _part(table: pa.Table, name: str) -> Column:
    at = table.schema.get_field_index(_names(table.schema).get(name, name))
    if at < 0:
        return Column.from_arrow(pa.nulls(table.num_rows))
    return _column(table.schema.field(at), table.column(at))


def _column(field: pa.Field, array: pa.ChunkedArray) -> Column:
    if field.metadata is not None and b"lowwater" in field.metadata:
        return Column.of_objects([decode(value) for value in array.to_pylist()])
    return Column.from_arrow(array)


def _concat(columns: Sequence[Column]) -> Column:
    """Concatenate columns of several types: as Arrow promotes them, or else as Python values."""
    if all(column.arrow is not None for column in columns):
        tables = [pa.table({"": column.arrow}) for column in columns]
        try:
            whole = pa.concat_tables(tables, promote_options="default")
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            pass
        else:
            return Column.from_arrow(whole.column(0))
    return Column.of_objects([value for column in columns for value in column.to_list()])


def _named(columns: Mapping[str, Column], prefix: str) -> dict[str, Column]:
    return {n.removeprefix(prefix): c for n, c in columns.items() if n.startswith(prefix)}


def _numbered(columns: Mapping[str, Column], prefix: str) -> tuple[Column, ...]:
    return tuple(columns[f"{prefix}{at}"] for at in range(_count(columns, prefix)))


def _count(names: Iterable[str], prefix: str) -> int:
    return sum(name.startswith(prefix) for name in names)


def record_text(record: Any) -> str:
    """Encode a record as JSON; values without a JSON form become text."""
    return json.dumps(record, default=str)
