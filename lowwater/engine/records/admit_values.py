"""Validates the values of a column for the aggregates that read it (S-B1).

The file is long because a column may change its kind from batch to batch, and each pair of kinds
needs its own answer.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from functools import cache
from typing import Any, Literal, TypeAlias, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.engine.records.batch import HIDDEN, shown_name
from lowwater.engine.records.columns import (
    EXACT,
    Column,
    Mask,
    are_wide,
    type_from_bytes,
    type_to_bytes,
)
from lowwater.engine.records.problems import Problems, is_nan
from lowwater.engine.records.python_values import python_values
from lowwater.engine.records.storable import (
    Fault,
    are_leaves,
    detail_of,
    fault_of,
    note_unstorable,
)
from lowwater.errors import InvalidArgument, describe
from lowwater.state.arrays import object_array
from lowwater.state.codec import of_base
from lowwater.time import END_OF_TIME, START_OF_TIME

Needs: TypeAlias = Literal[
    "nothing", "presence", "anything", "numbers", "exact numbers", "ordered", "booleans"
]  # fmt: skip
"""The values that an aggregate accepts; others are dead letters with reason ``wrong_type``.

``presence``: only whether a value is null matters. ``exact numbers``: some aggregates add the
numbers up, and others take them as they are, so that integers beside floats stay integers.
"""


AGGREGATE = "its aggregate"
"""What reads a column, in words."""

_TAKES: dict[Needs, frozenset[str]] = {
    "numbers": frozenset({"number", "bool", "Decimal"}),
    "booleans": frozenset({"bool"}),
}
_WANTED = {"numbers": "numbers", "booleans": "booleans", "ordered": "values with an order"}
_ORDERED = (str, bytes, dt.datetime, dt.date, dt.time, dt.timedelta, Decimal)
_PLAIN = frozenset({type(None), bool, int, float, *_ORDERED})
_DERIVED = (int, float, tuple, list, *_ORDERED)
_PARTIAL = (set, frozenset)  # `<` says which is a part of which: of two sets perhaps neither


@final
class ValueAdmission:
    """Validates one column batch by batch and gives it the same type in every batch.

    The state of the stream is the kind of the first values (other kinds are ``wrong_type`` from
    then on), the Arrow type, and whether any number was a float.

    Args:
        name: The column's name.
        needs: What the aggregates that read it accept.
        reader: What reads it, in words: an argument of a method, such as ``order=``, reads it as
            aggregates do.
    """

    def __init__(self, name: str, needs: Needs, reader: str = AGGREGATE) -> None:
        self._name = shown_name(name)
        # Sums take floats where some values are; other readers of the column take them as they are.
        self._exact = needs == "exact numbers"
        self._needs = "numbers" if needs == "exact numbers" else needs
        self._reader = reader
        self._anything = needs in ("anything", "nothing", "presence")
        # Columns of lowwater's own are made of the record's fields, which are looked at themselves.
        self._is_kept = needs == "anything" and not name.startswith(HIDDEN)
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
        if self._kind == "decimal":  # once a kind of its own, apart from Python's
            self._kind = "Decimal"
        if self._kind == "timestamp" and self._type is not None:  # once one kind with those in UTC
            self._kind = _kind_of(self._type)

    def admit(self, column: Column, problems: Problems) -> Column:
        """Convert the column to the form that aggregates take; record invalid rows.

        Raises:
            InvalidArgument: The type of the first typed column can never be valid.
        """
        if column.type is None and column.data.dtype == object:
            if not self._anything:
                return self._admit_objects(column, problems)
            if self._is_kept:
                note_unstorable(column, self._name, problems)
            return column
        return self._admit_typed(column, problems)

    def noted(self, column: Column, problems: Problems) -> Column:
        """Record the invalid rows of a column that stays as it is, as one that orders records.

        Raises:
            InvalidArgument: The type of the first typed column can never be valid.
        """
        if column.type is None and column.data.dtype == object:
            values = column.to_list()
            kinds = set(map(type, values)) - {type(None)}
            if not kinds <= {int} or not are_leaves(values) or self._kind not in (None, "number"):
                self._one_by_one(values, problems, in_64_bits=False)
            elif kinds:
                self._kind = "number"
            return column
        kind = self._typed_kind(column)
        if kind == "null":
            return column
        if self._is_all_nan(column):
            self._note_nan(column, problems)
            return column
        if self._kind is None:
            self._check_kind(kind, column)
        if kind != self._kind:
            self._reject_all(column, problems)
        elif column.data.dtype == np.float64:
            self._note_nan(column, problems)
        return column

    def _admit_typed(self, column: Column, problems: Problems) -> Column:
        kind = self._typed_kind(column)
        if kind == "null":
            return self._nulls(len(column))
        if self._is_all_nan(column):
            self._note_nan(column, problems)
            return self._nulls(len(column))
        if self._kind is None:
            self._check_kind(kind, column)
        if kind != self._kind:
            self._reject_all(column, problems)
            return self._nulls(len(column))
        if kind == "number":
            return self._numbers(column, problems)
        if kind == "Decimal" and self._needs == "numbers":
            return self._decimals(column.to_arrow(), problems)
        if column.type is not None and self._type is not None and column.type != self._type:
            return self._fitted(column, self._type, problems)
        self._type = column.type
        return column

    def _is_all_nan(self, column: Column) -> bool:
        """Whether no record of a batch is valid, so that nothing may be learned from it (S-B1)."""
        if self._floating or self._needs not in ("numbers", "ordered"):
            return False
        if self._kind not in (None, "number") or self._typed_kind(column) != "number":
            return False
        data = column.data
        if data.dtype != np.float64 or column.valid is not None or not data.size:
            return False
        # The minimum is NaN if any value is: a sound column is not looked at any further.
        return math.isnan(data.min()) and bool(np.isnan(data).all())

    @staticmethod
    def _typed_kind(column: Column) -> str:
        if column.type is not None:
            return _kind_of(column.type)
        return "bool" if column.data.dtype == np.bool_ else "number"

    def _hint(self, column: Column) -> str:
        if column.type is not None and pa.types.is_string(column.type) and self._needs == "numbers":
            return (
                "Use another column; or say the type in the reader of text, as in "
                f'types={{"{self._name}": "float64"}}, which makes dead letters of what is none'
            )
        return "Use another column, or convert this one first"

    def _check_kind(self, kind: str, column: Column) -> None:
        takes = _TAKES.get(self._needs)
        if not self._anything and (kind == "nested" or (takes is not None and kind not in takes)):
            raise InvalidArgument(
                f"the column {self._name!r} is {column.type or column.data.dtype}, but "
                f"{self._reader} needs {_WANTED[self._needs]}",
                hint=self._hint(column),
            )
        if self._needs == "ordered" and _has_own_order(column.type):
            raise InvalidArgument(
                f"the column {self._name!r} has ordered categories, and {self._reader} would "
                "compare their texts",
                hint="Order by a column of numbers: max_by(column, by=...), with the rank of each "
                "category as a column; or make plain text of it, if that is the order",
            )
        self._kind = kind

    def _numbers(self, column: Column, problems: Problems) -> Column:
        data = column.data
        if data.dtype == object:  # uint64 beyond int64
            return column if self._anything else self._admit_objects(column, problems)
        if data.dtype == np.float64:
            self._floating = True
            if not self._anything:
                self._note_nan(column, problems)
            return column
        sums_only = self._needs == "numbers" and not self._exact
        if self._floating and (sums_only or not are_wide(data)):
            return Column(data.astype(np.float64), column.valid, pa.float64())
        return column

    def _decimals(self, given: pa.Array, problems: Problems) -> Column:
        """Return decimals of 38 digits, of whatever scale; those that have more are invalid."""
        kind = pa.decimal128(38, given.type.scale)
        made = _cast(given, kind)
        if made is None:
            bad = np.zeros(len(given), dtype=np.bool_)
            for row, value in enumerate(given.to_pylist()):
                if value is not None and _cast(given.slice(row, 1), kind) is None:
                    detail = f"{describe(self._name, value)} has more than 38 digits"
                    problems.add(row, "wrong_type", detail)
                    bad[row] = True
            made = pc.if_else(pa.array(bad), None, given).cast(kind)
        return Column(arrow=made)

    def _note_nan(self, column: Column, problems: Problems) -> None:
        data = column.data
        if data.size and math.isnan(data.min()):
            nan = np.isnan(data)
            if column.valid is not None:
                nan &= column.valid
            problems.add_all(np.flatnonzero(nan), "nan", f"{self._name!r} is NaN")

    def _fitted(self, column: Column, known: pa.DataType, problems: Problems) -> Column:
        """Return a column in the type of those before, where that holds all of its values.

        Nested values, and any that only have to be kept, stay what they are in a type of their own.
        """
        given = column.to_arrow()
        made = _cast(given, known)
        if made is not None:
            return Column.from_arrow(made)
        if self._anything:
            return column
        # Values of another unit or scale, each by itself (S-B1).
        values, rows = python_values(given), []
        for row, value in enumerate(values):
            if value is not None and _cast(given.slice(row, 1), known) is None:
                detail = f"{describe(self._name, value)} does not fit {known}"
                problems.add(row, "wrong_type", detail)
                rows.append(row)
        bad = np.zeros(len(given), dtype=np.bool_)
        bad[rows] = True
        return Column.from_arrow(pc.if_else(pa.array(bad), None, given).cast(known))

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
        sound, values = self._one_by_one(values, problems)
        return self._packed(values, sound)

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
        if ints is None:
            if self._keeps_integers(filled):
                return None
            floats = np.array(filled, dtype=np.float64)
            # S-B1: a NaN is invalid, and must not make floats of the integers beside it.
            if math.isnan(floats.min()) and not any(type(v) is float and v == v for v in values):
                return None
            self._kind = "number"
            return Column(floats, valid)
        self._kind = "number"
        return Column(ints, valid)

    def _keeps_integers(self, numbers: list[Any]) -> bool:
        """Return whether integers among numbers are kept that floats do not hold."""
        return (self._needs != "numbers" or self._exact) and any(
            isinstance(v, int) and not -EXACT <= v <= EXACT for v in numbers
        )

    def _one_by_one(
        self, values: list[Any], problems: Problems, *, in_64_bits: bool = True
    ) -> tuple[Mask, list[Any]]:
        """Record invalid values; return which are valid, and all as plain as they can be."""
        if not set(map(type, values)) <= _PLAIN:
            values = [value if type(value) in _PLAIN else of_base(value) for value in values]
        all_leaves = are_leaves(values)
        sound = np.zeros(len(values), dtype=np.bool_)
        for row, value in enumerate(values):
            if value is None:
                continue
            fault = self._fault(value, is_leaf=all_leaves, in_64_bits=in_64_bits)
            if fault is None:
                sound[row] = True
            else:
                problems.add(row, *fault)
        return sound, values

    def _fault(self, value: Any, *, is_leaf: bool, in_64_bits: bool) -> Fault | None:
        """Return why a value is invalid; learn the kind of one that is valid."""
        try:
            return self._judged(value, is_leaf=is_leaf, in_64_bits=in_64_bits)
        except MemoryError:
            raise
        except Exception:  # a class of the user
            found = fault_of(value)
            if found is not None:
                return detail_of(self._name, value, found)
            return "wrong_type", f"{describe(self._name, value)} cannot be compared"

    def _judged(self, value: Any, *, is_leaf: bool, in_64_bits: bool) -> Fault | None:
        name = self._name
        is_more = isinstance(value, _DERIVED) and type(value) not in _PLAIN
        if is_more and not is_leaf and (found := fault_of(value)) is not None:
            return detail_of(name, value, found)  # before it, or its parts, are compared
        kind = _kind_of_value(value)
        takes = _TAKES.get(self._needs)
        if kind is None or (takes is not None and kind not in takes):
            wanted = _WANTED[self._needs]
            return "wrong_type", f"{describe(name, value)} is not one of {wanted}"
        if self._kind is not None and kind != self._kind:
            return "wrong_type", f"{describe(name, value)} comes after values of kind {self._kind}"
        is_number = kind == "number"
        if is_number and not isinstance(value, (float, np.floating)):
            if in_64_bits and not _fits(value):
                return "wrong_type", f"{describe(name, value)} does not fit 64 bits"
        elif kind == "Decimal" and self._needs == "numbers" and (why := _no_summand(value)):
            return "wrong_type", f"{describe(name, value)} {why}"
        elif is_nan(value) or (kind.startswith(_NESTED) and _holds_nan(value)):
            return "nan", f"{name!r} is NaN" if is_nan(value) else f"{name!r} holds NaN"
        if not is_leaf and (found := fault_of(value)):
            return detail_of(name, value, found)
        self._kind = kind
        self._floating |= isinstance(value, (float, np.floating))
        return None

    def _packed(self, values: list[Any], sound: Mask) -> Column:
        if self._kind in ("number", "bool"):
            filled = [v if ok else 0 for v, ok in zip(values, sound.tolist(), strict=True)]
            dtype: type = np.float64 if self._floating else np.int64
            if self._kind == "bool":
                dtype = np.bool_
            elif self._floating and self._keeps_integers(filled):
                return Column(object_array(values), None if sound.all() else sound)
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
    ("timestamp", lambda kind: pa.types.is_timestamp(kind) and kind.tz is None),
    ("timestamp with a time zone", pa.types.is_timestamp),
    ("duration", pa.types.is_duration),
    ("Decimal", pa.types.is_decimal),
)


_NESTED = ("tuple of ", "list of ")


def _kind_of_value(value: Any) -> str | None:
    """Return the kind of a Python value; ``None`` if such values have no order.

    Two values of one kind can be compared, whatever they are: that of a tuple or list says the
    kinds of what is in it.
    """
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
    if isinstance(value, _PARTIAL):
        return None
    if type(value) in (tuple, list):
        parts = []
        for item in value:
            kind = "None" if item is None else _kind_of_value(item)
            if kind is None:
                return None
            parts.append(kind)
        inner = ", ".join(parts if len(set(parts)) > 1 else parts[:1]) or "nothing"
        return f"{type(value).__name__} of {inner}"
    try:
        bool(value < value)  # raises if such values cannot be compared
    except MemoryError:
        raise
    except Exception:  # whatever a class of the user raises there
        return None
    return type(value).__name__


def _holds_nan(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_holds_nan, value))
    return is_nan(value)


def _no_summand(value: Decimal) -> str:
    """Return why a decimal cannot be added up, empty text if it can; NaN has its own reason."""
    if not value.is_finite():
        return "" if value.is_nan() else "is infinite"
    _, digits, exponent = value.as_tuple()
    places = max(len(digits) + max(int(exponent), 0), -int(exponent))
    return "has more than 38 digits" if places > 38 else ""


def _has_own_order(kind: pa.DataType | None) -> bool:
    return kind is not None and pa.types.is_dictionary(kind) and kind.ordered


def _cast(given: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return an array in another type; ``None`` if a value would not be the same there.

    A nested type is another only by its names for the items of lists, or by where it has no values.
    """
    if pa.types.is_nested(kind):
        return given.cast(kind) if _is_within(given.type, kind) else None
    try:
        return given.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _is_within(given: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether a type holds all values of another one as they are."""
    if given == kind or pa.types.is_null(given):
        return True
    if pa.types.is_list(given) or pa.types.is_large_list(given):
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        return is_list and _is_within(given.value_type, kind.value_type)
    if pa.types.is_struct(given) and pa.types.is_struct(kind):
        names = [field.name for field in kind]
        return [field.name for field in given] == names and all(
            _is_within(given.field(at).type, kind.field(at).type) for at in range(len(names))
        )
    return False


def _fits(value: Any) -> bool:
    return bool(START_OF_TIME <= value <= END_OF_TIME)
