"""Reads files as they appear, and resumes from where an earlier run stopped."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, final

import pyarrow as pa

from lowwater.engine.graph.sources import GrowingMap, Position
from lowwater.engine.records.batch import Records
from lowwater.engine.records.panes import ErrorRecord
from lowwater.errors import DataError
from lowwater.io.file_content import Content, FileContents, is_content, vanished
from lowwater.io.follow import Follow
from lowwater.io.input_files import InputFiles, refusal_of
from lowwater.io.partitions import Partitions
from lowwater.io.paths import RealPaths, is_remote
from lowwater.io.stores import InputFile, RemoteFile, Stat
from lowwater.state.formats import damaged, decoding

_LOG = logging.getLogger("lowwater.io")
_NOTHING = Records({}, 0)
_WHOLE = "all of it was read"


class FileReader(Protocol):
    """Reads one file after another, and remembers the types of the columns."""

    types: dict[str, pa.DataType]

    def expect(self, files: Sequence[InputFile]) -> None:
        """Note which files are read next, in order. It may read them ahead, if no one can tell."""
        ...

    def read(self, file: InputFile) -> Iterator[Records]:
        """Yield a file's records: always the same batches, given the same initial ``types``."""
        ...

    def require_whole(self, file: InputFile) -> None:
        """Raise ``DataError`` if a file is incomplete, as while it is still being written."""
        ...


def read_once(
    files: InputFiles,
    suffixes: tuple[str, ...],
    reader: FileReader,
    follow: Follow | None,
    only: Collection[str] | None = None,
) -> Iterator[Records]:
    """Yield the records of files for a run that is not resumed; files may grow meanwhile."""
    for records, _ in replay(files, suffixes, reader, None, follow, watched=False, only=only):
        if records.length or records.unreadable or follow:
            yield records


def replay(
    files: InputFiles,
    suffixes: tuple[str, ...],
    reader: FileReader,
    position: Position | None,
    follow: Follow | None = None,
    *,
    watched: bool = True,
    only: Collection[str] | None = None,
) -> Iterator[tuple[Records, Position]]:
    """Yield the records of files after a position, each batch with the position after it.

    A position names the files read whole, with what they contained, and the batches read of the
    one being read; that file is read again up to there. Files that were read whole may be gone; the
    last batch, without records, says so of the last of them. Before a file is begun, a batch
    without records comes whose position foretells it: whatever files turn up, from each position
    the next batch is the same whenever it is read.

    Args:
        files: The files that are read.
        suffixes: What the files of a folder end in.
        reader: Reads the files; its ``types`` are restored to those at the position.
        position: The position to resume from; ``None`` for the beginning.
        follow: How to go on with files that appear later, in order of name among those found by
            one look; batches without records come while there are none. ``None`` ends with the
            files that are there.
        watched: Whether to check that no file changes while it is read, and to tell files of one
            size apart by their content.
        only: The columns that are read; ``None`` for all.

    Raises:
        DataError: A file vanished while it was being read, or contains something else than it did;
            or a new one is not whole and does not grow either.
        StateError: The position is not a position in files.
    """
    contents = FileContents(files.stores, checksums=watched)
    reader = _PartitionedReader(reader, Partitions(files.paths, only))
    done = GrowingMap()
    listed: list[InputFile] | None = None
    if position is not None:
        types = _checked(position)
        reader.types.clear()
        reader.types.update(types)
        reader.in_paths = _types_of(position["partitions"]) if "partitions" in position else {}
        done = GrowingMap(position["done"])
        if isinstance(position["done"], GrowingMap):
            done = position["done"]
        if any(map(is_remote, done)):  # in one listing: to ask for each would take long
            listed = files.find(suffixes, maybe_none=True)
        now = _checked_again(done, listed or (), contents)
        if any(one not in (None, done[name]) for name, one in now.items()):  # other stamps
            done = GrowingMap((name, now.get(name) or done[name]) for name in done)
        if name := position["file"]:
            extent = _Extent.of_rest(files, suffixes, done, follow, listed)
            content = contents.check(name, position["content"], _part(position["batch"]))
            if content is None:
                raise vanished(name)
            position = {**position, "content": content}
            for records, at in _batches(files, reader, position, contents, watched=watched):
                yield extent.shared(records, name), at
            done = done.extended(name, content)
    # Following, a look comes after the question whether to stop; what is not followed has one look.
    looks = _Looks(files, suffixes, reader, follow, contents, None if follow else listed)
    idle = 0
    while True:
        # Asked before the look: what was there when it said so is read.
        stopped = follow is not None and follow.is_stopped()
        found = looks.fresh(done)
        fresh = list(found)
        reader.settle(fresh)
        reader.expect(list(found.values()))
        extent = _Extent([found[name] for name in fresh] if _ends(follow) else ())
        for name in fresh:
            _LOG.debug("%s is read", name)
            begin = _position(done, reader, name, contents.record(name))
            yield _NOTHING, begin
            for records, at in _batches(files, reader, begin, contents, watched=watched):
                yield extent.shared(records, name), at
            extent.read(name)
            done = done.extended(name, begin["content"])
        if follow is None:
            yield _NOTHING, _position(done, reader)
            return
        idle = 0 if found or looks.unfinished else idle
        if (stopped or follow.is_idle(idle)) and not looks.unfinished:
            return
        for seconds in follow.beats():
            yield replace(_NOTHING, rest_seconds=seconds), _position(done, reader)
        idle += follow.poll_us


