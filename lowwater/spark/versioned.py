"""State in versions of a RocksDB store: each micro-batch writes only what it changed.

::

    LOCATION/QUERY/level-1/group-00003/...      a store per key group of a level: see
                                                lowwater.state.versions.history

QUERY is the id that Spark gives a query when its checkpoint begins, and finds there again when it
is restarted: queries may share a location, and a new checkpoint begins with no state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

from pyspark import TaskContext
from pyspark.sql import SparkSession

from lowwater.errors import (
    InternalError,
    InvalidArgument,
    StateError,
    UnsupportedByRunner,
    describe,
)
from lowwater.spark.state_backends import (
    GrowingBackend,
    InlineBackend,
    KeptState,
    StateBackend,
)
from lowwater.state.filesystems import below
from lowwater.state.store import Batch, StateStore
from lowwater.state.versions.history import GroupStore, Versions
from lowwater.state.versions.manifest import RESTART, number_of

CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
_RETAINED = "spark.sql.streaming.minBatchesToRetain"
_QUERY_ID = "sql.streaming.queryId"
_BELOW = "lowwater-state"
HOT_BYTES = 8 << 20
"""What the windows of a stage in a key group may take in memory, about, where nothing else is said.

A Python worker reads so much when it meets a key group that another one had before.
"""
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@final
@dataclass(frozen=True, slots=True)
class RocksBackend:
    """Stores state in a versioned store outside Spark; the cell names the version.

    Whichever attempt at a task Spark takes, its cell names the version which that attempt wrote,
    and nothing else ever changes it. What the other attempts wrote is collected later.

    Args:
        location: A folder, or a URI that Arrow or fsspec can open, which every task reaches: best
            beside the checkpoints, on the same filesystem.
        cache: A directory on each machine's own disk; by default one in the directory for
            temporary files. It may be lost at any time.
        filesystem: A ``pyarrow.fs.FileSystem``, for what a URI cannot say.
        retain: Micro-batches that may be run again: at least Spark's ``minBatchesToRetain``.
        collect_every: After how many micro-batches each old versions are deleted.
        spare: For how many micro-batches the versions of attempts stay that Spark did not take:
            ``operator="mapInArrow"`` may take any, and has them stay as long as others.

    Raises:
        InvalidArgument: A number is out of range.
    """

    name: ClassVar[str] = "rocksdb"

    location: str
    cache: str | None = None
    filesystem: Any = None
    retain: int = 100
    collect_every: int = 16
    spare: int = 0

    def __post_init__(self) -> None:
        if self.collect_every < 1:
            raise InvalidArgument(
                f"{describe('collect_every', self.collect_every)} must be at least 1",
                hint="Use, say, 16",
            )
        if self.filesystem is None and is_path(self.location):
            # Tasks run in folders of their own.
            object.__setattr__(self, "location", str(Path(self.location).absolute()))
        self.versions("")

    def versions(self, query: str, level: int = 1) -> Versions:
        """Return the store of versions of a level of a query, by its id."""
        names = (query, f"level-{level}") if query else (f"level-{level}",)
        return Versions(
            below(self.location, *names),
            cache=self.cache,
            filesystem=self.filesystem,
            retain=self.retain,
        )

    def keep(self, level: int, key_group: int, content: bytes | None) -> KeptState:
        version = None if content is None else _named(content)
        versions = self.versions(_query_id(), level)
        return _Versioned(versions, key_group, version, self.collect_every, self.spare)


@final
class _Versioned:
    """The version that the last save wrote."""

    is_apart = True

    def __init__(
        self,
        versions: Versions,
        key_group: int,
        version: str | None,
        collect_every: int,
        spare: int,
    ) -> None:
        self._versions = versions
        self._key_group = key_group
        self._version = version
        self._collect_every = collect_every
        self._spare = spare
        self._open: GroupStore | None = None
        self.stored_bytes = 0

    @contextmanager
    def opened(self) -> Iterator[StateStore]:
        with self._versions.open(self._key_group, self._version) as store:
            self._open = store
            try:
                yield store
            finally:
                self._open = None

    def save(self, batch: Batch) -> bytes:
        store = self._open
        if store is None:
            raise InternalError("a version is saved that is not open")
        version = store.commit(batch)
        # Staggered, so that not all key groups collect at once. Delete relative to the version
        # that was opened, which Spark has committed; it may still reject the one just written.
        if (number_of(version) + self._key_group) % self._collect_every == 0:
            store.collect(self._spare)
        self.stored_bytes = store.size_bytes
        self._version = version
        return version.encode()


def backend_of(
    spark: SparkSession,
    state: str | StateBackend | None,
    location: str | Path | None,
    *,
    streaming: bool,
) -> StateBackend:
    """Return the backend that the options of ``to_spark`` select.

    Args:
        spark: The session, whose checkpoints lie where the location is not given.
        state: ``"inline"``, ``"rocksdb"``, ``"auto"``, or a backend; ``None``: ``"auto"`` if a
            location is given.
        location: Where to keep state that is not in cells.
        streaming: Whether the query is streaming; a batch query keeps no state.

    Raises:
        InvalidArgument: There is no such way; or no location is given, and none is to be taken.
        UnsupportedByRunner: None is given, and over Spark Connect none can be taken.
    """
    if state is None:
        state = "inline" if location is None else "auto"
    if location is not None and state not in ("rocksdb", "auto"):
        raise InvalidArgument(
            "state_location= is for state in a store of its own",
            where="to_spark",
            hint='Say state="auto" or state="rocksdb" too, or leave it out',
        )
    if not isinstance(state, str):
        return state
    if state not in {"inline", "rocksdb", "auto"}:
        raise InvalidArgument(
            f"{describe('state', state)} is not known",
            hint='Use "inline", "rocksdb", "auto" or a StateBackend',
        )
    if state == "inline" or not streaming:
        return InlineBackend()
    place = location_of(spark, location, f'state="{state}"')
    apart = RocksBackend(place, retain=retained(spark))
    return GrowingBackend(apart) if state == "auto" else apart


def is_path(location: str) -> bool:
    """Whether a location is a path on this machine, rather than a URI."""
    return not _HAS_SCHEME.match(str(location))


def retained(spark: SparkSession) -> int:
    """Return how many micro-batches of a session's queries may be run again."""
    return int(spark.conf.get(_RETAINED, None) or 100)


