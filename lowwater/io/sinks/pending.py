"""Deliveries that collect, hidden and durable, until they are worth a file: the only copy of them.

Files that collect are named by delivery, like those that are published. When they are large or old
enough, or the run ends, those of each kind are joined into one file, which is published by rename.
A published file never changes and never goes, so whoever reads the folder sees each row once.

A list of the files that have collected, with sizes and checksums, is part of each commit of the
run. So what a restart finds can be compared with it, wherever the run was killed:

====  =====================================  ======================================================
step  what happens                           killed after it, a restart
====  =====================================  ======================================================
1     commit N: its deliveries, and the      finds the files of the list, or what was published of
      list of files up to N - 1              them; delivers N again
2     the files of N are put into            finds them in no list, but N among what comes again:
      ``.pending``                           removes them and delivers N again
3     when it is time, all are joined and    sees in the name of the published file what it holds:
      published, kind by kind                removes these files; N does not come a second time
4     the marker says up to which delivery   the same, also where programs move published files
      files were published                   away
5     the files are removed                  the same
6     commit N + 1: its list has only what   as after step 1
      waits then
====  =====================================  ======================================================

Whatever is in the list, not published, and gone or different is refused by name, as is a file that
is in no list and does not come again. A list of an older state is older than the folder: that is
noticed by the opening and the epochs, see :mod:`lowwater.io.sinks.output_owner`.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from typing import BinaryIO, final

import pyarrow as pa

from lowwater.engine.graph.sources import GrowingMap
from lowwater.engine.local.delivery import Writer
from lowwater.errors import PipelineWarning, StateError, warn
from lowwater.io.sinks import compaction as _compaction
from lowwater.io.sinks.compaction import (
    Compaction,
    alike,
    delivered_range,
    files_in,
    joined_name,
    published_up_to,
    remove_covered,
)
from lowwater.io.sinks.file_forms import form_of, has_null_type
from lowwater.io.sinks.folder_files import Entry, FileSet, OutputFolder
from lowwater.io.sinks.folder_names import KINDS, PENDING

_LOG = logging.getLogger("lowwater.sinks")
_SHOWN = 3
_READ_BYTES = 1 << 20


@final
class Pending:
    """The files of a folder that have collected.

    Args:
        folder: Where they collect, and where they are published.
        compaction: When to publish.
        writer: Who opens the folder; it knows which files there were at the last commit.
    """

    def __init__(self, folder: OutputFolder, compaction: Compaction | None, writer: Writer) -> None:
        self._folder = folder
        self._compaction = compaction
        self._writer = writer
        self.published: dict[str, str] = {}
        """The id of the last delivery that was published, for each kind of file."""
        self.files = GrowingMap()
        """What has collected: see :class:`~lowwater.engine.local.delivery.Held`."""
        self._bytes = 0
        self._since: float | None = None
        self._verified: set[str] = set()
        self._lost: dict[str, str] = {}
        self._had: set[str] = set()

    def check(
        self, known: Mapping[str, Sequence[int]] | None, published: Mapping[str, str]
    ) -> None:
        """Compare what is there with what was there at the last commit. Changes nothing.

        Args:
            known: What was there; ``None`` if the state does not say.
            published: What :attr:`published` was when it was last stored.

        Raises:
            StateError: A file is gone or different, and may not be dropped; or there is one that
                nobody has delivered.
            OSError: The folder cannot be read.
        """
        self._lost = {}
        if known is None:
            return
        names = files_in(self._folder.published)
        up_to = _later(published, published_up_to(names))
        entries = files_in(self._folder.collected)
        waiting = []
        for name in known:
            if not _covers(up_to, name):
                waiting.append(name)
            elif not _covers(published, name) and not any(_holds(one, name) for one in names):
                raise self._hidden(name, names)
        for name in waiting:
            if (what := self._difference(name, known[name], entries)) is not None:
                self._lost[name] = what
        strange = [
            name
            for name in entries
            if name not in known
            and not _covers(up_to, name)
            and delivered_range(name)[0] not in self._writer.again
        ]
        if strange:
            raise StateError(
                f"{strange[0]!r} is in {self._place!r}, and this state has not delivered it",
                hint="Move it elsewhere and start again",
            )
        if self._lost and not self._writer.drops:
            raise StateError(
                f"{self._told(known)}: {len(known):,} files had collected there by the last "
                "commit, and there is no other copy of them",
                hint="Put them back as they were, from a copy of the folder, and start again; or "
                "go on without their rows: drop_undelivered=True",
            )

    def has_published(
        self, known: Mapping[str, Sequence[int]], published: Mapping[str, str]
    ) -> bool:
        """Return whether all that had collected at the last commit is published.

        Args:
            known: What that was.
            published: What :attr:`published` was when it was last stored.
        """
        up_to = _later(published, published_up_to(files_in(self._folder.published)))
        return all(_covers(up_to, name) for name in known)

    def resume(
        self,
        known: Mapping[str, Sequence[int]] | None,
        published: Mapping[str, str],
        *,
        leaves: bool = False,
    ) -> None:
        """Resume what has collected; remove what is published already, or is delivered again.

        Args:
            known: What was there at the last commit; ``None`` if the state does not say.
            published: What ``published`` was when it was last stored: files that were published
                since may be gone from the folder, as programs may move them away.
            leaves: Whether the folder is left: then what comes again stays until it is published,
                as it may be asked at the next start, too, whether it was there.

        Raises:
            StateError: See :meth:`check`.
            OSError: The folder cannot be read or written.
        """
        self.check(known, published)
        self.published = _later(published, published_up_to(remove_covered(self._folder.published)))
        entries = files_in(self._folder.collected)
        left = {name: one for name, one in entries.items() if not self._covers(name)}
        if known is None:
            self.files = GrowingMap((name, self._adopted(name)) for name in left)
            if left:
                _LOG.warning(
                    "%r: %d files with %d rows wait there, and the state directory has no list of "
                    "them: they are taken as they are, and in its list from the next commit on",
                    self._place, len(left), _rows(self.files.values()),
                )  # fmt: skip
        else:
            if self._lost:
                warn(
                    PipelineWarning,
                    f"{self._told(known)}; their rows are dropped",
                    where=self._folder.name,
                    hint="That is what drop_undelivered=True is for; leave it out otherwise",
                )
            left = {name: one for name, one in left.items() if name in known}
            left = {name: one for name, one in left.items() if name not in self._lost}
            kept = {name: known[name] for name in left}
            is_whole = isinstance(known, GrowingMap) and len(kept) == len(known)
            self.files = known if is_whole else GrowingMap(kept)  # type: ignore[assignment]
        self._had = {delivered_range(name)[0] for name in entries}
        stays = {*left}
        if leaves:
            again = self._writer.again
            stays.update(name for name in entries if delivered_range(name)[0] in again)
        self._folder.collected.delete([name for name in entries if name not in stays])
        self._bytes = sum(size for size, _, _ in self.files.values())
        self._since = min((one.modified for one in left.values()), default=None)

    def clear(self) -> None:
        """Remove what is left of deliveries that came again; all of it is published."""
        self._folder.collected.delete(list(files_in(self._folder.collected)))

    def had(self, delivery_id: str) -> bool:
        """Return whether files of a delivery were there, or published, when this was resumed."""
        return delivery_id in self._had or any(
            delivery_id <= last for last in self.published.values()
        )

    def missing(self, files: Iterable[str]) -> list[str]:
        """Return those of a delivery's files that no published file covers."""
        return [name for name in files if not self._covers(name)]

    def added(self, files: Mapping[str, bytes], rows: Mapping[str, int]) -> None:
        """Note files that were put into the hidden folder.

        Args:
            files: What they hold.
            rows: How many rows that is, for each of them.
        """
        if files and self._since is None:
            self._since = _compaction.clock()
        for name, data in files.items():
            facts = [len(data), zlib.crc32(data), rows[name]]
            if name in self.files:  # a delivery that came again
                self._bytes -= self.files[name][0]
                self.files = GrowingMap({**self.files, name: facts})
            else:
                self.files = self.files.extended(name, facts)
            self._bytes += len(data)

    def is_due(self) -> bool:
        """Whether what has collected is to be published now."""
        if self._since is None or self._compaction is None:
            return False
        age_us = (_compaction.clock() - self._since) * 1e6
        return self._bytes >= self._compaction.size_bytes or age_us >= self._compaction.age_us

    def lacks_types(self) -> bool:
        """Whether a part that has collected has a column of a type that is not known."""
        return any(
            has_null_type(field.type)
            for name in self.files
            if name.startswith("part-")
            for field in form_of(name).schema(self._folder.collected, name)
        )

    def publish(self, mark: Callable[[], object]) -> None:
        """Publish all that has collected.

        Args:
            mark: Called when all is published and nothing removed yet: stores :attr:`published`.

        Raises:
            StateError: A file is gone or different: what was not published stays where it is.
            OSError: The folder cannot be written: likewise.
        """
        collected = self._folder.collected
        files = _Checked(collected, self.files, self._place)
        names = sorted(name for name in self.files if not self._covers(name))
        for kind in KINDS:
            for run in alike(files, [name for name in names if name.startswith(f"{kind}-")]):
                name = joined_name(run)
                if len(run) == 1:
                    self._folder.publish(name, files.read(name))
                else:
                    self._folder.join(files, run, name)
                self.published[kind] = delivered_range(name)[1]
        mark()
        # Listed, as a store may get what a process sent before it was killed after the next one
        # has begun.
        collected.delete([name for name in files_in(collected) if self._covers(name)])
        self.files, self._bytes, self._since = GrowingMap(), 0, None

    @property
    def _place(self) -> str:
        return f"{self._folder.name.rstrip('/')}/{PENDING}"

    def _covers(self, name: str) -> bool:
        """Return whether a published file holds what a file of one delivery does."""
        return _covers(self.published, name)

    def _difference(
        self, name: str, facts: Sequence[int], entries: Mapping[str, Entry]
    ) -> str | None:
        """Return how a file differs from what was written, if it does; its bytes are read once."""
        size, crc, _ = facts
        if name not in entries:
            return "is gone"
        if name in self._verified and entries[name].size == size:
            return None
        try:
            with self._folder.collected.open(name) as file:
                found_size, found_crc = _sums(file)
        except FileNotFoundError:
            return "is gone"
        if found_size != size:
            return f"has {found_size:,} bytes, and {size:,} were written"
        if found_crc != crc:
            return "has other bytes than were written"
        self._verified.add(name)
        return None

    def _adopted(self, name: str) -> list[int]:
        """Return size, checksum and rows of a file that is in no list."""
        with self._folder.collected.open(name) as file:
            data = file.read()
        try:
            rows = form_of(name).rows(data)
        except pa.ArrowException as error:
            raise StateError(
                f"{name!r} in {self._place!r} is damaged: {error}",
                hint="Put it back as it was, from a copy of the folder, or move it elsewhere to go "
                "on without its rows",
            ) from error
        return [len(data), zlib.crc32(data), rows]

    def _told(self, known: Mapping[str, Sequence[int]]) -> str:
        """Return which files are lost, and how many rows with them."""
        lost = list(self._lost.items())
        told = ", ".join(f"{name!r} {what}" for name, what in lost[:_SHOWN])
        if len(lost) > _SHOWN:
            told += f" and {len(lost) - _SHOWN:,} more"
        rows = _rows(known[name] for name in self._lost)
        return f"{rows:,} rows that wait in {self._place!r} are lost or damaged: {told}"

    def _hidden(self, name: str, names: Iterable[str]) -> StateError:
        kind = name.split("-", 1)[0]
        later = max(one for one in names if one.startswith(f"{kind}-"))
        return StateError(
            f"{later!r} is in {self._folder.name!r}, and {name!r}, which comes before it, waits in "
            f"{self._place!r}: the run has not published it there",
            hint=f"Move {later!r} back to where it was and start again",
        )


