"""Panes as Arrow tables and as the input records of downstream stages: one row per pane.

A table loses nothing: columns of values without an Arrow type are encoded value by value, and
tagged in the schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, time
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import EXACT, Column
from lowwater.engine.records.python_values import FIRST_DATETIME, LAST_DATETIME, python_values
from lowwater.engine.records.steps import INSERT, KINDS, RETRACT, TIMINGS, PaneBatch
from lowwater.engine.records.value_kinds import holds
from lowwater.errors import DataError
from lowwater.state.codec import of_base
from lowwater.time import Instant, Int64Array

Tabular = TypeVar("Tabular", pa.Table, pa.RecordBatch)

MICROS_UTC = pa.timestamp("us", "UTC")
PANE_FIELDS = (
    pa.field("timing", pa.dictionary(pa.int8(), pa.string())),
    pa.field("index", pa.int64()),
    pa.field("on_time_index", pa.int64()),
    pa.field("is_first", pa.bool_()),
    pa.field("is_last", pa.bool_()),
    pa.field("kind", pa.dictionary(pa.int8(), pa.string())),
    pa.field("timestamp", MICROS_UTC),
    pa.field("emitted_at", MICROS_UTC),
    pa.field("watermark", MICROS_UTC),
)
WEIGHT = "weight"
"""1 for an insert, -1 for a retraction; only in tables of results, because sinks keep ``kind``."""
RESERVED = frozenset({"window_start", "window_end", *(field.name for field in PANE_FIELDS)})
EMISSION = ("emitted_at", "watermark")
"""The columns that say when a pane was emitted; nulls, for people, where that is infinite."""

_WITH_ZONE = frozenset({datetime, time})

_NOT_FOR_ARROW = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    OverflowError,
    TypeError,
    ValueError,
)


def panes_to_arrow(panes: PaneBatch, keys: Sequence[str]) -> pa.RecordBatch:
    """Convert panes to an Arrow batch.

    Its columns are the keys, ``window_start``, ``window_end``, the aggregates, and then the other
    fields of a pane (S-P1). Instants become UTC timestamps, clipped to the years 1 to 9999.

    Args:
        panes: The panes.
        keys: The names of the key columns.
    """
    columns: dict[str, pa.Array] = {
        name: column_to_arrow(column) for name, column in zip(keys, panes.keys, strict=True)
    }
    columns["window_start"] = instants_to_arrow(panes.start)
    columns["window_end"] = instants_to_arrow(panes.end)
    for name, column in panes.values.items():
        columns[name] = column_to_arrow(column)
    columns["timing"] = _coded(panes.timing, TIMINGS)
    columns["index"] = pa.array(panes.index)
    columns["on_time_index"] = pa.array(panes.on_time_index)
    columns["is_first"] = pa.array(panes.is_first)
    columns["is_last"] = pa.array(panes.is_last)
    columns["kind"] = _coded(panes.kind, KINDS)
    columns["timestamp"] = instants_to_arrow(panes.timestamp)
    columns["emitted_at"] = instants_to_arrow(panes.emitted_at)
    columns["watermark"] = instants_to_arrow(panes.watermark)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def readable_table(panes: Tabular) -> Tabular:
    """Convert a table of :func:`panes_to_arrow` to what results hand out, to be read by people.

    ``timing`` and ``kind`` become plain text, ``weight`` is added after ``kind``, and times of
    emission beyond the years 1 to 9999, as watermarks that are not known, become nulls. A key or an
    aggregate called ``weight`` keeps its column, and none is added: ``kind`` says the same. Sinks
    keep the compact form; rows on Spark have the nulls.

    Args:
        panes: A ``pa.Table`` or ``pa.RecordBatch``.
    """
    for name in ("timing", "kind"):
        at = panes.schema.get_field_index(name)
        panes = panes.set_column(at, name, panes.column(name).cast(pa.string()))
    for name in EMISSION:
        at = panes.schema.get_field_index(name)
        panes = panes.set_column(at, name, known_instants(panes.column(name)))
    if WEIGHT in panes.schema.names:
        return panes
    at = panes.schema.get_field_index("kind") + 1
    is_insert = pc.equal(panes.column("kind"), KINDS[INSERT])
    one, minus_one = pa.scalar(1, pa.int8()), pa.scalar(-1, pa.int8())
    return panes.add_column(at, WEIGHT, pc.if_else(is_insert, one, minus_one))


def known_instants(instants: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Turn what :func:`instants_to_arrow` clipped, such as an infinite watermark, into nulls."""
    first, last = pa.scalar(FIRST_DATETIME, MICROS_UTC), pa.scalar(LAST_DATETIME, MICROS_UTC)
    known = pc.and_(pc.greater(instants, first), pc.less(instants, last))
    return pc.if_else(known, instants, None)


