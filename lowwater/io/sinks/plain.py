"""Where panes, late elements and dead letters are written to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Protocol, final

import pyarrow as pa
import pyarrow.parquet as pq

from lowwater.engine.records.json_rows import (
    error_to_json,
    late_to_json,
    rows_of,
    to_json,
    without_tags,
)
from lowwater.engine.records.panes import ErrorRecord, LateRecord
from lowwater.errors import InvalidArgument

_ROW_GROUP = 131_072


class Sink(Protocol):
    """Takes what a run gives. A sink is opened anew for each run."""

    def panes(self, batch: pa.RecordBatch) -> None:
        """Take panes as an Arrow batch."""
        ...

    def late(self, records: Iterable[LateRecord]) -> None:
        """Take elements dropped from one of their windows."""
        ...

    def errors(self, records: Iterable[ErrorRecord]) -> None:
        """Take dead letters."""
        ...

    def close(self, *, complete: bool) -> None:
        """Finish; what was written is to be seen only if the run was ``complete``."""
        ...


@final
class ParquetSink:
    """A folder of ``panes-00000.parquet`` and, if there are any, ``late.jsonl``, ``errors.jsonl``.

    Files appear under their names when the run is complete, in place of those of a run before. A
    further ``panes`` file begins where an aggregate's type changes, or where a process emits a
    field that nothing had when the file was begun. Values that Parquet has no type for are JSON
    text.

    Args:
        folder: The folder; made if it is not there.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        if self._folder.is_file():
            raise InvalidArgument(
                f"{folder!r} is a file, but panes go into a folder",
                hint="Give the name of a folder",
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        self._files = _Files()
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._schema: pa.Schema | None = None  # of those that wait
        self._parts = 0
        self._late = _Lines(self._files, self._folder / "late.jsonl")
        self._errors = _Lines(self._files, self._folder / "errors.jsonl")

    def panes(self, batch: pa.RecordBatch) -> None:
        table = without_tags(pa.Table.from_batches([batch]))
        both = table.schema if self._schema is None else _both(self._schema, table.schema)
        if both is None:
            self._flush()
        self._schema = table.schema if both is None else both
        self._waiting.append(table)
        if sum(part.num_rows for part in self._waiting) >= _ROW_GROUP:
            self._flush()

    def late(self, records: Iterable[LateRecord]) -> None:
        self._late.write(map(late_to_json, records))

    def errors(self, records: Iterable[ErrorRecord]) -> None:
        self._errors.write(map(error_to_json, records))

    def close(self, *, complete: bool) -> None:
        if complete:
            self._flush()
        self._end_part()
        self._late.close()
        self._errors.close()
        if complete:
            stale = set(self._folder.glob("panes-*.parquet"))
            stale |= {self._folder / "late.jsonl", self._folder / "errors.jsonl"}
            for path in stale - self._files.names():
                path.unlink(missing_ok=True)
        self._files.settle(complete=complete)

    def _flush(self) -> None:
        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting, promote_options="default")
        self._waiting, self._schema = [], None
        if self._writer is not None and self._writer.schema != table.schema:
            begun = self._writer.schema
            if _both(begun, table.schema) == begun:
                table = pa.concat_tables([begun.empty_table(), table], promote_options="default")
            else:
                self._end_part()
        if self._writer is None:
            name = f"panes-{self._parts:05d}.parquet"
            self._parts += 1
            self._writer = pq.ParquetWriter(
                self._files.new(self._folder / name), table.schema, compression="zstd"
            )
        self._writer.write_table(table)

    def _end_part(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _both(first: pa.Schema, second: pa.Schema) -> pa.Schema | None:
    """Return the columns of two tables; ``None`` if one has two types. Nulls have any type."""
    if first == second:
        return first
    try:
        return pa.unify_schemas([first, second], promote_options="default")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None


@final
class JsonLinesSink:
    """A file of one JSON object per pane.

    Beside ``out.jsonl`` come ``out.late.jsonl`` and ``out.errors.jsonl``, if there are any.

    Args:
        path: The file; its folder is made if it is not there.
    """

    def __init__(self, path: str) -> None:
        target = Path(path)
        if target.is_dir():
            raise InvalidArgument(
                f"{path!r} is a folder, but panes go into a file",
                hint='Give the name of a file, such as "out.jsonl"',
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        self._files = _Files()
        _, late, errors = json_lines_files(path)
        self._panes = _Lines(self._files, target)
        self._panes.write(())
        self._late = _Lines(self._files, late)
        self._errors = _Lines(self._files, errors)

    def panes(self, batch: pa.RecordBatch) -> None:
        self._panes.write(rows_of(pa.Table.from_batches([batch])))

    def late(self, records: Iterable[LateRecord]) -> None:
        self._late.write(map(late_to_json, records))

    def errors(self, records: Iterable[ErrorRecord]) -> None:
        self._errors.write(map(error_to_json, records))

    def close(self, *, complete: bool) -> None:
        lines = (self._panes, self._late, self._errors)
        for part in lines:
            part.close()
        if complete:
            for path in {part.path for part in lines} - self._files.names():
                path.unlink(missing_ok=True)
        self._files.settle(complete=complete)


def json_lines_files(path: str) -> tuple[Path, Path, Path]:
    """Return the files of a :class:`JsonLinesSink`: of panes, late elements and dead letters."""
    target = Path(path)
    stem = target.name.removesuffix(".jsonl")
    return (
        target,
        target.with_name(f"{stem}.late.jsonl"),
        target.with_name(f"{stem}.errors.jsonl"),
    )


@final
class _Files:
    """Files in the making: written under a passing name, renamed when all is well."""

    def __init__(self) -> None:
        self._made: dict[Path, Path] = {}

    def new(self, path: Path) -> Path:
        passing = path.with_name(f".{path.name}.{os.getpid()}.part")
        self._made[path] = passing
        return passing

    def names(self) -> set[Path]:
        return set(self._made)

    def settle(self, *, complete: bool) -> None:
        for path, passing in self._made.items():
            if complete:
                passing.replace(path)
            else:
                passing.unlink(missing_ok=True)
        self._made = {}


@final
class _Lines:
    """A file of JSON lines that is made when the first is written."""

    def __init__(self, files: _Files, path: Path) -> None:
        self.path = path
        self._files = files
        self._file: IO[str] | None = None

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        if self._file is None:
            # Half a surrogate pair is no UTF-8; escaped, it is JSON all the same.
            self._file = self._files.new(self.path).open(
                "w", encoding="utf-8", errors="backslashreplace"
            )
        for row in rows:
            self._file.write(to_json(row))
            self._file.write("\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
