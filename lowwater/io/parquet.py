"""Parquet files as a source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
from lowwater.io.paths import files_of, would_match
from lowwater.io.valid_text import checked_records

_SUFFIXES = (".parquet", ".pq")
_UNREADABLE = (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError)


@final
@dataclass(frozen=True, slots=True)
class ParquetSource:
    """Parquet files, one after the other.

    Args:
        paths: Files, folders and globs.
        columns: Which columns to read; ``None`` for all.
        follow: How to wait for files that appear later; ``None``: end with the existing files.
    """

    paths: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    follow: Follow | None = None

    @property
    def schema(self) -> pa.Schema | None:
        first, schema = self._first()
        if schema is None:
            return None
        if self.columns is None:
            return schema
        require_names(self.columns, schema.names, str(first))
        return pa.schema([schema.field(name) for name in self.columns])

    def reads(self, path: Path) -> bool:
        """Return whether a file would be read if it were there."""
        return would_match(self.paths, _SUFFIXES, path)

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        reader = _FileReader(self, read_rows(size), keys)
        return read_once(self.paths, _SUFFIXES, reader, self.follow)

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        reader = _FileReader(self, read_rows(size), keys)
        return replay(self.paths, _SUFFIXES, reader, position, self.follow)

    def _first(self) -> tuple[Path | None, pa.Schema | None]:
        """Return the first readable file and its schema, if there is one."""
        for path in files_of(self.paths, _SUFFIXES, maybe_none=self.follow is not None):
            try:
                with _open(path, ()) as file:
                    return path, readable(file.schema_arrow, str(path))
            except DataError:
                if self.follow is None:  # when following, it may still be being written
                    raise
        return None, None

    def _read(self, path: Path, rows: int, keys: tuple[str, ...]) -> Iterator[Records]:
        with _open(path, ()) as file:
            schema = file.schema_arrow
            require_open_names(schema.names, str(path))
            if self.columns is not None:
                _require_columns(self.columns, schema, path)
        texts = [name for name in keys if name in schema.names and _is_text(schema, name)]
        columns = None if self.columns is None else list(self.columns)
        row = 0
        with _open(path, tuple(texts)) as file:
            batches = file.iter_batches(batch_size=rows, columns=columns)
            while True:
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                except _UNREADABLE as error:
                    raise _unreadable(path, error) from None
                yield checked_records(batch, str(path), row)
                row += batch.num_rows


@final
class _FileReader:
    """Reads whole files, with the types in the Parquet schema."""

    def __init__(self, source: ParquetSource, rows: int, keys: tuple[str, ...]) -> None:
        self.types: dict[str, pa.DataType] = {}
        self._source = source
        self._rows = rows
        self._keys = keys

    def read(self, path: Path) -> Iterator[Records]:
        return self._source._read(path, self._rows, self._keys)

    def require_whole(self, path: Path) -> None:
        _open(path, ()).close()


def _open(path: Path, dictionaries: tuple[str, ...]) -> pq.ParquetFile:
    if path.stat().st_size == 0:
        raise DataError(
            "the file is empty (0 bytes), so it is no Parquet file",
            where=str(path),
            hint="Write it again, or leave it out",
        )
    try:
        # No memory map: a file that shrinks while it is read would kill the process (SIGBUS).
        return pq.ParquetFile(path, read_dictionary=list(dictionaries), memory_map=False)
    except _UNREADABLE as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"the file cannot be read as Parquet; it may be truncated ({str(error).rstrip('.')})",
        where=str(path),
        hint="Write it again, or leave it out",
    )


def _require_columns(columns: tuple[str, ...], schema: pa.Schema, path: Path) -> None:
    for name in columns:
        if name not in schema.names:
            raise DataError(
                f"there is no column {name!r} in this file",
                where=str(path),
                hint="Leave the file out, or the column",
            )


def _is_text(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
