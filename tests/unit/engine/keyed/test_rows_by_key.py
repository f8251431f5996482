"""Rows by key are stored while they are there, and their keys while any table has rows of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
import pytest

from lowwater.engine.keyed.row_counts import RowCounts
from lowwater.engine.keyed.rows import read_keys_of_rows
from lowwater.engine.keyed.rows_by_key import StoredRowsByKey, check_keys
from lowwater.engine.records.columns import Column
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.records.stored_keys import read_keys
from lowwater.errors import StateError
from lowwater.state.codec import decode, encode
from lowwater.state.journal import Journal
from lowwater.state.key_layout import StoredPlace, prefix_range
from lowwater.state.memory import MemoryStore
from lowwater.state.store import Batch
from lowwater.state.table import Field, RowTable
from lowwater.time import Int64Array

PLACE = StoredPlace("some rows", 0, 4)
KEYS, TAGS = 0, (2, 4)
WHAT = "what this test has stored"


@final
class Numbers:
    """A number in each row."""

    def __init__(self) -> None:
        self.table = RowTable([Field("key", np.int64), Field("number", np.int64)])
        self.births = 0
        self.row_counts = RowCounts()
        self.journal: Journal | None = None

    def insert(self, keys: Int64Array, number: int) -> Int64Array:
        """Add a row for each key."""
        rows = self.table.allocate(len(keys))
        self.table["key"][rows], self.table["number"][rows] = keys, number
        self.births += len(rows)
        self.row_counts.add(keys)
        self._touch(rows)
        return rows

    def release(self, rows: Int64Array) -> None:
        """Remove rows."""
        self._touch(rows)
        self.row_counts.remove(self.table["key"][rows])
        self.table.release(rows)

    def _touch(self, rows: Int64Array) -> None:
        assert self.journal is not None
        self.journal.touch(rows)


@final
class TwoTables:
    """Two tables of the same keys, in a store."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.tables = Numbers(), Numbers()
        self.stored = StoredRowsByKey(PLACE, KEYS, WHAT)
        for table, tag in zip(self.tables, TAGS, strict=True):
            self.stored.add(table, tag)
        self.keys = KeyDictionary(1)
        self.facts: Any = None

    def ids(self, *names: str) -> Int64Array:
        """Return the ids of keys."""
        ids = self.keys.encode((Column.of_objects(list(names)),))
        self.stored.keys.use(self.keys)
        return ids

    def save(self) -> None:
        """Save, and read again what is there."""
        batch = Batch()
        tables = self.stored.write(batch, 0)
        self.facts = decode(encode([self.stored.keys.record(), tables]))
        self.store.commit(batch)
        self.stored._check()
        self.verify()

    def verify(self) -> None:
        """Read what is there without the tables."""
        record, tables = self.facts
        ids, _ = read_keys(self.store, PLACE, KEYS, record)
        used = [
            read_keys_of_rows(self.store, PLACE, tag, table, 0, WHAT)
            for tag, table in zip(TAGS, tables, strict=True)
        ]
        check_keys(used, ids, WHAT)

    def restarted(self) -> TwoTables:
        """Return tables that are read from the store."""
        after = TwoTables(self.store)
        after.facts = self.facts
        keys, tables = self.facts
        after.stored.load(self.store, keys, tables, 0)
        assert after.stored.keys.keys is not None
        after.keys = after.stored.keys.keys
        return after

    def contents(self) -> list[list[tuple[Any, int]]]:
        """Return key and number of each row, by table."""
        found = []
        for each in self.tables:
            rows = each.table.live()
            (names,) = self.keys.decode(each.table["key"][rows])
            found.append(
                sorted(zip(names.to_list(), each.table["number"][rows].tolist(), strict=True))
            )
        return found


def test_keys_stay_while_one_table_has_rows_of_them() -> None:
    before = TwoTables(MemoryStore())
    left, right = before.tables
    rows = left.insert(before.ids("a", "b", "c"), 1)
    right.insert(before.ids("c", "d"), 2)
    before.save()
    left.release(rows[1:])  # "b" has none then, and "c" has one at the right
    before.save()
    after = before.restarted()
    assert after.contents() == [[("a", 1)], [("c", 2), ("d", 2)]]
    assert after.contents() == before.contents()
    assert after.facts[0]["count"] == 3
    assert [table.births for table in after.tables] == [3, 2]


def test_more_rows_come_back_than_a_new_table_has_room_for() -> None:
    before = TwoTables(MemoryStore())
    left, right = before.tables
    left.insert(before.ids(*(f"key {number}" for number in range(1_000))), 1)
    right.insert(before.ids(*(f"key {number}" for number in range(500, 20_500))), 2)
    before.save()
    after = before.restarted()
    assert after.contents() == before.contents()


def test_a_key_that_lost_its_rows_and_has_others_stays() -> None:
    before = TwoTables(MemoryStore())
    left, _ = before.tables
    rows = left.insert(before.ids("a", "b"), 1)
    before.save()
    left.release(rows)
    left.insert(before.ids("b"), 2)
    before.save()
    assert before.restarted().contents() == [[("b", 2)], []]


def remove(tag: int) -> Callable[[MemoryStore], None]:
    """Return what removes a block."""

    def change(store: MemoryStore) -> None:
        blocks = [
            key for g in PLACE.groups for key, _ in store.scan(*prefix_range(PLACE.prefix(tag, g)))
        ]
        batch = Batch()
        batch.delete(blocks[:1])
        store.commit(batch)

    return change


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        (KEYS, "a stored key cannot be read"),
        (TAGS[0], "of 3 rows are there"),
        (TAGS[1], "of 2 rows"),
    ],
)
def test_what_is_gone_is_missed(tag: int, message: str) -> None:
    before = TwoTables(MemoryStore())
    before.tables[0].insert(before.ids("a", "b", "c"), 1)
    before.tables[1].insert(before.ids("c", "d"), 2)
    before.save()
    remove(tag)(before.store)
    with pytest.raises(StateError, match=message):
        before.verify()
    with pytest.raises(StateError, match=message):
        before.restarted()


def test_rows_and_keys_go_together() -> None:
    before = TwoTables(MemoryStore())
    left, right = before.tables
    left.insert(before.ids("a"), 1)
    right.insert(before.ids("b"), 2)
    before.save()
    keys, _ = before.facts
    right.release(right.table.live())
    tables = before.stored.write(Batch(), 0)
    batch = Batch()  # it deletes the rows, and not their key
    before.facts = keys, decode(encode(tables))
    for group in PLACE.groups:
        batch.delete_range(*prefix_range(PLACE.prefix(TAGS[1], group)))
    before.store.commit(batch)
    with pytest.raises(StateError, match="rows and keys do not go together"):
        before.verify()
    with pytest.raises(StateError, match="rows and keys do not go together"):
        before.restarted()
