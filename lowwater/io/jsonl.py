"""Files of one JSON object per line as a source."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast, final

import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json

from lowwater.engine.graph.sources import Position, read_rows
from lowwater.engine.records.batch import HIDDEN, Records, is_too_deep
from lowwater.engine.records.panes import ErrorRecord
from lowwater.errors import DataError
from lowwater.io.file_source import read_once, replay
from lowwater.io.follow import Follow
from lowwater.io.json_objects import columns_of_objects, is_deep, is_time, object_of
from lowwater.io.paths import files_of, would_match

_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
_FIRST_LINES = 4096
_READ_ERRORS = (OSError, EOFError, zlib.error)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAY_OVERFLOW = 500
"""Lines of at most this many bytes cannot nest values so deeply that Arrow overflows the stack."""
_GZIP = b"\x1f\x8b"
_COMPRESSED = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xfd7zXZ": "xz",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
}
"""The first bytes of files that no JSON text begins with."""
_LONGEST_MAGIC = 5
_NEWLINE, _RETURN, _OPENING, _CLOSING = b"\n\r{}"


@final
@dataclass(frozen=True, slots=True)
class JsonLinesSource:
    """Files of one JSON object per line, one file after the other; blank lines do not count.

    A field's type is the one that most of the first lines show; integers become floats where a
    fraction turns up, except in the field of event times. A line that is no JSON object is a dead
    letter (``malformed_json``), as is one with a value that is not of its field's type
    (``wrong_type``).

    Args:
        paths: Files, folders and globs.
        time: The field of event times: integers or text.
        follow: How to wait for files that appear later; ``None``: end with the existing files.
        fractions: Whether event times may be floats.
    """

    paths: tuple[str, ...]
    time: str
    follow: Follow | None = None
    fractions: bool = field(default=False, repr=False)

    @property
    def schema(self) -> pa.Schema | None:
        """The fields of the first lines; later lines may have others.

        Files are tried until one has event times, so that a file without any usable line does not
        hide the fields of the others.
        """
        reader = _LinesReader(_FIRST_LINES, self.time, self.fractions)
        for path in files_of(self.paths, _SUFFIXES, maybe_none=self.follow is not None):
            next(reader.read(path), None)
            if self.time in reader.types:
                break
        return pa.schema(list(reader.types.items())) if reader.types else None

    def reads(self, path: Path) -> bool:
        """Return whether a file would be read if it were there."""
        return would_match(self.paths, _SUFFIXES, path)

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        reader = self._reader(size)
        return read_once(self.paths, _SUFFIXES, reader, self.follow)

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        reader = (
            _LinesReader(read_rows(size), self.time, self.fractions)
            if position
            else self._reader(size)
        )
        return replay(self.paths, _SUFFIXES, reader, position, self.follow)

    def _reader(self, size: int) -> _LinesReader:
        """Return a reader that knows the fields against which the pipeline was checked."""
        reader = _LinesReader(read_rows(size), self.time, self.fractions)
        reader.types.update((field.name, field.type) for field in self.schema or ())
        return reader


@final
class _LinesReader:
    """Reads blocks of lines with Arrow, and line by line where that fails.

    Args:
        rows: How many lines a block has, but for the first.
        time: The field of event times.
        fractions: Whether event times may be floats.
    """

    def __init__(self, rows: int, time: str, fractions: bool) -> None:
        self.types: dict[str, pa.DataType] = {}
        self._rows = rows
        self._time = time
        self._fractions = fractions

    def read(self, path: Path) -> Iterator[Records]:
        """Yield a file's records."""
        row = 0
        try:
            with _open(path) as file:
                while lines := list(islice(file, _FIRST_LINES if not self.types else self._rows)):
                    if not row and lines[0].startswith(_BYTE_ORDER_MARK):
                        lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK) or b"\n"
                    yield self._block(lines, path, row)
                    row += len(lines)
        except FileNotFoundError:
            raise
        except _READ_ERRORS as error:
            raise DataError(
                f"the file cannot be read after line {row}: {error}",
                where=str(path),
                hint="Write it again, or leave it out",
            ) from None

    def require_whole(self, path: Path) -> None:
        """Do nothing: a text file does not show whether it is complete."""

    def _block(self, lines: list[bytes], path: Path, row: int) -> Records:
        table = self._parse(lines)
        if table is None:
            return self._line_by_line(lines, path, row)
        arrays = {name: _in_one(table.column(name)) for name in table.column_names}
        for name, array in arrays.items():
            known = self.types.get(name)
            if known is None or pa.types.is_null(known) or pa.types.is_nested(known):
                self.types[name] = array.type
        batch = self._with_time(arrays, table.num_rows)
        return Records.from_arrow(batch, str(path), row if table.num_rows == len(lines) else None)

    def _with_time(self, arrays: dict[str, pa.Array], length: int) -> pa.RecordBatch:
        """Return a batch that has event times, null where no line of the block has any."""
        if self._time not in arrays:
            arrays[self._time] = pa.nulls(length, self.types.get(self._time, pa.null()))
        return pa.RecordBatch.from_pydict(arrays)

    def _parse(self, lines: list[bytes]) -> pa.Table | None:
        """Parse a block of lines with Arrow; ``None`` if the result would not be exact."""
        block = b"".join(lines)
        expected = _count_objects(block, lines)
        if not expected:
            return None
        try:
            block.decode()
            table = _read_json(block, self.types)
            unknown = [f for f in table.schema if f.name not in self.types]
            texts = {f.name: pa.string() for f in unknown if pa.types.is_temporal(f.type)}
            if texts:  # JSON has no times: keep text that Arrow would parse as one
                table = _read_json(block, {**self.types, **texts})
            # Arrow leaves out nulls at the beginning of a list whose type it infers (51305).
            table.validate()
        except (
            pa.ArrowInvalid,
            pa.ArrowNotImplementedError,
            UnicodeDecodeError,
            OverflowError,  # a block of 2 GB
        ):
            return None
        return table if table.num_rows == expected and self._is_sound(table.schema) else None

    def _is_sound(self, schema: pa.Schema) -> bool:
        """Return whether fields have usable names, depths and event times."""
        if any(field.name.startswith(HIDDEN) or is_too_deep(field.type) for field in schema):
            return False
        place = schema.get_field_index(self._time)
        return place < 0 or is_time(schema.field(place).type, self._fractions)

    def _line_by_line(self, lines: list[bytes], path: Path, row: int) -> Records:
        objects: list[dict[str, Any]] = []
        rows: list[int] = []
        letters: list[tuple[int, ErrorRecord]] = []
        for at, line in enumerate(lines, row):
            if line.isspace():
                continue
            found, failure = object_of(line)
            if found is None:
                text = line.decode(errors="replace").rstrip("\r\n")
                letter = ErrorRecord(text, "malformed_json", failure, f"{path}:{at + 1}")
                letters.append((at, letter))
            else:
                objects.append(found)
                rows.append(at)
        arrays, wrong = columns_of_objects(objects, self.types, self._time, self._fractions)
        self.types.update((name, array.type) for name, array in arrays.items())
        for index, detail in wrong.items():
            at = rows[index]
            letter = ErrorRecord(objects[index], "wrong_type", detail, f"{path}:{at + 1}")
            letters.append((at, letter))
        batch = self._with_time(arrays, len(objects))
        numbers = np.array(rows, dtype=np.int64)
        if wrong:
            kept = np.array([i for i in range(len(objects)) if i not in wrong], dtype=np.int64)
            batch, numbers = batch.take(pa.array(kept)), numbers[kept]
        letters.sort(key=lambda letter: letter[0])
        unreadable = tuple(letter for _, letter in letters)
        if not batch.num_rows:  # no column is missing from lines that are all unusable
            return Records({}, 0, str(path), unreadable=unreadable)
        records = Records.from_arrow(batch, str(path))
        return replace(records, row_numbers=numbers, unreadable=unreadable)


