"""A table's changes as a replayable source of pipelines."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any, final

import pyarrow as pa

from lowwater.engine.graph.sources import Position
from lowwater.engine.local.delivery import Place
from lowwater.engine.records.batch import Records
from lowwater.io.postgres_changes.client import LOG, client, connected, told
from lowwater.io.postgres_changes.identity import tables_at
from lowwater.io.postgres_changes.slot import advance
from lowwater.io.postgres_changes.table_definition import TableDefinition
from lowwater.io.postgres_changes.table_reading import Asked, Reading
from lowwater.io.postgres_changes.table_state import TableState
from lowwater.state.forks import closing_here
from lowwater.state.formats import damaged, decoding

_TELL_S = 1.0
"""How often the slot follows the commits of a run: each time costs the server some reading."""


@final
@dataclass(frozen=True, slots=True, repr=False)
class PostgresChanges:
    """The rows of a table, and then its changes.

    A position is ``{"at": place, "next": place, "rows": keys, "exact": LSN, "time": microseconds,
    "system": identifier, "timeline": number, "table": what the table is}``. A place is the end of
    a transaction, and how many changes of the one
    after it were read. While rows are read, ``rows`` holds the key after which the next batch
    begins and the key with which it ends. What the next batch is depends on what has been committed
    by then, so a batch whose end is not fixed is preceded by an empty batch whose position fixes
    it.

    The rows of a batch that is read again by another run are those of a later snapshot. Changes
    are therefore read from the beginning of the slot: applied to rows that have them already, they
    change nothing in the end. From the position ``exact`` on, what was read is what the table was.

    Args:
        dsn: How to connect.
        table: The table.
        publication: The publication.
        slot: The replication slot of runs with a state directory.
        snapshot: Whether to read the table's rows first.
        end: ``"never"``, ``"latest"``, or a position in the write-ahead log.
        keep_truncates: Whether a truncate is a record, not an error.
    """

    # A state directory knows the fields that are not ``repr=False``: they must not change.
    dsn: str = field(repr=False)
    table: TableDefinition
    publication: str
    slot: str
    snapshot: bool = True
    end: int | str = "never"
    keep_truncates: bool = False
    _live: list[_Follower] = field(default_factory=list, init=False, repr=False, compare=False)
    _told: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def endless(self) -> bool:
        """Whether the input never ends."""
        return self.end == "never"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the records."""
        return self.table.arrow_schema

    def places(self) -> Iterable[Place]:
        """Return the table with its partitions, which the run must not write to."""
        return [tables_at(self.dsn, "PostgreSQL", (self.table.shown, *self.table.relatives))]

    def up_to_now(self) -> PostgresChanges:
        """Return the source that ends with what is there when it is read."""
        return replace(self, end="latest") if self.end == "never" else self

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        for records, _ in self._batches(None, size, durable=False):
            yield records

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        if position is not None:
            _check(position)
        return self._batches(position, size, durable=True)

    def committed(self, position: Position) -> None:
        """Confirm the stored position to the slot."""
        lsn = position["at"][0]
        if self._told == [lsn]:
            return
        if self._live:
            if not self._live[0].follow(lsn):
                return
        else:  # before the input is read, or after its end
            with closing(_Follower(self.dsn, self.slot)) as follower:
                follower.follow(lsn)
        self._told[:] = [lsn]

    def _batches(
        self, position: Position | None, size: int, *, durable: bool
    ) -> Iterator[tuple[Records, Position]]:
        if position is not None and isinstance(self.end, int):
            is_read = position["rows"] is None and position["next"] is None
            if is_read and position["at"][0] >= self.end:
                return  # without a connection: the run is over
        with ExitStack() as stack, told(self.table.shown, self.dsn):
            if durable:
                follower = stack.enter_context(closing_here(_Follower(self.dsn, self.slot)))
                self._live.append(follower)
                stack.callback(self._live.remove, follower)
            reading = stack.enter_context(
                closing(Reading(self._asked(durable=durable), position, size))
            )
            yield from reading.rows()
            yield from reading.changes()

    def __repr__(self) -> str:
        return f"PostgresChanges({self.table.shown!r}, slot={self.slot!r})"

    def _asked(self, *, durable: bool) -> Asked:
        return Asked(
            self.dsn, self.table, self.publication, self.slot if durable else None, self.snapshot,
            self.end, self.keep_truncates,
        )  # fmt: skip


@final
class _Follower:
    """Moves the slot after the commits of a run, at most once a second.

    Args:
        dsn: How to connect.
        slot: The slot.
    """

    def __init__(self, dsn: str, slot: str) -> None:
        self._dsn, self._slot = dsn, slot
        self._connection: Any = None
        self._at = -_TELL_S

    def follow(self, lsn: int) -> bool:
        """Move the slot, unless it was just moved; return whether it was tried."""
        if time.monotonic() - self._at < _TELL_S:
            return False
        try:
            if self._connection is None:
                self._connection = connected(self._dsn)
            advance(self._connection, self._slot, lsn)
        except client().Error as error:
            # The state is ahead of the slot, which is safe. The next commit tries again.
            LOG.warning("the replication slot %r stays behind the state: %s", self._slot, error)
            self.close()
        self._at = time.monotonic()
        return True

    def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _check(position: Position) -> None:
    """Raise ``StateError`` if a position is not one of a table's changes."""
    what = "the position in the changes of a table"
    with decoding(what):
        for lsn, within in (position["at"], position["next"] or (0, 0)):
            if type(lsn) is not int or type(within) is not int:
                raise damaged(what, f"it is {position!r}")
        for key in position["rows"] or ():
            if key is not None and not all(isinstance(text, str) for text in key):
                raise damaged(what, f"it is {position!r}")
        if type(position["exact"]) is not int or type(position["time"]) is not int:
            raise damaged(what, f"it is {position!r}")
        if not isinstance(position["system"], str):
            raise damaged(what, f"it is {position!r}")
        # Positions of earlier versions lack the last two, and get them when they are resumed.
        if type(position.get("timeline", 0)) is not int:
            raise damaged(what, f"it is {position!r}")
        if (fields := position.get("table")) is not None:
            TableState.from_position(fields)
