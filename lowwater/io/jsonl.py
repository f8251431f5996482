"""Files of one JSON object per line as a source."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast, final

import pyarrow as pa
import pyarrow.json as pa_json

from lowwater.engine.graph.sources import Position, read_rows
from lowwater.engine.records.batch import Records
from lowwater.engine.records.panes import ErrorRecord
from lowwater.errors import DataError
from lowwater.io.file_source import read_once, replay
from lowwater.io.follow import Follow
from lowwater.io.paths import files_of, would_match

_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
_FIRST_LINES = 4096
_DEEPEST = 500
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_READ_ERRORS = (OSError, EOFError)


@final
@dataclass(frozen=True, slots=True)
class JsonLinesSource:
    """Files of one JSON object per line, one file after the other; blank lines do not count.

    A field's type is the one it shows first; integers become floats where a fraction turns up. A
    line that is no JSON object is a dead letter (``malformed_json``), as is one with a value that
    is not of its field's type (``wrong_type``).

    Args:
        paths: Files, folders and globs.
        follow: How to wait for files that appear later; ``None``: end with the existing files.
    """

    paths: tuple[str, ...]
    follow: Follow | None = None

    @property
    def schema(self) -> pa.Schema | None:
        """The fields of the first lines; later lines may have others."""
        for path in files_of(self.paths, _SUFFIXES, maybe_none=self.follow is not None):
            reader = _LinesReader(_FIRST_LINES)
            if next(reader.read(path), None) is not None:
                return pa.schema(list(reader.types.items()))
        return None

    def reads(self, path: Path) -> bool:
        """Return whether a file would be read if it were there."""
        return would_match(self.paths, _SUFFIXES, path)

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        reader = _LinesReader(read_rows(size))
        return read_once(self.paths, _SUFFIXES, reader, self.follow)

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        reader = _LinesReader(read_rows(size))
        return replay(self.paths, _SUFFIXES, reader, position, self.follow)


@final
class _LinesReader:
    """Reads blocks of lines with Arrow, and line by line where that fails."""

    def __init__(self, rows: int) -> None:
        self.types: dict[str, pa.DataType] = {}
        self._rows = rows

    def read(self, path: Path) -> Iterator[Records]:
        """Yield a file's records."""
        row = 0
        try:
            with _open(path) as file:
                while lines := list(islice(file, _FIRST_LINES if not self.types else self._rows)):
                    yield self._block(lines, path, row)
                    row += len(lines)
        except _READ_ERRORS as error:
            raise DataError(
                f"the file cannot be read: {error}",
                where=str(path),
                hint="Write it again, or leave it out",
            ) from None

    def require_whole(self, path: Path) -> None:
        """Do nothing: a text file does not show whether it is complete."""

    def _block(self, lines: list[bytes], path: Path, row: int) -> Records:
        table = self._parse(lines)
        if table is None:
            return self._line_by_line(lines, path, row)
        columns = {name: table.column(name) for name in table.column_names}
        batch = pa.RecordBatch.from_pydict(
            {name: _in_one(column) for name, column in columns.items()}
        )
        for field in batch.schema:
            if field.name not in self.types or pa.types.is_null(self.types[field.name]):
                self.types[field.name] = field.type
        whole = not any(line.isspace() for line in lines)
        return Records.from_arrow(batch, str(path), row if whole else None)

    def _parse(self, lines: list[bytes]) -> pa.Table | None:
        """Parse a block of lines with Arrow; ``None`` if the result would not be exact."""
        block = b"".join(lines)
        expected = len(lines) - sum(line.isspace() for line in lines)
        if not expected or any(map(_too_deep, lines)):
            return None
        try:
            block.decode()
            table = _read_json(block, self.types)
            unknown = [f for f in table.schema if f.name not in self.types]
            texts = {f.name: pa.string() for f in unknown if pa.types.is_temporal(f.type)}
            if texts:  # JSON has no times: keep text that Arrow would parse as one
                table = _read_json(block, {**self.types, **texts})
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
            return None
        return table if table.num_rows == expected else None

    def _line_by_line(self, lines: list[bytes], path: Path, row: int) -> Records:
        objects: list[dict[str, Any]] = []
        places: list[int] = []
        letters: list[tuple[int, ErrorRecord]] = []
        for at, line in enumerate(lines, row + 1):
            if line.isspace():
                continue
            found, failure = _object(line)
            if found is None:
                text = line.decode(errors="replace").rstrip("\r\n")
                letter = ErrorRecord(text, "malformed_json", failure, f"{path}:{at}")
                letters.append((at, letter))
            else:
                objects.append(found)
                places.append(at)
        arrays, wrong = self._columns(objects)
        for index, detail in wrong.items():
            at = places[index]
            letter = ErrorRecord(objects[index], "wrong_type", detail, f"{path}:{at}")
            letters.append((at, letter))
        batch = pa.RecordBatch.from_pydict(arrays)
        if wrong:
            batch = batch.take(
                pa.array([i for i in range(len(objects)) if i not in wrong], pa.int64())
            )
        letters.sort(key=lambda letter: letter[0])
        records = Records.from_arrow(batch, str(path))
        return replace(records, unreadable=tuple(letter for _, letter in letters))

    def _columns(self, objects: list[dict[str, Any]]) -> tuple[dict[str, pa.Array], dict[int, str]]:
        names = dict.fromkeys((*self.types, *(name for row in objects for name in row)))
        wrong: dict[int, str] = {}
        arrays: dict[str, pa.Array] = {}
        for name in names:
            values = [row.get(name) for row in objects]
            arrays[name] = self._column(name, values, wrong)
            self.types[name] = arrays[name].type
        return arrays, wrong

    def _column(self, name: str, values: list[Any], wrong: dict[int, str]) -> pa.Array:
        kind = self.types.get(name, pa.null())
        if pa.types.is_null(kind):
            kind = _kind_of_first(values)
        if pa.types.is_integer(kind) and any(type(value) is float for value in values):
            kind = pa.float64()
        try:
            return _array(values, kind)
        except _BAD_VALUE:
            pass
        kept: list[Any] = []
        for index, value in enumerate(values):
            try:
                _array([value], kind)
                kept.append(value)
            except _BAD_VALUE:
                kept.append(None)
                wrong.setdefault(index, f"{name}={value!r} is not {kind}")
        return _array(kept, kind)


