"""Every aggregate against plain Python, through scenarios and through Arrow."""

from __future__ import annotations

import builtins
import datetime as dt
import math
import statistics
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.aggregates import AggregateSpec
from lowwater.testing import Scenario

MAX = 2**63 - 1
NOON = dt.datetime(2000, 1, 1, 12, tzinfo=dt.UTC)
ONE_WINDOW = lw.GlobalWindow()
EACH = lw.Repeatedly(lw.AfterCount(1))
Values = list[Any]


Aggregates = AggregateSpec | dict[str, AggregateSpec]
"""One, whose value is shown, or several, whose values are shown by their names."""


def by_scenario(values: Values, aggregate: Aggregates) -> Any:
    """What one window shows of values that come one by one."""
    scenario = Scenario()
    for at, value in enumerate(values):
        scenario = scenario.add((value, at, "k"))
    run = scenario.end().run(ONE_WINDOW, trigger=lw.AfterWatermark(), aggregate=aggregate)
    assert not run.errors
    (pane,) = run.panes
    return pane.value


def named(aggregate: Aggregates) -> dict[str, AggregateSpec]:
    return aggregate if isinstance(aggregate, dict) else {"x": aggregate}


def by_arrow(values: Values, aggregate: Aggregates, bundle: int = 3) -> Any:
    table = pa.table({"t": range(len(values)), "k": ["k"] * len(values), "value": pa.array(values)})
    stream = lw.from_arrow(table, time="t").key_by("k").window(ONE_WINDOW)
    result = stream.aggregate(**named(aggregate)).collect(bundle_size=bundle)
    assert not result.errors
    (pane,) = result.panes
    return pane.value


def by_iterable(values: Values, aggregate: Aggregates, bundle: int = 1) -> Any:
    items = [{"t": at, "k": "k", "value": value} for at, value in enumerate(values)]
    stream = lw.from_iterable(items, time="t", key="k").window(ONE_WINDOW)
    result = stream.aggregate(**named(aggregate)).collect(bundle_size=bundle)
    assert not result.errors
    (pane,) = result.panes
    return pane.value


WAYS = pytest.mark.parametrize("way", [by_scenario, by_arrow, by_iterable])
Way = Callable[[Values, Aggregates], Any]


def present(values: Values) -> Values:
    return [value for value in values if value is not None]


def over_some(function: Callable[[Values], Any], least: int = 1) -> Callable[[Values], Any]:
    return lambda values: function(present(values)) if len(present(values)) >= least else None


