"""File primitives of the log: atomic replacement, and locks."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from lowwater.errors import StateError
from lowwater.state.ownership import sync_directory


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
        sync_directory(path.parent)
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


@final
class LogLock:
    """A lock between threads and processes; the OS releases it when the process ends.

    Args:
        path: The file to lock; created if it does not exist.
        purpose: What it is for, as in "opened for writing".

    Raises:
        StateError: The file cannot be opened.
    """

    def __init__(self, path: Path, purpose: str) -> None:
        self._descriptor = -1
        self._taken = False
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StateError(
                f"the log cannot be {purpose}: {error.strerror or error}",
                where=str(path.parent),
                hint="Check the permissions of the folder, or open it with read_only=True and only "
                "read",
            ) from None

    def take(self, *, wait: bool = True) -> bool:
        """Take the lock, unless this object has it already; return whether it has it now.

        Args:
            wait: Whether to wait until another holder releases it.
        """
        import fcntl

        if not self._taken:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                return False
            self._taken = True
        return True

    def release(self) -> None:
        """Release the lock; idempotent."""
        import fcntl

        if self._taken:
            self._taken = False
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock for the time of a ``with``."""
        self.take()
        try:
            yield
        finally:
            self.release()

    def close(self) -> None:
        """Release the lock and close its file; idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor, self._taken = -1, False

    __del__ = close


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode("ascii")
