"""Values constructed from columns equal those that the constructors of Python return."""

from __future__ import annotations

import copy
import datetime as dt
import math
import pickle
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.local.outcomes import LateElements
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import Pane
from lowwater.engine.records.python_values import python_values
from lowwater.engine.records.stage_output import Emitted
from lowwater.engine.records.steps import (
    PANES_AT_ONCE,
    LateBatch,
    PaneBatch,
)
from lowwater.engine.records.unchecked import dicts, instants, windows
from lowwater.errors import InvalidArgument, UnknownName
from lowwater.pipeline.forms import ElementForm
from lowwater.time import END_OF_TIME, LAST_EVENT_TIME, START_OF_TIME, Instant
from lowwater.windows import Window
from tests.property.by_constructors import assert_same, made_elements, made_late, made_panes

ENDS = (START_OF_TIME, START_OF_TIME + 1, -1, 0, 1, 2**53 + 1, LAST_EVENT_TIME, END_OF_TIME)
MICROS = st.sampled_from(ENDS) | st.integers(START_OF_TIME, END_OF_TIME)
VALUES = st.sampled_from(
    [None, math.nan, 2**53 + 1, 0, -0.0, "é", b"", (1, None), [1], dt.date.min]
)
COLUMNS = (
    lambda n: Column.from_arrow(pa.array([None if row % 3 else 2**53 + 1 for row in range(n)])),
    lambda n: Column.from_arrow(pa.array([math.nan, None, 0.5] * n)[:n]),
    lambda n: Column(np.arange(n), None, pa.timestamp("us", "UTC")),
    lambda n: Column.from_arrow(pa.array([END_OF_TIME] * n, pa.timestamp("us"))),
    lambda n: Column.from_arrow(pa.array(["a", "b"] * n)[:n].dictionary_encode()),
)


@st.composite
def columns(draw: st.DrawFn, number: int) -> Column:
    made = draw(st.sampled_from(COLUMNS) | st.none())
    if made is not None:
        return made(number)
    return Column.of_objects(draw(st.lists(VALUES, min_size=number, max_size=number)))


@st.composite
def times(draw: st.DrawFn, number: int) -> Any:
    """Instants in runs, few in any order, or all of them different."""
    some = draw(st.lists(MICROS, min_size=1, max_size=max(1, number)))
    rows = [some[row % len(some)] for row in range(number)]
    return np.array(sorted(rows) if draw(st.booleans()) else rows, dtype=np.int64)


@st.composite
def bounds(draw: st.DrawFn, number: int) -> tuple[Any, Any]:
    pairs = np.stack([draw(times(number)), draw(times(number))])
    start, end = pairs.min(axis=0), pairs.max(axis=0)
    start[start == END_OF_TIME] -= 1
    return start, np.where(start == end, start + 1, end)


@st.composite
def pane_batches(draw: st.DrawFn) -> PaneBatch:
    n = draw(st.integers(0, 30))
    start, end = draw(bounds(n))
    rows = np.arange(n)
    return PaneBatch(
        keys=tuple(draw(columns(n)) for _ in range(draw(st.integers(1, 3)))),
        start=start,
        end=end,
        values={f"v{at}": draw(columns(n)) for at in range(draw(st.integers(0, 3)))},
        timing=(rows % 3).astype(np.uint8),
        index=rows,
        on_time_index=rows - 1,
        is_first=rows % 2 == 0,
        is_last=rows % 5 == 0,
        kind=(rows % 2).astype(np.uint8),
        timestamp=draw(times(n)),
        emitted_at=draw(times(n)),
        watermark=draw(times(n)),
    )


@given(pane_batches())
def test_panes(batch: PaneBatch) -> None:
    expected = made_panes(batch)
    for found in (batch.to_panes(), list(batch)):
        assert_same(found, expected)
        for one, other in zip(found, expected, strict=True):
            assert (one.window, one.timestamp) == (other.window, other.timestamp)
            assert type(one.window.start) is type(one.window.end) is Instant
            assert hash(one.window) == hash(other.window)
            assert repr(pickle.loads(pickle.dumps(one))) == repr(other)


