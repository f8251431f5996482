"""Conditions that numpy computes by itself are true where the evaluator of expressions has them."""

from __future__ import annotations

import operator
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
from hypothesis import given

import lowwater as lw
from lowwater.engine.match.quick import quick_truths
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.evaluation import evaluated
from lowwater.engine.records.expressions import Expressions
from tests.examples import examples

INTEGERS = st.none() | st.sampled_from([0, 1, 2, -1, 2**53 + 1, 2**53, 2**63 - 1, -(2**63)])
FLOATS = st.none() | st.sampled_from([0.0, -0.0, 1.0, 1.5, float("nan"), float("inf"), 2.0**53])
TEXTS = st.none() | st.sampled_from(["", "x", "y"])
COMPARED = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@st.composite
def comparisons(draw: st.DrawFn) -> Any:
    compare = draw(st.sampled_from(COMPARED))
    name = draw(st.sampled_from(["i", "j", "f", "g", "t"]))
    others: dict[str, Any] = {
        "i": ["j", "f", 1, 2**53 + 1, 1.5], "j": ["i", 0], "f": ["g", "i", 1, 1.5, 2**53 + 1],
        "g": ["f", 0.0], "t": ["t", "x"],
    }  # fmt: skip
    other = draw(st.sampled_from(others[name]))
    is_text = name == "t" and other == "x"
    return compare(lw.col(name), lw.col(other) if isinstance(other, str) and not is_text else other)


CONDITIONS = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: two[0] & two[1]),
        st.tuples(inner, inner).map(lambda two: two[0] | two[1]),
        inner.map(lambda one: ~one),
    ),
    max_leaves=4,
)


@given(CONDITIONS, st.data())
@examples(15)
def test_the_evaluator_agrees(condition: Any, data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 6))

    def column(values: st.SearchStrategy[Any], kind: pa.DataType) -> Column:
        some = data.draw(st.lists(values, min_size=length, max_size=length))
        return Column.from_arrow(pa.array(some, kind))

    columns = {
        "i": column(INTEGERS, pa.int64()), "j": column(INTEGERS, pa.int64()),
        "f": column(FLOATS, pa.float64()), "g": column(FLOATS, pa.float64()),
        "t": column(TEXTS, pa.string()),
    }  # fmt: skip
    found = quick_truths(condition, columns.__getitem__, length)
    if found is None:
        return
    done = evaluated("match", Records(columns, length), Expressions((), {"c": condition}))
    assert done.rows is None
    wanted = [one is True for one in done.columns["c"].to_list()]
    assert found.tolist() == wanted


def test_what_most_conditions_are_is_computed() -> None:
    columns = {name: Column(np.array([1, 2, 3])) for name in "ab"}
    for condition in (
        lw.col("a") < lw.col("b"),
        (lw.col("a") == 1) | ~(lw.col("b") > 2),
        (lw.col("a") >= 1) & (lw.col("a") != lw.col("b")),
    ):
        assert quick_truths(condition, columns.__getitem__, 3) is not None
    for condition in (lw.col("a") + 1 < lw.col("b"), lw.col("a") < 1.5, lw.col("a").is_null()):
        assert quick_truths(condition, columns.__getitem__, 3) is None
