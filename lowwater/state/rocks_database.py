"""What every database of RocksDB here shares: options, batches, scans, errors and log checks."""

from __future__ import annotations

import errno
import mmap
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any, assert_never, final

from lowwater.errors import StateError, UnsupportedByRunner
from lowwater.state.forks import leave_to_parent
from lowwater.state.ownership import in_use, unreadable
from lowwater.state.store import Batch, Delete, DeleteRange, Put

# All that needs the package takes it from here, and this module is imported when state on disk is
# asked for, not before: a browser has no such package, and runs without state all the same.
try:
    import rocksdict as rocksdict
except ImportError as error:
    raise UnsupportedByRunner(
        f"state on disk is kept by RocksDB, whose package cannot be imported: {error}",
        where="state=",
        hint="Install it: pip install rocksdict. Where there is none, as in a browser, leave "
        "state= out: state is then kept in memory",
    ) from error

RESTORE = "Restore the directory from a copy, or empty it to start from the beginning"

# Who asks for the first row alone does not wait for hundreds.
_FIRST_ROWS = 4
_CHUNK_ROWS = 512
_CHUNK_BYTES = 1 << 20
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


def database_options(cache: Any, tuning: Tuning) -> Any:
    """Return the options of a database.

    Args:
        cache: A ``rocksdict.Cache``, for blocks read.
        tuning: What may be chosen.
    """
    tables = rocksdict.BlockBasedOptions()
    tables.set_block_cache(cache)
    tables.set_block_size(tuning.block_bytes)
    tables.set_bloom_filter(tuning.bloom_bits, False)
    tables.set_format_version(5)
    # In blocks: the filter of a whole table is larger than a small cache, and read at each touch.
    tables.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
    tables.set_partition_filters(True)
    tables.set_metadata_block_size(tuning.block_bytes)
    tables.set_pin_top_level_index_and_filter(True)
    # What finds blocks grows with the rows stored: it competes for the cache, which is bounded.
    tables.set_cache_index_and_filter_blocks(True)
    tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
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


def write_batch(batch: Batch) -> tuple[Any, int]:
    """Return a batch as RocksDB takes it, and how many ranges it deletes."""
    changes = rocksdict.WriteBatch(raw_mode=True)
    ranges = 0
    for change in batch.changes():
        match change:
            case Put(keys, values):
                for key, value in zip(keys, values, strict=True):
                    changes[key] = value
            case Delete(keys):
                for key in keys:
                    del changes[key]
            case DeleteRange(start, stop):
                changes.delete_range(start, stop)
                ranges += 1
            case _:
                assert_never(change)
    return changes, ranges


@final
class Scan:
    """An iterator of the database that the store can take away: it would keep the store open."""

    def __init__(
        self, database: Any, start: bytes, stop: bytes, path: Path, *, restore: str = RESTORE
    ) -> None:
        self._path = path
        self._restore = restore
        # Kept: the iterator looks at the bound in there, but does not keep it alive itself.
        self._options = rocksdict.ReadOptions()
        self._options.set_iterate_upper_bound(max(start, stop))
        try:
            self._rows = database.iter(self._options)
            self._rows.seek(start)
        except Exception as error:
            raise translated(
                error, self._path, "rows cannot be read", restore=self._restore
            ) from error

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows to the end, or raise: the database's own iterators end at an error."""
        most = _FIRST_ROWS
        while chunk := self._chunk(most):
            yield from chunk
            most = min(2 * most, _CHUNK_ROWS)

    def close(self) -> None:
        self._rows = None

    def _chunk(self, most: int) -> list[tuple[bytes, bytes]]:
        rows = self._rows
        if rows is None:
            raise StateError("the state store was closed during a scan", where=str(self._path))
        is_valid, key_of, value_of, go_on = rows.valid, rows.key, rows.value, rows.next
        chunk: list[tuple[bytes, bytes]] = []
        size = 0
        while size < _CHUNK_BYTES and len(chunk) < most and is_valid():
            value = value_of()
            chunk.append((key_of(), value))
            size += len(value)
            go_on()
        if not chunk:
            try:
                rows.status()
            except Exception as error:
                raise translated(
                    error, self._path, "rows cannot be read", restore=self._restore
                ) from error
        return chunk


def translated(
    error: Exception, path: Path, what: str, *, restore: str = RESTORE, reads: bool = False
) -> StateError:
    """Return what an error of the database means to a user, and what can be done.

    Args:
        error: What the database raised.
        path: Where it is.
        what: What failed, in the user's words.
        restore: The hint where files are damaged or missing.
        reads: Whether it was only to be read.
    """
    text = str(error).strip()
    if "lock hold by current process" in text:
        return StateError("the state is already open in this process", where=str(path))
    if "While lock file" in text:
        return in_use(path)
    named = re.search(r"[\w.-]+\.(?:sst|log)|MANIFEST-\d+|CURRENT", text)
    where = str(path) if named is None else f"{path}: {named[0]}"
    code = error.errno if isinstance(error, OSError) else None
    if code in _FULL_CODES or any(sign in text for sign in _FULL):
        hint = "Make room and open the state again: what was committed is there"
        return StateError(f"{what}: the disk is full ({text})", where=where, hint=hint)
    if code in {errno.EROFS, errno.EACCES, errno.EPERM} or "Permission denied" in text:
        if reads:
            return unreadable(error, path)
        hint = "Give this process the right to write there, or use another directory"
        return StateError(f"{what}: it cannot be written ({text})", where=where, hint=hint)
    if code in {errno.ENOTDIR, errno.EEXIST}:
        hint = "Use another directory"
        return StateError(f"{what}: this is not a directory", where=where, hint=hint)
    if "No such file" in text:
        return StateError(f"{what}: a file is missing ({text})", where=where, hint=restore)
    if "Corruption" in text:
        return StateError(f"{what}: it is damaged ({text})", where=where, hint=restore)
    return StateError(f"{what}: {text}", where=where)