PLAIN: dict[str, tuple[Callable[[], AggregateSpec], Callable[[Values], Any]]] = {
    "count_all": (lw.count, len),
    "count": (lambda: lw.count("value"), lambda v: len(present(v))),
    "sum": (lw.sum, lambda v: builtins.sum(present(v))),
    "mean": (lw.mean, over_some(statistics.fmean)),
    "min": (lw.min, over_some(builtins.min)),
    "max": (lw.max, over_some(builtins.max)),
    "var": (lw.var, over_some(statistics.variance, 2)),
    "std": (lw.std, over_some(statistics.stdev, 2)),
    "pvar": (lambda: lw.var(ddof=0), over_some(statistics.pvariance)),
    "pstd": (lambda: lw.std(ddof=0), over_some(statistics.pstdev)),
    "first": (lw.first, over_some(lambda v: v[0])),
    "last": (lw.last, over_some(lambda v: v[-1])),
    "any": (lw.any, lambda v: builtins.any(present(v))),
    "all": (lw.all, lambda v: builtins.all(present(v))),
    "collect": (lw.collect, present),
    "collect_set": (lw.collect_set, lambda v: list(dict.fromkeys(present(v)))),
    "count_distinct": (lw.count_distinct, lambda v: len(set(present(v)))),
}
ANYTHING = ["count_all", "count", "first", "last", "collect", "collect_set", "count_distinct"]
ORDERED = [*ANYTHING, "min", "max"]
NUMBERS = [*ORDERED, "sum", "mean", "var", "std", "pvar", "pstd"]
INPUTS: dict[str, tuple[Values, list[str]]] = {
    "ints": ([3, -1, 4, 1, -5, 9, 2, 4], NUMBERS),
    "large ints": ([2**62, -(2**62), 2**62, 7, MAX - 2**62, -(2**63)], ORDERED),
    "floats": ([3.5, -1.25, 4.0, 0.0, 1e6, 4.0], NUMBERS),
    "ints and floats": ([3, -1.5, 4, 4.0, 2], NUMBERS),
    "bools": ([True, False, True], ["any", "all", "min", "max", *ANYTHING]),
    "all true": ([True, True], ["any", "all"]),
    "none true": ([False, False], ["any", "all"]),
    "strings": (["b", "", "ä", "b", "a"], ORDERED),
    "bytes": ([b"b", b"", b"\xff", b"b"], ORDERED),
    "dates": ([dt.date(2000, 1, 2), dt.date(1900, 1, 1), dt.date(2000, 1, 2)], ORDERED),
    "instants": ([NOON, NOON - dt.timedelta(microseconds=1), NOON], ORDERED),
    "durations": ([dt.timedelta(1), dt.timedelta(-1), dt.timedelta(1)], ORDERED),
    "decimals": ([Decimal("1.5"), Decimal("-2.5"), Decimal("1.5")], ORDERED),
    "ints with nulls": ([None, 3, None, -1, 3, None], NUMBERS),
    "floats with nulls": ([None, 3.5, None, -1.0, 3.5], NUMBERS),
    "bools with nulls": ([None, False, None], ["any", "all", "min", "max", *ANYTHING]),
    "strings with nulls": (["b", None, "a", None, "b"], ORDERED),
    "instants with nulls": ([None, NOON, None], ORDERED),
    "one int": ([7], NUMBERS),
}


def same(shown: Any, wanted: Any) -> bool:
    if isinstance(wanted, float) or isinstance(shown, float):
        return bool(shown == pytest.approx(wanted, rel=1e-12, abs=1e-12))
    return bool(shown == wanted)


@WAYS
@pytest.mark.parametrize("values", INPUTS)
def test_against_plain_python(way: Way, values: str) -> None:
    given_, names = INPUTS[values]
    every = way(given_, {name: PLAIN[name][0]() for name in names})
    for name in names:
        shown, wanted = every[name], PLAIN[name][1](given_)
        assert same(shown, wanted), name
        if name in ("first", "last", "min", "max") and "and" not in values:
            assert type(shown) is type(wanted), name


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_bools_are_numbers_where_numbers_are_wanted(name: str) -> None:
    spec, plain = PLAIN[name]
    assert by_arrow([True, False, True], spec()) == plain([True, False, True])


@given(st.lists(st.one_of(st.none(), st.integers(-(2**40), 2**40)), min_size=1, max_size=30))
def test_any_ints_in_any_bundles(values: Values) -> None:
    specs = {name: PLAIN[name][0]() for name in NUMBERS}
    table = pa.table(
        {"t": range(len(values)), "k": [0] * len(values), "value": pa.array(values, pa.int64())}
    )
    stream = lw.from_arrow(table, time="t").key_by("k").window(ONE_WINDOW).aggregate(**specs)
    for size in (1, 7, 100):
        (pane,) = stream.run(bundle_size=size)
        for name in NUMBERS:
            wanted = PLAIN[name][1](values)
            if name in ("mean", "var", "std", "pvar", "pstd") and wanted is not None:
                wanted = pytest.approx(float(wanted), rel=1e-9, abs=1e-6)
            assert pane.values[name] == wanted, name


