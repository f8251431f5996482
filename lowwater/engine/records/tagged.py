"""Columns of values without an Arrow type: encoded individually, and tagged in the schema."""

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
from lowwater.engine.records.python_values import python_values
from lowwater.engine.records.steps import PaneBatch
from lowwater.errors import DataError
from lowwater.time import Instant

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
            return Column.from_arrow(column.to_arrow())
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

    Lone surrogates, which UTF-8 cannot encode, become escapes.

    Raises:
        DataError: A value has no msgpack form; the message names the column.
    """
    encode = msgspec.msgpack.Encoder(enc_hook=_as_plain).encode
    encoded: list[bytes | None] = []
    for value in values:
        try:
            encoded.append(None if value is None else encode(value))
        except UnicodeEncodeError:
            encoded.append(encode(_escaped(value)))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise DataError(
                f"the column {name!r} holds a {type(value).__name__} that cannot be encoded: "
                f"{error}",
                hint="Have the aggregate return numbers, text, lists, dicts or dataclasses",
            ) from error
    return pa.array(encoded, type=pa.binary())


def _escaped(value: Any) -> Any:
    """Return a value whose text can be encoded."""
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
        return python_values(_in_microseconds(column))
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
    types = {type(value) for value in column.to_list() if value is not None}
    return len(types) > 1 and not types <= {int, float}


def _as_plain(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, Instant):
        return int(value)
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
