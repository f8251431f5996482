"""Cuts the messages of a slot into batches, at the ends of transactions where possible."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple, TypeAlias, final

import numpy as np

from lowwater.errors import DataError
from lowwater.io.foretold import Part
from lowwater.io.postgres_changes.pgoutput import (
    BEGIN,
    COMMIT,
    DELETE,
    INSERT,
    RELATION,
    TRUNCATE,
    UPDATE,
    commit_end,
    lsn_text,
    relation_of,
    truncates,
)
from lowwater.io.postgres_changes.table_definition import TableDefinition
from lowwater.time import Int64Array

_KIND = itemgetter(0)
_NEW_ROW = ord("N")
_ROWS = (INSERT, UPDATE, DELETE)
_ENDS = (BEGIN, COMMIT)


class ChangePlace(NamedTuple):
    """A place between two changes.

    Args:
        lsn: The end of the last transaction that lies before it as a whole.
        within: How many of the table's changes in the transaction after that lie before it.
    """

    lsn: int
    within: int


ChangePart: TypeAlias = Part[list[bytes], ChangePlace]
"""The messages of a batch, and the place after them."""


@final
class TransactionCutter:
    """Groups messages into parts of at most ``size`` changes.

    A part ends where a transaction does, unless the transaction alone has more changes: then it is
    cut into several, and each begins with its Begin message. An update that brings the row before
    it counts twice, as it becomes two upserts if the key has changed.

    Args:
        table: The table whose changes count.
        size: The largest number of changes in a part.
        at: Where the messages begin, which must be at a transaction.
        ends: Where the first parts end, as an earlier run had cut them.
    """

    def __init__(
        self, table: TableDefinition, size: int, at: int, ends: Iterable[ChangePlace] = ()
    ) -> None:
        self._table = table
        self._size = size
        self._ends = deque(ends)
        self._relations: set[bytes] = set()
        self.at = ChangePlace(at, 0)
        self._messages: list[bytes] = []
        self._weights: list[int] = []
        self._kinds = b""

    @property
    def is_foretold(self) -> bool:
        """Whether the end of a part is still to come that an earlier run had fixed."""
        return bool(self._ends)

    def skipped_to(self, lsn: int) -> ChangePlace:
        """Note that no change comes before a position, and return the place there."""
        self.at = ChangePlace(max(lsn, self.at.lsn), 0)
        return self.at

    def feed(self, messages: Sequence[bytes]) -> None:
        """Add the next messages; those about other tables are dropped."""
        kept: list[bytes] = []
        for message in messages:
            kind, weight = message[0], self._weight(message)
            if kind == RELATION:
                relation = relation_of(message)
                if not self._table.is_of(relation.id, relation.schema, relation.name):
                    continue
                self._relations.add(message[1:5])
            elif not weight and kind not in _ENDS:
                continue
            kept.append(message)
            self._weights.append(weight)
        self._messages += kept
        self._kinds += bytes(map(_KIND, kept))

    def parts(self, *, final: bool) -> list[ChangePart]:
        """Return the parts that are complete.

        Args:
            final: Whether all messages of the last transaction are there: then nothing is left.
        """
        weights = np.array(self._weights, np.int64)
        sums = np.cumsum(weights)
        commits = np.flatnonzero(np.frombuffer(self._kinds, np.uint8) == COMMIT)
        parts: list[ChangePart] = []
        first, done = 0, 0  # the first message that is not in a part, and the changes before it
        begin: bytes | None = None  # of the transaction that is cut there
        while first < len(weights):
            stop = self._stop(first, done, weights, sums, commits, final=final)
            if stop is None:
                break
            messages = self._messages[first:stop]
            if begin is not None:
                messages.insert(0, begin)
            if self._kinds[stop - 1] == COMMIT:
                self.at, begin = ChangePlace(commit_end(messages[-1]), 0), None
            else:
                rows = int(np.count_nonzero(weights[first:stop]))
                self.at, begin = ChangePlace(self.at.lsn, self.at.within + rows), messages[0]
            parts.append(Part(messages, self.at))
            first, done = stop, int(sums[stop - 1])
        self._messages = self._messages[first:]
        self._kinds = self._kinds[first:]
        self._weights = self._weights[first:]
        if begin is not None:
            self._messages.insert(0, begin)
            self._kinds = bytes([BEGIN]) + self._kinds
            self._weights.insert(0, 0)
        return parts

    def _stop(
        self,
        first: int,
        done: int,
        weights: Int64Array,
        sums: Int64Array,
        commits: Int64Array,
        *,
        final: bool,
    ) -> int | None:
        """Return after which message the part that begins with ``first`` ends, if that is known."""
        if self._ends:
            return self._foretold_stop(first, weights, commits, final=final)
        over = int(np.searchsorted(sums, done + self._size, side="right"))
        last = int(np.searchsorted(commits, over)) - 1
        if last >= 0 and commits[last] >= first:
            return None if over == len(weights) and not final else int(commits[last]) + 1
        if over == len(weights):
            return None
        # The transaction alone has too many changes. A part has at least one.
        return max(over, first + int(np.flatnonzero(weights[first:])[0]) + 1)

    def _foretold_stop(
        self, first: int, weights: Int64Array, commits: Int64Array, *, final: bool
    ) -> int | None:
        end = self._ends[0]
        stop: int | None = None
        if end.within:
            rows = np.flatnonzero(weights[first:])
            wanted = end.within - self.at.within
            stop = first + int(rows[wanted - 1]) + 1 if len(rows) >= wanted else None
        else:
            for at in commits[np.searchsorted(commits, first) :].tolist():
                if commit_end(self._messages[at]) >= end.lsn:
                    stop = at + 1 if commit_end(self._messages[at]) == end.lsn else None
                    final = True
                    break
        if stop is not None:
            self._ends.popleft()
        elif final:
            raise DataError(
                f"the slot no longer has the changes up to {lsn_text(end.lsn)}, which were read "
                "before",
                where=self._table.shown,
                hint="The server may be restored from a copy, or the publication changed: begin "
                "with a state directory and a slot of their own",
            )
        return stop

    def _weight(self, message: bytes) -> int:
        """Return how many changes of the table a message counts as."""
        kind = message[0]
        if kind == TRUNCATE:
            return int(any(truncates(message, one) for one in self._relations))
        if kind not in _ROWS or message[1:5] not in self._relations:
            return 0
        return 2 if kind == UPDATE and message[5] != _NEW_ROW else 1
