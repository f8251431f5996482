"""Reads a table's rows and then its changes, batch by batch, from a position."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TypeAlias, final

from lowwater.engine.graph.sources import Position
from lowwater.engine.records.batch import Records
from lowwater.errors import DataError
from lowwater.io.foretold import foretold_batches
from lowwater.io.postgres_changes.change_parts import ChangeParts
from lowwater.io.postgres_changes.client import LOG
from lowwater.io.postgres_changes.pgoutput import ChangeDecoder, lsn_text
from lowwater.io.postgres_changes.row_parts import RowParts
from lowwater.io.postgres_changes.slot import Created, SlotReader, create, server_of
from lowwater.io.postgres_changes.snapshot import Key, TableSnapshot
from lowwater.io.postgres_changes.table_definition import TableDefinition
from lowwater.io.postgres_changes.table_state import TableState
from lowwater.io.postgres_changes.transactions import ChangePlace, TransactionCutter
from lowwater.state.forks import closing_here

Batches: TypeAlias = Iterator[tuple[Records, Position]]


@final
@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be read: the fields of the source, and of its slot the name if it is to stay."""

    dsn: str
    table: TableDefinition
    publication: str
    slot: str | None
    snapshot: bool
    end: int | str
    keep_truncates: bool


@final
class Reading:
    """One reading of the source: its connections, and where it is.

    Args:
        asked: What is to be read.
        position: Where to begin; ``None``: with a slot that is created, or one that no run has
            read.
        size: The largest number of changes in a batch.

    Raises:
        DataError: The slot does not keep what comes after the position.
    """

    def __init__(self, asked: Asked, position: Position | None, size: int) -> None:
        self._asked, self._size, self._table = asked, size, asked.table
        self._at = ChangePlace(0, 0)
        self._next: ChangePlace | None = None
        self._rows: tuple[Key | None, Key | None] | None = (None, None) if asked.snapshot else None
        self._exact = self._time = 0
        self._snapshot: TableSnapshot | None = None
        with ExitStack() as undo:
            self._connect(position, undo)
            self._undo = undo.pop_all()

    def _connect(self, position: Position | None, undo: ExitStack) -> None:
        asked = self._asked
        self._server = server_of(asked.dsn)
        if position is not None:
            self._check_server(position)
        with ExitStack() as created_only:
            created: Created | None = None
            if position is None:
                created = create(asked.dsn, asked.slot)
                if created is not None:  # its snapshot is there while it is connected
                    created_only.enter_context(closing_here(created.connection))
            slot = asked.slot if created is None else created.name
            assert slot is not None
            self._reader = undo.enter_context(
                closing_here(SlotReader(asked.dsn, slot, asked.publication))
            )
            self._state = TableState.of(self._reader.connection, asked.table, asked.publication)
            self._stored_state = self._state.to_position()
            self._table = replace(asked.table, oid=self._state.oid)
            if position is None:
                self._at = ChangePlace(self._reader.start, 0)
                self._exact = self._at.lsn
            else:
                self._resume(position)
            if self._rows is not None:
                exported = None if created is None else created.snapshot
                self._snapshot = undo.enter_context(
                    closing_here(TableSnapshot(asked.dsn, self._table, exported))
                )
                if created is None:
                    self._exact = max(self._exact, self._snapshot.exact)
                self._time = self._time or self._snapshot.time

    def _resume(self, position: Position) -> None:
        """Begin at a position.

        Raises:
            DataError: It is not one of this server, or the slot is beyond it.
        """
        self._at, self._exact, self._time = (
            ChangePlace(*position["at"]), position["exact"], position["time"],
        )  # fmt: skip
        self._next = None if position["next"] is None else ChangePlace(*position["next"])
        rows = position["rows"]
        self._rows = None
        if rows is not None:
            after, until = (None if key is None else tuple(key) for key in rows)
            self._rows = after, until
        if (fields := position.get("table")) is not None:  # since 2026-11-26
            self._see(TableState.from_position(fields), self._state)
        if self._reader.start > self._at.lsn:
            raise DataError(
                f"the replication slot {self._asked.slot!r} is at {lsn_text(self._reader.start)}, "
                f"and this state directory has read up to {lsn_text(self._at.lsn)}: what is "
                "between is lost",
                where=self._table.shown,
                hint="Something else has moved or replaced the slot: give each run a slot of its "
                "own, and begin with a state directory of its own, so that the table is read anew",
            )

    def _check_server(self, position: Position) -> None:
        """Raise if a position is not in the history of this server.

        Raises:
            DataError: It is another server's, or the server was restored from a copy.
        """
        if position["system"] != self._server.system:
            raise DataError(
                "the state directory is from a run over another server",
                where=self._table.shown,
                hint="Connect to the server that was read before, or begin with a state directory "
                "of its own",
            )
        lsn = position["at"][0]
        if not self._server.has_read(position.get("timeline"), lsn):
            raise DataError(
                "the server was restored from a copy, or another one took its place: its history "
                f"does not have {lsn_text(lsn)}, up to which this state directory has read",
                where=self._table.shown,
                hint="Connect to the server that was read before, or begin with a state directory "
                "and a slot of their own, so that the table is read anew",
            )

    def _see(self, before: TableState, now: TableState) -> None:
        asked = self._asked
        before.check(self._table, asked.publication, now, keep_truncates=asked.keep_truncates)
        self._state, self._stored_state = now, now.to_position()

    def _look(self) -> None:
        """Raise if the table is no longer the one that is read.

        Raises:
            DataError: It is not.
        """
        now = TableState.of(self._reader.connection, self._table, self._asked.publication)
        self._see(self._state, now)

    def close(self) -> None:
        """Disconnect."""
        self._undo.close()

    def _position(
        self,
        at: ChangePlace,
        following: ChangePlace | None,
        rows: tuple[Key | None, Key | None] | None,
    ) -> Position:
        return {
            "at": list(at),
            "next": None if following is None else list(following),
            "rows": None if rows is None else [None if key is None else list(key) for key in rows],
            "exact": self._exact,
            "time": self._time,
            "system": self._server.system,
            "timeline": self._server.timeline,
            "table": self._stored_state,
        }

    def rows(self) -> Batches:
        """Yield what is left of the table's rows."""
        if self._snapshot is None or self._rows is None:
            return
        after, until = self._rows

        def position(after: Key | None, following: Key | None) -> Position:
            rows = None if following is None else (after, following)
            return self._position(self._at, None, rows)

        parts = RowParts(
            self._snapshot, self._table, after, self._size, self._at.lsn, self._time, position
        )
        yield from foretold_batches(parts, until)
        self._snapshot.close()
        LOG.info("%d rows of %s were read", parts.count, self._table.shown)

    def changes(self) -> Batches:
        """Yield the changes after the rows."""
        LOG.info(
            "changes of %s are read from %s; with those up to %s, what was read is the table",
            self._table.shown, lsn_text(self._at.lsn), lsn_text(self._exact),
        )  # fmt: skip
        until: int | None = None
        if self._asked.end != "never":
            end = self._reader.written() if self._asked.end == "latest" else self._asked.end
            until = max(int(end), self._exact, *([self._next.lsn] if self._next else []))

        def position(at: ChangePlace, following: ChangePlace | None) -> Position:
            return self._position(at, following, None)

        parts = ChangeParts(
            self._reader,
            TransactionCutter(
                self._table, self._size, self._at.lsn,
                [*([self._at] if self._at.within else []), *([self._next] if self._next else [])],
            ),
            ChangeDecoder(self._table, keep_truncates=self._asked.keep_truncates),
            self._at, self._size, until, position, self._look,
        )  # fmt: skip
        yield from foretold_batches(parts, self._next)
