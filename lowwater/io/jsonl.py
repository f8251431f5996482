"""Files of one JSON object per line as a source."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import IO, cast, final

import pyarrow as pa

from lowwater.engine.graph.sources import QUIET, Position, read_rows
from lowwater.engine.records.batch import Records
from lowwater.errors import DataError
from lowwater.io.file_source import read_once, replay
from lowwater.io.files_ahead import FilesAhead
from lowwater.io.follow import Follow
from lowwater.io.input_files import InputFiles
from lowwater.io.json_blocks import JsonBlocks, with_odd
from lowwater.io.partitions import Partitions, with_types
from lowwater.io.stores import LOCAL, InputFile, Stores, size_of

_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
_FIRST_LINES = 4096
_FIRST_FILES = 32
"""By how many lines, of how many files, the types of the fields are settled."""
_READ_ERRORS = (OSError, EOFError, zlib.error)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
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


@final
@dataclass(frozen=True, slots=True)
class JsonLinesSource:
    """Files of one JSON object per line, one file after the other; blank lines do not count.

    A field's type is the one that most of the first lines of all files show, but for nulls; a field
    that is null in all of these is settled by its first value. Numbers are of one type, and none is
    rounded: an integer stays one beside fractions. Times are text. A line that is no JSON object is
    a dead letter (``malformed_json``), as is one with a value that is not of its field's type
    (``wrong_type``).

    Args:
        paths: Files, folders and globs; objects by their names.
        time: The field of event times: integers or text.
        follow: How to wait for files that appear later; ``None``: end with the existing files.
        fractions: Whether event times may be floats.
        stores: What opens objects.
        columns: Which fields to read; ``None`` for all.
        types: Arrow types by field, for fields whose type is not to be settled.
    """

    paths: tuple[str, ...]
    time: str
    follow: Follow | None = None
    fractions: bool = field(default=False, repr=False)
    stores: Stores = field(default=LOCAL, repr=False, compare=False)
    columns: tuple[str, ...] | None = field(default=None, metadata={QUIET: True})
    types: Mapping[str, pa.DataType] = field(default_factory=dict, metadata={QUIET: True})

    @property
    def schema(self) -> pa.Schema | None:
        """The fields of the first lines of all files; later lines may have others.

        Further files are tried until one has event times, so that files without any usable line do
        not hide the fields of the others.
        """
        reader = _LinesReader(self, _FIRST_LINES)
        lines: list[bytes] = []
        files = self.files.readable(_SUFFIXES, maybe_none=self.follow is not None)
        for number, file in enumerate(files):
            with suppress(FileNotFoundError):  # which is an error once it is read
                lines += reader.first_lines(file, _FIRST_LINES - len(lines))
            if len(lines) < _FIRST_LINES and number + 1 < min(_FIRST_FILES, len(files)):
                continue
            reader.settle(lines)
            if self.time in reader.types:
                break
            lines = []
        if not reader.types:
            return None
        in_paths = Partitions(self.paths, self.columns).types(file.name for file in files)
        return with_types(in_paths, pa.schema(list(reader.types.items())))

    @property
    def files(self) -> InputFiles:
        """The files that are read."""
        return InputFiles(self.paths, self.stores)

    def reads(self, path: Path | str) -> bool:
        """Return whether a file, or the object of a name, would be read if it were there."""
        return self.files.would_match(_SUFFIXES, path)

    def up_to_now(self) -> JsonLinesSource:
        """Return the source of the files that are there now."""
        return replace(self, follow=Follow.up_to_now(self.follow))

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        reader = self._reader(size)
        return read_once(self.files, _SUFFIXES, reader, self.follow, self.columns)

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        reader = _LinesReader(self, read_rows(size)) if position else self._reader(size)
        return replay(self.files, _SUFFIXES, reader, position, self.follow, only=self.columns)

    def _reader(self, size: int) -> _LinesReader:
        """Return a reader that knows the fields against which the pipeline was checked."""
        reader = _LinesReader(self, read_rows(size))
        reader.types.update((field.name, field.type) for field in self.schema or ())
        return reader


@final
class _LinesReader:
    """Reads files in blocks of lines.

    Args:
        source: What is read.
        rows: How many lines a block has, but for the first.
    """

    def __init__(self, source: JsonLinesSource, rows: int) -> None:
        self._rows = rows
        only = None if source.columns is None else frozenset(source.columns)
        self._blocks = JsonBlocks(
            source.time, source.fractions, skips_blank=True, only=only, given=source.types
        )
        self.types = self._blocks.types
        self._ahead = FilesAhead(self._blocks)

    def expect(self, files: Sequence[InputFile]) -> None:
        """Note which files are read next, in order."""
        self._ahead.expect(files)

    def read(self, file: InputFile) -> Iterator[Records]:
        """Yield a file's records."""
        batch = self._ahead.take(file)
        if batch is not None:
            yield replace(Records.from_arrow(batch, file.name, 0), share=1.0)
            return
        row = 0
        try:
            with _open(file) as (opened, share):
                while lines := list(islice(opened, self._next_lines())):
                    block = self._block(lines if row else _without_mark(lines), file.name, row)
                    yield replace(block, share=share())
                    row += len(lines)
        except FileNotFoundError:
            raise
        except _READ_ERRORS as error:
            raise DataError(
                f"the file cannot be read after line {row}: {error}",
                where=file.name,
                hint="Write it again, or leave it out",
            ) from None

    def _next_lines(self) -> int:
        return self._rows if self._blocks.is_settled else _FIRST_LINES

    def first_lines(self, file: InputFile, most: int) -> list[bytes]:
        """Return the first lines of a file."""
        try:
            with _open(file) as (opened, _):
                return _without_mark(list(islice(opened, most)))
        except FileNotFoundError:
            raise
        except _READ_ERRORS:  # an error once it is read: then with the line
            return []

    def settle(self, lines: list[bytes]) -> None:
        """Settle the types of the fields by lines."""
        self._blocks.parse([line if line.endswith(b"\n") else line + b"\n" for line in lines], str)

    def require_whole(self, file: InputFile) -> None:
        """Do nothing: a text file does not show whether it is complete."""

    def _block(self, lines: list[bytes], name: str, row: int) -> Records:
        found = self._blocks.parse(lines, lambda number: f"{name}:{row + number + 1}")
        if found.batch is None:
            return Records({}, 0, name, unreadable=found.letters)
        if found.lines is None:
            records = Records.from_arrow(found.batch, name, row)
            return replace(with_odd(records, found.odd), unreadable=found.letters)
        records = with_odd(Records.from_arrow(found.batch, name), found.odd)
        return replace(records, row_numbers=row + found.lines, unreadable=found.letters)


def _without_mark(lines: list[bytes]) -> list[bytes]:
    """Return the first lines of a file without its byte order mark."""
    if lines and lines[0].startswith(_BYTE_ORDER_MARK):
        return [lines[0].removeprefix(_BYTE_ORDER_MARK) or b"\n", *lines[1:]]
    return lines


@contextmanager
def _open(file: InputFile) -> Iterator[tuple[IO[bytes], Callable[[], float | None]]]:
    """Open a file for reading its lines, decompressed; and what tells which share was read."""
    with cast(io.BufferedReader, file.open()) as opened:
        size = size_of(opened)

        def share() -> float | None:
            return min(1.0, opened.tell() / size) if size else None

        start = opened.peek(_LONGEST_MAGIC)
        if file.name.endswith(".gz") or start.startswith(_GZIP):
            with gzip.GzipFile(fileobj=opened) as decompressed:
                yield cast(IO[bytes], decompressed), share
            return
        for magic, name in _COMPRESSED.items():
            if start.startswith(magic):
                raise DataError(
                    f"the file is compressed with {name}",
                    where=file.name,
                    hint="Decompress it, or compress it with gzip",
                )
        yield opened, share
