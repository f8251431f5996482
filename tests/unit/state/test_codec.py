"""User values as bytes: equal and of the same type when they are read again."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pytest

from lowwater.errors import StateError
from lowwater.state.codec import Encoded, decode, encode, encode_each

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


@pytest.mark.parametrize("values", [[], ["a", None, b"x", 0.5, True], ["a", 7], *VALUES])
def test_values_are_encoded_each_in_a_list(values: Any) -> None:
    values = list(values)
    assert encode_each(values) == [encode([value]) for value in values]


@pytest.mark.parametrize("value", VALUES)
def test_a_part_that_was_encoded_before_makes_the_same_bytes(value: Any) -> None:
    part = Encoded(value)
    whole = [part, {"first": part, "more": (part, 1)}, {"all": [part]}]
    assert encode(part) == encode(value)
    assert encode(whole) == encode([value, {"first": value, "more": (value, 1)}, {"all": [value]}])


ZONE = ZoneInfo("Europe/Amsterdam")
TIMES = [
    dt.datetime(2024, 3, 30, 12, tzinfo=ZONE),
    dt.datetime(2024, 10, 27, 2, 30, tzinfo=ZONE, fold=1),
    dt.datetime(2024, 10, 27, 2, 30, fold=1),  # noqa: DTZ001 (a value is what it is)
    dt.datetime(2024, 10, 27, 2, 30, tzinfo=dt.timezone(dt.timedelta(hours=1)), fold=1),
    dt.datetime(2024, 3, 30, 12, tzinfo=dt.UTC),
    dt.time(2, 30, fold=1),
    dt.time(2, 30, tzinfo=ZONE),
    dt.time(2, 30, 1, 5, tzinfo=dt.UTC),
]


@pytest.mark.parametrize("value", TIMES)
def test_times_keep_their_zone_and_fold(value: Any) -> None:
    (found,) = decode(encode([value]))
    assert (found, found.fold, found.tzinfo) == (value, value.fold, value.tzinfo)
    if isinstance(value, dt.datetime):
        day = dt.timedelta(days=1)
        assert (found + day).utcoffset() == (value + day).utcoffset()


def test_a_zone_that_is_not_known_is_said() -> None:
    stored = encode(dt.datetime(2024, 3, 30, 12, tzinfo=ZONE)).replace(b"Amsterdam", b"Amsterdom")
    with pytest.raises(StateError, match="the zone 'Europe/Amsterdom', which is not known here"):
        decode(stored)


@pytest.mark.parametrize(
    "value",
    [
        *(np.datetime64("2024-01-01T00:00:00.000000001"), np.datetime64("NaT", "us")),
        *(np.timedelta64(1500, "ns"), np.timedelta64("NaT", "s"), np.timedelta64(3, "M")),
    ],
)
def test_times_of_numpy_that_python_lacks_stay_what_they_are(value: Any) -> None:
    (found,) = decode(encode([value]))
    assert found.dtype == value.dtype
    assert found.view(np.int64) == value.view(np.int64)


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        *((13, ["s", "x", None, 0]), (13, [9, [1, 2, 3], None, 0]), (13, [8, "x", None, 0])),
        *((13, [8, "2024-01-01", 5, 0]), (13, [8, "2024-01-01", None, 9]), (13, None)),
        *((14, ["<i4", 1]), (14, ["<M8[(]", 1]), (14, [None, 1]), (14, ["<M8[ns]", 2**63])),
    ],
)
def test_times_that_no_writer_makes_are_refused(code: int, parts: Any) -> None:
    stored = msgspec.msgpack.encode(msgspec.msgpack.Ext(code, msgspec.msgpack.encode(parts)))
    with pytest.raises(StateError):
        decode(stored)


def test_times_of_numpy_that_python_has_are_pythons() -> None:
    given = [np.datetime64("2024-01-01"), np.datetime64("2024-01-01T01", "us")]
    assert decode(encode(given)) == [dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, 1)]  # noqa: DTZ001
    assert decode(encode(np.timedelta64(90, "s"))) == dt.timedelta(seconds=90)


def test_numbers_of_numpy_come_back_as_plain_ones_wherever_they_are() -> None:
    given = {"list": [np.int64(1), np.float64(2.5)], np.int64(3): (np.bool_(True),)}
    found = decode(encode(given))
    assert found == {"list": [1, 2.5], 3: (True,)}
    assert [type(each) for each in found["list"]] == [int, float]


class Price(Decimal):
    """A decimal of a class of its own."""


def test_a_decimal_of_a_class_keeps_all_digits() -> None:
    """Whatever the precision of the context is, to which signs round."""
    digits = "1234567890" * 5 + ".25"
    for text in (digits, f"-{digits}", "Infinity", "-0.00"):
        plain = Decimal(text)
        assert str(decode(encode(Price(text)))) == str(decode(encode(plain))) == text