def test_against_pandas_over_keys_and_windows() -> None:
    pd = pytest.importorskip("pandas")
    random = np.random.default_rng(7)
    count = 5_000
    frame = pd.DataFrame(
        {
            "t": np.sort(random.integers(0, 50_000, count)),
            "k": random.choice(list("abcde"), count),
            "v": random.normal(1e3, 5, count),
            "n": random.integers(-(10**6), 10**6, count),
        }
    )
    frame.loc[frame.index % 7 == 0, "v"] = None
    specs: dict[str, AggregateSpec] = {}
    for column in ("v", "n"):
        for name in ("count", "sum", "mean", "min", "max", "var", "std", "first", "last"):
            specs[f"{column}_{name}"] = getattr(lw, name)(column)
        specs[f"{column}_nunique"] = lw.count_distinct(column)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    stream = lw.from_arrow(table, time="t").key_by("k").window(lw.FixedWindows(1_000))
    panes = list(stream.aggregate(**specs).run(bundle_size=333))
    groups = frame.groupby(["k", frame["t"] // 1_000 * 1_000])
    assert len(panes) == groups.ngroups
    for pane in panes:
        group = groups.get_group((pane.key, int(pane.window.start)))
        for name, shown in pane.values.items():
            column, function = name.split("_")
            series = group[column].dropna()
            if function in ("first", "last"):
                wanted = series.iloc[0 if function == "first" else -1] if len(series) else None
            else:
                wanted = getattr(series, function)()
            if isinstance(wanted, float) and math.isnan(wanted):
                wanted = None
            assert same(shown, wanted if wanted is None else wanted.item()
                        if hasattr(wanted, "item") else wanted), name  # fmt: skip


# -------------------------------------------------------------------------------- empty panes

IDENTITIES: dict[str, Any] = {
    "count_all": 0, "count": 0, "sum": 0, "mean": None, "min": None, "max": None, "var": None,
    "std": None, "pvar": None, "pstd": None, "first": None, "last": None, "collect": [],
    "collect_set": [], "count_distinct": 0,
}  # fmt: skip


def test_an_empty_pane_shows_identities() -> None:
    """S-P5, S-P3: an on-time pane with nothing new, in discarding mode."""
    specs = {name: PLAIN[name][0]() for name in IDENTITIES}
    scenario = Scenario().add((5, 1, "k")).watermark(100).end()
    run = scenario.run(
        lw.FixedWindows(10),
        trigger=lw.AfterWatermark(early=lw.AfterCount(1)),
        accumulation="discarding",
        aggregate=specs,
    )
    assert [pane.timing for pane in run.panes] == ["EARLY", "ON_TIME"]
    assert run.panes[1].values == IDENTITIES


def test_an_empty_pane_of_bools() -> None:
    run = (
        Scenario()
        .add((True, 1, "k"))
        .watermark(100)
        .run(
            lw.FixedWindows(10),
            trigger=lw.AfterWatermark(early=lw.AfterCount(1)),
            accumulation="discarding",
            aggregate={"any": lw.any(), "all": lw.all()},
        )
    )
    assert run.panes[1].values == {"any": False, "all": True}


@pytest.mark.parametrize("name", IDENTITIES)
def test_nulls_alone_are_nothing(name: str) -> None:
    """S-P5: nothing but nulls is like nothing, though ``count()`` counts elements."""
    wanted = 2 if name == "count_all" else IDENTITIES[name]
    for way in (by_scenario, by_arrow, by_iterable):
        assert way([None, None], PLAIN[name][0]()) == wanted


def test_an_empty_pane_of_a_combiner_is_what_it_makes_of_nothing() -> None:
    run = (
        Scenario()
        .add((5, 1, "k"))
        .watermark(100)
        .run(
            lw.FixedWindows(10),
            trigger=lw.AfterWatermark(early=lw.AfterCount(1)),
            accumulation="discarding",
            aggregate=lw.combine(Joined()),
        )
    )
    assert [pane.value for pane in run.panes] == ["5", ""]


# ------------------------------------------------------------------------------ sums are exact


@WAYS
@pytest.mark.parametrize(
    "values",
    [
        [MAX, 1, -1],
        [MAX, -MAX, MAX, -MAX, MAX],
        [-(2**63), MAX, MAX, -MAX],
        [2**62, 2**62 - 1],
        [2**53 + 1, 1, 2**53 + 1],
    ],
    ids=str,
)
def test_sums_that_fit_are_exact(way: Way, values: Values) -> None:
    """S-B1. Where one bundle passes the limit and another comes back, that is an overflow."""
    steps = [builtins.sum(values[: at + 1]) for at in range(len(values))]
    if builtins.all(-(2**63) <= step <= MAX for step in steps):
        assert way(values, lw.sum()) == builtins.sum(values)
    else:
        assert by_iterable(values, lw.sum(), bundle=len(values)) == builtins.sum(values)


@WAYS
@pytest.mark.parametrize("values", [[MAX, 1], [-(2**63), -1], [2**62, 2**62], [-(2**63)] * 2])
def test_sums_that_do_not_fit_are_errors(way: Way, values: Values) -> None:
    """S-B1: never a wrap."""
    with pytest.raises(lw.DataError, match="does not fit 64 bits"):
        way(values, lw.sum())


def test_sums_of_many_that_do_not_fit() -> None:
    for bundle in (1, 100):
        with pytest.raises(lw.DataError, match=str(2**63)):
            by_arrow([2**57] * 64, lw.sum(), bundle)
    assert by_arrow([2**57] * 63, lw.sum(), 100) == 63 * 2**57


def test_one_row_near_the_limit_does_not_stop_others() -> None:
    scenario = Scenario()
    for at in range(6):
        scenario = scenario.add((MAX - at, at, f"k{at}"), (-5, at, "other"))
    run = scenario.end().run(ONE_WINDOW, trigger=lw.AfterWatermark(), aggregate=lw.sum())
    assert [p.value for p in run.panes] == [MAX, -30, *(MAX - at for at in range(1, 6))]


def test_sessions_that_merge_beyond_the_limit() -> None:
    """S-B1: the elements fit, each session fits, but their merged session does not."""
    scenario = Scenario().add((MAX, 0, "k")).add((MAX, 15, "k"))
    apart = scenario.end().run(lw.Sessions(10), trigger=lw.AfterWatermark(), aggregate=lw.sum())
    assert [pane.value for pane in apart.panes] == [MAX, MAX]
    with pytest.raises(lw.DataError, match=str(2 * MAX)):
        scenario.add((0, 8, "k")).end().run(
            lw.Sessions(10), trigger=lw.AfterWatermark(), aggregate=lw.sum()
        )
    fits = Scenario().add((MAX, 0, "k")).add((-MAX, 15, "k")).add((3, 8, "k")).end()
    run = fits.run(lw.Sessions(10), trigger=lw.AfterWatermark(), aggregate=lw.sum())
    assert [pane.value for pane in run.panes] == [3]


def test_ints_beyond_64_bits_are_dead_letters_not_wraps() -> None:
    items = [{"t": 0, "k": 0, "v": 1}, {"t": 1, "k": 0, "v": 2**63}, {"t": 2, "k": 0, "v": 2}]
    stream = lw.from_iterable(items, time="t", key="k").window(ONE_WINDOW)
    for size in (1, 3):
        result = stream.aggregate(lw.sum("v")).collect(bundle_size=size)
        assert [pane.value for pane in result.panes] == [3]
        assert [error.record["v"] for error in result.errors] == [2**63]


def test_unsigned_columns() -> None:
    assert by_arrow([1, 2, 3], lw.sum()) == 6
    table = pa.table({"t": [0, 1], "k": [0, 0], "v": pa.array([2**63, 2], pa.uint64())})
    stream = lw.from_arrow(table, time="t").key_by("k").window(ONE_WINDOW)
    result = stream.aggregate(total=lw.sum("v")).collect()
    assert [pane.value for pane in result.panes] == [2]
    assert len(result.errors) == 1
    (pane,) = stream.aggregate(all=lw.collect("v"), last=lw.last("v")).run()
    assert pane.values == {"all": [2**63, 2], "last": 2}


# -------------------------------------------------------------------------------------- floats


@WAYS
@pytest.mark.parametrize("offset", [0.0, 1e9, -1e12])
def test_small_spreads_about_large_means(way: Way, offset: float) -> None:
    """Sums of squares would lose all digits here; sums about the mean keep them."""
    values = [offset + at for at in (4.0, 7.0, 13.0, 16.0)]
    assert way(values, lw.var()) == pytest.approx(30.0, rel=1e-9)
    assert way(values, lw.std(ddof=0)) == pytest.approx(math.sqrt(22.5), rel=1e-9)


def test_spreads_of_sessions_that_merge() -> None:
    offset = 1e9
    scenario = Scenario()
    times = [0, 30, 60, 45, 15]  # the last two join what came before
    for at, value in zip(times, (4.0, 7.0, 13.0, 16.0, 10.0), strict=True):
        scenario = scenario.add((offset + value, at, "k"))
    run = scenario.end().run(
        lw.Sessions(20), trigger=lw.AfterWatermark(), aggregate={"v": lw.var(), "m": lw.mean()}
    )
    (pane,) = run.panes
    assert pane.values["v"] == pytest.approx(22.5, rel=1e-9)
    assert pane.values["m"] == pytest.approx(offset + 10.0, rel=1e-15)


@WAYS
def test_a_constant_has_no_spread(way: Way) -> None:
    assert way([0.1] * 50, lw.var()) == pytest.approx(0.0, abs=1e-30)
    assert way([0.1] * 50, lw.std()) == pytest.approx(0.0, abs=1e-15)


@WAYS
def test_infinities_are_numbers(way: Way) -> None:
    """They give what floats give, without a warning."""
    values = [math.inf, 1.0, -math.inf]
    assert (way(values, lw.min()), way(values, lw.max())) == (-math.inf, math.inf)
    assert way([math.inf, 1.0], lw.sum()) == math.inf
    for spec in (lw.sum(), lw.mean(), lw.var(), lw.std()):
        assert math.isnan(way(values, spec))
    assert way([1e308, 1e308], lw.sum()) == math.inf


def test_the_smallest_and_largest_int_among_extremes() -> None:
    """They stand for nothing yet inside; as values they are values."""
    for value in (MAX, -(2**63)):
        assert by_arrow([value], lw.min()) == by_arrow([value], lw.max()) == value
    assert by_arrow([math.inf], lw.min()) == math.inf
    assert by_arrow([-math.inf], lw.max()) == -math.inf


def test_extremes_in_sessions_that_merge() -> None:
    for values in ([5, 1, 9], [5.5, 1.0, 9.0], ["m", "a", "z"], [NOON, NOON, NOON]):
        scenario = Scenario()
        for at, value in zip((0, 30, 15), values, strict=True):
            scenario = scenario.add((value, at, "k"), (None, at, "only nulls"))
        run = scenario.end().run(
            lw.Sessions(20),
            trigger=lw.AfterWatermark(),
            aggregate={"min": lw.min(), "max": lw.max()},
        )
        assert run.panes[0].values == {"min": min(values), "max": max(values)}
        assert run.panes[1].values == {"min": None, "max": None}


# ------------------------------------------------------------------------- widening mid stream

WIDENED = {"sum": 6.5, "mean": 6.5 / 3, "min": 1.0, "max": 3.0, "first": 1, "last": 3}


@pytest.mark.parametrize("bundle", [1, 2, 10])
@pytest.mark.parametrize("name", WIDENED)
def test_ints_and_then_floats(name: str, bundle: int) -> None:
    spec = PLAIN[name][0]()
    assert by_iterable([1, 2.5, 3], spec, bundle) == pytest.approx(WIDENED[name])
    assert by_iterable([None, 1, None, 2.5, 3], spec, bundle) == pytest.approx(WIDENED[name])


@pytest.mark.parametrize("bundle", [1, 10])
@pytest.mark.parametrize(("name", "value"), [("min", MAX), ("max", -(2**63)), ("first", 0)])
def test_what_one_key_holds_survives_the_widening_by_another(
    name: str, value: int, bundle: int
) -> None:
    items = [{"t": 0, "k": "a", "value": value}, {"t": 1, "k": "b", "value": 0.5}]
    stream = lw.from_iterable(items, time="t", key="k").window(ONE_WINDOW)
    panes = stream.aggregate(PLAIN[name][0]()).run(bundle_size=bundle)
    assert [pane.value for pane in panes] == [value, 0.5]


@pytest.mark.parametrize("bundle", [1, 10])
def test_lists_of_ints_and_then_floats(bundle: int) -> None:
    values = [1, 2.5, 1.0, 2, None, 2.5]
    assert by_iterable(values, lw.collect(), bundle) == [1, 2.5, 1, 2, 2.5]
    assert by_iterable(values, lw.collect_set(), bundle) == [1, 2.5, 2]
    assert by_iterable(values, lw.count_distinct(), bundle) == 3


def test_retracted_panes_survive_the_widening() -> None:
    """S-A3: what was shown as ints is taken back as the same numbers."""
    items = [{"t": at, "k": "k", "value": value} for at, value in enumerate([1, 2.5, 3])]
    stream = lw.from_iterable(items, time="t", key="k").window(
        ONE_WINDOW, trigger=EACH, accumulation="retracting"
    )
    panes = stream.aggregate(sum=lw.sum(), all=lw.collect(), min=lw.min()).run(bundle_size=1)
    assert [(p.kind, p.values["sum"], p.values["all"], p.values["min"]) for p in panes] == [
        ("insert", 1, [1], 1),
        ("retract", 1, [1], 1),
        ("insert", 3.5, [1, 2.5], 1),
        ("retract", 3.5, [1, 2.5], 1),
        ("insert", 6.5, [1, 2.5, 3], 1),
    ]


# --------------------------------------------------------------------- first, last and the order


def test_first_and_last_go_by_event_time() -> None:
    scenario = Scenario().add(("late riser", 5, "k")).add(("first", 1, "k"), ("last", 9, "k"))
    scenario = scenario.add(("as last", 9, "k"), ("as first", 1, "k")).add((None, 0, "k")).end()
    run = scenario.run(
        lw.FixedWindows(10),
        trigger=lw.AfterWatermark(),
        aggregate={"first": lw.first(), "last": lw.last()},
    )
    assert run.panes[0].values == {"first": "first", "last": "as last"}


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 999)), min_size=1, max_size=15),
    st.integers(1, 6),
)
def test_first_last_and_collect_in_merging_sessions(
    elements: list[tuple[int, int]], size: int
) -> None:
    """By event time and then arrival; collected in order of arrival, however sessions merge."""
    items = [{"t": t, "k": 0, "v": v} for t, v in elements]
    stream = lw.from_iterable(items, time="t", key="k", watermark=lw.ManualWatermark())
    panes = (
        stream.window(lw.Sessions(8))
        .aggregate(first=lw.first("v"), last=lw.last("v"), all=lw.collect("v"))
        .run(bundle_size=size)
    )
    for pane in panes:
        start, end = int(pane.window.start), int(pane.window.end)
        inside = [(t, v) for t, v in elements if start <= t < end]
        assert pane.values["all"] == [v for _, v in inside]
        assert pane.values["first"] == min(inside, key=lambda e: e[0])[1]
        assert pane.values["last"] == max(reversed(inside), key=lambda e: e[0])[1]


