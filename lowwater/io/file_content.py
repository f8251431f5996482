"""Notices that a file is no longer the one that was read, even if it is just as long."""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from pathlib import Path
from typing import Any, final

from lowwater.errors import DataError

Content = list[Any]
"""A file's size, CRC-32 and stamp, as a position stores them.

Without a CRC (``None``) only the size is compared. The stamp stands for the inode and the times of
the file: while it is the same, so is the content. It is ``None`` if the file was written too
recently to tell.
"""

_BLOCK = 1 << 20
# File systems note times in steps, of up to two seconds: within one, a file may change unnoticed.
_SETTLED_NS = 2_000_000_000


@final
class FileContents:
    """Records what files contain, and checks that they still do.

    The whole content is only read again if the file's inode or times are others than before, as
    after a project was copied or restored.

    Args:
        checksums: Whether to compare content; otherwise only sizes are.
    """

    def __init__(self, *, checksums: bool) -> None:
        self._checksums = checksums
        self._stamps: dict[str, int] = {}

    def record(self, name: str) -> Content:
        """Return what a file contains. O(size), about as fast as copying it.

        Raises:
            DataError: The file is not there.
        """
        try:
            if self._checksums:
                return self._read(name)
            return [Path(name).stat().st_size, None, None]
        except FileNotFoundError:
            raise vanished(name) from None

    def check(self, name: str, content: Content, read: str) -> Content | None:
        """Return what a file contains, with its present stamp; ``None`` if it is gone.

        Args:
            name: The file.
            content: What it contained.
            read: How much of it was read, for the error.

        Raises:
            DataError: It contains something else now.
        """
        try:
            stat = Path(name).stat()
            size, crc, stamp = content
            if stat.st_size != size:
                raise _changed(name, size, stat.st_size, read, durable=crc is not None)
            if crc is None or _stamp(stat) == self._stamps.get(name, stamp):
                return content
            now = self._read(name)
        except FileNotFoundError:
            return None
        if now[:2] != [size, crc]:
            raise _replaced(name, size, read)
        return now

    def _read(self, name: str) -> Content:
        crc = size = 0
        with Path(name).open("rb") as file:
            # Before the content: what changes meanwhile then has another stamp at the next check.
            stat, now = os.fstat(file.fileno()), time.time_ns()
            while block := file.read(_BLOCK):
                crc = zlib.crc32(block, crc)
                size += len(block)
        stamp = self._stamps[name] = _stamp(stat)
        settled = now - max(stat.st_mtime_ns, stat.st_ctime_ns) > _SETTLED_NS
        return [size, crc, stamp if settled else None]


def vanished(name: str) -> DataError:
    """Return the error for a file that is gone before it was read to its end."""
    return DataError(
        "the file vanished while it was being read",
        where=name,
        hint="Put it back: the rest of it has not been read",
    )


def is_content(value: object) -> bool:
    """Whether a stored value can be what :meth:`FileContents.record` returned."""
    if not isinstance(value, list) or len(value) != 3:
        return False
    size, *rest = value
    return _is_number(size) and all(one is None or _is_number(one) for one in rest)


def _is_number(value: object) -> bool:
    return type(value) is int and value >= 0


def _stamp(stat: os.stat_result) -> int:
    """Return a number that differs once a file was written, replaced or renamed over."""
    facts = repr((stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns)).encode()
    return int.from_bytes(hashlib.blake2b(facts, digest_size=8).digest(), "little")


def _changed(name: str, before: int, now: int, read: str, *, durable: bool) -> DataError:
    return DataError(
        f"the file had {before} bytes when it was read, and now has {now} ({read})",
        where=name,
        hint="Put the former file back and add what is new as another file" + _RESET * durable,
    )


def _replaced(name: str, size: int, read: str) -> DataError:
    return DataError(
        f"the file was replaced since it was read: it still has {size} bytes, but others ({read})",
        where=name,
        hint="Put the former file back and add what is new as another file" + _RESET,
    )


_RESET = "; or reset the state, empty the outputs and run from the start"
