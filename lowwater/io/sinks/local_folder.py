"""A folder of output on this machine: files are staged, synced and renamed under a lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, final

from lowwater.errors import InvalidArgument, StateError
from lowwater.io.sinks.file_forms import form_of
from lowwater.io.sinks.folder_files import Entry, FileSet
from lowwater.io.sinks.folder_names import MARKER, PENDING, STAGED, STAGING
from lowwater.io.sinks.output_owner import PlaceLock
from lowwater.io.sinks.staging import make_folder, publish, sync_folder, write_whole

_LOCK = "lock"


@final
class LocalFolder:
    """A local folder; see :class:`~lowwater.io.sinks.folder_files.OutputFolder`.

    Args:
        path: The folder; made once it is taken.
    """

    def __init__(self, path: str) -> None:
        self.name = path
        self._folder = Path(path)
        self._staging = self._folder / STAGING
        self.published = _LocalFiles(self._folder, self._staging)
        self.collected = _LocalFiles(self._folder / PENDING, self._staging, is_passing=True)
        self._lock = PlaceLock(path, self._staging / _LOCK)

    @property
    def is_there(self) -> bool:
        return self._folder.is_dir()

    def check(self, examine: Callable[[], object]) -> None:
        if self._folder.exists() and not self._folder.is_dir():
            raise InvalidArgument(
                f"{self.name!r} is a file, but output goes into a folder",
                hint="Give the name of a folder",
            )
        self._check_hidden()
        examine()
        self._lock.check()

    @contextmanager
    def taking(self, examine: Callable[[], object]) -> Iterator[None]:
        self._check_hidden()
        make_folder(self._staging)
        with self._lock.taking():
            self._check_hidden()
            examine()
            self._remove_staged()
            yield

    def join(self, source: FileSet, names: Sequence[str], name: str) -> None:
        form = form_of(name)
        write_whole(self._folder / name, self._staging, lambda file: form.join(source, names, file))

    def publish(self, name: str, data: bytes) -> None:
        os.replace(self.collected.path / name, self._folder / name)  # noqa: PTH105  # os.replace, os.fsync: where tests crash
        sync_folder(self._folder)

    def release(self) -> None:
        self._lock.release()
        with suppress(OSError):  # something else may have been put there
            self.collected.path.rmdir()
        with suppress(OSError):
            if not (self._folder / MARKER).exists():
                self._staging.rmdir()

    def _check_hidden(self) -> None:
        """Raise if a hidden folder is something else, such as a link to what is another's."""
        for hidden in (self._staging, self.collected.path):
            if hidden.is_symlink() or (hidden.exists() and not hidden.is_dir()):
                raise StateError(
                    f"{str(hidden)!r} is no folder, so files cannot be staged there",
                    hint="Remove it, or give another folder",
                )
        lock = self._staging / _LOCK
        if lock.is_symlink():
            raise StateError(f"{str(lock)!r} is a symbolic link", hint="Remove it")

    def _remove_staged(self) -> None:
        """Remove what a run that was killed was about to publish."""
        for left in sorted(self._staging.iterdir()):
            if STAGED.fullmatch(left.name):
                left.unlink(missing_ok=True)


@final
class _LocalFiles:
    """The files of a local folder.

    Args:
        path: The folder.
        staging: Where its files are written before they appear, on the same file system.
        is_passing: Whether the folder is made when a file comes, and goes with the last one.
    """

    def __init__(self, path: Path, staging: Path, *, is_passing: bool = False) -> None:
        self.path = path
        self._staging = staging
        self._is_passing = is_passing

    def entries(self) -> Mapping[str, Entry]:
        try:
            with os.scandir(self.path) as found:
                return {one.name: _LocalEntry(one) for one in sorted(found, key=_name)}
        except FileNotFoundError:
            return {}

    def open(self, name: str) -> BinaryIO:
        path = self.path / name
        if path.is_symlink():
            raise StateError(
                f"{str(path)!r} is a symbolic link",
                hint="Remove it, or give another place to write to",
            )
        return path.open("rb")

    def put(self, files: Mapping[str, bytes]) -> None:
        if self._is_passing:
            make_folder(self.path)
        publish(self.path, self._staging, files)

    def delete(self, names: Iterable[str]) -> None:
        gone = list(names)
        for name in gone:
            (self.path / name).unlink(missing_ok=True)
        if gone:
            sync_folder(self.path)
        if gone and self._is_passing:
            with suppress(OSError):  # others are left, or something else was put there
                self.path.rmdir()


@final
class _LocalEntry:
    """A file in a folder; it is looked at only when it is asked for more than its name."""

    def __init__(self, entry: os.DirEntry[str]) -> None:
        self._entry = entry

    @property
    def size(self) -> int:
        return self._entry.stat().st_size

    @property
    def modified(self) -> float:
        return self._entry.stat().st_mtime

    @property
    def is_plain(self) -> bool:
        return self._entry.is_file(follow_symlinks=False)


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name
