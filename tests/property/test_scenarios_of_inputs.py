"""Random scenarios of two inputs: the oracle and all runners give the same, and texts read back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

import lowwater as lw
from lowwater.pipeline.forms import Element
from lowwater.testing import Scenario
from lowwater.testing import strategies as lws
from lowwater.testing._join_scenarios import JOIN_KINDS, UNMATCHED, intervals
from lowwater.testing._oracle_as_of import AsOfOracle
from lowwater.testing._oracle_joins import JoinOracle
from tests.conformance.test_scenarios_of_inputs import drive_oracle, net_of
from tests.examples import examples

SECOND = 1_000_000
SCENARIOS = lws.scenarios(inputs=("left", "right"), keys=("A", "B"), ends=False)


@st.composite
def joins(draw: st.DrawFn) -> tuple[Any, JoinOracle | AsOfOracle]:
    """Return a join of two streams, and its oracle."""
    lateness = draw(st.sampled_from([0, 0, 5])) * SECOND
    if draw(st.integers(0, 3)) == 3:
        late_versions: Any = draw(st.sampled_from(["ignore", "correct"]))
        how: Any = draw(st.sampled_from(["inner", "left"]))

        def as_of(left: lw.Stream, right: lw.Stream) -> Any:
            return left.join_as_of(
                right, on="key", how=how, late_versions=late_versions, keep=lateness
            )

        return as_of, AsOfOracle(how, late_versions=late_versions, keep=lateness)
    low, high = (one * SECOND for one in draw(intervals()))
    kind = draw(st.sampled_from(JOIN_KINDS))
    unmatched = draw(st.sampled_from(UNMATCHED)) if kind not in ("inner", "semi") else "final"

    def join(left: lw.Stream, right: lw.Stream) -> Any:
        return left.join(
            right, on="key", within=lw.between(low, high), how=kind, unmatched=unmatched,
            allowed_lateness=lateness,
        )  # fmt: skip

    return join, JoinOracle(kind, low, high, unmatched=unmatched, lateness=lateness)


@given(SCENARIOS, joins(), st.frozensets(st.integers(0, 13)))
@examples(2)
def test_the_oracle_and_all_runners_agree(
    scenario: Scenario, case: Any, restarts: frozenset[int]
) -> None:
    """J-1 to J-6, J-8, J-9: net, after each step, with watermarks and the rows that remain."""
    join, oracle = case
    run = scenario.run_pipeline(join)
    for wanted, step in zip(drive_oracle(oracle, scenario), run.steps, strict=True):
        assert net_of(step.outputs) == wanted
        assert (step.watermark, step.output_watermark) == (
            oracle.watermark,
            oracle.output_watermark,
        )
        assert step.state_rows == oracle.rows
    after = [at for at in restarts if at < len(scenario.steps)]
    assert scenario.run_pipeline(join, restarts=after).steps == run.steps
    levels = scenario.run_pipeline(join, runner="levels")
    for found, step in zip(levels.steps, run.steps, strict=True):
        assert net_of(found.outputs) == net_of(step.outputs)
        assert Counter(map(repr, found.late)) == Counter(map(repr, step.late))
        assert (found.output_watermark, found.state_rows) == (
            step.output_watermark,
            step.state_rows,
        )
    assert scenario.end().run_pipeline(join).state_rows == 0


def tables(left: lw.Stream, right: lw.Stream) -> Any:
    of_left = left.select("time", "key", one=lw.col("value")).table(key="key")
    return of_left.join(
        right.select("time", "key", other=lw.col("value")).table(key="key"), on="key"
    )


@given(SCENARIOS)
@examples(1)
def test_a_join_of_tables_is_that_of_the_newest_rows(scenario: Scenario) -> None:
    """T-1 to T-3, T-5: after each step, on every runner."""
    runs = [
        scenario.run_pipeline(tables),
        scenario.run_pipeline(tables, restarts="all"),
        scenario.run_pipeline(tables, runner="levels"),
    ]
    standing: list[Counter[Any]] = [Counter() for _ in runs]
    for number in range(len(scenario.steps)):
        newest: Any = {"left": {}, "right": {}}
        for step in scenario.steps[: number + 1]:
            for element in getattr(step, "elements", ()):
                newest[step.of][element.key] = element.value  # type: ignore[union-attr]  # an Add
        wanted = Counter(
            (key, value, newest["right"][key])
            for key, value in newest["left"].items()
            if key in newest["right"]
        )
        for run, found in zip(runs, standing, strict=True):
            for one in run.steps[number].outputs:
                _apply(found, one)
            assert +found == wanted


def _apply(found: Counter[Any], one: Element) -> None:
    found[one.key, one.value["one"], one.value["other"]] += 1 if one.kind == "insert" else -1


@given(SCENARIOS)
@examples(1)
def test_they_read_back(scenario: Scenario) -> None:
    assert Scenario.from_yaml(scenario.to_yaml()) == scenario
    assert Scenario.from_markdown(scenario.to_markdown()) == scenario
    assert eval(repr(scenario), {"Scenario": Scenario}) == scenario
