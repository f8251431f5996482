"""The level function gives what the engine gives; its state is read anew at each step.

Spark itself is not here, so that there may be many cases: test_scenarios_on_spark has it.
"""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

import lowwater as lw
from lowwater.testing import Scenario
from lowwater.testing._text import from_data
from tests.conformance import test_goldens, test_scenarios
from tests.examples import examples, sampled
from tests.property import ranked
from tests.property import strategies as own
from tests.spark.cases import Case, late_of, near, panes_of, run_directly, wanted_panes

GOLDENS = [pytest.param(case, id=case["name"]) for case in test_goldens.DATA["cases"]]


def conformance_case(case: dict[str, Any]) -> Case:
    spec, _ = test_scenarios.FUNCTIONS[case.get("aggregate", "collect")]
    return Case(test_scenarios.windowing_of(case), from_data(case, Scenario), {"value": spec})


def golden_case(case: dict[str, Any]) -> Case:
    windowing = lw.Windowing(
        windows=lw.FixedWindows(test_goldens.DATA["window"]["fixed"]),
        trigger=eval(case["trigger"], test_goldens.NAMESPACE),
        accumulation=case["accumulation"],
        allowed_lateness=case["allowed_lateness"],
    )
    marks = test_goldens.DATA["watermarks"].get(case["watermark"], [])
    return Case(windowing, test_goldens.scenario(marks), {"value": lw.sum()})


def check(case: Case, table: Any) -> None:
    """Compare rows with what the engine gives for the same case, in every field and in order."""
    wanted = case.scenario.run_windowing(case.windowing, aggregate=case.aggregates)
    names = (*case.aggregates, *(() if case.windowing.fill is None else ("is_filled",)))
    assert panes_of(table, names) == wanted_panes(wanted.panes)
    late = [
        (record["value"], key, start, end, reason)
        for text, key, start, end, reason in late_of(table)
        for record in [json.loads(text)]
    ]
    assert late == [
        (
            one.value["value"] if isinstance(one.value, dict) else one.value,
            one.key,
            None if one.window is None else near(one.window.start),
            None if one.window is None else near(one.window.end),
            one.reason,
        )
        for one in wanted.late
    ]


STATE: dict[str, dict[str, int]] = {
    "in the cell": {},
    "in a store": {"memory": 1},  # all windows leave memory between micro-batches
    "moving": {"memory": 1, "most_in_cell": 650},  # from the cell to a store
}


def conformance_ways() -> list[Any]:
    """Return each case with each way to keep state, of which ``make test`` tries one in turn."""
    return sampled(
        [
            pytest.param(case.values[0], way, id=f"{case.id}, {way}")
            for at, case in enumerate(test_scenarios.CASES)
            for way in [*STATE][at % len(STATE) :] + [*STATE][: at % len(STATE)]
        ],
        every=len(STATE),
    )


@pytest.mark.parametrize(("case", "way"), conformance_ways())
def test_conformance(case: dict[str, Any], way: str) -> None:
    made = conformance_case(case)
    check(made, run_directly(made, **STATE[way]))


@pytest.mark.parametrize("case", GOLDENS)
def test_goldens_too(case: dict[str, Any]) -> None:
    made = golden_case(case)
    check(made, run_directly(made))


AGGREGATES = {
    "values": lw.collect(), "n": lw.count(), "total": lw.sum(), "least": lw.min(),
    "last": lw.last(), "mean": lw.mean(), "spread": lw.std(), "kinds": lw.count_distinct(),
    **own.PICKED, **ranked.SUBTRACTING, **ranked.KEEPING,
}  # fmt: skip


@given(own.cases(ranked=True), st.booleans(), st.none() | st.integers(0, 4_000))
@examples(1)
def test_any_windowing(
    case: tuple[lw.Windowing, Scenario], little_memory: bool, most_in_cell: int | None
) -> None:
    made = Case(*case, AGGREGATES)
    check(made, run_directly(made, 1 if little_memory else None, most_in_cell))