def empty_panes(keys: Sequence[tuple[str, pa.DataType]], values: Sequence[str]) -> pa.Table:
    """Return an empty table with the columns of :func:`panes_to_arrow`."""
    fields = [pa.field(name, kind) for name, kind in keys]
    fields += [pa.field("window_start", MICROS_UTC), pa.field("window_end", MICROS_UTC)]
    fields += [pa.field(name, pa.null()) for name in values]
    return pa.Table.from_batches([], pa.schema([*fields, *PANE_FIELDS]))


def instants_to_arrow(instants: Int64Array) -> pa.Array:
    """Convert int64 microseconds to UTC timestamps, clipped to the years 1 to 9999."""
    if instants.size and (
        int(instants.max()) > LAST_DATETIME or int(instants.min()) < FIRST_DATETIME
    ):
        instants = np.clip(instants, FIRST_DATETIME, LAST_DATETIME)
    return pa.array(instants).view(MICROS_UTC)


def kinds_to_arrow(signs: NDArray[np.integer[Any]]) -> pa.Array:
    """Return ``insert`` for each +1 and ``retract`` for each -1, as panes have them."""
    return _coded(np.where(signs > 0, INSERT, RETRACT).astype(np.uint8), KINDS)


def _coded(codes: NDArray[np.uint8], names: Sequence[str]) -> pa.Array:
    # Not a module constant: the first call of pa.array imports pandas if it is installed, and
    # `import lowwater` must not.
    return pa.DictionaryArray.from_arrays(pa.array(codes.view(np.int8)), pa.array(names))


def column_to_arrow(column: Column) -> pa.Array:
    """Convert a column to Arrow; values without an Arrow type become text."""
    try:
        return column.to_arrow()
    except _NOT_FOR_ARROW:
        return pa.array([_text(value) for value in column.to_list()], type=pa.string())


def _text(value: Any) -> str | None:
    """Return the text of a value that has no Arrow type, or none in common with the others."""
    return None if value is None else str(value).encode(errors="backslashreplace").decode()


SIGN = HIDDEN + "sign"
"""Hidden column: 1 for an insert, -1 for a retraction; only downstream of retracting stages."""

TIME = "timestamp"
"""The event time of a pane, as of a record (S-H1)."""

_CARRIED = ("timing", "index", "on_time_index", "is_first", "timestamp")


def records_of(panes: PaneBatch, keys: Sequence[str], *, signed: bool) -> Records:
    """Convert panes to records. O(columns): only labels are copied.

    A retraction must equal the record it retracts. The columns therefore leave out what differs
    between the two: ``is_last``, ``emitted_at`` and ``watermark``.

    Args:
        panes: The panes.
        keys: The names of the key columns.
        signed: Whether some may be retractions.
    """
    columns = dict(zip(keys, panes.keys, strict=True))
    columns["window_start"] = Column(panes.start, None, MICROS_UTC)
    columns["window_end"] = Column(panes.end, None, MICROS_UTC)
    columns.update(panes.values)
    names = pa.array(TIMINGS)
    columns["timing"] = Column.from_arrow(
        pa.DictionaryArray.from_arrays(pa.array(panes.timing.view(np.int8)), names)
    )
    columns["index"] = Column(panes.index)
    columns["on_time_index"] = Column(panes.on_time_index)
    columns["is_first"] = Column(panes.is_first)
    columns[TIME] = Column(panes.timestamp, None, MICROS_UTC)
    if signed:
        columns[SIGN] = Column(np.where(panes.kind == INSERT, 1, -1).astype(np.int64))
    return Records(columns, len(panes))


