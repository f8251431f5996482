"""Validates the values of a column for the aggregates that read it (S-B1)."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from functools import cache
from typing import Any, Literal, TypeAlias, final

import numpy as np
import pyarrow as pa

from lowwater.engine.records.columns import Column, Mask, type_from_bytes, type_to_bytes
from lowwater.engine.records.problems import Problems, is_nan
from lowwater.engine.records.python_values import python_values
from lowwater.errors import InvalidArgument, describe
from lowwater.state.arrays import object_array
from lowwater.time import END_OF_TIME, START_OF_TIME

Needs: TypeAlias = Literal["nothing", "presence", "anything", "numbers", "ordered", "booleans"]
"""The values that an aggregate accepts; others are dead letters with reason ``wrong_type``.

``presence``: only whether a value is null matters.
"""


_TAKES: dict[Needs, frozenset[str]] = {
    "numbers": frozenset({"number", "bool"}),
    "booleans": frozenset({"bool"}),
}
_WANTED = {"numbers": "numbers", "booleans": "booleans", "ordered": "values with an order"}
_ORDERED = (str, bytes, dt.datetime, dt.date, dt.time, dt.timedelta, Decimal)


@final
class ValueAdmission:
    """Validates one column batch by batch and gives it the same type in every batch.

    The state of the stream is the kind of the first values (other kinds are ``wrong_type`` from
    then on), the Arrow type, and whether any number was a float.

    Args:
        name: The column's name.
        needs: What the aggregates that read it accept.
    """

    def __init__(self, name: str, needs: Needs) -> None:
        self._name = name
        self._needs = needs
        self._anything = needs in ("anything", "nothing", "presence")
        self._kind: str | None = None
        self._type: pa.DataType | None = None
        self._floating = False

    def remember(self) -> tuple[str | None, bytes | None, bool]:
        """Return the state to store, as plain values."""
        kind = None if self._type is None else type_to_bytes(self._type)
        return self._kind, kind, self._floating

    def resume(self, known: tuple[str | None, bytes | None, bool]) -> None:
        """Restore the state that an earlier run stored."""
        self._kind, kind, self._floating = known
        self._type = None if kind is None else type_from_bytes(kind)

    def admit(self, column: Column, problems: Problems) -> Column:
        """Convert the column to the form that aggregates take; record invalid rows.

        Raises:
            InvalidArgument: The type of the first typed column can never be valid.
        """
        if column.type is None and column.data.dtype == object:
            return column if self._anything else self._admit_objects(column, problems)
        return self._admit_typed(column, problems)

    def _admit_typed(self, column: Column, problems: Problems) -> Column:
        kind = "number" if column.type is None else _kind_of(column.type)
        if column.type is None and column.data.dtype == np.bool_:
            kind = "bool"
        if kind == "null":
            return self._nulls(len(column))
        if self._kind is None:
            self._check_kind(kind, column)
        if kind != self._kind:
            self._reject_all(column, problems)
            return self._nulls(len(column))
        if kind == "number":
            return self._numbers(column, problems)
        if column.type is not None and self._type is not None and column.type != self._type:
            return self._cast(column, problems)
        self._type = column.type
        return column

    def _check_kind(self, kind: str, column: Column) -> None:
        takes = _TAKES.get(self._needs)
        if not self._anything and (kind == "nested" or (takes is not None and kind not in takes)):
            raise InvalidArgument(
                f"the column {self._name!r} is {column.type or column.data.dtype}, but its "
                f"aggregate needs {_WANTED[self._needs]}",
                hint="Aggregate another column, or convert this one first",
            )
        self._kind = kind

    def _numbers(self, column: Column, problems: Problems) -> Column:
        data = column.data
        if data.dtype == object:  # uint64 beyond int64
            return column if self._anything else self._admit_objects(column, problems)
        if data.dtype == np.float64:
            self._floating = True
            if not self._anything and data.size and math.isnan(data.min()):
                nan = np.isnan(data)
                if column.valid is not None:
                    nan &= column.valid
                problems.add_all(np.flatnonzero(nan), "nan", f"{self._name!r} is NaN")
            return column
        if self._floating:
            return Column(data.astype(np.float64), column.valid, pa.float64())
        return column

    def _cast(self, column: Column, problems: Problems) -> Column:
        given = column.to_arrow()
        try:
            made = given.cast(self._type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            self._reject_all(column, problems)
            return self._nulls(len(column))
        if pa.types.is_nested(made.type):
            # Arrow's cast leaves out the fields of structs that are not in the new type.
            values, kept = python_values(given), python_values(made)
            for row, (value, rest) in enumerate(zip(values, kept, strict=True)):
                if _without_nulls(value) != _without_nulls(rest):
                    detail = f"{describe(self._name, value)} does not fit {self._type}"
                    problems.add(row, "wrong_type", detail)
        return Column.from_arrow(made)

    def _reject_all(self, column: Column, problems: Problems) -> None:
        rows = np.arange(len(column)) if column.valid is None else np.flatnonzero(column.valid)
        detail = (
            f"{self._name!r} is {column.type or column.data.dtype}, but was "
            f"{self._type or self._kind} before"
        )
        problems.add_all(rows, "wrong_type", detail)

    def _nulls(self, length: int) -> Column:
        """Return a column of nulls of the type that the column has had so far."""
        valid = np.zeros(length, dtype=np.bool_)
        if self._kind == "number":
            return Column(np.zeros(length, np.float64 if self._floating else np.int64), valid)
        if self._kind == "bool":
            return Column(np.zeros(length, np.bool_), valid)
        if self._type is not None:
            return Column.from_arrow(pa.nulls(length, self._type))
        if self._kind is not None:
            return Column(np.full(length, None, dtype=object), valid)
        return Column(np.zeros(length, np.bool_ if self._needs == "booleans" else np.int64), valid)

    def _admit_objects(self, column: Column, problems: Problems) -> Column:
        values = column.to_list()
        kinds = set(map(type, values)) - {type(None)}
        if kinds <= {int, float} and self._kind in (None, "number"):
            made = self._plain_numbers(values, kinds)
            if made is not None:
                return self._numbers(made, problems)
        return self._one_by_one(values, problems)

    def _plain_numbers(self, values: list[Any], kinds: set[type]) -> Column | None:
        """Convert ints and floats to a column; ``None`` if an int does not fit 64 bits."""
        if not kinds or self._needs == "booleans":
            return None
        nulls = None in values
        valid = np.array([v is not None for v in values]) if nulls else None
        filled = [0 if v is None else v for v in values] if nulls else values
        try:
            ints = np.array(filled, dtype=np.int64) if kinds == {int} else None
            if ints is None and any(type(v) is int and not _fits(v) for v in filled):
                return None
        except OverflowError:
            return None
        self._kind = "number"
        return Column(np.array(filled, dtype=np.float64) if ints is None else ints, valid)

    def _one_by_one(self, values: list[Any], problems: Problems) -> Column:
        sound = np.zeros(len(values), dtype=np.bool_)
        for row, value in enumerate(values):
            if value is None:
                continue
            kind = _kind_of_value(value)
            takes = _TAKES.get(self._needs)
            if kind is None or (takes is not None and kind not in takes):
                wanted = _WANTED[self._needs]
                detail = f"{describe(self._name, value)} is not one of {wanted}"
                problems.add(row, "wrong_type", detail)
            elif self._kind is not None and kind != self._kind:
                detail = f"{describe(self._name, value)} comes after values of kind {self._kind}"
                problems.add(row, "wrong_type", detail)
            elif kind == "number" and not isinstance(value, (float, np.floating)):
                if _fits(value):
                    self._kind = kind
                    sound[row] = True
                else:
                    detail = f"{describe(self._name, value)} does not fit 64 bits"
                    problems.add(row, "wrong_type", detail)
            elif is_nan(value):
                self._kind = kind
                self._floating = True
                problems.add(row, "nan", f"{self._name!r} is NaN")
            else:
                self._kind = kind
                self._floating |= kind == "number"
                sound[row] = True
        return self._packed(values, sound)

    def _packed(self, values: list[Any], sound: Mask) -> Column:
        if self._kind in ("number", "bool"):
            filled = [v if ok else 0 for v, ok in zip(values, sound.tolist(), strict=True)]
            dtype: type = np.float64 if self._floating else np.int64
            if self._kind == "bool":
                dtype = np.bool_
            return Column(np.array(filled, dtype=dtype), None if sound.all() else sound)
        if not sound.any():
            return self._nulls(len(values))
        return Column(object_array(values), None if sound.all() else sound)


@cache
def _kind_of(arrow_type: pa.DataType) -> str:
    """Return the kind of an Arrow type's values; types of one kind can be cast to each other."""
    if pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    for kind, test in _TYPE_KINDS:
        if test(arrow_type):
            return kind
    return "nested" if pa.types.is_nested(arrow_type) else str(arrow_type)


