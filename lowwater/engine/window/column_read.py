"""How an aggregate is bound to a column that it reads."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.aggregates._decimals import words_of
from lowwater.engine.records.columns import Column, Mask, are_wide
from lowwater.errors import DataError
from lowwater.time import Int64Array

_DECIMALS = pa.decimal128(38, 0)
"""Stands for decimals of any scale, where they are only added up."""


@final
class ColumnRead:
    """How an aggregate is bound to a column that it reads: the type of the values, as far as known.

    Args:
        dtype: The dtype, if it is known from the start.
        exact: Whether values stay what they are: integers beside fractions then become floats only
            if these hold all of them exactly, and otherwise all become Python objects.
    """

    def __init__(self, dtype: np.dtype[Any] | None = None, *, exact: bool = False) -> None:
        self.dtype = dtype
        self.type: pa.DataType | None = None
        self.guessed = False
        self.had_integers = False
        self.is_old = False
        self._exact = exact
        self._is_wide = False

    @property
    def notes(self) -> int:
        """What is stored beside the type.

        1 if it is guessed, 2 always, 4 if integers are wide, 8 if floats came after integers.
        """
        return self.guessed + 2 + 4 * self._is_wide + 8 * self.had_integers

    def resume(self, kind: pa.DataType | None, dtype: str, notes: int) -> None:
        """Restore a binding; one from before there were notes says whether it is guessed.

        Such a one has means and variances of integers as floats, and goes on with them.
        """
        self.type, self.dtype = kind, np.dtype(dtype)
        self.guessed = bool(notes & 1)
        self._is_wide = not notes & 2 or bool(notes & 4)
        self.had_integers = bool(notes & 8)
        self.is_old = not notes & 2

    def fit(self, column: Column) -> bool:
        """Widen the type so that it takes a column's values; return whether it has changed."""
        column = self._summed(column)
        if self._is_of_words(column):
            before = self.type
            self.dtype, self.type, self.guessed = np.dtype(object), _DECIMALS, False
            return before != _DECIMALS
        dtype = column.data.dtype
        is_known = self.dtype is not None and not self.guessed
        is_same = dtype == self.dtype and column.type == self.type
        if self._exact and dtype == np.int64 and not self._is_wide:
            self._is_wide = are_wide(column.data)
        if is_known and (is_same or _all_null(column)):
            return False
        before = None if self.dtype is None else (self.dtype, self.type)
        if self.dtype is None or self.guessed:
            # Of nulls alone the type is a guess, and no row holds a value of it yet.
            if self.dtype is None or self.dtype.kind != "O":
                self.dtype, self.type = dtype, _plain(column.type)
            self.guessed = _all_null(column)
        elif dtype != self.dtype:
            if self.type is not None and pa.types.is_temporal(self.type) and self.dtype.kind != "O":
                raise _unlike(column.type, self.type, "they are no times of that type")
            numbers = object not in (dtype, self.dtype)
            wider = np.result_type(dtype, self.dtype) if numbers else np.dtype(object)
            if self._exact and self._is_wide and wider == np.float64:
                wider = np.dtype(object)
            if not self._exact and wider == np.float64 and self.dtype.kind in "iub":
                self.had_integers = True
            if wider != self.dtype or wider.kind == "O":
                self.dtype, self.type = wider, None
        else:
            self.type = _common(self.type, _plain(column.type), dtype)
        return (self.dtype, self.type) != before

    def values(self, column: Column, element: Int64Array | None) -> NDArray[Any]:
        """Return a column's values, or those of some elements, in the dtype that was bound.

        Decimals that are only added up are given as words (see ``_decimals``).
        """
        column = self._summed(column)
        if self._is_of_words(column):
            words = words_of(column)
            return words if element is None else words[element]
        if self.type == _DECIMALS and not self._exact:  # nulls
            return np.zeros((len(column) if element is None else len(element), 3), dtype=np.int64)
        if _all_null(column):
            data = np.zeros(len(column), dtype=self.dtype)
        else:
            data = self._in_unit(column).data
        if data.dtype != self.dtype:
            data = data.astype(self.dtype)
        return data if element is None else data[element]

    def _summed(self, column: Column) -> Column:
        """Return integers and floats as floats, if they are only added up.

        They are Python values where other aggregates take them as they are.
        """
        if self._exact or column.arrow is not None or column.data.dtype != object:
            return column
        valid = column.valid
        present = column.data if valid is None else column.data[valid]
        if not len(present) or isinstance(present[0], Decimal):
            return column
        floats = np.zeros(len(column), dtype=np.float64)
        floats[slice(None) if valid is None else valid] = present.astype(np.float64)
        return Column(floats, valid, pa.float64())

    def _is_of_words(self, column: Column) -> bool:
        if self._exact:
            return False
        kind = column.type
        if kind is None:  # of Python's values only decimals are not numbers of numpy
            return column.arrow is None and column.data.dtype == object and not _all_null(column)
        return bool(pa.types.is_decimal(kind))

    def _in_unit(self, column: Column) -> Column:
        """Return times in the unit of the type, or as Python objects where the others are.

        Raises:
            DataError: They do not fit it.
        """
        given, kind = _plain(column.type), self.type
        if given is None or given == kind or not pa.types.is_temporal(given):
            return column
        if kind is None:
            return Column.of_objects(column.to_list(exact=True))
        try:
            return Column.from_arrow(column.to_arrow().cast(kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _unlike(given, kind, str(error)) from None


def valid_rows(column: Column, element: Int64Array | None) -> Mask | None:
    """Return which values are not null, or of some elements; ``None`` if all are not."""
    valid = _validity(column)
    return valid if valid is None or element is None else valid[element]


def true_rows(column: Column, element: Int64Array | None) -> Mask:
    """Return for which rows, or elements, a column of a condition is true; null is not."""
    true: Mask = column.data.astype(np.bool_, copy=False)
    if column.valid is not None:
        true = true & column.valid
    return true if element is None else true[element]


def _validity(column: Column) -> Mask | None:
    """Return which rows are not null, ``None`` for all; no decimal becomes a Python value."""
    if column.type is None or not pa.types.is_decimal(column.type):
        return column.valid
    nulls = column.nulls()
    return None if nulls is None else ~nulls


def _all_null(column: Column) -> bool:
    valid = _validity(column)
    return valid is not None and not valid.any()


def _common(
    one: pa.DataType | None, other: pa.DataType | None, dtype: np.dtype[Any]
) -> pa.DataType | None:
    """Return the type of values of two types with one dtype; of times it is the first.

    Raises:
        DataError: One are times, and the other numbers.
    """
    if one == other or one is None or other is None:
        return one if one == other else None
    if dtype.kind != "O" and pa.types.is_temporal(one) != pa.types.is_temporal(other):
        raise _unlike(other, one, "one are times, and the other numbers")
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return pa.int64()
    if pa.types.is_floating(one) and pa.types.is_floating(other):
        return pa.float64()
    return None if dtype.kind == "O" else one


def _unlike(given: pa.DataType | None, kind: pa.DataType, why: str) -> DataError:
    return DataError(
        f"values of type {given or 'object'} came after values of type {kind}: {why}",
        where="window",
        hint="Convert one of the inputs in front: with_columns(name=lw.col(...).cast(...))",
    )


def _plain(type: pa.DataType | None) -> pa.DataType | None:
    """Return the type of the values themselves."""
    if type is not None and pa.types.is_dictionary(type):
        return type.value_type
    return type
