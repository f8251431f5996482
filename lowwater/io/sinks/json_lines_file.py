"""One file of JSON lines, to which deliveries are appended."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from lowwater.engine.local.delivery import Delivery, Place, Writer
from lowwater.engine.records.json_lines import json_lines
from lowwater.errors import InvalidArgument, StateError, describe
from lowwater.io.paths import is_remote
from lowwater.io.sinks.output_owner import (
    PlaceLock,
    check_closed,
    check_overwrite,
    check_owner,
    encoded,
    is_same_opening,
    is_same_writer,
    owned_by,
    read_owner,
)
from lowwater.io.sinks.staging import PASSING, make_folder, publish, refusals, write_at
from lowwater.io.uris import RemotePlace

SUFFIX = ".jsonl"
_LATE, _ERRORS = f".late{SUFFIX}", f".errors{SUFFIX}"
_KIND = "JSON lines in one file"
_FIELDS = {"last": str, "lengths": list}


@final
@dataclass(frozen=True, slots=True)
class JsonLinesFile:
    """A file of one JSON object per pane.

    Beside ``out.jsonl`` come ``out.late.jsonl`` and ``out.errors.jsonl``, if there are any late
    elements or dead letters, and a hidden ``.out.jsonl.lowwater.json``: it says whose output this
    is, whether that run is complete, which of the files it has made, and how long they are up to
    the last delivery. A file that it has not made, or that is not as long, is never touched.

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
        if is_remote(self.path):
            raise InvalidArgument(
                f"{RemotePlace.of(self.path).name!r} is one file in a remote store, where no file "
                "can grow",
                hint='Name a folder, such as "s3://bucket/out": it gets a file for each delivery',
            )
        check_overwrite(self.overwrite)
        if not is_file_name(self.path):
            raise InvalidArgument(
                f"{describe('path', path)} does not name a file that ends in {SUFFIX}",
                hint='Use a name such as "out.jsonl", or a JsonLinesFolder',
            )

    def places(self) -> Iterable[Place]:
        marker = _marker_of(Path(self.path))
        return [Place(path, self.path) for path in (*_files_of(Path(self.path)), marker)]

    def look(self, writer: Writer) -> None:
        self._found(writer)

    def open(self, writer: Writer) -> None:
        found = self._found(writer)
        found.take()
        self._open.append(found)

    def deliver(self, delivery: Delivery) -> None:
        if not self._open:
            raise InvalidArgument(f"{self!r} is not open", hint="Call open() first")
        self._open[0].append(delivery)

    def close(self, *, complete: bool) -> None:
        while self._open:
            self._open.pop().close(complete=complete)

    def _found(self, writer: Writer) -> _OwnedFile:
        check_closed(self, self._open)
        return _OwnedFile(self.path, writer, overwrite=self.overwrite)


def is_output_of_run(path: Path) -> bool:
    """Return whether a run or a state directory has written this file, and may go on writing it.

    ``out.late.jsonl`` and ``out.errors.jsonl`` are files of the run that writes ``out.jsonl``.
    """
    name = path.name
    stems = [name.removesuffix(side) for side in (_LATE, _ERRORS) if name.endswith(side)]
    owners = [path, *(path.with_name(stem + SUFFIX) for stem in stems)]
    return any(_marker_of(owner).exists() for owner in owners)


def is_file_name(path: str) -> bool:
    """Whether a path stands for one file of JSON lines, rather than for a folder of them."""
    return path.endswith(SUFFIX) and len(Path(path).name) > len(SUFFIX)


