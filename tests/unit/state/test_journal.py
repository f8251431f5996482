"""Blocks of stored rows: whatever changes between commits, what is loaded is what there was."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.errors import StateError
from lowwater.state import blocks as blocks_module
from lowwater.state import journal as journal_module
from lowwater.state.arrays import NONE
from lowwater.state.journal import Journal, Piece, fill_pieces
from lowwater.state.key_layout import END, StoredPlace, split_key
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.row_codec import RowCodec
from lowwater.state.store import Batch
from lowwater.state.table import Field, RowTable
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

GROUPS = 3
BLOCKS, DELETIONS = 1, 2


class Kept:
    """A table that is kept in a store; row numbers are used again, in other key groups too."""

    def __init__(self, store: MemoryStore, *, expires: bool) -> None:
        self.store = store
        self.expires = expires
        self.table = RowTable(
            [Field("group", np.int64), Field("due", np.int64), Field("value", np.int64)]
        )
        self.table.add_field(Field("name", object, None))
        self.codec = RowCodec(self.table)
        self.journal = Journal(
            self.codec,
            StoredPlace("stage 1", 0, GROUPS),
            BLOCKS,
            groups=lambda rows: self.table["group"][rows],
            due=(lambda rows: self.table["due"][rows]) if expires else None,
        )
        self.expired = START_OF_TIME

    def put(self, group: int, due: int, value: int) -> int:
        row = self.table.allocate(1)
        self.change(int(row[0]), group=group, due=due, value=value)
        return int(row[0])

    def change(self, row: int, **values: int) -> None:
        self.journal.touch(np.array([row]))
        for name, value in values.items():
            self.table[name][row] = value
        self.table["name"][row] = str(self.table["value"][row])

    def drop(self, rows: list[int]) -> None:
        self.journal.touch(np.array(rows, dtype=np.int64))
        self.table.release(np.array(rows, dtype=np.int64))

    def expire(self, watermark: int) -> None:
        self.expired = max(self.expired, watermark)
        rows = self.table.live()
        gone = self.table["due"][rows] <= watermark
        self.drop(rows[gone & (self.table["due"][rows] < END_OF_TIME)].tolist())

    def commit(self) -> None:
        batch = Batch()
        self.journal.write(batch, self.expired)
        self.store.commit(batch)
        self.journal._check()

    def content(self) -> dict[int, Any]:
        names = ("group", "due", "value", "name")
        return {
            row: tuple(self.table[name][row] for name in names)
            for row in self.table.live().tolist()
        }

    def again(self) -> Kept:
        """Return the table as it is loaded from the store."""
        other = Kept(self.store, expires=self.expires)
        other.expired = self.expired
        other.codec.layouts.expect(self.codec.layouts.known)
        other.load(self.journal.limit)
        return other

    def load(self, limit: int) -> None:
        for pieces in self.journal.load(self.store, limit, self.expired):
            rows: list[Int64Array] = [piece.rows for piece in pieces]
            self.table.prepare(np.concatenate(rows or [NONE]))
            fill_pieces(self.codec, pieces)
        self.table.restore_prepared()
        self.journal.reschedule()

    def tables(self) -> list[int]:
        return [split_key(key)[2] for key, _ in self.store.scan(b"", END)]


def kept(*, expires: bool = True) -> Kept:
    return Kept(MemoryStore(MemoryContents()), expires=expires)


CHANGE = st.tuples(
    st.sampled_from(["put", "change", "drop", "move", "later", "sooner"]),
    st.integers(0, 30),
    st.integers(0, GROUPS - 1),
)
STEP = st.tuples(
    st.lists(CHANGE, max_size=12), st.integers(0, 6), st.sampled_from(["go on", "load", "look"])
)


@given(st.lists(STEP, max_size=14), st.booleans(), st.integers(1, 4), st.integers(1, 8))
def test_any_changes(steps: list[Any], expires: bool, few: int, full: int) -> None:
    """Blocks are small here, and merged often."""
    sizes = np.array([few, few**2, few**3], dtype=np.int64)
    with (
        mock.patch.object(blocks_module, "FEW", few),
        mock.patch.object(blocks_module, "_SIZES", sizes),
        mock.patch.object(journal_module, "FULL", full),
        mock.patch.object(journal_module, "_MERGED", 6),
        mock.patch.object(journal_module, "_SPARE", 2),
    ):
        check_any_changes(steps, expires)


def check_any_changes(steps: list[Any], expires: bool) -> None:
    own, now, value = kept(expires=expires), 0, 0
    for changes, passed, then in steps:
        for what, which, group in changes:
            value += 1
            live = own.table.live()
            if what == "put" or not live.size:
                due = END_OF_TIME if which == 0 else now + which
                own.put(group, due, value)
                continue
            row = int(live[which % len(live)])
            due = int(own.table["due"][row])
            if what == "drop":
                own.drop([row])
            elif what == "move":
                own.change(row, group=group)
            elif what == "later" and due < END_OF_TIME:
                own.change(row, due=due + which)
            elif what == "sooner" and due < END_OF_TIME:
                own.change(row, due=max(now + 1, due - which))
            else:
                own.change(row, value=value)
        now += passed
        if expires:
            own.expire(now)
        own.commit()
        if then == "go on":
            continue
        loaded = own.again()
        assert loaded.content() == own.content()
        assert loaded.journal._deleted == own.journal._deleted
        loaded.journal._check()
        if then == "load":
            own = loaded
    if expires:
        own.drop([row for row, (_, due, *_) in own.content().items() if due == END_OF_TIME])
        own.expire(10_000)
    else:
        own.drop(list(own.content()))
    own.commit()
    assert own.tables() == []


def test_a_commit_is_a_value_for_each_group() -> None:
    own = kept()
    for number in range(300):
        own.put(number % GROUPS, 100, number)
    own.commit()
    assert own.tables() == [BLOCKS] * GROUPS
    own.commit()
    assert own.tables() == [BLOCKS] * GROUPS


def test_blocks_of_a_size_are_merged() -> None:
    own = kept()
    for number in range(1000):
        own.put(0, 100, number)
        own.commit()
    assert len(own.tables()) <= 3 * (blocks_module.FEW + 1)
    assert own.again().content() == own.content()


def test_a_block_that_is_mostly_dead_is_written_again() -> None:
    own = kept()
    rows = [own.put(0, 100, number) for number in range(1000)]
    own.commit()
    for row in rows[:600]:
        own.change(row, value=-1)
    own.commit()
    assert own.tables() == [BLOCKS]


def test_deletions_go_with_the_copies_they_are_for() -> None:
    own = kept(expires=False)
    for _ in range(100):
        rows = [own.put(0, 0, number) for number in range(40)]
        own.commit()
        own.drop(rows)
        own.commit()
    assert own.tables() == []
    keeper = own.put(0, 0, 1)
    rows = [own.put(0, 0, number) for number in range(10)]
    own.commit()
    own.drop(rows[:3])
    own.commit()
    assert own.tables() == [BLOCKS, DELETIONS]
    assert own.again().content() == own.content()
    own.drop([keeper])
    own.commit()
    assert own.again().content() == own.content()


def test_rows_with_another_expiry_than_the_stored_one_are_written_again() -> None:
    own = kept()
    row = own.put(0, 10, 1)
    own.commit()
    other = Kept(own.store, expires=True)
    other.codec.layouts.expect(own.codec.layouts.known)
    other.journal._due = lambda rows: other.table["due"][rows] + 50
    other.load(own.journal.limit)
    other.expired = 30
    other.commit()
    found = other.again()
    assert list(found.content()) == [row]


@pytest.mark.parametrize("change", ["cut", "twice", "beyond", "other group", "number"])
def test_damaged_blocks_are_refused(change: str) -> None:
    own = kept()
    for number in range(5):
        own.put(0, 100, number)
    own.commit()
    ((key, value),) = own.store.scan(b"", END)
    head = len(key) - 8
    batch = Batch()
    match change:
        case "cut":
            batch.put([key], [value[:40]])
        case "twice":
            batch.put([key], [value[:8] + value[4:8] + value[12:]])
        case "beyond":
            batch.put([key], [value[:20] + b"\xff\xff\xff\x7f" + value[24:]])
        case "other group":
            batch.put([StoredPlace("stage 1").prefix(BLOCKS, 1) + key[head:]], [value])
        case _:
            batch.delete([key])
            batch.put([key[:-1]], [value])
    own.store.commit(batch)
    with pytest.raises(StateError):
        own.again()


def test_a_block_whose_chunk_has_fewer_rows_is_refused() -> None:
    """As many as are live in it may be others: these would be read for them."""
    kept = Kept(MemoryStore(MemoryContents()), expires=False)
    rows = np.array([kept.put(0, 0, value) for value in (5, 6, 7)])
    chunk = kept.codec.pack(rows).chunk(0, 2)
    into = kept.table.allocate(2)
    for at in ([0, 2], [1, 2], [2, 3]):
        with pytest.raises(StateError, match="it has 2 rows"):
            fill_pieces(kept.codec, [Piece(into, chunk, np.array(at))])
