"""Reads files as they appear, and resumes from where an earlier run stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, final

import pyarrow as pa

from lowwater.engine.graph.sources import Position
from lowwater.engine.records.batch import Records
from lowwater.errors import DataError
from lowwater.io.follow import Follow
from lowwater.io.paths import files_of
from lowwater.state.formats import damaged, decoding

_NOTHING = Records({}, 0)


class FileReader(Protocol):
    """Reads one file after another, and remembers the types of the columns."""

    types: dict[str, pa.DataType]

    def read(self, path: Path) -> Iterator[Records]:
        """Yield a file's records: always the same batches, given the same initial ``types``."""
        ...

    def require_whole(self, path: Path) -> None:
        """Raise ``DataError`` if a file is incomplete, as while it is still being written."""
        ...


def read_once(
    paths: tuple[str, ...],
    suffixes: tuple[str, ...],
    reader: FileReader,
    follow: Follow | None,
) -> Iterator[Records]:
    """Yield the records of files for a run that is not resumed; files may grow meanwhile."""
    for records, _ in replay(paths, suffixes, reader, None, follow, watched=False):
        if records.length or records.unreadable or follow:
            yield records


def replay(
    paths: tuple[str, ...],
    suffixes: tuple[str, ...],
    reader: FileReader,
    position: Position | None,
    follow: Follow | None = None,
    *,
    watched: bool = True,
) -> Iterator[tuple[Records, Position]]:
    """Yield the records of files after a position, each batch with the position after it.

    A position names the files read whole, with their sizes, and the batches read of the one being
    read; that file is read again up to there. Files that were read whole may be gone; the last
    batch, without records, says so of the last of them. Before a file is begun, a batch without
    records comes whose position foretells it: whatever files turn up, from each position the next
    batch is the same whenever it is read.

    Args:
        paths: Files, folders and globs.
        suffixes: What the files of a folder end in.
        reader: Reads the files; its ``types`` are restored to those at the position.
        position: The position to resume from; ``None`` for the beginning.
        follow: How to go on with files that appear later, in order of name among those found by
            one look; batches without records come while there are none. ``None`` ends with the
            files that are there.
        watched: Whether to check that no file changes while it is read.

    Raises:
        DataError: A file vanished while it was being read, or is not as long as it was; or a new
            one is not whole and does not grow either.
        StateError: The position is not a position in files.
    """
    done: dict[str, int] = {}
    if position is not None:
        types = _checked(position)
        done = dict(position["done"])
        reader.types.clear()
        reader.types.update(types)
        for name, size in done.items():
            if _size(Path(name)) not in {None, size}:
                _require_there(name, size)
        if position["file"]:
            _require_there(position["file"], position["size"])
            yield from _batches(reader, position, watched=watched)
            done = {**done, position["file"]: position["size"]}
    looks = _Looks(paths, suffixes, reader, follow)
    idle = 0
    while True:
        found = False
        for name, size in looks.fresh(done):
            found = True
            begin = _position(done, reader, name, size)
            yield _NOTHING, begin
            yield from _batches(reader, begin, watched=watched)
            done = {**done, name: size}
        if follow is None:
            yield _NOTHING, _position(done, reader)
            return
        idle = 0 if found or looks.unfinished else idle
        if follow.is_over(idle):
            return
        for seconds in follow.beats():
            yield replace(_NOTHING, rest_seconds=seconds), _position(done, reader)
        idle += follow.poll_us


@final
class _Looks:
    """Finds new, complete files.

    Args:
        paths: Files, folders and globs.
        suffixes: What the files of a folder end in.
        reader: What knows whether a file is whole.
        follow: ``None``: there is but one look, and all files are whole.
    """

    def __init__(
        self,
        paths: tuple[str, ...],
        suffixes: tuple[str, ...],
        reader: FileReader,
        follow: Follow | None,
    ) -> None:
        self.unfinished: dict[str, int] = {}
        self._paths = paths
        self._suffixes = suffixes
        self._reader = reader
        self._follows = follow is not None

    def fresh(self, done: Mapping[str, int]) -> list[tuple[str, int]]:
        """Return the files that are not ``done``, with their sizes; those must not have changed."""
        fresh: list[tuple[str, int]] = []
        for path in files_of(self._paths, self._suffixes, maybe_none=self._follows):
            name, size = str(path), _size(path)
            if name in done:
                if size is not None and size != done[name]:
                    raise _changed(name, done[name], size)
            elif size is not None and (not self._follows or self._is_whole(path, name, size)):
                fresh.append((name, size))
        return fresh

    def _is_whole(self, path: Path, name: str, size: int) -> bool:
        try:
            self._reader.require_whole(path)
        except DataError:
            if self.unfinished.get(name) == size:
                raise
            self.unfinished[name] = size
            return False
        except FileNotFoundError:
            return False
        self.unfinished.pop(name, None)
        return size > 0  # an empty file may be one that is about to be written


def _batches(
    reader: FileReader, begin: Position, *, watched: bool
) -> Iterator[tuple[Records, Position]]:
    """Yield the rest of the file that a position points into."""
    name = begin["file"]
    try:
        for batch, records in enumerate(reader.read(Path(name))):
            if watched and (now := _size(Path(name))) not in {None, begin["size"]}:
                raise _changed(name, begin["size"], now or 0)
            if batch >= begin["batch"]:
                yield records, {**begin, "batch": batch + 1}
    except FileNotFoundError:
        raise _vanished(name) from None


def _position(
    done: dict[str, int], reader: FileReader, file: str = "", size: int = 0
) -> dict[str, Any]:
    types = pa.schema(list(reader.types.items())).serialize().to_pybytes()
    return {"done": done, "file": file, "size": size, "batch": 0, "types": types}


def _checked(position: Position) -> dict[str, pa.DataType]:
    """Return the column types in a position; raise ``StateError`` if it is not one of files."""
    what = "the position in the files"
    with decoding(what):
        done, file = position["done"], position["file"]
        numbers = [position["size"], position["batch"], *done.values()]
        if not all(isinstance(name, str) for name in (file, *done)) or not all(
            type(number) is int and number >= 0 for number in numbers
        ):
            raise damaged(what, f"it is {position!r}")
        return _types_of(position["types"])


def _types_of(data: Any) -> dict[str, pa.DataType]:
    schema = pa.ipc.read_schema(pa.py_buffer(data))
    return {field.name: field.type for field in schema}


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _require_there(name: str, size: int) -> None:
    now = _size(Path(name))
    if now is None:
        raise _vanished(name)
    if now != size:
        raise _changed(name, size, now)


def _vanished(name: str) -> DataError:
    return DataError(
        "the file vanished while it was being read",
        where=name,
        hint="Put it back: the rest of it has not been read",
    )


def _changed(name: str, before: int, now: int) -> DataError:
    return DataError(
        f"the file had {before} bytes when it was read, and now has {now}",
        where=name,
        hint="Put the former file back; add what is new as another file",
    )
