"""The state of a key group as versions that never change: for tasks that may run more than once.

A task of a cluster may be tried again, run twice at a time, go on after it was given up, or move
to a machine with an empty disk. So it changes nothing that is there: it opens the version that the
cluster's own bookkeeping names, and writes another one, under a name that nobody else has. That
name, handed to the bookkeeping, is the commit; a version that nothing names is rubbish.

::

    ROOT/group-00003/000000000041-4f0c….version               manifest: files, sizes, checksums
    ROOT/group-00003/000000000041-4f0c…-000018.sst            table, shared with later versions

Only tables that are new are written. Old versions are kept for as many batches as may be run
again, then :meth:`GroupStore.collect` deletes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final
from weakref import WeakSet

from lowwater.errors import InvalidArgument, StateError, describe
from lowwater.state.key_layout import END
from lowwater.state.rocks_database import Scan
from lowwater.state.store import Batch, check_readable
from lowwater.state.versions.database import Database, Shelf, directory_of, shelf
from lowwater.state.versions.manifest import RESTART, file_number, new_version, number_of


@final
@dataclass(frozen=True, slots=True)
class Versions:
    """Where the versions of key groups are. A plain value: tasks may take copies along.

    Args:
        root: A path, or a URI that Arrow or fsspec can open; every task must reach it. The names
            in it are this library's. Nothing is read or written until a group is opened.
        cache: A directory on the local disk of the machine that runs a task, shared by any number
            of processes; by default one for this user in the directory for temporary files. It
            may be deleted at any time when no task runs. Hard links save copies where it is on
            the same filesystem as a local root.
        filesystem: A ``pyarrow.fs.FileSystem``, for what a URI cannot say; ``root`` is then a
            path on it.
        retain: Batches, counted back from the one opened, that may still be run again: at least
            Spark's ``minBatchesToRetain``, which is 100 by default.
        most_open: Key groups that a process keeps open when no task uses them.

    Raises:
        InvalidArgument: ``retain`` or ``most_open`` is negative.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> versions = Versions(f"{folder.name}/state", cache=f"{folder.name}/cache")
    >>> batch = Batch()
    >>> batch.put([b"a"], [b"1"])
    >>> with versions.open(3, None) as store:
    ...     first = store.commit(batch, number=0)
    >>> with versions.open(3, first) as store:
    ...     store.get([b"a", b"b"])
    [b'1', None]
    >>> folder.cleanup()
    """

    root: str | Path
    cache: str | Path | None = None
    filesystem: Any = None
    retain: int = 100
    most_open: int = 16

    def __post_init__(self) -> None:
        for name in ("retain", "most_open"):
            if getattr(self, name) < 0:
                raise InvalidArgument(f"{describe(name, getattr(self, name))} must not be negative")

    def open(self, group: int, version: str | None) -> GroupStore:
        """Return the rows of a key group at a version.

        At once if this process committed that version last; else its files are linked from the
        cache, and those that are not there fetched from the root. All are compared with their
        checksums then.

        Args:
            group: Number of the key group, 0 to 65 535.
            version: The name that a commit returned; None for no rows.

        Raises:
            InvalidArgument: This is no key group, or no name of a version.
            StateError: A file of the version is missing or damaged, or of a newer layout; or the
                root or the cache is out of reach.
        """
        if not 0 <= group <= 0xFFFF:
            raise InvalidArgument(f"{describe('group', group)} must be from 0 to 65535")
        if version is not None:
            number_of(version)
        place = shelf(self.root, self.cache, self.filesystem)
        return GroupStore(place, place.take(group, version), self.retain, self.most_open)


@final
class GroupStore:
    """The rows of one key group at one version, and the way to the next. :meth:`Versions.open`.

    ``get`` and ``scan`` are those of :class:`~lowwater.state.store.StateStore`. It is a context
    manager that closes itself; one thread at a time may use it. Two of one group do not disturb
    each other, whichever process or machine they are in.
    """

    def __init__(self, place: Shelf, database: Database, retain: int, most_open: int) -> None:
        self._shelf = place
        self._database: Database | None = database
        self._retain = retain
        self._most_open = most_open
        self._opened_at = database.manifest
        self._failure: str | None = None
        self._scans: WeakSet[Scan] = WeakSet()

    @property
    def version(self) -> str | None:
        """The version these rows are: the one opened, or the last one committed; None at first."""
        manifest = self._opened().manifest
        return None if manifest is None else manifest.version

    @property
    def size_bytes(self) -> int:
        """Bytes of the tables of this version, of which it may share most with earlier ones."""
        manifest = self._opened().manifest
        return 0 if manifest is None else sum(table.size for table in manifest.tables)

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        database = self._readable()
        wanted = check_readable(keys)
        try:
            found: list[bytes | None] = database.rows.get(wanted)
        except Exception as error:
            raise database.failed(error, "rows cannot be read") from error
        return found

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        database = self._readable()
        scan = Scan(database.rows, start, min(stop, END), database.where, restore=RESTART)
        self._scans.add(scan)
        return scan.rows()

    def commit(self, batch: Batch, number: int | None = None) -> str:
        """Write a new version: these rows, changed by a batch. Nothing that is there changes.

        The cost grows with the rows changed; from time to time RocksDB merges tables, and the
        result is written as well.

        Args:
            batch: Changes; if there are none, the version stays the same.
            number: Number of the micro-batch, larger than that of the version changed, and so
                counted that each batch of the query has its own; by default the next one.

        Returns:
            The name of the version, which is durable: hand it to what decides which task counts.

        Raises:
            InvalidArgument: ``number`` is not larger.
            StateError: It could not be written. These rows can then be used no longer: open the
                version that counts again.
        """
        database = self._readable()
        base = database.manifest
        least = 0 if base is None else number_of(base.version) + 1
        number = least if number is None else number
        if number < least:
            assert base is not None
            raise InvalidArgument(
                f"{describe('number', number)} is not larger than that of version {base.version}",
                hint="Number versions as the batches of the query are",
            )
        if base is not None and not len(batch):
            return base.version
        version = new_version(number)
        self._failure = "it was interrupted"
        try:
            database.advance(batch, version, self._retain)
        except StateError as error:
            self._failure = str(error)
            raise
        self._failure = None
        return version

    def collect(self, spare: int = 0) -> int:
        """Delete what no version needs that may be opened again; return the number of files.

        That is: what batches up to the one *opened* wrote, but for that version itself and those it
        was made from in the last ``retain`` batches before it. What later batches write, in
        whatever task, stays. One listing of the group's directory: do it now and then, not in each
        batch, where listing is slow.

        Args:
            spare: For how many batches, back from the one opened, to keep what other attempts
                wrote: for bookkeeping that may open any of them.

        Raises:
            StateError: The root cannot be listed, or a file cannot be closed.
        """
        opened = self._opened_at
        current = self._opened().manifest
        if opened is None or current is None:
            return 0
        directory, newest = directory_of(opened.group), number_of(opened.version) - spare
        near = {table.name for table in (*opened.tables, *current.tables)}
        self._shelf.cache.keep(directory, near, newest)
        kept = opened.kept()
        rubbish = []
        for name in self._shelf.root.sizes(directory):
            written = file_number(name)
            if written is not None and written <= newest and name not in kept:
                rubbish.append(name)
        self._shelf.root.delete(directory, rubbish)
        return len(rubbish)

    def close(self) -> None:
        """Release the rows; a second call does nothing. The process may keep them open."""
        database, self._database = self._database, None
        if database is None:
            return
        for scan in list(self._scans):
            scan.close()
        if self._failure is None and database.manifest is not None:
            self._shelf.give(database, self._most_open)
        else:
            database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _opened(self) -> Database:
        if self._database is None:
            raise StateError("the state store is closed", hint="Open the version again")
        return self._database

    def _readable(self) -> Database:
        database = self._opened()
        if self._failure is not None:
            raise StateError(
                f"an earlier commit failed: {self._failure}",
                where=str(database.where),
                hint="Open the version that counts again; the failed one is rubbish",
            )
        return database
