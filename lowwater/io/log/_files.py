"""File primitives of the log: atomic replacement, fsync of folders, and the writer lock."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any, final

from lowwater.errors import StateError


def write_checked(path: Path, content: dict[str, Any]) -> None:
    """Replace a file with JSON and its checksum, atomically and durably.

    Writes a temporary file, fsyncs it, renames it and fsyncs the folder. After a crash the file
    has either the old content or the new.

    Raises:
        StateError: The file cannot be written.
    """
    body = _canonical(content)
    text = json.dumps({"content": content, "crc32": zlib.crc32(body)}, sort_keys=True)
    passing = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with passing.open("w", encoding="ascii") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        passing.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise StateError(
            f"the file cannot be written: {error.strerror or error}",
            where=str(path),
            hint="Make room and see that the folder may be written to, then try again",
        ) from None


def read_checked(path: Path) -> dict[str, Any] | None:
    """Read what :func:`write_checked` wrote; ``None`` if there is no file.

    Raises:
        StateError: The file is damaged or cannot be read.
    """
    try:
        found = json.loads(path.read_bytes())
        content = found["content"]
        if isinstance(content, dict) and found["crc32"] == zlib.crc32(_canonical(content)):
            return content
        reason = "its checksum is wrong"
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = f"it cannot be read: {error.strerror or error}"
    except (ValueError, KeyError, TypeError, RecursionError):
        reason = "it is not what lowwater writes"
    raise StateError(
        f"the file is damaged: {reason}",
        where=str(path),
        hint="Put it back from a copy, or remove it if what it says can be given up",
    )


def sync_folder(folder: Path) -> None:
    """Fsync a folder, which makes created and renamed entries durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@final
class WriterLock:
    """The lock that the single writer of a log holds; the OS releases it when the process ends.

    Args:
        path: The file to lock; created if it does not exist.

    Raises:
        StateError: Another writer holds it, in this process or another.
    """

    def __init__(self, path: Path) -> None:
        import fcntl

        self._descriptor = -1
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StateError(
                f"the log cannot be opened for writing: {error.strerror or error}",
                where=str(path.parent),
                hint="Check the permissions of the folder, or open it with read_only=True",
            ) from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.release()
            raise StateError(
                "the log has a writer already",
                where=str(path.parent),
                hint="Close that one first, or open the log with read_only=True",
            ) from None

    def release(self) -> None:
        """Release the lock; idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    __del__ = release


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode("ascii")
