"""Reads a table's rows and then its changes, batch by batch, from a position."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TypeAlias, final

from lowwater.engine.graph.sources import Position
from lowwater.engine.records.batch import Records
from lowwater.errors import DataError
from lowwater.io.postgres_changes.client import LOG
from lowwater.io.postgres_changes.messages import (
    BEGIN,
    MessageDecoder,
    begin_at,
    empty_batch,
    lsn_text,
)
from lowwater.io.postgres_changes.slot import Created, SlotReader, create, system_of
from lowwater.io.postgres_changes.snapshot import Key, TableSnapshot, snapshot_records
from lowwater.io.postgres_changes.table import TableDefinition
from lowwater.io.postgres_changes.transactions import Part, Place, TransactionCutter

_REST_S, _MOST_REST_S = 0.05, 2.0
"""How long a source that has nothing new rests while others are read."""
_AT_ONCE = 100_000
"""How many messages the server decodes at a time, at least."""

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
        self._nothing = Records.from_arrow(empty_batch(asked.table.arrow_schema), asked.table.shown)
        self._at = Place(0, 0)
        self._next: Place | None = None
        self._rows: tuple[Key | None, Key | None] | None = (None, None) if asked.snapshot else None
        self._exact = self._time = 0
        self._snapshot: TableSnapshot | None = None
        with ExitStack() as undo:
            self._connect(position, undo)
            self._undo = undo.pop_all()

    def _connect(self, position: Position | None, undo: ExitStack) -> None:
        asked = self._asked
        self._system = system_of(asked.dsn)
        with ExitStack() as created_only:
            created: Created | None = None
            if position is None:
                created = create(asked.dsn, asked.slot)
                if created is not None:  # its snapshot is there while it is connected
                    created_only.enter_context(closing(created.connection))
            slot = asked.slot if created is None else created.name
            assert slot is not None
            self._reader = undo.enter_context(
                closing(SlotReader(asked.dsn, slot, asked.publication))
            )
            if position is None:
                self._at = Place(self._reader.start, 0)
                self._exact = self._at.lsn
            else:
                self._resume(position)
            if self._rows is not None:
                exported = None if created is None else created.snapshot
                self._snapshot = undo.enter_context(
                    closing(TableSnapshot(asked.dsn, self._table, exported))
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
            Place(*position["at"]), position["exact"], position["time"],
        )  # fmt: skip
        self._next = None if position["next"] is None else Place(*position["next"])
        rows = position["rows"]
        self._rows = None
        if rows is not None:
            after, until = (None if key is None else tuple(key) for key in rows)
            self._rows = after, until
        if position["system"] != self._system:
            raise DataError(
                "the state directory is from a run over another server",
                where=self._table.shown,
                hint="Connect to the server that was read before, or begin with a state directory "
                "of its own",
            )
        if self._reader.start > self._at.lsn:
            raise DataError(
                f"the replication slot {self._asked.slot!r} is at {lsn_text(self._reader.start)}, "
                f"and this state directory has read up to {lsn_text(self._at.lsn)}: what is "
                "between is lost",
                where=self._table.shown,
                hint="Something else has moved or replaced the slot: give each run a slot of its "
                "own, and begin with a state directory of its own, so that the table is read anew",
            )

    def close(self) -> None:
        """Disconnect."""
        self._undo.close()

    def _position(self) -> Position:
        rows = self._rows
        return {
            "at": list(self._at),
            "next": None if self._next is None else list(self._next),
            "rows": None if rows is None else [None if key is None else list(key) for key in rows],
            "exact": self._exact,
            "time": self._time,
            "system": self._system,
        }

    def rows(self) -> Batches:
        """Yield what is left of the table's rows."""
        snapshot = self._snapshot
        if snapshot is None or self._rows is None:
            return
        after, until = self._rows
        chunk = snapshot.chunk(after, until, self._size)
        if until is None:
            until = None if chunk is None else chunk.last
            self._rows = None if until is None else (after, until)
            yield self._nothing, self._position()
        count = 0
        while until is not None:
            following = snapshot.chunk(until, None, self._size)
            records = self._nothing
            if chunk is not None:  # else its rows were deleted since the last run read them
                records = snapshot_records(self._table, chunk, self._at.lsn, self._time)
            after, until = until, None if following is None else following.last
            self._rows = None if until is None else (after, until)
            chunk = following
            count += len(records)
            yield records, self._position()
        snapshot.close()
        LOG.info("%d rows of %s were read", count, self._table.shown)

    def changes(self) -> Batches:
        """Yield the changes after the rows."""
        LOG.info(
            "changes of %s are read from %s; with those up to %s, what was read is the table",
            self._table.shown, lsn_text(self._at.lsn), lsn_text(self._exact),
        )  # fmt: skip
        fetching = _Fetching(self._asked, self._reader, self._size, self._at, self._next)
        if self._asked.end != "never":
            end = self._reader.written() if self._asked.end == "latest" else self._asked.end
            fetching.until(max(int(end), self._exact, *([self._next.lsn] if self._next else [])))
        decoder = MessageDecoder(self._table, keep_truncates=self._asked.keep_truncates)
        for place in [self._at] if self._at.within else []:
            # An earlier run has read the first changes of this transaction; they have the layout.
            decoder.records(fetching.part_until(place).messages)
        parts = fetching.parts
        while True:
            if not parts:
                was_ahead = self._next is not None
                fetching.fetch()
                if was_ahead and not fetching.is_caught_up and not parts:
                    continue
                self._next = parts[0].end if parts else None
                if not parts and fetching.is_caught_up:
                    self._at = fetching.idle_at()
                    if fetching.is_ended:
                        yield self._nothing, self._position()
                        return
                patience = fetching.patience if fetching.is_caught_up and not parts else 0.0
                # If the position has the next batch already, a run may have done a part of it: it
                # must be the first one.
                if (parts and not was_ahead) or patience:
                    asked = time.monotonic()
                    yield replace(self._nothing, rest_seconds=patience), self._position()
                    time.sleep(max(0.0, patience - (time.monotonic() - asked)))
                continue
            part = parts.popleft()
            records, self._at = decoder.records(part.messages), part.end
            if not parts and fetching.is_fetching:
                fetching.fetch()
            self._next = parts[0].end if parts else None
            yield records, self._position()


