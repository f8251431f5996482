"""Arithmetic of integers in expressions is Python's, in 64 bits, or a dead letter (S-B1)."""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable
from typing import Any

import narwhals as nw
import narwhals.selectors as cs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.records import integer_arithmetic
from lowwater.engine.records.batch import Records
from lowwater.engine.records.evaluation import evaluated
from lowwater.engine.records.expressions import Expressions
from lowwater.errors import InternalError

LOW, HIGH = -(2**63), 2**63 - 1
TYPES = [getattr(pa, f"{u}int{bits}")() for u in ("", "u") for bits in (8, 16, 32, 64)]
Tree = tuple[Any, Callable[[dict[str, Any]], Any]]
"""An expression, and what computes it of a record in Python."""


class Beyond(Exception):
    """A result is of more than 64 bits."""


def limits(kind: pa.DataType) -> tuple[int, int]:
    bits = kind.bit_width
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if pa.types.is_signed_integer(kind) else (
        0, 2**bits - 1,
    )  # fmt: skip


def values_of(kind: pa.DataType, most: int) -> Any:
    low, high = limits(kind)
    high = min(high, most)
    near = st.sampled_from([low, low + 1, high - 1, high, high // 2 + 1, 3, 1, 0])
    return st.one_of(st.none(), near, st.integers(max(low, -9), min(high, 9)))


def in_range(value: Any) -> Any:
    if value is not None and not LOW <= value <= HIGH:
        raise Beyond
    return value


def binary(name: str, left: Tree, right: Tree) -> Tree:
    of = {"+": operator.add, "-": operator.sub, "*": operator.mul,
          "//": operator.floordiv, "%": operator.mod}[name]  # fmt: skip

    def compute(record: dict[str, Any]) -> Any:
        own, given = in_range(left[1](record)), in_range(right[1](record))
        if own is None or given is None or (given == 0 and name in ("//", "%")):
            return None
        return in_range(of(own, given))

    return of(left[0], right[0]), compute


def unary(name: str, inner: Tree) -> Tree:
    def compute(record: dict[str, Any]) -> Any:
        value = in_range(inner[1](record))
        if value is None:
            return None
        return in_range({"-": -value, "abs": abs(value), "**2": value**2, "**3": value**3}[name])

    made = inner[0]
    expressions = {"-": lambda: -made, "abs": made.abs, "**2": lambda: made**2,
                   "**3": lambda: made**3}  # fmt: skip
    return expressions[name](), compute


def chosen(least: int, test: Tree, yes: Tree, no: Tree) -> Tree:
    def compute(record: dict[str, Any]) -> Any:
        value = in_range(test[1](record))
        return in_range((yes if value is not None and value < least else no)[1](record))

    return lw.when(test[0] < least, yes[0], no[0]), compute


COLUMNS: Any = st.sampled_from("abc").map(lambda name: (lw.col(name), operator.itemgetter(name)))


def narrowed(name: str, below: int, dtype: Any) -> Tree:
    """A column cast to a type in which products of its values would wrap."""

    def compute(record: dict[str, Any]) -> Any:
        value = in_range(record[name])
        return None if value is None else value % below

    return (lw.col(name) % below).cast(dtype), compute


NARROWED = st.builds(
    narrowed, st.sampled_from("abc"), st.just(100_000), st.just(nw.Int32)
) | st.builds(narrowed, st.sampled_from("abc"), st.just(100), st.sampled_from([nw.Int8, nw.UInt8]))
NUMBERS = st.one_of(st.integers(-3, 9), st.sampled_from([2**31, -(2**31), 2**62, HIGH, LOW]))


def literal(value: int) -> Tree:
    return value, lambda _record: value


def grown(inner: Any) -> Any:
    names = st.sampled_from(["+", "-", "*", "//", "%"])
    return st.one_of(
        st.builds(binary, names, inner, inner),
        st.builds(binary, names, inner, NUMBERS.map(literal)),
        st.builds(binary, st.sampled_from("+-*"), NUMBERS.map(literal), inner),
        st.builds(unary, st.sampled_from(["-", "abs", "**2", "**3"]), inner),
        st.builds(chosen, st.integers(-2, 9), COLUMNS, inner, inner),
    )


LEAVES = st.one_of(COLUMNS, COLUMNS, NARROWED)
TREES = st.one_of(grown(LEAVES), grown(grown(LEAVES)), grown(grown(grown(LEAVES))))


@st.composite
def tables(draw: Any, most: int = HIGH) -> pa.Table:
    length = draw(st.integers(1, 6))
    arrays = {}
    for name in "abc":
        kind = draw(st.sampled_from(TYPES))
        values = draw(st.lists(values_of(kind, most), min_size=length, max_size=length))
        arrays[name] = pa.array(values, kind)
    return pa.table(arrays)


@given(tables(), TREES)
def test_an_expression_is_what_python_computes(table: pa.Table, tree: Tree) -> None:
    check(table, tree)


def check(table: pa.Table, tree: Tree) -> None:
    """Compare an expression with what Python computes for each record."""
    expression, compute = tree
    wanted: dict[int, Any] = {}
    for row, record in enumerate(table.to_pylist()):
        try:
            wanted[row] = compute(record)
        except Beyond:
            continue
    records = Records.from_arrow(table.to_batches()[0])
    found = evaluated("with_columns", records, Expressions((), {"x": expression}))
    rows = range(len(table)) if found.rows is None else found.rows.tolist()
    values = found.columns["x"].to_list(exact=True) if rows else []
    assert dict(zip(rows, values, strict=True)) == wanted
    assert {one.row for one in found.failed} == set(range(len(table))) - set(wanted)
    assert {one.reason for one in found.failed} <= {"out_of_range"}


@given(tables(2**64 - 1), st.sampled_from("+-*").flatmap(lambda name: st.one_of(
    st.builds(binary, st.just(name), COLUMNS, COLUMNS),
    st.builds(binary, st.sampled_from(["//", "%"]), COLUMNS, COLUMNS),
    st.builds(unary, st.sampled_from(["-", "abs"]), COLUMNS),
)))  # fmt: skip
def test_nothing_is_computed_with_what_is_beyond_int64(table: pa.Table, tree: Tree) -> None:
    check(table, tree)


@given(tables(2**64 - 1), st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), NUMBERS)
def test_a_comparison_is_pythons(table: pa.Table, name: str, number: int) -> None:
    of = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
          "==": operator.eq, "!=": operator.ne}[name]  # fmt: skip
    records = Records.from_arrow(table.to_batches()[0])
    for left, right in ((lw.col("a"), number), (lw.col("a"), lw.col("b"))):
        found = evaluated("with_columns", records, Expressions((), {"x": of(left, right)}))
        assert not found.failed
        for row, value in zip(table.to_pylist(), found.columns["x"].to_list(), strict=True):
            other = number if right is number else row["b"]
            assert value == (None if None in (row["a"], other) else of(row["a"], other))


