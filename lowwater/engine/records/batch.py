"""Records: a batch of elements as named columns, from Arrow or from Python values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, final

import pyarrow as pa

from lowwater.display.text import shown
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.python_values import is_zone
from lowwater.engine.records.storable import MOST_NESTED as MOST_NESTED
from lowwater.engine.records.unchecked import dicts
from lowwater.errors import DataError
from lowwater.time import Int64Array

HIDDEN = "__lw_"
"""Prefix of lowwater's internal columns, which users never see in a record."""
SIDE = HIDDEN + "side"
"""Prefix of hidden columns that belong to the primary key of a table: see ``JoinedColumns``."""
WHOLE = HIDDEN + "whole"
"""Hidden column that all records have the same value in, where they are one group."""
TRACED = HIDDEN + "traced"
"""Hidden column of traced runs: the number of each record in its source."""
CONDITION_OF = HIDDEN + "where="
"""Prefix of hidden columns with the results of the conditions of aggregates."""
DEFINED_BY, ABSENT_WHERE = HIDDEN + "define=", HIDDEN + "without="
"""Prefixes of those of the conditions of row patterns."""


def shown_name(column: str) -> str:
    """Return what messages call a column: a hidden one has the name of the argument it is from.

    >>> shown_name("price"), shown_name("__lw_time"), shown_name("__lw_key0")
    ('price', 'time', 'key')
    """
    if not column.startswith(HIDDEN):
        return column
    if column.startswith((CONDITION_OF, DEFINED_BY, ABSENT_WHERE)):
        return column.removeprefix(HIDDEN).rpartition(" ")[0]
    return column.removeprefix(HIDDEN).rstrip("0123456789")


