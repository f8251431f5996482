"""The scenarios on Spark's operators: conformance, goldens and a random sample.

``make test`` runs a few of them in one query, ``make long`` all on both operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
FEW = (4, 8, 16, 37, 43, 45, 47, 48, 54, 72, 76, 88, 95)
"""Cases of at most five micro-batches with panes of each timing, retractions and late elements."""


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


WAYS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "few": ("applyInPandasWithState", FEW),
    "applyInPandasWithState": ("applyInPandasWithState", tuple(range(len(NAMES)))),
    "transformWithStateInPandas": ("transformWithStateInPandas", tuple(range(len(NAMES)))),
}


def ways() -> list[Any]:
    return [
        pytest.param(way, number, id=f"{way}, {NAMES[number]}", marks=marks)
        for way, (_, numbers) in WAYS.items()
        for marks in [() if way == "few" else pytest.mark.long(reason="proves again on Spark")]
        for number in numbers
    ]


@pytest.fixture(scope="module")
def rows(
    spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Mapping[int, Any]]:
    """Return what runs the cases of a way in one query, once, and gives the rows of each."""

    @cache
    def given(way: str) -> Mapping[int, Any]:
        adapter, numbers = WAYS[way]
        folder: Path = tmp_path_factory.mktemp("many")
        found = run_many(spark, [cases()[number] for number in numbers], folder, adapter)
        return {number: found[at] for at, number in enumerate(numbers)}

    return given


@pytest.mark.parametrize(("way", "number"), ways())
def test_panes_are_equal(rows: Callable[[str], Mapping[int, Any]], way: str, number: int) -> None:
    check(cases()[number], rows(way)[number])
