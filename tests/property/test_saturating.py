"""Arithmetic near the ends of time saturates and never wraps (S-T1)."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from lowwater.time import (
    END_OF_TIME,
    START_OF_TIME,
    saturating_add,
    saturating_add_array,
)

INT64 = st.integers(START_OF_TIME, END_OF_TIME)


def clamped(total: int) -> int:
    return sorted((START_OF_TIME, total, END_OF_TIME))[1]


@given(INT64, INT64)
@example(START_OF_TIME, START_OF_TIME)
@example(END_OF_TIME, END_OF_TIME)
def test_one_at_a_time(at: int, delta: int) -> None:
    assert saturating_add(at, delta) == clamped(at + delta)


@given(st.lists(INT64), INT64)
@example([START_OF_TIME, 0, END_OF_TIME], START_OF_TIME)
@example([START_OF_TIME, 0, END_OF_TIME], END_OF_TIME)
def test_a_column_and_one_delta(times: list[int], delta: int) -> None:
    at = np.array(times, dtype=np.int64)
    assert saturating_add_array(at, delta).tolist() == [clamped(t + delta) for t in times]
    assert at.tolist() == times


@given(st.lists(st.tuples(INT64, INT64)))
def test_a_column_and_its_deltas(pairs: list[tuple[int, int]]) -> None:
    at = np.array([t for t, _ in pairs], dtype=np.int64)
    deltas = np.array([d for _, d in pairs], dtype=np.int64)
    assert saturating_add_array(at, deltas).tolist() == [clamped(t + d) for t, d in pairs]


@given(INT64, INT64, INT64)
def test_it_is_monotone(at: int, other: int, delta: int) -> None:
    low, high = sorted((at, other))
    assert saturating_add(low, delta) <= saturating_add(high, delta)
