"""PostgreSQL's text of values as Arrow columns: a column at a time."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.errors import DataError

SESSION = (
    "SET client_encoding = 'UTF8'",
    "SET DateStyle = 'ISO'",
    "SET IntervalStyle = 'iso_8601'",
    "SET TimeZone = 'UTC'",
    "SET bytea_output = 'hex'",
    "SET extra_float_digits = 3",
)
"""Settings under which the text of a value does not depend on the server's configuration."""

_TYPES = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "oid": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "date": pa.date32(),
    "bytea": pa.binary(),
}
_TIMED = {
    "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
    "time without time zone": pa.time64("us"),
}
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
_PRECISION = re.compile(r"\(\d+\)")
_MOST_DIGITS, _MOST_DIGITS_256 = 38, 76
_MOST_NIBBLE = 15
_HEX = np.full(256, 255, np.uint8)
_HEX[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16, dtype=np.uint8)


def arrow_type(sql: str) -> pa.DataType:
    """Return the Arrow type for a column's type, as ``format_type`` writes it.

    Whatever has no exact counterpart stays text.

    >>> arrow_type("numeric(10,2)"), arrow_type("numeric"), arrow_type("integer[]")
    (Decimal128Type(decimal128(10, 2)), DataType(string), DataType(string))
    """
    if sql in _TYPES:
        return _TYPES[sql]
    if (timed := _TIMED.get(_PRECISION.sub("", sql))) is not None:
        return timed
    if (found := _NUMERIC.fullmatch(sql)) is not None:
        digits, scale = int(found[1]), int(found[2])
        if 0 <= scale <= digits <= _MOST_DIGITS:
            return pa.decimal128(digits, scale)
        if 0 <= scale <= digits <= _MOST_DIGITS_256:
            return pa.decimal256(digits, scale)
    return pa.string()


def from_text(texts: pa.Array, wanted: pa.DataType, column: str, where: str) -> pa.Array:
    """Return values of a type for their text. O(bytes).

    Args:
        texts: The text, as strings or binary.
        wanted: The type.
        column: The column's name, for errors.
        where: The table's name, for errors.

    Raises:
        DataError: A value does not fit the type: ``infinity`` as a time, ``NaN`` as a decimal.
    """
    try:
        if pa.types.is_binary(wanted):
            return _bytes(texts)
        texts = texts.cast(pa.string())
        if pa.types.is_boolean(wanted):
            return pc.equal(texts, "t")
        if pa.types.is_time64(wanted):
            dated = pc.binary_join_element_wise("1970-01-01", texts, " ")
            return dated.cast(pa.timestamp("us")).cast(wanted)
        return texts.cast(wanted)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"the column {column!r} holds a value that the type {wanted} does not: "
            f"{str(error).rstrip('.')}",
            where=where,
            hint=f'Read the column as text, types={{{column!r}: "string"}}, or leave it out with '
            "columns=",
        ) from None


def _bytes(texts: pa.Array) -> pa.Array:
    r"""Return what text such as ``\x00ff`` stands for."""
    is_valid = texts.is_valid().to_numpy(zero_copy_only=False)
    texts = texts.cast(pa.large_binary()).fill_null(b"")
    _, places, content = texts.buffers()
    ends = np.frombuffer(places, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(content or b"", np.uint8)
    is_digit = np.ones(len(data), np.bool_)
    is_digit[: ends[0]] = is_digit[ends[-1] :] = False
    starts = ends[:-1][np.diff(ends) > 0]
    is_digit[starts] = is_digit[starts + 1] = False  # \x
    nibbles = _HEX[data[is_digit]]
    if len(nibbles) % 2 or (nibbles > _MOST_NIBBLE).any():
        raise pa.ArrowInvalid("it is not hexadecimal")
    made = (nibbles[0::2] << 4 | nibbles[1::2]).tobytes()
    sizes = np.maximum(np.diff(ends) // 2 - 1, 0)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    validity = None
    if not is_valid.all():
        mask = np.packbits(is_valid, bitorder="little")
        validity = pa.py_buffer(mask.tobytes())
    return pa.Array.from_buffers(
        pa.binary(),
        len(is_valid),
        [validity, pa.py_buffer(offsets.tobytes()), pa.py_buffer(made)],
    )
