"""A state store on RocksDB: more rows than memory holds, and each commit safe from a crash.

::

    DIR/OWNER, DIR/SEQUENCER    who may write: see lowwater.state.ownership
    DIR/rocksdb-N/              the database, as opening N named it: one column family, with keys
                                and values as they are given

Each opening renames the database's directory. A former owner that was taken over unawares cannot
harm it then: closing alone would have RocksDB write its old list of files, and delete the others.

Below :data:`~lowwater.state.key_layout.END` are the user's rows; from there on the store's own:
its format, and for each of the last commits a row with its number. RocksDB itself takes a log
that is cut short, or gone, for one that was never longer. These numbers tell the difference: each
commit that was acknowledged must be found, with none missing before it, or the state is refused.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory
from typing import Any, Self, final
from weakref import WeakSet

from lowwater.errors import StateError
from lowwater.state.forks import check_process, outlive_forks, process_number
from lowwater.state.key_layout import END
from lowwater.state.ownership import (
    Ownership,
    holds_nothing,
    read_sequencer,
    sync_directory,
)
from lowwater.state.rocks_database import (
    RESTORE,
    Scan,
    check_logs,
    database_options,
    require_threads,
    rocksdict,
    translated,
    write_batch,
)
from lowwater.state.rocks_database import Tuning as Tuning
from lowwater.state.store import Batch, check_readable

FORMAT = 1
"""Version of the layout of rows and files; a store of a newer one is refused."""

_LOG = logging.getLogger("lowwater.state")

_FORMAT_KEY = END + b"format"
# Commit n has its row in slot n modulo this. Two logs at most are alive, of a memtable each, and
# the older one is flushed long before the newer one has taken in so many commits.
_SLOTS = 16_384
_SLOT_KEY = Struct(">2s1sH")
_COMMIT = Struct(">QQ")
_REMAINS = re.compile(r"rocksdict-config\.json|LOG(\.old\.\d+)?|LOCK")
_DIRECTORY = "rocksdb-"
_MOST_RANGES = 1000


_DEFAULT_TUNING = Tuning()


@final
class RocksStore:
    """Rows in a directory.

    A commit is one write batch and one sync of the log: its cost grows with the rows in it, not
    with the rows held. Getting a row is at most a block per level; keys that are not there mostly
    cost no read. A range is deleted by one entry.

    Args:
        path: Directory, made if it is missing. Nothing else may be in it.
        block_cache_bytes: Memory for blocks read.
        read_only: Look, without taking over: also beside a live owner, whose later commits do not
            show. Commits raise ``StateError``.
        tuning: How RocksDB is set up.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        block_cache_bytes: int = 64 << 20,
        read_only: bool = False,
        tuning: Tuning = _DEFAULT_TUNING,
    ) -> None:
        self.path = Path(path).resolve()
        self._directory = self.path
        self._options = database_options(rocksdict.Cache(block_cache_bytes), tuning)
        self._database: Any = None
        self._owner: Ownership | None = None
        self._process = process_number()
        outlive_forks(self)
        self._failure: str | None = None
        self._scans: WeakSet[Scan] = WeakSet()
        self._durable = rocksdict.WriteOptions()
        self._durable.sync = True
        self._last_commit = 0
        self._ranges = 0
        self._links: TemporaryDirectory[str] | None = None
        try:
            if read_only:
                self._open_to_read()
            else:
                self._open_to_write()
        except OSError as error:
            self.close()
            what = "the state cannot be opened"
            raise translated(error, self.path, what, reads=read_only) from error
        except BaseException:
            self.close()
            raise

    @property
    def sequencer(self) -> int:
        """The number of this opening; 0 if it is read-only."""
        return self._owner.sequencer if self._owner else 0

    @property
    def last_commit(self) -> int:
        """The number of the last commit; an opening counts as one."""
        return self._last_commit

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        database = self._opened()
        wanted = check_readable(keys)
        try:
            found: list[bytes | None] = database.get(wanted)
        except Exception as error:
            raise translated(error, self.path, "rows cannot be read") from error
        return found

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        scan = Scan(self._opened(), start, min(stop, END), self.path)
        self._scans.add(scan)
        return scan.rows()

    def commit(self, batch: Batch) -> None:
        database = self._opened()
        if self._owner is None:
            raise StateError("the state is open for reading only", where=str(self.path))
        if self._failure is not None:
            raise StateError(
                f"an earlier commit failed: {self._failure}",
                where=str(self.path),
                hint="Open the state again: it then holds what was committed, and nothing else",
            )
        try:
            self._owner.check()
            if not len(batch):
                return
            self._write(database, batch)
            # Once more: who was taken over in the meantime must not say that this was committed.
            self._owner.check()
            self._owner.acknowledge(self._last_commit)
        except StateError as error:
            self._failure = str(error)
            # Who may have lost the directory must not go on writing tables there.
            database.cancel_all_background(True)
            raise

    def verify(self) -> int:
        """Read every row, so that every checksum is compared; return the number of rows."""
        return sum(1 for _ in self.scan(b"", END))

    def close(self) -> None:
        if process_number() != self._process:
            return  # forked off: see outlive_forks
        for scan in list(self._scans):
            scan.close()
        database, self._database = self._database, None
        try:
            if database is not None and self._may_flush(database):
                database.close()
        except Exception as error:
            raise translated(error, self.path, "the state cannot be closed") from error
        finally:
            del database
            if self._links is not None:
                self._links.cleanup()
            if self._owner is not None:
                self._owner.release()

    def _may_flush(self, database: Any) -> bool:
        """Whether closing may move rows from the log to a table; the log will do otherwise."""
        if self._owner is None:
            return True
        try:
            self._owner.check()
        except StateError as error:
            self._failure = str(error)
            database.cancel_all_background(True)
        return self._failure is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _open_to_read(self) -> None:
        if not self.path.is_dir():
            raise StateError("there is no state", where=str(self.path))
        # Before the database is opened: what is acknowledged later need not show in it.
        found = read_sequencer(self.path)
        if not self._find(found):
            raise StateError("there is no state yet", where=str(self.path))
        self._database = self._rdict(read_only=True)
        self._last_commit, _ = self._inspect(self._database, found[1] if found else 0)

    def _open_to_write(self) -> None:
        if not self.path.exists():
            self.path.mkdir(parents=True, exist_ok=True)
            sync_directory(self.path.parent)
        self._owner = Ownership(self.path)
        found = read_sequencer(self.path)
        sequencer, acknowledged = found or (0, 0)
        if self._find(found):
            # Opening to write discards what it takes for unfinished. So look first, change nothing.
            peek = self._rdict(read_only=True)
            try:
                sequencer = max(sequencer, self._inspect(peek, acknowledged)[1])
            finally:
                peek.close()
        self._owner.take(sequencer + 1, acknowledged)
        self._move(self.path / f"{_DIRECTORY}{self._owner.sequencer}")
        self._database = self._rdict(read_only=False)
        self._last_commit, _ = self._inspect(self._database, acknowledged)
        # The opening is a commit: from now on the store, too, says who owns it.
        self._write(self._database, Batch(), (_FORMAT_KEY, FORMAT.to_bytes(4)))
        self._owner.acknowledge(self._last_commit)
        _LOG.info("%s was opened, as opening %d", self.path, self._owner.sequencer)

    def _find(self, sequencer: tuple[int, int] | None) -> bool:
        """Find the database; return whether there is one, raise if there should be."""
        found = sorted(self.path.glob(f"{_DIRECTORY}*"))
        if len(found) > 1:
            found = self._without_remains(found)
        if len(found) > 1:
            names = ", ".join(each.name for each in found)
            raise StateError(f"two databases, {names}", where=str(self.path), hint=RESTORE)
        if not found and sequencer is None and not holds_nothing(self.path):
            what = "the directory is not empty, and what is in it is not state"
            raise StateError(what, where=str(self.path), hint="Use a directory of its own")
        if found:
            self._directory = found[0]
        if found and sequencer is None:
            raise StateError("SEQUENCER is missing", where=str(self.path), hint=RESTORE)
        if (self._directory / "CURRENT").exists():
            return True
        # An opening that was killed may have got so far, but only the first of all.
        if sequencer is not None and sequencer[1]:
            what = "CURRENT is missing" if found else "the database is missing"
            raise StateError(what, where=str(self._directory), hint=RESTORE)
        return False

    def _without_remains(self, found: list[Path]) -> list[Path]:
        """Return databases without what somebody who only looked has left; the owner removes it.

        RocksDB makes the directory it is to read. A reader that finds the database just as its
        owner renames it leaves one of the former name, without tables or logs.
        """
        real = []
        for directory in found:
            files = list(directory.iterdir())
            if not all(_REMAINS.fullmatch(file.name) for file in files):
                real.append(directory)
            elif self._owner is not None:
                for file in files:
                    file.unlink(missing_ok=True)
                directory.rmdir()
        return real

    def _move(self, directory: Path) -> None:
        if self._directory == self.path:
            directory.mkdir()
        else:
            self._directory.rename(directory)
        sync_directory(self.path)
        self._directory = directory

    def _rdict(self, *, read_only: bool) -> Any:
        access = rocksdict.AccessType
        require_threads(self.path)
        check_logs(self._directory, hint=RESTORE)
        directory = self._seen_from_elsewhere() if read_only else self._directory
        try:
            return rocksdict.Rdict(
                str(directory),
                self._options,
                # Said expressly: or options of the last opening, with a small cache, come back.
                column_families={"default": self._options},
                access_type=access.read_only(False) if read_only else access.read_write(),
            )
        except Exception as error:
            what = "the state cannot be opened"
            raise translated(error, self.path, what, reads=read_only) from error

    def _seen_from_elsewhere(self) -> Path:
        """Return where to open the database to read it: where this process may write.

        RocksDB opens a log of messages beside the files, even to read them. Where that is not
        allowed, it gets a directory of links to them. What the owner writes later does not show.
        """
        if os.access(self._directory, os.W_OK | os.X_OK):
            return self._directory
        self._links = TemporaryDirectory(prefix="lowwater-state-", ignore_cleanup_errors=True)
        for file in self._directory.iterdir():
            if not _REMAINS.fullmatch(file.name):
                (Path(self._links.name) / file.name).symlink_to(file)
                with file.open("rb"):  # RocksDB would not say which of them it may not read
                    pass
        return Path(self._links.name)

    def _inspect(self, database: Any, acknowledged: int) -> tuple[int, int]:
        """Return the last commit and its sequencer; raise if an acknowledged one is missing."""
        for _, version in Scan(database, _FORMAT_KEY, _FORMAT_KEY + b"\0", self.path).rows():
            newer = int.from_bytes(version)
            if newer > FORMAT:
                raise StateError(
                    f"the state has format {newer}, but this version of lowwater knows {FORMAT}",
                    where=str(self.path),
                    hint="Use the version that wrote it, or a later one",
                )
        slots = Scan(database, END + b"c", END + b"d", self.path).rows()
        commits = sorted(_COMMIT.unpack(slot) for _, slot in slots)
        last, sequencer = commits[-1] if commits else (0, 0)
        held = {number for number, _ in commits}
        missing = [n for n in range(max(1, last - _SLOTS + 1), last + 1) if n not in held]
        missing.extend(range(last + 1, acknowledged + 1))
        if missing:
            raise StateError(
                f"commits were lost that had been acknowledged: {_span(missing)} of "
                f"{max(last, acknowledged)}. A log or manifest was cut short, or a file is missing",
                where=str(self._directory),
                hint=f"{RESTORE}; nothing was changed",
            )
        return last, sequencer

    def _write(self, database: Any, batch: Batch, *own: tuple[bytes, bytes]) -> None:
        """Write a batch, and the number of the commit with it."""
        assert self._owner is not None
        changes, ranges = write_batch(batch)
        self._ranges += ranges
        number = self._last_commit + 1
        for key, value in own:
            changes[key] = value
        changes[_slot_key(number % _SLOTS)] = _COMMIT.pack(number, self._owner.sequencer)
        try:
            database.write(changes, self._durable)
            if self._ranges > _MOST_RANGES:
                # A read sorts the ranges deleted in memory again whenever there is one more; those
                # of a table are sorted once.
                database.flush(False)
                self._ranges = 0
        except Exception as error:
            raise translated(error, self.path, "a commit failed") from error
        self._last_commit = number

    def _opened(self) -> Any:
        check_process(self._process)
        if self._database is None:
            raise StateError("the state store is closed", where=str(self.path), hint="Open it")
        return self._database


def _slot_key(slot: int) -> bytes:
    return _SLOT_KEY.pack(END, b"c", slot)


def _span(numbers: list[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
