"""J-8 to J-12: the columnar join with a history equals the scalar oracle, and after restarts."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from lowwater.engine.join.as_of import AsOfOperator
from lowwater.engine.join.joining import AsOf
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.keyed.operator import SidesAdvance
from lowwater.engine.records.steps import EndOfInput
from tests.examples import examples
from tests.oracles.join_scenarios import AsOfCase, as_of_cases, drive
from tests.oracles.joins import net
from tests.property.driven_joins import Driven, changes, colliding


def is_ordered(case: AsOfCase) -> bool:
    """Whether versions have an order of their own."""
    return any(
        one.order is not None
        for kind, *given in case.schedule
        if kind == "versions"
        for one in given[0]
    )


def operator_of(case: AsOfCase) -> AsOfOperator:
    order = "order" if is_ordered(case) else None
    return AsOfOperator(
        AsOf(
            case.how,
            order,
            case.tolerance,
            case.late_versions,
            case.keep,
            case.direction,
            case.allow_equal,
        ),
        JoinedColumns({"value": None}, {"value": None}, ("key",)),
        signed=case.signed,
    )


cases = as_of_cases(late_versions=["correct"]) | as_of_cases(late_versions=["ignore"], signed=False)


@given(cases, st.integers(0, 3), st.frozensets(st.integers(0, 12)), st.booleans())
@examples(7, is_core=True)
def test_the_join_with_a_history_equals_the_oracle(
    case: AsOfCase, groups: int, restarts: frozenset[int], arrow: bool
) -> None:
    check_join(case, Driven(lambda: operator_of(case), groups), restarts, arrow=arrow)


@given(cases, st.integers(1, 3), st.frozensets(st.integers(0, 12)), st.booleans())
@examples(7, is_core=True)
def test_the_join_with_a_history_equals_the_oracle_whatever_leaves_memory(
    case: AsOfCase, groups: int, restarts: frozenset[int], arrow: bool
) -> None:
    with colliding():
        driven = Driven(lambda: operator_of(case), groups, spills=True)
        check_join(case, driven, restarts, arrow=arrow)


def check_join(case: AsOfCase, driven: Driven, restarts: frozenset[int], *, arrow: bool) -> None:
    oracle = case.oracle()
    ordered = is_ordered(case)
    for at, step in enumerate(case.schedule):
        if driven.is_stored and at in restarts:
            driven.restart()
        wanted = net(drive(oracle, step))
        if step[0] == "watermark":
            assert changes(driven.step(SidesAdvance(*step[1:]))) == wanted, at
        else:
            mine = ordered and step[0] == "versions"
            assert driven.take(*step, arrow=arrow, ordered=mine) == wanted, at
        operator = driven.operator
        assert (operator.watermark, operator.output_watermark) == (
            oracle.watermark,
            oracle.output_watermark,
        )
        assert operator.state_rows == oracle.rows
        assert operator.retracts == oracle.signed_output
        operator._check()
    wanted = net(oracle.end())
    assert changes(driven.step(EndOfInput())) == wanted
    assert driven.late == oracle.late
    assert driven.operator.state_rows == 0
