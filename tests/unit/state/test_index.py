"""The index of a table, against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.state.table import Field, Index, RowTable
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array
from tests.examples import sampled

pytestmark = pytest.mark.usefixtures("kernels")

WIDTHS = pytest.mark.parametrize("width", [1, 2, 3, 4, 5])
Tuple = tuple[int, ...]
# Few values, so that they repeat and come back; the ends of time, and powers of two, which a bad
# hash would send to one slot.
VALUES = st.sampled_from([0, 1, 2, -1, 1 << 32, 1 << 48, 1 << 62, START_OF_TIME, END_OF_TIME])


class Checked:
    """An index and its model, kept in step."""

    def __init__(self, width: int) -> None:
        self.names = [f"c{at}" for at in range(width)]
        self.table = RowTable([Field(name, np.int64, -99) for name in self.names])
        self.index = Index(self.table, self.names)
        self.model: dict[Tuple, int] = {}

    def find_or_insert(self, tuples: list[Tuple]) -> None:
        rows, new = self.index.find_or_insert(*self.columns(tuples))
        expected_new = [t for t in dict.fromkeys(tuples) if t not in self.model]
        for at, row in zip(tuples, rows.tolist(), strict=True):
            assert self.model.setdefault(at, row) == row
        assert len(set(self.model.values())) == len(self.model)
        assert sorted(new.tolist()) == sorted(self.model[t] for t in expected_new)
        self.check()

    def insert(self, tuples: list[Tuple]) -> None:
        fresh = [t for t in dict.fromkeys(tuples) if t not in self.model]
        rows = self.table.allocate(len(fresh))
        for name, column in zip(self.names, self.columns(fresh), strict=True):
            self.table[name][rows] = column
        self.index.insert(rows)
        self.model |= dict(zip(fresh, rows.tolist(), strict=True))
        self.check()

    def remove(self, tuples: list[Tuple]) -> None:
        here = [t for t in dict.fromkeys(tuples) if t in self.model]
        rows = np.array([self.model.pop(t) for t in here], dtype=np.int64)
        self.index.remove(rows)
        self.table.release(rows)
        self.check()

    def find(self, tuples: list[Tuple]) -> None:
        found = self.index.find(*self.columns(tuples)).tolist()
        assert found == [self.model.get(t, -1) for t in tuples]

    def check(self) -> None:
        self.index._check()
        self.table._check()
        assert len(self.index) == len(self.table) == len(self.model)
        rows = np.array(list(self.model.values()), dtype=np.int64)
        held = zip(*(self.table[name][rows].tolist() for name in self.names), strict=True)
        assert list(held) == list(self.model)
        self.find(list(self.model))

    def columns(self, tuples: list[Tuple]) -> list[Int64Array]:
        return [np.array([t[at] for t in tuples], dtype=np.int64) for at in range(len(self.names))]


@WIDTHS
@given(data=st.data())
def test_like_a_dictionary(width: int, data: st.DataObject) -> None:
    checked = Checked(width)
    tuples = st.lists(st.tuples(*[VALUES] * width), max_size=40)
    doings = st.sampled_from(["find_or_insert", "find_or_insert", "insert", "remove", "find"])
    for doing, given_ in data.draw(st.lists(st.tuples(doings, tuples), max_size=12)):
        getattr(checked, doing)(given_)


@given(st.lists(st.lists(st.integers(0, 400), max_size=150), max_size=12))
def test_growing_and_shrinking(calls: list[list[int]]) -> None:
    """Deleted slots come and go with the growth of the index."""
    checked = Checked(2)
    for turn, numbers in enumerate(calls):
        tuples: list[Tuple] = [(n * 1_000_000, -n) for n in numbers]
        if turn % 3 == 2:
            checked.remove(tuples)
        else:
            checked.find_or_insert(tuples)
        checked.find([(n * 1_000_000, -n) for n in range(0, 401, 7)])


def test_nothing_is_found_in_an_empty_index() -> None:
    checked = Checked(1)
    checked.find([(0,), (-1,), (-2,)])
    checked.find([])
    checked.find_or_insert([])
    checked.remove([])
    checked.insert([])


def test_values_that_look_like_marks_of_slots() -> None:
    """Slots hold -1 and -2 for empty and deleted; values are none of their business."""
    checked = Checked(1)
    checked.find_or_insert([(-1,), (-2,), (-3,), (-1,)])
    checked.remove([(-2,)])
    checked.find([(-1,), (-2,), (-3,)])


@pytest.mark.parametrize("width", sampled([1, 2, 3, 4, 5], every=3))
def test_at_scale(width: int) -> None:
    """50 000 tuples in one call, many equal, far beyond the rows that are there."""
    random = np.random.default_rng(1)
    columns = [random.integers(-200, 200, 50_000) * (1 << (9 * at)) for at in range(width)]
    checked = Checked(width)
    first, before = checked.index.find_or_insert(*(column[:2_000] for column in columns))
    rows, new = checked.index.find_or_insert(*columns)
    assert (rows[:2_000] == first).all()
    tuples = list(zip(*(column.tolist() for column in columns), strict=True))
    model: dict[Tuple, int] = {}
    for at, row in zip(tuples, rows.tolist(), strict=True):
        assert model.setdefault(at, row) == row
    assert len(model) == len(set(model.values())) == len(checked.index)
    assert sorted([*before.tolist(), *new.tolist()]) == sorted(model.values())
    checked.model = model
    checked.check()
    again, none = checked.index.find_or_insert(*columns)
    assert (again == rows).all()
    assert not none.size
    gone = list(model)[::2]
    checked.remove(gone)
    checked.find(gone)


def test_distinct_tuples_at_scale() -> None:
    checked = Checked(3)
    key = np.arange(50_000, dtype=np.int64)
    start = key % 7 * 60_000_000
    rows, new = checked.index.find_or_insert(key, start, start + 60_000_000)
    assert sorted(rows.tolist()) == sorted(new.tolist()) == list(range(50_000))
    assert (checked.table["c0"][rows] == key).all()
    assert (checked.index.find(key, start, start + 60_000_000) == rows).all()
    assert (checked.index.find(key, start + 1, start + 60_000_000) == -1).all()


def test_windows_that_pass_by_leave_the_index_small() -> None:
    """Deleted slots are reclaimed: a stream of short-lived windows needs no more room."""
    checked = Checked(2)
    for turn in range(300):
        start = np.arange(100, dtype=np.int64) * 1_000 + turn * 1_000_000
        rows, _ = checked.index.find_or_insert(np.zeros(100, dtype=np.int64), start)
        checked.index.remove(rows)
        checked.table.release(rows)
    assert checked.table.capacity < 200
    assert len(checked.index._slots) <= 1024
