"""User values as bytes: equal and of the same type when they are read again."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from lowwater.state.codec import Encoded, decode, encode

VALUES: list[Any] = [
    [-(2**63) - 1, -(2**63), 2**64 - 1, 2**64],
    {-(2**63) - 1: 2**64, 2**64: -(2**63) - 1, "in 64 bits": 2**64 - 1},
    {"plain": None, "more": {"x": (1, [2.5, {"y": b"z"}])}},
    {("a", 1): {1, "b"}, 3: [Decimal("1.20"), dt.date(2024, 2, 29)], None: True},
    [[], {}, (), [[]], {"": {}}],
]


@pytest.mark.parametrize("value", VALUES)
def test_what_is_read_is_what_was_written(value: Any) -> None:
    found = decode(encode(value))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("value", VALUES)
def test_a_part_that_was_encoded_before_makes_the_same_bytes(value: Any) -> None:
    part = Encoded(value)
    whole = [part, {"first": part, "more": (part, 1)}, {"all": [part]}]
    assert encode(part) == encode(value)
    assert encode(whole) == encode([value, {"first": value, "more": (value, 1)}, {"all": [value]}])


def test_numbers_of_numpy_come_back_as_plain_ones_wherever_they_are() -> None:
    given = {"list": [np.int64(1), np.float64(2.5)], np.int64(3): (np.bool_(True),)}
    found = decode(encode(given))
    assert found == {"list": [1, 2.5], 3: (True,)}
    assert [type(each) for each in found["list"]] == [int, float]