def _count_objects(block: bytes, lines: list[bytes]) -> int | None:
    """Return how many lines are not blank; ``None`` if one does not look like an object.

    Arrow reads values from a block whatever lines they are on, and a ``null`` that precedes all
    objects ends the process (47409). If each line begins and ends with a brace, no object spans two
    lines, as neither may follow the other inside an object. As many objects as lines then means one
    on each.
    """
    lengths = np.fromiter(map(len, lines), np.int64, len(lines))
    bytes_ = np.frombuffer(block, np.uint8)
    ends = np.cumsum(lengths)
    last = ends - 1
    last = last - (bytes_[last] == _NEWLINE)
    last = last - (bytes_[last] == _RETURN)
    odd = (bytes_[ends - lengths] != _OPENING) | (bytes_[last] != _CLOSING)
    blank = 0
    for at in np.flatnonzero(odd).tolist():
        line = lines[at].strip()
        if line and not (line.startswith(b"{") and line.endswith(b"}")):
            return None
        blank += not line
    long = np.flatnonzero(lengths > _MAY_OVERFLOW).tolist()
    if any(is_deep(lines[at], _MAY_OVERFLOW) for at in long):
        return None
    return len(lines) - blank


def _read_json(block: bytes, types: dict[str, pa.DataType]) -> pa.Table:
    known = {name: kind for name, kind in types.items() if not pa.types.is_null(kind)}
    return pa_json.read_json(
        BytesIO(block),
        # A single block, because Arrow infers the types of each block separately.
        read_options=pa_json.ReadOptions(block_size=len(block) + 1, use_threads=True),
        parse_options=pa_json.ParseOptions(explicit_schema=pa.schema(list(known.items()))),
    )


def _in_one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        start = file.read(_LONGEST_MAGIC)
    if path.suffix == ".gz" or start.startswith(_GZIP):
        return cast(IO[bytes], gzip.open(path, "rb"))
    for magic, name in _COMPRESSED.items():
        if start.startswith(magic):
            raise DataError(
                f"the file is compressed with {name}",
                where=str(path),
                hint="Decompress it, or compress it with gzip",
            )
    return path.open("rb")
