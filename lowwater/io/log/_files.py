"""File primitives of the log: atomic replacement, and locks."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final
from weakref import WeakSet

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


_locks: WeakSet[LogLock] = WeakSet()


@final
class LogLock:
    """A lock between threads and processes; the OS releases it when the process ends.

    A process that is forked off does not have it, nor does it keep it from others.

    Args:
        path: The file to lock; created if it does not exist.
        purpose: What it is for, as in "opened for writing".

    Raises:
        StateError: The file cannot be opened.
    """

    def __init__(self, path: Path, purpose: str) -> None:
        self._descriptor = -1
        self._taken = self._is_parents = False
        self._folder = path.parent
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StateError(
                f"the log cannot be {purpose}: {error.strerror or error}",
                where=str(path.parent),
                hint="Check the permissions of the folder, or open it with read_only=True and only "
                "read",
            ) from None
        _locks.add(self)

    def take(self, *, wait: bool = True) -> bool:
        """Acquire the lock, unless this object has it already; return whether it has it now.

        Args:
            wait: Whether to wait until another holder releases it.

        Raises:
            StateError: See :meth:`check_process`.
        """
        import fcntl

        self.check_process()
        if not self._taken:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                return False
            self._taken = True
        return True

    def check_process(self) -> None:
        """Raise in a process that was forked off: the lock and the log are its parent's.

        Raises:
            StateError: This is one.
        """
        if self._is_parents:
            raise StateError(
                f"this process ({os.getpid()}) was forked off the one that opened the log, and "
                "would write to the same files",
                where=str(self._folder),
                hint="Close the log in the parent and open it in the child",
            )

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
            self.release()  # closing alone leaves it locked while a copy of the descriptor is open
            os.close(self._descriptor)
            self._descriptor, self._taken = -1, False

    def leave_to_parent(self) -> None:
        """Close this process's copy of the descriptor, so that only the parent has the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor, self._taken = -1, False
        self._is_parents = True

    __del__ = close


def _leave_to_parent() -> None:
    for lock in list(_locks):
        lock.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode("ascii")
