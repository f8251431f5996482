"""Values in few words: rounded, cut, and functions by name."""

from __future__ import annotations

import datetime as dt
import functools
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import lowwater as lw
from lowwater.display.text import function_name, number, plain, printable, shown
from lowwater.errors import describe
from lowwater.time import instant

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


def odd(value: int) -> bool:
    return value % 2 == 1


class Weighted:
    def __call__(self, value: float) -> float:
        return value


class Broken:
    def __repr__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1 + 0.2, "0.3"),
        (2.0, "2.0"),
        (-0.0, "-0.0"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (123456.789, "123456.8"),
        (-1234567.891, "-1234567.9"),
        (np.float64(0.1) + np.float64(0.2), "0.3"),
        (np.float32(0.1), "0.1"),
        (np.int64(7), "7"),
        (np.bool_(True), "True"),
        (np.arange(13), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … 3 more]"),
        (np.array(0.25), "0.25"),
        (np.datetime64("2024-05-01T12:00"), "2024-05-01T12:00"),
        (10**400, "an int of 1,329 bits"),
        (True, "True"),
        (None, "None"),
        ("it's", '"it\'s"'),
        (Decimal("5.00"), "Decimal('5.00')"),
        (NOON, "2024-05-01T12:00:00Z"),
        (NOON.date(), "2024-05-01"),
        (instant("2024-05-01T12:00:00Z"), "2024-05-01T12:00:00Z"),
        (list(range(47)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … 37 more]"),
        ((1 / 3,), "(0.333333,)"),
        ({"a": 0.1 + 0.2, "b": [odd]}, "{'a': 0.3, 'b': [odd]}"),
        ({3, 1, 2}, "{1, 2, 3}"),
        (frozenset({1}), "frozenset({1})"),
        (set(), "set()"),
        (odd, "odd"),
        (dict, "dict"),
        (str.upper, "str.upper"),
        (functools.partial(odd, 3), "partial(odd, 3)"),
        (Weighted(), "Weighted"),
        ([Weighted()], "[Weighted]"),
        (Broken(), "<Broken, whose repr raises ValueError>"),
        ("a" * 210, "'" + "a" * 100 + "'… 110 more characters"),
    ],
)
def test_values(value: object, text: str) -> None:
    assert shown(value) == text


def test_nesting_ends() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert shown(loop) == "[[[[[…]]]]]"


def test_lambdas_are_named_by_their_place() -> None:
    function: Any = lambda value: value  # noqa: E731
    line = function.__code__.co_firstlineno
    assert function_name(function) == f"lambda at test_text.py:{line}"
    cell = compile("f = lambda x: x", "/tmp/ipykernel_12/345.py", "exec")
    names: dict[str, Any] = {}
    exec(cell, names)
    assert shown(names["f"]) == "lambda at line 1 of a cell"


def test_cells_have_texts_without_quotes() -> None:
    assert plain("JFK") == "JFK"
    assert plain("") == "''"
    assert plain(("JFK", 2 / 3)) == "JFK, 0.666667"
    assert plain("a\x00\ud800\u202e") == "a\\x00\\ud800\\u202e"
    assert printable("é漢") == "é漢"


def test_small_numbers_keep_their_digits() -> None:
    assert number(0.000123456789) == "0.000123457"


def test_errors_quote_numbers_exactly_and_functions_by_name() -> None:
    assert describe("size", 0.1 + 0.2) == "size=0.30000000000000004 (float)"
    assert describe("by", odd) == "by=odd (function)"
    assert describe("delays", list(range(12))) == (
        "delays=[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … 2 more] (list)"
    )


def test_reprs_of_what_users_write_name_functions() -> None:
    assert repr(lw.CustomWindows(odd, name="odd")) == (  # type: ignore[arg-type]
        "CustomWindows(assign_element=odd, name='odd')"
    )
    assert repr(lw.Punctuated(odd)) == "Punctuated(odd)"
    stream = lw.from_iterable([], time="at")
    pipeline = stream.filter(odd).key_by("k").window(lw.FixedWindows("1m")).group()
    assert "filter(odd)" in repr(pipeline)
    assert " at 0x" not in repr(stream.map(lambda row: row))
