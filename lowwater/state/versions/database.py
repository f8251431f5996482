"""A database of RocksDB that holds one version of a key group, and is carried to the next.

A process keeps databases open between batches, each at the version it committed last. It has one
shelf for each root and cache, for as long as it lives: in a worker of Spark, tasks come and go with
their own copies of all values, but the next batch mostly resumes where the last one ended.
"""

from __future__ import annotations

import atexit
import os
import shutil
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Any, final

from lowwater.errors import InternalError, StateError
from lowwater.state.forks import outlive_forks
from lowwater.state.rocks_database import (
    Tuning,
    database_options,
    require_threads,
    rocksdict,
    translated,
    write_batch,
)
from lowwater.state.store import Batch
from lowwater.state.versions.cache import Cache
from lowwater.state.versions.manifest import (
    MANIFEST,
    RESTART,
    Manifest,
    SharedTable,
    decode,
    encode,
    successor,
)
from lowwater.state.versions.root import Root, checksum, root_at

_TABLES_BEFORE_COMPACTION = range(8, 16)
_MANIFEST_BYTES = 64 << 10


@final
class Database:
    """Rows in a working directory of their own, without a log: a version is what outlives it.

    Args:
        group: The key group.
        manifest: The version to hold; None for no rows.
        root: Where versions are.
        cache: Where tables may be at hand.
        block_cache: A ``rocksdict.Cache``, for blocks read.

    Raises:
        StateError: A file of the version is missing or damaged.
    """

    def __init__(
        self, group: int, manifest: Manifest | None, root: Root, cache: Cache, block_cache: Any
    ) -> None:
        self.group = group
        self.manifest = manifest
        self._root = root
        self._cache = cache
        self._place = cache.new_directory()
        self.where = self._place / "rows"
        self._directory = directory_of(group)
        self._unlogged = rocksdict.WriteOptions()
        self._unlogged.disable_wal = True
        self.rows: Any = None
        outlive_forks(self)
        try:
            require_threads(self.where)
            self.where.mkdir()
            if manifest is not None:
                self._fill(manifest)
            chosen = options(block_cache, group)
            self.rows = rocksdict.Rdict(
                str(self.where), chosen, column_families={"default": chosen}
            )
        except StateError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise self.failed(error, "a version cannot be opened") from error

    def advance(self, batch: Batch, version: str, retain: int) -> Manifest:
        """Change the rows, and write all of them as a new version; it is durable on return.

        After an error the rows are neither the old version's nor the new one's.
        """
        taken = self._place / "taken"
        try:
            self.rows.write(write_batch(batch)[0], self._unlogged)
            self.rows.flush(True)
            rocksdict.Checkpoint(self.rows).create_checkpoint(str(taken))
        except Exception as error:
            raise self.failed(error, "a version cannot be written") from error
        try:
            manifest = self._publish(taken, version, retain)
        except OSError as error:
            raise self.failed(error, "a version cannot be written") from error
        finally:
            shutil.rmtree(taken, ignore_errors=True)  # the working directory goes later, whole
        self.manifest = manifest
        return manifest

    def close(self) -> None:
        """Close the database and delete its directory; versions are elsewhere."""
        rows, self.rows = self.rows, None
        try:
            if rows is not None:
                # Its own close would flush, and wait for tables that are being merged. Without a
                # reference it closes at once.
                rows.cancel_all_background(True)
        except Exception as error:
            raise self.failed(error, "a version cannot be closed") from error
        finally:
            del rows
            shutil.rmtree(self._place, ignore_errors=True)

    def failed(self, error: Exception, what: str) -> StateError:
        """Return what an error of the database means to a user."""
        version = "no version" if self.manifest is None else f"version {self.manifest.version}"
        return translated(
            error, self.where, f"{what} (key group {self.group}, from {version})", restore=RESTART
        )

    def _fill(self, manifest: Manifest) -> None:
        for table in manifest.tables:
            self._cache.take(self._root, self._directory, table, self.where / table.local)
        for name, data in manifest.small.items():
            (self.where / name).write_bytes(data)

    def _publish(self, taken: Path, version: str, retain: int) -> Manifest:
        base = self.manifest
        held = {table.local: table for table in base.tables} if base is not None else {}
        tables, fresh, small = [], {}, {}
        for path in sorted(taken.iterdir()):
            if path.suffix == ".sst":
                table = held.get(path.name)
                if table is None:
                    name = f"{version}-{path.name}"
                    table = SharedTable(name, path.name, path.stat().st_size, checksum(path))
                    fresh[name] = path
                tables.append(table)
            elif path.name == "CURRENT" or path.name.startswith("MANIFEST-"):
                small[path.name] = path.read_bytes()
            elif path.suffix == ".log" and path.stat().st_size:
                raise InternalError(f"rows were left in a log: {path.name}")
        for name, path in fresh.items():
            self._cache.add(self._directory, name, path)
        manifest = successor(
            base, group=self.group, version=version, tables=tables, small=small, retain=retain
        )
        self._root.put(self._directory, fresh, version + MANIFEST, encode(manifest))
        return manifest


