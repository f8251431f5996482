"""The small vector operations, against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.state.arrays import (
    Scratch,
    expand_ranges,
    run_lengths,
    run_starts,
    sort_by_key_and_time,
)
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

pytestmark = pytest.mark.usefixtures("kernels")

INT64 = st.integers(START_OF_TIME, END_OF_TIME)


def ints(*values: int) -> Int64Array:
    return np.array(values, dtype=np.int64)


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 6)), max_size=12))
def test_expand_ranges(ranges: list[tuple[int, int]]) -> None:
    start, count = ints(*(a for a, _ in ranges)), ints(*(n for _, n in ranges))
    places, which = expand_ranges(start, count)
    assert places.tolist() == [a + i for a, n in ranges for i in range(n)]
    assert which.tolist() == [at for at, (_, n) in enumerate(ranges) for _ in range(n)]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=20))
def test_run_starts(rows: list[tuple[int, int]]) -> None:
    rows.sort()
    begins = run_starts(ints(*(a for a, _ in rows)), ints(*(b for _, b in rows)))
    assert begins.tolist() == [at == 0 or rows[at - 1] != row for at, row in enumerate(rows)]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_run_lengths(lengths: list[int]) -> None:
    first = ints(*(sum(lengths[:at]) for at in range(len(lengths))))
    assert run_lengths(first, sum(lengths)).tolist() == lengths


@given(st.lists(st.tuples(st.lists(st.integers(0, 90)), st.lists(st.integers(0, 90))), max_size=4))
def test_among_leaves_no_mark(asked: list[tuple[list[int], list[int]]]) -> None:
    scratch = Scratch()
    for rows, some in asked:
        found = scratch.among(ints(*rows), ints(*some), 91)
        assert found.tolist() == [row in some for row in rows]


@given(
    st.one_of(
        st.lists(st.tuples(st.integers(0, 5), st.integers(-4, 4)), max_size=40),
        st.lists(st.tuples(st.integers(0, 2**31), INT64), max_size=20),
        st.lists(st.tuples(INT64, INT64), max_size=20),
    )
)
def test_sorting_by_key_and_time_is_stable(rows: list[tuple[int, int]]) -> None:
    order = sort_by_key_and_time(ints(*(k for k, _ in rows)), ints(*(t for _, t in rows)))
    assert order.tolist() == sorted(range(len(rows)), key=rows.__getitem__)


@pytest.mark.parametrize("bits", [42, 43, 44])
def test_sorting_where_the_packing_just_fits_or_just_does_not(bits: int) -> None:
    """20 bits of key, some of time, and one of place: 63 is the most that can be packed."""
    keys = ints(2**20 - 1, 0, 2**20 - 1, 0)
    times = ints(2**bits - 1, 2**bits - 1, 0, 0) - 2**40
    assert sort_by_key_and_time(keys, times).tolist() == [3, 1, 2, 0]


def test_sorting_leaves_its_arguments_alone() -> None:
    keys, times = ints(2, 1, 2), ints(5, 6, 4)
    sort_by_key_and_time(keys, times)
    assert (keys.tolist(), times.tolist()) == ([2, 1, 2], [5, 6, 4])


@given(st.lists(st.lists(st.integers(0, 30), max_size=30), max_size=5))
def test_unique_keeps_the_order_of_first_places(calls: list[list[int]]) -> None:
    scratch = Scratch()  # the same one throughout: what earlier calls left must not matter
    for rows in calls:
        distinct, place = scratch.unique(ints(*rows), 31)
        assert distinct.tolist() == list(dict.fromkeys(rows))
        assert distinct[place].tolist() == rows


def test_unique_of_rows_beyond_what_was_seen_before() -> None:
    scratch = Scratch()
    for capacity in (64, 1_000, 100_000):
        rows = ints(capacity - 1, 0, capacity - 1)
        distinct, place = scratch.unique(rows, capacity)
        assert (distinct.tolist(), place.tolist()) == ([capacity - 1, 0], [0, 1, 0])
