"""Folders of files named by delivery, so that a delivery that comes again overwrites itself."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import ClassVar, final

import pyarrow as pa
import pyarrow.parquet as pq

from lowwater.engine.local.delivery import Delivery, Place, Writer
from lowwater.engine.records.json_rows import as_json, json_lines, without_tags
from lowwater.errors import InvalidArgument, describe
from lowwater.io.sinks.compaction import Compaction
from lowwater.io.sinks.output_owner import check_closed
from lowwater.io.sinks.owned_folder import HIDDEN, PREFIXES, OwnedFolder


@dataclass(frozen=True, slots=True)
class _Folder:
    """What folders of files have in common, whatever the format of the files of panes."""

    path: str
    overwrite: bool = False
    _: KW_ONLY
    compact: Compaction | None = None
    _open: list[OwnedFolder] = field(default_factory=list, init=False, repr=False, compare=False)

    _kind: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", checked_path(self.path))
        if self.compact is not None and not isinstance(self.compact, Compaction):
            raise InvalidArgument(
                f"{describe('compact', self.compact)} is not a Compaction",
                hint='Write compact=Compaction(size="128MB", age="1h")',
            )

    def places(self) -> Iterable[Place]:
        return [Place(Path(self.path), patterns=(*(f"{one}*" for one in PREFIXES), *HIDDEN))]

    def look(self, writer: Writer) -> None:
        self._found(writer)

    def open(self, writer: Writer) -> None:
        found = self._found(writer)
        found.take()
        self._open.append(found)

    def deliver(self, delivery: Delivery) -> None:
        if not self._open:
            raise InvalidArgument(f"{self!r} is not open", hint="Call open() first")
        given = {"errors": delivery.errors, "late": delivery.late}
        files = {
            f"{name}-{delivery.id}.jsonl": json_lines(table)
            for name, table in given.items()
            if table is not None and table.num_rows
        }
        if delivery.panes.num_rows:
            name, data = self._encoded(delivery)
            files[name] = data
        self._open[0].deliver(files)

    def publish_due(self) -> None:
        for folder in self._open:
            folder.publish_due()

    def close(self, *, complete: bool) -> None:
        while self._open:
            self._open.pop().close(complete=complete)

    def _found(self, writer: Writer) -> OwnedFolder:
        check_closed(self, self._open)
        return OwnedFolder(
            self.path, self._kind, writer, overwrite=self.overwrite, compaction=self.compact
        )

    def _encoded(self, delivery: Delivery) -> tuple[str, bytes]:
        """Return the name and the content of a file of panes."""
        raise NotImplementedError


@final
@dataclass(frozen=True, slots=True)
class ParquetFolder(_Folder):
    """A folder with Parquet files of panes, one for each delivery.

    Guarantee: exactly once for a run with a state directory. Files are staged in ``.staging``,
    synced, and published by rename under names made of epoch, output and piece:
    ``part-<id>.parquet``, and beside it ``late-<id>.jsonl`` and ``errors-<id>.jsonl`` if there are
    any. A delivery that comes again replaces its files with the same bytes, if by the same version
    of pyarrow. A reader never sees half a file, and where it sees a part, the late elements and
    dead letters of that delivery are there too. Deliveries without panes leave no part. A program
    that moves files away must remember their names, as the last ones may appear again.

    ``.lowwater.json`` says whose output the folder holds, and whether that run is complete. The
    output of another run or state directory is never mixed with this one's: it is refused, or
    removed with ``overwrite=True``. No file is removed whose name is not one that this sink gives.

    The rows are all inserts and retractions as they came. Values that Parquet has no type for are
    JSON text.

    Args:
        path: The folder; made if it is not there. Read it as ``part-*.parquet``.
        overwrite: Whether the output of another run or state directory is to be replaced.
        compact: When deliveries become a file, so that a run that commits often publishes few
            files; a reader sees a row when its file is published. ``None``: each delivery at once.
    """

    _kind: ClassVar[str] = "Parquet"

    def _encoded(self, delivery: Delivery) -> tuple[str, bytes]:
        return f"part-{delivery.id}.parquet", _to_parquet(delivery.panes)


@final
@dataclass(frozen=True, slots=True)
class JsonLinesFolder(_Folder):
    """A folder with files of one JSON object per pane, one for each delivery.

    Guarantee: exactly once, as for :class:`ParquetFolder`; the files are ``part-<id>.jsonl``,
    ``late-<id>.jsonl`` and ``errors-<id>.jsonl``.

    Args:
        path: The folder; made if it is not there. Read it as ``part-*.jsonl``.
        overwrite: Whether the output of another run or state directory is to be replaced.
        compact: When deliveries become a file, so that a run that commits often publishes few
            files; a reader sees a row when its file is published. ``None``: each delivery at once.
    """

    _kind: ClassVar[str] = "JSON lines"

    def _encoded(self, delivery: Delivery) -> tuple[str, bytes]:
        return f"part-{delivery.id}.jsonl", json_lines(delivery.panes)


def checked_path(path: object) -> str:
    """Return a path as text.

    Raises:
        InvalidArgument: It is none.
    """
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise InvalidArgument(f"{describe('path', path)} is not a path", hint="Name a folder")
    text: str = os.fspath(path)
    return text


def _to_parquet(panes: pa.Table) -> bytes:
    # How the rows are cut into chunks, and dictionaries with them, must not show in the file.
    table = without_tags(panes).unify_dictionaries().combine_chunks()
    try:
        return _written(table)
    except pa.ArrowNotImplementedError:
        for place, field in enumerate(table.schema):
            if not _is_writable(field):
                table = as_json(table, place)
        return _written(table)


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
