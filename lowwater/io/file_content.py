"""Notices that a file is no longer the one that was read, even if it is just as long."""

from __future__ import annotations

import hashlib
import time
import zlib
from typing import Any, final

from lowwater.errors import DataError
from lowwater.io.paths import is_remote
from lowwater.io.stores import LOCAL, InputFile, RemoteFile, Stat, Stores

Content = list[Any]
"""A file's size, mark and stamp, as a position stores them.

The mark tells contents of one size apart: the ETag of an object, if its store gives one, and
otherwise the CRC-32. Without a mark (``None``) only the size is compared. The stamp stands for the
inode and the times of the file: while it is the same, so is the content. It is ``None`` if the file
was written too recently to tell, or has no times.
"""

_BLOCK = 1 << 20
# File systems note times in steps, of up to two seconds: within one, a file may change unnoticed.
_SETTLED_NS = 2_000_000_000


@final
class FileContents:
    """Records what files contain, and checks that they still do.

    The whole content is only read again if the file's inode or times are others than before, as
    after a project was copied or restored; and never that of an object with an ETag.

    Args:
        stores: What opens files.
        checksums: Whether to compare content; otherwise only sizes are.
    """

    def __init__(self, stores: Stores = LOCAL, *, checksums: bool) -> None:
        self._stores = stores
        self._checksums = checksums
        self._stamps: dict[str, int] = {}

    def record(self, name: str) -> Content:
        """Return what a file contains. O(size), about as fast as copying it, without an ETag.

        Raises:
            DataError: The file is not there.
        """
        try:
            file = self._stores.file(name)
            if isinstance(file, RemoteFile) and file.refusal is not None:
                return [0, None, None]  # nothing of it is ever read
            if self._checksums:
                return self._read(name)
            return [file.stat().size, None, None]
        except FileNotFoundError:
            raise vanished(name) from None

    def check(
        self, name: str, content: Content, read: str, listed: Stat | None = None
    ) -> Content | None:
        """Return what a file contains, with its present stamp; ``None`` if it is gone.

        Args:
            name: The file.
            content: What it contained.
            read: How much of it was read, for the error.
            listed: What a listing has just told of the file; by default it is asked for.

        Raises:
            DataError: It contains something else now.
        """
        try:
            file = self._stores.file(name)
            if isinstance(file, RemoteFile) and file.refusal is not None:
                return content
            stat = listed or file.stat()
            size, mark, stamp = content
            if stat.size != size:
                raise _changed(name, size, stat.size, read, durable=mark is not None)
            if mark is None:
                return content
            known = self._stamps.get(name, stamp)
            if known is not None and _stamp(stat) == known:
                return content
            now = self._read(name, mark)
        except FileNotFoundError:
            return None
        if now[:2] != [size, mark]:
            raise _replaced(name, size, read)
        return now

    def _read(self, name: str, before: int | str | None = None) -> Content:
        """Return what a file contains, with a mark of the sort that it had before."""
        file = self._stores.file(name)
        # Before the content: what changes meanwhile then has another stamp at the next check.
        stat, now = file.stat(), time.time_ns()
        settled = bool(stat.facts) and now - stat.changed_ns > _SETTLED_NS
        stamp = _stamp(stat)
        if settled or stat.fine:
            self._stamps[name] = stamp
        else:
            self._stamps.pop(name, None)
        size, mark = stat.size, None
        if isinstance(file, RemoteFile) and not isinstance(before, int):
            mark = file.etag()
        return [*([size, mark] if mark else _read_whole(file)), stamp if settled else None]


def vanished(name: str) -> DataError:
    """Return the error for a file that is gone before it was read to its end."""
    slash = "; an object whose key ends in a slash cannot be opened: give it another name"
    return DataError(
        "the file vanished while it was being read",
        where=name,
        hint="Put it back: the rest of it has not been read" + slash * is_remote(name),
    )


def is_content(value: object) -> bool:
    """Whether a stored value can be what :meth:`FileContents.record` returned."""
    if not isinstance(value, list) or len(value) != 3:
        return False
    size, mark, stamp = value
    return (
        _is_number(size)
        and (mark is None or isinstance(mark, str) or _is_number(mark))
        and (stamp is None or _is_number(stamp))
    )


def _is_number(value: object) -> bool:
    return type(value) is int and value >= 0


def _read_whole(file: InputFile) -> list[int]:
    """Return a file's size and CRC-32."""
    crc = size = 0
    with file.open() as opened:
        while block := opened.read(_BLOCK):
            crc = zlib.crc32(block, crc)
            size += len(block)
    return [size, crc]


def _stamp(stat: Stat) -> int:
    """Return a number that differs once a file was written, replaced or renamed over."""
    facts = repr(stat.facts).encode()
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
