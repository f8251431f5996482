"""J-1 to J-6: the columnar join equals the scalar oracle, step by step, and after restarts."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock
from zlib import crc32

import hypothesis.strategies as st
from hypothesis import given

from lowwater.engine.join import interval_join
from lowwater.engine.join.interval_join import JoinOperator
from lowwater.engine.join.joining import Between, Joining
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.records.steps import EndOfInput, WatermarkAdvance
from tests.examples import examples
from tests.oracles.join_scenarios import JoinCase, drive, join_cases
from tests.oracles.joins import JoinElement, net
from tests.property.driven_joins import Driven, changes, colliding


def operator_of(case: JoinCase, within: Between | None = None) -> JoinOperator:
    within = within or Between(f"{case.low}us", f"{case.high}us")
    return JoinOperator(
        Joining(within, case.how, case.unmatched, case.lateness),
        JoinedColumns({"value": None}, {"value": None}, ("key",)),
        signed=case.signed,
    )


@st.composite
def bounded_cases(draw: st.DrawFn) -> tuple[JoinCase, Between]:
    """Return joins whose left elements say between which instants their partners are (J-14)."""
    case = draw(join_cases())
    low, high = draw(st.sampled_from([("low", "high"), (case.low, "high"), ("low", case.high)]))
    longest = max(draw(st.sampled_from([10, 4, 1])), abs(case.low), abs(case.high))
    of_low, of_high = isinstance(low, str), isinstance(high, str)  # whether they are columns
    least = -longest if of_low else case.low
    most = longest if of_high else case.high
    ends = st.tuples(st.integers(least, most), st.integers(least, most))
    some = draw(st.lists(ends, min_size=4, max_size=4))

    def bounded(one: JoinElement) -> JoinElement:
        # The retraction of an element has its bounds.
        first, last = some[crc32(repr((one.time, one.value)).encode()) % 4]
        first = first if of_low else least
        last = last if of_high else most
        return replace(one, bounds=(one.time + first, one.time + last))

    schedule = [
        ("left", [bounded(one) for one in step[1]]) if step[0] == "left" else step
        for step in case.schedule
    ]
    within = Between(
        "low" if of_low else f"{least}us",
        "high" if of_high else f"{most}us",
        longest=f"{longest}us",
    )
    return replace(case, low=within.low_us, high=within.high_us, schedule=schedule), within


@given(
    bounded_cases(), st.integers(0, 3), st.frozensets(st.integers(0, 12)), st.booleans(),
    st.booleans(),
)  # fmt: skip
@examples(6, is_core=True)
def test_left_records_bound_their_partners(
    bounded: tuple[JoinCase, Between],
    groups: int,
    restarts: frozenset[int],
    arrow: bool,
    spills: bool,
) -> None:
    """J-14."""
    case, within = bounded
    portions = mock.patch.multiple(interval_join, _FIRST_PORTION=1, _MANY_NEAR=2)
    with colliding(), portions:
        driven = Driven(lambda: operator_of(case, within), groups, spills=spills and groups > 0)
        check_join(case, driven, restarts, arrow=arrow)


@given(join_cases(), st.integers(1, 3), st.frozensets(st.integers(0, 12)), st.booleans())
@examples(7, is_core=True)
def test_the_join_equals_the_oracle_whatever_leaves_memory(
    case: JoinCase, groups: int, restarts: frozenset[int], arrow: bool
) -> None:
    """And with all of it in memory."""
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
        for operator in driven.operators:
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
