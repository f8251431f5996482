"""Aggregates that order, sketch or choose among values give what plain Python gives."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.aggregates import _retractable, _tally, _top
from lowwater.testing import assert_late, oracle
from tests.examples import examples
from tests.kernels import BOTH, using
from tests.property import ranked
from tests.property import retracted_elements as signed
from tests.property import strategies as own
from tests.property.stored_operator import FATES, stored

EXAMPLES = examples(3, is_core=True)
AGGREGATES = ranked.SUBTRACTING | ranked.KEEPING
PLAIN = ranked.SUBTRACTING_PLAIN | ranked.KEEPING_PLAIN
HOW = st.tuples(st.sampled_from([0, 1, 1024]), st.integers(0, 2))
"""How many values state holds too many, and which aggregates are tried."""


@contextlib.contextmanager
def passing_over(spare: int) -> Iterator[None]:
    """Let state hold only so many values more than a pass leaves."""
    with contextlib.ExitStack() as changed:
        for module in (_tally, _top, _retractable):
            changed.enter_context(mock.patch.object(module, "_SPARE", spare))
        yield


def check(case: Any, aggregates: Any, plain: Any, *, orders: bool = True) -> None:
    windowing, scenario, signs = case
    wanted = oracle.run(scenario, windowing, plain, signs=signs)
    with using(BOTH[len(scenario.steps) % 2]):
        run = scenario._run(windowing, aggregates, "dead_letter", signs)
    assert [signed.about(pane, orders=orders) for pane in run.panes] == [
        signed.about(pane, orders=orders) for pane in wanted.panes
    ]
    assert_late(run, wanted.late)
    assert run.errors == []
    assert run.open_windows == run.state_rows == 0


@pytest.mark.long(reason="below each kind of windows has a third of the aggregates")
@given(own.cases(ranked=True), st.sampled_from([0, 1, 1024]))
@EXAMPLES
def test_any_windowing(case: Any, spare: int) -> None:
    with passing_over(spare):
        check((*case, None), AGGREGATES, PLAIN)


def check_some(case: Any, how: tuple[int, int]) -> None:
    """Check with each third of the aggregates from one of them on."""
    spare, first = how
    names = [*AGGREGATES][first::3]
    with passing_over(spare):
        check(
            case, {name: AGGREGATES[name] for name in names}, {name: PLAIN[name] for name in names}
        )


@pytest.mark.parametrize("windows", [own.not_merging(), own.sessions(), own.MERGING_CUSTOM])
def test_each_kind_of_windows(windows: Any) -> None:
    @given(own.cases(own.windowings(windows), ranked=True), HOW)
    @EXAMPLES
    def run(case: Any, how: Any) -> None:
        check_some((*case, None), how)

    run()


@given(signed.cases(signed.safe_windowings()), HOW)
@EXAMPLES
def test_with_retractions(case: Any, how: Any) -> None:
    check_some(case, how)


@given(own.cases(ranked=True), HOW, FATES, st.booleans())
@examples(4)
def test_saving_and_restoring_changes_nothing(
    case: Any, how: Any, fates: list[str | None], spills: bool
) -> None:
    with stored(fates, spills=spills):
        check_some((*case, None), how)


@given(signed.cases(signed.safe_windowings()), HOW, FATES, st.booleans())
@examples(4)
def test_saving_retracted_elements_changes_nothing(
    case: Any, how: Any, fates: list[str | None], spills: bool
) -> None:
    with stored(fates, spills=spills):
        check_some(case, how)
