"""S-C1 to S-C5: with elements taken back too, the engine gives what the oracle gives."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.aggregates import _retractable
from lowwater.testing import assert_late, oracle
from tests.examples import examples
from tests.kernels import BOTH, using
from tests.property import retracted_elements as own
from tests.property import strategies
from tests.property.stored_operator import FATES, stored

EXAMPLES = examples(3, is_core=True)


def check(case: own.Case, aggregates: Any, plain: Any) -> None:
    windowing, scenario, signs = case
    differing = [name for name in own.SUBTRACTED if name in plain]
    wanted = oracle.run(scenario, windowing, plain, signs=signs, differing=differing)
    with using(BOTH[len(signs) % 2]):
        run = scenario._run(windowing, aggregates, "dead_letter", signs)
    # Where windows are merged by the user's own function, equal elements may meet anew.
    orders = windowing.windows.merge_scope != "key"
    assert [own.about(pane, orders=orders) for pane in run.panes] == [
        own.about(pane, orders=orders) for pane in wanted.panes
    ]
    assert_late(run, wanted.late)
    assert run.errors == []
    assert run.open_windows == run.state_rows == 0


def admitted(case: own.Case) -> tuple[Any, Any]:
    """Return the aggregates that the windowing admits, and those of the oracle."""
    aggregates, plain = own.SUBTRACTED, own.SUBTRACTED_PLAIN
    if not case[0].shows_differences:
        aggregates, plain = aggregates | own.KEPT, plain | own.KEPT_PLAIN
        if case[0].windows.merge_scope != "key":  # as for lists: see check
            aggregates |= strategies.PICKED
            plain |= strategies.PICKED_PLAIN
    return aggregates, plain


@pytest.mark.long(reason="elsewhere a case has each other aggregate")
@given(own.cases())
@EXAMPLES
def test_any_windowing(case: own.Case) -> None:
    check(case, *admitted(case))


def check_any(case: own.Case) -> None:
    """Check with each other aggregate of those that the windowing admits."""
    aggregates, plain = admitted(case)
    names = [*aggregates][len(case[1].steps) % 2 :: 2]
    check(case, {n: aggregates[n] for n in names}, {n: plain[n] for n in names})


@pytest.mark.parametrize(
    "windows", [strategies.not_merging(), strategies.sessions(), strategies.MERGING_CUSTOM]
)
def test_each_kind_of_windows(windows: Any) -> None:
    @given(own.cases(strategies.windowings(windows)), st.sampled_from([0, 1, 1024]))
    @EXAMPLES
    def run(case: own.Case, spare: int) -> None:
        with mock.patch.object(_retractable, "_SPARE", spare):
            check_any(case)

    run()


@given(own.cases(own.safe_windowings()))
@EXAMPLES
def test_aggregates_that_subtract(case: own.Case) -> None:
    check(case, own.COUNTED | own.KEPT, own.COUNTED_PLAIN | own.KEPT_PLAIN)


@given(own.cases(), FATES, st.booleans())
@examples(4)
def test_saving_and_restoring_changes_nothing(
    case: own.Case, fates: list[str | None], spills: bool
) -> None:
    with (
        stored(fates, spills=spills),
        mock.patch.object(_retractable, "_SPARE", 1),
    ):
        check_any(case)