@final
class _OwnedFile:
    """The files that a writer may have, and has once it takes them.

    Args:
        path: The file of panes.
        writer: Who opens it.
        overwrite: Whether the output of another writer is to be replaced.

    Raises:
        InvalidArgument: The path is a folder.
        StateError: The output of another writer is there, or a file that no sink wrote; or another
            run writes there now.
        DataError: The file cannot be read.
    """

    def __init__(self, path: str, writer: Writer, *, overwrite: bool) -> None:
        self._path = path
        self._files = _files_of(Path(path))
        self._marker = _marker_of(Path(path))
        self._lock = PlaceLock(path, self._marker.with_name(f"{self._marker.name}.lock"))
        self._writer = writer
        self._overwrite = overwrite
        self._owner = {**owned_by(_KIND, writer), "last": "", "lengths": [None, None, None]}
        with refusals(path):
            self._examine()
            self._lock.check()

    def take(self) -> None:
        """Make the files the writer's; remove what is to be replaced, or was left half done.

        Raises:
            StateError: Another run has the file, or somebody else has made one meanwhile.
            DataError: The file cannot be written.
        """
        with refusals(self._path):
            make_folder(self._marker.parent)
            with self._lock.taking():
                self._examine()  # again, as another run may have ended since
                self._take()

    def _examine(self) -> None:
        """Find whose the files are, and whether this writer may have them. Changes nothing."""
        known = self._known = self._look()
        last = "" if known is None else known["last"]
        check_owner(
            self._path,
            known,
            self._owner,
            self._writer,
            overwrite=self._overwrite,
            last_epoch=int(last[:12] or 0),
        )
        if known is not None:
            self._check_noted(known, may_be_gone=not is_same_writer(known, self._owner))

    def _take(self) -> None:
        known, own = self._known, self._owner
        self._remove_passing()
        if known is not None and is_same_writer(known, own):
            self._owner = known
            self._cut()
            self._mark({**known, "opening": own["opening"], "complete": False})
            return
        if known is not None:
            self._mark({**known, "complete": False})
            self._remove()
        self._owner = own
        self._make(0)  # without panes, an empty file

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
            tables = (delivery.panes, delivery.late, delivery.errors)
            # Panes come last: who sees them sees their late elements too.
            grown = {}
            for at, table in reversed(list(enumerate(tables))):
                if table is not None and table.num_rows:
                    data = json_lines(table)
                    if self._owner["lengths"][at] is None:
                        self._make(at)
                    length = self._owner["lengths"][at]
                    self._write(at, length, data)
                    grown[at] = length + len(data)
            lengths = [grown.get(at, length) for at, length in enumerate(self._owner["lengths"])]
            self._mark({**self._owner, "last": delivery.id, "lengths": lengths})

    def close(self, *, complete: bool) -> None:
        """Note that the run is complete; or take back what was not noted.

        Of a run that failed before it wrote anything, nothing is left.
        """
        try:
            self._close(complete=complete)
        finally:
            self._lock.release()

    def _close(self, *, complete: bool) -> None:
        if complete:
            with refusals(self._path):
                if not self._owner["complete"]:
                    self._check_ours()
                    self._mark({**self._owner, "complete": True})
            return
        with suppress(OSError, StateError):
            self._check_ours()
            self._check_noted(self._owner, may_be_gone=True)
            if self._writer.resumes or self._owner["last"]:
                self._cut()
            else:
                self._remove()
                self._marker.unlink()

    def _look(self) -> dict[str, Any] | None:
        """Return whose the files are; ``None`` if they are not there. Changes nothing."""
        if self._files[0].is_dir():
            raise InvalidArgument(
                f"{self._path!r} is a folder, but a name that ends in {SUFFIX} is a file's",
                hint='Give the name of a file, such as "out.jsonl", or of a folder, such as "out"',
            )
        known = read_owner(self._marker, _FIELDS)
        lengths = [None, None, None] if known is None else known["lengths"]
        for file, length in zip(self._files, lengths, strict=True):
            if file.is_symlink() or (file.exists() and (length is None or not file.is_file())):
                raise _strange(file)
        return known

    def _check_noted(self, known: Mapping[str, Any], *, may_be_gone: bool) -> None:
        """Raise if files are not what was noted of them: then they are not to be touched.

        A delivery that was not noted may have made them longer, but not after the last one.
        """
        for file, length in zip(self._files, known["lengths"], strict=True):
            if length is None or (may_be_gone and not file.exists()):
                continue
            found = file.stat().st_size if file.exists() else 0
            what = f"has {found} bytes"
            if found >= length and not _ends_line(file, length):
                what += " of something else"
            elif found == length or (found > length and not known["complete"]):
                continue
            raise StateError(
                f"{str(file)!r} {what}, and {length} were delivered to it",
                hint="Put the file back as it was; or move it, its neighbours and "
                f"{self._marker.name!r} elsewhere, reset the state directory if there is one "
                "and run from the start",
            )

    def _cut(self) -> None:
        """Cut off what a delivery that was not noted has left."""
        for at, length in enumerate(self._owner["lengths"]):
            file = self._files[at]
            if length is not None and (not at or (file.exists() and file.stat().st_size > length)):
                self._write(at, length, b"")

    def _remove(self) -> None:
        """Remove the files that the owner has made."""
        for file, length in zip(self._files, self._owner["lengths"], strict=True):
            if length is not None:
                file.unlink(missing_ok=True)

    def _make(self, at: int) -> None:
        """Make a file; note before that it is the owner's, so that it is known after a crash.

        Raises:
            StateError: Somebody else has made it meanwhile.
        """
        before = self._owner
        lengths = [0 if at == other else length for other, length in enumerate(before["lengths"])]
        self._mark({**before, "lengths": lengths})
        try:
            write_at(self._files[at], os.O_CREAT | os.O_EXCL, 0, b"")
        except FileExistsError:
            self._mark(before)
            raise _strange(self._files[at]) from None

    def _write(self, at: int, length: int, data: bytes) -> None:
        """Write to a file that the owner has made, after so many bytes.

        Raises:
            StateError: It no longer has as many.
        """
        try:
            # Created again, a file that was moved away would begin with a hole.
            write_at(self._files[at], 0 if length else os.O_CREAT, length, data)
        except FileNotFoundError:
            if not length:
                raise
            raise StateError(
                f"{str(self._files[at])!r} is gone, and {length} bytes were delivered to it",
                hint="Put it back and start again, and let nothing else move it, such as a "
                "rotation of logs",
            ) from None

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
        if known is None or not is_same_opening(known, self._owner):
            raise StateError(
                f"{self._path!r} was taken over by another run, or {str(self._marker)!r} was "
                "removed",
                hint="Let one run at a time write to a file",
            )


def _ends_line(file: Path, length: int) -> bool:
    """Whether a line ends after so many bytes of a file, as all that is noted does."""
    if not length:
        return True
    with file.open("rb") as lines:
        lines.seek(length - 1)
        return lines.read(1) == b"\n"


def _strange(file: Path) -> StateError:
    return StateError(
        f"{str(file)!r} is there already, and this sink did not write it",
        hint="Give another name, or move it elsewhere",
    )


def _files_of(path: Path) -> tuple[Path, Path, Path]:
    """Return the files of panes, late elements and dead letters."""
    stem = path.name.removesuffix(SUFFIX)
    return (
        path,
        path.with_name(stem + _LATE),
        path.with_name(stem + _ERRORS),
    )


def _marker_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lowwater.json")
