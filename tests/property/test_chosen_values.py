"""``lw.when`` chooses what Python's ``if`` would, for each record by itself (S-B1)."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw

INTEGERS = st.sampled_from([0, -1, 2**53 + 1, 2**63 - 1, -(2**63)])
FLOATS = st.sampled_from([0.5, math.nan, -math.inf, -0.0])
TEXTS = st.sampled_from(["", "a", "c", "é", "\n"])
BROKEN = st.sampled_from([2**80, "\ud800", ("a", 1)])
"""Values that no expression can read."""
CONDITIONS = st.sampled_from([True, False, None])


@st.composite
def choices(draw: Any) -> tuple[list[dict[str, Any]], Any, Any]:
    """Draw records with two columns of one type, and what is chosen of them."""
    values = draw(st.sampled_from([INTEGERS, FLOATS, TEXTS]))
    one = st.one_of(st.none(), values, values, values, BROKEN)
    condition = CONDITIONS | st.sampled_from(["yes", 7])
    records = draw(st.lists(st.fixed_dictionaries({"c": condition, "v": one, "w": one})))
    yes, no = (draw(st.sampled_from(["v", "w"]).map(lw.col) | values | st.none()) for _ in "yn")
    return records, yes, no


def is_broken(value: Any) -> bool:
    return value in (2**80, "\ud800", ("a", 1))


def names_of(value: Any) -> list[str]:
    return [repr(value)[4]] if isinstance(value, lw.Expr) else []


@given(choices())
def test_each_record_gets_what_python_would_choose(given_: Any) -> None:
    records, yes, no = given_
    wanted: dict[int, Any] = {}
    for n, record in enumerate(records):
        is_bad = record["c"] in ("yes", 7) and not isinstance(record["c"], bool)
        read = [record[name] for one in (yes, no) for name in names_of(one)]
        if not is_bad and not any(is_broken(value) for value in read):
            chosen = yes if record["c"] else no
            names = names_of(chosen)
            wanted[n] = record[names[0]] if names else chosen
    rows = [{"at": 0, "n": n, **record} for n, record in enumerate(records)]
    seen: list[lw.ErrorRecord] = []
    stream = lw.from_iterable(rows, time="at").select("n", x=lw.when(lw.col("c"), yes, no))
    found = {
        one.value["n"]: one.value["x"]
        for one in stream.run(on_dead_letter=seen.append, bundle_size=3)
    }
    assert {n: repr(value) for n, value in found.items()} == {
        n: repr(value) for n, value in wanted.items()
    }
    assert sorted([*found, *(one.record["n"] for one in seen)]) == list(range(len(records)))
    assert {one.reason for one in seen} <= {"bad_expression"}
