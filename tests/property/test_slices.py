"""Looking windows up once per slice changes neither panes nor what is late, nor their order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.window import slices
from lowwater.engine.window.placement import Placement
from lowwater.engine.window.windowing import Windowing
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
