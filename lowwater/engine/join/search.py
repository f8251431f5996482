"""The operator that searches stored queries for documents, as of event time (J-15 to J-17)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.join.pairs import JoinedColumns, Pairs
from lowwater.engine.join.query_index import QueryIndex, Words
from lowwater.engine.join.searching import Searching
from lowwater.engine.join.two_sided import TwoSided, before
from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.keyed.sides import LEFT, RIGHT, Side
from lowwater.engine.keyed.spilled import SpilledKeys
from lowwater.engine.records.columns import Column
from lowwater.engine.records.stage_output import NOTHING, Emitted, StageOutput
from lowwater.engine.records.steps import Bundle, LateBatch
from lowwater.engine.records.value_hash import hash_values
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import NONE
from lowwater.state.deadlines import Deadlines
from lowwater.state.store import StateStore
from lowwater.state.table import Field
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array, saturating_add_array
from lowwater.watermark import Hold

_DOCUMENTS_AT_ONCE = 1 << 15
_NEWER = 64
"""The square of how many versions may have come since an index was made, per version in it."""
QUERIES_WATERMARK = "queries watermark"


@final
class SearchOperator(TwoSided):
    """Emits a record for each document and each version of a query that it matches.

    A document waits for the watermark of the queries to pass its time: one below that is out, and
    nothing marks it. Where late versions correct, documents that are out are kept, and searched
    again for the queries that have changed.

    Columns of the table of versions: ``query``, the hash of its query's id; ``until``, the time of
    the next version of the query; and ``gone``, from when on no document can match it.

    Args:
        rules: The rules.
        columns: The columns and their names; documents are the left side.
        signed: Whether an input may contain retractions (S-C1); only where versions correct.
        watermark: Input watermark to begin with, int microseconds.
        clock: Clock to begin with, int microseconds.
    """

    pairs_at_left = True

    def __init__(
        self,
        rules: Searching,
        columns: JoinedColumns,
        *,
        signed: bool = False,
        watermark: int = START_OF_TIME,
        clock: int = START_OF_TIME,
    ) -> None:
        fields = [Field(name, np.int64, START_OF_TIME) for name in ("query", "until", "gone")]
        documents = KeyedRecords(columns.left, signed=signed)
        versions = KeyedRecords(columns.right, fields, signed=signed)
        super().__init__(
            documents,
            versions,
            Pairs(documents, versions, columns),
            lateness_us=rules.keep_us,
            signed=signed,
            retracts=signed or rules.retracts,
            watermark=watermark,
            clock=clock,
        )
        self.rules = rules
        self.queries_watermark = watermark
        self._columns = columns
        self._releases, self._expiries = Deadlines(), Deadlines()
        # An index of most versions, and one of those that came since; None where it must be made.
        self._index: QueryIndex | None = None
        self._newer: QueryIndex | None = None
        self._new: list[tuple[Int64Array, Int64Array]] = []
        self._found: list[tuple[Int64Array, Int64Array, int]] = []

    @property
    def waiting(self) -> int:
        """How many documents wait. With corrections, documents are kept, as versions are."""
        if self.rules.retracts:
            return 0
        spilled = self._spilled
        return len(self.sides[LEFT]) + (0 if spilled is None else spilled.rows[LEFT])

    def _kept(self, side: Side, count: int) -> None:
        if side != LEFT or self.rules.retracts:
            super()._kept(side, count)

    def hold(self) -> Hold | None:
        """Return ``None``: what waits is not below the watermark (J-15)."""
        return None

    def _take_up(self, facts: Mapping[str, int]) -> None:
        self.queries_watermark = facts[QUERIES_WATERMARK]

    def waits(self, side: int, rows: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        never, keep = np.full(len(rows), END_OF_TIME), self.rules.keep_us
        if side == RIGHT:
            gone = saturating_add_array(self.sides[RIGHT].table["gone"][rows], keep)
            return saturating_add_array(gone, 1), never, never
        times = self.sides[LEFT].table["start"][rows]
        waiting = times > self._settled
        gone = saturating_add_array(saturating_add_array(times, keep), 1)
        joins = saturating_add_array(times, 1)
        return np.where(waiting, never, gone), np.where(waiting, joins, never), never

    def readmitted(self, side: int, rows: Int64Array) -> None:
        table = self.sides[side].table
        if side == LEFT:
            self._releases.push(table["start"][rows], rows)
            return
        self._index = None
        self._expiries.push(table["gone"][rows], rows)

    def _load_last(self, store: StateStore, spilled: SpilledKeys) -> int | None:
        return spilled.load_last(store, spilled.right_dues, 0)

    def _facts(self) -> dict[str, int]:
        return {**super()._facts(), QUERIES_WATERMARK: self.queries_watermark}

    @property
    def _settled(self) -> int:
        """The last time of a document that is out."""
        return before(self.queries_watermark, 0)

    # -- what comes ----------------------------------------------------------------------------

    def _take(self, side: Side, bundle: Bundle) -> StageOutput:
        return self._done(self._take_timely(side, bundle))

    def _insert(
        self, side: Side, bundle: Bundle, keys: Int64Array, hashes: Int64Array | None
    ) -> None:
        if side == RIGHT:
            self._insert_versions(bundle, keys, hashes)
            return
        rows = self.sides[LEFT].insert(keys, bundle.times, bundle.values, hashes)
        if self.rules.retracts:
            self._releases.push(bundle.times, rows)
        self._search(rows[bundle.times <= self._settled])

    def _insert_versions(self, bundle: Bundle, keys: Int64Array, hashes: Int64Array | None) -> None:
        ids = bundle.values.get(self.rules.query, Column.of_objects([None] * len(bundle)))
        queries = hash_values([ids]).view(np.int64)
        touched, first = np.unique(queries), int(bundle.times.min())
        documents, found = self._before(touched, first)
        rows = self.sides[RIGHT].insert(keys, bundle.times, bundle.values, hashes)
        self.sides[RIGHT].table["query"][rows] = queries
        self._new.append((rows, self.sides[RIGHT].table["born"][rows]))
        self._newer = None
        self._after(touched, documents, found)

    def _retract_rows(self, side: Side, rows: Int64Array) -> None:
        table = self.sides[side].table
        if side == LEFT:
            rows = rows[table["start"][rows] <= self._settled]
            self._add(*self._matches(rows, *self._whole()), -1)
            return
        touched, first = np.unique(table["query"][rows]), int(table["start"][rows].min())
        documents, found = self._before(touched, first, rows)
        table["until"][rows] = START_OF_TIME  # an index may still have them
        self._after(touched, documents, found)

    def _before(
        self, queries: Int64Array, first: int, removed: Int64Array = NONE
    ) -> tuple[Int64Array, tuple[Int64Array, Int64Array]]:
        """Return the documents that a change of queries may correct, and what they match now.

        Args:
            queries: The queries that are about to change.
            first: The first instant from which on they may.
            removed: Versions of them that are not found any more.
        """
        if not self.rules.retracts or first > self._settled:
            return NONE, (NONE, NONE)
        table = self.sides[LEFT].table
        rows = self._visible(LEFT)
        times = table["start"][rows]
        rows = rows[(times >= first) & (times <= self._settled)]
        versions = np.concatenate((self._versions_of(queries), removed))
        return rows, self._matches(rows, self._indexed(versions))

    def _after(
        self,
        queries: Int64Array,
        documents: Int64Array,
        found: tuple[Int64Array, Int64Array],
    ) -> None:
        """Say until when versions of queries stand, now that some came or went; correct documents.

        Args:
            queries: The queries, distinct.
            documents: The documents that it may correct.
            found: The documents and versions that matched before.
        """
        versions = self.sides[RIGHT]
        table, rows = versions.table, self._versions_of(queries)
        if rows.size:
            query, start = table["query"][rows], table["start"][rows]
            rows = rows[np.lexsort((table["born"][rows], start, query))]
            query, start = table["query"][rows], table["start"][rows]
            last = np.append(query[1:] != query[:-1], True)
            until = np.where(last, END_OF_TIME, np.append(start[1:], END_OF_TIME))
            gone = np.where(self._lengths(rows) > 0, until, start)
            changed = (table["until"][rows] != until) | (table["gone"][rows] != gone)
            table["until"][rows], table["gone"][rows] = until, gone
            self._expiries.push(gone[changed], rows[changed])
            versions.touch(rows[changed])
        if not documents.size:
            return
        now = self._matches(documents, self._indexed(rows))
        capacity = table.capacity
        old, new = (left * capacity + right for left, right in (found, now))
        gone_, come = ~np.isin(old, new), ~np.isin(new, old)
        self._add(found[0][gone_], found[1][gone_], -1)
        self._add(now[0][come], now[1][come], 1)

    # -- the search ----------------------------------------------------------------------------

    def _search(self, rows: Int64Array) -> None:
        """Emit documents with the versions that they match."""
        if not rows.size:
            return
        self._add(*self._matches(rows, *self._whole()), 1)
        if not self.rules.retracts:
            self.sides[LEFT].remove(rows)
            self.admitted += len(rows)

    def _matches(self, rows: Int64Array, *indexes: QueryIndex) -> tuple[Int64Array, Int64Array]:
        """Return the document and the version of each match, in the order of the documents.

        Args:
            rows: The documents.
            indexes: Indexes of versions, in the order in which these came.
        """
        documents, table = self.sides[LEFT], self.sides[LEFT].table
        lefts, rights = [NONE], [NONE]
        for first in range(0, len(rows), _DOCUMENTS_AT_ONCE):
            some = rows[first : first + _DOCUMENTS_AT_ONCE]
            (column,) = documents.kept.take(some, [self.rules.words]).values()
            words, versions = Words.in_column(column), self.sides[RIGHT].table
            parts = [one.found(words, table["start"][some], versions) for one in indexes]
            which, found = (np.concatenate(part) for part in zip(*parts, strict=True))
            order = np.argsort(which, kind="stable")
            lefts.append(some[which[order]])
            rights.append(found[order])
        return np.concatenate(lefts), np.concatenate(rights)

    def _add(self, left: Int64Array, right: Int64Array, sign: int) -> None:
        if left.size:
            self._found.append((left, right, sign))

    def _whole(self) -> tuple[QueryIndex, QueryIndex]:
        """Return indexes of all versions, in the order in which these came.

        The second has those that came since the first was made. It is small, because it is made
        again for each bundle of versions; with as many as it may have, that costs about as much as
        making the first one again, so many versions later.
        """
        versions, index = self.sides[RIGHT], self._index
        count = sum(len(rows) for rows, _ in self._new)
        if (
            index is None
            or count**2 > _NEWER * len(index)
            or len(index) > 2 * len(versions) + _NEWER  # most of it has gone
        ):
            index = self._index = self._indexed(self._visible(RIGHT))
            self._newer, self._new = self._indexed(NONE), []
        elif self._newer is None:
            rows, born = (np.concatenate(part) for part in zip(*self._new, strict=True))
            is_here = versions.table.alive(rows) & (versions.table["born"][rows] == born)
            self._newer = self._indexed(rows[is_here])
        assert self._newer is not None
        return index, self._newer

    def _indexed(self, rows: Int64Array) -> QueryIndex:
        """Return an index of versions, in the order in which they came."""
        versions, table = self.sides[RIGHT], self.sides[RIGHT].table
        rows = rows[np.argsort(table["born"][rows])]
        (column,) = versions.kept.take(rows, [self.rules.words]).values()
        return QueryIndex(rows, Words.in_column(column), table["born"][rows], self.rules.match)

    def _lengths(self, rows: Int64Array) -> NDArray[np.int64]:
        """Return how many words versions have."""
        (column,) = self.sides[RIGHT].kept.take(rows, [self.rules.words]).values()
        return np.bincount(Words.in_column(column).of, minlength=len(rows))

    def _versions_of(self, queries: Int64Array) -> Int64Array:
        rows = self._visible(RIGHT)
        return rows[np.isin(self.sides[RIGHT].table["query"][rows], queries)]

    def _visible(self, side: Side) -> Int64Array:
        """Return the records of a side that are not removed; all have the same key."""
        records = self.sides[side]
        rows = records.table.live()
        return records.segments.of_keys(records.table["key"][rows[:1]])

    # -- watermarks ----------------------------------------------------------------------------

    def _advance(self, to: int, right: int) -> StageOutput:
        if to <= self.watermark and right <= self.queries_watermark:
            return NOTHING
        settled = self._settled
        self.watermark = self.output_watermark = max(self.watermark, to)
        self.queries_watermark = max(self.queries_watermark, right)
        documents, versions = self.sides[LEFT], self.sides[RIGHT]
        due = documents.take_due(documents.by_time, self._settled)
        self._search(due[documents.table["start"][due] > settled])
        over = before(self.watermark, self.rules.keep_us)
        if self.rules.retracts:
            documents.remove(documents.take_due(self._releases, over))
        if self.watermark == END_OF_TIME:
            versions.clear()
            self._index, self._new = None, []
        elif (gone := versions.take_due(self._expiries, over, "gone")).size:
            versions.remove(gone)
        return self._done(None)

    def _done(self, late: LateBatch | None) -> StageOutput:
        """Emit what was found, and free what is removed."""
        emitted = self._emission()
        output = self._finish(emitted, late, ((self._releases, Deadlines()),))
        self.sides[RIGHT].tidy(self._expiries, column="gone")
        return output

    def _emission(self) -> Emitted | None:
        parts, self._found = self._found, []
        if not parts:
            return None
        left, right = (np.concatenate([part[at] for part in parts]) for at in (0, 1))
        signs = repeated(
            np.array([part[2] for part in parts], dtype=np.int8), [len(part[0]) for part in parts]
        )
        documents, versions = self.sides[LEFT].kept, self.sides[RIGHT].kept
        of_right = [name for name in versions.names if name != self.rules.query]
        names, right_names = self._columns.names(documents.names, of_right)
        values = {names[name]: column for name, column in documents.take(left).items()}
        found = versions.take(right)
        query = found.pop(self.rules.query)
        values |= {right_names[name]: column for name, column in found.items()}
        times = self.sides[LEFT].table["start"][left]
        return Emitted(times, (query,), values, signs=signs if self.retracts else None)