def records_schema(
    keys: Mapping[str, pa.DataType], values: Mapping[str, pa.DataType], *, signed: bool
) -> pa.Schema:
    """Return the Arrow schema of the records that :func:`records_of` makes.

    Args:
        keys: The types of the key columns, by name.
        values: The types of the aggregates, by name.
        signed: Whether some may be retractions.
    """
    fields = [pa.field(name, kind) for name, kind in keys.items()]
    fields += [pa.field("window_start", MICROS_UTC), pa.field("window_end", MICROS_UTC)]
    fields += [pa.field(name, kind) for name, kind in values.items()]
    fields += [field for field in PANE_FIELDS if field.name in _CARRIED]
    if signed:
        fields.append(pa.field(SIGN, pa.int64()))
    return pa.schema(fields)


TAG = b"lowwater.encoding"
MSGPACK, JSON = b"msgpack", b"json"

_REFUSED = (pa.ArrowException, OverflowError, UnicodeError, ValueError, TypeError)


def panes_to_table(panes: PaneBatch, keys: Sequence[str]) -> pa.Table:
    """Convert panes to a table without loss; ``panes_to_arrow`` may turn values into text.

    A column of Python values without an Arrow type, as a user's combiner may return, is encoded as
    msgpack, value by value; the field's metadata records the encoding.

    Args:
        panes: The panes.
        keys: The names of the key columns.

    Raises:
        DataError: A value has no msgpack form either.
    """
    tagged: set[str] = set()
    table = pa.Table.from_batches(
        [
            panes_to_arrow(
                replace(
                    panes,
                    keys=tuple(
                        _held(n, column, tagged) for n, column in zip(keys, panes.keys, strict=True)
                    ),
                    values={n: _held(n, column, tagged) for n, column in panes.values.items()},
                ),
                keys,
            )
        ]
    )
    return _with_tags(table, tagged)


def columns_to_table(columns: Mapping[str, Column]) -> pa.Table:
    """Convert columns to a table without loss, as :func:`panes_to_table` does.

    Raises:
        DataError: A value has no msgpack form either.
    """
    tagged: set[str] = set()
    arrays = [column_to_arrow(_held(n, column, tagged)) for n, column in columns.items()]
    return _with_tags(pa.Table.from_arrays(arrays, names=list(columns)), tagged)


def _held(name: str, column: Column, tagged: set[str]) -> Column:
    """Return a column that Arrow can hold; add its name to ``tagged`` if it had to be encoded."""
    try:
        if not _is_mixed(column):
            array = column.to_arrow()
            if column.arrow is not None or column.type is not None or holds(array, column.to_list):
                return Column.from_arrow(array)
    except _REFUSED:
        pass
    values = column.to_list()
    if all(value is None or isinstance(value, str) for value in values):
        return column  # lone surrogates in text, which are escaped when the table is built
    tagged.add(name)
    return Column.from_arrow(to_msgpack(name, values))


def _with_tags(table: pa.Table, tagged: set[str]) -> pa.Table:
    if not tagged:
        return table
    return table.cast(
        pa.schema(
            [tag(field, MSGPACK) if field.name in tagged else field for field in table.schema]
        )
    )


def tag(field: pa.Field, encoding: bytes) -> pa.Field:
    """Record the encoding of a column's values in its field's metadata."""
    return field.with_metadata({**(field.metadata or {}), TAG: encoding})


def encoding_of(field: pa.Field) -> bytes | None:
    """Return the encoding of a column's values; ``None`` for a plain Arrow column."""
    found: bytes | None = (field.metadata or {}).get(TAG)
    return found


