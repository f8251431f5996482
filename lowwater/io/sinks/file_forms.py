"""The formats of files of panes: how one is written, and how several become one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import BinaryIO, Protocol, final

import pyarrow as pa
import pyarrow.parquet as pq

from lowwater.engine.records.json_lines import json_lines
from lowwater.engine.records.json_rows import as_json, without_tags
from lowwater.io.sinks.folder_files import FileSet

ROW_GROUP_ROWS = 131_072
"""How many rows a row group of a joined Parquet file has, but for the last."""


class FileForm(Protocol):
    """A format of files of panes."""

    name: str
    suffix: str

    def encode(self, panes: pa.Table) -> bytes:
        """Return a file with these rows: the same bytes for the same rows."""
        ...

    def rows(self, data: bytes) -> int:
        """Return how many rows a file has.

        Raises:
            pyarrow.ArrowException: It is damaged.
        """
        ...

    def schema(self, files: FileSet, name: str) -> pa.Schema:
        """Return the columns of a file, if they must be alike in files that are joined."""
        ...

    def join(self, files: FileSet, names: Sequence[str], into: BinaryIO) -> None:
        """Write the rows of files with one schema, but for null types, in order, as one file."""
        ...


@final
class LineFiles:
    """JSON lines. Files are joined byte by byte."""

    name = "JSON lines"
    suffix = ".jsonl"

    def encode(self, panes: pa.Table) -> bytes:
        return json_lines(panes)

    def rows(self, data: bytes) -> int:
        return data.count(b"\n")

    def schema(self, files: FileSet, name: str) -> pa.Schema:
        return pa.schema([])

    def join(self, files: FileSet, names: Sequence[str], into: BinaryIO) -> None:
        for name in names:
            with files.open(name) as lines:
                shutil.copyfileobj(lines, into, 1 << 20)


@final
class ParquetFiles:
    """Parquet. Values that it has no type for are JSON text."""

    name = "Parquet"
    suffix = ".parquet"

    def encode(self, panes: pa.Table) -> bytes:
        # How the rows are cut into chunks, and dictionaries with them, must not show in the file.
        table = without_tags(panes).unify_dictionaries().combine_chunks()
        try:
            return _written(table)
        except pa.ArrowNotImplementedError:
            for place, field in enumerate(table.schema):
                if not _is_writable(field):
                    table = as_json(table, place)
            return _written(table)

    def rows(self, data: bytes) -> int:
        rows: int = pq.read_metadata(pa.BufferReader(data)).num_rows
        return rows

    def schema(self, files: FileSet, name: str) -> pa.Schema:
        with files.open(name) as file:
            return pq.read_schema(file)

    def join(self, files: FileSet, names: Sequence[str], into: BinaryIO) -> None:
        schema = reduce(settled_schema, (self.schema(files, name) for name in names))
        with pq.ParquetWriter(into, schema, compression="zstd") as writer:
            for table in _in_row_groups(files, names, schema):
                writer.write_table(table)


FORMS: tuple[FileForm, ...] = (LineFiles(), ParquetFiles())


def form_of(name: str) -> FileForm:
    """Return the format of a file that a sink wrote."""
    (form,) = (form for form in FORMS if name.endswith(form.suffix))
    return form


def settled_schema(known: pa.Schema, found: pa.Schema) -> pa.Schema:
    """Return a schema in which null types are those that columns of another one have."""
    types = {field.name: field.type for field in found}
    fields = [f.with_type(_settled(f.type, types.get(f.name, f.type))) for f in known]
    return pa.schema(fields, known.metadata)


def has_null_type(kind: pa.DataType) -> bool:
    """Return whether a type is null, or there is a null type in it."""
    if pa.types.is_nested(kind):
        return any(has_null_type(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_null(kind))


def _settled(kind: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind):
        return other
    if pa.types.is_list(kind) and pa.types.is_list(other):
        item = kind.value_field
        return pa.list_(item.with_type(_settled(item.type, other.value_type)))
    if pa.types.is_large_list(kind) and pa.types.is_large_list(other):
        item = kind.value_field
        return pa.large_list(item.with_type(_settled(item.type, other.value_type)))
    if pa.types.is_struct(kind) and pa.types.is_struct(other):
        types = {field.name: field.type for field in other}
        return pa.struct([f.with_type(_settled(f.type, types.get(f.name, f.type))) for f in kind])
    return kind


def _in_row_groups(files: FileSet, names: Sequence[str], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of files in tables of a row group each: a delivery may have but a few."""
    waiting: list[pa.Table] = []
    rows = 0
    for name in names:
        with files.open(name) as opened, pq.ParquetFile(opened) as file:
            for batch in file.iter_batches(ROW_GROUP_ROWS):
                waiting.append(pa.Table.from_batches([batch]).cast(schema))
                rows += batch.num_rows
                if rows >= ROW_GROUP_ROWS:
                    yield pa.concat_tables(waiting)
                    waiting, rows = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def _is_writable(field: pa.Field) -> bool:
    try:
        _written(pa.schema([field]).empty_table())
    except pa.ArrowNotImplementedError:
        return False
    return True


def _written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data