@final
class _Checked:
    """Files that are compared with what was written of them when they are read.

    Args:
        files: The files.
        facts: Size, checksum and rows of each.
        place: What errors call the folder.
    """

    def __init__(self, files: FileSet, facts: Mapping[str, Sequence[int]], place: str) -> None:
        self._files = files
        self._facts = facts
        self._place = place

    def entries(self) -> Mapping[str, Entry]:
        return self._files.entries()

    def open(self, name: str) -> BinaryIO:
        return BytesIO(self.read(name))

    def read(self, name: str) -> bytes:
        """Return what a file holds.

        Raises:
            StateError: That is not what was written.
        """
        size, crc, rows = self._facts[name]
        try:
            with self._files.open(name) as file:
                data = file.read()
        except FileNotFoundError as error:
            raise self._lost(name, rows, "is gone") from error
        if len(data) != size or zlib.crc32(data) != crc:
            raise self._lost(name, rows, "has other bytes than were written")
        return data

    def put(self, files: Mapping[str, bytes]) -> None:
        self._files.put(files)

    def delete(self, names: Iterable[str]) -> None:
        self._files.delete(names)

    def _lost(self, name: str, rows: int, what: str) -> StateError:
        return StateError(
            f"{rows:,} rows that wait in {self._place!r} are lost or damaged: {name!r} {what}",
            hint="Put it back as it was, from a copy of the folder, and start again: it is the "
            "only copy. Nothing else may change what is in that folder",
        )


def _sums(file: BinaryIO) -> tuple[int, int]:
    """Return the size and the CRC-32 of a file, read in pieces."""
    size = crc = 0
    for data in iter(lambda: file.read(_READ_BYTES), b""):
        size, crc = size + len(data), zlib.crc32(data, crc)
    return size, crc


def _rows(facts: Iterable[Sequence[int]]) -> int:
    return sum(rows for _, _, rows in facts)


def _covers(published: Mapping[str, str], name: str) -> bool:
    return delivered_range(name)[0] <= published.get(name.split("-", 1)[0], "")


def _holds(published: str, name: str) -> bool:
    """Whether a published file's deliveries include that of a file that has collected."""
    first, last = delivered_range(published)
    return published.split("-", 1)[0] == name.split("-", 1)[0] and (
        first <= delivered_range(name)[0] <= last
    )


def _later(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """Return for each kind of file the later one of two ids."""
    return {kind: max(some.get(kind, "") for some in (one, other)) for kind in {*one, *other}}