def test_first_and_last_of_new_elements_alone() -> None:
    """S-A1: in discarding mode each pane starts anew."""
    scenario = Scenario()
    for at, value in ((5, "a"), (1, "b"), (9, "c")):
        scenario = scenario.add((value, at, "k"))
    run = scenario.run(
        lw.FixedWindows(10),
        trigger=EACH,
        accumulation="discarding",
        aggregate={"first": lw.first(), "last": lw.last()},
    )
    assert [pane.values for pane in run.panes] == [{"first": v, "last": v} for v in "abc"]


# ------------------------------------------------------------------------------ distinct values


@pytest.mark.parametrize(
    "values",
    [
        ["a", b"a", "a", b"a"],
        [1, True, 1.0, 2],
        [2**53, 2**53 + 1, 1.5, 2**53],
        [2**64 - 1, 2**64 - 1, 1],
        [dt.date(2000, 1, 1), NOON, NOON.replace(tzinfo=None), dt.date(2000, 1, 1)],
        [(1,), (1,), (2,)],
        ["a pair \U00010000", "a", "a pair \U00010000"],
    ],
    ids=str,
)
@pytest.mark.parametrize("bundle", [1, 10])
def test_distinct_as_python_has_it(values: Values, bundle: int) -> None:
    items = [{"t": at, "k": 0, "v": value} for at, value in enumerate(values)]
    stream = lw.from_iterable(items, time="t", key="k").window(ONE_WINDOW)
    panes = stream.aggregate(set=lw.collect_set("v"), n=lw.count_distinct("v"))
    (pane,) = panes.run(bundle_size=bundle)
    assert pane.values == {"set": list(dict.fromkeys(values)), "n": len(set(values))}