@final
class _Fetching:
    """Fetches messages and cuts them into parts.

    Args:
        asked: What is to be read.
        reader: Reads the slot.
        size: The largest number of changes in a part.
        at: Where to begin.
        ahead: Where the first part ends, if an earlier run has fixed it.

    Attributes:
        parts: The parts that are there.
        is_caught_up: Whether all is there that was committed when it was fetched.
    """

    def __init__(
        self, asked: Asked, reader: SlotReader, size: int, at: Place, ahead: Place | None
    ) -> None:
        self._reader, self._count = reader, max(_AT_ONCE, 4 * size)
        ends = [*([at] if at.within else []), *([] if ahead is None else [ahead])]
        self._cutter = TransactionCutter(asked.table, size, at.lsn, ends)
        self._end: int | None = None
        self._is_past = False
        self._blocks: Iterator[list[bytes]] | None = None
        self._fetched = self._flushed = self._seen = 0
        self._began = 0.0
        self.parts: deque[Part] = deque()
        self.is_caught_up = False
        self.patience = _REST_S
        reader.skip(at.lsn)

    def until(self, end: int) -> None:
        """Leave out what is committed after a position."""
        self._end = end

    @property
    def is_fetching(self) -> bool:
        """Whether more was fetched, and is not cut yet."""
        return self._blocks is not None

    @property
    def is_ended(self) -> bool:
        """Whether all is there that is committed before the end."""
        return self._end is not None and self._seen >= self._end

    def idle_at(self) -> Place:
        """Return a place after all that is there: the end of what the slot was searched for."""
        return self._cutter.skipped_to(self._reader.reached())

    def part_until(self, end: Place) -> Part:
        """Return the first part."""
        while not self.parts:
            self.fetch()
        part = self.parts.popleft()
        assert part.end == end
        return part

    def fetch(self) -> None:
        """Fetch some messages, if there are any."""
        if self._blocks is None:
            self._flushed = self._reader.flushed(self._end)
            if self._flushed == self._seen:
                self.is_caught_up = True
                return
            self._fetched, self._began, self.is_caught_up = 0, time.monotonic(), False
            self._blocks = self._reader.messages(self._count, self._end)
        block = next(self._blocks, None)
        if block is not None:
            self._fetched += len(block)
            self._cutter.feed(self._before_end(block))
            self.parts.extend(self._cutter.parts(final=False))
            return
        self._blocks = None
        if self._fetched < self._count:
            self.is_caught_up, self._seen = True, self._flushed
        # What was fetched ends with a transaction, but an earlier run's part may go on.
        if self.is_caught_up or not self._cutter.is_foretold:
            self.parts.extend(self._cutter.parts(final=True))
        # The server reads from the last checkpoint of its decoding: leave it as much time again.
        spent = time.monotonic() - self._began
        self.patience = min(max(_REST_S, spent), _MOST_REST_S)

    def _before_end(self, block: list[bytes]) -> list[bytes]:
        """Return the messages of transactions before the end."""
        if self._end is None:
            return block
        if self._is_past:
            return []
        for at, message in enumerate(block):
            if message[0] == BEGIN and begin_at(message) >= self._end:
                self._is_past = True
                return block[:at]
        return block
