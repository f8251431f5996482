"""Replication slots: one that remembers where a run is, and a copy of it that is read.

The slot itself moves only when a run commits. What it holds is read through a temporary copy, which
moves as it is read, so that nothing is decoded twice, and which ends with the connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, final

from lowwater.errors import DataError
from lowwater.io.postgres_changes.client import LOG, client, connected, session
from lowwater.io.postgres_changes.pgoutput import lsn_of, lsn_text

_FETCHED = 20_000
_SWITCH = re.compile(r"\s*(\d+)\s+([0-9A-F]+/[0-9A-F]+)")
_LONGEST = 63  # bytes of a name

_SLOT = """
SELECT (confirmed_flush_lsn - '0/0')::int8, plugin = 'pgoutput' AND database = current_database(),
  wal_status = 'lost' OR confirmed_flush_lsn IS NULL
FROM pg_replication_slots WHERE slot_name = %s
"""
_CHANGES = """
SELECT data FROM pg_logical_slot_get_binary_changes(
  %s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)
"""
_ENDS = """
SELECT (pg_current_wal_flush_lsn() - '0/0')::int8, (pg_current_wal_insert_lsn() - '0/0')::int8,
  current_setting('wal_block_size')::int8
"""
_FLUSH = "SELECT pg_logical_emit_message(true, 'lowwater', '')"
_REACHED = """
SELECT (confirmed_flush_lsn - '0/0')::int8 FROM pg_replication_slots WHERE slot_name = %s
"""


@final
@dataclass(frozen=True, slots=True)
class Created:
    """A slot that was created.

    Args:
        name: Its name.
        start: Where its changes begin.
        snapshot: The name of a snapshot with all that was committed before.
        connection: Keeps the snapshot until it is closed.
    """

    name: str
    start: int
    snapshot: str
    connection: Any


@final
@dataclass(frozen=True, slots=True)
class ServerState:
    """What a server's data is.

    Args:
        system: Its identifier, which a restored copy shares.
        timeline: The number of its history, which a restored or promoted copy increases.
        written: How far its write-ahead log goes.
        switches: Where each earlier timeline of its history ended.
    """

    system: str
    timeline: int
    written: int
    switches: Mapping[int, int]

    def has_read(self, timeline: int | None, lsn: int) -> bool:
        """Return whether a place in a timeline, ``None`` if not known, is in its history."""
        if timeline is None or timeline == self.timeline:
            return lsn <= self.written
        return lsn <= self.switches.get(timeline, -1)


def server_of(dsn: str) -> ServerState:
    """Ask a server what its data is."""
    with connected(dsn, replication="database") as connection:
        system, timeline, written, *_ = connection.execute("IDENTIFY_SYSTEM").fetchone()
        switches: dict[int, int] = {}
        if timeline > 1:
            _, history = connection.execute(f"TIMELINE_HISTORY {timeline}").fetchone()
            text = history.decode() if isinstance(history, bytes) else history
            for line in text.splitlines():
                if (found := _SWITCH.match(line)) is not None:
                    switches[int(found[1])] = lsn_of(found[2])
        return ServerState(str(system), int(timeline), lsn_of(written), switches)


def create(dsn: str, slot: str | None) -> Created | None:
    """Create a slot; return ``None`` if it exists.

    Waits for the end of all transactions that are running.

    Args:
        dsn: How to connect.
        slot: Its name; ``None``: a temporary slot that ends with the connection.
    """
    with ExitStack() as undo:
        connection = undo.enter_context(connected(dsn, replication="database"))
        named = f'"{slot}"' if slot else f'"lowwater_{connection.info.backend_pid}" TEMPORARY'
        try:
            name, start, snapshot, _ = connection.execute(
                f"CREATE_REPLICATION_SLOT {named} LOGICAL pgoutput EXPORT_SNAPSHOT"
            ).fetchone()
        except client().errors.DuplicateObject:
            return None
        LOG.info("the replication slot %r begins at %s", name, start)
        undo.pop_all()
    return Created(name, lsn_of(start), snapshot, connection)


def _confirmed(connection: Any, slot: str) -> int:
    """Return where the changes of a slot begin.

    Raises:
        DataError: There is no such slot, or it cannot be read.
    """
    found = connection.execute(_SLOT, (slot,)).fetchone()
    if found is None:
        raise DataError(
            f"there is no replication slot {slot!r}, and the state directory is from a run with it",
            hint="What has changed since is lost: begin with a state directory of its own, or "
            "reset this one, so that the table is read anew",
        )
    at, ours, lost = found
    if lost:
        raise DataError(
            f"the replication slot {slot!r} is lost: the server has removed what it was to keep",
            hint=f"SELECT pg_drop_replication_slot('{slot}'), and begin with a state directory of "
            "its own, so that the table is read anew; raise max_slot_wal_keep_size, or run more "
            "often",
        )
    if not ours:
        raise DataError(
            f"the replication slot {slot!r} is another database's, or not of pgoutput",
            hint="Use a name of its own: slot=",
        )
    return int(at)


def advance(connection: Any, slot: str, lsn: int) -> None:
    """Release what the server keeps for a slot before a position."""
    connection.execute("SELECT pg_replication_slot_advance(%s, %s)", (slot, lsn_text(lsn)))


@final
class SlotReader:
    """Reads the changes that a slot keeps, without moving it.

    Args:
        dsn: How to connect.
        slot: The slot; another connection may use it.
        publication: The publication.

    Attributes:
        start: Where the changes that the slot keeps begin.

    Raises:
        DataError: There is no such slot, or it cannot be read.
    """

    def __init__(self, dsn: str, slot: str, publication: str) -> None:
        self._publication = publication
        with ExitStack() as undo:
            self.connection = undo.enter_context(session(dsn))
            self.connection.execute("SET synchronous_commit = local")
            self.start = _confirmed(self.connection, slot)
            end = f"_{self.connection.info.backend_pid}"
            self._name = slot[: _LONGEST - len(end)] + end
            self.connection.execute(
                "SELECT pg_copy_logical_replication_slot(%s, %s, true)", (slot, self._name)
            )
            undo.pop_all()

    def skip(self, lsn: int) -> None:
        """Skip the transactions that end at or before a position."""
        if lsn > self.reached():
            advance(self.connection, self._name, lsn)

    def written(self) -> int:
        """Return how far the write-ahead log goes by now."""
        return int(self.connection.execute(_ENDS).fetchone()[1])

    def flushed(self, until: int | None) -> int:
        """Return how far the write-ahead log is on disk by now, and so can be decoded.

        The server's background writer flushes whole pages, so the log may end amid a record. Who
        decodes it then waits for the rest, for up to 15 seconds if nobody commits. A transaction
        of our own, which holds nothing that is published, has the rest flushed.

        Args:
            until: How far it should be, if so much is written.
        """
        at, written, page = self.connection.execute(_ENDS).fetchone()
        if at < written and (at % page == 0 or (until is not None and at < until <= written)):
            self.connection.execute(_FLUSH)
            at, _, _ = self.connection.execute(_ENDS).fetchone()
        return int(at)

    def reached(self) -> int:
        """Return how far it was read: the end of a record of the write-ahead log."""
        return int(self.connection.execute(_REACHED, (self._name,)).fetchone()[0])

    def messages(self, count: int, until: int | None) -> Iterator[list[bytes]]:
        """Yield the messages of the next transactions, some at a time.

        Args:
            count: After so many messages no further transaction begins.
            until: None begins at or after this position; ``None``: all are read.
        """
        upto = None if until is None else lsn_text(until)
        with (
            self.connection.transaction(),
            self.connection.cursor(name="changes", binary=True) as cursor,
        ):
            cursor.execute(_CHANGES, (self._name, upto, count, self._publication))
            while rows := cursor.fetchmany(_FETCHED):
                yield [data for (data,) in rows]

    def close(self) -> None:
        """Disconnect, which drops the copy."""
        self.connection.close()