@pytest.mark.parametrize("bundle", [1, 10])
@pytest.mark.parametrize(
    "values",
    [
        [{"a": 1}, {"b": 1}, {"a": 1}],
        [[1, [2]], [1, [2]], [1, [3]]],
        [{1, 2}, {2, 1}, {3}],
        [{"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}, {"a": [1]}],
    ],
    ids=str,
)
def test_distinct_nested_values(values: Values, bundle: int) -> None:
    wanted = [value for at, value in enumerate(values) if value not in values[:at]]
    items = [{"t": at, "k": 0, "v": value} for at, value in enumerate(values)]
    stream = lw.from_iterable(items, time="t", key="k").window(ONE_WINDOW)
    panes = stream.aggregate(set=lw.collect_set("v"), n=lw.count_distinct("v"))
    (pane,) = panes.run(bundle_size=bundle)
    assert pane.values == {"set": wanted, "n": 2}


def test_distinct_lists_of_arrow() -> None:
    values = [[1, 2], [3], [1, 2], [], []]
    assert by_arrow(values, lw.collect_set()) == [[1, 2], [3], []]
    assert by_arrow(values, lw.count_distinct()) == 3


def test_what_cannot_be_told_apart_is_named() -> None:
    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

    items = [{"t": 0, "k": 0, "v": Unhashable()}]
    stream = lw.from_iterable(items, time="t", key="k").window(ONE_WINDOW)
    with pytest.raises(lw.DataError, match="Unhashable"):
        stream.aggregate(lw.count_distinct("v")).collect()


@pytest.mark.parametrize("function", [lw.collect_set, lw.count_distinct])
def test_the_state_of_distinct_values_is_bounded(
    function: Callable[[], AggregateSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within twice the distinct values and a constant, however many elements come."""
    from lowwater.state.bag import Bag

    most = 0
    append = Bag.append

    def counting(self: Bag, *arguments: Any) -> None:
        nonlocal most
        append(self, *arguments)
        most = max(most, len(self))

    monkeypatch.setattr(Bag, "append", counting)
    values = [at % 700 for at in range(60_000)]
    shown = by_arrow(values, function(), bundle=500)
    assert shown in (700, list(range(700)))
    assert most <= 2 * 700 + 1024 + 500


# ------------------------------------------------------------------------- the user's combiners


class Joined:
    """Joins values as text, in order: which inputs came where can be read off it."""

    def create_accumulator(self) -> list[str]:
        return []

    def add_input(self, accumulator: list[str], value: Any) -> list[str]:
        accumulator.append(str(value))
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[str]]) -> list[str]:
        return sorted(part for accumulator in accumulators for part in accumulator)

    def extract_output(self, accumulator: list[str]) -> str:
        return "+".join(accumulator)


#     a [0       20)
#     b                   [40      60)
#     c           [20 ..          40)   merges all three: [0, 60) once it overlaps both
SESSIONS = (
    Scenario()
    .add(("a", 0, "k"), ("x", 0, "other"))
    .add(("b", 35, "k"))
    .add(("c", 18, "k"))
    .add(("d", 30, "k"))
    .end()
)


@pytest.mark.parametrize(
    ("accumulation", "shown"),
    [
        ("discarding", ["x", "a", "b", "c", "d"]),
        ("accumulating", ["x", "a", "b", "a+b+c", "a+b+c+d"]),
    ],
)
def test_a_combiner_in_sessions(accumulation: Any, shown: list[str]) -> None:
    run = SESSIONS.run(
        lw.Sessions(20), trigger=EACH, accumulation=accumulation, aggregate=lw.combine(Joined())
    )
    assert sorted(pane.value for pane in run.panes) == sorted(shown)


def test_a_combiner_in_sessions_that_retract() -> None:
    """S-A3: both sessions' panes are taken back when the merged one fires."""
    run = SESSIONS.run(
        lw.Sessions(20), trigger=EACH, accumulation="retracting", aggregate=lw.combine(Joined())
    )
    assert [(p.kind[0], p.value) for p in run.panes if p.key == "k"] == [
        ("i", "a"),
        ("i", "b"),
        ("r", "a"),
        ("r", "b"),
        ("i", "a+b+c"),
        ("r", "a+b+c"),
        ("i", "a+b+c+d"),
    ]


def test_a_combiner_beside_others_and_over_nulls() -> None:
    values = [1, None, 3]
    assert by_iterable(values, lw.combine(Joined())) == "1+3"
    assert by_arrow(values, lw.combine(Joined())) == "1+3"
    scenario = Scenario().add((1, 0, "k", {"w": "p"}), (2, 1, "k", {"w": "q"})).end()
    run = scenario.run(
        ONE_WINDOW,
        trigger=lw.AfterWatermark(),
        aggregate={"text": lw.combine(Joined(), "w"), "sum": lw.sum()},
    )
    assert run.panes[0].values == {"text": "p+q", "sum": 3}


def test_a_combiner_that_changes_its_accumulators_in_place_is_not_shared() -> None:
    """Each window has an accumulator of its own; what a pane showed does not change after it."""

    class Lists(Joined):
        def extract_output(self, accumulator: list[str]) -> Any:
            return list(accumulator)

    scenario = Scenario()
    for at in range(3):
        scenario = scenario.add((at, at, "k"), (at, at, "l"))
    run = scenario.run(
        ONE_WINDOW, trigger=EACH, accumulation="accumulating", aggregate=lw.combine(Lists())
    )
    assert [p.value for p in run.panes if p.key == "k"] == [["0"], ["0", "1"], ["0", "1", "2"]]
    assert [p.value for p in run.panes if p.key == "l"] == [["0"], ["0", "1"], ["0", "1", "2"]]


def test_what_is_not_a_combiner() -> None:
    with pytest.raises(lw.InvalidArgument, match="create_accumulator"):
        lw.combine(object())  # type: ignore[arg-type]


# -------------------------------------------------------------------------------------- as values


def test_aggregates_are_values() -> None:
    assert lw.sum("a") == lw.sum("a") != lw.sum("b")
    assert lw.var() != lw.var(ddof=0)
    assert lw.min() != lw.max()
    assert len({lw.count(), lw.count(), lw.count("a")}) == 2
    assert repr(lw.var("a", ddof=0)) == "var('a', ddof=0)"
    assert [repr(lw.sum()), repr(lw.count("a"))] == ["sum()", "count('a')"]


@pytest.mark.parametrize("ddof", [-1, True, 1.0, None])
def test_degrees_of_freedom(ddof: Any) -> None:
    with pytest.raises(lw.InvalidArgument, match="ddof"):
        lw.var(ddof=ddof)


@pytest.mark.parametrize("column", ["", 3, None])
def test_columns_are_names(column: Any) -> None:
    with pytest.raises(lw.InvalidArgument, match="column"):
        lw.sum(column)


def test_the_streams_of_a_union_may_have_columns_of_other_widths_and_units() -> None:
    """The first stream's type is not taken for that of all values."""

    def stream(at: int, number: pa.Array, time: pa.Array) -> lw.Stream:
        table = pa.table(
            {"at": pa.array([at], pa.timestamp("us")), "k": [1], "n": number, "t": time}
        )
        return lw.from_arrow(table, time="at", timezone="UTC")

    small = stream(0, pa.array([1], pa.int32()), pa.array([5], pa.timestamp("us")))
    large = stream(1, pa.array([2**40], pa.int64()), pa.array([7_000], pa.timestamp("ns")))
    for both in (small | large, large | small):
        windowed = both.key_by("k").window(lw.FixedWindows("1m"))
        found = windowed.aggregate(n=lw.max("n"), t=lw.max("t"), every=lw.collect("n")).to_arrow()
        assert found["n"].to_pylist() == [2**40]
        assert found["t"].cast(pa.timestamp("ns")).cast(pa.int64()).to_pylist() == [7_000]
        assert sorted(found["every"].to_pylist()[0]) == [1, 2**40]
