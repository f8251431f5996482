"""CSV files as a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from lowwater.engine.graph.sources import QUIET, Position
from lowwater.engine.records.batch import Records, require_open_names
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.stateless import require_names
from lowwater.errors import DataError, InvalidArgument, nearest
from lowwater.io.csv_bytes import (
    BLOCK_BYTES,
    LATIN,
    SAMPLE_BYTES,
    UTF8,
    Watched,
    begins_with_hex,
    encoding_of,
    opened_bytes,
)
from lowwater.io.csv_values import (
    cast_rows,
    convert,
    first_kind,
    first_odd,
    is_of_text,
    settled_kind,
)
from lowwater.io.file_source import read_once, replay
from lowwater.io.follow import Follow
from lowwater.io.input_files import InputFiles
from lowwater.io.partitions import Partitions, with_types
from lowwater.io.settled_types import EXACT, Values, is_beyond
from lowwater.io.stores import LOCAL, InputFile, Stores
from lowwater.time import Int64Array

_SUFFIXES = (".csv", ".csv.gz")
_FIRST = 32
"""In how many files a column without a value is looked for before the run."""
_INTEGER = r"^\s*[+-]?\d+\s*$"


@final
@dataclass(frozen=True, slots=True)
class CsvSource:
    """CSV files with a header, one after the other.

    A column's type is what its first values look like, in the first 8 MB of the first file that
    has any, unless ``types`` says it. Numbers are of one type, and none is rounded: an integer
    stays one beside fractions, but for a type that was given, which is strict. Where nine texts of
    ten are numbers, the others are wrong. A row of the wrong length, or with a value that is not of
    its column's type, is a dead letter (``malformed_csv``, ``wrong_type``). An unquoted empty field
    is null, and in columns that are not of text also a word such as ``NA``, ``null`` or ``nan``.

    Event times are integers or text, whichever most of the first of them are.

    Args:
        paths: Files, folders and globs; objects by their names.
        types: Arrow types by column, for columns whose type is not to be inferred.
        time: The column of event times.
        delimiter: The field separator.
        follow: How to wait for files that appear later; ``None``: end with the existing files.
        fractions: Whether event times may be floats.
        stores: What opens objects.
        columns: Which columns to read; ``None`` for all.
    """

    paths: tuple[str, ...]
    types: Mapping[str, pa.DataType]
    time: str
    delimiter: str = ","
    follow: Follow | None = None
    fractions: bool = field(default=False, repr=False)
    stores: Stores = field(default=LOCAL, repr=False, compare=False)
    columns: tuple[str, ...] | None = field(default=None, metadata={QUIET: True})

    @property
    def schema(self) -> pa.Schema | None:
        found: dict[str, pa.DataType] = {}
        files = self.files.readable(_SUFFIXES, maybe_none=self.follow is not None)
        for file in files[:_FIRST]:
            with suppress(FileNotFoundError):  # which is an error once it is read
                if file.stat().size:
                    for column in self._infer(file):
                        if pa.types.is_null(found.get(column.name, pa.null())):
                            found[column.name] = column.type
                    if not any(map(pa.types.is_null, found.values())):
                        break
        if not found:
            return None
        in_paths = Partitions(self.paths, self.columns).types(file.name for file in files)
        schema = with_types(in_paths, pa.schema(list(found.items())))
        if self.columns is None:
            return schema
        return pa.schema([schema.field(name) for name in self.columns if name in schema.names])

    @property
    def files(self) -> InputFiles:
        """The files that are read."""
        return InputFiles(self.paths, self.stores)

    def reads(self, path: Path | str) -> bool:
        """Return whether a file, or the object of a name, would be read if it were there."""
        return self.files.would_match(_SUFFIXES, path)

    def up_to_now(self) -> CsvSource:
        """Return the source of the files that are there now."""
        return replace(self, follow=Follow.up_to_now(self.follow))

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        reader = _FilesReader(self)
        return read_once(self.files, _SUFFIXES, reader, self.follow, self.columns)

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        reader = _FilesReader(self)
        return replay(self.files, _SUFFIXES, reader, position, self.follow, only=self.columns)

    def _infer(self, file: InputFile) -> pa.Schema:
        raw = dict.fromkeys(self.types, pa.binary())
        try:
            schema = self._schema_of(file, raw)
            names = schema.names
        except FileNotFoundError:
            raise
        except (pa.ArrowInvalid, UnicodeDecodeError, OSError) as error:
            raise _unreadable(file.name, error) from None
        if len(set(names)) < len(names):
            raise InvalidArgument(
                "two columns have one name", where=file.name, hint="Rename one in the header"
            )
        for name in self.types:
            if name not in names:
                raise InvalidArgument(
                    f"types= names a column {name!r} that is not there",
                    where=file.name,
                    hint=nearest(name, names),
                )
        if self.columns is not None:
            in_path = Partitions(self.paths).in_name(file.name)
            require_names(self.columns, [*names, *in_path], file.name)
        wanted = [field for field in schema if self.columns is None or field.name in self.columns]
        has_hex = begins_with_hex(file, self.delimiter)
        return pa.schema([one.with_type(self.settle(one, file, has_hex)) for one in wanted])

    def _schema_of(self, file: InputFile, types: Mapping[str, pa.DataType]) -> pa.Schema:
        try:
            with _open(file, types, self.delimiter) as reader:
                return reader.schema
        except pa.ArrowInvalid:  # a row of the wrong length
            encoding = encoding_of(file)
        skip = _open(file, types, self.delimiter, lambda _row: "skip", encoding=encoding)
        with skip as reader:
            return pa.schema(
                [field.with_name(_decoded(field.name, encoding)) for field in reader.schema]
            )

    def settle(self, field: pa.Field, file: InputFile, has_hex: bool) -> pa.DataType:
        """Return the type of a column, given what Arrow takes the first values for.

        Args:
            field: The column, of the type that Arrow takes it for.
            file: The file.
            has_hex: Whether some field begins with ``0x``.
        """
        kind = self.types.get(field.name)
        if kind is not None:
            return kind
        kind = field.type
        if pa.types.is_null(kind):
            return kind
        if field.name == self.time and not pa.types.is_integer(kind):
            if self.fractions and pa.types.is_floating(kind):
                return kind
            integers = pa.types.is_floating(kind) or self._has_integer_times(file)
            return pa.int64() if integers else pa.string()
        raw = partial(self._first_values, file, field.name)
        return settled_kind(kind, raw, has_hexadecimal=has_hex)

    def _first_values(self, file: InputFile, name: str) -> pa.Array:
        """Return the first values of a column as bytes: some, or none if a record is very long."""
        raw = {name: pa.binary()}
        try:
            with _open(
                file, raw, self.delimiter, lambda _row: "skip", SAMPLE_BYTES, LATIN, raw=True
            ) as reader:
                return reader.read_next_batch().column(_encoded(name)).cast(pa.binary())
        except (pa.ArrowInvalid, StopIteration, KeyError):
            return pa.array([], pa.binary())

    def first_odd(self, name: str) -> tuple[str, str] | None:
        """Return the place and the text of the first value of a column that is no number.

        ``None`` if there is none among the first of each file, or if those before it are none
        either: then the column is one of text.
        """
        for file in self.files.readable(_SUFFIXES, maybe_none=True)[:_FIRST]:
            with suppress(FileNotFoundError):
                row = first_odd(self._first_values(file, name))
                if row is not None:
                    at, text = row
                    return (f"{file.name}, row {at}", text) if at else None
        return None

    def _has_integer_times(self, file: InputFile) -> bool:
        """Return whether most of the first event times are integers, although not all are."""
        texts, _ = cast_rows(self._first_values(file, self.time), pa.string())
        integers = pc.sum(pc.match_substring_regex(texts, _INTEGER)).as_py() or 0
        return bool(2 * integers > len(texts) - texts.null_count)


@final
class _FilesReader:
    """Reads one file after another; column types carry over from file to file."""

    def __init__(self, source: CsvSource) -> None:
        self.types: dict[str, pa.DataType] = {}
        self._source = source

    def expect(self, files: Sequence[InputFile]) -> None:
        """Do nothing: files are read one by one."""

    def read(self, file: InputFile) -> Iterator[Records]:
        """Yield a file's records; an empty file has none."""
        size = file.stat().size
        if not size:
            return
        if not self.types:
            self.types.update((field.name, field.type) for field in self._source._infer(file))
        yield from _FileReader(file, size, self.types, self._source).records()

    def require_whole(self, file: InputFile) -> None:
        """Do nothing: a text file does not show whether it is complete."""


