"""CSV files as a source."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from lowwater.engine.graph.sources import Position
from lowwater.engine.records.batch import Records, require_open_names
from lowwater.engine.records.panes import ErrorRecord
from lowwater.errors import DataError, InvalidArgument, nearest
from lowwater.io.file_source import read_once, replay
from lowwater.io.follow import Follow
from lowwater.io.input_files import InputFiles
from lowwater.io.stores import LOCAL, InputFile, LocalFile, Stores
from lowwater.time import Int64Array

_SUFFIXES = (".csv", ".csv.gz")
_BLOCK_BYTES = 8 << 20
_UTF8, _LATIN = "utf8", "latin-1"
_SAMPLE_BYTES = 64 << 10
_INTEGER = r"^\s*[+-]?\d+\s*$"


@final
@dataclass(frozen=True, slots=True)
class CsvSource:
    """CSV files with a header, one after the other.

    A column's type is what its values in the first 8 MB of the first file look like, unless
    ``types`` says it; integers become floats where a fraction turns up later. A row of the wrong
    length, or with a value that is not of its column's type, is a dead letter (``malformed_csv``,
    ``wrong_type``). An unquoted empty field is null.

    Event times are integers or text, whichever most of the first of them are.

    Args:
        paths: Files, folders and globs; objects by their names.
        types: Arrow types by column, for columns whose type is not to be inferred.
        time: The column of event times.
        delimiter: The field separator.
        follow: How to wait for files that appear later; ``None``: end with the existing files.
        fractions: Whether event times may be floats.
        stores: What opens objects.
    """

    paths: tuple[str, ...]
    types: Mapping[str, pa.DataType]
    time: str
    delimiter: str = ","
    follow: Follow | None = None
    fractions: bool = field(default=False, repr=False)
    stores: Stores = field(default=LOCAL, repr=False, compare=False)

    @property
    def schema(self) -> pa.Schema | None:
        for file in self.files.readable(_SUFFIXES, maybe_none=self.follow is not None):
            with suppress(FileNotFoundError):  # which is an error once it is read
                if file.stat().size:
                    return self._infer(file)
        return None

    @property
    def files(self) -> InputFiles:
        """The files that are read."""
        return InputFiles(self.paths, self.stores)

    def reads(self, path: Path | str) -> bool:
        """Return whether a file, or the object of a name, would be read if it were there."""
        return self.files.would_match(_SUFFIXES, path)

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        reader = _FilesReader(self)
        return read_once(self.files, _SUFFIXES, reader, self.follow)

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        return replay(self.files, _SUFFIXES, _FilesReader(self), position, self.follow)

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
        whole = file.stat().size <= _BLOCK_BYTES
        return pa.schema([field.with_type(self._settle(field, whole, file)) for field in schema])

    def _schema_of(self, file: InputFile, types: Mapping[str, pa.DataType]) -> pa.Schema:
        try:
            with _open(file, types, self.delimiter) as reader:
                return reader.schema
        except pa.ArrowInvalid:  # a row of the wrong length
            encoding = _encoding_of(file)
        skip = _open(file, types, self.delimiter, lambda _row: "skip", encoding=encoding)
        with skip as reader:
            return pa.schema(
                [field.with_name(_decoded(field.name, encoding)) for field in reader.schema]
            )

    def _settle(self, field: pa.Field, whole: bool, file: InputFile) -> pa.DataType:
        kind = self.types.get(field.name)
        if kind is not None:
            return kind
        kind = field.type
        if pa.types.is_null(kind):
            return kind if whole else pa.string()
        if field.name == self.time and not pa.types.is_integer(kind):
            if self.fractions and pa.types.is_floating(kind):
                return kind
            integers = pa.types.is_floating(kind) or self._has_integer_times(file)
            return pa.int64() if integers else pa.string()
        return pa.string() if pa.types.is_binary(kind) else kind

    def _has_integer_times(self, file: InputFile) -> bool:
        """Return whether most of the first event times are integers, although not all are."""
        raw = {self.time: pa.binary()}
        try:
            with _open(
                file, raw, self.delimiter, lambda _row: "skip", _SAMPLE_BYTES, _LATIN
            ) as reader:
                first = reader.read_next_batch().column(self.time)
        except (pa.ArrowInvalid, StopIteration, KeyError):  # a record is longer than the sample
            return False
        texts, _ = cast_rows(first, pa.string())
        integers = pc.sum(pc.match_substring_regex(texts, _INTEGER)).as_py() or 0
        return bool(2 * integers > len(texts) - texts.null_count)


@final
class _FilesReader:
    """Reads one file after another; column types carry over from file to file."""

    def __init__(self, source: CsvSource) -> None:
        self.types: dict[str, pa.DataType] = {}
        self._source = source

    def read(self, file: InputFile) -> Iterator[Records]:
        """Yield a file's records; an empty file has none."""
        if not file.stat().size:
            return
        if not self.types:
            self.types.update((field.name, field.type) for field in self._source._infer(file))
        source = self._source
        narrow = None if source.fractions else source.time
        yield from _FileReader(file, self.types, narrow, source.delimiter).records()

    def require_whole(self, file: InputFile) -> None:
        """Do nothing: a text file does not show whether it is complete."""


