"""Windows without elements are those of the scalar oracle: in order, in all ways to keep state."""

from __future__ import annotations

from hypothesis import given

import lowwater as lw
from lowwater.engine.window.windowing import Windowing
from lowwater.testing import Scenario, oracle
from tests.examples import examples
from tests.kernels import BOTH, using
from tests.property import strategies as own

SECOND = own.SECOND


@given(own.cases(own.filling()))
@examples(3, is_core=True)
def test_any_filling(case: tuple[Windowing, Scenario]) -> None:
    windowing, scenario = case
    wanted = oracle.run(scenario, windowing, list)
    with using(BOTH[len(scenario.steps) % 2]):
        run = scenario.run_windowing(windowing, aggregate=lw.collect())
    assert run.panes == wanted.panes
    assert run.late == wanted.late
    assert run.open_windows == run.state_rows == 0
