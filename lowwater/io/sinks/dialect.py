"""How databases differ, and what kinds of values a column of panes holds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.join.views import key_of
from lowwater.engine.records.json_rows import json_text
from lowwater.engine.records.pane_table import encoding_of, in_microseconds, to_values
from lowwater.errors import InvalidArgument, describe

Kind: TypeAlias = Literal[
    "nothing", "boolean", "integer", "unsigned", "decimal", "real", "text", "binary",
    "instant", "timestamp", "date", "time", "duration", "json", "record",
]  # fmt: skip
Shape: TypeAlias = Callable[[pa.ChunkedArray], list[Any]]

_TYPES: tuple[tuple[Callable[[pa.DataType], bool], Kind], ...] = (
    (pa.types.is_null, "nothing"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_uint64, "unsigned"),
    (pa.types.is_integer, "integer"),
    (pa.types.is_decimal, "decimal"),
    (pa.types.is_floating, "real"),
    (pa.types.is_string, "text"),
    (pa.types.is_large_string, "text"),
    (pa.types.is_string_view, "text"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_large_binary, "binary"),
    (pa.types.is_binary_view, "binary"),
    (pa.types.is_fixed_size_binary, "binary"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time"),
    (pa.types.is_duration, "duration"),
)


class Cursor(Protocol):
    """The part of a DB-API cursor that is used."""

    def execute(self, statement: str, parameters: Sequence[Any], /) -> object:
        """Run a statement."""
        ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run a statement for each row."""
        ...

    def fetchone(self) -> Any:
        """Return the next row of the answer, or ``None``."""
        ...


@final
@dataclass(frozen=True, slots=True)
class ColumnNames:
    """What a database asks of the names of columns.

    Args:
        database: What errors call the database.
        folded: Returns what the database compares of a name.
        most: How many columns a table has at most.
        longest: How many bytes a name has at most; ``None``: any number.
        reserved: Names that no column can have.
        most_keys: How many columns a primary key has at most.
    """

    database: str
    folded: Callable[[str], str]
    most: int
    longest: int | None = None
    reserved: frozenset[str] = frozenset()
    most_keys: int | None = None


@final
@dataclass(frozen=True, slots=True)
class Dialect:
    """How one database differs from another.

    Args:
        mark: What stands for a parameter.
        begin: Begins a transaction.
        guard: Statement that lets one process at a time make tables; empty if ``begin`` does.
        lock: Follows a SELECT, to hold the row until the end of the transaction.
        named: Returns a table's name as it stands in a statement.
        quoted: Returns a column's name as it stands in a statement.
        schemas: Whether what stands before a dot in a table's name is a schema.
        exists: Query that has a row if there is a table of the name that is its parameter.
        name_type: The type of a column of names of tables.
        keys: Stands at the end of a CREATE TABLE with a primary key.
        types: The type of a column of each kind.
        shapes: How values are handed over, for kinds not taken as Python gives them.
        widen: Changes a column's type (``{table}``, ``{column}``, ``{type}``); empty where any
            column takes any number.
        refuses: Whether an error says that a row holds a value that the database cannot hold.
        names: What the database asks of the names of columns.
    """

    mark: str
    begin: str
    guard: str
    lock: str
    named: Callable[[str], str]
    quoted: Callable[[str], str]
    schemas: bool
    exists: str
    name_type: str
    keys: str
    types: Mapping[Kind, str]
    shapes: Mapping[Kind, Shape]
    widen: str
    refuses: Callable[[Exception], bool]
    names: ColumnNames


def double_quoted(name: str) -> str:
    """Return a name as SQL quotes it.

    >>> print(double_quoted('sum "the" total'))
    "sum ""the"" total"
    """
    return '"' + name.replace('"', '""') + '"'


def check_table(table: object) -> None:
    """Refuse what can be no table's name."""
    sound = isinstance(table, str) and table and "\0" not in table and table == table.strip()
    if not sound or any("\ud800" <= char <= "\udfff" for char in str(table)):
        raise InvalidArgument(
            f"{describe('table', table)} cannot name a table", hint='Use a name such as "counts"'
        )


def check_columns(panes: pa.Table, rules: ColumnNames, sink: object) -> None:
    """Raise if a table of the latest panes cannot have the columns of an output.

    Args:
        panes: The output's table of panes; its rows do not matter.
        rules: What the database asks of names.
        sink: The sink, for errors.

    Raises:
        InvalidArgument: The output is that of a process, without a primary key; or a column's name
            is empty, too long or reserved, has a character that no name can have, or is that of
            another column.
    """
    where = f"write_to({sink!r})"
    table_key = key_of(panes)
    if table_key is None and b"lowwater.records" in (panes.schema.metadata or {}):
        raise InvalidArgument(
            "these are records that a process emitted: they have no windows to go by",
            where=where,
            hint="Write them to a folder of files or a callback; or make a table of them, "
            ".to_stream().table(key=...).write_to(...)",
        )
    names = [name for name in panes.schema.names if name != "kind"]
    taken: dict[str, str] = {}
    for name in names:
        wrong = _wrong_with(name, rules)
        other = taken.setdefault(rules.folded(name), name)
        if other is not name:
            wrong = f"is the same name as {other!r} to {rules.database}"
        if wrong:
            raise InvalidArgument(
                f"the column {name!r} {wrong}",
                where=where,
                hint="Rename it, as in .aggregate(total=...) or .key_by(team=lw.col(...))"
                if table_key is None
                else "Rename it with with_columns, and leave it out with select",
            )
    if len(names) > rules.most:
        raise InvalidArgument(
            f"there are {len(names)} columns, and a table of {rules.database} has at most "
            f"{rules.most}",
            where=where,
            hint="Aggregate less, or write to a folder of files",
        )
    of_window = 0 if table_key is not None else 2
    keys = names.index("window_end") + 1 if table_key is None else len(table_key)
    if rules.most_keys is not None and keys > rules.most_keys:
        raise InvalidArgument(
            f"there are {keys - of_window} key columns, and a primary key of {rules.database} has "
            f"at most {rules.most_keys}{', of which the window takes two' * bool(of_window)}",
            where=where,
            hint="Group by fewer columns, or write to a folder of files",
        )


