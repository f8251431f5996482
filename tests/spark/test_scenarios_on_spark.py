"""The scenarios on Spark's operators: conformance, goldens and a random sample."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings

import lowwater as lw
from tests.conformance import test_goldens, test_scenarios
from tests.property import strategies as own
from tests.spark.cases import Case
from tests.spark.cases_in_one_query import run_many
from tests.spark.test_scenarios_directly import check, conformance_case, golden_case

SAMPLE = 30


def sample(size: int) -> list[Case]:
    """Return random cases, the same ones each time."""
    found: list[Case] = []

    @seed(20)
    @settings(
        max_examples=size, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(own.cases())
    def collect(case: Any) -> None:
        windowing, scenario = case
        found.append(Case(windowing, scenario, {"values": lw.collect(), "total": lw.sum()}))

    collect()
    return found


@cache
def cases() -> list[Case]:
    """Return all in the order of ``NAMES``; built by the first test, not by collecting tests."""
    found = [
        *(conformance_case(each.values[0]) for each in test_scenarios.CASES),
        *(golden_case(case) for case in test_goldens.DATA["cases"]),
        *sample(SAMPLE),
    ]
    assert len(found) == len(NAMES)
    return found


NAMES = [
    *(f"conformance {at}" for at in range(len(test_scenarios.CASES))),
    *(f"golden {case['name']}" for case in test_goldens.DATA["cases"]),
    *(f"random {at}" for at in range(SAMPLE)),
]


ADAPTERS: list[Any] = [
    "applyInPandasWithState",
    pytest.param("transformWithStateInPandas", marks=pytest.mark.long),
]


@pytest.fixture(scope="module", params=ADAPTERS)
def rows(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Any:
    folder: Path = tmp_path_factory.mktemp("many")
    return run_many(spark, cases(), folder, request.param)


@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_panes_are_equal(rows: Any, number: int) -> None:
    check(cases()[number], rows[number])
