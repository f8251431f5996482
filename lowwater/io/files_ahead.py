"""Small files of JSON lines, read before their turn comes and parsed several as one block.

Arrow hands each block that it parses to other threads and waits for them, so that the line of a
file takes it as long as a hundred lines of several. A file gives what it gives by itself: if
together they do not give that for certain, each is parsed alone.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import final

import pyarrow as pa

from lowwater.io.json_blocks import JsonBlocks
from lowwater.io.stores import InputFile, LocalFile, Stat, stat_of_local

_MOST = 64
"""How many files are parsed together at most."""
_SMALL = 16 << 10
"""How many bytes such a file has at most."""
# What has become a pipe since it was listed would else be waited for, before its turn.
_READS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)


@final
@dataclass(frozen=True, slots=True)
class _Ahead:
    """A file that was read before its turn.

    Args:
        name: Its name.
        stat: What it was when it was read.
        lines: Its lines.
    """

    name: str
    stat: Stat
    lines: list[bytes]


@final
class FilesAhead:
    """Reads files ahead, some more each time, as long as that goes well.

    The first file of all is never waited for, and where many files have something odd about them,
    fewer and fewer attempts are made.

    Args:
        blocks: Parses their lines. It learns nothing from files that were read ahead, so what it
            knows when the turn of one comes is what it knew when that was parsed.
    """

    def __init__(self, blocks: JsonBlocks) -> None:
        self._blocks = blocks
        self._files: Sequence[InputFile] = ()
        self._places: Mapping[str, int] = {}
        self._ready: dict[str, tuple[Stat, pa.RecordBatch]] = {}
        self._size = 1
        self._waits = self._wait = 0

    def expect(self, files: Sequence[InputFile]) -> None:
        """Note which files are to be read, in order."""
        self._files = files
        self._places = {file.name: at for at, file in enumerate(files)}
        self._ready.clear()

    def take(self, file: InputFile) -> pa.RecordBatch | None:
        """Return the records of a file whose turn has come, one of each line.

        ``None``: it is to be read by itself, as one is that has changed since it was read.
        """
        if file.name not in self._ready:
            self._ready.clear()
            self._read_from(file)
        was, batch = self._ready.pop(file.name, (None, None))
        with suppress(OSError):  # which the caller meets too
            if batch is not None and file.stat() == was:
                return batch
        # What it teaches may make something else of those that were parsed.
        self._ready.clear()
        return None

    def _read_from(self, file: InputFile) -> None:
        """Read a file and those that follow it, as far as they are small."""
        place = self._places.get(file.name)
        if place is None or not self._blocks.is_settled:
            return
        if self._wait:
            self._wait -= 1
            return
        if self._size == 1:
            self._size = 2
            return
        found: list[_Ahead] = []
        for one in self._files[place : place + self._size]:
            ahead = self._read(one)
            if ahead is None:
                break
            found.append(ahead)
        while len(found) > 1:
            batches = self._blocks.together([ahead.lines for ahead in found])
            if batches is not None:
                self._ready = {
                    ahead.name: (ahead.stat, batch)
                    for ahead, batch in zip(found, batches, strict=True)
                }
                self._size = min(_MOST, 2 * self._size)
                self._waits = 0
                return
            # Those before the odd one go together, and a file that is odd goes by itself.
            del found[len(found) // 2 :]
            self._size = max(2, len(found))
            if len(found) == 1:
                self._wait = self._waits
                self._waits = min(_MOST, 2 * self._waits + 1)

    def _read(self, file: InputFile) -> _Ahead | None:
        """Read a file; ``None`` if it is not one to be read ahead."""
        if not isinstance(file, LocalFile) or file.name.endswith(".gz"):
            return None
        try:
            opened = os.open(file.name, _READS)
        except OSError:  # is told when its turn has come
            return None
        try:
            found = os.fstat(opened)
            size = found.st_size
            if not stat.S_ISREG(found.st_mode) or not 0 < size <= _SMALL:
                return None
            content = os.read(opened, size + 1)
        except OSError:
            return None
        finally:
            os.close(opened)
        # Else it is compressed, or has a byte order mark, or a first line that is no object.
        if len(content) != size or not content.startswith(b"{"):
            return None
        lines = io.BytesIO(content).readlines()
        if not lines[-1].endswith(b"\n"):
            lines[-1] += b"\n"
        return _Ahead(file.name, stat_of_local(found), lines)