def options(cache: Any, group: int) -> Any:
    """Return the options of a key group's database.

    Args:
        cache: A ``rocksdict.Cache``, for blocks read.
        group: The key group.
    """
    chosen = database_options(cache, Tuning())
    # Each commit makes a table: merging them more rarely writes, and uploads, less. Key groups
    # grow alike, and with one number would all merge their tables in the same micro-batch.
    most = _TABLES_BEFORE_COMPACTION[group % len(_TABLES_BEFORE_COMPACTION)]
    chosen.set_level_zero_file_num_compaction_trigger(most)
    # It is part of each version: small.
    chosen.set_max_manifest_file_size(_MANIFEST_BYTES)
    return chosen


def directory_of(group: int) -> str:
    """Return the name of a key group's directory at the root."""
    return f"group-{group:05d}"


def read_manifest(root: Root, group: int, version: str) -> Manifest:
    """Return the manifest of a version, all of whose files are there and of the right size.

    Raises:
        StateError: One is not; or the manifest is damaged, or of a newer layout.
    """
    directory, name = directory_of(group), version + MANIFEST
    sizes = root.sizes(directory)
    if name not in sizes:
        raise StateError(
            f"version {version} of key group {group} is missing",
            where=root.where(directory, name),
            hint=RESTART,
        )
    where = root.where(directory, name)
    manifest = decode(root.read(directory, name), group=group, version=version, where=where)
    for table in manifest.tables:
        size = sizes.get(table.name)
        if size != table.size:
            found = "missing" if size is None else f"damaged: {size:,} bytes, not {table.size:,}"
            raise StateError(
                f"a table of version {version} of key group {group} is {found}",
                where=root.where(directory, table.name),
                hint=RESTART,
            )
    return manifest


_BLOCK_CACHE_BYTES = 64 << 20


@final
class Shelf:
    """Databases by key group, at most one of each, the one used last first."""

    def __init__(self, root: Root, cache: Cache, filesystem: Any) -> None:
        self.root = root
        self.cache = cache
        self.filesystem = filesystem
        self._block_cache = rocksdict.Cache(_BLOCK_CACHE_BYTES)
        self._idle: OrderedDict[int, Database] = OrderedDict()
        self._lock = Lock()

    def take(self, group: int, version: str | None) -> Database:
        """Return a database that holds a version; it is the caller's until it is given back."""
        with self._lock:
            idle = self._idle.pop(group, None)
        if idle is not None:
            if version is not None and idle.manifest and idle.manifest.version == version:
                return idle
            idle.close()
        manifest = None if version is None else read_manifest(self.root, group, version)
        return Database(group, manifest, self.root, self.cache, self._block_cache)

    def give(self, database: Database, most: int) -> None:
        """Keep a database for whoever continues from its version; of others, so many in all."""
        with self._lock:
            replaced = self._idle.pop(database.group, None)
            dropped = [] if replaced is None else [replaced]
            self._idle[database.group] = database
            while len(self._idle) > most:
                dropped.append(self._idle.popitem(last=False)[1])
        for each in dropped:
            each.close()

    def close(self) -> None:
        """Close all databases and give up the local room."""
        with self._lock:
            idle = list(self._idle.values())
            self._idle.clear()
        for each in idle:
            each.close()
        self.cache.close()


_shelves: dict[tuple[int, str, str], Shelf] = {}
_lock = Lock()


def shelf(root: str | Path, cache: str | Path | None, filesystem: Any) -> Shelf:
    """Return this process's shelf for a root and a cache.

    The number of the process is part of what it is found by: a fork must not touch databases
    whose threads stayed behind.
    """
    key = (os.getpid(), str(root), str(cache))
    with _lock:
        found = _shelves.get(key)
        if found is not None and _same(found.filesystem, filesystem):
            return found
        if found is not None:
            found.close()
        opened = root_at(root, filesystem)
        made = Shelf(opened, Cache(cache, opened.where("")), filesystem)
        _shelves[key] = made
        return made


def close_shelves() -> None:
    """Close all that this process keeps open, as if it were a new process."""
    with _lock:
        own = [key for key in _shelves if key[0] == os.getpid()]
        for key in own:
            _shelves.pop(key).close()


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return bool(one is other or one.equals(other))


atexit.register(close_shelves)
