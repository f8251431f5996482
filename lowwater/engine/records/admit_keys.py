"""Whether the values of a key column can be keys (S-B1)."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pyarrow as pa

from lowwater.engine.records.columns import Column
from lowwater.engine.records.problems import Problems, is_nan
from lowwater.errors import InvalidArgument, describe

_SOUND = frozenset({str, int, bytes, bool, dt.date, dt.datetime, dt.timedelta})


def check_key(column: Column, name: str, problems: Problems, noun: str = "key") -> Column:
    """Note the rows whose key is null, NaN or cannot be hashed; return the column as it is.

    Strings stay in Arrow's hands, dictionary-encoded or not. ``noun`` is what messages call it.

    Raises:
        InvalidArgument: The column's type can never be a key.
    """
    array = column.arrow
    if array is None and column.data.dtype == object:
        _check_objects(column.data.tolist(), name, problems, noun)
        return column
    kind = column.type
    if kind is not None:
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_nested(kind):
            raise InvalidArgument(
                f"the {noun} column {name!r} is {kind}, which cannot be {_a(noun)}",
                hint="Use a column of plain values, such as integers or strings",
            )
        if pa.types.is_floating(kind):
            _check_floats(column, name, problems, noun)
    elif column.data.dtype == np.float64:
        _check_floats(column, name, problems, noun)
    _check_nulls(column, name, problems, noun)
    return column


def _check_nulls(column: Column, name: str, problems: Problems, noun: str) -> None:
    array = column.arrow
    reason, detail = f"null_{noun}", f"the {noun} {name!r} is null"
    if array is None:
        if column.valid is not None:
            problems.add_all(np.flatnonzero(~column.valid), reason, detail)
        return
    nested_null = pa.types.is_dictionary(array.type) and array.dictionary.null_count
    if array.null_count or nested_null:
        plain = array.dictionary_decode() if nested_null else array
        rows = np.flatnonzero(plain.is_null().to_numpy(zero_copy_only=False))
        problems.add_all(rows, reason, detail)


def _check_floats(column: Column, name: str, problems: Problems, noun: str) -> None:
    data = column.data
    if data.size and math.isnan(data.min()):
        rows = np.flatnonzero(np.isnan(data))
        problems.add_all(rows, f"null_{noun}", f"the {noun} {name!r} is NaN")


def _check_objects(values: list[Any], name: str, problems: Problems, noun: str) -> None:
    if set(map(type, values)) <= _SOUND:
        return
    for row, value in enumerate(values):
        if type(value) in _SOUND:
            continue
        if value is None:
            problems.add(row, f"null_{noun}", f"the {noun} {name!r} is null")
        elif is_nan(value):
            problems.add(row, f"null_{noun}", f"the {noun} {name!r} is {value!r}")
        else:
            try:
                hash(value)
            except TypeError:
                problems.add(row, "wrong_type", f"{describe(name, value)} cannot be {_a(noun)}")


def _a(noun: str) -> str:
    return f"an {noun}" if noun == "id" else f"a {noun}"
