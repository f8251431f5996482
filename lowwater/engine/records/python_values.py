"""Converts Arrow values to Python values, also those that Python's types cannot hold.

Python's dates end with the year 9999. A later time, such as the end of the global window, becomes
the last one that Python can hold, and one before the year 1 the first: a function that takes
datetimes gets a datetime. Where two times must stay apart, as in keys and in dead letters, a time
stays exact and becomes an ``Instant``, or its text if it does not fit 64 bits.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa

from lowwater.time import DAY_US, END_OF_TIME, START_OF_TIME, Instant

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
FIRST_DATETIME = (dt.datetime.min.replace(tzinfo=dt.UTC) - _EPOCH) // _MICROSECOND
"""The first instant that a ``datetime`` in UTC can hold, int microseconds."""
LAST_DATETIME = (dt.datetime.max.replace(tzinfo=dt.UTC) - _EPOCH) // _MICROSECOND
"""The last one."""

_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NOT_FOR_PYTHON = (OverflowError, ValueError)  # ArrowInvalid is a ValueError


def python_values(array: pa.Array | pa.ChunkedArray, *, exact: bool = False) -> list[Any]:
    """Convert an array to Python values, ``None`` for nulls. O(n).

    Text that is not valid UTF-8 gets replacement characters.

    Args:
        array: The array.
        exact: Whether a time that Python cannot hold becomes an ``Instant``, not the nearest one
            that it can hold.
    """
    kind = array.type
    if isinstance(array, pa.Array):
        if pa.types.is_dictionary(kind) and not pa.types.is_nested(kind.value_type):
            return _looked_up(array, exact=exact)
        if pa.types.is_timestamp(kind) and (times := _datetimes(array)) is not None:
            return times
    try:
        values: list[Any] = array.to_pylist()
        return values
    except _NOT_FOR_PYTHON:
        pass
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in python_values(chunk, exact=exact)]
    if pa.types.is_timestamp(array.type) and not exact:
        return python_values(_clipped(array), exact=True)
    return [_value(scalar, exact) for scalar in array]


def _looked_up(array: pa.DictionaryArray, *, exact: bool) -> list[Any]:
    """Return the values of a dictionary's indices; each value is converted once."""
    every = python_values(array.dictionary, exact=exact)
    if array.indices.null_count:
        return [None if at is None else every[at] for at in array.indices.to_pylist()]
    return [every[at] for at in array.indices.to_numpy().tolist()]


def _datetimes(array: pa.Array) -> list[Any] | None:
    """Return timestamps as datetimes by way of numpy: many times as fast as one by one.

    ``None`` if a zone or a nanosecond needs more than that, or a time is beyond the datetimes.
    """
    kind = array.type
    if kind.tz not in (None, "UTC") or kind.unit not in _MICROS:
        return None
    numbers = array.view(pa.int64())
    plain = (numbers.fill_null(0) if array.null_count else numbers).to_numpy()
    first, last = _bounds(kind)
    if not len(plain) or plain.min() < first or plain.max() > last:
        return None
    micros = plain * _MICROS[kind.unit]
    times: list[Any]
    if kind.tz is None:
        times = micros.view("datetime64[us]").tolist()
    else:  # a sum has the zone of the epoch; `replace(tzinfo=)` takes ten times as long
        epoch = _EPOCH.replace(tzinfo=pa.lib.string_to_tzinfo(kind.tz))
        times = list(map(epoch.__add__, micros.view("timedelta64[us]").tolist()))
    if array.null_count:
        nulls = array.is_null().to_numpy(zero_copy_only=False).tolist()
        times = [None if null else at for at, null in zip(times, nulls, strict=True)]
    return times


def python_rows(table: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Convert the rows of a batch or a table to dicts of Python values."""
    columns = [python_values(column) for column in table.columns]
    names = table.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def is_zone(name: str) -> bool:
    """Return whether Python knows a time zone of an Arrow type."""
    try:
        pa.lib.string_to_tzinfo(name)
    except _NOT_FOR_PYTHON:
        return False
    return True


def _clipped(array: pa.Array) -> pa.Array:
    """Replace the timestamps that Python cannot hold; the others lose their nanoseconds."""
    array = array.cast(_zoned(array.type))
    kind = array.type
    if kind.unit == "ns":
        return array.cast(pa.timestamp("us", kind.tz), safe=False)
    first, last = _bounds(kind)
    plain = array.view(pa.int64())
    numbers = np.clip(plain.fill_null(0).to_numpy(zero_copy_only=False), first, last)
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(numbers, mask=mask).view(kind)


def _bounds(kind: pa.DataType) -> tuple[int, int]:
    """Return the first and the last timestamp that Python can hold, in the unit of the type."""
    # A day less elsewhere than in UTC, because the local time must be within the years as well.
    room = 0 if kind.tz in (None, "UTC") else DAY_US
    factor = _MICROS[kind.unit]
    return -(-(FIRST_DATETIME + room) // factor), (LAST_DATETIME - room) // factor


def _value(scalar: pa.Scalar, exact: bool) -> Any:
    try:
        return scalar.as_py()
    except _NOT_FOR_PYTHON:
        pass
    kind = scalar.type
    if pa.types.is_dictionary(kind):
        return _value(scalar.value, exact)
    if pa.types.is_struct(kind):
        return {kind.field(at).name: _value(scalar[at], exact) for at in range(kind.num_fields)}
    if pa.types.is_map(kind):
        return [(_value(item[0], exact), _value(item[1], exact)) for item in scalar.values]
    if pa.types.is_nested(kind) and scalar.values is not None:
        return [_value(item, exact) for item in scalar.values]
    if pa.types.is_timestamp(kind):
        return _timestamp(scalar, exact)
    if pa.types.is_time(kind):
        nearest = dt.time.max if scalar.value > 0 else dt.time.min
        return f"{scalar.value}{kind.unit}" if exact else nearest
    if pa.types.is_date(kind):
        days = scalar.value if pa.types.is_date32(kind) else scalar.value // (DAY_US // 1000)
        return _exact(days * DAY_US) if exact else (dt.date.max if days > 0 else dt.date.min)
    if pa.types.is_duration(kind):
        return dt.timedelta.max if scalar.value > 0 else dt.timedelta.min
    if hasattr(scalar, "as_buffer"):
        return scalar.as_buffer().to_pybytes().decode(errors="replace")
    return f"<{kind}>"


def _zoned(kind: pa.DataType) -> pa.DataType:
    """Return the type with UTC in place of an unknown time zone."""
    return kind if kind.tz is None or is_zone(kind.tz) else pa.timestamp(kind.unit, "UTC")


def _timestamp(scalar: pa.Scalar, exact: bool) -> Any:
    kind = _zoned(scalar.type)
    if kind != scalar.type:
        return _value(scalar.cast(kind), exact)
    if kind.unit == "ns":
        return scalar.cast(pa.timestamp("us", kind.tz), safe=False).as_py()
    if exact:
        return _exact(scalar.value * _MICROS[kind.unit])
    first, last = _bounds(kind)
    return pa.scalar(min(max(scalar.value, first), last), pa.int64()).cast(kind).as_py()


def _exact(micros: int) -> Instant | str:
    return Instant(micros) if START_OF_TIME <= micros <= END_OF_TIME else f"{micros}us"