@final
@dataclass(frozen=True, slots=True)
class Records:
    """A batch of elements: columns of one length.

    Args:
        columns: The columns by name, each of length ``length``.
        length: The number of elements.
        origin: The file that the elements come from, for messages.
        first_row: Row of the first element in ``origin``, from 0; ``None`` if it is not known.
        unreadable: Dead letters for what the source could not parse before these elements.
        rest_seconds: Poll the source again after this time; other sources are read meanwhile.
        row_numbers: Row of each element in ``origin``, int64, where rows were dropped; ``None``:
            they follow ``first_row``.
        place_of: Names the place of an element by its row number, where ``origin`` and the number
            alone do not say it: a batch may be from several partitions.
        partitions: The partitions from which the source may have elements, in this batch or later;
            ``PerPartition`` waits for them (S-T3).
        share: How much of what there is to read has been read once these have, 0 to 1; ``None``
            where the end is not known.
    """

    columns: Mapping[str, Column]
    length: int
    origin: str | None = None
    first_row: int | None = None
    unreadable: Sequence[ErrorRecord] = ()
    rest_seconds: float = 0.0
    row_numbers: Int64Array | None = None
    partitions: tuple[Any, ...] = ()
    share: float | None = field(default=None, repr=False, compare=False)
    place_of: Callable[[int], str] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_arrow(
        cls, batch: pa.RecordBatch, origin: str | None = None, first_row: int | None = None
    ) -> Records:
        """Wrap an Arrow batch; nothing is copied except string views.

        Raises:
            DataError: A column is nested too deep, or has text that is not valid UTF-8.
        """
        given = batch.schema
        schema = readable(given, origin)
        if schema is not given:
            try:
                batch = batch.cast(schema)
            except pa.ArrowInvalid as error:
                raise DataError(
                    f"a column is damaged: {str(error).rstrip('.')}",
                    where=origin,
                    hint="Write the data again, or leave the column out",
                ) from None
        return cls(ArrowColumns(batch), batch.num_rows, origin, first_row)

    def __len__(self) -> int:
        return self.length

    @property
    def is_rest(self) -> bool:
        """Whether there is nothing here but the time until the source is polled again."""
        return bool(self.rest_seconds) and not self.length and not self.unreadable

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns that users see."""
        return tuple(name for name in self.columns if not name.startswith(HIDDEN))

    def row(self, index: int) -> Any:
        """Return one element: a mapping of its columns, or its value if that is its only column.

        A time that Python cannot hold is an ``Instant``.
        """
        names = self.names
        columns = self.columns
        values = {
            name: columns[name].slice(index, index + 1).to_list(exact=True)[0] for name in names
        }
        return values["value"] if names == ("value",) else values

    def rows(self, indices: Int64Array | None = None, *, exact: bool = False) -> list[Any]:
        """Return the elements at ``indices`` (int64), or all, as :meth:`row` does.

        Args:
            indices: The elements; ``None`` for all.
            exact: Whether a time that Python cannot hold is an ``Instant``; otherwise it is the
                nearest that Python can hold.
        """
        names = self.names
        every = [self.columns[name] for name in names]
        if indices is not None:
            every = [column.take(indices) for column in every]
        columns = [column.to_list(exact=exact) for column in every]
        if names == ("value",):
            return columns[0]
        return dicts(names, columns, self.length if indices is None else len(indices))

    def place(self, index: int) -> str | None:
        """Describe the origin of an element: file and row, as far as they are known."""
        if self.origin is None:
            return None
        if self.place_of is not None and self.row_numbers is not None:
            return self.place_of(int(self.row_numbers[index]))
        if self.row_numbers is not None:
            return f"{self.origin}, row {self.row_numbers[index]}"
        if self.first_row is not None:
            return f"{self.origin}, row {self.first_row + index}"
        return self.origin

    def slice(self, start: int, stop: int) -> Records:
        """Return elements ``start`` to ``stop`` (exclusive) without copying."""
        stop = min(stop, self.length)
        if start == 0 and stop == self.length:
            return self
        columns = self.columns
        first = None if self.first_row is None else self.first_row + start
        rows = None if self.row_numbers is None else self.row_numbers[start:stop]
        cut: Mapping[str, Column]
        if isinstance(columns, ArrowColumns):
            cut = ArrowColumns(columns.batch.slice(start, stop - start))
        else:
            cut = {name: column.slice(start, stop) for name, column in columns.items()}
        return Records(
            cut, stop - start, self.origin, first, row_numbers=rows, place_of=self.place_of
        )

    def replaced(self, columns: Mapping[str, Column]) -> Records:
        """Return the same elements with other columns, row for row."""
        return Records(
            columns,
            self.length,
            self.origin,
            self.first_row,
            row_numbers=self.row_numbers,
            place_of=self.place_of,
        )

    def take(self, indices: Int64Array) -> Records:
        """Select the elements at ``indices`` (int64)."""
        columns = self.columns
        if isinstance(columns, ArrowColumns):
            taken: Mapping[str, Column] = ArrowColumns(columns.batch.take(pa.array(indices)))
        else:
            taken = {name: column.take(indices) for name, column in columns.items()}
        return self.derived(taken, indices)

    def derived(self, columns: Mapping[str, Column], indices: Int64Array) -> Records:
        """Return other elements, whose places are those of the elements they are made of.

        Args:
            columns: Their columns.
            indices: The element here that each is made of, int64.
        """
        rows = self.row_numbers
        if rows is not None:
            rows = rows[indices]
        elif self.first_row is not None:
            rows = self.first_row + indices
        return Records(columns, len(indices), self.origin, row_numbers=rows, place_of=self.place_of)

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


def readable(schema: pa.Schema, origin: str | None = None) -> pa.Schema:
    """Replace the types in a schema that cannot be worked with, without changing a value.

    String and binary views become plain strings and bytes, because Arrow cannot ``take`` from
    views. Instants in an unknown time zone become instants in UTC.

    Args:
        schema: The schema of some records.
        origin: The file they come from, for messages.

    Raises:
        DataError: A column is nested too deep, or of a union.
    """
    given, kinds = schema.types, []
    for at, kind in enumerate(given):
        if pa.types.is_nested(kind) and _holds_union(kind):
            raise DataError(
                f"the column {schema.names[at]!r} is {kind}: values of a union cannot be held",
                where=origin,
                hint="Leave it out, or make a struct of it with a field for each type",
            )
        if pa.types.is_nested(kind) and is_too_deep(kind):
            raise DataError(
                f"the column {schema.names[at]!r} is nested more than {MOST_NESTED} deep",
                where=origin,
                hint="Leave it out, or store its values as text",
            )
        kinds.append(_readable(kind))
    if kinds == given:
        return schema
    fields = [field.with_type(kind) for field, kind in zip(schema, kinds, strict=True)]
    return pa.schema(fields, schema.metadata)


def require_open_names(names: Iterable[str], origin: str | None = None) -> None:
    """Raise ``DataError`` for a column with a name that lowwater's own columns have."""
    for name in names:
        if name.startswith(HIDDEN):
            raise DataError(
                f"the name of the column {name!r} is reserved",
                where=origin,
                hint="Rename it",
            )