@final
class _FileReader:
    """Reads one file with Arrow's fast conversion; after the first error, row by row.

    Args:
        file: The file.
        types: Types by column, shared by all files; widened where necessary.
        narrow: The column of event times if it is never widened to floats.
        delimiter: The field separator.
    """

    def __init__(
        self, file: InputFile, types: dict[str, pa.DataType], narrow: str | None, delimiter: str
    ) -> None:
        self._file = file
        self._name = file.name
        self._types = types
        self._narrow = narrow
        self._delimiter = delimiter
        self._unread: list[ErrorRecord] = []
        self._noted: set[int] = set()
        self._encoding = _UTF8

    def records(self) -> Iterator[Records]:
        """Yield the file's records, with dead letters for rows that cannot be parsed."""
        done = 0
        try:
            reader = _open(self._file, self._types, self._delimiter)
            require_open_names(reader.schema.names, self._name)
            for batch in reader:
                yield self._with_unread(Records.from_arrow(batch, self._name, done))
                done += batch.num_rows
        except FileNotFoundError:
            raise
        except pa.ArrowInvalid:  # a row of the wrong length, or a value that is not of its type
            yield from self._with_care(done)
        except OSError as error:  # a damaged archive
            raise _unreadable(self._name, error, done) from None
        if self._unread:
            yield self._with_unread(Records({}, 0, self._name))

    def _with_care(self, done: int) -> Iterator[Records]:
        """Yield the records after the first ``done`` rows, converting values individually."""
        row = 0
        binary = dict.fromkeys(self._types, pa.binary())
        try:
            self._encoding = encoding = _encoding_of(self._file)
            for given in _open(self._file, binary, self._delimiter, self._note, encoding=encoding):
                batch = given if encoding == _UTF8 else _as_written(given)
                rest = batch.slice(max(0, done - row))
                row += batch.num_rows - rest.num_rows
                if rest.num_rows:
                    yield self._with_unread(self._convert(rest, row))
                row += rest.num_rows
        except FileNotFoundError:
            raise
        except (pa.ArrowInvalid, OSError) as error:
            raise _unreadable(self._name, error, row) from None

    def _convert(self, batch: pa.RecordBatch, row: int) -> Records:
        arrays: dict[str, pa.Array] = {}
        details: dict[int, str] = {}
        for name in batch.schema.names:
            raw = batch.column(name)
            made, bad = self._convert_column(name, raw)
            arrays[name] = made
            for at in bad.tolist():
                shown = (raw[at].as_py() or b"").decode(errors="replace")
                details.setdefault(at, f"{name}={shown!r} is not {self._types.get(name)}")
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

    def _convert_column(self, name: str, raw: pa.Array) -> tuple[pa.Array, Int64Array]:
        kind = self._types.get(name, pa.string())
        made, bad = cast_rows(raw, kind)
        if bad.size and pa.types.is_integer(kind) and name != self._narrow:
            wider, worse = cast_rows(raw, pa.float64())
            if worse.size < bad.size:
                self._types[name] = pa.float64()
                return wider, worse
        return made, bad

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


def cast_rows(raw: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Int64Array]:
    """Cast binary text to a type; return null where that fails, and the rows where it does.

    Arrow's cast fails as a whole, so a failing range is bisected until the bad values stand alone.
    """
    parts: list[pa.Array] = []
    bad: list[int] = []
    pending = [(0, len(raw))]
    while pending:
        low, high = pending.pop()
        try:
            parts.append(_cast(raw.slice(low, high - low), kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            if high - low == 1:
                parts.append(pa.nulls(1, kind))
                bad.append(low)
            else:
                middle = (low + high) // 2
                pending += [(middle, high), (low, middle)]
    made = pa.concat_arrays(parts) if parts else pa.nulls(0, kind)
    return made, np.array(bad, dtype=np.int64)


def _cast(raw: pa.Array, kind: pa.DataType) -> pa.Array:
    text = raw.cast(pa.string())
    if pa.types.is_string(kind):
        return text
    if pa.types.is_null(kind):
        return text if text.null_count < len(text) else pa.nulls(len(text))
    return pc.utf8_trim_whitespace(text).cast(kind)


def _open(
    file: InputFile,
    types: Mapping[str, pa.DataType],
    delimiter: str,
    on_invalid: Any = None,
    block_bytes: int = _BLOCK_BYTES,
    encoding: str = _UTF8,
) -> pa_csv.CSVStreamingReader:
    if encoding != _UTF8:
        types = {_encoded(name): kind for name, kind in types.items()}
    return pa_csv.open_csv(
        _stream(file),
        read_options=pa_csv.ReadOptions(
            block_size=block_bytes, use_threads=False, encoding=encoding
        ),
        parse_options=pa_csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, invalid_row_handler=on_invalid
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict(types), strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )


def _stream(file: InputFile) -> Any:
    """Return what Arrow reads: a path, whose ending shows the compression; or an open object."""
    if isinstance(file, LocalFile):
        return file.name
    opened = pa.PythonFile(file.open(), mode="r")
    return pa.CompressedInputStream(opened, "gzip") if file.name.endswith(".gz") else opened


def _encoding_of(file: InputFile) -> str:
    """Return as what to read a file that has rows of the wrong length, or other mistakes.

    Arrow passes the text of such a row to Python, which fails if it is not UTF-8. As Latin-1, in
    which each byte is a character, everything can be passed on and be restored.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    source = _stream(file)
    detect = isinstance(source, str)
    with pa.input_stream(source, compression="detect") if detect else source as opened:
        try:
            while data := opened.read(_BLOCK_BYTES):
                decoder.decode(data)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return _LATIN
    return _UTF8


def _encoded(name: str) -> str:
    return name.encode().decode(_LATIN)


def _decoded(text: str, encoding: str, errors: str = "strict") -> str:
    """Return text as it is in the file."""
    return text if encoding == _UTF8 else text.encode(_LATIN).decode(errors=errors)


def _as_written(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns of a batch that was read as Latin-1 with the bytes of the file."""
    columns = {
        _decoded(name, _LATIN): pa.array(
            [
                None if value is None else value.decode().encode(_LATIN)
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
