"""The local disk beside the versions of key groups: working directories, and tables at hand.

::

    CACHE/ROOT/tables/GROUP/    tables as they are at the root, by their names there
    CACHE/ROOT/work/ID.lock     locked by a live process, through the operating system
    CACHE/ROOT/work/ID/         its databases; who finds no lock may delete them

Nothing here is needed: what is missing, or is not what it must be, comes from the root again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import final
from uuid import uuid4

from lowwater.errors import StateError
from lowwater.state.versions.manifest import SharedTable, file_number
from lowwater.state.versions.root import Root, checksum, link_or_copy

_LOCK = ".lock"


@final
class Cache:
    """The part of a cache that belongs to one root, and one process's room to work there.

    Args:
        directory: The cache, shared by any number of processes and roots; by default, one of
            this user's in the directory for temporary files.
        root: The place of the root, to tell roots apart.
    """

    def __init__(self, directory: str | Path | None, root: str) -> None:
        base = _own_directory() if directory is None else Path(directory).absolute()
        home = base / sha256(root.encode()).hexdigest()[:16]
        self._tables = home / "tables"
        self._work = home / "work"
        with _local_disk(self._work):
            self._work.mkdir(parents=True, exist_ok=True)
            self._lock, self._own = self._claim()
            self._sweep()
        self._numbers = count()

    def new_directory(self) -> Path:
        """Return a directory to work in, empty and this process's alone."""
        path = self._own / str(next(self._numbers))
        with _local_disk(path):
            path.mkdir()
        return path

    def add(self, directory: str, name: str, source: Path) -> None:
        """Cache a table that is at the root, or soon will be."""
        folder = self._tables / directory
        with _local_disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
            link_or_copy(source, folder / name)

    def take(self, root: Root, directory: str, table: SharedTable, target: Path) -> bool:
        """Put a table into a database's directory; return whether it had to be fetched.

        Raises:
            StateError: What is at the root is missing, or not what was written.
        """
        held = self._tables / directory / table.name
        if self._copy_if_right(held, table, target):
            return False
        with _local_disk(held):
            held.parent.mkdir(parents=True, exist_ok=True)
        fetched = held.with_name(f"{table.name}.{uuid4().hex}")
        try:
            root.fetch(directory, table.name, fetched)
            with _local_disk(fetched):
                wrong = _difference(fetched, table)
                if wrong is not None:
                    raise StateError(
                        f"a table of the state is damaged: {wrong}",
                        where=root.where(directory, table.name),
                        hint="Restore it from a copy, or restart the query from an earlier batch",
                    )
                link_or_copy(fetched, target)
                fetched.replace(held)
        finally:
            with suppress(OSError):  # it may be the disk that failed; the error above says so
                fetched.unlink(missing_ok=True)
        return True

    def keep(self, directory: str, names: Collection[str], number: int) -> None:
        """Release tables by batches up to a number that are not among these."""
        folder = self._tables / directory
        with _local_disk(folder):
            for path in folder.iterdir() if folder.is_dir() else ():
                written = file_number(path.name)
                if written is not None and written <= number and path.name not in names:
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Give up the room to work in, with all that is in it."""
        shutil.rmtree(self._own, ignore_errors=True)  # what stays behind, another process sweeps
        self._own.with_suffix(_LOCK).unlink(missing_ok=True)
        fcntl.flock(self._lock, fcntl.LOCK_UN)  # a forked child may have a copy of the descriptor
        os.close(self._lock)

    def _copy_if_right(self, held: Path, table: SharedTable, target: Path) -> bool:
        try:
            link_or_copy(held, target)
        except FileNotFoundError:
            return False
        # Not before linking: nobody can take this name away.
        if _difference(target, table) is None:
            return True
        target.unlink()
        held.unlink(missing_ok=True)
        return False

    def _claim(self) -> tuple[int, Path]:
        while True:
            own = self._work / uuid4().hex
            path = own.with_suffix(_LOCK)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            # A sweep may come in between: then it has the lock, or has deleted the name already.
            if _locked(file) and _is_at(file, path):
                own.mkdir()
                return file, own
            os.close(file)

    def _sweep(self) -> None:
        """Delete the working directories of processes that are gone."""
        for path in list(self._work.iterdir()):
            if path == self._own or path == self._own.with_suffix(_LOCK):
                continue
            lock = path.with_suffix(_LOCK)
            try:
                file = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                # Its lock was deleted: so was it, or whoever did so was killed in between.
                shutil.rmtree(path, ignore_errors=True)
                continue
            try:
                if _locked(file) and _is_at(file, lock):
                    shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                    lock.unlink(missing_ok=True)
            finally:
                os.close(file)


def _difference(path: Path, table: SharedTable) -> str | None:
    """Return how a file differs from the table it must be."""
    size = path.stat().st_size
    if size != table.size:
        return f"it has {size:,} bytes, not {table.size:,}"
    return None if checksum(path) == table.crc else "its checksum is another"


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _own_directory() -> Path:
    path = Path(tempfile.gettempdir()) / f"lowwater-{os.getuid()}"
    with _local_disk(path):
        path.mkdir(mode=0o700, exist_ok=True)
        if path.stat().st_uid != os.getuid() or path.is_symlink():
            raise StateError(
                "the local cache of state belongs to somebody else",
                where=str(path),
                hint="Give a directory of your own as cache",
            )
    return path


@contextmanager
def _local_disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateError(
            f"the local cache of state cannot be used: {error}",
            where=str(path),
            hint="Make room there, with the right to write, or choose another cache",
        ) from error
