"""Retractions among many inputs, and distinct values of many rows: equal to plain loops."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.aggregates._lists import _distinct_counts, _first_of_each
from lowwater.engine.aggregates._retractable import uncancelled

LOWEST, HIGHEST = -(2**63), 2**63 - 1


def left_by_a_loop(signs: list[int], keys: list[tuple[int, ...]]) -> list[bool]:
    """Cancel the latest equal insert that is left, or wait for the next one (S-C1)."""
    left = [True] * len(signs)
    inserts, waiting = (
        defaultdict[tuple[int, ...], list[int]](list),
        defaultdict[tuple[int, ...], list[int]](list),
    )
    for at, (sign, key) in enumerate(zip(signs, keys, strict=True)):
        others = waiting if sign > 0 else inserts
        if others[key]:
            left[others[key].pop()] = left[at] = False
        else:
            (inserts if sign > 0 else waiting)[key].append(at)
    return left


@given(
    st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 5, 300]), st.sampled_from([2, 50, 10**6]),
    st.sampled_from([0.0, 0.01, 0.1, 0.6]),
)  # fmt: skip
def test_what_is_left_does_not_depend_on_how_many_retractions_there_are(
    seed: int, length: int, values: int, share: float
) -> None:
    random = np.random.default_rng(seed)
    keys = np.sort(random.integers(0, 5, length)), random.integers(0, 3, length) * 10**15
    codes = random.integers(0, values, length)
    signs = np.where(random.random(length) < share, -1, 1).astype(np.int8)
    for at in np.flatnonzero(signs < 0).tolist():  # most have an insert of their own
        twin = int(random.integers(0, length))
        codes[at], keys[1][at] = codes[twin], keys[1][twin]
    columns = (*keys, codes)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    assert uncancelled(signs, *columns).tolist() == left_by_a_loop(signs.tolist(), rows)


def test_one_retraction_among_a_hundred_thousand() -> None:
    length = 100_000
    codes, owner = np.arange(length), np.zeros(length, dtype=np.int64)
    signs = np.ones(length, dtype=np.int8)
    codes[-1], signs[-1] = 17, -1
    gone = np.flatnonzero(~uncancelled(signs, owner, owner, codes))
    assert gone.tolist() == [17, length - 1]


@pytest.mark.parametrize(
    "values",
    [
        [LOWEST, HIGHEST, LOWEST, 0],
        [HIGHEST, HIGHEST - 1, HIGHEST],
        [2**53 + 1, 2**53, 2**53 + 1],
        [0.0, -0.0, float("nan"), float("nan"), 1e300],
        ["a", "b", None, "a"],
        [True, False, True],
    ],
)
@pytest.mark.parametrize("rows", [1, 3])
def test_distinct_values_of_the_ends_of_their_types(values: list[object], rows: int) -> None:
    dtype = object if isinstance(values[0], str) else None
    column = np.array(values * rows, dtype=dtype)
    owner = np.repeat(np.arange(rows), len(values)).astype(np.int64)
    kept = _first_of_each(owner, column)
    one = len({"nan" if value != value else value for value in values})
    assert _distinct_counts(owner, column, rows + 1).tolist() == [one] * rows + [0]
    assert kept.sum() == one * rows
    first = [values.index(value) for value in dict.fromkeys(values) if value == value]
    assert set(first) <= set(np.flatnonzero(kept[: len(values)]).tolist())


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-3, 3)), max_size=200))
def test_the_first_of_each_pair_is_found(pairs: list[tuple[int, int]]) -> None:
    owner = np.array([one for one, _ in pairs], dtype=np.int64)
    values = np.array([value for _, value in pairs], dtype=np.int64)
    wanted = [pair not in pairs[:at] for at, pair in enumerate(pairs)]
    assert _first_of_each(owner, values).tolist() == wanted
