"""Integers, floats and decimals compare as Python's do, and compute in floats as Python's do."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw

COMPARISONS: list[Callable[[Any, Any], Any]] = [
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
]  # fmt: skip
ARITHMETIC: list[Callable[[Any, Any], Any]] = [operator.add, operator.sub, operator.mul]
EDGES = [2**53, 2**53 + 1, 2**62 + 1, 2**63 - 1, 7, 0]
INTEGERS = st.one_of(
    st.sampled_from([*EDGES, *(-one for one in EDGES), -(2**63)]), st.integers(-(2**63), 2**63 - 1)
)
UNSIGNED = st.one_of(st.sampled_from([*EDGES, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1))
FLOATS = st.one_of(
    st.sampled_from([0.5, 2.0**53, 2.0**62, 2.0**63, -(2.0**63), 2.0**64, 1e300, math.inf]),
    st.sampled_from([-math.inf, math.nan, -0.0]),
    st.floats(),
    INTEGERS.map(float),
)
DECIMALS = st.one_of(
    st.integers(-(10**15), 10**15).map(lambda one: Decimal(one).scaleb(-3)),
    st.sampled_from([Decimal("0.100"), Decimal("0.500"), Decimal("9007199254740.993")]),
)
KINDS = {
    "int64": (pa.int64(), INTEGERS),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "uint64": (pa.uint64(), UNSIGNED),
    "double": (pa.float64(), FLOATS),
    "decimal": (pa.decimal128(18, 3), DECIMALS),
}
FAR = st.sampled_from([2**64, -(2**63) - 1, 2**70 + 1, -(10**30)])


def values_of(expression: Any, table: pa.Table, size: int) -> list[Any]:
    """Return what an expression comes to for each record, and require that none fails."""
    rows = lw.from_arrow(table, time="at", unit="us").with_columns(r=expression)
    result = rows.map(lambda row: row).collect(
        bundle_size=size, on_error="dead_letter", progress=False
    )
    assert not result.errors
    return [row["r"] for row in result.values()]


def compared(compare: Callable[[Any, Any], Any], x: Any, y: Any) -> bool:
    """Return what Python says; it raises where a NaN is put in order with a decimal."""
    try:
        return bool(compare(x, y))
    except InvalidOperation:
        return False


def table_of(left: pa.DataType, right: pa.DataType, pairs: list[tuple[Any, Any]]) -> pa.Table:
    return pa.table({
        "at": np.arange(len(pairs)),
        "x": pa.array([one for one, _ in pairs], left),
        "y": pa.array([other for _, other in pairs], right),
    })  # fmt: skip


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        return found == wanted or (math.isnan(found) and math.isnan(wanted))
    return type(found) is type(wanted) and bool(found == wanted)


@given(st.data())
def test_comparisons_are_those_of_python(data: Any) -> None:
    (left, lefts), (right, rights) = (
        KINDS[data.draw(st.sampled_from(sorted(KINDS)))] for _ in range(2)
    )
    compare = data.draw(st.sampled_from(COMPARISONS))
    pairs = data.draw(
        st.lists(st.tuples(st.none() | lefts, st.none() | rights), min_size=1, max_size=9)
    )
    table = table_of(left, right, pairs)
    found = values_of(compare(lw.col("x"), lw.col("y")), table, data.draw(st.sampled_from([1, 4])))
    wanted = [None if None in (x, y) else compared(compare, x, y) for x, y in pairs]
    assert found == wanted, pairs


@given(st.data())
def test_so_they_are_with_literals(data: Any) -> None:
    kind, values = KINDS[data.draw(st.sampled_from(["int64", "int8", "uint64", "double"]))]
    compare = data.draw(st.sampled_from(COMPARISONS))
    literal = data.draw(st.one_of(INTEGERS, UNSIGNED, FLOATS, FAR))
    own = data.draw(st.lists(st.none() | values, min_size=1, max_size=9))
    table = table_of(kind, pa.int64(), [(one, 0) for one in own])
    size = data.draw(st.sampled_from([1, 4]))
    wanted = [None if one is None else compare(one, literal) for one in own]
    assert values_of(compare(lw.col("x"), literal), table, size) == wanted
    if not isinstance(literal, int) or -(2**63) <= literal < 2**63:
        wanted = [None if one is None else compare(literal, one) for one in own]
        assert values_of(compare(nw.lit(literal), lw.col("x")), table, size) == wanted


@given(st.data())
def test_integers_and_floats_compute_in_floats(data: Any) -> None:
    compute = data.draw(st.sampled_from([*ARITHMETIC, operator.truediv]))
    pairs = data.draw(
        st.lists(st.tuples(st.none() | INTEGERS, st.none() | FLOATS), min_size=1, max_size=9)
    )
    if compute is operator.truediv:
        pairs = [(x, y) for x, y in pairs if y != 0] or [(1, 1.0)]
    if data.draw(st.booleans()):
        pairs = [(x, 1e9) for x, _ in pairs]
        expression = compute(lw.col("x"), 1e9)
    else:
        expression = compute(lw.col("x"), lw.col("y"))
    table = table_of(pa.int64(), pa.float64(), pairs)
    found = values_of(expression, table, data.draw(st.sampled_from([1, 4])))
    wanted = [None if None in (x, y) else compute(float(x), y) for x, y in pairs]
    assert all(map(same, found, wanted)), (pairs, found, wanted)


@pytest.mark.parametrize("size", [1, 1000, 20_000])
def test_nanoseconds_become_seconds(size: int) -> None:
    """The commonest case, in which all integers are beyond 2^53."""
    count = 20_000 if size > 1 else 2_000
    nanos = 1_700_000_000_000_000_000 + np.arange(count) * 10**9
    table = pa.table({"at": np.arange(count), "x": nanos})
    found = values_of(lw.col("x") / 1e9, table, size)
    assert found == [one / 1e9 for one in nanos.tolist()]


@pytest.mark.parametrize(
    "expression",
    [lw.col("x") * 0.5, 0.5 + lw.col("x"), lw.col("y") - lw.col("x"), Decimal("0.5") * lw.col("y")],
)
def test_decimals_with_floats_are_refused_in_words(expression: Any) -> None:
    pairs = [(Decimal("0.500"), 0.5), (Decimal("1.250"), 0.25)]
    table = table_of(pa.decimal128(18, 3), pa.float64(), pairs)
    with pytest.raises(lw.DataError, match="a decimal and a float: the result would not be exact"):
        values_of(expression, table, 10)


def test_decimals_with_integers_and_decimals_are_exact() -> None:
    table = table_of(pa.decimal128(9, 2), pa.int64(), [(Decimal("1.10"), 3), (None, 2)])
    assert values_of(lw.col("x") * lw.col("y"), table, 10) == [Decimal("3.30"), None]
    assert values_of(lw.col("x") + Decimal("0.05"), table, 10) == [Decimal("1.15"), None]


def test_an_integer_beyond_all_cannot_be_added() -> None:
    table = table_of(pa.int64(), pa.int64(), [(1, 1), (2, 2)])
    with pytest.raises(lw.DataError, match="1180591620717411303424 does not fit 64 bits"):
        values_of(lw.col("x") + 2**70, table, 10)
