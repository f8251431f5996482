"""One file of JSON lines, to which deliveries are appended."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from lowwater.engine.local.delivery import Delivery, Place, Writer
from lowwater.engine.records.json_rows import json_lines
from lowwater.errors import InvalidArgument, StateError, describe
from lowwater.io.sinks.output_owner import (
    check_closed,
    check_owner,
    encoded,
    is_same_writer,
    owned_by,
    read_owner,
)
from lowwater.io.sinks.staging import PASSING, make_folder, publish, refusals, write_at

SUFFIX = ".jsonl"
_KIND = "JSON lines in one file"
_FIELDS = {"last": str, "lengths": list}


@final
@dataclass(frozen=True, slots=True)
class JsonLinesFile:
    """A file of one JSON object per pane.

    Beside ``out.jsonl`` come ``out.late.jsonl`` and ``out.errors.jsonl``, if there are any late
    elements or dead letters, and a hidden ``.out.jsonl.lowwater.json``: it says whose output this
    is, whether that run is complete, and how long the files are up to the last delivery.

    Guarantee: exactly once for a run with a state directory, once it has ended or gone on. A
    delivery is appended, synced, and then noted; a restart cuts off what was not noted, and skips
    what was. So a reader may see lines that a crash takes back, which a reader of a
    :class:`JsonLinesFolder` does not. The output of another run or state directory is refused, or
    replaced with ``overwrite=True``; a file that no run wrote is never replaced.

    Args:
        path: The file, whose name ends in ``.jsonl``; its folder is made if it is not there.
        overwrite: Whether the output of another run or state directory is to be replaced.
    """

    path: str
    overwrite: bool = False
    _open: list[_OwnedFile] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        path = self.path
        if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
            raise InvalidArgument(f"{describe('path', path)} is not a path", hint="Name a file")
        object.__setattr__(self, "path", os.fspath(path))
        if not is_file_name(self.path):
            raise InvalidArgument(
                f"{describe('path', path)} does not name a file that ends in {SUFFIX}",
                hint='Use a name such as "out.jsonl", or a JsonLinesFolder',
            )

    def places(self) -> Iterable[Place]:
        marker = _marker_of(Path(self.path))
        return [Place(path, self.path) for path in (*_files_of(Path(self.path)), marker)]

    def open(self, writer: Writer) -> None:
        check_closed(self, self._open)
        self._open.append(_OwnedFile(self.path, writer, overwrite=self.overwrite))

    def deliver(self, delivery: Delivery) -> None:
        if not self._open:
            raise InvalidArgument(f"{self!r} is not open", hint="Call open() first")
        self._open[0].append(delivery)

    def close(self, *, complete: bool) -> None:
        while self._open:
            self._open.pop().close(complete=complete)


def is_file_name(path: str) -> bool:
    """Whether a path stands for one file of JSON lines, rather than for a folder of them."""
    return path.endswith(SUFFIX) and len(Path(path).name) > len(SUFFIX)


@final
class _OwnedFile:
    """The files that a writer has opened.

    Args:
        path: The file of panes.
        writer: Who opens it.
        overwrite: Whether the output of another writer is to be replaced.

    Raises:
        InvalidArgument: The path is a folder.
        StateError: The output of another writer is there, or a file that no sink wrote. Nothing
            was touched then.
        DataError: The file cannot be written.
    """

    def __init__(self, path: str, writer: Writer, *, overwrite: bool) -> None:
        self._path = path
        self._files = _files_of(Path(path))
        self._marker = _marker_of(Path(path))
        self._writer = writer
        own = {**owned_by(_KIND, writer), "last": "", "lengths": [0, 0, 0]}
        with refusals(path):
            known = self._look()
            if known is not None:
                check_owner(path, known, own, overwrite=overwrite)
            make_folder(self._marker.parent)
            self._remove_passing()
            if known is not None and is_same_writer(known, own):
                self._owner = known
                self._cut()
                return
            if known is not None:
                self._mark({**known, "complete": False})
                for file in self._files:
                    file.unlink(missing_ok=True)
            self._mark(own)
            write_at(self._files[0], os.O_CREAT, 0, b"")  # without panes, an empty file

    def append(self, delivery: Delivery) -> None:
        """Append a delivery, unless it is there already.

        Raises:
            StateError: Another writer has taken the file meanwhile.
            DataError: The file cannot be written; the same delivery can be tried again.
        """
        if delivery.id <= self._owner["last"]:
            return
        with refusals(self._path):
            self._check_ours()
            lengths = list(self._owner["lengths"])
            tables = (delivery.panes, delivery.late, delivery.errors)
            # Panes come last: who sees them sees their late elements too.
            for at, table in reversed(list(enumerate(tables))):
                if table is not None and table.num_rows:
                    data = json_lines(table)
                    write_at(self._files[at], os.O_CREAT, lengths[at], data)
                    lengths[at] += len(data)
            self._mark({**self._owner, "last": delivery.id, "lengths": lengths})

    def close(self, *, complete: bool) -> None:
        """Note that the run is complete; forget a run that failed before it wrote anything."""
        if complete:
            with refusals(self._path):
                if not self._owner["complete"]:
                    self._check_ours()
                    self._mark({**self._owner, "complete": True})
        elif not self._writer.resumes and not self._owner["last"]:
            with suppress(OSError, StateError):
                self._check_ours()
                for file in self._files:
                    file.unlink(missing_ok=True)
                self._marker.unlink()

    def _look(self) -> dict[str, Any] | None:
        """Return whose the files are; ``None`` if they are not there. Changes nothing."""
        if self._files[0].is_dir():
            raise InvalidArgument(
                f"{self._path!r} is a folder, but a name that ends in {SUFFIX} is a file's",
                hint='Give the name of a file, such as "out.jsonl", or of a folder, such as "out"',
            )
        known = read_owner(self._marker, _FIELDS)
        for file in self._files:
            if file.is_symlink() or (file.exists() and (known is None or not file.is_file())):
                raise StateError(
                    f"{str(file)!r} is there already, and this sink did not write it",
                    hint="Give another name, or move it elsewhere",
                )
        return known

    def _cut(self) -> None:
        """Cut off what a delivery that was not noted has left."""
        for file, length in zip(self._files, self._owner["lengths"], strict=True):
            found = file.stat().st_size if file.exists() else 0
            if found < length:
                raise StateError(
                    f"{str(file)!r} has {found} bytes, and {length} were delivered to it",
                    hint="Put the file back as it was; or remove it, its neighbours and "
                    f"{self._marker.name!r}, reset the state directory and run from the start",
                )
            if found > length or file == self._files[0]:
                write_at(file, os.O_CREAT, length, b"")

    def _remove_passing(self) -> None:
        own = re.compile(re.escape(self._marker.name) + PASSING)
        for left in sorted(self._marker.parent.iterdir()):
            if own.fullmatch(left.name):
                left.unlink(missing_ok=True)

    def _mark(self, owner: dict[str, Any]) -> None:
        folder = self._marker.parent
        publish(folder, folder, {self._marker.name: encoded(owner)})
        self._owner = owner

    def _check_ours(self) -> None:
        known = read_owner(self._marker, _FIELDS)
        if known is None or not is_same_writer(known, self._owner):
            raise StateError(
                f"{self._path!r} was taken over by another run, or {str(self._marker)!r} was "
                "removed",
                hint="Let one run at a time write to a file",
            )


def _files_of(path: Path) -> tuple[Path, Path, Path]:
    """Return the files of panes, late elements and dead letters."""
    stem = path.name.removesuffix(SUFFIX)
    return (
        path,
        path.with_name(f"{stem}.late{SUFFIX}"),
        path.with_name(f"{stem}.errors{SUFFIX}"),
    )


def _marker_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lowwater.json")