# RocksDB has pools of threads for all databases of a process, which stay when the last of them is
# closed. A child has none of the threads, but its copy of RocksDB believes it has: whatever waits
# for the pool would wait forever. So they end before each fork, and start again when they are
# needed. It takes a tenth of a millisecond if they are idle.
_POOLS = {
    "rocksdb:low": "set_low_priority_background_threads",
    "rocksdb:high": "set_high_priority_background_threads",
    "rocksdb:bottom": "set_bottom_priority_background_threads",
}
_THREADS = Path("/proc/self/task")
_LOOKS, _PAUSE_S = 2_000, 0.000_5


@final
class _Pools:
    """The pools of RocksDB's threads in this process."""

    def __init__(self) -> None:
        self._was_opened = self._is_lost = False
        self._sizes: dict[str, int] = {}
        self._busy = False
        self._lock = threading.RLock()

    def require(self, where: Path) -> None:
        """Note that a database is about to be opened.

        Raises:
            StateError: This process was forked off while the threads were at work.
        """
        self._was_opened = True
        if self._is_lost:
            raise StateError(
                "this process was forked off while its parent was writing state, and cannot open "
                "any itself",
                where=str(where),
                hint="Start it with subprocess or the multiprocessing method "
                '"spawn", or fork it before the run of the parent begins',
            )

    def before_fork(self) -> None:
        self._lock.acquire()  # two threads may fork at once
        if not self._was_opened:
            return
        self._sizes = _running()
        self._resize(dict.fromkeys(self._sizes, 0))
        for _ in range(_LOOKS):
            self._busy = bool(_running()) or not _THREADS.is_dir()
            if not self._busy:
                break
            time.sleep(_PAUSE_S)

    def after_in_parent(self) -> None:
        if self._was_opened:
            self._resize(self._sizes)
        self._lock.release()

    def after_in_child(self) -> None:
        self._lock = threading.RLock()
        if self._was_opened and self._busy:
            self._is_lost = True
            leave_to_parent()
        self._was_opened, self._sizes = False, {}

    def _resize(self, sizes: Mapping[str, int]) -> None:
        for pool, size in sizes.items():
            getattr(rocksdict.Env(), _POOLS[pool])(size)


def _running() -> dict[str, int]:
    """Return how many threads each pool has; those of a fork that waits are as many as allowed."""
    names: list[str] = []
    for thread in _THREADS.iterdir() if _THREADS.is_dir() else ():
        with suppress(OSError):  # it has ended meanwhile
            # RocksDB numbers them on some systems.
            names.append((thread / "comm").read_text().strip().rstrip("0123456789"))
    return {pool: names.count(pool) for pool in _POOLS if pool in names}


_pools = _Pools()
require_threads = _pools.require
os.register_at_fork(
    before=_pools.before_fork,
    after_in_parent=_pools.after_in_parent,
    after_in_child=_pools.after_in_child,
)


# A log, and a manifest likewise, is a run of blocks of 32 KiB; in them records of a checksum (u32),
# a length (u16), a type (u8), little-endian, and so many bytes. RocksDB 9.8 does not return from
# reading a record whose type is one of those that only re-used logs have, in a log that is not one
# (facebook/rocksdb#13333): and a flipped bit is enough to make such a type.
_BLOCK = 32 << 10
_HEADER = Struct("<IHB")
_ENDLESS = frozenset({5, 6, 7, 8, 11})


def check_logs(directory: Path, *, hint: str) -> None:
    """Raise ``StateError`` if reading the logs of a database would not end.

    It looks at the headers of records alone, not at checksums: those are RocksDB's to compare.
    """
    for pattern in ("*.log", "MANIFEST-*"):
        for path in sorted(directory.glob(pattern)):
            at = _endless(path)
            if at is not None:
                what = f"it is damaged: byte {at} begins what is no record of this log"
                raise StateError(what, where=str(path), hint=hint)


def _endless(path: Path) -> int | None:
    with path.open("rb") as file:
        if not path.stat().st_size:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as log:
            at, size = 0, len(log)
            while at + _HEADER.size <= size:
                block_end = at - at % _BLOCK + _BLOCK
                if at + _HEADER.size > block_end:
                    at = block_end
                    continue
                _, length, kind = _HEADER.unpack_from(log, at)
                if kind in _ENDLESS:
                    return at
                after = at + _HEADER.size + length
                # A length that leaves the block is damage; zeros are room that was never used.
                at = after if after <= block_end and (length or kind) else block_end
    return None
