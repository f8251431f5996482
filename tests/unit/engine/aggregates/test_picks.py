"""Values picked by another column: last(by=), first(by=), max_by and min_by."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.aggregates import AggregateSpec, _retractable
from lowwater.testing import Scenario

ONE_WINDOW = lw.GlobalWindow()
EACH = lw.Repeatedly(lw.AfterCount(1))
NOON = dt.datetime(2000, 1, 1, 12, tzinfo=dt.UTC)
BUNDLES = pytest.mark.parametrize("bundle", [1, 2, 100])
FOUR: dict[str, AggregateSpec] = {
    "last": lw.last("v", by="by"),
    "first": lw.first("v", by="by"),
    "max_by": lw.max_by("v", "by"),
    "min_by": lw.min_by("v", "by"),
}
Row = tuple[int, Any, Any]  # time, value, by


def picked(
    rows: list[Row], bundle: int = 100, specs: dict[str, AggregateSpec] = FOUR
) -> dict[str, Any]:
    """What one window shows of rows."""
    items = [{"t": t, "k": "k", "v": v, "by": by} for t, v, by in rows]
    stream = lw.from_iterable(items, time="t", key="k", unit="s").window(ONE_WINDOW)
    result = stream.aggregate(**specs).collect(bundle_size=bundle)
    assert not result.errors
    (pane,) = result.panes
    return dict(pane.values)


def all_four(least: Any, most: Any) -> dict[str, Any]:
    return {"last": most, "first": least, "max_by": most, "min_by": least}


# ------------------------------------------------------------------------------- which one wins


@BUNDLES
def test_the_column_decides_and_not_the_time(bundle: int) -> None:
    rows = [(3, "a", 1), (1, "b", 3), (2, "c", 2)]
    assert picked(rows, bundle) == all_four("a", "b")


@BUNDLES
def test_at_equal_ones_the_event_time_decides(bundle: int) -> None:
    rows = [(2, "middle", 7), (3, "latest", 7), (1, "earliest", 7)]
    assert picked(rows, bundle) == all_four("earliest", "latest")


@BUNDLES
def test_and_then_the_order_of_arrival(bundle: int) -> None:
    rows = [(1, "came first", 7), (1, "came between", 7), (1, "came last", 7)]
    assert picked(rows, bundle) == all_four("came first", "came last")


@BUNDLES
def test_null_in_the_column_that_decides_is_ignored(bundle: int) -> None:
    rows = [(1, "a", None), (2, "b", 1), (3, "c", None)]
    assert picked(rows, bundle) == all_four("b", "b")
    assert picked([(1, "a", None)], bundle) == all_four(None, None)


@BUNDLES
def test_a_null_value_wins_only_where_a_record_is_picked(bundle: int) -> None:
    """``first`` and ``last`` ignore null values; ``max_by`` and ``min_by`` pick a record."""
    rows = [(1, None, 0), (2, "a", 1), (3, "b", 2), (4, None, 3)]
    wanted = {"last": "b", "first": "a", "max_by": None, "min_by": None}
    assert picked(rows, bundle) == wanted
    assert picked([*rows, (5, "c", -1), (6, "d", 4)], bundle) == all_four("c", "d")


def test_values_of_one_record_stay_together() -> None:
    rides = [
        {"t": 1, "k": "k", "player": "Ada", "team": "red", "points": 5},
        {"t": 2, "k": "k", "player": None, "team": "blue", "points": 9},
    ]
    stream = lw.from_iterable(rides, time="t", key="k", unit="s").window(ONE_WINDOW)
    best = {name: lw.max_by(name, "points") for name in ("player", "team")}
    (pane,) = stream.aggregate(**best).collect().panes
    assert pane.values == {"player": None, "team": "blue"}


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.none() | st.integers(0, 9), st.none() | st.integers(0, 2)),
        min_size=1,
    ),
    st.integers(1, 5),
)
def test_in_order_of_time_is_what_they_do_without_it(rows: list[Row], bundle: int) -> None:
    """``last("v")`` is ``last("v", by=...)`` with the column of event times, and so is first."""
    by_time = [(t, v, t) for t, v, _ in rows]
    specs = {"last": lw.last("v"), "first": lw.first("v"), **{f"{n} by": FOUR[n] for n in FOUR}}
    found = picked(by_time, bundle, specs)
    assert found["last"] == found["last by"]
    assert found["first"] == found["first by"]


# ---------------------------------------------------------------------------------------- types

TYPES: dict[str, list[Any]] = {
    "ints": [3, -(2**63), 2**63 - 1, 3],
    "floats": [0.5, -math.inf, math.inf, 0.5],
    "ints, then floats": [2, 1, 2.5, 2],
    "zeros": [0.0, -1.0, 1.0, -0.0],
    "bools": [True, False, True, True],
    "text": ["b", "", "ä", "b"],
    "bytes": [b"b", b"", b"\xff", b"b"],
    "instants": [NOON, NOON - dt.timedelta(1), NOON + dt.timedelta(1), NOON],
    "dates": [dt.date(2000, 1, day) for day in (2, 1, 3, 2)],
    "times": [dt.time(hour) for hour in (2, 1, 3, 2)],
    "durations": [dt.timedelta(days) for days in (0, -1, 1, 0)],
    "decimals": [Decimal("1.5"), Decimal("-2.5"), Decimal("1.6"), Decimal("1.50")],
}


@BUNDLES
@pytest.mark.parametrize("name", TYPES)
def test_any_ordered_type_decides(name: str, bundle: int) -> None:
    rows = [(at, f"v{at}", by) for at, by in enumerate(TYPES[name])]
    at_least = min(rows, key=lambda row: row[2])[1]
    at_most = max(reversed(rows), key=lambda row: row[2])[1]
    assert picked(rows, bundle) == all_four(at_least, at_most)


@BUNDLES
@pytest.mark.parametrize("name", TYPES)
def test_columns_of_arrow(name: str, bundle: int) -> None:
    by = TYPES[name]
    values = [None, "b", "c", "d"]
    table = pa.table({"t": range(4), "k": ["k"] * 4, "v": values, "by": pa.array(by)})
    stream = lw.from_arrow(table, time="t", unit="s").key_by("k").window(ONE_WINDOW)
    (pane,) = stream.aggregate(**FOUR).collect(bundle_size=bundle).panes
    places = range(4)
    least, most = min(places, key=lambda at: by[at]), max(places[::-1], key=lambda at: by[at])
    assert pane.values == all_four(values[least], values[most])


@BUNDLES
@pytest.mark.parametrize("name", TYPES)
def test_values_of_any_type(name: str, bundle: int) -> None:
    """Also where only nulls come first, so that the type is not known yet."""
    values = TYPES[name]
    rows = [(0, None, 9), *((at, v, at) for at, v in enumerate(values, 1))]
    wanted = {"last": values[-1], "first": values[0], "max_by": None, "min_by": values[0]}
    assert picked(rows, bundle) == wanted


@BUNDLES
def test_nested_values(bundle: int) -> None:
    rows: list[Row] = [(1, {"a": [1]}, 2), (2, [1, 2], 1), (3, (3,), 3)]
    assert picked(rows, bundle) == all_four([1, 2], (3,))


def test_nan_decides_nothing_as_in_max() -> None:
    rows = [{"t": 1, "k": 0, "v": "a", "by": 1.0}, {"t": 2, "k": 0, "v": "b", "by": math.nan}]
    stream = lw.from_iterable(rows, time="t", key="k", unit="s").window(ONE_WINDOW)
    for spec in (*FOUR.values(), lw.max("by")):
        result = stream.aggregate(x=spec).collect()
        assert [error.reason for error in result.errors] == ["nan"]
        assert result.panes[0].value in ("a", 1.0)


def test_nan_is_a_value_as_in_last() -> None:
    assert math.isnan(picked([(1, math.nan, 2), (2, 1.0, 1)])["max_by"])


def test_what_has_no_order_cannot_decide() -> None:
    table = pa.table({"t": [1], "k": ["k"], "v": [1], "by": [[1, 2]]})
    windowed = lw.from_arrow(table, time="t", unit="s").key_by("k").window(ONE_WINDOW)
    with pytest.raises(lw.InvalidArgument, match=r"'by' is list.*needs values with an order"):
        windowed.aggregate(lw.max_by("v", "by"))


def test_results_have_the_type_of_the_column() -> None:
    columns = {"v": pa.array([NOON], pa.timestamp("ms", "UTC")), "by": pa.array(["a"])}
    table = pa.table({"t": [1], "k": ["k"], **columns})
    windowed = lw.from_arrow(table, time="t", unit="s").key_by("k").window(ONE_WINDOW)
    found = windowed.aggregate(**FOUR).collect().to_arrow()
    assert {name: found.schema.field(name).type for name in FOUR} == dict.fromkeys(
        FOUR, pa.timestamp("ms", "UTC")
    )
    assert found["max_by"].to_pylist() == [NOON]


# ---------------------------------------------------------------------------- what windows show


def test_new_records_alone() -> None:
    """S-A1: in discarding mode each pane starts anew."""
    scenario = Scenario()
    for value, by in (("a", 2), ("b", 1), (None, 0), ("c", None)):
        scenario = scenario.add((value, 5, "k", {"by": by}))
    specs = {"most": lw.max_by("value", "by"), "last": lw.last("value", by="by")}
    run = scenario.run(ONE_WINDOW, trigger=EACH, accumulation="discarding", aggregate=specs)
    assert [tuple(pane.values.values()) for pane in run.panes] == [
        ("a", "a"), ("b", "b"), (None, None), (None, None),
    ]  # fmt: skip


#   00   03   06   09
#   [a........)                 by 2
#        [b........)            by 9
#             [c........)       by 5; joins both
def test_sessions_that_merge() -> None:
    scenario = Scenario().add(("a", 0, "k", {"by": 2})).add(("b", 6, "k", {"by": 9}))
    scenario = scenario.add(("c", 3, "k", {"by": 5})).end()
    run = scenario.run(lw.Sessions(4), aggregate=lw.max_by("value", "by"))
    assert [(int(p.window.start), int(p.window.end), p.value) for p in run.panes] == [(0, 10, "b")]


def test_it_is_kept_and_then_corrected_where_the_input_is_retracted() -> None:
    """S-C4: the best of what stands, after the best has gone."""
    rides = [{"t": at, "k": k, "v": v} for at, k, v in ((1, "a", 5), (2, "b", 9), (3, "b", -7))]
    counts = lw.from_iterable(rides, time="t", key="k", unit="s").window(
        ONE_WINDOW, trigger=EACH, accumulation="retracting"
    )
    sums = counts.aggregate(v=lw.sum("v"))
    best = sums.key_by(all=lw.lit(0)).window(ONE_WINDOW, trigger=EACH, accumulation="retracting")
    panes = best.aggregate(who=lw.max_by("k", "v"), least=lw.first("k", by="v")).run(bundle_size=1)
    stands = [pane.values for pane in panes if pane.kind == "insert"]
    assert stands == [
        {"who": "a", "least": "a"}, {"who": "b", "least": "a"}, {"who": "a", "least": "b"},
    ]  # fmt: skip


@pytest.mark.parametrize("spare", [0, 1024])
def test_a_null_cancels_the_null_that_came(spare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where text has come since; and not the text, nor a null with another ``by``."""
    monkeypatch.setattr(_retractable, "_SPARE", spare)
    element = {name: (name or None, 5, "k", {"by": 1}) for name in ("", "a")}
    scenario = Scenario().add((None, 5, "k", {"by": 0})).add(element[""]).add(element["a"])
    scenario = scenario.add(element[""]).add(element["a"])
    windowing = lw.Windowing(windows=ONE_WINDOW, trigger=EACH, accumulation="accumulating")
    run = scenario._run(
        windowing, {"n": lw.max_by("value", "by")}, "dead_letter", [1, 1, 1, -1, -1]
    )
    assert [pane.values["n"] for pane in run.panes] == [None, None, "a", "a", None]


