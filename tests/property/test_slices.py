"""Looking windows up once per slice changes neither panes nor what is late, nor their order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, EndOfInput
from lowwater.engine.window import slices
from lowwater.engine.window.aggregation import Aggregation
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.placement import Placement
from lowwater.engine.window.slices import Slices
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import DataError
from lowwater.state.arrays import Scratch
from lowwater.testing import Scenario
from lowwater.time import END_OF_TIME, LAST_EVENT_TIME, START_OF_TIME
from lowwater.windows import SlidingWindows
from tests.examples import examples
from tests.property import retracted_elements, strategies, test_signed_equals_oracle
from tests.property.test_engine_equals_oracle import check

SLIDING = st.builds(SlidingWindows, st.integers(1, 60), st.integers(1, 25), st.integers(-30, 30))

WIDE = st.builds(
    SlidingWindows, st.integers(2**48, 2**60), st.integers(2**48, 2**60), st.integers(0, 2**60)
)


@pytest.fixture(autouse=True)
def _always() -> Iterator[None]:
    """Have few elements, all of different slices, be grouped too."""
    with mock.patch.multiple(slices, _FEW=1, _WORTH_IT=math.inf):
        yield


@given(SLIDING, st.lists(st.integers(-100, 100), min_size=1, max_size=20))
@examples(2)
def test_elements_of_a_slice_are_in_the_same_windows(
    windows: SlidingWindows, times: list[int]
) -> None:
    at = np.array(times, dtype=np.int64)
    start = windows.slice_starts(at)
    assert start is not None
    assert (start <= at).all()
    assert not ((start - start[0]) % windows.slice_us).any()
    of_elements, of_slices = windows.assign(at, {}), windows.assign(start, {})
    assert np.array_equal(of_elements.start, of_slices.start)
    assert np.array_equal(of_elements.end, of_slices.end)
    assert of_elements.element is not None
    assert of_slices.element is not None
    assert np.array_equal(of_elements.element, of_slices.element)


@given(st.lists(st.integers(START_OF_TIME, LAST_EVENT_TIME), min_size=1, max_size=20), WIDE)
@examples(2)
def test_anywhere_in_time(times: list[int], windows: SlidingWindows) -> None:
    """Slices that are as long as centuries: what is grouped is in one slice."""
    placement = Placement(Windowing(windows=windows))
    at = np.array(times, dtype=np.int64)
    found = placement.slices(at, np.zeros(len(at), dtype=np.int64), 1, Scratch())
    if found is not None:
        starts = windows.slice_starts(at)
        assert starts is not None
        assert np.array_equal(found.bundle.times[found.of], starts)
        assert len(np.unique(found.bundle.times)) == len(found.size)


@pytest.mark.parametrize("time", [START_OF_TIME, END_OF_TIME - 90])
def test_there_are_none_where_windows_are_cut_off(time: int) -> None:
    assert SlidingWindows(60, 10).slice_starts(np.array([0, time], dtype=np.int64)) is None


@given(strategies.cases(strategies.windowings(strategies.sliding())))
@examples(4, is_core=True)
def test_panes_are_those_of_the_oracle(case: tuple[Windowing, Scenario]) -> None:
    check(*case, lw.collect(), list)


@given(strategies.cases(strategies.windowings(strategies.sliding()), ranked=True))
@examples(2, is_core=True)
def test_aggregates_pick_the_same(case: tuple[Windowing, Scenario]) -> None:
    check(*case, strategies.PICKED, strategies.PICKED_PLAIN)


@given(retracted_elements.cases(strategies.windowings(strategies.sliding())))
@examples(3, is_core=True)
def test_retractions_too(case: retracted_elements.Case) -> None:
    test_signed_equals_oracle.check_any(case)


@given(strategies.cases(strategies.windowings(strategies.sliding())))
@examples(2, is_core=True)
def test_elements_that_are_added_up_first_are_counted(case: tuple[Windowing, Scenario]) -> None:
    check(*case, lw.count(), len)


INTS = st.none() | st.integers(-5, 5) | st.sampled_from([2**62, -(2**62), 2**63 - 1, -(2**63)])
VALUES = {
    "int": (pa.int64(), INTS),
    "float": (
        pa.float64(),
        st.none() | st.sampled_from([0.0, -0.0, 0.1, 1e300, math.inf, math.nan]),
    ),
    "bool": (pa.bool_(), st.none() | st.booleans()),
    "time": (pa.timestamp("us"), st.none() | st.integers(0, 9)),
    "text": (pa.string(), st.none() | st.sampled_from("abc")),
}
EVERY: dict[str, AggregateSpec] = {
    "count": lw.count(),
    **{f"count {name}": lw.count(name) for name in VALUES},
    **{f"min {name}": lw.min(name) for name in VALUES},
    **{f"max {name}": lw.max(name) for name in VALUES},
    **{f"sum {name}": lw.sum(name) for name in ("int", "float", "bool")},
    **{f"mean {name}": lw.mean(name) for name in ("int", "float")},
    "any": lw.any("bool"),
    "first": lw.first("int"),
    "collect": lw.collect("text"),
}
TOGETHER = {  # a sum that overflows ends the run, and would hide what is wrong with others
    "sum": {"sum": EVERY["sum int"]},
    "others": {name: spec for name, spec in EVERY.items() if name != "sum int"},
}
ELEMENT = st.tuples(
    st.integers(0, 30), st.integers(0, 1), st.sampled_from([1, 1, 1, -1]),
    *(values for _, values in VALUES.values()),
)  # fmt: skip


@given(
    st.lists(st.lists(ELEMENT, min_size=1, max_size=12), min_size=1, max_size=3),
    st.sampled_from(sorted(TOGETHER)),
    st.booleans(),
)
@examples(4)
def test_a_slice_that_is_added_at_once_changes_no_result(
    bundles: list[list[tuple[Any, ...]]], name: str, signed: bool
) -> None:
    """To the bit: also at the ends of int64, with nulls, and where elements are retracted."""

    def one_by_one(
        self: Aggregation, bundle: Bundle, slices: Slices, of: Any, rows: Any, arrival: Any
    ) -> None:
        element, pair = slices.of_each(of)
        self.add(bundle, element, rows[pair], arrival)

    def run() -> list[str]:
        operator = WindowOperator(
            Windowing(windows=SlidingWindows(6, 2)), TOGETHER[name], signed=signed
        )
        given: list[str] = []
        for bundle in bundles:
            times, keys, signs, *values = zip(*bundle, strict=True)
            columns = {
                of: Column.from_arrow(pa.array(column, kind))
                for (of, (kind, _)), column in zip(VALUES.items(), values, strict=True)
            }
            signed_as = np.array(signs, dtype=np.int8) if signed else None
            key = Column(np.array(keys, dtype=np.int64))
            step = Bundle(np.array(times, dtype=np.int64), (key,), columns, signs=signed_as)
            try:
                operator.step(step)
            except DataError as error:
                return [str(error)]
        try:
            output = operator.step(EndOfInput())
        except DataError as error:  # a sum is judged when it is emitted
            return [str(error)]
        given += map(repr, [] if output.panes is None else output.panes)
        return given

    at_once = run()
    with mock.patch.object(Aggregation, "add_slices", one_by_one):
        assert run() == at_once