def location_of(spark: SparkSession, location: str | Path | None, asked: str) -> str:
    """Return where state is kept: at the location, or below the session's checkpoints.

    Args:
        spark: The session.
        location: The option, if it is given.
        asked: The option that needs it, for messages.

    Raises:
        InvalidArgument: None is given, and the session has none.
        UnsupportedByRunner: None is given, and over Spark Connect none can be taken.
    """
    if location is not None:
        return str(location)
    checkpoints = spark.conf.get(CHECKPOINTS, None)
    if not checkpoints:
        raise InvalidArgument(
            f"{asked} needs a place to keep state: a query's own checkpoint location is "
            "not known before it starts",
            where="to_spark(state_location=)",
            hint=f"Name a folder that all tasks reach, beside the checkpoint, or set {CHECKPOINTS}",
        )
    return below(_qualified(spark, checkpoints), _BELOW)


def _qualified(spark: SparkSession, place: str) -> str:
    """Return a path as Spark understands it: without a scheme, it is on Hadoop's own default."""
    if not isinstance(spark, SparkSession):  # Connect's session is another class
        raise UnsupportedByRunner(
            f"over Spark Connect it is not known what filesystem {CHECKPOINTS} is on",
            where="to_spark(state_location=)",
            hint="Name a folder or URI that all tasks reach: state_location=...",
        )
    context: Any = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(place)
    whole = path.getFileSystem(context._jsc.hadoopConfiguration()).makeQualified(path).toString()
    return str(whole).rstrip("/")


def _query_id() -> str:
    task = TaskContext.get()
    return (None if task is None else task.getLocalProperty(_QUERY_ID)) or ""


def _named(content: bytes) -> str:
    try:
        return content.decode("ascii")
    except UnicodeDecodeError as error:
        raise StateError(
            f"the checkpoint names no version of the state, but {content[:40]!r}",
            hint=RESTART,
        ) from error