# ------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("function", [lw.max_by, lw.min_by])
def test_a_column_must_be_named(function: Any) -> None:
    for column, by in (("v", ""), ("v", None), ("", "by"), (3, "by")):
        with pytest.raises(lw.InvalidArgument, match="must be the name of a column"):
            function(column, by)
    with pytest.raises(lw.InvalidArgument, match=r"by='' .*must be the name of a column"):
        lw.last("v", by="")


def test_a_column_that_is_not_there() -> None:
    table = pa.table({"t": [1], "k": ["k"], "v": [1], "score": [1]})
    windowed = lw.from_arrow(table, time="t", unit="s").key_by("k").window(ONE_WINDOW)
    with pytest.raises(lw.InvalidArgument, match=r"no column 'scor'.*'score'"):
        windowed.aggregate(lw.max_by("v", "scor"))
    items = [{"t": 1, "k": "k", "v": 1, "score": 1}]
    unknown = lw.from_iterable(items, time="t", key="k", unit="s").window(ONE_WINDOW)
    with pytest.raises(lw.InvalidArgument, match=r"no column 'scor'.*'score'"):
        unknown.aggregate(lw.last("v", by="scor")).collect()


def test_results_of_discarding_panes_are_not_combined() -> None:
    items = [{"t": 1, "k": "k", "v": 1, "by": 1}]
    stream = lw.from_iterable(items, time="t", key="k", unit="s").window(
        ONE_WINDOW, trigger=EACH, accumulation="discarding"
    )
    with pytest.raises(lw.InvalidArgument, match="cannot be combined"):
        stream.aggregate(lw.max_by("v", "by")).collect().final()


def test_state_of_another_column_is_not_continued(tmp_path: Path) -> None:
    def run(spec: AggregateSpec) -> None:
        stream = lw.read_jsonl(tmp_path / "in.jsonl", time="t")
        windowed = stream.key_by("k").window(ONE_WINDOW)
        windowed.aggregate(x=spec).write_jsonl(tmp_path / "out").run(state=tmp_path / "state")

    (tmp_path / "in.jsonl").write_text('{"t": "2000-01-01T00:00:00Z", "k": 1, "v": 1, "by": 1}\n')

    run(lw.last("v", by="by"))
    with pytest.raises(lw.StateError, match=r"last\('v', by='by'\)"):
        run(lw.last("v"))


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (lw.last("v", by="n"), "last('v', by='n')"),
        (lw.first(by="n"), "first('value', by='n')"),
        (lw.max_by("v", "n"), "max_by('v', by='n')"),
        (lw.min_by("value", "n"), "min_by('value', by='n')"),
    ],
)
def test_what_it_is_written_as(spec: AggregateSpec, text: str) -> None:
    assert repr(spec) == text
    assert eval(f"lw.{text}") == spec
    assert hash(eval(f"lw.{text}")) == hash(spec)
    assert spec != lw.last("v")
