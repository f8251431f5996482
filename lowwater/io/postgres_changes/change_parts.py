"""The changes that a slot keeps, cut into parts, as batches."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import final

from lowwater.engine.graph.sources import Position
from lowwater.engine.records.batch import Records
from lowwater.io.postgres_changes.pgoutput import BEGIN, ChangeDecoder, begin_at
from lowwater.io.postgres_changes.slot import SlotReader
from lowwater.io.postgres_changes.transactions import ChangePart, ChangePlace, TransactionCutter
from lowwater.state.forks import outlive_forks

_REST_S, _MOST_REST_S = 0.05, 2.0
"""How long a source that has nothing new rests while others are read."""
_LOOK_S = 1.0
"""How often to look, while nothing new comes, whether the table is still what it was."""
_AT_ONCE = 100_000
"""How many messages the server decodes at a time, at least."""


@final
class ChangeParts:
    """Fetches the messages after a place, and cuts them into parts.

    Args:
        reader: Reads the slot.
        cutter: Cuts messages into parts.
        decoder: Makes records of messages.
        at: The place.
        size: The largest number of changes in a part.
        until: What is committed after this position is left out; ``None``: nothing is.
        position: Makes positions, of a place and of where the next part ends.
        look: Raises if the table is no longer what it was; called when all is read that there is.
    """

    def __init__(
        self,
        reader: SlotReader,
        cutter: TransactionCutter,
        decoder: ChangeDecoder,
        at: ChangePlace,
        size: int,
        until: int | None,
        position: Callable[[ChangePlace, ChangePlace | None], Position],
        look: Callable[[], None],
    ) -> None:
        # Messages are read in a transaction, which a child would end if it finalized this.
        outlive_forks(self)
        self._reader, self._cutter, self._decoder = reader, cutter, decoder
        self._at, self._end, self._position, self._look = at, until, position, look
        self._looked_at = -_LOOK_S
        self._count = max(_AT_ONCE, 4 * size)
        self._is_past = False
        self._blocks: Iterator[list[bytes]] | None = None
        self._fetched = self._flushed = self._seen = 0
        self._began = 0.0
        self._is_caught_up = False
        self._patience = _REST_S
        self._cut: deque[ChangePart] = deque()
        reader.skip(at.lsn)
        if at.within:
            # An earlier run has read the first changes of this transaction; they have the layout.
            while not self._cut:
                self._fetch()
            part = self._cut.popleft()
            assert part.end == at
            decoder.records(part.content)

    def fetch(self, until: ChangePlace | None, seconds: float | None) -> list[ChangePart]:
        if seconds is not None:
            time.sleep(seconds)
        if seconds is not None or self._blocks is not None:
            self._fetch()
        parts = list(self._cut)
        self._cut.clear()
        return parts

    def rest(self) -> float | None:
        if not self._is_caught_up:
            return 0.0
        # Nothing comes before the end of what the slot was searched for.
        self._at = self._cutter.skipped_to(self._reader.reached())
        is_over = self._end is not None and self._seen >= self._end
        if is_over or time.monotonic() - self._looked_at >= _LOOK_S:
            self._look()
            self._looked_at = time.monotonic()
        return None if is_over else self._patience

    def batch(self, part: ChangePart, following: ChangePlace | None) -> tuple[Records, Position]:
        records, self._at = self._decoder.records(part.content), part.end
        return records, self._position(self._at, following)

    def pause(self, following: ChangePlace | None) -> tuple[Records, Position]:
        return self._decoder.nothing, self._position(self._at, following)

    def _fetch(self) -> None:
        """Fetch some messages, if there are any."""
        if self._blocks is None:
            self._flushed = self._reader.flushed(self._end)
            if self._flushed == self._seen:
                self._is_caught_up = True
                return
            self._fetched, self._began, self._is_caught_up = 0, time.monotonic(), False
            self._blocks = self._reader.messages(self._count, self._end)
        block = next(self._blocks, None)
        if block is not None:
            self._fetched += len(block)
            self._cutter.feed(self._before_end(block))
            self._cut.extend(self._cutter.parts(final=False))
            return
        self._blocks = None
        if self._fetched < self._count:
            self._is_caught_up, self._seen = True, self._flushed
        # What was fetched ends with a transaction, but an earlier run's part may go on.
        if self._is_caught_up or not self._cutter.is_foretold:
            self._cut.extend(self._cutter.parts(final=True))
        # The server reads from the last checkpoint of its decoding: leave it as much time again.
        spent = time.monotonic() - self._began
        self._patience = min(max(_REST_S, spent), _MOST_REST_S)

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
