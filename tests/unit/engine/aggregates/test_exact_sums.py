"""Sums of floats from limbs are the exact sums, rounded once: against Python's fractions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from lowwater.engine.aggregates._base import AggregateInput
from lowwater.engine.aggregates._subtracting import SignedSum
from lowwater.kernels import plain
from tests.kernels import KINDS

# Values whose sums lie close to the middle of two floats, or cancel.
HARD = [0.1, 1e16, -1e16, 1e-9, 3.5, 4.0, -4.0, 2.0**-60, 5e-324, 1e308, -1e308, 2.0**53 + 2]
VALUES = st.lists(
    st.sampled_from(HARD) | st.floats(allow_nan=False, allow_infinity=False), max_size=30
)


def exact(values: Sequence[float]) -> float:
    total = sum(map(Fraction, values), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return np.inf if total > 0 else -np.inf


@given(VALUES)
@example([5e16, 3.5, *[0.1] * 5])
@example([-1e16] * 5 + [3.5, *[0.1] * 5, 1e-9])
def test_limbs(values: list[float]) -> None:
    total = SignedSum()
    rows = np.zeros(len(values), dtype=np.int64)
    batch = AggregateInput(rows, np.array(values, dtype=np.float64), rows, rows)
    total.grow(batch)
    state = {column.name: np.zeros(1, dtype=np.int64) for column in total.columns}
    total.add(state, batch)
    assert total.result(state, np.zeros(1, dtype=np.int64)).data[0] == exact(values)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.NAME)
@given(
    values=VALUES | st.lists(st.sampled_from([0.1, 1e16, -1e16, 3.5]), max_size=40), data=st.data()
)
def test_ranges_that_are_sure(kind: Any, values: list[float], data: st.DataObject) -> None:
    places = st.integers(0, len(values))
    ends = data.draw(st.lists(st.tuples(places, places).map(sorted), max_size=8))
    low = np.array([first for first, _ in ends], dtype=np.int64)
    high = np.array([last for _, last in ends], dtype=np.int64)
    array = np.array(values, dtype=np.float64)
    sums, sure = kind.range_sums(array, low, high)
    twin, twin_sure = plain.range_sums(array, low, high)
    assert sure.tolist() == twin_sure.tolist()
    assert sums[sure].tolist() == twin[sure].tolist()
    for at in np.flatnonzero(sure):
        assert sums[at] == exact(values[low[at] : high[at]])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.NAME)
def test_a_sum_just_above_the_middle_of_two_floats_is_not_sure(kind: Any) -> None:
    values = np.array([1e16] * 4 + [3.5] + [0.1] * 5)  # what 0.1 is above a tenth decides
    _, sure = kind.range_sums(values, np.array([0]), np.array([len(values)]))
    assert not sure[0]


def test_most_ranges_are_sure() -> None:
    random = np.random.default_rng(1)
    values = random.normal(size=20_000)
    high = np.arange(1, 20_001)
    _, sure = plain.range_sums(values, np.maximum(high - 20, 0), high)
    assert sure.mean() > 0.99


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.NAME)
@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=6), seed=st.integers(0, 99),
       length=st.sampled_from([1, 2, 5, 2**63 - 1]), ends=st.booleans())  # fmt: skip
def test_ranges_of_time(kind: Any, counts: list[int], seed: int, length: int, ends: bool) -> None:
    random = np.random.default_rng(seed)
    base = random.integers(0, 12, sum(counts))
    if ends:
        base = np.where(random.random(len(base)) < 0.5, -(2**63) + base, 2**63 - 2 - base)
    key = np.repeat(np.arange(len(counts)), counts)
    times = base[np.lexsort((base, key))].astype(np.int64)
    begin = (np.cumsum(counts) - counts).astype(np.int64)
    places = np.flatnonzero(random.random(len(times)) < 0.7).astype(np.int64)
    of = key[places]
    stop = begin + np.array(counts)
    low, high = kind.time_ranges(times, begin[of], stop[of], places, length)
    every = list(map(int, times))
    for at, first, last in zip(places.tolist(), low.tolist(), high.tolist(), strict=True):
        same = range(int(begin[key[at]]), int(stop[key[at]]))
        wanted = [one for one in same if every[at] - length < every[one] <= every[at]]
        assert list(range(first, last)) == wanted
