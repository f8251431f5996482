"""Elements of cumulative windows that are kept once give what each window of its own would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.window.placement import nested_windows
from lowwater.engine.window.windowing import Windowing
from lowwater.testing import Scenario
from lowwater.testing import strategies as shipped
from lowwater.triggers import AfterWatermark, Default
from tests.examples import examples
from tests.property import retracted_elements, strategies, test_signed_equals_oracle
from tests.property.stored_operator import FATES, stored
from tests.property.test_engine_equals_oracle import check

CUMULATIVE = strategies.cumulative()
WAITING = st.just(Default()) | st.builds(AfterWatermark, late=st.none() | shipped.triggers(depth=2))
"""Triggers under which elements are kept in the shortest window."""
KEPT_ONCE = strategies.windowings(CUMULATIVE, WAITING)
ANY = strategies.windowings(CUMULATIVE)
NUMBERS = {"count": lw.count(), "sum": lw.sum(), "least": lw.min(), "most": lw.max()}
NUMBERS_PLAIN = {
    "count": len,
    "sum": sum,
    "least": lambda values: min(values, default=None),
    "most": lambda values: max(values, default=None),
}


@given(strategies.cases(KEPT_ONCE))
@examples(6, is_core=True)
def test_panes_are_those_of_the_oracle(case: tuple[Windowing, Scenario]) -> None:
    """S-W8."""
    assert nested_windows(case[0], {"all": lw.collect()}) is not None
    check(*case, lw.collect(), list)


@given(strategies.cases(ANY))
@examples(3, is_core=True)
def test_with_any_trigger(case: tuple[Windowing, Scenario]) -> None:
    check(*case, lw.collect(), list)


@given(strategies.cases(KEPT_ONCE))
@examples(3, is_core=True)
def test_numbers(case: tuple[Windowing, Scenario]) -> None:
    check(*case, NUMBERS, NUMBERS_PLAIN)


@given(strategies.cases(KEPT_ONCE, ranked=True))
@examples(2, is_core=True)
def test_aggregates_pick_the_same(case: tuple[Windowing, Scenario]) -> None:
    check(*case, strategies.PICKED, strategies.PICKED_PLAIN)


@given(retracted_elements.cases(ANY))
@examples(3, is_core=True)
def test_retractions_too(case: retracted_elements.Case) -> None:
    test_signed_equals_oracle.check_any(case)


@given(retracted_elements.cases(KEPT_ONCE))
@examples(3, is_core=True)
def test_retractions_of_elements_that_are_kept_once(case: retracted_elements.Case) -> None:
    test_signed_equals_oracle.check_any(case)


@pytest.mark.parametrize("spills", [False, True])
@given(strategies.cases(KEPT_ONCE), FATES)
@examples(4, is_core=True)
def test_saving_and_restoring_changes_nothing(
    spills: bool, case: tuple[Windowing, Scenario], fates: list[str | None]
) -> None:
    """Windows that are in the store alone are loaded before anything is added to them."""
    with stored(fates, spills=spills):
        check(*case, {"all": lw.collect(), "n": lw.count()}, {"all": list, "n": len})