@given(st.data(), st.integers(0, 30))
def test_late_records(data: st.DataObject, n: int) -> None:
    start, end = data.draw(bounds(n))
    has = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=np.bool_)
    start, end = np.where(has, start, 0), np.where(has, end, 0)
    rows = np.arange(n)
    batch = LateBatch(rows, start, end, (rows % 5).astype(np.uint8), 7)
    at, value, key = data.draw(times(n)), data.draw(columns(n)), data.draw(columns(n))
    late = LateElements(batch, Records({"value": value}, n), rows, at, (key,))
    expected = made_late(late)
    assert_same(late.to_records(), expected)
    assert [each.window is not None for each in expected] == has.tolist()


@given(st.data(), st.integers(0, 30), st.booleans())
def test_elements(data: st.DataObject, n: int, is_signed: bool) -> None:
    at, key = data.draw(times(n)), data.draw(columns(n))
    names = data.draw(st.sampled_from([(), ("a",), ("a", "b"), ("value",)]))
    values = {name: data.draw(columns(n)) for name in names}
    signs = np.where(np.arange(n) % 2, -1, 1).astype(np.int8) if is_signed else None
    form, batch = ElementForm(("k",)), Emitted(at, (key,), values, signs=signs)
    expected = made_elements(form, batch)
    assert_same(list(form.items(batch)), expected)
    kinds = ["retract" if is_signed and row % 2 else "insert" for row in range(n)]
    assert [each.kind for each in expected] == kinds


def test_long_outputs_are_converted_in_parts() -> None:
    n = 2 * PANES_AT_ONCE + 1
    rows = np.arange(n)
    form = ElementForm(("k",))
    key = Column(rows)
    for values in (rows.tolist(), {"value": Column(rows)}):
        batch = Emitted(rows, (key,), values, rows, rows + 1, is_plain=True, places=rows)
        found = list(form.items(batch))
        assert [(each.key, each.value, each.timestamp) for each in found] == [
            (r, r, r) for r in rows.tolist()
        ]
        part = batch.slice(5, 8)
        assert part.places is not None
        assert part.start is not None
        assert part.to_list() == part.places.tolist() == part.start.tolist() == [5, 6, 7]
        assert part.signs is None


def test_a_pane_behaves_as_one_that_was_constructed() -> None:
    source = lw.from_iterable([("a", 1), ("a", 2)], time=lambda row: row[1], key=lambda row: row[0])
    (pane,) = source.window(lw.FixedWindows("10s")).aggregate(n=lw.count()).collect().panes
    again = Pane(*(getattr(pane, each.name) for each in fields(Pane)))
    assert pane == again
    assert replace(pane) == copy.copy(pane) == copy.deepcopy(pane) == again
    assert pickle.loads(pickle.dumps(pane)) == again
    assert type(pane) is Pane
    assert isinstance(pane, Pane)
    assert not hasattr(pane, "__dict__")
    with pytest.raises(AttributeError):
        pane.index = 1  # type: ignore[misc]
    with pytest.raises(AttributeError):
        pane.window.start = Instant(1)  # type: ignore[misc]
    with pytest.raises(UnknownName, match="start"):
        pane.start  # type: ignore[attr-defined]  # noqa: B018
    match pane:
        case Pane(key, Window(start, _), values):
            assert (key, start, values) == ("a", 0, {"n": 2})
        case _:
            pytest.fail("the pane does not match its class")


def test_windows_that_are_none_are_refused() -> None:
    at = np.array([3, 5])
    with pytest.raises(InvalidArgument, match="must end after it starts"):
        windows(at, np.array([4, 5]))


def test_equal_values_are_shared_where_most_are_equal() -> None:
    for rows in ([1, 1, 1, 2, 2, 2], [1, 2, 1, 2, 1, 2]):  # in runs, and not
        at = np.array(rows)
        assert len(set(map(id, list(instants(at))))) == 2
        assert len(set(map(id, list(windows(at, at + 1))))) == 2


def test_dicts_are_not_shared() -> None:
    for names in ((), ("a",), ("a", "b")):
        one, two = dicts(names, [[1, 1] for _ in names], 2)
        assert one == two == dict.fromkeys(names, 1)
        assert one is not two


@given(st.lists(st.none() | st.integers(-(2**50), 2**50), max_size=9))
def test_datetimes_of_a_zone(micros: list[int | None]) -> None:
    for zone in ("UTC", None):
        array = pa.array(micros, pa.timestamp("us", zone))
        found, expected = python_values(array), array.to_pylist()
        assert list(map(repr, found)) == list(map(repr, expected))