@final
class _PartitionedReader:
    """Reads files, with the columns in their paths.

    Args:
        reader: Reads what is in the files.
        partitions: The columns in their paths.
    """

    def __init__(self, reader: FileReader, partitions: Partitions) -> None:
        self.types = reader.types
        self.in_paths: dict[str, pa.DataType] = {}
        self._reader = reader
        self._partitions = partitions
        self._stored: tuple[list[tuple[str, pa.DataType]], bytes] = ([], _serialized([]))

    def stored_types(self) -> bytes:
        """Return the types of the columns as a position has them; most files change none."""
        types = list(self.types.items())
        if types != self._stored[0]:
            self._stored = types, _serialized(types)
        return self._stored[1]

    def settle(self, names: Iterable[str]) -> None:
        """Settle the types of columns in paths that are not known yet."""
        self.in_paths = {**self._partitions.types(names), **self.in_paths}

    def expect(self, files: Sequence[InputFile]) -> None:
        """Note which files are read next, in order."""
        self._reader.expect(files)

    def read(self, file: InputFile) -> Iterator[Records]:
        """Yield a file's records."""
        for records in self._reader.read(file):
            added = self._partitions.added(records, file.name, self.in_paths)
            yield added if added is records else replace(added, share=records.share)

    def require_whole(self, file: InputFile) -> None:
        """Raise ``DataError`` if a file is incomplete."""
        self._reader.require_whole(file)


@final
class _Extent:
    """How many bytes there are to read, and how many of them were read.

    Args:
        files: The files that there are; none if more may come.
    """

    def __init__(self, files: Iterable[InputFile]) -> None:
        sizes = {file.name: _size(file) for file in files}
        self._sizes = {name: size for name, size in sizes.items() if size is not None}
        self._total = sum(self._sizes.values()) if len(self._sizes) == len(sizes) else 0
        self._read = 0

    @classmethod
    def of_rest(
        cls,
        files: InputFiles,
        suffixes: tuple[str, ...],
        done: GrowingMap,
        follow: Follow | None,
        listed: list[InputFile] | None,
    ) -> _Extent:
        """Return what is left after a position, as far as no listing of a store is needed."""
        is_known = _ends(follow) and (listed is not None or not any(map(is_remote, files.paths)))
        if is_known and listed is None:
            listed = files.find(suffixes, maybe_none=True)
        return cls([file for file in listed or () if file.name not in done] if is_known else ())

    def shared(self, records: Records, name: str) -> Records:
        """Add to a file's records how much was read once they are, if that is known."""
        size = self._sizes.get(name)
        if not self._total or size is None:
            return records if records.share is None else replace(records, share=None)
        return replace(records, share=(self._read + size * (records.share or 0.0)) / self._total)

    def read(self, name: str) -> None:
        """Note that a file was read whole."""
        self._read += self._sizes.get(name, 0)


def _ends(follow: Follow | None) -> bool:
    """Return whether no files are read but those that are there."""
    return follow is None or follow.once


def _size(file: InputFile) -> int | None:
    """Return how many bytes a file has; ``None`` if to know that a store would have to be asked."""
    if isinstance(file, RemoteFile):
        return None if file.listed is None else file.listed.size
    try:
        return file.stat().size
    except FileNotFoundError:  # which is an error once it is read
        return None


