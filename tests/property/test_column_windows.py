"""Windows by two columns of a record give what the scalar oracle gives (S-W9)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.window.windowing import Windowing
from lowwater.testing import Scenario
from lowwater.testing import strategies as shipped
from lowwater.time import Instant
from tests.examples import examples
from tests.property import strategies
from tests.property.stored_operator import FATES, stored
from tests.property.test_engine_equals_oracle import check

SECOND = 1_000_000
WINDOWINGS = strategies.windowings(shipped.column_windows("opened", "closes"))
# Few bounds, so that records share windows, around the two starts of scenarios.
OPENED = st.sampled_from([-60, -40, -20, -10, 0, 5]).map(lambda s: Instant(s * SECOND))
CLOSES = st.sampled_from([-15, 0, 0, 20, 60]).map(lambda s: Instant(s * SECOND))
SCENARIOS = shipped.scenarios(
    disorder="40s", columns={"opened": OPENED, "closes": CLOSES}, start=Instant(-30 * SECOND)
)


@given(WINDOWINGS, SCENARIOS)
@examples(5, is_core=True)
def test_panes_are_those_of_the_oracle(windowing: Windowing, scenario: Scenario) -> None:
    check(windowing, scenario, lw.collect(), list)


@given(WINDOWINGS, SCENARIOS, FATES, st.booleans())
@examples(2, is_core=True)
def test_saving_and_restoring_changes_nothing(
    windowing: Windowing, scenario: Scenario, fates: list[str | None], spills: bool
) -> None:
    with stored(fates, spills=spills):
        check(windowing, scenario, {"n": lw.count()}, {"n": len})