def test_lengths_of_texts_are_computed_with_in_64_bits() -> None:
    length = lw.col("s").str.len_chars()
    rows = lw.from_iterable([{"at": 0, "s": "x" * 50_000}], time="at", unit="s")
    made = rows.with_columns(a=length * length, b=length - 50_001, c=length)
    (one,) = made.select("a", "b", "c").collect(progress=False).elements()
    assert {name: one.value[name] for name in "abc"} == {"a": 50_000**2, "b": -1, "c": 50_000}
    assert len(rows.filter(length * length == 50_000**2).collect(progress=False).elements()) == 1


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_what_is_copied_and_compared_keeps_its_type(kind: pa.DataType) -> None:
    low, high = limits(kind)
    table = pa.table({"at": [1, 2, 3], "v": pa.array([low, high, None], kind)})
    made = lw.from_arrow(table, time="at", unit="s").with_columns(
        same=lw.col("v"), twice=lw.col("v") // 2, big=lw.col("v") >= high // 2
    )
    found = made.select("same", "v", "big", half=lw.col("twice")).collect(on_error="dead_letter")
    assert [row["same"] for row in found.values()] == [
        one for one in (low, high, None) if one is None or one <= HIGH
    ]
    assert len(found.errors) == (high > HIGH)


@pytest.mark.parametrize("size", [1, 7, 20_000])
def test_a_sum_of_products_counts_each_dead_letter_once(size: int) -> None:
    """Past every chunk: a third of 20,000 records leaves 64 bits."""
    count = 300 if size == 1 else 20_000
    values = np.where(np.arange(count) % 3 == 0, 2**40, np.arange(count))
    table = pa.table({"at": np.arange(count), "k": np.zeros(count, np.int64), "v": values})
    stream = lw.from_arrow(table, time="at", unit="us").with_columns(x=lw.col("v") * lw.col("v"))
    stage = stream.key_by("k").window(lw.FixedWindows("1h")).aggregate(s=lw.sum("x"))
    found = stage.collect(on_error="dead_letter", bundle_size=size, progress=False)
    (pane,) = found.panes
    assert pane.values["s"] == sum(at * at for at in range(count) if at % 3)
    assert [one.reason for one in found.errors] == ["out_of_range"] * len(range(0, count, 3))


UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
INSTANTS = st.one_of(
    st.none(), st.integers(LOW, HIGH), st.integers(-1000, 1000),
    st.sampled_from([LOW, HIGH, HIGH // 1000, HIGH // 1000 + 1, 253_402_214_400_000_000]),
)  # fmt: skip


def results(table: pa.Table, expression: Any) -> tuple[dict[int, Any], set[int]]:
    """Return the integers of results by row, and the rows that are dead letters."""
    records = Records.from_arrow(table.to_batches()[0])
    found = evaluated("with_columns", records, Expressions((), {"x": expression}))
    rows = range(len(table)) if found.rows is None else found.rows.tolist()
    if not rows:
        return {}, {one.row for one in found.failed}
    made = found.columns["x"].to_arrow()
    values = made if pa.types.is_null(made.type) else made.cast(pa.int64())
    return dict(zip(rows, values.to_pylist(), strict=True)), {one.row for one in found.failed}


@given(
    st.lists(st.tuples(INSTANTS, INSTANTS), min_size=1, max_size=6),
    st.sampled_from(list(UNITS)), st.sampled_from(["t+d", "t-d", "d+d", "t-t", "d*2", "-d"]),
)  # fmt: skip
def test_times_do_not_wrap(pairs: list[tuple[Any, Any]], unit: str, name: str) -> None:
    kinds = {"t": pa.timestamp(unit), "d": pa.duration(unit)}
    left, right = (kinds[one] for one in (name.strip("-*2")[0], name.strip("-*2")[-1]))
    own, given_ = zip(*pairs, strict=True)
    table = pa.table({"a": pa.array(own, left), "b": pa.array(given_, right)})
    a, b = lw.col("a"), lw.col("b")
    expression, compute = {
        "t+d": (a + b, operator.add), "d+d": (a + b, operator.add), "t-d": (a - b, operator.sub),
        "t-t": (a - b, operator.sub), "d*2": (a * 2, lambda x, _: 2 * x),
        "-d": (-a, lambda x, _: -x),
    }[name]  # fmt: skip
    values, failed = results(table, expression)
    for row, (x, y) in enumerate(pairs):
        alone = name in ("d*2", "-d")
        wanted = None if x is None or (y is None and not alone) else compute(x, y)
        if wanted is not None and not LOW <= wanted <= HIGH:
            assert row in failed
        else:
            assert values[row] == wanted


@given(st.lists(INSTANTS, min_size=1, max_size=6), st.sampled_from(list(UNITS)),
       st.sampled_from(["ms", "us", "ns"]), st.booleans())  # fmt: skip
def test_units_of_times_do_not_wrap(
    times: list[int | None], unit: str, wanted: str, lasts: bool
) -> None:
    kind = pa.duration(unit) if lasts else pa.timestamp(unit)
    names = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
    part: Any = lw.col("a").dt
    made = getattr(part, f"total_{names[wanted]}")() if lasts else part.timestamp(wanted)
    values, failed = results(pa.table({"a": pa.array(times, kind)}), made)
    for row, time in enumerate(times):
        exact = None if time is None else time * UNITS[wanted]
        if exact is not None and not LOW <= exact // UNITS[unit] <= HIGH:
            assert row in failed
        elif row not in failed and exact is not None and exact % UNITS[unit] == 0:
            assert values[row] == exact // UNITS[unit]


def test_dates_lists_and_shifts_do_not_wrap() -> None:
    far, near = dt.date(9999, 1, 1), dt.date(2024, 1, 1)
    dates = pa.table({"a": pa.array([far, near, None])})
    values, failed = results(dates, lw.col("a").dt.timestamp("ns"))
    assert (values, failed) == ({1: 1_704_067_200 * 10**9, 2: None}, {0})
    lists = pa.table({"a": pa.array([[HIGH, 1], [1, None, 2], None, [HIGH, 1, -2]])})
    values, failed = results(lists, lw.col("a").list.sum())
    assert failed == {0}
    assert (values[1], values[3]) == (3, HIGH - 1)
    times = pa.table({"a": pa.array([HIGH, LOW, 0, None], pa.timestamp("ns"))})
    assert results(times, lw.col("a").dt.offset_by("1d"))[1] == {0}
    assert results(times, lw.col("a").dt.offset_by("-1d"))[1] == {1}
    assert results(times, lw.col("a").dt.truncate("1d"))[1] == {1}


SEVERAL: list[tuple[Any, set[int]]] = [
    (lw.col("a", "b") * 2, {1, 2}), (lw.col("a", "b") + lw.col("a"), {1}), (nw.all() + 1, {1}),
    (nw.exclude("c") - 2, {2}), (-(lw.col("a", "b") * 3), {1, 2}), (nw.nth(0, 1) ** 2, {1, 2}),
    ((cs.numeric() * 2).name.suffix("_twice"), {1, 2}),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "beyond"), SEVERAL, ids=str)
def test_each_of_several_columns_is_checked(expression: Any, beyond: set[int]) -> None:
    """What one column alone would be a dead letter for is one for the record."""
    table = pa.table({"a": [1, HIGH, 3, 4], "b": [2, 5, LOW, 6]})
    records = Records.from_arrow(table.to_batches()[0])
    found = evaluated("select", records, Expressions((expression,), {}))
    assert {one.row for one in found.failed} == beyond
    assert {one.reason for one in found.failed} == {"out_of_range"}


def test_a_check_that_fails_where_its_expression_does_not_is_no_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a later narwhals")

    monkeypatch.setattr(integer_arithmetic, "span_of", fail)
    records = Records.from_arrow(pa.table({"a": [1]}).to_batches()[0])
    with pytest.raises(InternalError, match="cannot be checked"):
        evaluated("with_columns", records, Expressions((), {"x": lw.col("a") + 1}))
