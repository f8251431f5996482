"""The fluent API: what can be written, and what building refuses."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.window.windowing import Windowing

TABLE = pa.table(
    {
        "t": pa.array([1, 2, 3, 4]),
        "origin": ["JFK", "LGA", "JFK", "EWR"],
        "cancelled": [0, 0, 0, 1],
        "delay": [5.0, None, 7.0, 1.0],
    }
)
FLIGHTS = lw.from_arrow(TABLE, time="t")


def shown(pipeline: lw.Pipeline, **options: Any) -> dict[Any, Any]:
    return {pane.key: pane.value for pane in pipeline.run(**options)}


def counted(stream: lw.Stream) -> dict[Any, Any]:
    return shown(stream.key_by("origin").window(lw.GlobalWindow()).aggregate(lw.count()))


def test_the_whole_chain() -> None:
    pipeline = (
        FLIGHTS.filter(lw.col("cancelled") == 0)
        .with_columns(late=lw.col("delay") > 6)
        .key_by("origin")
        .window(lw.FixedWindows("1s"))
        .aggregate(flights=lw.count(), delay=lw.mean("delay"), any_late=lw.any("late"))
    )
    assert shown(pipeline) == {
        "JFK": {"flights": 2, "delay": 6.0, "any_late": True},
        "LGA": {"flights": 1, "delay": None, "any_late": False},
    }


def test_every_step_is_a_new_value() -> None:
    filtered = FLIGHTS.filter(lw.col("cancelled") == 0)
    assert counted(filtered) == {"JFK": 2, "LGA": 1}
    assert counted(FLIGHTS) == {"JFK": 2, "LGA": 1, "EWR": 1}


def test_a_null_condition_does_not_hold() -> None:
    assert counted(FLIGHTS.filter(lw.col("delay") > 0)) == {"JFK": 2, "EWR": 1}


def test_steps_in_python() -> None:
    assert counted(FLIGHTS.filter(lambda r: r["origin"] != "JFK")) == {"LGA": 1, "EWR": 1}
    assert counted(FLIGHTS.map(lambda r: {**r, "origin": "X"})) == {"X": 4}
    assert counted(FLIGHTS.flat_map(lambda r: [r] * r["cancelled"])) == {"EWR": 1}
    assert counted(FLIGHTS.map_batches(lambda b: b.slice(0, 1))) == {"JFK": 1}


def test_select_keeps_the_event_time() -> None:
    assert FLIGHTS.select("origin").columns == ("t", "origin")
    stream = FLIGHTS.select("origin", twice=lw.col("delay") * 2)
    assert stream.columns == ("t", "origin", "twice")


def test_with_columns_can_make_a_key() -> None:
    stream = FLIGHTS.with_columns(place=lw.col("origin").str.to_lowercase())
    pipeline = stream.key_by("place", "cancelled").window(lw.GlobalWindow()).aggregate(lw.count())
    assert shown(pipeline) == {("jfk", 0): 2, ("lga", 0): 1, ("ewr", 1): 1}


def test_a_key_made_by_a_function() -> None:
    keyed = FLIGHTS.key_by(lambda r: r["origin"][0])
    assert shown(keyed.window(lw.GlobalWindow()).aggregate(lw.count())) == {"J": 2, "L": 1, "E": 1}


def test_expressions_on_python_values() -> None:
    items = [{"t": 1, "k": "a", "v": 3}, {"t": 2, "k": "a", "v": None}, {"t": 3, "k": "a", "v": 1}]
    pipeline = (
        lw.from_iterable(items, time="t")
        .filter(lw.col("v") > 2)
        .key_by("k")
        .window(lw.GlobalWindow())
        .aggregate(lw.sum("v"))
    )
    for size in (1, 3):
        assert shown(pipeline, bundle_size=size) == {"a": 3}


def test_group_shows_lists() -> None:
    keyed = FLIGHTS.key_by("origin").window(lw.GlobalWindow())
    assert shown(keyed.group("delay"))["JFK"] == [5.0, 7.0]
    assert shown(keyed.group())["EWR"] == [{"t": 4, "origin": "EWR", "cancelled": 1, "delay": 1.0}]


def test_aggregates_are_called_by_their_function_or_by_name() -> None:
    windowed = FLIGHTS.key_by("cancelled").window(lw.GlobalWindow())
    (pane, _) = windowed.aggregate(lw.count(), lw.sum("delay"), top=lw.max("delay")).run()
    assert pane.values == {"count": 3, "sum": 12.0, "top": 7.0}


def test_a_whole_windowing() -> None:
    windowing = Windowing(windows=lw.GlobalWindow())
    keyed = FLIGHTS.key_by("origin")
    assert shown(keyed.window(windowing).aggregate(lw.count()))["JFK"] == 2
    with pytest.raises(lw.InvalidArgument, match="not both"):
        keyed.window(windowing, allowed_lateness="1s")


def test_gaps_from_a_column() -> None:
    """S-W3."""
    items = [{"t": 0, "k": "a", "gap": "10us"}, {"t": 9, "k": "a", "gap": "1us"}]
    pipeline = lw.from_iterable(items, time="t", key="k").window(lw.Sessions(gap_column="gap"))
    (pane,) = pipeline.aggregate(lw.count()).run()
    assert (pane.window.start, pane.window.end, pane.value) == (0, 10, 2)


def test_the_same_pipeline_runs_again() -> None:
    pipeline = FLIGHTS.key_by("origin").window(lw.GlobalWindow()).aggregate(lw.count())
    assert shown(pipeline) == shown(pipeline)


# Seen without types: what is refused here, a type checker refuses too.
STREAM: Any = FLIGHTS
SOURCE: Any = lw.from_arrow
WINDOWED: Any = FLIGHTS.key_by("origin").window(lw.GlobalWindow())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: STREAM.filter(lw.col("delya") > 5), r"no column 'delya'.*'delay'"),
        (lambda: STREAM.with_columns(x=lw.col("delya")), r"no column 'delya'.*'delay'"),
        (lambda: STREAM.select("delya"), r"no column 'delya'.*'delay'"),
        (lambda: STREAM.filter(lw.col("delay") * 2), "has type double, not bool"),
        (lambda: STREAM.key_by("orgin"), r"no column 'orgin'.*'origin'"),
        (STREAM.key_by, "at least one key"),
        (lambda: STREAM.key_by("origin", "origin"), "there are two"),
        (lambda: STREAM.map(3), "not a function"),
        (lambda: STREAM.window(lw.GlobalWindow()), "Group first"),
        (lambda: STREAM.aggregate(lw.count()), "Group first"),
        (lambda: STREAM.key_by("origin").aggregate(lw.count()), "Say where in event time"),
        (lambda: STREAM.key_by("origin").filter(lw.col("t") > 0), "before the records are keyed"),
        (lambda: WINDOWED.collect, "Aggregate first"),
        (lambda: STREAM.key_by("origin").window("1m"), "not a window function"),
        (WINDOWED.aggregate, "at least one aggregate"),
        (lambda: WINDOWED.aggregate(lw.sum), r"lw\.sum\(\.\.\.\)"),
        (lambda: WINDOWED.aggregate(x="sum"), "is not an aggregate"),
        (lambda: WINDOWED.aggregate(lw.sum("t"), lw.sum("delay")), "two aggregates"),
        (lambda: WINDOWED.aggregate(timing=lw.count()), "panes have that already"),
        (lambda: WINDOWED.aggregate(origin=lw.count()), "that is a key"),
        (lambda: WINDOWED.aggregate(lw.sum("delya")), r"no column 'delya'.*'delay'"),
        (lambda: WINDOWED.aggregate(lw.sum("origin")), "needs numbers"),
        (lambda: WINDOWED.aggregate(lw.sum()), "no column 'value'"),
        (lambda: SOURCE(TABLE, time="origins"), r"no column 'origins'.*'origin'"),
        (lambda: SOURCE(TABLE, time=3), "not the name of a column"),
        (lambda: SOURCE(TABLE, time="t", watermark="5m"), "not a watermark estimator"),
        (lambda: SOURCE(TABLE, time="t", watermark=lw.Ascending), "is a class"),
        (lambda: SOURCE(TABLE, time="t", timezone="Mars/Base"), "is not known"),
        (
            lambda: SOURCE(TABLE, time="t", clock=lw.ArrivalClock("landed")),
            "no column 'landed'",
        ),
    ],
)
def test_building_refuses_what_cannot_work(build: Any, message: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=message):
        build()


def test_a_time_column_that_names_no_instants_is_refused_when_built() -> None:
    stream = lw.from_arrow(pa.table({"t": [1.5], "k": ["a"]}), time="t")
    with pytest.raises(lw.InvalidArgument, match="are not instants"):
        stream.key_by("k").window(lw.GlobalWindow()).aggregate(lw.count())


def test_attributes_that_do_not_exist_are_attribute_errors() -> None:
    assert not hasattr(FLIGHTS, "window")
    assert not hasattr(WINDOWED, "nothing")


def test_a_function_that_fails_names_the_record() -> None:
    pipeline = FLIGHTS.map(lambda r: r["nothing"]).key_by("origin").window(lw.GlobalWindow())
    with pytest.raises(lw.DataError, match=r"function of map failed on .*'JFK'.*KeyError"):
        pipeline.aggregate(lw.count()).collect()


def test_an_expression_over_values_of_several_types_is_evaluated_for_each() -> None:
    items = [{"t": 1, "k": "a", "v": 3}, {"t": 2, "k": "a", "v": "x"}]
    stream = lw.from_iterable(items, time="t").filter(lw.col("v") > 2)
    counted = stream.key_by("k").window(lw.GlobalWindow()).aggregate(lw.count())
    result = counted.collect(on_error="dead_letter")
    (pane,) = result.panes
    assert pane.values == {"count": 1}
    (error,) = result.errors
    assert (error.reason, error.record) == ("bad_expression", items[1])


def test_flat_map_and_map_batches_check_what_they_are_given() -> None:
    for stream in (STREAM.flat_map(lambda r: 3), STREAM.map_batches(lambda b: 3)):
        with pytest.raises(lw.DataError, match="function returned"):
            counted(stream)


def test_every_public_name_is_there() -> None:
    for name in dir(lw):
        getattr(lw, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        lw.nothing  # type: ignore[attr-defined]  # noqa: B018