def _holds_union(kind: pa.DataType) -> bool:
    fields = [kind.field(at).type for at in range(kind.num_fields)]
    return pa.types.is_union(kind) or any(
        _holds_union(one) for one in fields if pa.types.is_nested(one)
    )


def is_too_deep(kind: pa.DataType) -> bool:
    """Return whether values of a type are nested more than ``MOST_NESTED`` deep."""
    depth = 0
    kinds = [kind]
    while kinds := [
        each.field(at).type
        for each in kinds
        if pa.types.is_nested(each)
        for at in range(each.num_fields)
    ]:
        depth += 1
        if depth > MOST_NESTED:
            return True
    return False


@cache
def _readable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_timestamp(kind) and kind.tz is not None and not is_zone(kind.tz):
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _readable(kind.value_type), kind.ordered)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_readable(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_readable(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_readable(field.type)) for field in kind])
    return kind


def columns_of(items: Sequence[Any]) -> dict[str, Column]:
    """Convert Python elements to columns; a missing field becomes null.

    Mappings, dataclasses and named tuples become one column per field; anything else becomes the
    column ``value``.

    Raises:
        DataError: A field has a name that cannot be a column's.

    >>> {name: column.to_list() for name, column in columns_of([{"a": 1}, {"b": 2}]).items()}
    {'a': [1, None], 'b': [None, 2]}
    """
    rows = [item if type(item) is dict else fields_of(item) for item in items]
    names: Iterable[Any] = dict.fromkeys(name for row in rows for name in row)
    for name in names:
        if not is_name(name):
            raise DataError(
                f"{shown(name, exact=True)} cannot be the name of a column",
                hint="Use plain text as the names of fields",
            )
    plain = {name: name if type(name) is str else str.__str__(name) for name in names}
    return {plain[name]: Column.of_objects([row.get(name) for row in rows]) for name in names}


def is_name(name: object) -> bool:
    """Return whether a field of an element may have this name."""
    if type(name) is not str and not _is_text(name):
        return False
    text = str.__str__(name)
    if text.startswith(HIDDEN):
        return False
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _is_text(name: object) -> bool:
    """Return whether a value of a class derived from ``str`` compares and hashes as its text."""
    if not issubclass(type(name), str):  # what a proxy says of its class is not asked
        return False
    text = str.__str__(name)
    try:
        return bool(name == text) and hash(name) == hash(text)
    except Exception:  # a class of the user
        return False


def plain_records(items: Sequence[Any]) -> Sequence[Any]:
    """Return elements, of which those that have fields are dicts. Mostly in C."""
    if not any(map(_has_fields, set(map(type, items)) - {dict})):
        return items
    return [dict(fields_of(item)) if _has_fields(type(item)) else item for item in items]


def _has_fields(kind: type) -> bool:
    return (
        issubclass(kind, Mapping)
        or is_dataclass(kind)
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


def fields_of(item: Any) -> Mapping[str, Any]:
    """Return an element's fields by name."""
    if isinstance(item, Mapping):
        return item
    if is_dataclass(item) and not isinstance(item, type):
        return {field.name: getattr(item, field.name) for field in fields(item)}
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return dict(zip(item._fields, item, strict=True))
    return {"value": item}
