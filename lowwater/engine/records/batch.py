"""Records: a batch of elements as named columns, from Arrow or from Python values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, final

import pyarrow as pa

from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import ErrorRecord
from lowwater.errors import DataError
from lowwater.time import Int64Array

HIDDEN = "__lw_"
"""Prefix of lowwater's internal columns, which users never see in a record."""
TRACED = HIDDEN + "traced"
"""Hidden column of traced runs: the number of each record in its source."""


@final
@dataclass(frozen=True, slots=True)
class Records:
    """A batch of elements: columns of one length.

    Args:
        columns: The columns by name, each of length ``length``.
        length: The number of elements.
        origin: The file that the elements come from, for messages.
        first_row: Row of the first element in ``origin``, from 0; ``None`` once rows were dropped.
        unreadable: Dead letters for what the source could not parse before these elements.
        rest_seconds: Poll the source again after this time; other sources are read meanwhile.
    """

    columns: Mapping[str, Column]
    length: int
    origin: str | None = None
    first_row: int | None = None
    unreadable: Sequence[ErrorRecord] = ()
    rest_seconds: float = 0.0

    @classmethod
    def from_arrow(
        cls, batch: pa.RecordBatch, origin: str | None = None, first_row: int | None = None
    ) -> Records:
        """Wrap an Arrow batch; nothing is copied except string views."""
        given = batch.schema
        schema = without_views(given)
        if schema is not given:
            batch = batch.cast(schema)
        return cls(ArrowColumns(batch), batch.num_rows, origin, first_row)

    def __len__(self) -> int:
        return self.length

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns that users see."""
        return tuple(name for name in self.columns if not name.startswith(HIDDEN))

    def row(self, index: int) -> Any:
        """Return one element: a mapping of its columns, or its value if that is its only column."""
        names = self.names
        columns = self.columns
        values = {name: _shown(columns[name].slice(index, index + 1))[0] for name in names}
        return values["value"] if names == ("value",) else values

    def rows(self, indices: Int64Array | None = None) -> list[Any]:
        """Return the elements at ``indices`` (int64), or all, as :meth:`row` does."""
        names = self.names
        every = [self.columns[name] for name in names]
        columns = [_shown(c if indices is None else c.take(indices)) for c in every]
        if names == ("value",):
            return columns[0]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def place(self, index: int) -> str | None:
        """Describe the origin of an element: file and row, as far as they are known."""
        if self.origin is None or self.first_row is None:
            return self.origin
        return f"{self.origin}, row {self.first_row + index}"

    def slice(self, start: int, stop: int) -> Records:
        """Return elements ``start`` to ``stop`` (exclusive) without copying."""
        stop = min(stop, self.length)
        if start == 0 and stop == self.length:
            return self
        columns = self.columns
        first = None if self.first_row is None else self.first_row + start
        if isinstance(columns, ArrowColumns):
            part = columns.batch.slice(start, stop - start)
            return Records(ArrowColumns(part), stop - start, self.origin, first)
        cut = {name: column.slice(start, stop) for name, column in columns.items()}
        return Records(cut, stop - start, self.origin, first)

    def replaced(self, columns: Mapping[str, Column]) -> Records:
        """Return the same elements with other columns, row for row."""
        return Records(columns, self.length, self.origin, self.first_row)

    def take(self, indices: Int64Array) -> Records:
        """Select the elements at ``indices`` (int64). Their row numbers in the origin are lost."""
        columns = self.columns
        if isinstance(columns, ArrowColumns):
            return Records.from_arrow(columns.batch.take(pa.array(indices)), self.origin)
        taken = {name: column.take(indices) for name, column in columns.items()}
        return Records(taken, len(indices), self.origin)

    def to_arrow(self, names: tuple[str, ...] | None = None) -> pa.RecordBatch:
        """Convert the user-visible columns, or those named, to an Arrow batch."""
        names = self.names if names is None else names
        if isinstance(self.columns, ArrowColumns):
            return self.columns.batch.select(list(names))
        arrays = [self.columns[name].to_arrow() for name in names]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * self.length, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, names=list(names))


@final
class ArrowColumns(Mapping[str, Column]):
    """The columns of an Arrow batch, each wrapped on first use and then cached."""

    __slots__ = ("_made", "batch")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self._made: dict[str, Column] = {}

    def __getitem__(self, name: str) -> Column:
        made = self._made.get(name)
        if made is None:
            index = self.batch.schema.get_field_index(name)
            if index < 0:
                raise KeyError(name)
            made = self._made[name] = Column.from_arrow(self.batch.column(index))
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self.batch.schema.names)

    def __len__(self) -> int:
        return int(self.batch.num_columns)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.batch.schema.get_field_index(name) >= 0


def without_views(schema: pa.Schema) -> pa.Schema:
    """Replace string and binary views in a schema, because Arrow cannot ``take`` from views."""
    kinds = [_without_view(kind) for kind in schema.types]
    if kinds == schema.types:
        return schema
    fields = [field.with_type(kind) for field, kind in zip(schema, kinds, strict=True)]
    return pa.schema(fields, schema.metadata)


@cache
def _without_view(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _without_view(kind.value_type), kind.ordered)
    if pa.types.is_list(kind):
        return pa.list_(_without_view(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_without_view(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_view(field.type)) for field in kind])
    return kind


def _shown(column: Column) -> list[Any]:
    """Convert to Python values; values Python cannot represent (the year 100000) as numbers."""
    try:
        return column.to_list()
    except (OverflowError, ValueError):
        return [_one_shown(value) for value in column.to_arrow()]


def _one_shown(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return value.value if hasattr(value, "value") else repr(value)


def columns_of(items: Sequence[Any]) -> dict[str, Column]:
    """Convert Python elements to columns; a missing field becomes null.

    Mappings, dataclasses and named tuples become one column per field; anything else becomes the
    column ``value``.

    >>> {name: column.to_list() for name, column in columns_of([{"a": 1}, {"b": 2}]).items()}
    {'a': [1, None], 'b': [None, 2]}
    """
    rows = [item if type(item) is dict else fields_of(item) for item in items]
    names = dict.fromkeys(name for row in rows for name in row)
    for name in names:
        if not isinstance(name, str) or name.startswith(HIDDEN):
            raise DataError(
                f"{name!r} cannot be the name of a column",
                hint="Use plain text as the names of fields",
            )
    return {name: Column.of_objects([row.get(name) for row in rows]) for name in names}


def fields_of(item: Any) -> Mapping[str, Any]:
    """Return an element's fields by name."""
    if isinstance(item, Mapping):
        return item
    if is_dataclass(item) and not isinstance(item, type):
        return {field.name: getattr(item, field.name) for field in fields(item)}
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return dict(zip(item._fields, item, strict=True))
    return {"value": item}
