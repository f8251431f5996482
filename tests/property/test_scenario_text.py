"""Scenarios read back from every form they are written in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lowwater.testing import Scenario
from lowwater.testing._moments import moment, show
from lowwater.time import END_OF_TIME, START_OF_TIME, Instant
from tests.property import strategies as own

INSTANTS = st.integers(START_OF_TIME, END_OF_TIME).map(Instant)
MOMENTS = (
    INSTANTS
    | own.seconds(946_684_800, 946_771_199).map(Instant)
    | st.sampled_from([Instant(START_OF_TIME), Instant(END_OF_TIME), Instant(0)])
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    ["a|b", "null", "5", " x ", '"q"', "NaN", "end", ".", "\\u007c", "12:00:00", "\n", "-", "1e5"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=2) | st.dictionaries(TEXT, v, max_size=2), max_leaves=4
)
COLUMNS = st.dictionaries(st.sampled_from(["gap", "delay"]), VALUES, max_size=2)
BAD_TIMES = st.sampled_from([None, "yesterday", 1.5, True, "2000-01-01T00:00:00", 2**70])
ELEMENTS = st.tuples(VALUES, MOMENTS | BAD_TIMES, SCALARS | st.tuples(SCALARS, SCALARS), COLUMNS)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    scenario = Scenario(start=draw(MOMENTS), watermark=draw(MOMENTS))
    at = st.none() | MOMENTS
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.integers(0, 3))
        if kind == 0:
            scenario = scenario.add(*draw(st.lists(ELEMENTS, min_size=1, max_size=3)), at=draw(at))
        elif kind == 1:
            scenario = scenario.watermark(draw(MOMENTS), at=draw(at))
        elif kind == 2:
            scenario = scenario.clock(draw(MOMENTS))
        else:
            scenario = scenario.end(at=draw(at))
    return scenario


@given(MOMENTS)
def test_moments_read_back(at: Instant) -> None:
    assert moment(show(at)) == at


@given(scenarios())
def test_markdown_reads_back(scenario: Scenario) -> None:
    assert Scenario.from_markdown(f"# Title\n\n{scenario.to_markdown()}\nmore text") == scenario


@given(scenarios())
def test_yaml_reads_back(scenario: Scenario) -> None:
    assert Scenario.from_yaml(scenario.to_yaml()) == scenario


@given(scenarios())
def test_repr_evaluates_back(scenario: Scenario) -> None:
    assert eval(repr(scenario), {"Scenario": Scenario, "inf": float("inf")}) == scenario


@given(own.scenarios())
def test_generated_scenarios_read_back(scenario: Scenario) -> None:
    assert Scenario.from_yaml(scenario.to_yaml()) == scenario
    assert Scenario.from_markdown(scenario.to_markdown()) == scenario
