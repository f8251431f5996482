"""Aggregates that order values: top, most_frequent, quantile and median."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.records.stateless import WithColumns
from lowwater.testing import Scenario
from tests.examples import sampled

LARGE = 20_000


def shown(values: list[Any], *specs: Any, bundle: int = 1000, **named: Any) -> dict[str, Any]:
    """What one window shows of records ``{"v": value, "n": place}``."""
    rows = [{"at": 0, "v": value, "n": n} for n, value in enumerate(values)]
    stream = (
        lw.from_iterable(rows, time="at", unit="s").key_by(all=lw.lit(1)).window(lw.GlobalWindow())
    )
    (pane,) = stream.aggregate(*specs, **named).run(bundle_size=bundle, on_error="raise")
    return dict(pane.values)


def shuffled(values: list[Any], seed: int) -> list[Any]:
    return random.Random(seed).sample(values, len(values))


ODD: list[list[Any]] = [
    [2**53 + 1, 2**53, float(2**53), 1, 0.5],
    [Decimal("1.0"), Decimal("1.00"), Decimal("2")],
    [dt.date(2000, 1, 1), dt.date(1999, 12, 31)],
    ["b", "a", "é", "", "\uffff", "𝄞"],
    [b"b", b"", b"a"],
    [(1, "a"), (1, "b"), (0, "z")],
    [True, False, True],
    [0.0, -0.0, math.inf, -math.inf],
]


@pytest.mark.parametrize("values", ODD, ids=repr)
@pytest.mark.parametrize("bundle", sampled([2, 1, 1000], every=3))
def test_values_of_any_kind_whatever_order_they_come_in(values: list[Any], bundle: int) -> None:
    specs: dict[str, Any] = {
        "top": lw.top(2, by="v"),
        "bottom": lw.top(2, by="v", reverse=True),
        "middle": lw.median("v"),
        "ends": lw.quantile("v", [0, 1]),
        "often": lw.most_frequent("v"),
        "distinct": lw.approx_count_distinct("v", precision=16),
    }
    wanted = shown(sorted(values), bundle=1000, **specs)
    for seed in range(4):
        found = shown(shuffled(values, seed), bundle=bundle, **specs)
        assert found == wanted
        if not any(isinstance(value, float) for value in values):  # a 1 becomes 1.0 beside others
            assert repr(found) == repr(wanted)
    assert wanted["ends"] == [min(values), max(values)]
    assert wanted["middle"] == sorted(values)[math.ceil(len(values) / 2) - 1]
    assert [one["v"] for one in wanted["top"]] == sorted(values, reverse=True)[:2]
    assert wanted["distinct"] == len(set(values))
    assert sum(one["count"] for one in wanted["often"]) == len(values)


def test_equal_values_of_several_types_are_counted_together() -> None:
    """As ``count_distinct`` takes them: 1, 1.0 and True are equal; lists are by their content."""
    mixed: list[Any] = [1, "1", b"1", None, [1, 2], [1, 2.0], {"a": 1}, {"a": True}, {1}, 2]
    often: list[Any] = []
    for seed in range(5):
        often = shown(shuffled(mixed, seed), lw.most_frequent("v"), bundle=3)["most_frequent"]
        assert [one["count"] for one in often] == [2, 2, 1, 1, 1, 1, 1]
        assert repr(often) == repr(shown(mixed, lw.most_frequent("v"))["most_frequent"])
    assert shown(mixed, lw.count_distinct("v"))["count_distinct"] == len(often)


def test_nan_is_one_value_after_all_numbers() -> None:
    values = [math.nan, 1.0, math.nan, -math.nan]
    often = shown(values, lw.most_frequent("v"))["most_frequent"]
    assert repr(often) == "[{'value': nan, 'count': 3}, {'value': 1.0, 'count': 1}]"


def test_a_nan_has_no_rank() -> None:
    for spec in (lw.top(1, by="v"), lw.median("v"), lw.approx_quantile("v", 0.5)):
        with pytest.raises(lw.DataError, match="NaN"):
            shown([1.0, math.nan], spec)


@pytest.mark.parametrize("q", [0, 0.07, 0.1, 0.29, 0.5, 0.9, 0.99, 1, 1 / 3, 0.1234567890123456])
def test_the_nearest_rank_is_exact(q: float) -> None:
    """``ceil(0.1 * 30)`` is 4 in floats, as ``0.1 * 30`` is above 3."""
    for count in (1, 3, 30, 100, 101):
        wanted = max(math.ceil(Fraction(repr(q)) * count), 1) - 1
        assert shown(list(range(count)), lw.quantile("v", q))["quantile"] == wanted


def test_nothing_to_show() -> None:
    specs: dict[str, Any] = {
        "top": lw.top(2, by="v", keep="n"),
        "middle": lw.median("v"),
        "two": lw.quantile("v", [0.1, 0.2]),
        "about": lw.approx_quantile("v", 0.5),
        "abouts": lw.approx_quantile("v", [0.5]),
        "often": lw.most_frequent("v"),
        "distinct": lw.approx_count_distinct("v"),
    }
    assert shown([None, None], **specs) == {
        "top": [], "middle": None, "two": None, "about": None, "abouts": None, "often": [],
        "distinct": 0,
    }  # fmt: skip


def test_several_windows_of_which_some_have_no_values() -> None:
    rows = [{"at": n, "k": n % 3, "v": None if n % 3 == 1 else n} for n in range(9)]
    stream = lw.from_iterable(rows, time="at", unit="s", key="k").window(lw.GlobalWindow())
    panes = stream.aggregate(q=lw.quantile("v", [0, 1]), n=lw.top(1, by="v")).collect().panes
    assert {pane.key: (pane.values["q"], pane.values["n"]) for pane in panes} == {
        0: ([0, 6], [{"v": 6}]), 1: (None, []), 2: ([2, 8], [{"v": 8}]),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("size", "count"), [(7, 1_500), (1_000, LARGE), (LARGE, LARGE)], ids=["small", "some", "all"]
)
def test_large_bundles_are_as_small_ones(size: int, count: int) -> None:
    """Beyond every pass over the state: one bundle of 20,000 records, and 20 of 1,000."""
    rng = np.random.default_rng(7)
    numbers = rng.integers(-1000, 1000, count)
    table = pa.table(
        {
            "at": pa.array(np.arange(count), pa.timestamp("s", "UTC")),
            "k": rng.integers(0, 3, count),
            "v": numbers,
            "f": rng.normal(size=count),
            "s": [f"s{n % 97}" for n in numbers],
        }
    )
    stream = lw.from_arrow(table, time="at").key_by("k").window(lw.GlobalWindow())
    pipeline = stream.aggregate(
        top=lw.top(5, by="v", keep=("s", "f"), ties="s"),
        tied=lw.top(2, by="v", keep="s", with_ties=True, reverse=True),
        often=lw.most_frequent("s", n=97),
        q=lw.quantile("f", [0.01, 0.5, 0.99]),
        middle=lw.median("v"),
        about=lw.approx_quantile("f", [0.01, 0.5, 0.99]),
        distinct=lw.approx_count_distinct("f"),
        high=lw.count(where=lw.col("v") > 0),
    )
    rows = table.to_pylist()
    for pane in pipeline.run(bundle_size=size):
        mine = [row for row in rows if row["k"] == pane.key]
        order = sorted(mine, key=lambda row: (-row["v"], row["s"], row["f"]))
        assert pane.values["top"] == [
            {name: row[name] for name in ("v", "s", "f")} for row in order[:5]
        ]
        small = sorted(mine, key=lambda row: (row["v"], row["s"]))
        last = small[1]["v"]
        assert pane.values["tied"] == [
            {"v": row["v"], "s": row["s"]} for row in small if row["v"] <= last
        ]
        counts = sorted(Counter(r["s"] for r in mine).items(), key=lambda c: (-c[1], c[0]))
        assert pane.values["often"] == [{"value": s, "count": n} for s, n in counts]
        floats = sorted(row["f"] for row in mine)
        exact = [floats[math.ceil(Fraction(str(q)) * len(mine)) - 1] for q in (0.01, 0.5, 0.99)]
        assert pane.values["q"] == exact
        assert pane.values["about"] == pytest.approx(exact, rel=0.01 * (1 + 1e-9))
        assert pane.values["middle"] == sorted(r["v"] for r in mine)[math.ceil(len(mine) / 2) - 1]
        assert pane.values["distinct"] == pytest.approx(len(mine), rel=0.08)
        assert pane.values["high"] == sum(row["v"] > 0 for row in mine)


def test_records_of_a_top_have_the_fields_asked_for() -> None:
    values = [5, 3, 5, 4]
    assert shown(values, lw.top(3, by="v"))["top"] == [{"v": 5}, {"v": 5}, {"v": 4}]
    assert shown(values, lw.top(2, by="v", keep=("n", "v", "n")))["top"] == [
        {"v": 5, "n": 0}, {"v": 5, "n": 2},
    ]  # fmt: skip
    assert shown(values, lw.top(1, by="v", ties="n"))["top"] == [{"v": 5}]
    assert shown(values, lw.top(1, by="v", keep="n", with_ties=True))["top"] == [
        {"v": 5, "n": 0}, {"v": 5, "n": 2},
    ]  # fmt: skip
    assert shown(values, lw.top(1, by="v", keep="n", ties="n", with_ties=True))["top"] == [
        {"v": 5, "n": 0},
    ]  # fmt: skip


def test_types_of_the_results_are_known_before_a_run() -> None:
    table = pa.table({"at": pa.array([0], pa.timestamp("s", "UTC")), "v": [1.5], "s": ["a"]})
    stream = lw.from_arrow(table, time="at").key_by("s").window(lw.FixedWindows("1h"))
    pipeline = stream.aggregate(
        lw.top(2, by="v", keep="s"), lw.most_frequent("s"), lw.median("s"),
        lw.approx_quantile("v", [0.5]), lw.approx_count_distinct("v"),
    )  # fmt: skip
    found = pipeline.collect().to_arrow().schema
    none = pipeline.to_stream().filter(lw.col("median") == "x")
    again = none.key_by("median").window(lw.GlobalWindow()).aggregate(lw.count())
    assert again.collect().panes == []
    assert found.field("median").type == pa.string()
    assert found.field("approx_count_distinct").type == pa.int64()


def test_state_stays_near_what_is_listed() -> None:
    """Of 50,000 records a top of 3 holds a few; the tally of 10 values holds ten counts."""
    rng = np.random.default_rng(1)
    table = pa.table(
        {
            "at": pa.array(np.arange(50_000), pa.timestamp("s", "UTC")),
            "v": rng.integers(0, 10, 50_000),
            "f": rng.random(50_000),
        }
    )
    from lowwater.engine.aggregates import _tally, _top

    stream = lw.from_arrow(table, time="at").key_by(all=lw.lit(1)).window(lw.GlobalWindow())
    pipeline = stream.aggregate(lw.top(3, by="f", keep="v"), lw.most_frequent("v"))
    held: list[int] = []
    before = _tally.Tally.result, _top.Top.result

    def seen(self: Any, state: Any, rows: Any) -> Any:
        held.append(len(state["values" if isinstance(self, _tally.Tally) else "value"]))
        return before[isinstance(self, _top.Top)](self, state, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_tally.Tally, "result", seen)
        patch.setattr(_top.Top, "result", seen)
        list(pipeline.run(bundle_size=1000))
    assert held
    assert max(held) <= 2 * 10 + 2 * 1024


def test_a_record_beside_a_broken_one() -> None:
    values: list[Any] = [3, "x", 5, None, 4]
    rows = [{"at": 0, "v": value, "n": n} for n, value in enumerate(values)]
    stream = (
        lw.from_iterable(rows, time="at", unit="s").key_by(all=lw.lit(1)).window(lw.GlobalWindow())
    )
    result = stream.aggregate(lw.top(2, by="v", keep="n")).collect(on_error="dead_letter")
    assert result.panes[0].values["top"] == [{"v": 5, "n": 2}, {"v": 4, "n": 4}]
    assert [error.reason for error in result.errors] == ["wrong_type"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: lw.top(0, by="v"), "n=0 .* int of at least 1"),
        (lambda: lw.top(True, by="v"), "n=True"),
        (lambda: lw.top(1, by=""), "by='' .* name of a column"),
        (lambda: lw.top(1, by="v", keep=[3]), "keep=3"),  # type: ignore[list-item]
        (lambda: lw.top(1, column="v"), "Did you mean 'by'"),  # type: ignore[call-arg]
        (lambda: lw.most_frequent("v", 0), "n=0"),
        (lambda: lw.quantile("v", 99), "q=99 .* from 0 to 1"),
        (lambda: lw.quantile("v", []), r"q=\[\]"),
        (lambda: lw.quantile("v", [0.5, None]), "q="),  # type: ignore[list-item]
        (lambda: lw.quantile("v", "p99"), "q='p99'"),  # type: ignore[arg-type]
        (lambda: lw.quantile("v", math.nan), "q=nan"),
        (lambda: lw.count(where="v > 3"), "where='v > 3' .* not an expression"),  # type: ignore[arg-type]
        (lambda: lw.count(where=lambda row: True), "not an expression"),  # type: ignore[arg-type]
        (lambda: lw.count(where=lw.col("v") > lw.col("v").mean()), "other records"),
        (lambda: lw.count(where=lw.col("v", "n") > 1), "several columns"),
        (lambda: lw.when(lw.col("v", "n") > 1, 1), "several columns"),
        (lambda: lw.when(lw.col("v") > 1, then=1), "Did you mean 'value'"),  # type: ignore[call-arg]
        (lambda: lw.approx_quantile("v", 0.5, between="12"), "between="),  # type: ignore[arg-type]
    ],
)
def test_mistakes(make: Any, words: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=words):
        make()


def test_reprs_can_be_read_back() -> None:
    for spec in (
        lw.top(3, by="price", keep=("a", "b"), ties="c", with_ties=True, reverse=True),
        lw.most_frequent("w", n=3), lw.most_frequent(n=4), lw.quantile("ms", 0.99), lw.median(),
        lw.quantile("ms", [0.1, 0.5]), lw.approx_quantile("ms", 0.5, error=0.1, between=(1.0, 9.0)),
        lw.approx_count_distinct("u", precision=12),
    ):  # fmt: skip
        assert eval(repr(spec), vars(lw) | {n: getattr(lw, n) for n in dir(lw)}) == spec


def test_conditions_differ_by_the_types_of_their_literals() -> None:
    assert lw.count(where=lw.col("v") == 1) == lw.count(where=lw.col("v") == 1)
    assert lw.count(where=lw.col("v") == 1) != lw.count(where=lw.col("v") == "1")
    assert lw.count(where=lw.col("v") == 1) != lw.count()
    assert hash(lw.quantile("v", [0.1, 0.2])) == hash(lw.quantile("v", (0.1, 0.2)))
    assert lw.approx_quantile("v", 0.5, between=[1.0, 2.0]).options[1] == ("between", (1.0, 2.0))  # type: ignore[arg-type]
    assert hash(lw.count(where=lw.col("v") == 1)) == hash(lw.count(where=lw.col("v") == 1))


def test_conditions_with_long_arrays_are_told_apart() -> None:
    """The repr of an array of 5,000 values leaves most of them out."""
    every = np.arange(5_000)
    some = every.copy()
    some[2_500] = 0
    specs: dict[str, Any] = {
        "a": lw.count(where=lw.col("v").is_in(every)),
        "b": lw.count(where=lw.col("v").is_in(some)),
    }
    assert specs["a"] != specs["b"]
    assert shown([2_500, 7], **specs) == {"a": 2, "b": 1}


def test_a_condition_that_is_null_is_false_and_one_that_fails_a_dead_letter() -> None:
    rows: list[dict[str, Any]] = [
        {"at": 0, "v": 2**62}, {"at": 0, "v": 1}, {"at": 0, "v": None}, {"at": 0},
    ]  # fmt: skip
    stream = (
        lw.from_iterable(rows, time="at", unit="s").key_by(all=lw.lit(1)).window(lw.GlobalWindow())
    )
    pipeline = stream.aggregate(n=lw.count(where=lw.col("v") * 4 > 0), rows=lw.count())
    result = pipeline.collect(on_error="dead_letter")
    assert result.panes[0].values == {"n": 1, "rows": 3}
    (error,) = result.errors
    assert error.reason == "out_of_range"


def test_a_condition_that_is_not_bool() -> None:
    table = pa.table({"at": pa.array([0], pa.timestamp("s", "UTC")), "v": [1]})
    known = lw.from_arrow(table, time="at").key_by("v").window(lw.GlobalWindow())
    with pytest.raises(lw.InvalidArgument, match=r"condition of n=.* has type int64, not bool"):
        known.aggregate(n=lw.count(where=lw.col("v")))
    with pytest.raises(lw.InvalidArgument, match="no column 'w'"):
        known.aggregate(n=lw.count(where=lw.col("w") > 1))
    rows = lw.from_iterable([{"at": 0, "v": 1}], time="at", unit="s").key_by("v")
    pipeline = rows.window(lw.GlobalWindow()).aggregate(n=lw.count(where=lw.col("v")))
    with pytest.raises(lw.DataError, match=r"where=col\(v\)=1 .* Compare something"):
        pipeline.collect()


def test_one_expression_is_evaluated_once() -> None:
    high = lw.col("v") > 1
    rows = lw.from_iterable([{"at": 0, "v": 1}, {"at": 0, "v": 2}], time="at", unit="s")
    pipeline = rows.key_by(all=lw.lit(1)).window(lw.GlobalWindow()).aggregate(
        a=lw.count(where=high), b=lw.sum("v", where=lw.col("v") > 1),
        c=lw.max("v", where=lw.col("v") < 2),
    )  # fmt: skip
    (flow,) = pipeline._stage.inputs
    steps = [step for step in flow.steps if isinstance(step, WithColumns) and step.is_hidden]
    conditions = [step.expressions.named for step in steps]
    assert [len(named) for named in conditions] == [2]
    assert "where" not in repr(pipeline).split("window(")[0]
    assert pipeline.collect().panes[0].values == {"a": 1, "b": 2, "c": 1}


def test_conditions_in_a_scenario() -> None:
    scenario = Scenario(start="12:00").add((1, "12:00:10", "A"), (2, "12:00:20", "A")).end()
    run = scenario.run(lw.FixedWindows("1m"), aggregate=lw.sum(where=lw.col("value") > 1))
    assert run.panes[0].value == 2


def test_check_names_what_takes_bounded_state() -> None:
    rows = lw.from_iterable([{"at": 0, "v": 1}], time="at", unit="s").key_by("v")
    pipeline = rows.window(lw.FixedWindows("1m")).aggregate(
        lw.quantile("v", 0.9), lw.top(1, by="v", with_ties=True), lw.count()
    )
    notes = [str(finding) for finding in lw.check(pipeline) if finding.severity == "note"]
    assert any("approx_quantile" in note for note in notes)
    assert any("with_ties" in note for note in notes)
    assert not [finding for finding in lw.check(pipeline) if finding.severity == "warning"]


def test_groups_of_a_table() -> None:
    rows = [
        {"at": 0, "id": 1, "g": "a", "v": 1}, {"at": 1, "id": 2, "g": "a", "v": 5},
        {"at": 2, "id": 2, "g": "a", "v": 0}, {"at": 3, "id": 3, "g": "a", "v": 3},
    ]  # fmt: skip
    table = lw.from_iterable(rows, time="at", unit="s").table(key="id")
    groups = table.group_by("g").aggregate(
        top=lw.top(2, by="v", keep="id"), middle=lw.median("v"),
        often=lw.most_frequent("v", n=1), about=lw.approx_quantile("v", 1),
        distinct=lw.approx_count_distinct("v"), high=lw.count(where=lw.col("v") > 0),
    )  # fmt: skip
    (row,) = groups.rows()
    assert row["top"] == [{"v": 3, "id": 3}, {"v": 1, "id": 1}]
    assert (row["middle"], row["distinct"], row["high"]) == (1, 3, 2)
    assert row["often"] == [{"value": 0, "count": 1}]
    assert row["about"] == pytest.approx(3, rel=0.01)
