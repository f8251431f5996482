"""The rules of joins, tables, row patterns and more, each pinned by a scenario in YAML; net of
each step, on every runner.

A case is a scenario with a pipeline over its inputs, and what must come out. Within a step the
order of elements is not part of the rules, so it is compared after sorting. Where a scalar oracle
knows the join, it must give the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.pipeline.forms import Element
from lowwater.testing import PipelineRun, Scenario, assert_elements, assert_late, assert_panes
from lowwater.testing._arrivals import Add, InputEnd, WatermarkMove
from lowwater.testing._moments import moment
from lowwater.testing._text import from_data
from lowwater.time import END_OF_TIME
from tests.oracles.as_of import AsOfOracle
from tests.oracles.joins import JoinElement, JoinOracle, JoinOutput, net
from tests.paths import read_yaml

HERE = Path(__file__).parent / "inputs"
RULES = {f"J-{n}" for n in (1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 15, 16, 17)}
RULES |= {"T-1", "T-2", "T-3", "T-6"}
RULES |= {"C-1", "C-2", "C-3", "C-4"}
RULES |= {f"P-{n}" for n in (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13)}
HOW: dict[str, dict[str, Any]] = {
    "embedded": {},
    "restarted": {"restarts": "all"},
    "levels": {"runner": "levels"},
}
SECOND = 1_000_000
_OF_PANES = ("timestamp", "window", "key", "value", "timing", "index", "is_last")


def load() -> Iterator[Any]:
    for path in sorted(HERE.glob("*.yaml")):
        for case in read_yaml(path):
            yield pytest.param(case, id=f"{path.stem}: {case['name']}")


CASES = list(load())


def pipeline_of(case: dict[str, Any]) -> Callable[..., Any]:
    """Return the function that builds the pipeline of a case."""
    names = ", ".join(case.get("inputs", ["elements"]))
    found: Callable[..., Any] = eval(f"lambda {names}: {case['pipeline']}", {"lw": lw})
    return found


def check(case: dict[str, Any], run: PipelineRun) -> None:
    """Compare a run with what a case says."""
    emitted = case["panes" if "panes" in case else "elements"]
    for number, step in enumerate(run.steps):
        wanted = [one[1:] for one in emitted if one[0] == number]
        if "panes" in case:
            assert_panes(step.outputs, wanted, fields=_OF_PANES)
        else:
            assert_elements(_sorted(step.outputs, wanted), sorted(wanted, key=str))
    assert max((one[0] for one in emitted), default=0) < len(run.steps)
    late = [
        {**late, "value": {"value": late["value"].get("value")}} for late in map(_fields, run.late)
    ]
    assert_late([lw.LateRecord(**one) for one in late], case.get("late", []))
    assert [error.reason for error in run.errors] == case.get("errors", [])
    if "state_rows" in case:
        assert [step.state_rows for step in run.steps] == case["state_rows"]
    if "output_watermarks" in case:
        marks = [moment(at) for at in case["output_watermarks"]]
        assert [step.output_watermark for step in run.steps] == marks
    if "rows" in case:
        names = case["rows"][0]
        assert [{name: row[name] for name in names} for row in run.rows] == case["rows"]


def _fields(late: lw.LateRecord) -> dict[str, Any]:
    return {name: getattr(late, name) for name in late.__dataclass_fields__}


def _sorted(elements: tuple[Element, ...], wanted: list[Any]) -> list[Element]:
    """Return elements in the order of what is wanted, those that are not wanted last."""

    def place(one: Element) -> str:
        for given in wanted:
            at, key, value, kind = given
            same = all(one.value.get(name, value) == field for name, field in value.items())
            if (one.timestamp, one.key, one.kind) == (moment(at), key, kind) and same:
                return str(given)
        return "~"

    return sorted(elements, key=place)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("case", CASES)
def test_case(case: dict[str, Any], how: str) -> None:
    if case.get("of_streams") and how == "levels":
        return  # Spark runs stages
    check(case, from_data(case, Scenario).run_pipeline(pipeline_of(case), **HOW[how]))


def oracle_of(given: dict[str, Any]) -> JoinOracle | AsOfOracle:
    """Return the oracle of a case; its durations are in seconds."""
    if "as_of" in given:
        return AsOfOracle(
            given["as_of"],
            tolerance=given["tolerance"] * SECOND if "tolerance" in given else None,
            late_versions=given.get("late_versions", "ignore"),
            keep=given["keep"] * SECOND,
            direction=given.get("direction", "backward"),
            allow_equal=given.get("allow_equal", True),
        )
    how, low, high = given["join"]
    return JoinOracle(
        how,
        low * SECOND,
        high * SECOND,
        unmatched=given.get("unmatched", "final"),
        lateness=given.get("lateness", 0) * SECOND,
    )


def drive_oracle(
    oracle: JoinOracle | AsOfOracle, scenario: Scenario
) -> Iterator[Counter[tuple[Any, ...]]]:
    """Yield the net output of each step of a scenario of two inputs."""
    marks = dict.fromkeys(scenario.inputs, int(scenario.watermark_at_start))
    _advance(oracle, marks)
    for step in scenario.steps:
        outputs: list[JoinOutput] = []
        match step:
            case Add(elements, of=of):
                side: Any = _sides(oracle)[scenario.inputs.index(str(of))]
                given = [JoinElement(one.key, int(one.time), one.value) for one in elements]
                outputs = oracle.take(side, given)
            case WatermarkMove(to, of=of):
                marks |= {one: max(marks[one], int(to)) for one in marks if of in (None, one)}
                outputs = _advance(oracle, marks)
            case InputEnd(of=of):
                marks |= {one: END_OF_TIME for one in marks if of in (None, one)}
                outputs = _advance(oracle, marks)
        yield net(outputs)


def _sides(oracle: JoinOracle | AsOfOracle) -> tuple[str, str]:
    return ("facts", "versions") if isinstance(oracle, AsOfOracle) else ("left", "right")


def _advance(oracle: JoinOracle | AsOfOracle, marks: dict[str, int]) -> list[JoinOutput]:
    low, right = min(marks.values()), list(marks.values())[1]
    return oracle.advance(low, right) if isinstance(oracle, AsOfOracle) else oracle.advance(low)


def net_of(elements: tuple[Element, ...]) -> Counter[tuple[Any, ...]]:
    """Return by how much elements of a join change each row, as the oracle says it."""
    found: Counter[tuple[Any, ...]] = Counter()
    for one in elements:
        value, right = one.value["value"], one.value.get("value_right")
        found[one.key, int(one.timestamp), value, right] += 1 if one.kind == "insert" else -1
    return Counter({row: count for row, count in found.items() if count})


@pytest.mark.parametrize("case", [one for one in CASES if "oracle" in one.values[0]])
def test_the_oracle_agrees(case: dict[str, Any]) -> None:
    scenario, oracle = from_data(case, Scenario), oracle_of(case["oracle"])
    run = scenario.run_pipeline(pipeline_of(case))
    assert list(drive_oracle(oracle, scenario)) == [net_of(step.outputs) for step in run.steps]


def test_every_rule_is_pinned() -> None:
    assert {rule for case in CASES for rule in case.values[0]["rules"]} >= RULES


@pytest.mark.parametrize("case", CASES)
def test_scenarios_read_back(case: dict[str, Any]) -> None:
    scenario = from_data(case, Scenario)
    assert Scenario.from_yaml(scenario.to_yaml()) == scenario
    assert Scenario.from_markdown(scenario.to_markdown()) == scenario
    assert eval(repr(scenario), {"Scenario": Scenario}) == scenario
