"""Validates the columns of keys and ids (S-B1)."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pyarrow as pa

from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import has_hash
from lowwater.engine.records.problems import FailedCall, Problems, is_nan
from lowwater.engine.records.storable import (
    UNSTORABLE,
    Fault,
    are_leaves,
    detail_of,
    fault_of,
)
from lowwater.errors import InvalidArgument, describe
from lowwater.state.codec import of_base

SOUND = frozenset({str, int, bytes, bool, dt.date, dt.datetime, dt.timedelta})


def check_key(
    column: Column, problems: Problems, name: str, noun: str = "key", *, nulls: bool = False
) -> Column:
    """Record the rows whose key is null, NaN or not hashable; return the column unchanged.

    Strings stay in Arrow, dictionary-encoded or not. ``noun`` is used in messages. With ``nulls``,
    a null is a key, but NaN is none.

    Raises:
        InvalidArgument: Values of the column's type cannot be keys.
    """
    array = column.arrow
    if array is None and column.data.dtype == object:
        _check_objects(column, name, problems, noun, nulls=nulls)
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
    if not nulls and (null := column.nulls()) is not None:
        problems.add_all(np.flatnonzero(null), f"null_{noun}", f"the {noun} {name!r} is null")
    return column


def _check_floats(column: Column, name: str, problems: Problems, noun: str) -> None:
    data = column.data
    if data.size and math.isnan(data.min()):
        nan = np.isnan(data) if column.valid is None else np.isnan(data) & column.valid
        problems.add_all(np.flatnonzero(nan), f"null_{noun}", f"the {noun} {name!r} is NaN")


def _check_objects(
    column: Column, name: str, problems: Problems, noun: str, *, nulls: bool
) -> None:
    values = column.data.tolist()
    is_sound = set(map(type, values)) <= SOUND and are_leaves(values)
    if is_sound and column.valid is None:
        return
    for row, value in enumerate(column.to_list(exact=True)):
        if value is None:
            if not nulls:
                problems.add(row, f"null_{noun}", f"the {noun} {name!r} is null")
        elif not is_sound and (fault := fault_of_key(value, name, noun)) is not None:
            problems.add(row, *fault)


def fault_of_key(value: Any, name: str, noun: str) -> Fault | None:
    """Return why a value that is not null cannot be a key, or a part of one."""
    try:
        return _judged(value, name, noun)
    except MemoryError:
        raise
    except Exception:  # a class of the user
        return "wrong_type", f"{describe(name, value)} cannot be {_a(noun)}"


def _judged(value: Any, name: str, noun: str) -> Fault | None:
    if is_nan(value):
        return f"null_{noun}", f"the {noun} {name!r} is {value!r}"
    if isinstance(value, FailedCall):
        return "wrong_type", f"the function {name}= failed: {value.failure}"
    found = fault_of(value)
    if found is not None and found[0] != UNSTORABLE:  # too deep to be looked at
        return detail_of(name, value, found)
    own = hash(value)
    if found is not None:
        return detail_of(name, value, found)
    if holds_nan(value):
        return f"null_{noun}", f"the {noun} {name!r} holds NaN"
    if not has_hash(value) or hash(of_base(value)) != own:
        kind = type(value)
        cause = f"a {kind.__module__}.{kind.__qualname__} has no hash that is the same everywhere"
        return UNSTORABLE, f"{describe(name, value)} cannot be {_a(noun)}: {cause}"
    return None


def holds_nan(value: Any) -> bool:
    """Return whether a value is or holds NaN, and so is a null where it is a key."""
    if isinstance(value, (tuple, frozenset)):
        return any(map(holds_nan, value))
    return is_nan(value)


def _a(noun: str) -> str:
    return f"an {noun}" if noun == "id" else f"a {noun}"
