"""Whole records in the rows of a table: each of their columns is a column of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.records.columns import Column, type_from_bytes, type_to_bytes
from lowwater.state.arrays import object_array
from lowwater.state.table import Field, RowTable
from lowwater.time import Int64Array

Kinds: TypeAlias = list[tuple[str, str | None, bytes | None]]
"""Name, numpy dtype and Arrow type of each column; no dtype before its first value."""

_VALUE, _NULL = "record:", "null:"
_FILLS: Mapping[str, Any] = {"b": False, "i": 0, "f": 0.0, "O": None}


@final
class KeptRecords:
    """Puts records into rows of a table, and gives them back as columns.

    A column keeps its Arrow type. If values of another type come, it holds Python values from then
    on. A column that comes later is null in the records before.

    Args:
        table: Where the rows are; its user allocates and releases them.
        types: Columns that are known before any record has come, with their types if these are.
    """

    def __init__(self, table: RowTable, types: Mapping[str, pa.DataType | None]) -> None:
        self._table = table
        self._types: dict[str, pa.DataType | None] = dict(types)
        self._changed: Callable[[Int64Array], None] | None = None
        # What columns of Python values held before, if anything else.
        self._former: dict[str, pa.DataType | None] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in the order in which they came."""
        return tuple(self._types)

    def note_changes(self, changed: Callable[[Int64Array], None]) -> None:
        """Report rows whose stored form is out of date, because their column was converted."""
        self._changed = changed

    def put(self, rows: Int64Array, columns: Mapping[str, Column]) -> None:
        """Write records into rows that are allocated and filled. O(n)."""
        for name, given in columns.items():
            column = _plain(given)
            known = self._types.setdefault(name, None)
            if column is None:
                continue
            if column.type is None and known is not None:
                column = _typed(column, known)
            if _VALUE + name not in self._table.columns:
                kind = np.dtype(column.data.dtype)
                self._add(name, kind, column.type)
            column = self._fitted(name, column)
            data, valid = column.data, column.valid
            if valid is not None and data.dtype == object:
                data = data.copy()
                data[~valid] = None
            self._table[_VALUE + name][rows] = data
            self._table[_NULL + name][rows] = False if valid is None else ~valid

    def take(self, rows: Int64Array, names: Sequence[str] | None = None) -> dict[str, Column]:
        """Return the records of rows as columns; a row below zero is null in all of them. O(n).

        Args:
            rows: Row numbers, int64.
            names: Which columns; by default all.
        """
        missing = rows < 0
        some_missing = bool(missing.any())
        if some_missing:
            rows = np.where(missing, 0, rows)
        found: dict[str, Column] = {}
        for name in self._types if names is None else names:
            if _VALUE + name not in self._table.columns:
                none = np.zeros(len(rows), dtype=np.bool_)
                found[name] = Column(np.full(len(rows), None), none, self._types.get(name))
                continue
            null = self._table[_NULL + name][rows]
            if some_missing:
                null |= missing
            valid = ~null if null.any() else None
            found[name] = Column(self._table[_VALUE + name][rows], valid, self._types[name])
        return found

    def kinds(self) -> Kinds:
        """Return what :meth:`expect` needs to know."""
        table = self._table
        return [
            (
                name,
                table[_VALUE + name].dtype.str if _VALUE + name in table.columns else None,
                type_to_bytes(kind),
            )
            for name, kind in self._types.items()
        ]

    def expect(self, kinds: Iterable[Sequence[Any]]) -> None:
        """Create the columns that existed when records were stored; the table is empty.

        Raises:
            StateError: A type cannot be read.
        """
        for name, dtype, kind in kinds:
            self._types.setdefault(name, type_from_bytes(kind))
            if dtype is not None:
                self._add(name, np.dtype(dtype), type_from_bytes(kind))

    def former_kinds(self) -> list[tuple[str, bytes | None]]:
        """Return what :meth:`expect_former` needs to know."""
        return [(name, type_to_bytes(kind)) for name, kind in self._former.items()]

    def expect_former(self, kinds: Iterable[Sequence[Any]]) -> None:
        """Restore which types the columns of Python values have held.

        Raises:
            StateError: A type cannot be read.
        """
        self._former.update((name, type_from_bytes(kind)) for name, kind in kinds)

    def convert(self, rows: Int64Array, records: NDArray[np.void]) -> None:
        """Make Python values of those that were packed before their columns held such.

        Args:
            rows: The rows; all else of them has been filled.
            records: What was packed of each, a structured array.
        """
        for name, kind in self._former.items():
            if _VALUE + name in (records.dtype.names or ()):
                packed = np.ascontiguousarray(records[_VALUE + name])
                values = Column(packed, ~self._table[_NULL + name][rows], kind)
                self._table[_VALUE + name][rows] = object_array(values.to_list(exact=True))

    def _add(self, name: str, dtype: np.dtype[Any], kind: pa.DataType | None) -> None:
        self._types[name] = kind
        self._table.add_field(Field(_VALUE + name, dtype, _FILLS[dtype.kind]))
        self._table.add_field(Field(_NULL + name, np.bool_, True))

    def _fitted(self, name: str, column: Column) -> Column:
        """Return a column as the table takes it; the table may first have to take another type."""
        held, kind = self._table[_VALUE + name].dtype, self._types[name]
        if held == column.data.dtype and kind == column.type:
            return column
        if held == column.data.dtype and _are_integers(kind, column.type):
            self._types[name] = pa.int64()
            return column
        if held == column.data.dtype and _are_floats(kind, column.type):
            self._types[name] = pa.float64()
            return column
        self._hold_objects(name)
        return Column.of_objects(column.to_list(exact=True))

    def _hold_objects(self, name: str) -> None:
        table, kind = self._table, self._types[name]
        if table[_VALUE + name].dtype == object:
            if kind is None:
                return
            self._types[name] = None
            return
        rows = table.live()
        values = Column(table[_VALUE + name][rows], ~table[_NULL + name][rows], kind)
        plain = object_array(values.to_list(exact=True))
        table.retype(_VALUE + name, object, None)
        self._former[name] = kind
        table[_VALUE + name][rows] = plain
        self._types[name] = None
        if self._changed is not None:
            self._changed(rows)


def _plain(column: Column) -> Column | None:
    """Return a column without a dictionary; ``None`` if its type says that all of it is null."""
    kind = column.type
    if kind is None:
        if column.valid is not None and not column.valid.any():
            return None
        return column
    if pa.types.is_null(kind):
        return None
    if pa.types.is_dictionary(kind):
        return Column(column.data, column.valid, kind.value_type)
    return column


def _typed(column: Column, kind: pa.DataType) -> Column:
    """Return Python values as a type that is known of them, if they are of it."""
    values = column.to_list()
    try:
        typed = Column.from_arrow(pa.array(values, kind))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return column
    # Arrow converts what it can: an int to a date, bytes to text.
    pairs = zip(typed.to_list(exact=True), values, strict=True)
    return typed if all(type(a) is type(b) and a == b for a, b in pairs) else column


def _are_integers(one: pa.DataType | None, other: pa.DataType | None) -> bool:
    return _both(one, other) and pa.types.is_integer(one) and pa.types.is_integer(other)


def _are_floats(one: pa.DataType | None, other: pa.DataType | None) -> bool:
    return _both(one, other) and pa.types.is_floating(one) and pa.types.is_floating(other)


def _both(one: pa.DataType | None, other: pa.DataType | None) -> bool:
    return one is not None and other is not None
