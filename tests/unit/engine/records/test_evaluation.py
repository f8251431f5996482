"""Expressions that fail for some records, or read values of several types: each is judged alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import narwhals as nw
import narwhals.selectors as ncs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.evaluation import CONDITION, Evaluated, evaluated
from lowwater.engine.records.expressions import Expressions
from tests.examples import examples

V = lw.col("v")
OSLO = ZoneInfo("Europe/Oslo")
FIVE = dt.datetime(2000, 1, 1, 5, tzinfo=dt.UTC)

EXPRESSIONS: dict[str, Any] = {
    "compare": V >= 0,
    "add": V + 1,
    "double": V * 2,
    "divide": V / 1e9,
    "whole": V // 2,
    "power": V**-1,
    "power of two": 2**V,
    "integer": V.cast(nw.Int64),
    "float": V.cast(nw.Float64),
    "text": V.cast(nw.String),
    "upper": V.str.to_uppercase(),
    "format": V.str.to_datetime("%Y-%m-%d"),
    "no format": V.str.to_datetime(),
    "hour": V.dt.hour(),
    "field": V.struct.field("a"),
    "more than a field": V.struct.field("a") + 1,
    "text of a field": V.struct.field("a").str.len_chars(),
    "field of a field": V.struct.field("a").struct.field("c").str.to_uppercase(),
    "two fields": V.struct.field("b") + V.struct.field("a").fill_null(0),
    "first": V.list.get(0),
    "filled": V.fill_null(0),
    "null": V.is_null(),
    "mapped": V.replace_strict([1, 2], [10, 20]),
    "renamed": V.alias("z"),
    "both": nw.when(V > 1).then(V).otherwise(nw.col("w")),
    "with w": V + nw.col("w"),
    "numbers": ncs.numeric() * 2,
}

VALUES: list[Any] = [
    None, 0, 1, 2, -3, 7, 2**53, 2**53 + 1, 2**60, -(2**60), 2**63, 2**64 - 1, 2**70, True, False,
    0.0, 1.5, -2.0, float("inf"), float("nan"), 1e300, "n/a", "7", "-7.5", "2000-01-31", "", "é",
    "2000-01-31T10:00", "01-02-2000", "\ud800", b"raw", Decimal("1.5"), Decimal("2.25"),
    Decimal("NaN"), FIVE, FIVE.replace(tzinfo=None),
    dt.datetime(2000, 7, 1, 5, tzinfo=OSLO), dt.date(2000, 1, 1), dt.timedelta(seconds=3),
    dt.time(3, 4), {"a": 1}, {"a": "x"}, {"b": 1}, {}, {"a": None},
    {"a": {"c": "x"}}, {"a": {"c": None}}, {"a": 2, "b": 3}, {"a": None, "b": "y"},
    {"a": 1.5}, {"a": 2**53 + 1}, {"a": dt.date(2000, 1, 1)}, {"a": FIVE}, {"a": Decimal("1.5")},
    {"a": Decimal("2.25")}, {"a": {"c": 1}}, {"a": {"c": 2.5, "d": 1}}, {"a": [1]}, {"a": [2.5]},
    [1, 2], [], [None], ["x"], (3, 4), object, [1.5], [2**53 + 1], [1, 2.5], [2**63], [FIVE],
    [FIVE.replace(tzinfo=None)], [{"a": 1}], [{"b": 2.5}, None],
    np.int64(5), np.float64(0.5), np.datetime64("2000-01-01", "s"),
    np.datetime64("2000-01-01", "ns"),
]  # fmt: skip


def records(rows: list[tuple[Any, Any]]) -> Records:
    return Records(
        {
            "v": Column.of_objects([v for v, _ in rows]),
            "w": Column.of_objects([w for _, w in rows]),
        },
        len(rows),
    )


def by_row(step: str, batch: Records, expression: Any) -> list[Any]:
    """Return for each row the values as text, or why the expression fails."""
    named = {CONDITION: expression} if step == "filter" else {}
    done = evaluated(step, batch, Expressions(() if named else (expression,), named))
    return told(done, batch.length)


def told(done: Evaluated, length: int) -> list[Any]:
    found: list[Any] = [None] * length
    left = np.arange(length) if done.rows is None else done.rows
    values = {name: column.to_list(exact=True) for name, column in done.columns.items()}
    for at, row in enumerate(left.tolist()):
        # A name that narwhals made for other types only has no value here.
        found[row] = {n: repr(some[at]) for n, some in values.items() if some[at] is not None}
    for row, reason, detail in done.failed:
        assert found[row] is None
        assert reason in ("bad_expression", "out_of_range")
        found[row] = detail.partition(" failed: ")[0]
    assert None not in found
    return found


@pytest.mark.parametrize(
    "every", [3, pytest.param(1, marks=pytest.mark.long(reason="the same with more values"))]
)
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_value_is_the_same_beside_any_others(name: str, every: int) -> None:
    first = list(EXPRESSIONS).index(name) % every
    rows = [(value, n % 5 % 3) for n, value in enumerate(VALUES)][first::every]
    alone = [by_row("select", records([row]), EXPRESSIONS[name])[0] for row in rows]
    assert by_row("select", records(rows), EXPRESSIONS[name]) == alone
    assert by_row("select", records(rows[::-1]), EXPRESSIONS[name]) == alone[::-1]


@given(
    rows=st.lists(st.tuples(st.sampled_from(VALUES), st.sampled_from([None, 1, 2.5, "x"]))),
    name=st.sampled_from(sorted(EXPRESSIONS)),
    step=st.sampled_from(["select", "with_columns", "filter"]),
    more=st.integers(1, 30),
)
@examples(2)
def test_any_rows_in_one_batch_are_as_in_batches_of_one(
    rows: list[tuple[Any, Any]], name: str, step: str, more: int
) -> None:
    if not rows or (step == "filter" and name == "numbers"):
        return
    alone = [by_row(step, records([row]), EXPRESSIONS[name])[0] for row in rows]
    assert by_row(step, records(rows * more), EXPRESSIONS[name]) == alone * more


@pytest.mark.parametrize(("size", "each"), [(1, 50), (7, 1_000), (3_000, 1_000)])
def test_a_field_that_a_value_lacks_is_null_in_any_bundle(size: int, each: int) -> None:
    count = 3 * each
    rows = [{"at": n, "v": {"a": n} | ({"o": n} if n % each == 0 else {})} for n in range(count)]
    stream = lw.from_iterable(rows, time="at", unit="s")
    result = stream.with_columns(o=V.struct.field("o")).collect(bundle_size=size)
    assert [r["o"] for r in result.values() if r["o"] is not None] == [0, each, 2 * each]
    assert len(result.values()) == count
    assert not result.errors


def test_a_field_that_the_first_values_all_lack_is_a_mistake() -> None:
    stream = lw.from_iterable([{"at": 1, "v": {"price": 2}}, {"at": 2, "v": None}], time="at")
    wrong = r"no field 'prise' in the values of 'v' \(at with_columns\).*price"
    with pytest.raises(lw.InvalidArgument, match=wrong):
        stream.with_columns(x=V.struct.field("prise")).collect(on_error="dead_letter")


LARGE: dict[str, tuple[Callable[[int], Any], Callable[[int], Any], Any]] = {
    "another type": (lambda n: n, lambda n: f"bad{n}", V >= 0),
    "one text": (str, lambda _: "n/a", V.cast(nw.Int64)),
    "texts": (str, lambda n: f"bad{n}", V.cast(nw.Int64)),
    "texts like numbers": (str, lambda n: f"{n}.5", V.cast(nw.Int64)),
    "too long": (str, lambda n: f"9{10**18 + n}", V.cast(nw.Int64)),
    "no dates": (lambda n: "2000-01-31", lambda n: f"2000-13-{n}", V.str.to_datetime("%Y-%m-%d")),
    "no floats": (lambda n: n, lambda n: 2**53 + 1 + n, V.clip(0.5, 1e30)),
    "negative": (lambda n: n % 60, lambda n: -1 - n, 2**V),
    "unknown": (lambda n: n % 2, lambda n: n, V.replace_strict([0, 1], ["no", "yes"])),
    "nothing": (lambda n: [n], lambda n: [], V.list.get(0)),
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize(("every", "typed"), [(2, True), (2, False), (4_099, False)])
def test_a_few_and_half_of_twenty_thousand_fail(name: str, typed: bool, every: int) -> None:
    good, bad, expression = LARGE[name]
    size = 20_000
    values = [bad(n + 5) if n % every == every - 1 else good(n) for n in range(size)]
    column = Column.of_objects(values)
    if typed and name != "another type":
        column = Column.from_arrow(pa.array(values))
    batch = Records({"v": column}, size)
    done = evaluated("with_columns", batch, Expressions((), {"x": expression}))
    fails = {n for n in range(size) if n % every == every - 1}
    assert {row for row, _, _ in done.failed} == fails
    assert [row for row, _, _ in done.failed] == sorted(fails)
    # The rest has the values that it has by itself.
    left = np.array([n for n in range(size) if n not in fails])
    again = evaluated("with_columns", batch.take(left), Expressions((), {"x": expression}))
    assert again.rows is None
    assert done.columns["x"].to_list() == again.columns["x"].to_list()


@pytest.mark.parametrize("typed", [False, True])
def test_a_dead_letter_names_its_own_value(typed: bool) -> None:
    values = [f"bad{n}" if n % 2 else str(n) for n in range(2_000)]
    column = Column.from_arrow(pa.array(values)) if typed else Column.of_objects(values)
    done = evaluated(
        "select", Records({"v": column}, 2_000), Expressions((), {"x": V.cast(nw.Int64) + 1})
    )
    assert len(done.failed) == 1_000
    for row, _, detail in done.failed:
        assert f"'bad{row}'" in detail
        assert detail.startswith("col(v).cast(dtype=Int64).__add__(1) failed: ")


def test_results_of_several_types_are_not_converted() -> None:
    values = [1.5, 2**53 + 1, "a", None, Decimal("0.10"), True]
    done = evaluated("select", records([(v, 0) for v in values]), Expressions((), {"x": V}))
    assert done.columns["x"].to_list(exact=True) == values
    done = evaluated("select", records([(1.5, 0), (2**53 + 1, 0)]), Expressions((), {"x": V * 1}))
    assert [repr(v) for v in done.columns["x"].to_list()] == ["1.5", str(2**53 + 1)]


def test_the_first_expression_that_fails_is_named_and_a_row_is_rejected_once() -> None:
    number, month = V.str.head(4).cast(nw.Int64), V.str.to_datetime("%Y-%m")
    both = Expressions((), {"n": number, "m": month, "c": lw.col("w")})
    done = evaluated(
        "with_columns", records([("1", 1), ("2000-01", 2), ("x", 3), ("2001", 4)]), both
    )
    assert [(row, detail.partition(" failed")[0]) for row, _, detail in done.failed] == [
        (0, "col(v).str.to_datetime(format=%Y-%m)"),
        (2, "col(v).str.slice(offset=0, length=4).cast(dtype=Int64)"),
        (3, "col(v).str.to_datetime(format=%Y-%m)"),
    ]
    assert done.columns["n"].to_list() == [2000]
    assert done.columns["c"].to_list() == [2]


def test_columns_that_are_only_copied_never_fail_and_keep_their_order() -> None:
    odd = object()
    batch = records([(odd, 2**70), (None, "\ud800")])
    for chosen in (Expressions(("w", V)), Expressions(("w",), {"v": V})):
        done = evaluated("select", batch, chosen)
        assert list(done.columns) == ["w", "v"]
        assert done.rows is None
        assert done.columns["v"].to_list() == [odd, None]


@pytest.mark.parametrize("given", [Expressions(("v", "v")), Expressions(("v",), {"v": V + 1})])
@pytest.mark.parametrize("values", [[1, 2], [1, "x"]])
def test_two_results_of_one_name_are_refused(given: Expressions, values: list[Any]) -> None:
    with pytest.raises(lw.DataError, match="name"):
        evaluated("select", records([(v, 0) for v in values]), given)


def test_a_column_that_no_record_has_is_null_and_reported() -> None:
    done = evaluated("with_columns", records([(1, 2)]), Expressions((), {"x": nw.col("u") + 1}))
    assert done.columns["x"].to_list() == [None]
    (missing,) = done.missing.values()
    assert "'u'" in missing.what


def test_memory_errors_and_interrupts_are_not_judged() -> None:
    for error in (MemoryError, KeyboardInterrupt):

        class Failing(nw.Expr):
            def _to_compliant_expr(self, ns: Any, error: Any = error) -> Any:
                raise error

        failing = Failing(*nw.col("v")._nodes, *(nw.col("v") + 1)._nodes[1:])
        with pytest.raises(error):
            evaluated("select", records([(1, 2), ("a", 3)]), Expressions((), {"x": failing}))
