"""Keeps a table in a store: only the rows that changed and still exist are written, in blocks.

::

    blocks      (stage, group, table)       number  ->  rows u32 each | expiry i64 each | chunk
    deletions   (stage, group, table + 1)   number  ->  rows u32 each

A commit writes the rows that changed as a block for each key group. Thousands of rows are one
value, because reading a value costs far more than reading a row. A later block overrides an earlier
one, row by row. Rows that are gone are listed in a deletion, which overrides all earlier blocks of
its group. Rows that have expired need no deletion: their expiry is stored beside them.

Row numbers are unique within a key group, and nothing stored in one group refers to another one, so
a group can be moved as two ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import Any, Protocol, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from lowwater.kernels.positions import repeated
from lowwater.state.arrays import NONE, run_starts, widened
from lowwater.state.blocks import FULL, Blocks
from lowwater.state.formats import damaged, decoding
from lowwater.state.key_layout import StoredPlace, prefix_range
from lowwater.state.row_codec import Chunk, PackedRows, RowCodec, rows_as_bytes
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

Groups: TypeAlias = Callable[[Int64Array], NDArray[np.integer[Any]]]
Due: TypeAlias = Callable[[Int64Array], Int64Array]

_SEQUENCE = Struct(">Q")
_COUNT = np.dtype("<u4")
_ROW = np.dtype("<u4")
_EXPIRY = np.dtype("<i8")
_WHAT = "a block of stored rows"
_SPARE = 256
# A commit merges so many rows at most: enough to keep up with any number of small commits.
_MERGED_PER_ROW = 3
_MERGED = 2048


class Rows(Protocol):
    """What a journal keeps: rows by number, and their stored form."""

    @property
    def capacity(self) -> int: ...

    def alive(self, rows: Int64Array) -> NDArray[np.bool_]: ...

    def pack(self, rows: Int64Array) -> PackedRows: ...


@final
@dataclass(frozen=True, slots=True)
class Piece:
    """Live rows of one block.

    Args:
        rows: Their numbers, rising.
        chunk: The chunk they are in.
        at: The place of each in it.
    """

    rows: Int64Array
    chunk: bytes
    at: Int64Array


def fill_pieces(codec: RowCodec, pieces: list[Piece]) -> list[Chunk]:
    """Fill rows, which are prepared, from their pieces; return the chunk of each piece.

    Raises:
        StateError: What is stored is damaged.
    """
    chunks = [codec.layouts.read(piece.chunk) for piece in pieces]
    for piece, chunk in zip(pieces, chunks, strict=True):
        if len(piece.at) and piece.at[-1] >= len(chunk):
            raise damaged(_WHAT, f"it has {len(chunk)} rows, not {piece.at[-1] + 1} or more")
        codec.fill(piece.rows, chunk, piece.at)
    counts = np.array([len(chunk) for chunk in chunks], dtype=np.int64)
    first = (np.cumsum(counts) - counts).tolist()
    codec.side.put(
        np.concatenate([NONE, *(piece.rows for piece in pieces)]),
        [chunk.side for chunk in chunks],
        counts,
        np.concatenate([NONE, *(at + piece.at for at, piece in zip(first, pieces, strict=True))]),
    )
    return chunks


def _block_starts(groups: Int64Array) -> Int64Array:
    """Return where blocks begin: of one group each, and full at most."""
    first = run_starts(groups)
    begin = np.flatnonzero(first)
    inside = np.arange(len(groups)) - repeated(begin, np.diff(begin, append=len(groups)))
    return np.flatnonzero(inside % FULL == 0)


@final
class Journal:
    """The stored form of one table.

    Args:
        rows: The rows.
        place: Where they are stored.
        table: Tag of the blocks in the store; the next one is that of deletions.
        groups: Returns the key group of rows.
        due: Returns when rows expire, int64: they are gone once the watermark is there. ``None``:
            never.
    """

    def __init__(
        self, rows: Rows, place: StoredPlace, table: int, *, groups: Groups, due: Due | None = None
    ) -> None:
        self._rows = rows
        self._place = place
        self._table = table
        self._groups = groups
        self._due = due
        self._blocks = Blocks()
        self._touched: list[Int64Array] = []
        self._dirty = np.zeros(0, dtype=np.bool_)
        # The latest expiry of all copies of a row that are stored: until then it takes a deletion.
        self._latest: Int64Array = np.zeros(0, dtype=np.int64)
        self._deletions: dict[int, list[int]] = {}
        self._deleted: dict[int, int] = {}
        self._loaded: list[tuple[Int64Array, Int64Array]] = []

    @property
    def limit(self) -> int:
        """Above every row number that is stored, those of dead copies too."""
        return len(self._dirty)

    def touch(self, rows: Int64Array) -> None:
        """Note that rows (distinct ones) changed, or were allocated or released."""
        if not rows.size:
            return
        self._cover()
        fresh = rows[~self._dirty[rows]]
        if fresh.size:
            self._dirty[fresh] = True
            self._touched.append(fresh)

    def is_stored(self, rows: Int64Array) -> NDArray[np.bool_]:
        """Return which rows are stored, as they are or as they were."""
        self._cover()
        return self._blocks.is_stored(rows)

    def write(self, batch: Batch, expired: int = START_OF_TIME) -> Int64Array:
        """Add what changed since the last time to a batch. Amortised O(changed rows).

        Args:
            batch: The batch.
            expired: All rows that expire then or before are gone.

        Returns:
            The rows that changed and are live.
        """
        if not self._touched:
            return NONE
        self._cover()
        rows = np.sort(np.concatenate(self._touched))
        self._touched = []
        self._dirty[rows] = False
        alive = self._rows.alive(rows)
        live = rows[alive]
        groups = np.zeros(len(rows), dtype=np.int64)
        groups[alive] = self._groups(live)
        self._leave(batch, rows, groups, alive, expired)
        merged = self._blocks.to_merge(max(_MERGED, _MERGED_PER_ROW * len(rows)))
        if merged.size:
            groups = np.concatenate((groups[alive], self._blocks.groups(merged)))
            self._blocks.release(merged)
            self._put(batch, np.concatenate((live, merged)), groups)
        else:
            self._put(batch, live, groups[alive])
        self._delete_dead(batch)
        return live

    def load(self, store: StateStore, limit: int, expired: int) -> Iterator[list[Piece]]:
        """Yield what is stored, group by group, to be put into the rows before the next is asked.

        Args:
            store: The store.
            limit: Above every row number.
            expired: All rows that expire then or before are gone.

        Raises:
            StateError: It is damaged.
        """
        reader = GroupReader(
            store, self._place, self._table, limit, None if self._due is None else expired
        )
        for group, stored in reader:
            if stored.deletions:
                self._deletions[group] = stored.deletions
                self._deleted[group] = stored.deleted
                self._blocks.next = max(self._blocks.next, stored.deletions[-1] + 1)
            self._cover(stored.top)
            if not stored.blocks:
                continue
            for block, piece in zip(stored.blocks, stored.pieces, strict=True):
                if self._blocks.is_stored(piece.rows).any():
                    raise damaged(_WHAT, "a row is stored in two key groups")
                if block.expiry is not None:
                    latest = np.maximum(self._latest[block.rows], block.expiry)
                    self._latest[block.rows] = latest
                    self._loaded.append((piece.rows, block.expiry[piece.at]))
                self._blocks.load(group, block.sequence, block.rows, piece.rows)
            yield [piece for piece in stored.pieces if len(piece.rows)]

    def reschedule(self) -> None:
        """After loading: have rows written again that expire at another time than was stored.

        They would go with what has expired otherwise.
        """
        loaded, self._loaded = self._loaded, []
        for rows, expiry in loaded:
            if self._due is not None and rows.size:
                self.touch(rows[self._due(rows) != expiry])

    def _leave(
        self,
        batch: Batch,
        rows: Int64Array,
        groups: Int64Array,
        alive: NDArray[np.bool_],
        expired: int,
    ) -> None:
        """Mark the stored copies of changed rows as dead."""
        stored = self._blocks.is_stored(rows)
        rows, groups, alive = rows[stored], groups[stored], alive[stored]
        if not rows.size:
            return
        before = self._blocks.groups(rows)
        gone = ~alive | (before != groups)
        if self._due is not None:
            latest = self._latest[rows]
            deleted = gone & ((latest > expired) | (latest == END_OF_TIME))
            self._latest[rows[gone]] = START_OF_TIME
        else:
            deleted = gone
        if deleted.any():
            self._delete(batch, rows[deleted], before[deleted])
        self._blocks.release(rows)

    def _delete(self, batch: Batch, rows: Int64Array, groups: Int64Array) -> None:
        order = np.argsort(groups, kind="stable")
        rows, groups = rows[order], groups[order]
        begin = np.flatnonzero(run_starts(groups))
        sequence = self._blocks.next
        keys, values = [], []
        for low, high in zip(begin.tolist(), [*begin[1:].tolist(), len(rows)], strict=True):
            group = int(groups[low])
            keys.append(self._key(group, sequence, deletion=True))
            values.append(rows[low:high].astype(_ROW).tobytes())
            self._deletions.setdefault(group, []).append(sequence)
            self._deleted[group] = self._deleted.get(group, 0) + high - low
        batch.put(keys, values)
        # Before the blocks of this commit, whose rows may be in use again.
        self._blocks.next = sequence + 1

    def _put(self, batch: Batch, rows: Int64Array, groups: Int64Array) -> None:
        """Write rows without live copies as blocks."""
        if not rows.size:
            return
        order = np.lexsort((rows, groups)) if self._place.count > 1 else np.argsort(rows)
        rows, groups = rows[order], groups[order]
        packed = self._rows.pack(rows)
        numbers = rows.astype(_ROW)
        expiry: NDArray[Any] | None = None
        if self._due is not None:
            expiry = self._due(rows).astype(_EXPIRY, copy=False)
            self._latest[rows] = np.maximum(self._latest[rows], expiry)
        begin = _block_starts(groups)
        bounds = np.append(begin, len(rows))
        counts = np.diff(bounds)
        pieces = [rows_as_bytes(counts.astype(_COUNT).view(np.uint8).reshape(len(counts), -1))]
        for column in (numbers,) if expiry is None else (numbers, expiry):
            data, ends = column.tobytes(), (bounds * column.dtype.itemsize).tolist()
            pieces.append([data[low:high] for low, high in pairwise(ends)])
        values = list(map(b"".join, zip(*pieces, packed.cut(begin, len(rows)), strict=True)))
        of_blocks = groups[begin]
        sequences = self._blocks.add(of_blocks, rows, bounds)
        pairs = zip(of_blocks.tolist(), sequences, strict=True)
        batch.put([self._key(group, sequence) for group, sequence in pairs], values)

    def _delete_dead(self, batch: Batch) -> None:
        """Delete blocks without live copies, and deletions of which no copies are left."""
        dead = self._blocks.take_dead()
        batch.delete([self._key(group, sequence) for group, sequence in dead])
        if not self._deleted:
            return
        stored = self._blocks.stored()
        for group, count in list(self._deleted.items()):
            _, copies = stored.get(group, (0, 0))
            if count > 2 * copies + _SPARE or not copies:
                self._shorten(batch, group)

    def _shorten(self, batch: Batch, group: int) -> None:
        """List only the deleted rows of which a group still has copies. O(copies)."""
        sequences = self._deletions.pop(group)
        batch.delete([self._key(group, sequence, deletion=True) for sequence in sequences])
        del self._deleted[group]
        rows = self._blocks.dead_rows(group)
        if rows.size:
            self._delete(batch, rows, np.full(len(rows), group, dtype=np.int64))

    def _key(self, group: int, sequence: int, *, deletion: bool = False) -> bytes:
        return self._place.prefix(self._table + deletion, group) + _SEQUENCE.pack(sequence)

    def _cover(self, need: int = 0) -> None:
        room = max(need, self._rows.capacity)
        self._blocks.cover(room)
        if room > len(self._dirty):
            self._dirty = widened(self._dirty, room, False)
            if self._due is not None:
                self._latest = widened(self._latest, room, START_OF_TIME)

    def _check(self) -> None:
        """Assert what must hold between rows, blocks and deletions. O(rows and copies)."""
        self._cover()
        self._blocks._check()
        assert self._deletions.keys() == self._deleted.keys()
        copies = self._blocks.stored()
        for group, count in self._deleted.items():
            assert 0 < count <= 2 * copies[group][1] + _SPARE
        for touched in self._touched:
            assert self._dirty[touched].all()
        every = np.arange(self._rows.capacity)
        stored = every[self._blocks.is_stored(every)]
        settled = stored[~self._dirty[stored]]
        assert self._rows.alive(settled).all()
        assert np.array_equal(self._blocks.groups(settled), self._groups(settled))


@final
@dataclass(frozen=True, slots=True)
class _Block:
    sequence: int
    rows: Int64Array
    expiry: Int64Array | None
    chunk: bytes


@final
@dataclass(frozen=True, slots=True)
class StoredGroup:
    """What is stored of a table of a key group.

    Args:
        blocks: Its blocks, in order.
        pieces: The live rows of each.
        deletions: The sequence numbers of deletions, rising.
        deleted: How many rows they list.
        top: One more than the largest row number.
    """

    blocks: list[_Block]
    pieces: list[Piece]
    deletions: list[int]
    deleted: int
    top: int


@final
class GroupReader:
    """Reads what is stored of a table, one key group after the other.

    Args:
        store: The store.
        place: Where the table is.
        table: Its tag.
        limit: Above every row number.
        expired: All rows that expire then or before are gone; ``None`` for rows that never expire.
    """

    def __init__(
        self, store: StateStore, place: StoredPlace, table: int, limit: int, expired: int | None
    ) -> None:
        self._store = store
        self._place = place
        self._table = table
        self._limit = limit
        self._expired = expired
        # Of each row the block that has its last copy. Kept from group to group, not filled again:
        # only what the group itself has written there is read.
        self._last: NDArray[np.int32] = np.empty(0, dtype=np.int32)

    def __iter__(self) -> Iterator[tuple[int, StoredGroup]]:
        """Yield (key group, what is stored of it).

        Raises:
            StateError: It is damaged.
        """
        for group in self._place.groups:
            with decoding(_WHAT):
                stored = self._read(group)
            yield group, stored

    def _read(self, group: int) -> StoredGroup:
        expires = self._expired is not None
        blocks = [
            _read_block(sequence, value, self._limit, expires=expires)
            for sequence, value in self._scan(self._table, group)
        ]
        deletions = [
            (sequence, _rising(np.frombuffer(value, _ROW).astype(np.int64), self._limit))
            for sequence, value in self._scan(self._table + 1, group)
        ]
        every = [*(block.rows for block in blocks), *(rows for _, rows in deletions)]
        top = max((int(rows[-1]) for rows in every), default=-1) + 1
        if top > len(self._last):
            self._last = np.empty(max(top, 2 * len(self._last)), dtype=np.int32)
        return StoredGroup(
            blocks=blocks,
            pieces=self._live(blocks, deletions),
            deletions=[sequence for sequence, _ in deletions],
            deleted=sum(len(rows) for _, rows in deletions),
            top=top,
        )

    def _live(self, blocks: list[_Block], deletions: list[tuple[int, Int64Array]]) -> list[Piece]:
        """Return of each block the rows that no later block has, and that are not gone."""
        copies = [(block.sequence, at, block.rows) for at, block in enumerate(blocks)]
        copies += [(sequence, -1, rows) for sequence, rows in deletions]
        copies.sort(key=lambda copy: copy[0])
        last = self._last
        for _, at, rows in copies:
            last[rows] = at
        pieces = []
        for at, block in enumerate(blocks):
            kept = last[block.rows] == at
            if block.expiry is not None and self._expired is not None:
                kept &= (block.expiry > self._expired) | (block.expiry == END_OF_TIME)
            places = np.flatnonzero(kept)
            pieces.append(Piece(block.rows[places], block.chunk, places))
        return pieces

    def _scan(self, table: int, group: int) -> Iterator[tuple[int, bytes]]:
        prefix = self._place.prefix(table, group)
        for key, value in self._store.scan(*prefix_range(prefix)):
            tail = key[len(prefix) :]
            if len(tail) != _SEQUENCE.size:
                raise damaged(_WHAT, "its number is not of the right width")
            (sequence,) = _SEQUENCE.unpack(tail)
            if sequence >= 1 << 62:
                raise damaged(_WHAT, f"it has the number {sequence}")
            yield sequence, value


def _read_block(sequence: int, value: bytes, limit: int, *, expires: bool) -> _Block:
    count = int(np.frombuffer(value, _COUNT, 1)[0])
    at = _COUNT.itemsize
    rows = _rising(np.frombuffer(value, _ROW, count, at).astype(np.int64), limit)
    at += count * _ROW.itemsize
    expiry = None
    if expires:
        expiry = np.frombuffer(value, _EXPIRY, count, at).astype(np.int64)
        at += count * _EXPIRY.itemsize
    return _Block(sequence, rows, expiry, value[at:])


def _rising(rows: Int64Array, limit: int) -> Int64Array:
    if not rows.size or (np.diff(rows) <= 0).any():
        raise damaged(_WHAT, "its rows are in no order")
    if rows[-1] >= limit:
        raise damaged(_WHAT, f"numbers go from 0 to {limit - 1}, not {rows[-1]}")
    return rows
