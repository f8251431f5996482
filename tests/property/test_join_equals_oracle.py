"""J-1 to J-6: the columnar join equals the scalar oracle, step by step, and after restarts."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from lowwater.engine.join.interval_join import JoinOperator
from lowwater.engine.join.joining import Between, Joining
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.records.steps import EndOfInput, WatermarkAdvance
from tests.examples import examples
from tests.oracles.join_scenarios import JoinCase, drive, join_cases
from tests.oracles.joins import net
from tests.property.driven_joins import Driven, changes, colliding


def operator_of(case: JoinCase) -> JoinOperator:
    within = Between(f"{case.low}us", f"{case.high}us")
    return JoinOperator(
        Joining(within, case.how, case.unmatched, case.lateness),
        JoinedColumns({"value": None}, {"value": None}, ("key",)),
        signed=case.signed,
    )


@given(join_cases(), st.integers(0, 3), st.frozensets(st.integers(0, 12)), st.booleans())
@examples(7, is_core=True)
def test_the_join_equals_the_oracle(
    case: JoinCase, groups: int, restarts: frozenset[int], arrow: bool
) -> None:
    check_join(case, Driven(lambda: operator_of(case), groups), restarts, arrow=arrow)


@given(join_cases(), st.integers(1, 3), st.frozensets(st.integers(0, 12)), st.booleans())
@examples(7, is_core=True)
def test_the_join_equals_the_oracle_whatever_leaves_memory(
    case: JoinCase, groups: int, restarts: frozenset[int], arrow: bool
) -> None:
    with colliding():
        driven = Driven(lambda: operator_of(case), groups, spills=True)
        check_join(case, driven, restarts, arrow=arrow)


def check_join(case: JoinCase, driven: Driven, restarts: frozenset[int], *, arrow: bool) -> None:
    oracle = case.oracle()
    for at, step in enumerate(case.schedule):
        if driven.is_stored and at in restarts:
            driven.restart()
        wanted = net(drive(oracle, step))
        if step[0] == "watermark":
            assert changes(driven.step(WatermarkAdvance(step[1]))) == wanted, at
        else:
            assert driven.take(*step, arrow=arrow) == wanted, at
        operator = driven.operator
        assert (operator.watermark, operator.output_watermark) == (
            oracle.watermark,
            oracle.output_watermark,
        )
        assert operator.state_rows == oracle.rows
        assert operator.retracts == oracle.signed_output
        operator._check()
        hold = operator.hold()
        assert (hold is None) == (operator._held()[0] == oracle.watermark)
    wanted = net(oracle.end())
    assert changes(driven.step(EndOfInput())) == wanted
    assert driven.late == oracle.late
    assert driven.operator.state_rows == 0
