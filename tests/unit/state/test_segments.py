"""Segments of windows by key, against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.state.segments import Segments
from lowwater.state.table import Field, RowTable
from lowwater.time import Int64Array

pytestmark = pytest.mark.usefixtures("kernels")

Interval = tuple[int, int, int]
INTERVALS = st.tuples(st.integers(0, 3), st.integers(-20, 60), st.integers(1, 15)).map(
    lambda parts: (parts[0], parts[1], parts[1] + parts[2])
)


def ints(*values: int) -> Int64Array:
    return np.array(values, dtype=np.int64)


class Checked:
    """Segments over a table, and a plain dictionary of the same windows."""

    def __init__(self, *, disjoint: bool) -> None:
        self.disjoint = disjoint
        self.table = RowTable([Field(name, np.int64) for name in ("key", "start", "end")])
        self.segments = Segments(self.table, disjoint=disjoint)
        self.model: dict[int, Interval] = {}

    def insert(self, windows: list[Interval]) -> None:
        taken: list[Interval] = []
        for window in windows:
            rivals = [*self.model.values(), *taken]
            if not self.disjoint or not any(_overlap(window, r, touching=False) for r in rivals):
                taken.append(window)
        rows = self.table.allocate(len(taken))
        for at, name in enumerate(("key", "start", "end")):
            self.table[name][rows] = [window[at] for window in taken]
        self.segments.insert(rows)
        self.model |= dict(zip(rows.tolist(), taken, strict=True))
        self.check()

    def remove(self, rows: list[int]) -> None:
        self.segments.remove(ints(*rows))
        self.table.release(ints(*rows))
        for row in rows:
            del self.model[row]
        self.check()

    def cut(self, upto: dict[int, int]) -> None:
        """Cut some keys, each at an instant."""
        rows = self.segments.cut(ints(*upto), ints(*upto.values())).tolist()
        wanted = [
            row
            for key, instant in upto.items()
            for row in [row for row in self.of(key) if self.model[row][1] <= instant][:-1]
        ]
        assert rows == wanted
        self.table.release(ints(*rows))
        for row in rows:
            del self.model[row]
        self.check()

    def of(self, key: int) -> list[int]:
        return sorted(
            (row for row, window in self.model.items() if window[0] == key),
            key=lambda row: self.model[row][1],
        )

    def check(self) -> None:
        self.segments._check()
        assert len(self.segments) == len(self.model)
        keys = [0, 3, 1, 2, 999]
        held = self.segments.of_keys(ints(*keys)).tolist()
        assert sorted(held) == sorted(self.model)
        if self.disjoint:
            assert held == [row for key in keys for row in self.of(key)]
        else:
            assert [self.model[r][0] for r in held] == [key for key in keys for _ in self.of(key)]

    def overlapping(self, asked: list[Interval], *, touching: bool) -> None:
        columns = [ints(*(interval[at] for interval in asked)) for at in range(3)]
        rows, which = self.segments.overlapping(*columns, touching=touching)
        expected = [
            (row, at)
            for at, interval in enumerate(asked)
            for row in self.of(interval[0])
            if _overlap(interval, self.model[row], touching=touching)
        ]
        assert list(zip(rows.tolist(), which.tolist(), strict=True)) == expected


def _overlap(a: Interval, b: Interval, *, touching: bool) -> bool:
    if a[0] != b[0]:
        return False
    return (a[1] <= b[2] and b[1] <= a[2]) if touching else (a[1] < b[2] and b[1] < a[2])


STEPS = st.lists(
    st.one_of(
        st.lists(INTERVALS, max_size=12), st.lists(st.integers(0, 50), max_size=6).map(tuple)
    ),
    max_size=15,
)


@pytest.mark.parametrize("disjoint", [True, False])
@given(steps=STEPS, asked=st.lists(INTERVALS, max_size=10))
def test_like_brute_force(
    disjoint: bool, steps: list[list[Interval] | tuple[int, ...]], asked: list[Interval]
) -> None:
    checked = Checked(disjoint=disjoint)
    for step in steps:
        if isinstance(step, list):
            checked.insert(step)
        else:
            rows = list(checked.model)
            checked.remove(list({rows[at % len(rows)] for at in step}) if rows else [])
        if disjoint:
            for touching in (True, False):
                checked.overlapping(asked, touching=touching)


@given(
    steps=st.lists(
        st.one_of(
            st.lists(INTERVALS, max_size=12),
            st.dictionaries(st.integers(0, 4), st.integers(-25, 65)),
        ),
        max_size=12,
    ),
    asked=st.lists(INTERVALS, max_size=6),
)
def test_cutting_leaves_the_last_before_an_instant(
    steps: list[list[Interval] | dict[int, int]], asked: list[Interval]
) -> None:
    checked = Checked(disjoint=True)
    for step in steps:
        if isinstance(step, list):
            checked.insert(step)
        else:
            checked.cut(step)
        checked.overlapping(asked, touching=True)


def row_of_windows(count: int) -> Checked:
    """``count`` windows of key 1: [0, 8), [10, 18), ..."""
    checked = Checked(disjoint=True)
    checked.insert([(1, 10 * at, 10 * at + 8) for at in range(count)])
    return checked


def test_what_overlaps_and_what_touches() -> None:
    """
    ::

        held    [0   8)  [10  18)  [20  28)
        asked        [8  10)                  touches two, overlaps none
        asked            [9    20)            overlaps one, touches one more
    """
    checked = row_of_windows(3)
    asked = [(1, 8, 10), (1, 9, 20), (2, 0, 100), (1, 100, 101), (1, -5, 0), (1, -100, 100)]
    checked.overlapping(asked, touching=False)
    checked.overlapping(asked, touching=True)


@pytest.mark.parametrize(
    "gone",
    [[0], [0, 1, 2], [4, 5], [9], [0, 9], [2, 5, 7], list(range(10)), [1, 0, 3]],
    ids=str,
)
def test_removing_from_the_front_the_middle_and_the_end(gone: list[int]) -> None:
    checked = row_of_windows(10)
    checked.insert([(2, 5, 9), (2, 0, 4)])
    rows = checked.of(1)
    checked.remove([rows[at] for at in gone])
    checked.insert([(1, 10 * at + 1, 10 * at + 5) for at in gone])
    checked.overlapping([(1, -10, 200), (2, 3, 6)], touching=False)


def test_several_keys_in_one_call_each_removed_elsewhere() -> None:
    checked = Checked(disjoint=True)
    checked.insert([(key, 10 * at, 10 * at + 8) for at in range(6) for key in (3, 0, 2)])
    checked.remove([checked.of(0)[0], checked.of(0)[1], checked.of(2)[3], checked.of(3)[5]])
    checked.remove([*checked.of(2), checked.of(3)[0], checked.of(0)[2]])


def test_a_window_that_grew_in_place_is_found_and_removed() -> None:
    """Merging widens a window before those it took in are removed."""
    checked = row_of_windows(5)
    rows = checked.of(1)
    checked.table["start"][rows[1]] = 9
    checked.table["end"][rows[1]] = 38
    checked.model[rows[1]] = (1, 9, 38)
    checked.remove([rows[2], rows[3]])
    checked.overlapping([(1, 0, 9), (1, 37, 39), (1, 38, 40)], touching=False)
    checked.overlapping([(1, 0, 9), (1, 37, 39), (1, 38, 40)], touching=True)
    checked.remove([rows[1]])


def test_a_stream_of_windows_stays_small() -> None:
    """The pool is compacted: what passed by takes no room."""
    checked = Checked(disjoint=True)
    for turn in range(600):
        checked.insert([(key, 10 * turn, 10 * turn + 5) for key in range(4)])
        if turn > 5:
            checked.remove([checked.of(key)[0] for key in range(4)])
    assert len(checked.segments._pool) < 1_000


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 0]], ids=str)
def test_instants_of_one_time_are_removed_in_any_order(order: list[int]) -> None:
    table = RowTable([Field(name, np.int64) for name in ("key", "start")])
    segments = Segments(table, disjoint=True, end="start")
    rows = table.allocate(8)
    ones, twos = rows[:4], rows[4:]
    table["key"][rows] = [1] * 4 + [2] * 4
    table["start"][rows] = [5, 5, 5, 6] * 2
    segments.insert(rows)
    segments.remove(np.concatenate([ones[order], twos[order[::-1]]]))
    segments._check()
    for key, its in ((1, ones), (2, twos)):
        assert segments.of_keys(ints(key)).tolist() == np.delete(its, order).tolist()


def test_many_keys_at_once() -> None:
    table = RowTable([Field(name, np.int64) for name in ("key", "start", "end")])
    segments = Segments(table, disjoint=True)
    rows = table.allocate(60_000)
    table["key"][rows] = np.tile(np.arange(20_000), 3)
    table["start"][rows] = np.repeat([0, 100, 200], 20_000)
    table["end"][rows] = table["start"][rows] + 50
    segments.insert(rows)
    keys = np.arange(20_000)
    found, which = segments.overlapping(
        keys, np.full(20_000, 40), np.full(20_000, 120), touching=False
    )
    assert (which == np.repeat(keys, 2)).all()
    assert (table["key"][found] == which).all()
    assert (table["start"][found] == np.tile([0, 100], 20_000)).all()
