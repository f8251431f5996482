"""Sources over what Python holds: iterables, Arrow, pandas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lowwater as lw


@dataclass
class Ride:
    at: int
    team: str
    points: int


class Move(NamedTuple):
    at: int
    team: str
    points: int


def total(stream: Any) -> dict[Any, Any]:
    """Return the sum of points by key."""
    keyed = stream if isinstance(stream, lw.KeyedStream) else stream.key_by("team")
    pipeline = keyed.window(lw.GlobalWindow()).aggregate(points=lw.sum("points"))
    return {pane.key: pane.value for pane in pipeline.collect().panes}


@pytest.mark.parametrize("kind", [Ride, Move, lambda at, team, points: locals()])
def test_elements_with_fields_have_a_column_each(kind: Any) -> None:
    items = [kind(1, "A", 5), kind(2, "B", 7), kind(3, "A", 1)]
    if not isinstance(items[0], (Ride, Move)):
        items = [{"at": i["at"], "team": i["team"], "points": i["points"]} for i in items]
    assert total(lw.from_iterable(items, time="at", key="team")) == {"A": 6, "B": 7}
    assert total(lw.from_iterable(items, time="at")) == {"A": 6, "B": 7}


def test_other_elements_are_values() -> None:
    pipeline = (
        lw.from_iterable([3, 4, 5], time=lambda v: v * 10, key=lambda v: v % 2)
        .window(lw.GlobalWindow())
        .aggregate(lw.sum())
    )
    assert {pane.key: pane.value for pane in pipeline.run()} == {0: 4, 1: 8}


def test_several_keys() -> None:
    items = [{"t": 1, "a": "x", "b": 2}]
    pipeline = lw.from_iterable(items, time="t", key=("a", "b")).window(lw.GlobalWindow()).group()
    (pane,) = pipeline.run()
    assert pane.key == ("x", 2)
    assert pane.value == [{"t": 1, "a": "x", "b": 2}]


def test_a_function_that_fails_on_an_element_makes_a_dead_letter() -> None:
    """S-B1: an unreadable event time or key."""
    items = [{"t": 1, "k": "a"}, {"k": "a"}, {"t": 2}]
    result = (
        lw.from_iterable(items, time=lambda e: e["t"], key=lambda e: e["k"])
        .window(lw.GlobalWindow())
        .aggregate(lw.count())
        .collect()
    )
    assert [error.reason for error in result.errors] == ["bad_time", "wrong_type"]
    assert [error.record for error in result.errors] == [
        {"t": None, "k": "a"},
        {"t": 2, "k": None},
    ]
    assert "KeyError: 't'" in result.errors[0].detail


def test_nothing_is_read_ahead() -> None:
    """Elements that come in while the pipeline runs are shown as soon as they fill a bundle."""
    taken: list[int] = []

    def live() -> Iterator[dict[str, int]]:
        for at in range(4):
            taken.append(at)
            yield {"t": at * 10, "k": 1}

    panes = (
        lw.from_iterable(live(), time="t", key="k", watermark=lw.Ascending())
        .window(lw.FixedWindows("10us"))
        .aggregate(lw.count())
        .run(bundle_size=1)
    )
    next(panes)
    assert taken == [0, 1]


def test_a_field_that_some_elements_lack_is_null_there() -> None:
    items: list[dict[str, Any]] = [{"t": 1, "k": "a"}, {"t": 2, "k": "a", "v": 5}]
    pipeline = lw.from_iterable(items, time="t", key="k").window(lw.GlobalWindow())
    for size in (1, 10):
        (pane,) = pipeline.aggregate(lw.sum("v"), lw.count()).collect(bundle_size=size).panes
        assert pane.values == {"sum": 5, "count": 2}


@pytest.mark.parametrize("size", [1, 2, 10])
def test_a_field_that_no_element_has_is_a_mistake(size: int) -> None:
    items = [{"t": 1, "k": "a", "points": 1}, {"t": 2, "k": "a", "points": 1}]
    pipeline = lw.from_iterable(items, time="t", key="k").window(lw.GlobalWindow())
    with pytest.raises(lw.InvalidArgument, match=r"no column 'point'.*'points'"):
        pipeline.aggregate(lw.sum("point")).collect(bundle_size=size)


def test_no_elements_give_no_panes() -> None:
    pipeline = lw.from_iterable([], time="t", key="k").window(lw.GlobalWindow()).group()
    result = pipeline.collect()
    assert result.panes == []
    names = result.to_arrow().column_names
    assert names[:4] == ["k", "window_start", "window_end", "records"]


def test_what_is_no_series_is_refused() -> None:
    with pytest.raises(lw.InvalidArgument, match="not an iterable"):
        lw.from_iterable("abc", time="t")


TABLE = pa.table({"at": pa.array([1, 2, 3]), "team": ["A", "B", "A"], "points": [5, 7, 1]})


@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_reader(),
        pl.from_arrow(TABLE),
        pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)]),
    ],
    ids=["table", "batch", "reader", "polars", "chunks"],
)
def test_arrow_data_of_every_kind(data: Any) -> None:
    assert total(lw.from_arrow(data, time="at")) == {"A": 6, "B": 7}


def test_what_is_no_arrow_data_is_refused() -> None:
    with pytest.raises(lw.InvalidArgument, match="not Arrow data"):
        lw.from_arrow([1], time="t")


def test_pandas_with_missing_values() -> None:
    """S-B1: NaN of pandas is null: a null value is skipped, a null time or key a dead letter."""
    frame = pd.DataFrame(
        {
            "at": pd.to_datetime(pd.Series([1, 2, None, 4]), unit="us", utc=True),
            "team": ["A", "A", "B", None],
            "points": [5.0, np.nan, 1.0, 1.0],
        }
    )
    result = (
        lw.from_pandas(frame, time="at")
        .key_by("team")
        .window(lw.GlobalWindow())
        .aggregate(points=lw.sum("points"), n=lw.count())
        .collect()
    )
    assert [(pane.key, pane.values) for pane in result.panes] == [("A", {"points": 5.0, "n": 2})]
    assert [error.reason for error in result.errors] == ["null_time", "null_key"]


def test_a_named_index_is_a_column() -> None:
    frame = pd.DataFrame({"team": ["A"], "points": [5]}, index=pd.Index([1], name="at"))
    assert total(lw.from_pandas(frame, time="at")) == {"A": 5}


def test_a_column_of_mixed_objects() -> None:
    frame = pd.DataFrame({"at": [1, 2, 3], "team": ["A"] * 3, "points": [5, "x", 1]})
    result = (
        lw.from_pandas(frame, time="at")
        .key_by("team")
        .window(lw.GlobalWindow())
        .aggregate(lw.sum("points"))
        .collect()
    )
    assert [pane.value for pane in result.panes] == [6]
    assert [error.reason for error in result.errors] == ["wrong_type"]


def test_naive_pandas_times_need_a_time_zone() -> None:
    frame = pd.DataFrame({"at": pd.to_datetime(["2000-01-01"]), "team": ["A"], "points": [1]})
    with pytest.raises(lw.InvalidArgument, match="without a time zone"):
        total(lw.from_pandas(frame, time="at"))
    assert total(lw.from_pandas(frame, time="at", timezone="UTC")) == {"A": 1}


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(lw.InvalidArgument, match="not a pandas DataFrame"):
        lw.from_pandas([1], time="t")  # type: ignore[arg-type]
