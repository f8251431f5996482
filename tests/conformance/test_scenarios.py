"""The rules of the contract, each pinned by a scenario in YAML; exact, on every runner.

A case is a scenario (see ``Scenario.from_yaml``) with the fields of ``Scenario.run``, the rules it
pins and what must come out: panes by the places of ``PANE_FIELDS``, late records by those of
``LATE_FIELDS``, or by the ``fields`` the case names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.testing import Scenario, assert_late, assert_panes, oracle
from lowwater.testing._text import from_data
from lowwater.testing.assertions import PANE_FIELDS
from tests.kernels import using
from tests.paths import read_yaml
from tests.property import custom_windows as custom
from tests.property import ranked

HERE = Path(__file__).parent
RULES = {f"S-O{n}" for n in range(1, 9)} | {f"S-P{n}" for n in range(1, 6)}
RULES |= {"S-F1", "S-F2", "S-F3", "S-F4"}
RULES |= {"S-A1", "S-A2", "S-A3", "S-R1", "S-R2", "S-H1", "S-W2", "S-W3", "S-W6", "S-W7", "S-T2"}
FUNCTIONS: dict[str, tuple[Any, Callable[[list[Any]], Any]]] = {
    "collect": (lw.collect(), list),
    "sum": (lw.sum(), sum),
    "count": (lw.count(), len),
    "max": (lw.max(), lambda values: max(values, default=None)),
    "top 2": (lw.top(2, by="value"), lambda values: ranked.largest(values, 2)),
    "median": (lw.median(), lambda values: ranked.quantile(values, 0.5)),
    "quartiles": (
        lw.quantile("value", [0.25, 0.75]),
        lambda values: [ranked.quantile(values, q) for q in (0.25, 0.75)] if values else None,
    ),
    "most frequent": (lw.most_frequent(n=2), lambda values: ranked.frequent(values, 2)),
    "about": (
        lw.approx_quantile("value", 0.5, error=0.25, between=(1.0, 100.0)),
        lambda values: ranked.estimate(values, 0.5, 0.25, 1.0),
    ),
    "about distinct": (lw.approx_count_distinct(), lambda values: len(set(values))),
    "sum above 2": (
        lw.sum(where=lw.col("value") > 2),
        lambda values: sum(v for v in values if v > 2),
    ),
}
FIELDS = tuple(field.name for field in dataclasses.fields(lw.Windowing))


def load() -> Iterator[Any]:
    for path in sorted(HERE.glob("*.yaml")):
        for case in read_yaml(path):
            yield pytest.param(case, id=f"{path.stem}: {case['name']}")


CASES = list(load())


def windowing_of(case: dict[str, Any]) -> lw.Windowing:
    fields = {name: case[name] for name in FIELDS if name in case}
    scope = {name: getattr(lw, name) for name in dir(lw)} | vars(custom)
    for name in ("windows", "trigger", "fill"):
        if name in fields and (name != "fill" or "(" in fields[name]):
            fields[name] = eval(fields[name], scope)
    return lw.Windowing(**fields)


@pytest.mark.parametrize("runner", ["engine", "engine, compiled", "oracle"])
@pytest.mark.parametrize("case", CASES)
def test_scenario(case: dict[str, Any], runner: str) -> None:
    scenario = from_data(case, Scenario)
    windowing = windowing_of(case)
    spec, function = FUNCTIONS[case.get("aggregate", "collect")]
    run: Any
    if runner == "oracle":
        run = oracle.run(scenario, windowing, function)
    else:
        with using("numpy" if runner == "engine" else "numba"):
            run = scenario.run_windowing(windowing, aggregate=spec)
        assert run.open_windows == case.get("open_windows", 0)
    assert_panes(run.panes, case["panes"], fields=case.get("fields", PANE_FIELDS))
    assert_late(run.late, case.get("late", []))


def test_every_rule_is_pinned() -> None:
    cited = {rule for case in CASES for rule in case.values[0]["rules"]}
    assert cited >= RULES


@pytest.mark.parametrize("case", CASES)
def test_scenarios_read_back(case: dict[str, Any]) -> None:
    scenario = from_data(case, Scenario)
    assert Scenario.from_yaml(scenario.to_yaml()) == scenario
    assert Scenario.from_markdown(scenario.to_markdown()) == scenario
