"""The folder of a log: its files, its metadata and the committed offsets.

::

    log.json                                          layout version and number of partitions
    lock                                              held by the one writer
    compaction.lock                                   held by the one compaction
    segments.lock                                     held while the set of segments changes
    partition-00000/00000000000000000000.segment      frames, from the offset in the name on
    partition-00000/OFFSET-OFFSET.1.segment           the same compacted, up to the second offset
    readers/NAME.json                                 the offsets a named reader has committed
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import final

import pyarrow as pa

from lowwater.errors import InvalidArgument, StateError, describe
from lowwater.io.log._files import read_checked, write_checked
from lowwater.io.log.cursor import PartitionView
from lowwater.io.log.values import Offsets, as_offsets
from lowwater.io.paths import require_local
from lowwater.state.ownership import sync_directory

LAYOUT = 2
"""Of the folder; frames have a version of their own.

Layout 1 placed keys by another hash, so what is appended to such a log now would put one key into
two partitions.
"""
COMPACTED_LAYOUT = 3
"""Of a log that has been compacted. Versions that know layout 2 alone would take it for damaged."""
MOST_PARTITIONS = 100_000
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


@final
class Layout:
    """Where the parts of a log are.

    Args:
        path: The log's folder.
        partitions: The number of partitions.
    """

    def __init__(self, path: Path, partitions: int) -> None:
        self.path = path
        self.partitions = partitions

    @classmethod
    def find(cls, path: str | os.PathLike[str]) -> Layout | None:
        """Return the log in a folder, or ``None`` if there is none.

        Raises:
            StateError: It is damaged, or of another version.
        """
        folder = Path(path)
        found = read_checked(folder / "log.json")
        if found is None:
            return None
        number = found.get("layout")
        if number not in (LAYOUT, COMPACTED_LAYOUT):
            raise StateError(
                f"the log has layout {number!r}, and this version reads {LAYOUT} and "
                f"{COMPACTED_LAYOUT}",
                where=str(folder),
                hint="Read it with the lowwater that wrote it, and append its records to a new log",
            )
        partitions = found.get("partitions")
        if not isinstance(partitions, int) or not 0 < partitions <= MOST_PARTITIONS:
            raise StateError(
                f"the log says that it has {partitions!r} partitions",
                where=str(folder / "log.json"),
                hint="Put the file back from a copy",
            )
        return cls(folder, partitions)

    @classmethod
    def require(cls, path: str | os.PathLike[str]) -> Layout:
        """Return the log in a folder.

        Raises:
            InvalidArgument: There is none.
            StateError: It is damaged, or of another version.
        """
        require_local(os.fspath(path))
        found = cls.find(path)
        if found is None:
            raise InvalidArgument(
                f"there is no log in {os.fspath(path)!r}",
                hint="Check the path, or make one: Log(path, partitions=4)",
            )
        return found

    def create(self) -> None:
        """Write the metadata of a new log."""
        self._write(LAYOUT)

    def mark_compacted(self) -> None:
        """Store that the log may have compacted segments, before there are any; idempotent.

        Raises:
            StateError: It cannot be written.
        """
        if (read_checked(self.path / "log.json") or {}).get("layout") != COMPACTED_LAYOUT:
            self._write(COMPACTED_LAYOUT)

    def _write(self, number: int) -> None:
        write_checked(self.path / "log.json", {"layout": number, "partitions": self.partitions})

    def partition(self, number: int) -> Path:
        """Return the folder of a partition."""
        return self.path / f"partition-{number:05d}"

    def view(self, number: int) -> PartitionView:
        """Return a view of a partition, for reading."""
        return PartitionView(number, self.partition(number))

    def schema(self) -> pa.Schema | None:
        """Return the schema of the records; ``None`` while there are none.

        Raises:
            DataError: It is damaged.
        """
        found = (self.view(number).schema() for number in range(self.partitions))
        return next((schema for schema in found if schema is not None), None)

    def numbers(self, given: object, name: str = "partitions") -> tuple[int, ...]:
        """Convert one partition, several, or ``None`` for all, to a tuple of numbers.

        Raises:
            InvalidArgument: There is no such partition, or one is named twice.
        """
        if given is None:
            return tuple(range(self.partitions))
        several = tuple(given) if isinstance(given, Iterable) else (given,)
        for number in several:
            if (
                isinstance(number, bool)
                or not isinstance(number, int)
                or not 0 <= number < self.partitions
            ):
                raise InvalidArgument(
                    f"{describe(name, given)} is no partition of the log",
                    hint=f"Partitions are 0 to {self.partitions - 1}",
                )
        if not several or len(set(several)) < len(several):
            raise InvalidArgument(
                f"{describe(name, given)} names none, or one twice", hint="Name each once"
            )
        return tuple(sorted(several))

    def committed(self, name: str) -> Offsets | None:
        """Return the offsets that a reader has committed; ``None`` if there are none.

        Raises:
            StateError: The file is damaged.
        """
        path = self._reader_file(name)
        found = read_checked(path)
        if found is None:
            return None
        try:
            return as_offsets(found.get("offsets", ()), self.partitions, "offsets")
        except InvalidArgument as error:
            raise StateError(
                f"the committed offsets are damaged: {error.what}",
                where=str(path),
                hint="Remove the file; the reader then begins where its start says",
            ) from None

    def commit(self, name: str, position: Offsets) -> None:
        """Store a reader's offsets, atomically and durably; other partitions keep theirs.

        Raises:
            StateError: They cannot be written.
        """
        path = self._reader_file(name)
        offsets = {**(self.committed(name) or {}), **position}
        try:
            if not path.parent.is_dir():
                path.parent.mkdir(exist_ok=True)
                sync_directory(self.path)
        except OSError as error:
            raise StateError(
                f"the folder of committed offsets cannot be made: {error.strerror or error}",
                where=str(path.parent),
                hint="See that the log's folder may be written to",
            ) from None
        write_checked(path, {"layout": LAYOUT, "offsets": offsets})

    def _reader_file(self, name: str) -> Path:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidArgument(
                f"{describe('name', name)} is no name for a reader",
                hint="Use up to 100 letters, digits and the signs . _ -",
            )
        return self.path / "readers" / f"{name}.json"