@final
class _FileReader:
    """Reads one file with Arrow's fast conversion; after the first error, value by value.

    Args:
        file: The file.
        size: How many bytes it has.
        types: Types by column, shared by all files; those of columns without a value are null.
        source: What is read.
    """

    def __init__(
        self, file: InputFile, size: int, types: dict[str, pa.DataType], source: CsvSource
    ) -> None:
        self._file = file
        self._size = size
        self._name = file.name
        self._types = types
        self._source = source
        self._delimiter = source.delimiter
        self._only: list[str] | None = None
        if source.columns is not None:
            in_path = Partitions(source.paths).in_name(self._name)
            self._only = [name for name in source.columns if name not in in_path]
        self._unread: list[ErrorRecord] = []
        self._noted: set[int] = set()
        self._encoding = UTF8

    def records(self) -> Iterator[Records]:
        """Yield the file's records, with dead letters for rows that cannot be parsed."""
        done = 0
        try:
            reader, watched = self._opened()
            for batch in reader:
                if (sound := self._exactly(batch, watched)) is None:
                    yield from self._with_care(done)
                    break
                records = self._with_unread(Records.from_arrow(sound, self._name, done))
                yield replace(records, share=watched.share(self._size))
                done += batch.num_rows
        except FileNotFoundError:
            raise
        except pa.ArrowInvalid:  # a row of the wrong length, or a value that is not of its type
            yield from self._with_care(done)
        except OSError as error:  # a damaged archive
            raise _unreadable(self._name, error, done) from None
        if self._unread:
            yield self._with_unread(Records({}, 0, self._name))

    def _opened(self) -> tuple[pa_csv.CSVStreamingReader, Watched]:
        """Open the file, and settle the types of columns that had no value before."""
        watched = Watched(opened_bytes(self._file), self._delimiter)
        try:
            reader = _open(watched, self._types, self._delimiter, only=self._only)
        except pa.ArrowKeyError as error:
            raise DataError(
                f"the file lacks a column that is to be read: {error.args[0]}",
                where=self._name,
                hint="Leave the file out, or the column",
            ) from None
        require_open_names(reader.schema.names, self._name)
        settled = False
        for column in reader.schema:
            known = self._types.get(column.name)
            if (known is None or pa.types.is_null(known)) and not pa.types.is_null(column.type):
                self._types[column.name] = self._source.settle(
                    column, self._file, watched.has_hexadecimal
                )
                settled = settled or self._types[column.name] != column.type
        if settled:
            reader.close()
            watched = Watched(opened_bytes(self._file), self._delimiter)
            reader = _open(watched, self._types, self._delimiter, only=self._only)
        return reader, watched

    def _exactly(self, batch: pa.RecordBatch, watched: Watched) -> pa.RecordBatch | None:
        """Return a batch as its text means it; ``None`` if it has to be read with care."""
        arrays = list(batch.columns)
        for at, array in enumerate(arrays):
            if is_of_text(array.type):
                plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
                lengths = pc.binary_length(plain)
                if len(array) and pc.min(lengths).as_py() == 0:
                    if watched.has_quoted_empty:  # which is no null
                        return None
                    nulled = pc.if_else(pc.equal(lengths, 0), None, plain)
                    is_coded = pa.types.is_dictionary(array.type)
                    arrays[at] = nulled.dictionary_encode() if is_coded else nulled
            elif pa.types.is_integer(array.type) and watched.has_hexadecimal:
                return None  # Arrow reads such texts as integers
            elif pa.types.is_float64(array.type) and is_beyond(array, EXACT):
                return None  # an integer may have been rounded
        return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    def _with_care(self, done: int) -> Iterator[Records]:
        """Yield the records after the first ``done`` rows, converting values individually."""
        row = 0
        binary = dict.fromkeys(self._types, pa.binary())
        try:
            self._encoding = encoding = encoding_of(self._file)
            counted = Watched(opened_bytes(self._file), self._delimiter, looks=False)
            raw = _open(
                counted, binary, self._delimiter, self._note,
                encoding=encoding, raw=True, only=self._only,
            )  # fmt: skip
            for given in raw:
                batch = given if encoding == UTF8 else _as_written(given)
                rest = batch.slice(max(0, done - row))
                row += batch.num_rows - rest.num_rows
                if rest.num_rows:
                    records = self._with_unread(self._convert(rest, row))
                    yield replace(records, share=counted.share(self._size))
                row += rest.num_rows
        except FileNotFoundError:
            raise
        except (pa.ArrowInvalid, OSError) as error:
            raise _unreadable(self._name, error, row) from None

    def _convert(self, batch: pa.RecordBatch, row: int) -> Records:
        columns: dict[str, Column] = {}
        details: dict[int, str] = {}
        for name in batch.schema.names:
            raw = batch.column(name)
            made, bad = self._convert_column(name, raw)
            is_odd = isinstance(made, list)
            columns[name] = Column.of_objects(made) if is_odd else Column.from_arrow(made)
            for at in bad.tolist():
                shown = (raw[at].as_py() or b"").decode(errors="replace")
                details.setdefault(at, self._wrong(name, shown))
        if any(column.arrow is None for column in columns.values()):
            records = Records(columns, batch.num_rows, self._name, row)
        else:
            arrays = {name: column.arrow for name, column in columns.items()}
            records = Records.from_arrow(pa.RecordBatch.from_pydict(arrays), self._name, row)
        if not details:
            return records
        for at in sorted(details):
            raw_row = batch.slice(at, 1).to_pylist()[0]
            letter = {
                n: None if v is None else v.decode(errors="replace") for n, v in raw_row.items()
            }
            place = records.place(at)
            self._unread.append(ErrorRecord(letter, "wrong_type", details[at], place))
        sound = np.setdiff1d(np.arange(batch.num_rows), np.array(sorted(details)))
        return records.take(sound)

    def _convert_column(self, name: str, raw: pa.Array) -> tuple[Values, Int64Array]:
        kind = self._types.get(name, pa.null())
        source = self._source
        if pa.types.is_null(kind):
            kind = first_kind(raw)
            if name == source.time and not pa.types.is_null(kind) and kind != pa.int64():
                is_float = source.fractions and pa.types.is_float64(kind)
                kind = kind if is_float else pa.string()
            self._types[name] = kind
        narrow = name == source.time and not source.fractions
        return convert(raw, kind, strict=narrow or name in source.types)

    def _wrong(self, name: str, shown: str) -> str:
        detail = f"{name}={shown!r} is not {self._types.get(name)}"
        return detail if name in self._source.types else f"{detail}; types= can name another"

    def _note(self, row: pa_csv.InvalidRow) -> str:
        number = len(self._noted) if row.number is None else row.number
        if number not in self._noted:
            self._noted.add(number)
            detail = f"{row.actual_columns} fields instead of {row.expected_columns}"
            where = f"{self._name}:{number}"
            text = _decoded(row.text, self._encoding, "replace")
            self._unread.append(ErrorRecord(text, "malformed_csv", detail, where))
        return "skip"

    def _with_unread(self, records: Records) -> Records:
        unread, self._unread = self._unread, []
        return replace(records, unreadable=tuple(unread))


