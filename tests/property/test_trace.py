"""A trace changes nothing, and says of each element what became of it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

import lowwater as lw
from lowwater.engine.window.windowing import Windowing
from lowwater.explain import lateness_profile
from lowwater.explain.lineage import Lineage
from lowwater.testing import Scenario
from tests.examples import examples
from tests.property import strategies as own

Case = tuple[Windowing, Scenario]
EXAMPLES = examples(3)


@given(own.cases())
@EXAMPLES
def test_a_traced_run_gives_the_same(case: Case) -> None:
    windowing, scenario = case
    plain = scenario.run_windowing(windowing)
    traced = scenario.run_windowing(windowing, trace=True)
    assert traced == plain
    assert list(traced.trace.stages[0].panes) == plain.panes


@given(own.cases())
@EXAMPLES
def test_what_was_dropped_is_what_was_late(case: Case) -> None:
    windowing, scenario = case
    run = scenario.run_windowing(windowing, trace=True)
    elements = run.trace.stages[0].elements
    assert len(elements) == len(scenario.elements)
    told: list[Any] = [(e.key, e.time, window) for e in elements for window in e.dropped]
    told += [(e.key, e.time, None) for e in elements if e.reason == "unwindowed"]
    late = [(record.key, record.time, record.window) for record in run.late]
    assert sorted(map(repr, told)) == sorted(map(repr, late))
    for element in elements:
        assert (element.outcome == "kept") == (element.reason is None)
        assert (element.outcome == "late") == (element.reason is not None and not element.windows)


@given(own.cases())
@EXAMPLES
def test_panes_show_the_elements_that_their_lineage_names(case: Case) -> None:
    windowing, scenario = case
    run = scenario.run_windowing(windowing, aggregate=lw.collect(), trace=True)
    stage = run.trace.stages[0]
    lineage = Lineage(stage)
    named: dict[int, list[Any]] = defaultdict(list)
    for element in stage.elements:
        for pane in lineage.showing(element):
            named[id(pane)].append(element.values["value"])
    for pane in stage.panes:
        if pane.kind == "insert":
            assert sorted(pane.value) == sorted(named[id(pane)]), pane


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=30),
    st.integers(0, 20),
    st.integers(0, 20),
    st.sampled_from([lw.FixedWindows(10_000_000), lw.SlidingWindows(10_000_000, 4_000_000)]),
)
@EXAMPLES
def test_a_profile_foretells_what_a_run_drops(
    seconds: list[int], delay: int, lateness: int, windows: Any
) -> None:
    rows = [{"at": second * 1_000_000, "k": "a"} for second in seconds]

    def run(watermark: Any, **more: Any) -> lw.Result:
        stream = lw.from_iterable(rows, time="at", watermark=watermark).key_by("k")
        made = stream.window(windows, accumulation="accumulating", **more).aggregate(n=lw.count())
        return made.collect(trace=True, bundle_size=1)

    profile = lateness_profile(run(None).trace, delays=[f"{delay}s"], lateness=[f"{lateness}s"])
    wanted = run(lw.BoundedDisorder(f"{delay}s"), allowed_lateness=f"{lateness}s")
    dropped = {element.origins for element in wanted.trace.stages[0].elements if element.dropped}
    assert profile.rows[0].dropped == len(dropped)
