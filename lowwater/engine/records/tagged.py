"""Columns of values that Arrow has no type for: encoded one by one, and marked as such."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from lowwater.engine.records.columns import Column
from lowwater.engine.records.pane_table import column_to_arrow, panes_to_arrow
from lowwater.engine.records.steps import PaneBatch
from lowwater.errors import DataError

TAG = b"lowwater.encoding"
MSGPACK, JSON = b"msgpack", b"json"

_REFUSED = (pa.ArrowException, OverflowError, UnicodeError, ValueError, TypeError)


def panes_to_table(panes: PaneBatch, keys: Sequence[str]) -> pa.Table:
    """Return panes as a table without losing a value, which ``panes_to_arrow`` may.

    A column of Python values that Arrow has no type for, such as a user's combiner may give,
    comes out as msgpack, value by value, with the field's metadata saying so.

    Args:
        panes: The panes.
        keys: The names of the key columns.

    Raises:
        DataError: msgpack has no form for a value either.
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
    """Return columns as a table, losing no value: as :func:`panes_to_table` does.

    Raises:
        DataError: msgpack has no form for a value either.
    """
    tagged: set[str] = set()
    arrays = [column_to_arrow(_held(n, column, tagged)) for n, column in columns.items()]
    return _with_tags(pa.Table.from_arrays(arrays, names=list(columns)), tagged)


def _held(name: str, column: Column, tagged: set[str]) -> Column:
    """Return a column that Arrow can hold; note its name if its values are encoded for that."""
    try:
        if not _is_mixed(column):
            return Column.from_arrow(column.to_arrow())
    except _REFUSED:
        pass
    values = column.to_list()
    if all(value is None or isinstance(value, str) for value in values):
        return column  # half a surrogate pair, which is escaped as the table is made
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
    """Return a field that says how its column's values are encoded."""
    return field.with_metadata({**(field.metadata or {}), TAG: encoding})


def encoding_of(field: pa.Field) -> bytes | None:
    """Return how a column's values are encoded; ``None`` for a plain Arrow column."""
    found: bytes | None = (field.metadata or {}).get(TAG)
    return found


def to_msgpack(name: str, values: Sequence[Any]) -> pa.Array:
    """Return values as a column of msgpack; ``None`` is null.

    Raises:
        DataError: There is no form for a value; the message names the column.
    """
    encode = msgspec.msgpack.Encoder(enc_hook=_from_numpy).encode
    encoded: list[bytes | None] = []
    for value in values:
        try:
            encoded.append(None if value is None else encode(value))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise DataError(
                f"the column {name!r} holds a {type(value).__name__} that cannot be written "
                f"down: {error}",
                hint="Let the aggregate give numbers, text, lists, dicts or dataclasses",
            ) from error
    return pa.array(encoded, type=pa.binary())


def to_values(field: pa.Field, column: pa.ChunkedArray) -> list[Any]:
    """Return a column's Python values; instants and durations are cut to whole microseconds.

    Raises:
        DataError: What is marked as msgpack or JSON is neither.
    """
    encoding = encoding_of(field)
    if encoding is None:
        values: list[Any] = _in_microseconds(column).to_pylist()
        return values
    decoders: dict[bytes, Callable[[Any], Any]] = {
        MSGPACK: msgspec.msgpack.decode,
        JSON: json.loads,
    }
    decode = decoders.get(encoding)
    if decode is None:
        raise DataError(
            f"the column {field.name!r} is encoded as {encoding!r}, which is not known",
            hint="Use the version of lowwater that wrote it, or a later one",
        )
    try:
        return [None if value is None else decode(value) for value in column.to_pylist()]
    except (ValueError, TypeError, RecursionError, msgspec.MsgspecError) as error:
        raise DataError(
            f"the column {field.name!r} holds no {encoding.decode()}: {error}",
            hint="What wrote it is at fault: please report it",
        ) from error


def _is_mixed(column: Column) -> bool:
    """Return whether Arrow would make one type of several: of a date and an int, two dates."""
    if column.arrow is not None or column.type is not None or column.data.dtype != object:
        return False
    types = {type(value) for value in column.to_list() if value is not None}
    return len(types) > 1 and not types <= {int, float}


def _from_numpy(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no form in msgpack")


def _in_microseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return column.cast(pa.duration("us"), safe=False)
    if pa.types.is_time64(kind) and kind.unit == "ns":
        return column.cast(pa.time64("us"), safe=False)
    return column