def _open(
    file: InputFile | Watched,
    types: Mapping[str, pa.DataType],
    delimiter: str,
    on_invalid: Any = None,
    block_bytes: int = BLOCK_BYTES,
    encoding: str = UTF8,
    *,
    raw: bool = False,
    only: Sequence[str] | None = None,
) -> pa_csv.CSVStreamingReader:
    """Open a file.

    Of columns with a type, those of text have no nulls: an empty text stands for one. Read raw, all
    columns are bytes, and null where a field is empty and not quoted.

    Raises:
        ArrowKeyError: There is none of a name in ``only``.
    """
    types = {name: kind for name, kind in types.items() if not pa.types.is_null(kind)}
    if encoding != UTF8:
        types = {_encoded(name): kind for name, kind in types.items()}
        only = None if only is None else [_encoded(name) for name in only]
    return pa_csv.open_csv(
        pa.PythonFile(file, mode="r") if isinstance(file, Watched) else opened_bytes(file),
        read_options=pa_csv.ReadOptions(
            block_size=block_bytes, use_threads=False, encoding=encoding
        ),
        parse_options=pa_csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, invalid_row_handler=on_invalid
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types=types,
            include_columns=only,
            strings_can_be_null=raw,
            quoted_strings_can_be_null=False,
            null_values=[""] if raw else None,
        ),
    )


def _encoded(name: str) -> str:
    return name.encode().decode(LATIN)


def _decoded(text: str, encoding: str, errors: str = "strict") -> str:
    """Return text as it is in the file."""
    return text if encoding == UTF8 else text.encode(LATIN).decode(errors=errors)


def _as_written(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns of a batch that was read as Latin-1 with the bytes of the file."""
    columns = {
        _decoded(name, LATIN): pa.array(
            [
                None if value is None else value.decode().encode(LATIN)
                for value in column.cast(pa.binary()).to_pylist()
            ],
            pa.binary(),
        )
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    return pa.RecordBatch.from_pydict(columns)


def _unreadable(name: str, error: Exception, row: int | None = None) -> DataError:
    after = f" after row {row - 1}" if row else ""
    return DataError(
        f"the file cannot be read as CSV{after}: {str(error).rstrip('.')}",
        where=name,
        hint="Write it again with a header and one record per line, or leave it out",
    )
