"""Who owns a directory of state, and how far its commits were acknowledged: two small files.

``OWNER``
    Locked by the live owner; the operating system unlocks it when the process ends.

``SEQUENCER``
    Magic, sequencer (u64), acknowledged (u64), CRC-32 of these: big-endian, 28 bytes.
    The *sequencer* grows with each opening; the file is replaced atomically. Who no longer finds
    its own number there is fenced: another has taken over, though the lock said otherwise.
    *Acknowledged* is the number of the last commit that returned. It is written in place, after
    the commit is durable and without a sync of its own: a crash of the process keeps it, a crash
    of the machine may keep an earlier one. So it never claims a commit that was not durable; and
    a log that ends before it has lost something, where one that ends behind it has at most a torn
    tail that nobody was told about.

For POSIX systems: it needs ``fcntl``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path
from struct import Struct
from typing import final
from zlib import crc32

from lowwater.errors import StateError
from lowwater.state.forks import process_number

_OWNER = "OWNER"
_SEQUENCER = "SEQUENCER"
_NEW = "SEQUENCER.new"
_MAGIC = b"lowwater"
_FIELDS = Struct(">8sQQ")
_CHECK = Struct(">I")
_SIZE = _FIELDS.size + _CHECK.size
_FROM_COPY = "Restore the directory from a copy, or empty it to start from the beginning"

_PATIENCE, _PAUSE_S = 5, 0.01
_locked: dict[Path, FileLock] = {}  # by absolute path, of this process
os.register_at_fork(after_in_child=_locked.clear)


@final
class FileLock:
    """A file that this process has locked; the operating system unlocks it when the process ends.

    A process that is forked off does not have the lock, nor does it keep it from others.

    Args:
        path: The file; made if it is not there.

    Raises:
        BlockingIOError: Another process has it, or another lock of this one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()  # one file may have many names
        self._process = process_number()
        if self.path in _locked:  # the operating system lets one process lock a file twice
            raise BlockingIOError(errno.EAGAIN, "locked by this process", str(path))
        patience = _PATIENCE
        while not self._take():
            patience -= 1
            if not patience:
                raise BlockingIOError(errno.EAGAIN, "locked by another process", str(path))
            time.sleep(_PAUSE_S)
        _locked[self.path] = self

    def _take(self) -> bool:
        """Try to lock the file. It may fail for an instant, while somebody asks whether it is."""
        import fcntl

        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = _is_same_file(self._file, self.path)  # else its last owner has removed it
        except (BlockingIOError, PermissionError):  # which of them depends on the system
            taken = False
        except BaseException:
            os.close(self._file)
            raise
        if not taken:
            os.close(self._file)
        return taken

    def release(self, *, remove: bool = False) -> None:
        """Release the file, and remove it if asked to; a second call does nothing.

        In a process that was forked off it only closes that process's descriptor: the lock is its
        parent's.
        """
        if self._file < 0:
            return
        if self._process == process_number():
            if remove:
                self.path.unlink(missing_ok=True)
            _locked.pop(self.path, None)
        os.close(self._file)
        self._file = -1


def is_locked(path: Path) -> bool:
    """Return whether a live process has locked a file. Changes nothing."""
    import fcntl

    if path.resolve() in _locked:  # closing another descriptor of it would release that lock
        return True
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _is_same_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


@final
class Ownership:
    """The right to write to a directory of state, from :meth:`take` on.

    Args:
        path: The directory. It is locked when this returns.

    Raises:
        StateError: Somebody else has it open, or its files are not what they must be.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sequencer = 0
        self._sequencer_file = -1
        owner = path / _OWNER
        if owner.resolve() in _locked:
            raise StateError(
                "the state is already open in this process",
                where=str(path),
                hint="Close it first",
            )
        try:
            self._lock = FileLock(owner)
        except BlockingIOError as error:
            raise in_use(path) from error

    def take(self, sequencer: int, acknowledged: int) -> None:
        """Own the directory under a sequencer: whoever had it before is fenced from now on."""
        new = self.path / _NEW
        file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self._sequencer_file = file
        self.sequencer = sequencer
        self.acknowledge(acknowledged)
        os.fsync(file)
        new.replace(self.path / _SEQUENCER)
        sync_directory(self.path)

    def check(self) -> None:
        """Raise ``StateError`` if another has taken the directory over. One small read."""
        found = read_sequencer(self.path)
        if found is not None and found[0] == self.sequencer:
            return
        other = "its SEQUENCER is gone" if found is None else f"opening {found[0]} took it over"
        raise StateError(
            f"fenced: this process held the state as opening {self.sequencer}, but {other}",
            where=str(self.path),
            hint="End this process; what it had not committed is the new owner's to do",
        )

    def acknowledge(self, commit: int) -> None:
        """Note that a commit is durable."""
        fields = _FIELDS.pack(_MAGIC, self.sequencer, commit)
        # The file this opening made: once fenced, it is no longer the one that others read.
        os.pwrite(self._sequencer_file, fields + _CHECK.pack(crc32(fields)), 0)

    def release(self) -> None:
        """Release the directory; a second call does nothing."""
        if self._sequencer_file >= 0:
            with contextlib.suppress(OSError):
                os.fsync(self._sequencer_file)
            os.close(self._sequencer_file)
        self._sequencer_file = -1
        self._lock.release()


def read_sequencer(path: Path) -> tuple[int, int] | None:
    """Return a directory's sequencer and the last commit acknowledged; None if it has none."""
    try:
        content = (path / _SEQUENCER).read_bytes()
    except FileNotFoundError:
        return None
    fields = content[: _FIELDS.size]
    if len(content) != _SIZE or content[_FIELDS.size :] != _CHECK.pack(crc32(fields)):
        raise StateError("the file is damaged", where=str(path / _SEQUENCER), hint=_FROM_COPY)
    magic, sequencer, acknowledged = _FIELDS.unpack(fields)
    if magic != _MAGIC:
        raise StateError("not a file of lowwater", where=str(path / _SEQUENCER), hint=_FROM_COPY)
    return sequencer, acknowledged


def holds_nothing(path: Path) -> bool:
    """Whether a directory is empty, but for what an opening that was cut short leaves."""
    return {file.name for file in path.iterdir()} <= {_OWNER, _NEW}


def is_owned(path: Path) -> bool:
    """Return whether a live process owns a directory of state. Changes nothing."""
    return is_locked(path / _OWNER)


def in_use(path: Path) -> StateError:
    """Return the error for state that another process has open."""
    return StateError(
        "the state is in use by another process",
        where=str(path),
        hint="End that process first, or use a directory of your own",
    )


def unreadable(error: BaseException, path: Path, *, writes: bool = False) -> StateError:
    """Return the error for state that this process has no right to read, or to change.

    Args:
        error: What the operating system, or a library that asked it, said.
        path: The directory.
        writes: Whether it was to be changed.
    """
    where = str(path)
    reason = str(error).strip()
    if isinstance(error, OSError):
        reason = error.strerror or reason
        where = str(error.filename or path)
    verb, right = ("changed", "read and write it") if writes else ("read", "read it")
    return StateError(
        f"the state cannot be {verb}: {reason}",
        where=where,
        hint=f"Run this as the user{_owner(path)}, or give this one the right to {right}: the "
        "directory, those in it (which takes the right to enter them, x), and all files",
    )


def _owner(path: Path) -> str:
    """Return who a directory belongs to, if that can be told."""
    try:
        import pwd

        return f" {pwd.getpwuid(path.stat().st_uid).pw_name!r}, whose it is"
    except (OSError, KeyError, ImportError):
        return " whose it is"


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
