"""Python values of columns are those of Arrow, whichever way they come about."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.records.python_values import FIRST_DATETIME, LAST_DATETIME, python_values
from tests.examples import examples

_MICROS = {"us": 1, "ms": 1_000, "s": 1_000_000}


@pytest.mark.parametrize("unit", _MICROS)
@pytest.mark.parametrize("zone", [None, "UTC", "+01:00", "Europe/Paris"])
@examples(1)
@given(data=st.data())
def test_times_are_those_of_arrow(unit: Any, zone: str | None, data: st.DataObject) -> None:
    day = 86_400_000_000 // _MICROS[unit]
    numbers = st.integers(
        FIRST_DATETIME // _MICROS[unit] + day, LAST_DATETIME // _MICROS[unit] - day
    )
    given_numbers = data.draw(st.lists(st.none() | numbers, max_size=6))
    times = pa.array(given_numbers, pa.int64()).view(pa.timestamp(unit, zone))
    for array in (times, times[1:], times.dictionary_encode()):
        found = python_values(array)
        assert [*map(repr, found)] == [*map(repr, array.to_pylist())]  # zones, too


@pytest.mark.parametrize("values", [["a", None, "b", "a"], [b"x", b"x"], [2.5, None], []])
def test_values_of_dictionaries_are_those_of_arrow(values: list[Any]) -> None:
    codes = pa.array(values).dictionary_encode() if values else pa.array([], pa.string())
    assert python_values(codes) == python_values(codes[:9]) == values
    assert python_values(codes[1:]) == values[1:]


def test_a_null_may_be_among_the_values_of_a_dictionary() -> None:
    indices = pa.array(np.array([0, 1, 2, 1]), mask=np.array([False, False, True, False]))
    codes = pa.DictionaryArray.from_arrays(indices, pa.array(["x", None, "y"]))
    assert python_values(codes) == ["x", None, None, None]


def test_values_that_may_change_are_not_shared() -> None:
    lists = pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array([[1]]))
    first, second = python_values(lists)
    first.append(2)
    assert second == [1]
