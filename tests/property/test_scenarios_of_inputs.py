"""Random scenarios of two inputs: the oracle and all runners give the same, and texts read back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, final

import hypothesis.strategies as st
from hypothesis import given

import lowwater as lw
from lowwater.pipeline.forms import Element
from lowwater.testing import Scenario
from lowwater.testing import strategies as lws
from tests.conformance.test_scenarios_of_inputs import drive_oracle, net_of
from tests.examples import examples
from tests.oracles.as_of import AsOfOracle
from tests.oracles.join_scenarios import DIRECTIONS, JOIN_KINDS, UNMATCHED, intervals
from tests.oracles.joins import JoinOracle

SECOND = 1_000_000
SCENARIOS = lws.scenarios(inputs=("left", "right"), keys=("A", "B"), ends=False)


@final
@dataclass(frozen=True)
class Case:
    """A join of two streams: its method and its arguments."""

    method: str
    arguments: dict[str, Any]

    def __call__(self, left: lw.Stream, right: lw.Stream) -> Any:
        return getattr(left, self.method)(right, on="key", **self.arguments)

    def oracle(self) -> JoinOracle | AsOfOracle:
        """Return a new oracle of the join."""
        given = self.arguments
        if self.method == "join_as_of":
            return AsOfOracle(**given)
        return JoinOracle(
            given["how"], given["within"].low_us, given["within"].high_us,
            unmatched=given["unmatched"], lateness=given["allowed_lateness"],
        )  # fmt: skip


@st.composite
def joins(draw: st.DrawFn) -> Case:
    """Return joins of two streams."""
    lateness = draw(st.sampled_from([0, 0, 5])) * SECOND
    if draw(st.integers(0, 2)) == 2:
        how: Any = draw(st.sampled_from(["inner", "left"]))
        late_versions = draw(st.sampled_from(["ignore", "correct"]))
        rules = {"how": how, "late_versions": late_versions, "keep": lateness}
        direction = draw(st.sampled_from(DIRECTIONS))
        if direction != "backward" or draw(st.booleans()):
            rules |= {"direction": direction, "tolerance": draw(st.integers(1, 9)) * SECOND}
            rules["allow_equal"] = draw(st.booleans())
        return Case("join_as_of", rules)
    low, high = (one * SECOND for one in draw(intervals()))
    kind = draw(st.sampled_from(JOIN_KINDS))
    unmatched = draw(st.sampled_from(UNMATCHED)) if kind not in ("inner", "semi") else "final"
    within = lw.between(low, high)
    return Case(
        "join",
        {"how": kind, "within": within, "unmatched": unmatched, "allowed_lateness": lateness},
    )


@given(SCENARIOS, joins(), st.frozensets(st.integers(0, 13)))
@examples(1.5)
def test_the_oracle_and_all_runners_agree(
    scenario: Scenario, join: Case, restarts: frozenset[int]
) -> None:
    """J-1 to J-6, J-8 to J-12: net, after each step, with watermarks and the rows that remain."""
    oracle = join.oracle()
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
