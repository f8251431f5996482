"""Where the versions of a key group are kept: a local directory, or one on any filesystem.

Files are written once, under names that nobody knows before they are written whole; so nothing
is written under a temporary name and moved, which object stores cannot do.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, final
from zlib import crc32

from lowwater.errors import InvalidArgument, StateError
from lowwater.state.filesystems import filesystem_at, is_uri, without_secrets
from lowwater.state.ownership import sync_directory
from lowwater.state.versions.manifest import RESTART

_CHUNK = 1 << 20
_RETRY = "See that this machine reaches it and may write there; then the task can run again"


class Root(Protocol):
    """Files in directories of one level. Everything raises ``StateError`` where it fails."""

    def where(self, directory: str, name: str = "") -> str:
        """Return the place of a file, for messages."""

    def put(self, directory: str, tables: dict[str, Path], name: str, data: bytes) -> None:
        """Write copies of local files by name, then one more from memory; durable on return."""

    def read(self, directory: str, name: str) -> bytes:
        """Return a file whole."""

    def fetch(self, directory: str, name: str, target: Path) -> None:
        """Make a local copy: a new file."""

    def sizes(self, directory: str) -> dict[str, int]:
        """Return the sizes of all files in bytes, by name; nothing if there is no directory."""

    def delete(self, directory: str, names: Iterable[str]) -> None:
        """Delete files; one that is gone already is fine."""


@final
class LocalRoot:
    """A local directory, or one that is mounted. Files come and go as hard links if they can."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def where(self, directory: str, name: str = "") -> str:
        return str(self._path / directory / name)

    def put(self, directory: str, tables: dict[str, Path], name: str, data: bytes) -> None:
        folder = self._path / directory
        with _told("a version cannot be written", str(folder), _RETRY):
            if not folder.is_dir():
                _make(folder)
            for table, source in tables.items():
                # What RocksDB wrote, it synced: a link needs its name made durable, no more.
                if not link_or_copy(source, folder / table):
                    _sync(folder / table)
            with (folder / name).open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            sync_directory(folder)

    def read(self, directory: str, name: str) -> bytes:
        with _told("a version cannot be read", self.where(directory, name), RESTART):
            return (self._path / directory / name).read_bytes()

    def fetch(self, directory: str, name: str, target: Path) -> None:
        with _told("a version cannot be read", self.where(directory, name), RESTART):
            link_or_copy(self._path / directory / name, target)

    def sizes(self, directory: str) -> dict[str, int]:
        with _told("the versions cannot be listed", self.where(directory), _RETRY):
            try:
                entries = os.scandir(self._path / directory)
            except FileNotFoundError:
                return {}
            sizes = {}
            with entries:
                for entry in entries:
                    try:
                        sizes[entry.name] = entry.stat().st_size
                    except FileNotFoundError:
                        pass  # collected by another task just now
            return sizes

    def delete(self, directory: str, names: Iterable[str]) -> None:
        with _told("old versions cannot be deleted", self.where(directory), _RETRY):
            for name in names:
                (self._path / directory / name).unlink(missing_ok=True)


@final
class ArrowRoot:
    """A directory on a ``pyarrow.fs.FileSystem``: object stores, HDFS, and what fsspec knows.

    It is the filesystem's part to keep a file that was closed. A directory is made before each
    write into it: object stores have none, and do nothing then.
    """

    def __init__(self, filesystem: Any, path: str) -> None:
        self._filesystem = filesystem
        self._path = path.rstrip("/")

    def where(self, directory: str, name: str = "") -> str:
        place = "/".join(part for part in (self._path, directory, name) if part)
        return f"{self._filesystem.type_name}:{place}"

    def put(self, directory: str, tables: dict[str, Path], name: str, data: bytes) -> None:
        with _told("a version cannot be written", self.where(directory), _RETRY):
            self._filesystem.create_dir(f"{self._path}/{directory}", recursive=True)
            for table, source in tables.items():
                with source.open("rb") as local, self._output(directory, table) as output:
                    while chunk := local.read(_CHUNK):
                        output.write(chunk)
            with self._output(directory, name) as output:
                output.write(data)

    def read(self, directory: str, name: str) -> bytes:
        with (
            _told("a version cannot be read", self.where(directory, name), RESTART),
            self._input(directory, name) as source,
        ):
            return bytes(source.read())

    def fetch(self, directory: str, name: str, target: Path) -> None:
        with (
            _told("a version cannot be read", self.where(directory, name), RESTART),
            self._input(directory, name) as source,
            target.open("xb") as local,
        ):
            while chunk := source.read(_CHUNK):
                local.write(chunk)

    def sizes(self, directory: str) -> dict[str, int]:
        from pyarrow.fs import FileSelector, FileType

        with _told("the versions cannot be listed", self.where(directory), _RETRY):
            selector = FileSelector(f"{self._path}/{directory}", allow_not_found=True)
            found = self._filesystem.get_file_info(selector)
            return {each.base_name: each.size for each in found if each.type == FileType.File}

    def delete(self, directory: str, names: Iterable[str]) -> None:
        with _told("old versions cannot be deleted", self.where(directory), _RETRY):
            for name in names:
                try:
                    self._filesystem.delete_file(f"{self._path}/{directory}/{name}")
                except FileNotFoundError:
                    pass

    def _output(self, directory: str, name: str) -> Any:
        return self._filesystem.open_output_stream(f"{self._path}/{directory}/{name}")

    def _input(self, directory: str, name: str) -> Any:
        return self._filesystem.open_input_stream(f"{self._path}/{directory}/{name}")


def root_at(place: str | Path, filesystem: Any = None) -> Root:
    """Return the root at a path or URI.

    Args:
        place: A path, or a URI that Arrow or fsspec knows; ``s3a:`` and ``s3n:`` are read as
            ``s3:``. With a filesystem, a path on it.
        filesystem: A ``pyarrow.fs.FileSystem`` for what a URI cannot say, such as credentials.

    Raises:
        InvalidArgument: Nothing here knows this kind of URI.
        StateError: The filesystem is out of reach.
    """
    if filesystem is None and (isinstance(place, Path) or not is_uri(place)):
        return LocalRoot(Path(place).absolute())
    with _told("the filesystem is out of reach", without_secrets(str(place)), _RETRY):
        filesystem, path = filesystem_at(str(place), filesystem)
    return LocalRoot(Path(path).absolute()) if filesystem is None else ArrowRoot(filesystem, path)


def link_or_copy(source: Path, target: Path) -> bool:
    """Make a file appear under another name too; return whether by a hard link."""
    try:
        os.link(source, target)
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError:  # another device, a filesystem without links, or too many of them
        shutil.copyfile(source, target)
        return False
    return True


def checksum(path: Path) -> int:
    """Return the CRC-32 of a file."""
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            crc = crc32(chunk, crc)
    return crc


def _make(folder: Path) -> None:
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync_directory(each.parent)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def _told(what: str, where: str, hint: str) -> Iterator[None]:
    """Translate errors into the user's words. Filesystems raise errors of any kind."""
    try:
        yield
    except (StateError, InvalidArgument):
        raise
    except FileNotFoundError as error:
        raise StateError(f"{what}: a file is missing ({error})", where=where, hint=hint) from error
    except Exception as error:
        raise StateError(
            f"{what}: {type(error).__name__}: {error}", where=where, hint=hint
        ) from error