def to_msgpack(name: str, values: Sequence[Any]) -> pa.Array:
    """Encode values as a column of msgpack; ``None`` becomes null.

    Lone surrogates, which UTF-8 cannot encode, become escapes; datetimes that are outside the
    years 1 to 9999 in UTC become text.

    Raises:
        DataError: A value has no msgpack form; the message names the column.
    """
    encode = msgspec.msgpack.Encoder(enc_hook=_as_plain).encode
    encoded: list[bytes | None] = []
    for value in values:
        try:
            encoded.append(None if value is None else _encoded(encode, value))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise DataError(
                f"the column {name!r} holds a {type(value).__name__} that cannot be encoded: "
                f"{error}",
                hint="Return or emit numbers, text, times, lists, dicts or dataclasses",
            ) from error
    return pa.array(encoded, type=pa.binary())


def _encoded(encode: Callable[[Any], bytes], value: Any) -> bytes:
    try:
        return encode(value)
    except (UnicodeEncodeError, OverflowError):
        return encode(_escaped(value))


def _escaped(value: Any) -> Any:
    """Return a value whose text and times can be encoded."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_escaped(name): _escaped(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_escaped(item) for item in value]
    return value


def to_values(field: pa.Field, column: pa.ChunkedArray) -> list[Any]:
    """Decode a column to Python values; instants and durations lose their nanoseconds.

    Raises:
        DataError: The encoding is unknown, or a value cannot be decoded with it.
    """
    encoding = encoding_of(field)
    if encoding is None:
        return python_values(in_microseconds(column))
    decoders: dict[bytes, Callable[[Any], Any]] = {
        MSGPACK: msgspec.msgpack.decode,
        JSON: json.loads,
    }
    decode = decoders.get(encoding)
    if decode is None:
        raise DataError(
            f"the column {field.name!r} has the unknown encoding {encoding!r}",
            hint="Use the version of lowwater that wrote it, or a later one",
        )
    try:
        return [None if value is None else decode(value) for value in column.to_pylist()]
    except (ValueError, TypeError, RecursionError, msgspec.MsgspecError) as error:
        raise DataError(
            f"the column {field.name!r} is not valid {encoding.decode()}: {error}",
            hint="The program that wrote it is at fault: please report it",
        ) from error


def _is_mixed(column: Column) -> bool:
    """Return whether Arrow would coerce several types to one, such as a date and an int."""
    if column.arrow is not None or column.type is not None or column.data.dtype != object:
        return False
    values = column.to_list()
    types = set(map(type, values)) - {type(None)}
    if len(types) == 1 and not types.isdisjoint(_WITH_ZONE):
        # To Arrow, one with a zone and one without are the same.
        return len({value.tzinfo is None for value in values if value is not None}) > 1
    if types == {int, float}:  # a float would round some integers
        return any(type(value) is int and abs(value) > EXACT for value in values)
    return len(types) > 1


def _as_plain(value: Any) -> Any:
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return _python_time(value)
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, Instant):
        return int(value)
    if (base := of_base(value)) is not value:
        return base
    raise TypeError(f"{type(value).__name__} has no form in msgpack")


def _python_time(value: np.datetime64 | np.timedelta64) -> Any:
    """Return a date or duration of numpy as Python's: in microseconds, as in columns of them."""
    if np.isnat(value):
        return None
    if isinstance(value, np.datetime64):
        is_date = np.datetime_data(value.dtype)[0] in ("Y", "M", "W", "D")
        item = value.astype("datetime64[D]" if is_date else "datetime64[us]").item()
    else:
        item = value.astype("timedelta64[us]").item()
    return str(value) if isinstance(item, int) else item  # beyond Python's years


def in_microseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return instants and durations in microseconds instead of nanoseconds, which are cut off."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return column.cast(pa.duration("us"), safe=False)
    if pa.types.is_time64(kind) and kind.unit == "ns":
        return column.cast(pa.time64("us"), safe=False)
    return column
