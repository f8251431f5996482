"""The engine gives what the scalar oracle gives: every field of every pane, in order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

import lowwater as lw
from lowwater.engine.window.windowing import Windowing
from lowwater.testing import Scenario, assert_late, assert_panes, oracle
from tests.examples import examples
from tests.kernels import BOTH, using
from tests.property import strategies as own

Case = tuple[Windowing, Scenario]
EXAMPLES = examples(4.5, is_core=True)


def check(windowing: Windowing, scenario: Scenario, aggregate: Any, functions: Any) -> None:
    wanted = oracle.run(scenario, windowing, functions)
    with using(BOTH[len(scenario.steps) % 2]):
        run = scenario.run_windowing(windowing, aggregate=aggregate)
    if run.panes != wanted.panes:
        assert_panes(run, wanted.panes)  # shows the first that differs
    assert run.panes == wanted.panes
    assert_late(run, wanted.late)
    assert run.late == wanted.late
    assert run.errors == []
    assert run.open_windows == run.state_rows == 0  # S-O7


@pytest.mark.long(reason="each kind of windows is drawn by the tests below, too")
@given(own.cases())
@EXAMPLES
def test_any_windowing(case: Case) -> None:
    check(*case, lw.collect(), list)


@pytest.mark.parametrize("windows", [own.not_merging(), own.sessions(), own.MERGING_CUSTOM])
def test_each_kind_of_windows(windows: Any) -> None:
    @given(own.cases(own.windowings(windows)))
    @EXAMPLES
    def run(case: Case) -> None:
        check(*case, lw.collect(), list)

    run()


@given(own.cases(own.windowings(trigger=own.triggers(2))))
@EXAMPLES
def test_aggregates_that_keep_no_elements(case: Case) -> None:
    aggregates = {
        "count": lw.count(),
        "sum": lw.sum(),
        "least": lw.min(),
        "most": lw.max(),
    }
    functions = {
        "count": len,
        "sum": sum,
        "least": lambda values: min(values, default=None),
        "most": lambda values: max(values, default=None),
    }
    check(*case, aggregates, functions)


@given(own.cases(ranked=True))
@EXAMPLES
def test_aggregates_that_pick_by_another_column(case: Case) -> None:
    check(*case, own.PICKED, own.PICKED_PLAIN)


@given(own.cases(own.windowings(own.sessions()), ranked=True))
@EXAMPLES
def test_they_pick_the_same_where_sessions_merge(case: Case) -> None:
    check(*case, own.PICKED, own.PICKED_PLAIN)
