"""Folders of files named by delivery, so that a delivery that comes again overwrites itself."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import pyarrow as pa
import pyarrow.parquet as pq

from lowwater.engine.local.delivery import Delivery, Place, Writer
from lowwater.engine.records.json_rows import as_json, json_lines, without_tags
from lowwater.errors import InvalidArgument, StateError, describe
from lowwater.io.sinks.output_owner import (
    check_closed,
    check_owner,
    encoded,
    is_same_writer,
    owned_by,
    read_owner,
)
from lowwater.io.sinks.staging import PASSING, make_folder, publish, refusals

STAGING = ".staging"
MARKER = ".lowwater.json"
PREFIXES = ("part-", "late-", "errors-")
_OWN = re.compile(r"(part|late|errors)-\d{12}-\d{3}-\d{6}\.(parquet|jsonl)")
_STAGED = re.compile(rf"({_OWN.pattern}|{re.escape(MARKER)}){PASSING}")


@final
@dataclass(frozen=True, slots=True)
class ParquetFolder:
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
    """

    path: str
    overwrite: bool = False
    _open: list[_OwnedFolder] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", checked_path(self.path))

    def places(self) -> Iterable[Place]:
        return [_place(self.path)]

    def look(self, writer: Writer) -> None:
        self._found(writer)

    def open(self, writer: Writer) -> None:
        found = self._found(writer)
        found.take()
        self._open.append(found)

    def deliver(self, delivery: Delivery) -> None:
        files = _sidecars(delivery)
        if delivery.panes.num_rows:
            files[f"part-{delivery.id}.parquet"] = _to_parquet(delivery.panes)
        _only(self, self._open).publish(files)

    def close(self, *, complete: bool) -> None:
        while self._open:
            self._open.pop().close(complete=complete)

    def _found(self, writer: Writer) -> _OwnedFolder:
        check_closed(self, self._open)
        return _OwnedFolder(self.path, "Parquet", writer, overwrite=self.overwrite)


@final
@dataclass(frozen=True, slots=True)
class JsonLinesFolder:
    """A folder with files of one JSON object per pane, one for each delivery.

    Guarantee: exactly once, as for :class:`ParquetFolder`; the files are ``part-<id>.jsonl``,
    ``late-<id>.jsonl`` and ``errors-<id>.jsonl``.

    Args:
        path: The folder; made if it is not there. Read it as ``part-*.jsonl``.
        overwrite: Whether the output of another run or state directory is to be replaced.
    """

    path: str
    overwrite: bool = False
    _open: list[_OwnedFolder] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", checked_path(self.path))

    def places(self) -> Iterable[Place]:
        return [_place(self.path)]

    def look(self, writer: Writer) -> None:
        self._found(writer)

    def open(self, writer: Writer) -> None:
        found = self._found(writer)
        found.take()
        self._open.append(found)

    def deliver(self, delivery: Delivery) -> None:
        files = _sidecars(delivery)
        if delivery.panes.num_rows:
            files[f"part-{delivery.id}.jsonl"] = json_lines(delivery.panes)
        _only(self, self._open).publish(files)

    def close(self, *, complete: bool) -> None:
        while self._open:
            self._open.pop().close(complete=complete)

    def _found(self, writer: Writer) -> _OwnedFolder:
        check_closed(self, self._open)
        return _OwnedFolder(self.path, "JSON lines", writer, overwrite=self.overwrite)