def _wrong_with(name: str, rules: ColumnNames) -> str | None:
    """Return what is wrong with a column's name."""
    size = len(name.encode())
    if not name:
        return "has an empty name"
    if "\0" in name:
        return f"has the character U+0000 in its name, which {rules.database} cannot hold"
    if rules.longest is not None and size > rules.longest:
        return f"has a name of {size} bytes, of which {rules.database} keeps {rules.longest}"
    if name in rules.reserved:
        return f"has a name that {rules.database} reserves"
    return None


def kind_of(field: pa.Field) -> Kind:
    """Return the kind of a column's values; what no other kind fits is JSON."""
    if encoding_of(field) is not None:
        return "json"
    of = field.type
    if pa.types.is_dictionary(of):
        of = of.value_type
    if pa.types.is_timestamp(of):
        return "timestamp" if of.tz is None else "instant"
    for test, kind in _TYPES:
        if test(of):
            return kind
    return "json"


@final
@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for a value that Python cannot hold, such as an instant after the year 9999.

    Args:
        text: The value as text.
        why: What Python says.
    """

    text: str
    why: str

    def __str__(self) -> str:
        return self.text


def values_of(field: pa.Field, column: pa.ChunkedArray, shapes: Mapping[Kind, Shape]) -> list[Any]:
    """Return a column's values as a database takes them.

    Args:
        field: The column's field.
        column: The column.
        shapes: How the database wants kinds that it does not take as Python gives them.

    Raises:
        OverflowError, ValueError: Python cannot hold a value.
    """
    kind = kind_of(field)
    if kind == "json":
        return [None if v is None else json_text(v) for v in to_values(field, column)]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    shape = shapes.get(kind)
    # Strict, unlike to_values: two instants after the year 9999 must not become one key.
    return in_microseconds(column).to_pylist() if shape is None else shape(column)


def readable_values_of(
    field: pa.Field, column: pa.ChunkedArray, shapes: Mapping[Kind, Shape]
) -> list[Any]:
    """Return what :func:`values_of` does, with ``Unreadable`` where Python cannot hold a value.

    Complexity: about 2 log n calls of it for each such value.
    """
    try:
        return values_of(field, column, shapes)
    except (OverflowError, ValueError) as error:
        if len(column) == 1:
            return [Unreadable(_text_of(column), str(error))]
    half = len(column) // 2
    parts = (column.slice(0, half), column.slice(half))
    return [value for part in parts for value in readable_values_of(field, part, shapes)]


def _text_of(column: pa.ChunkedArray) -> str:
    try:
        return str(column.cast(pa.string())[0].as_py())
    except pa.ArrowException:
        return f"a value of type {column.type}"


def instants_as_text(column: pa.ChunkedArray) -> list[str | None]:
    """Return instants as ISO-8601 text in UTC, all of one width, so that they sort as text.

    >>> instants_as_text(pa.chunked_array([pa.array([0, None], pa.timestamp("us", "UTC"))]))
    ['1970-01-01T00:00:00.000000Z', None]
    """
    return [None if text is None else f"{text}Z" for text in timestamps_as_text(column)]


def timestamps_as_text(column: pa.ChunkedArray) -> list[str | None]:
    """Return times without a zone as ISO-8601 text, all of one width."""
    unit: Literal["ns", "us"] = "ns" if column.type.unit == "ns" else "us"
    counts = column.cast(pa.timestamp(unit, column.type.tz)).cast(pa.int64())
    filled: NDArray[np.datetime64] = counts.fill_null(0).to_numpy().view(f"datetime64[{unit}]")
    texts: list[str] = np.datetime_as_string(filled, unit=unit).tolist()
    return _with_nulls(texts, column)


def as_iso(column: pa.ChunkedArray) -> list[str | None]:
    """Return dates or times of day as ISO-8601 text."""
    kind = column.type
    if pa.types.is_time64(kind) and kind.unit == "ns":
        column = column.cast(pa.time64("us"), safe=False)
    values: list[dt.date | dt.time | None] = column.to_pylist()
    return [None if value is None else value.isoformat() for value in values]


def as_text(column: pa.ChunkedArray) -> list[str | None]:
    """Return each value's text: what is exact in Python and not in the database."""
    return [None if value is None else str(value) for value in column.to_pylist()]


def as_microseconds(column: pa.ChunkedArray) -> list[int | None]:
    """Return durations as whole microseconds."""
    counts: list[int | None] = (
        column.cast(pa.duration("us"), safe=False).cast(pa.int64()).to_pylist()
    )
    return counts


def _with_nulls(texts: list[str], column: pa.ChunkedArray) -> list[str | None]:
    if not column.null_count:
        return list(texts)
    valid = column.is_valid().to_pylist()
    return [text if there else None for text, there in zip(texts, valid, strict=True)]
