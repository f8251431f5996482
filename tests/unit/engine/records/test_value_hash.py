"""Hashes that stand for values differ where the values do, whatever holds them."""

from __future__ import annotations

from decimal import Decimal
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import hash_keys
from lowwater.engine.records.value_hash import hash_values

LARGE = 2**61 - 1
WHOLE = [0, 1, -1, -2, 7, LARGE, -LARGE, LARGE - 2, 2**63 - 1, -(2**63), 7 + LARGE, 7 - LARGE]
FLOATS = [0.0, 1.0, -1.0, -2.0, 2.0**61, -(2.0**61), 1e300, float("inf"), float("-inf"), 314159.0]
OTHERS = ["", "a", b"", (-1,), (-2,), (-1, -2), (-2, -1), (("x", -2),), frozenset({-2}), 2**64 - 1]
COLUMNS = [
    Column.from_arrow(pa.array(WHOLE)),
    Column.from_arrow(pa.array([-1, -2, None, -2], pa.int8())),
    Column.from_arrow(pa.array(FLOATS)),
    Column.from_arrow(pa.array([2**64 - 1, 0, 5 + LARGE], pa.uint64())),
    Column.from_arrow(pa.array([-1, -2, None], pa.int64()).dictionary_encode()),
    Column.from_arrow(pa.array([Decimal(-1), Decimal(-2), Decimal("1e25"), None])),
    Column.from_arrow(pa.array(["a", "", None])),
    Column.from_arrow(pa.array([-1, -2], pa.timestamp("us", "UTC"))),
    Column(np.array(WHOLE)),
    Column.of_objects([*WHOLE, *FLOATS, *OTHERS, None, True, Decimal(-2), Decimal("1e25")]),
]


def test_equal_values_have_one_hash_and_others_have_not() -> None:
    told = [
        (value, hashed)
        for column in COLUMNS
        for value, hashed in zip(column.to_list(), hash_values([column]).tolist(), strict=True)
    ]
    for (one, of_one), (other, of_other) in combinations(told, 2):
        assert (one == other) == (of_one == of_other), (one, other)


@pytest.mark.parametrize("values", [[-1, -2], [(-1,), (-2,)], [7, 7 + LARGE]])
def test_the_hash_that_places_keys_takes_them_as_one(values: list[Any]) -> None:
    column = Column.of_objects(values)
    assert len(set(hash_keys([column]).tolist())) == 1
    assert len(set(hash_values([column]).tolist())) == 2
    assert len(set(hash_values([Column.of_objects(["a", "a"]), column]).tolist())) == 2


def test_of_several_columns_each_counts() -> None:
    one, other = (Column(np.array(values)) for values in ([-1, -2, -1, -2], [-1, -1, -2, -2]))
    assert len(set(hash_values([one, other]).tolist())) == 4


def test_other_values_have_the_hash_that_stored_rows_have() -> None:
    for values in ([0, 1, -1, 5, None], ["a", ""], [0.5, 1.5], [(1, "a")]):
        column = Column.of_objects(values)
        assert hash_values([column]).tolist() == hash_keys([column]).tolist()