_BAD_VALUE = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    OverflowError,
    UnicodeEncodeError,  # half of a surrogate pair is no text
)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and any(
        type(value) is bool for value in values
    ):
        raise pa.ArrowTypeError("true and false are not numbers")
    return pa.array(values, type=kind)


def _kind_of_first(values: list[Any]) -> pa.DataType:
    for value in values:
        if value is not None:
            try:
                return pa.array([value]).type
            except _BAD_VALUE:
                continue
    return pa.null()


def _too_deep(line: bytes) -> bool:
    """Return whether values are nested so deeply that Arrow could overflow the stack."""
    if len(line) <= _DEEPEST or line.count(b"[") + line.count(b"{") <= _DEEPEST:
        return False
    depth = 0
    for bracket in _BRACKETS.findall(line):
        if bracket in (b"[", b"{"):
            depth += 1
            if depth > _DEEPEST:
                return True
        elif bracket in (b"]", b"}"):
            depth -= 1
    return False


def _object(line: bytes) -> tuple[dict[str, Any] | None, str]:
    if _too_deep(line):
        return None, f"values are nested more than {_DEEPEST} deep"
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return None, f"the line is not JSON: {error}"
    if not isinstance(found, dict):
        return None, f"the line holds a JSON {type(found).__name__}, not an object"
    return found, ""


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
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    return path.open("rb")