@final
class _OwnedFolder:
    """A folder that a writer may have, and has once it takes it.

    Args:
        path: The folder.
        kind: What its sink writes.
        writer: Who opens it.
        overwrite: Whether the output of another writer is to be replaced.

    Raises:
        InvalidArgument: The path is a file.
        StateError: The output of another writer is there, or files that no sink wrote.
        DataError: The folder cannot be read.
    """

    def __init__(self, path: str, kind: str, writer: Writer, *, overwrite: bool) -> None:
        self._path = path
        self._folder = Path(path)
        self._staging = self._folder / STAGING
        self._writer = writer
        self._has_delivered = False
        self._owner = owned_by(kind, writer)
        with refusals(path):
            self._known = self._look()
            self._is_ours = self._known is not None and is_same_writer(self._known, self._owner)
            check_owner(
                path, self._known, self._owner, overwrite=overwrite, delivered=writer.delivered
            )
            self._replaced = [] if self._is_ours else self._to_replace(self._known)

    def take(self) -> None:
        """Make the folder the writer's; remove what is to be replaced, or was left half done.

        Raises:
            DataError: The folder cannot be written.
        """
        known = self._known
        with refusals(self._path):
            make_folder(self._staging)
            for left in sorted(self._staging.iterdir()):
                if _STAGED.fullmatch(left.name):
                    left.unlink(missing_ok=True)
            if known is not None and self._replaced:
                # Killed amid this, the folder still belongs to the one before, and says that it
                # is not whole.
                self._mark({**known, "complete": False})
                for name in self._replaced:
                    (self._folder / name).unlink(missing_ok=True)
            if known is not None and self._is_ours:
                self._owner = known
            else:
                self._mark(self._owner)

    def publish(self, files: Mapping[str, bytes]) -> None:
        """Put the files of a delivery into the folder.

        Raises:
            StateError: Another writer has taken the folder meanwhile.
            DataError: The folder cannot be written.
        """
        with refusals(self._path):
            if not self._is_still_ours():
                raise StateError(
                    f"{self._path!r} was taken over by another run, or {MARKER} was removed",
                    hint="Let one run at a time write to a folder",
                )
            # Before the first rename: cut short, it may leave files, and they need their marker.
            self._has_delivered = self._has_delivered or bool(files)
            publish(self._folder, self._staging, files)

    def close(self, *, complete: bool) -> None:
        """Note that the run is complete; forget a run that failed before it wrote anything."""
        if complete:
            with refusals(self._path):
                if not self._owner["complete"] and self._is_still_ours():
                    self._mark({**self._owner, "complete": True})
        elif not self._writer.resumes and not self._has_delivered:
            with suppress(OSError, StateError):
                if self._is_still_ours():
                    (self._folder / MARKER).unlink()
                    self._staging.rmdir()

    def _look(self) -> dict[str, object] | None:
        """Return whose the folder is; ``None`` if nobody's. Changes nothing."""
        if self._folder.exists() and not self._folder.is_dir():
            raise InvalidArgument(
                f"{self._path!r} is a file, but output goes into a folder",
                hint="Give the name of a folder",
            )
        if self._staging.is_symlink() or (self._staging.exists() and not self._staging.is_dir()):
            raise StateError(
                f"{str(self._staging)!r} is no folder, so files cannot be staged there",
                hint="Remove it, or give another folder",
            )
        return read_owner(self._folder / MARKER)

    def _to_replace(self, known: Mapping[str, object] | None) -> list[str]:
        """Return the files that a former writer has left; refuse what no sink wrote.

        With strangers among them, who reads ``part-*`` would read these too.
        """
        found = []
        for entry in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
            if not entry.name.startswith(PREFIXES):
                continue
            if known is None or not _OWN.fullmatch(entry.name) or not _is_plain_file(entry):
                raise StateError(
                    f"{self._path!r} already holds {entry.name!r}, which this sink did not write",
                    hint="Give an empty folder",
                )
            found.append(entry.name)
        return found

    def _mark(self, owner: Mapping[str, object]) -> None:
        publish(self._folder, self._staging, {MARKER: encoded(owner)})

    def _is_still_ours(self) -> bool:
        # Where the folder itself is gone, the error of the write says more.
        if not self._folder.is_dir():
            return True
        known = read_owner(self._folder / MARKER)
        return known is not None and is_same_writer(known, self._owner)


def checked_path(path: object) -> str:
    """Return a path as text.

    Raises:
        InvalidArgument: It is none.
    """
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise InvalidArgument(f"{describe('path', path)} is not a path", hint="Name a folder")
    text: str = os.fspath(path)
    return text


def _place(path: str) -> Place:
    patterns = (*(f"{prefix}*" for prefix in PREFIXES), STAGING, MARKER)
    return Place(Path(path), patterns=patterns)


def _only(sink: object, opened: list[_OwnedFolder]) -> _OwnedFolder:
    if not opened:
        raise InvalidArgument(f"{sink!r} is not open", hint="Call open() first")
    return opened[0]


def _is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _sidecars(delivery: Delivery) -> dict[str, bytes]:
    given = {"errors": delivery.errors, "late": delivery.late}
    return {
        f"{name}-{delivery.id}.jsonl": json_lines(table)
        for name, table in given.items()
        if table is not None and table.num_rows
    }


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
