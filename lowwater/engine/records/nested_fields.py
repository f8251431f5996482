"""The fields that expressions read inside of columns: those that values lack are null.

Arrow gives the values of a batch all fields that any of them has. A value alone, or one beside
others that lack the same field, must be read in the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.time import Int64Array


def with_fields(
    table: pa.Table, paths: Collection[tuple[str, ...]], kind: pa.DataType | None = None
) -> pa.Table:
    """Return a table whose columns have the fields that are read. O(1) where nothing is missing.

    Args:
        table: The table.
        paths: What is read: a column, a field of it, a field of that, and so on.
        kind: The type that what is read gets where it consists of nulls without a type.

    >>> table = pa.table({"v": [{"a": 1}, None]})
    >>> with_fields(table, [("v", "b")]).to_pylist()
    [{'v': {'a': 1, 'b': None}}, {'v': None}]
    """
    for name, *path in sorted(paths):
        at = table.schema.get_field_index(name)
        if at < 0:
            continue
        kind_before = table.schema.types[at]
        if _has(kind_before, path, kind):
            continue
        column = table.column(at)
        table = table.set_column(at, name, _with_field(_whole(column), path, kind))
    return table


def siblings_of(schema: pa.Schema, path: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the names of the fields among which the last one of a path is, ``None``: no such."""
    at = schema.get_field_index(path[0])
    kind = pa.null() if at < 0 else schema.types[at]
    for number, name in enumerate(path[1:], 2):
        if not pa.types.is_struct(kind):
            return None
        names = tuple(kind.field(n).name for n in range(kind.num_fields))
        if number == len(path):
            return names
        if (at := kind.get_field_index(name)) < 0:
            return None
        kind = kind.field(at).type
    return None


def fields_of_nulls(table: pa.Table, paths: Collection[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return which columns, and which fields that are read, consist of nulls without a type."""
    every = {(name,) for name in table.column_names} | set(paths)
    return sorted(path for path in every if _is_of_nulls(table.schema, path))


def parted_by_nulls(
    table: pa.Table, paths: Collection[tuple[str, ...]]
) -> Iterator[tuple[Int64Array, pa.Table]]:
    """Yield the rows that have nulls in the same fields; these nulls lose the type beside others.

    Args:
        table: The table, with all of the fields.
        paths: The fields that are read.
    """
    nulls = {path: _nulls(table, path) for path in sorted(paths)}
    codes = np.zeros(len(table), dtype=np.int64)
    for empty in nulls.values():
        _, codes = np.unique(codes * 2 + empty, return_inverse=True)
    for code in range(int(codes.max(initial=-1)) + 1):
        rows = np.flatnonzero(codes == code)
        part = table.take(pa.array(rows))
        for path, empty in nulls.items():
            if empty[rows[0]]:
                part = _without_type(part, path)
        yield rows, with_fields(part, paths)


def _nulls(table: pa.Table, path: tuple[str, ...]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return in which rows a field is null, or what it is in."""
    at = table.schema.get_field_index(path[0])
    if at < 0:
        return np.zeros(len(table), dtype=np.bool_)
    array: Any = table.column(at)
    empty: np.ndarray[Any, np.dtype[np.bool_]] = array.is_null().to_numpy()
    for name in path[1:]:
        if not pa.types.is_struct(array.type) or array.type.get_field_index(name) < 0:
            break
        array = pc.struct_field(array, name)
        empty = empty | array.is_null().to_numpy()
    return empty


def _without_type(table: pa.Table, path: tuple[str, ...]) -> pa.Table:
    """Return a table in which a field that is null in all rows has no type."""
    at = table.schema.get_field_index(path[0])
    array = _whole(table.column(at))
    return table.set_column(at, path[0], _cleared(array, list(path[1:])))


def _cleared(array: pa.Array, path: list[str]) -> pa.Array:
    if not path or array.null_count == len(array):
        return pa.nulls(len(array))
    if not pa.types.is_struct(array.type):
        return array
    name, *rest = path
    inner = {array.type.field(n).name: array.field(n) for n in range(array.type.num_fields)}
    inner[name] = _cleared(inner[name], rest)
    return _struct(inner, array)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _struct(fields: dict[str, pa.Array], like: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays(
        list(fields.values()), names=list(fields), mask=like.is_null()
    )


def _is_of_nulls(schema: pa.Schema, path: tuple[str, ...]) -> bool:
    at = schema.get_field_index(path[0])
    if at < 0:
        return False
    kind = schema.types[at]
    for name in path[1:]:
        if not pa.types.is_struct(kind) or (at := kind.get_field_index(name)) < 0:
            return False
        kind = kind.field(at).type
    return bool(pa.types.is_null(kind))


def _has(kind: pa.DataType, path: list[str], wanted: pa.DataType | None) -> bool:
    """Whether a type needs no change; one that has no fields cannot be changed."""
    for name in path:
        if pa.types.is_null(kind):
            return False
        if not pa.types.is_struct(kind):
            return True
        if (at := kind.get_field_index(name)) < 0:
            return name in [kind.field(n).name for n in range(kind.num_fields)]  # twice
        kind = kind.field(at).type
    return wanted is None or not pa.types.is_null(kind)


def _with_field(array: pa.Array, path: list[str], kind: pa.DataType | None) -> pa.Array:
    if not path:
        return pa.nulls(len(array), kind) if kind and pa.types.is_null(array.type) else array
    name, *rest = path
    inner: dict[str, pa.Array] = {}
    if pa.types.is_struct(array.type):
        inner = {array.type.field(n).name: array.field(n) for n in range(array.type.num_fields)}
    elif not pa.types.is_null(array.type):
        return array
    inner[name] = _with_field(inner.get(name, pa.nulls(len(array))), rest, kind)
    return _struct(inner, array)
