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

import errno
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any, Self, final
from weakref import WeakSet

import rocksdict

from lowwater.errors import StateError
from lowwater.state._rocks_log import check_logs
from lowwater.state.key_layout import END
from lowwater.state.ownership import (
    Ownership,
    holds_nothing,
    in_use,
    read_sequencer,
    sync_directory,
)
from lowwater.state.store import Batch, Delete, Put, check_readable

FORMAT = 1
"""Version of the layout of rows and files; a store of a newer one is refused."""

_FORMAT_KEY = END + b"format"
# Commit n has its row in slot n modulo this. Two logs at most are alive, of a memtable each, and
# the older one is flushed long before the newer one has taken in so many commits.
_SLOTS = 16_384
_SLOT_KEY = Struct(">2s1sH")
_COMMIT = Struct(">QQ")
_DIRECTORY = "rocksdb-"
_MOST_RANGES = 1000
_CHUNK_ROWS = 512
_CHUNK_BYTES = 1 << 20
_RESTORE = "Restore the directory from a copy, or empty it to begin anew"
_FULL = ("No space left", "File too large", "quota")
_FULL_CODES = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """How RocksDB is set up: the defaults are the best of ``python -m benchmarks.state_store``.

    Args:
        compression: ``"none"``, ``"lz4"`` or ``"zstd"``: of tables, never of the log.
        compaction: ``"level"`` or ``"universal"``.
        block_bytes: Size of a block of a table, before compression: what a look-up reads.
        bloom_bits: Bits per key of the Bloom filters that save look-ups of keys that are not there.
        memtable_bytes: Rows collected in memory before they go to a table; twice this at most.
    """

    compression: str = "lz4"
    compaction: str = "level"
    block_bytes: int = 4096
    bloom_bits: int = 10
    memtable_bytes: int = 32 << 20


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
        self._options = _options(block_cache_bytes, tuning)
        self._database: Any = None
        self._owner: Ownership | None = None
        self._failure: str | None = None
        self._scans: WeakSet[_Scan] = WeakSet()
        self._durable = rocksdict.WriteOptions()
        self._durable.sync = True
        self._last_commit = 0
        self._ranges = 0
        try:
            if read_only:
                self._open_to_read()
            else:
                self._open_to_write()
        except OSError as error:
            self.close()
            raise _translated(error, self.path, "the state cannot be opened") from error
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
            raise _translated(error, self.path, "rows cannot be read") from error
        return found

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        scan = _Scan(self._opened(), start, min(stop, END), self.path)
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
                mend="Open the state again: it then holds what was committed, and nothing else",
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
        for scan in list(self._scans):
            scan.close()
        database, self._database = self._database, None
        try:
            if database is not None and self._may_flush(database):
                database.close()
        except Exception as error:
            raise _translated(error, self.path, "the state cannot be closed") from error
        finally:
            del database
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

    def _find(self, sequencer: tuple[int, int] | None) -> bool:
        """Find the database; return whether there is one, raise if there should be."""
        found = sorted(self.path.glob(f"{_DIRECTORY}*"))
        if len(found) > 1:
            names = ", ".join(each.name for each in found)
            raise StateError(f"two databases, {names}", where=str(self.path), mend=_RESTORE)
        if not found and sequencer is None and not holds_nothing(self.path):
            what = "the directory is not empty, and what is in it is not state"
            raise StateError(what, where=str(self.path), mend="Use a directory of its own")
        if found:
            self._directory = found[0]
        if found and sequencer is None:
            raise StateError("SEQUENCER is missing", where=str(self.path), mend=_RESTORE)
        if (self._directory / "CURRENT").exists():
            return True
        # An opening that was killed may have got so far, but only the first of all.
        if sequencer is not None and sequencer[1]:
            what = "CURRENT is missing" if found else "the database is missing"
            raise StateError(what, where=str(self._directory), mend=_RESTORE)
        return False

    def _move(self, directory: Path) -> None:
        if self._directory == self.path:
            directory.mkdir()
        else:
            self._directory.rename(directory)
        sync_directory(self.path)
        self._directory = directory

    def _rdict(self, *, read_only: bool) -> Any:
        access = rocksdict.AccessType
        check_logs(self._directory, mend=_RESTORE)
        try:
            return rocksdict.Rdict(
                str(self._directory),
                self._options,
                # Said expressly: or options of the last opening, with a small cache, come back.
                column_families={"default": self._options},
                access_type=access.read_only(False) if read_only else access.read_write(),
            )
        except Exception as error:
            raise _translated(error, self.path, "the state cannot be opened") from error

    def _inspect(self, database: Any, acknowledged: int) -> tuple[int, int]:
        """Return the last commit and its sequencer; raise if an acknowledged one is missing."""
        for _, version in _Scan(database, _FORMAT_KEY, _FORMAT_KEY + b"\0", self.path).rows():
            newer = int.from_bytes(version)
            if newer > FORMAT:
                raise StateError(
                    f"the state has format {newer}, but this version of lowwater knows {FORMAT}",
                    where=str(self.path),
                    mend="Use the version that wrote it, or a later one",
                )
        slots = _Scan(database, END + b"c", END + b"d", self.path).rows()
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
                mend=f"{_RESTORE}; nothing was changed",
            )
        return last, sequencer

    def _write(self, database: Any, batch: Batch, *own: tuple[bytes, bytes]) -> None:
        """Write a batch, and the number of the commit with it."""
        assert self._owner is not None
        changes = rocksdict.WriteBatch(raw_mode=True)
        number = self._last_commit + 1
        for change in batch.changes():
            match change:
                case Put(keys, values):
                    for key, value in zip(keys, values, strict=True):
                        changes[key] = value
                case Delete(keys):
                    for key in keys:
                        del changes[key]
                case _:
                    changes.delete_range(change.start, change.stop)
                    self._ranges += 1
        for key, value in own:
            changes[key] = value
        changes[_slot_key(number % _SLOTS)] = _COMMIT.pack(number, self._owner.sequencer)
        try:
            database.write(changes, self._durable)
            if self._ranges > _MOST_RANGES:
                # A read sorts the ranges deleted in memory anew whenever there is one more; those
                # of a table are sorted once.
                database.flush(False)
                self._ranges = 0
        except Exception as error:
            raise _translated(error, self.path, "a commit failed") from error
        self._last_commit = number

    def _opened(self) -> Any:
        if self._database is None:
            raise StateError("the state store is closed", where=str(self.path), mend="Open it")
        return self._database


