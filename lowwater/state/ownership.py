"""Who owns a directory of state, and how far its commits were acknowledged: two small files.

``OWNER``
    Locked by the live owner, through the operating system: it lets go when the process ends.

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
import fcntl
import os
from pathlib import Path
from struct import Struct
from typing import final
from zlib import crc32

from lowwater.errors import StateError

_OWNER = "OWNER"
_SEQUENCER = "SEQUENCER"
_NEW = "SEQUENCER.new"
_MAGIC = b"lowwater"
_FIELDS = Struct(">8sQQ")
_CHECK = Struct(">I")
_SIZE = _FIELDS.size + _CHECK.size
_FROM_COPY = "Restore the directory from a copy, or empty it to begin anew"

_owned: set[Path] = set()


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
        if path in _owned:
            raise StateError(
                "the state is already open in this process",
                where=str(path),
                hint="Close it first",
            )
        self._owner_file = os.open(path / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._owner_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._owner_file)
            raise in_use(path) from error
        _owned.add(path)

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
        """Let go of the directory; again, does nothing."""
        if self._owner_file < 0:
            return
        if self._sequencer_file >= 0:
            with contextlib.suppress(OSError):
                os.fsync(self._sequencer_file)
            os.close(self._sequencer_file)
        _owned.discard(self.path)
        os.close(self._owner_file)
        self._owner_file = self._sequencer_file = -1


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
    if path in _owned:  # letting go of another lock of ours on the file would let go of that one
        return True
    try:
        file = os.open(path / _OWNER, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def in_use(path: Path) -> StateError:
    """Return the error for state that another process has open."""
    return StateError(
        "the state is in use by another process",
        where=str(path),
        hint="End that process first, or use a directory of your own",
    )


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
