"""The databases that a process keeps open between batches, each at the version it committed last.

A process has one shelf for each root and cache, for as long as it lives: in a worker of Spark,
tasks come and go with their own copies of all values, but the next batch mostly goes on where the
last one ended.
"""

from __future__ import annotations

import atexit
import os
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Any, final

from lowwater.state.versions.cache import Cache
from lowwater.state.versions.database import Database, options, read_manifest
from lowwater.state.versions.root import Root, root_at

_BLOCK_CACHE_BYTES = 64 << 20


@final
class Shelf:
    """Databases by key group, at most one of each, the one used last first."""

    def __init__(self, root: Root, cache: Cache, filesystem: Any) -> None:
        self.root = root
        self.cache = cache
        self.filesystem = filesystem
        self._options = options(_BLOCK_CACHE_BYTES)
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
        return Database(group, manifest, self.root, self.cache, self._options)

    def give(self, database: Database, most: int) -> None:
        """Keep a database for whoever goes on from its version; of others, so many in all."""
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
    """Let go of all that this process keeps open, as a new process would begin."""
    with _lock:
        own = [key for key in _shelves if key[0] == os.getpid()]
        for key in own:
            _shelves.pop(key).close()


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return bool(one is other or one.equals(other))


atexit.register(close_shelves)