@final
class _Scan:
    """An iterator of the database that the store can take away: it would keep the store open."""

    def __init__(self, database: Any, start: bytes, stop: bytes, path: Path) -> None:
        self._path = path
        # Kept: the iterator looks at the bound in there, but does not keep it alive itself.
        self._options = rocksdict.ReadOptions()
        self._options.set_iterate_upper_bound(max(start, stop))
        try:
            self._rows = database.iter(self._options)
            self._rows.seek(start)
        except Exception as error:
            raise _translated(error, self._path, "rows cannot be read") from error

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows to the end, or raise: the database's own iterators end at an error."""
        while chunk := self._chunk():
            yield from chunk

    def close(self) -> None:
        self._rows = None

    def _chunk(self) -> list[tuple[bytes, bytes]]:
        rows = self._rows
        if rows is None:
            raise StateError("the state store was closed during a scan", where=str(self._path))
        chunk: list[tuple[bytes, bytes]] = []
        size = 0
        while size < _CHUNK_BYTES and len(chunk) < _CHUNK_ROWS and rows.valid():
            value = rows.value()
            chunk.append((rows.key(), value))
            size += len(value)
            rows.next()
        if not chunk:
            try:
                rows.status()
            except Exception as error:
                raise _translated(error, self._path, "rows cannot be read") from error
        return chunk


def _options(cache_bytes: int, tuning: Tuning) -> Any:
    tables = rocksdict.BlockBasedOptions()
    tables.set_block_cache(rocksdict.Cache(cache_bytes))
    tables.set_block_size(tuning.block_bytes)
    tables.set_bloom_filter(tuning.bloom_bits, False)
    tables.set_format_version(5)
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(tables)
    options.set_compression_type(getattr(rocksdict.DBCompressionType, tuning.compression)())
    options.set_compaction_style(getattr(rocksdict.DBCompactionStyle, tuning.compaction)())
    options.set_write_buffer_size(tuning.memtable_bytes)
    options.set_max_write_buffer_number(2)
    # What was not acknowledged may be torn in any way; that nothing else is, the numbers of the
    # commits show. The other modes accept a hole between two logs, or refuse a torn tail.
    options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.point_in_time())
    options.set_paranoid_checks(True)
    options.set_keep_log_file_num(2)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def _slot_key(slot: int) -> bytes:
    return _SLOT_KEY.pack(END, b"c", slot)


def _span(numbers: list[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _translated(error: Exception, path: Path, what: str) -> StateError:
    """Return what an error of the database means to a user, and what can be done."""
    text = str(error).strip()
    if "lock hold by current process" in text:
        return StateError("the state is already open in this process", where=str(path))
    if "While lock file" in text:
        return in_use(path)
    named = re.search(r"[\w.-]+\.(?:sst|log)|MANIFEST-\d+|CURRENT", text)
    where = str(path) if named is None else f"{path}: {named[0]}"
    code = error.errno if isinstance(error, OSError) else None
    if code in _FULL_CODES or any(sign in text for sign in _FULL):
        mend = "Make room and open the state again: what was committed is there"
        return StateError(f"{what}: the disk is full ({text})", where=where, mend=mend)
    if code in {errno.EROFS, errno.EACCES, errno.EPERM} or "Permission denied" in text:
        mend = "Give this process the right to write there, or use another directory"
        return StateError(f"{what}: it cannot be written ({text})", where=where, mend=mend)
    if code in {errno.ENOTDIR, errno.EEXIST}:
        mend = "Use another directory"
        return StateError(f"{what}: this is not a directory", where=where, mend=mend)
    if "No such file" in text:
        return StateError(f"{what}: a file is missing ({text})", where=where, mend=_RESTORE)
    if "Corruption" in text:
        return StateError(f"{what}: it is damaged ({text})", where=where, mend=_RESTORE)
    return StateError(f"{what}: {text}", where=where)
