"""Files that appear whole: written under a passing name, synced, then renamed."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from lowwater.errors import DataError, StateError

PASSING = r"\.[0-9a-f]{16}"
"""Pattern of what follows a file's name while it is written."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def publish(folder: Path, staging: Path, files: Mapping[str, bytes]) -> None:
    """Put files into a folder, durably, in the order given.

    All are written and synced before the first is renamed. A file of the same name is replaced.

    Args:
        folder: Where the files appear.
        staging: Where they are written; on the same file system.
        files: Their content by name.

    Raises:
        OSError: The folder cannot be written. No file is there in part; those that were renamed
            before the error are there whole.
    """
    staged: list[tuple[Path, Path]] = []
    try:
        for name, data in files.items():
            # Two processes never write the same passing file, even if one of them is a zombie.
            passing = staging / f"{name}.{secrets.token_hex(8)}"
            staged.append((passing, folder / name))
            write_at(passing, os.O_CREAT | os.O_EXCL, 0, data)
        for passing, final in staged:
            os.replace(passing, final)  # noqa: PTH105  # os.replace, os.fsync: where tests crash
        sync_folder(folder)
    except OSError:
        for passing, _ in staged:
            with suppress(OSError):
                passing.unlink(missing_ok=True)
        raise


def write_whole(path: Path, staging: Path, write: Callable[[BinaryIO], object]) -> None:
    """Put one file into a folder, durably; what it holds need not be in memory at once.

    Args:
        path: The file; one of that name is replaced.
        staging: Where it is written; on the same file system.
        write: Writes it.

    Raises:
        OSError: The folder cannot be written, and the file is not there.
    """
    passing = staging / f"{path.name}.{secrets.token_hex(8)}"
    try:
        with passing.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(passing, path)  # noqa: PTH105  # os.replace, os.fsync: where tests crash
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            passing.unlink(missing_ok=True)
        raise


def write_at(path: Path, flags: int, position: int, data: bytes) -> None:
    """Write to a file from a position on, where it then ends; sync it. No symlink is followed.

    Raises:
        StateError: The file ends before the position: it would be filled up with zeros.
        OSError: The file cannot be written.
    """
    flags |= os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, 0o666)
    try:
        found = os.fstat(descriptor).st_size
        if found < position:
            raise StateError(
                f"{str(path)!r} has {found} bytes, and {position} were written to it: something "
                "else has cut it",
                hint="Put it back as it was and start again, and let nothing else change it, such "
                "as a rotation of logs",
            )
        if position or not flags & os.O_EXCL:
            os.ftruncate(descriptor, position)
            os.lseek(descriptor, position, os.SEEK_SET)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, durably."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        sync_folder(one.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the system has a way to."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def refusals(path: str) -> Iterator[None]:
    """Translate what the operating system refuses into the user's words.

    Raises:
        DataError: In place of an ``OSError``.
    """
    try:
        yield
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: str, error: OSError) -> DataError:
    if error.errno in _FULL:
        what, hint = f"the disk that holds {path!r} is full", "Free some space and start again"
    elif error.errno in _FORBIDDEN:
        what = f"{path!r} cannot be written: {error.strerror or error}"
        hint = "Give this process the right to write there and start again"
    else:
        what = f"{path!r} cannot be written: {error.strerror or error}"
        hint = "See that the folder is there and nothing else changes it, and start again"
    return DataError(what, hint=f"{hint}: with a state directory nothing is lost")
