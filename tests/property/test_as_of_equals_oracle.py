"""J-8 to J-12: the columnar join with a history equals the scalar oracle, and after restarts."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from lowwater.engine.join.as_of import AsOfOperator
from lowwater.engine.join.joining import DIRECTIONS, AsOf
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.keyed.operator import SideBundle, SidesAdvance
from lowwater.engine.keyed.sides import LEFT, RIGHT
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, EndOfInput
from lowwater.time import END_OF_TIME, LAST_EVENT_TIME, START_OF_TIME
from tests.examples import examples
from tests.oracles.join_scenarios import AsOfCase, Schedule, as_of_cases, drive
from tests.oracles.joins import JoinElement, net
from tests.property.driven_joins import Driven, changes, colliding, rows_of


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


FACT, BEHIND = JoinElement("A", 5, "f"), JoinElement("A", 4, "v")
# A version that is one instant behind settles a fact before its own time; yet the fact is kept as
# long as it may be retracted.
ONE_BEHIND: Schedule = [
    ("facts", [FACT]),
    ("watermark", 9, 9),
    ("versions", [BEHIND]),
    ("watermark", 11, 11),
    ("facts", [replace(FACT, sign=-1)]),
    ("watermark", 12, 12),
]


@given(cases, st.integers(1, 3), st.frozensets(st.integers(0, 12)), st.booleans())
@example(
    AsOfCase("left", 2, "correct", 6, True, ONE_BEHIND, "nearest", False), 1, frozenset(), True
)
@examples(7, is_core=True)
def test_the_join_with_a_history_equals_the_oracle_whatever_leaves_memory(
    case: AsOfCase, groups: int, restarts: frozenset[int], arrow: bool
) -> None:
    """And with all of it in memory."""
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
        for operator in driven.operators:
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


FIRST, LAST = START_OF_TIME + 1, LAST_EVENT_TIME
FAR = END_OF_TIME  # the longest tolerance


@pytest.mark.parametrize("tolerance", [1, FAR])
@pytest.mark.parametrize("late_versions", ["ignore", "correct"])
@pytest.mark.parametrize(("direction", "allow_equal"), list(product(DIRECTIONS, (True, False))))
def test_times_at_the_limits(
    direction: Any, allow_equal: bool, late_versions: Any, tolerance: int
) -> None:
    """The first and the last event time, distances that fit no signed number, the longest wait."""
    times = [FIRST, FIRST + 1, -1, 0, 2**53 + 1, LAST - 1, LAST]
    facts = [JoinElement("A", at, f"l{number}") for number, at in enumerate(times)]
    facts += [JoinElement("B", at, f"m{number}") for number, at in enumerate(times)]
    some = [FIRST, 0, 0, 2**53, LAST]
    versions = [JoinElement("A", at, f"r{number}") for number, at in enumerate(some)]
    versions += [JoinElement("B", at, "s") for at in (FIRST, LAST)]
    schedule: Schedule = [
        ("facts", facts),
        ("versions", versions[:2]),
        ("watermark", FIRST, FIRST),
        ("versions", versions[2:5]),
        ("watermark", FIRST + 1, 0),
        ("versions", versions[5:]),
        ("watermark", 0, 1),
        ("facts", [JoinElement("A", 0, "late"), JoinElement("B", 1, "l0")]),
        ("watermark", LAST, LAST),
        ("facts", [JoinElement("A", LAST, "last")]),
    ]
    for keep in (0, FAR):
        case = AsOfCase(
            "left", tolerance, late_versions, keep, False, schedule, direction, allow_equal
        )
        with colliding():
            driven = Driven(lambda: operator_of(case), 2, spills=True)  # noqa: B023
            check_join(case, driven, frozenset({3, 7}), arrow=True)


def test_many_facts_and_versions_of_one_instant_and_of_many_keys() -> None:
    """Past each chunk inside the engine, in one bundle and one advance."""
    random = np.random.default_rng(5)
    count = 70_000
    for direction in ("forward", "nearest"):
        rules = AsOf("left", None, 50, "ignore", 0, direction, False)
        columns = JoinedColumns({"value": None}, {"value": None}, ("key",))
        operator = AsOfOperator(rules, columns)
        times = {
            side: random.integers(0, 3, count) * 40 if side else random.integers(0, 120, count)
            for side in (0, 1)
        }
        keys = {side: random.integers(0, 9_000, count) for side in (0, 1)}
        for side in (LEFT, RIGHT):
            value = Column(np.arange(count))
            bundle = Bundle(times[side], (Column(keys[side]),), {"value": value})
            assert not rows_of(operator.step(SideBundle(side, bundle)))
        assert operator.state_rows == 2 * count
        rows = rows_of(operator.step(EndOfInput()))
        assert operator.state_rows == 0
        last: dict[tuple[int, int], int] = dict(
            zip(zip(keys[1].tolist(), times[1].tolist(), strict=True), range(count), strict=True)
        )
        assert len(rows) == count
        for key, time, row, _ in rows[::17]:
            ahead = [at for at in (0, 40, 80) if at > time and (key, at) in last]
            back = [at for at in (80, 40, 0) if at < time and (key, at) in last]
            near = sorted(
                (abs(at - time), at)
                for at in ahead[:1] + (back[:1] if direction == "nearest" else [])
                if abs(at - time) <= 50
            )
            assert row["value_right"] == (last[key, near[0][1]] if near else None)
