"""Columns that folders of files name, as those of Hive: ``year=2024/month=01/part.parquet``."""

from __future__ import annotations

import glob
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from lowwater.engine.records.batch import HIDDEN, ArrowColumns, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import ErrorRecord
from lowwater.io.paths import is_remote

_NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?[0-9]{1,18}")


@final
class Partitions:
    """Adds the columns that are in the paths of files.

    Below a folder that is read, and below the fixed part of a glob, each folder called
    ``name=value`` is a column, for all records of its files. Its values are int64 if all that are
    known when the first file is begun are integers, and otherwise text; ``%20`` stands for a space,
    and ``__HIVE_DEFAULT_PARTITION__`` for null. The records of a file whose value is not of the
    type are dead letters (``wrong_type``). Where a file has a column of that name, the path is
    what counts, as on Spark.

    Args:
        paths: The paths that are read.
        only: The columns that are read; ``None`` for all.
    """

    def __init__(self, paths: Iterable[str], only: Collection[str] | None = None) -> None:
        self._roots = [_fixed_parts(path) for path in paths]
        self._only = only

    def in_name(self, name: str) -> dict[str, str | None]:
        """Return the columns in the name of a file, as text."""
        if "=" not in name:
            return {}
        parts = _parts(name)
        root = next((one for one in self._roots if parts[: len(one)] == one), None)
        if root is None:
            return {}
        found: dict[str, str | None] = {}
        for part in parts[len(root) : -1]:
            column, given, value = part.partition("=")
            column = unquote(column)
            wanted = self._only is None or column in self._only
            if given and column and wanted and not column.startswith(HIDDEN):
                found[column] = None if value == _NULL else unquote(value)
        return found

    def types(self, names: Iterable[str]) -> dict[str, pa.DataType]:
        """Return the types of the columns in the names of files."""
        values: dict[str, list[str | None]] = {}
        for name in names:
            for column, value in self.in_name(name).items():
                values.setdefault(column, []).append(value)
        return {column: _type_of(some) for column, some in values.items()}

    def added(self, records: Records, name: str, types: Mapping[str, pa.DataType]) -> Records:
        """Return the records of a file with the columns in its name, of known types. O(n)."""
        found = self.in_name(name)
        if not found or not records.length:
            return records
        arrays = {}
        for column, text in found.items():
            kind = types.get(column, pa.string())
            value = None if text is None else _value(text, kind)
            if text is not None and value is None:
                return _all_wrong(records, f"{column}={text!r} in the path is not {kind}")
            arrays[column] = pa.repeat(pa.scalar(value, kind), records.length)
        if isinstance(records.columns, ArrowColumns):
            batch = with_arrays(records.columns.batch, arrays)
            return replace(records, columns=ArrowColumns(batch))
        made = {column: Column.from_arrow(array) for column, array in arrays.items()}
        return replace(records, columns={**records.columns, **made})


def with_arrays(batch: pa.RecordBatch, arrays: dict[str, pa.Array]) -> pa.RecordBatch:
    """Return a batch with further columns, or others in the place of those of their names."""
    for name, array in arrays.items():
        at = batch.schema.get_field_index(name)
        batch = batch.append_column(name, array) if at < 0 else batch.set_column(at, name, array)
    return batch


def _fixed_parts(path: str) -> list[str]:
    """Return the parts of the folder below which folders may name columns."""
    parts = _parts(path)
    if glob.has_magic(path) and (is_remote(path) or not Path(path).exists()):
        return list(takewhile(lambda part: not glob.has_magic(part), parts))
    return parts


def _parts(name: str) -> list[str]:
    return name.rstrip("/").split("/") if is_remote(name) else list(_as_posix(name).parts)


def _as_posix(name: str) -> PurePosixPath:
    return PurePosixPath(Path(name).as_posix())


def _type_of(values: Iterable[str | None]) -> pa.DataType:
    texts = [value for value in values if value is not None]
    integers = bool(texts) and all(map(_INTEGER.fullmatch, texts))
    return pa.int64() if integers else pa.string()


def _value(text: str, kind: pa.DataType) -> int | str | None:
    """Return what a text means as a value of a type; ``None`` if it is no such value."""
    if not pa.types.is_integer(kind):
        return text
    return int(text) if _INTEGER.fullmatch(text) else None


def _all_wrong(records: Records, detail: str) -> Records:
    rows = records.rows(np.arange(records.length), exact=True)
    letters = tuple(
        ErrorRecord(record, "wrong_type", detail, records.place(at))
        for at, record in enumerate(rows)
    )
    nothing = records.take(np.empty(0, dtype=np.int64))
    return replace(nothing, unreadable=(*records.unreadable, *letters))


def with_types(types: Mapping[str, pa.DataType], schema: pa.Schema) -> pa.Schema:
    """Return a schema with further columns, or others in the place of those of their names."""
    for name, kind in types.items():
        at = schema.get_field_index(name)
        field = pa.field(name, kind)
        schema = schema.append(field) if at < 0 else schema.set(at, field)
    return schema
