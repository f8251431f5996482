"""Parquet files as a source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import pyarrow as pa
import pyarrow.parquet as pq

from lowwater.engine.graph.sources import Position, read_rows
from lowwater.engine.records.batch import Records, readable, require_open_names
from lowwater.engine.records.stateless import require_names
from lowwater.errors import DataError
from lowwater.io.file_source import read_once, replay
from lowwater.io.follow import Follow
from lowwater.io.input_files import InputFiles
from lowwater.io.paths import is_remote
from lowwater.io.stores import LOCAL, InputFile, Stores, is_of_store, store_failed
from lowwater.io.valid_text import checked_records

_SUFFIXES = (".parquet", ".pq")
_UNREADABLE = (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError)


@final
@dataclass(frozen=True, slots=True)
class ParquetSource:
    """Parquet files, one after the other.

    Args:
        paths: Files, folders and globs; objects by their names.
        columns: Which columns to read; ``None`` for all.
        follow: How to wait for files that appear later; ``None``: end with the existing files.
        stores: What opens objects.
    """

    paths: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    follow: Follow | None = None
    stores: Stores = field(default=LOCAL, repr=False, compare=False)

    @property
    def schema(self) -> pa.Schema | None:
        first, schema = self._first()
        if schema is None:
            return None
        if self.columns is None:
            return schema
        require_names(self.columns, schema.names, first)
        return pa.schema([schema.field(name) for name in self.columns])

    @property
    def files(self) -> InputFiles:
        """The files that are read."""
        return InputFiles(self.paths, self.stores)

    def reads(self, path: Path | str) -> bool:
        """Return whether a file, or the object of a name, would be read if it were there."""
        return self.files.would_match(_SUFFIXES, path)

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        reader = _FileReader(self, read_rows(size), keys)
        return read_once(self.files, _SUFFIXES, reader, self.follow)

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        reader = _FileReader(self, read_rows(size), keys)
        return replay(self.files, _SUFFIXES, reader, position, self.follow)

    def _first(self) -> tuple[str, pa.Schema | None]:
        """Return the name of the first readable file and its schema, if there is one."""
        for file in self.files.readable(_SUFFIXES, maybe_none=self.follow is not None):
            try:
                with _open(file) as opened:
                    return file.name, readable(opened.schema_arrow, file.name)
            except FileNotFoundError:  # which is an error once it is read
                continue
            except DataError:
                if self.follow is None:  # when following, it may still be being written
                    raise
        return "", None

    def _read(self, file: InputFile, rows: int, keys: tuple[str, ...]) -> Iterator[Records]:
        name = file.name
        with _open(file) as opened:
            schema, metadata = opened.schema_arrow, opened.metadata
            require_open_names(schema.names, name)
            if self.columns is not None:
                _require_columns(self.columns, schema, name)
        texts = tuple(key for key in keys if key in schema.names and _is_text(schema, key))
        columns = None if self.columns is None else list(self.columns)
        row = 0
        with _open(file, texts, metadata) as opened:
            batches = opened.iter_batches(batch_size=rows, columns=columns)
            while True:
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                except _UNREADABLE as error:
                    raise _unreadable(name, error) from None
                yield checked_records(batch, name, row)
                row += batch.num_rows


@final
class _FileReader:
    """Reads whole files, with the types in the Parquet schema."""

    def __init__(self, source: ParquetSource, rows: int, keys: tuple[str, ...]) -> None:
        self.types: dict[str, pa.DataType] = {}
        self._source = source
        self._rows = rows
        self._keys = keys

    def read(self, file: InputFile) -> Iterator[Records]:
        return self._source._read(file, self._rows, self._keys)

    def require_whole(self, file: InputFile) -> None:
        _open(file).close()


def _open(
    file: InputFile,
    dictionaries: tuple[str, ...] = (),
    metadata: pq.FileMetaData | None = None,
) -> pq.ParquetFile:
    """Open a file.

    Args:
        file: The file.
        dictionaries: The columns of text to read as dictionaries.
        metadata: What its footer says, if that was read just now; used for objects, of which each
            part is a request.
    """
    source = file.for_arrow()
    local = isinstance(source, str)
    if (file.stat().size if local else source.size()) == 0:
        raise DataError(
            "the file is empty (0 bytes), so it is no Parquet file",
            where=file.name,
            hint="Write it again, or leave it out",
        )
    try:
        # No memory map: a file that shrinks while it is read would kill the process (SIGBUS).
        return pq.ParquetFile(
            source,
            metadata=None if local else metadata,
            read_dictionary=list(dictionaries),
            memory_map=False,
        )
    except _UNREADABLE as error:
        raise _unreadable(file.name, error) from None


def _unreadable(name: str, error: Exception) -> DataError:
    if is_remote(name) and is_of_store(error):
        return store_failed(name, error)
    return DataError(
        f"the file cannot be read as Parquet; it may be truncated ({str(error).rstrip('.')})",
        where=name,
        hint="Write it again, or leave it out",
    )


def _require_columns(columns: tuple[str, ...], schema: pa.Schema, file: str) -> None:
    for name in columns:
        if name not in schema.names:
            raise DataError(
                f"there is no column {name!r} in this file",
                where=file,
                hint="Leave the file out, or the column",
            )


def _is_text(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