_TYPE_KINDS = (
    ("number", pa.types.is_integer),
    ("number", pa.types.is_floating),
    ("bool", pa.types.is_boolean),
    ("str", pa.types.is_string),
    ("str", pa.types.is_large_string),
    ("str", pa.types.is_string_view),
    ("bytes", pa.types.is_binary),
    ("bytes", pa.types.is_large_binary),
    ("null", pa.types.is_null),
    ("timestamp", pa.types.is_timestamp),
    ("duration", pa.types.is_duration),
    ("decimal", pa.types.is_decimal),
)


def _kind_of_value(value: Any) -> str | None:
    """Return the kind of a Python value; ``None`` if such values have no order."""
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(
        value, np.timedelta64
    ):
        return "number"
    if isinstance(value, dt.datetime):
        return "datetime" if value.tzinfo is None else "datetime with a time zone"
    if isinstance(value, _ORDERED):
        return next(base.__name__ for base in _ORDERED if isinstance(value, base))
    try:
        bool(value < value)  # raises if such values cannot be compared
    except (TypeError, ValueError):
        return None
    return type(value).__name__


def _without_nulls(value: Any) -> Any:
    """Return a value to compare: without the null fields of structs, and NaN equal to itself."""
    if is_nan(value):
        return "NaN"
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _fits(value: Any) -> bool:
    return bool(START_OF_TIME <= value <= END_OF_TIME)
