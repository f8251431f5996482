"""Windows that are stored, leave memory and are restored change nothing: panes are the oracle's."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.window.windowing import Windowing
from lowwater.testing import Scenario, assert_late, assert_panes, oracle
from tests.examples import examples
from tests.property import strategies as own
from tests.property.stored_operator import FATES, stored


@given(own.cases(), FATES, st.booleans())
@examples(3)
def test_lists_and_any_trigger(
    case: tuple[Windowing, Scenario], fates: list[str | None], spills: bool
) -> None:
    check(*case, fates, lw.collect(), list, spills=spills)


@given(own.cases(), FATES, st.booleans())
@examples(3)
def test_numbers(case: tuple[Windowing, Scenario], fates: list[str | None], spills: bool) -> None:
    aggregates = {"count": lw.count(), "sum": lw.sum(), "least": lw.min()}
    plain = {
        "count": len,
        "sum": sum,
        "least": lambda values: min(values, default=None),
    }
    check(*case, fates, aggregates, plain, spills=spills)


@given(own.cases(ranked=True), FATES, st.booleans())
@examples(3)
def test_what_is_picked_by_another_column(
    case: tuple[Windowing, Scenario], fates: list[str | None], spills: bool
) -> None:
    check(*case, fates, own.PICKED, own.PICKED_PLAIN, spills=spills)


def check(
    windowing: Windowing,
    scenario: Scenario,
    fates: list[str | None],
    aggregate: Any,
    plain: Any,
    *,
    spills: bool,
) -> None:
    with stored(fates, spills=spills):
        run = scenario.run_windowing(windowing, aggregate=aggregate)
    wanted = oracle.run(scenario, windowing, plain)
    assert_panes(run, wanted.panes)
    assert_late(run, wanted.late)
    assert run.state_rows == 0