@final
class _Looks:
    """Finds new, complete files.

    Args:
        files: The files that are read.
        suffixes: What the files of a folder end in.
        reader: What knows whether a file is whole.
        follow: ``None``: there is but one look, and all files are whole.
        contents: What knows whether a file is the one that was read.
        listed: The files that the first look finds; ``None``: it lists them.
    """

    def __init__(
        self,
        files: InputFiles,
        suffixes: tuple[str, ...],
        reader: FileReader,
        follow: Follow | None,
        contents: FileContents,
        listed: list[InputFile] | None = None,
    ) -> None:
        self.unfinished: dict[str, int] = {}
        self._files = files
        self._suffixes = suffixes
        self._reader = reader
        self._follows = follow is not None
        self._contents = contents
        self._real = RealPaths()
        self._read: set[str] = set()
        self._only: set[str] | None = None
        self._once = follow is not None and follow.once
        self._known = 0
        self._listed = listed

    def fresh(self, done: GrowingMap) -> dict[str, InputFile]:
        """Return the files that are not ``done``, by name; those that are must not have changed.

        A file that was read under another name, as by a path given since, is done too.
        """
        self._read.update(self._real.of_name(name) for name, _ in done.since(self._known))
        self._known = len(done)
        fresh: dict[str, InputFile] = {}
        unfinished, self.unfinished = self.unfinished, {}
        found, self._listed = self._listed, None
        if found is None:
            found = self._files.find(self._suffixes, maybe_none=self._follows)
        if self._once and self._only is None:  # later ones are for the next run
            self._only = {file.name for file in found}
        for file in found:
            name = file.name
            if self._only is not None and name not in self._only:
                continue
            if name in done:
                self._contents.check(name, done[name], _WHOLE, _listed(file))
            elif (not self._read or self._real.of_name(name) not in self._read) and (
                not self._follows or self._is_whole(file, unfinished.get(name))
            ):
                fresh[name] = file
        return fresh

    def _is_whole(self, file: InputFile, before: int | None) -> bool:
        """Whether a file is complete; it ``before`` had so many bytes and was not."""
        try:
            size = (_listed(file) or file.stat()).size
            if refusal_of(file) is not None:
                return True
            try:
                self._reader.require_whole(file)
            except DataError:
                if before == size:
                    raise
                self.unfinished[file.name] = size
                return False
        except FileNotFoundError:
            return False
        return size > 0  # an empty file may be one that is about to be written


def _listed(file: InputFile) -> Stat | None:
    """Return what a listing told of a file; ``None`` for local ones, which cost no request."""
    return file.listed if isinstance(file, RemoteFile) else None


def _checked_again(
    done: GrowingMap, listed: Iterable[InputFile], contents: FileContents
) -> dict[str, Content | None]:
    """Check the files that were read whole; return their contents, ``None`` for those gone.

    Args:
        done: The files, with what they contained.
        listed: Those that are there; objects among ``done`` that are not are gone.
        contents: What knows whether a file is the one that was read.
    """
    objects = {file.name: file.listed for file in listed if isinstance(file, RemoteFile)}
    return {
        name: contents.check(name, content, _WHOLE, objects.get(name))
        for name, content in done.items()
        if name in objects or not is_remote(name)
    }


def _batches(
    files: InputFiles, reader: FileReader, begin: Position, contents: FileContents, *, watched: bool
) -> Iterator[tuple[Records, Position]]:
    """Yield the rest of the file that a position points into."""
    name, batch = begin["file"], 0
    if (why := refusal_of(files.stores.file(name))) is not None:
        if not begin["batch"]:
            letter = ErrorRecord(
                name, "unreadable_object", f"the object cannot be opened: {why}", name
            )
            yield replace(_NOTHING, unreadable=(letter,)), {**begin, "batch": 1}
        return
    try:
        for records in reader.read(files.stores.file(name)):
            if watched:
                contents.check(name, begin["content"], _part(batch))
            batch += 1
            if batch > begin["batch"]:
                yield records, {**begin, "batch": batch}
    except FileNotFoundError:
        raise vanished(name) from None
    if watched:
        contents.check(name, begin["content"], _WHOLE)


def _position(
    done: GrowingMap, reader: _PartitionedReader, file: str = "", content: Content | None = None
) -> dict[str, Any]:
    types = reader.stored_types()
    made = {"done": done, "file": file, "content": content, "batch": 0, "types": types}
    if reader.in_paths:
        made["partitions"] = _serialized(list(reader.in_paths.items()))
    return made


def _serialized(types: list[tuple[str, pa.DataType]]) -> bytes:
    data: bytes = pa.schema(types).serialize().to_pybytes()
    return data


def _part(batches: int) -> str:
    """Describe how much of a file was read."""
    return f"batch {batches + 1:,} of it was being read"


def _checked(position: Position) -> dict[str, pa.DataType]:
    """Return the column types in a position; raise ``StateError`` if it is not one of files."""
    what = "the position in the files"
    with decoding(what):
        done, file, batch = position["done"], position["file"], position["batch"]
        contents = [*done.values(), *([position["content"]] if file else [])]
        if (
            not all(isinstance(name, str) for name in (file, *done))
            or not all(map(is_content, contents))
            or type(batch) is not int
            or batch < 0
        ):
            raise damaged(what, f"it is {position!r}")
        return _types_of(position["types"])


def _types_of(data: Any) -> dict[str, pa.DataType]:
    schema = pa.ipc.read_schema(pa.py_buffer(data))
    return {field.name: field.type for field in schema}
