"""Parquet files as a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import final

import pyarrow as pa
import pyarrow.parquet as pq

from lowwater.engine.graph.sources import Position, read_rows
from lowwater.engine.records.batch import Records, readable, require_open_names
from lowwater.engine.records.stateless import require_names
from lowwater.errors import DataError, DataWarning, InvalidArgument, warn
from lowwater.io.file_source import read_once, replay
from lowwater.io.follow import Follow
from lowwater.io.input_files import InputFiles
from lowwater.io.partitions import Partitions, with_arrays, with_types
from lowwater.io.paths import is_remote
from lowwater.io.stores import LOCAL, InputFile, Stores, is_of_store, store_failed
from lowwater.io.valid_text import checked_records

_SUFFIXES = (".parquet", ".pq")
_FIRST = 32
"""In how many files columns are looked for before the run."""
_FEW_VALUES = 10_000
_SMALL = 64 << 10
"""A file of this machine with so many bytes is not fetched before it is decoded."""
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
        """The columns of the first files, and those in the paths of all."""
        files = self.files.readable(_SUFFIXES, maybe_none=self.follow is not None)
        in_paths = Partitions(self.paths, self.columns).types(file.name for file in files)
        first, found = "", dict[str, pa.DataType]()
        for file in files[:_FIRST]:
            try:
                with _open(file) as opened:
                    schema = readable(opened.schema_arrow, file.name)
            except FileNotFoundError:  # which is an error once it is read
                continue
            except DataError:
                if self.follow is None and not first:  # else it may still be being written
                    raise
                continue  # which is an error, too, once it is read
            first = first or file.name
            _require_names(schema.names, self.columns, file.name)
            for column in schema:
                found[column.name] = _wider(found.get(column.name, pa.null()), column.type)
        if not first:
            return None
        schema = with_types(in_paths, pa.schema(list(found.items())))
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

    def up_to_now(self) -> ParquetSource:
        """Return the source of the files that are there now."""
        return replace(self, follow=Follow.up_to_now(self.follow))

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        reader = _FileReader(self, read_rows(size), keys)
        reader.learn(self.schema)
        return read_once(self.files, _SUFFIXES, reader, self.follow, self.columns)

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        reader = _FileReader(self, read_rows(size), keys)
        if position is None:
            reader.learn(self.schema)
        return replay(self.files, _SUFFIXES, reader, position, self.follow, only=self.columns)


@final
class _FileReader:
    """Reads whole files, with the types in the Parquet schema.

    A column that a file lacks and others have is null in its records, as on Spark.
    """

    def __init__(self, source: ParquetSource, rows: int, keys: tuple[str, ...]) -> None:
        self.types: dict[str, pa.DataType] = {}
        self._columns = source.columns
        self._in_paths = Partitions(source.paths, source.columns)
        self._rows = rows
        self._keys = keys
        self._told: set[str] = set()

    def learn(self, schema: pa.Schema | None) -> None:
        """Learn the columns of a file."""
        for column in schema or ():
            if pa.types.is_null(self.types.get(column.name, pa.null())):
                self.types[column.name] = column.type

    def expect(self, files: Sequence[InputFile]) -> None:
        """Do nothing: files are read one by one."""

    def read(self, file: InputFile) -> Iterator[Records]:
        """Yield a file's records."""
        name = file.name
        with _open(file) as opened:
            given, metadata = opened.schema_arrow, opened.metadata
        _require_names(given.names, self._columns, name)
        schema = readable(given, name)
        columns = list(given.names)
        if self._columns is not None:
            columns = [column for column in self._columns if column in given.names]
        self.learn(pa.schema([one for one in schema if one.name in columns]))
        absent = self._absent(name, columns)
        texts = tuple(key for key in self._keys if key in columns and _is_text(given, key))
        row, rows = 0, metadata.num_rows
        with _open(file, texts, metadata) as opened:
            wanted = None if self._columns is None else columns
            # Threads take longer to be told of a few values than to read them.
            some = rows * len(columns) > _FEW_VALUES
            batches = opened.iter_batches(batch_size=self._rows, columns=wanted, use_threads=some)
            while True:
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                except _UNREADABLE as error:
                    raise _unreadable(name, error) from None
                length = batch.num_rows
                if absent:
                    nulls = {one: pa.nulls(length, self.types[one]) for one in absent}
                    batch = with_arrays(batch, nulls)
                records = checked_records(batch, name, row)
                row += length
                yield replace(records, share=min(1.0, row / rows) if rows else None)

    def require_whole(self, file: InputFile) -> None:
        """Raise ``DataError`` if a file is not complete."""
        _open(file).close()

    def _absent(self, name: str, columns: list[str]) -> list[str]:
        """Return the columns that a file lacks; say so of each once."""
        in_path = self._in_paths.in_name(name)
        absent = [one for one in self.types if one not in columns and one not in in_path]
        for one in self._columns or ():
            if one not in columns and one not in in_path and one not in self.types:
                raise DataError(
                    f"there is no column {one!r} in this file, nor in those before it",
                    where=name,
                    hint="Leave the file out, or the column",
                )
        fresh = [one for one in absent if one not in self._told]
        self._told.update(fresh)
        for one in fresh:
            if self._columns is None or one in self._columns:
                warn(
                    DataWarning,
                    f"the file lacks the column {one!r}, which others have: it is null in its "
                    "records",
                    where=name,
                    hint="Write it with that column, or read it by itself",
                )
        return absent


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
    size = file.stat().size if local else source.size()
    if size == 0:
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
            pre_buffer=not local or size > _SMALL,
            # Nanoseconds, the default, end in 2262 and wrap.
            coerce_int96_timestamp_unit="us",
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


def _require_names(names: list[str], only: tuple[str, ...] | None, file: str) -> None:
    """Raise for a column with a reserved name, and for two of one name that are read."""
    require_open_names(names, file)
    for name in names if only is None else only:
        if names.count(name) > 1:
            raise InvalidArgument(f"two columns are called {name!r}", where=file, hint="Rename one")


def _wider(known: pa.DataType, found: pa.DataType) -> pa.DataType:
    """Return the first type of a column that has values; of integers, and of floats, the widest.

    Spark reads all files of a column as this type.
    """
    if pa.types.is_null(known):
        return found
    for is_one in (pa.types.is_signed_integer, pa.types.is_floating):
        if is_one(known) and is_one(found):
            return max(known, found, key=lambda kind: kind.bit_width)
    return known


def _is_text(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
