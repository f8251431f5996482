"""Ids of records as bytes: equal if and only if the values are, as Python sees it.

Each is a tag and a value: ``i`` an int of 64 bits, ``r`` another number, ``s`` text, ``b`` bytes;
``z``, ``n``, ``d``, ``h`` and ``u`` an instant with and without a time zone, a date, a time of day
and a duration; ``x`` anything else that can be stored. Several columns are joined, each part after
its length.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from lowwater.engine.records.columns import Column
from lowwater.state.codec import encode
from lowwater.state.key_layout import encode_int64
from lowwater.time import Int64Array

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_MS = 86_400_000


def id_bytes(columns: tuple[Column, ...]) -> list[bytes]:
    """Return each row's id; no value is null. O(n), for ints and text without looking at each."""
    parts = [_part(column) for column in columns]
    if len(parts) == 1:
        return parts[0]
    return [
        b"".join(len(part).to_bytes(4) + part for part in row) for row in zip(*parts, strict=True)
    ]


def _part(column: Column) -> list[bytes]:
    arrow, kind = column.arrow, column.type
    if arrow is not None and pa.types.is_dictionary(arrow.type):
        arrow = arrow.dictionary_decode()
        column = Column.from_arrow(arrow)
        kind = arrow.type
    if arrow is not None and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        wide = pa.large_binary() if pa.types.is_large_string(kind) else pa.binary()
        return [b"s" + text for text in arrow.cast(wide).to_pylist()]
    data = column.data
    if data.dtype == np.bool_:
        data = data.astype(np.int64)
    if data.dtype == np.int64:
        if kind is not None and pa.types.is_temporal(kind):
            return _temporal(data, kind)
        return _rows(b"i", data)
    return [_one(value) for value in column.to_list()]


def _temporal(data: Int64Array, kind: pa.DataType) -> list[bytes]:
    if pa.types.is_date(kind):
        return _rows(b"d", data if pa.types.is_date32(kind) else data // _DAY_MS)
    per_second = _PER_SECOND[kind.unit]
    seconds, rest = np.divmod(data, per_second)
    if pa.types.is_timestamp(kind):
        tag = b"n" if kind.tz is None else b"z"
    else:
        tag = b"h" if pa.types.is_time(kind) else b"u"
    return _rows(tag, seconds, rest * (10**9 // per_second))


def _rows(tag: bytes, *columns: Int64Array) -> list[bytes]:
    width = 1 + 8 * len(columns)
    packed = np.empty((len(columns[0]), width), dtype=np.uint8)
    packed[:, 0] = tag[0]
    for at, column in enumerate(columns):
        packed[:, 1 + 8 * at : 9 + 8 * at] = encode_int64(column)
    rows: list[Any] = packed.view(np.dtype((np.void, width))).reshape(-1).tolist()
    return rows


def _one(value: Any) -> bytes:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return b"s" + value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return b"b" + value
    if isinstance(value, (int, float, Decimal, Fraction)):
        return _number(value)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.UTC)
    return b"x" + encode(value)


def _number(value: float | Decimal | Fraction) -> bytes:
    try:
        over, under = value.as_integer_ratio()
    except OverflowError:  # it is infinite
        return b"r+" if value > 0 else b"r-"
    if under == 1 and -(2**63) <= over < 2**63:
        return b"i" + (over + 2**63).to_bytes(8)
    return b"r" + encode([over, under])
