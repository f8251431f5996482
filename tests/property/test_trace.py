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
EXAMPLES = examples(2)


@given(own.cases())
@EXAMPLES
def test_a_trace_changes_nothing_and_tells_all(case: Case) -> None:
    """Each claim is checked of the same run: to draw cases is most of what such a test costs."""
    windowing, scenario = case
    plain = scenario.run_windowing(windowing, aggregate=lw.collect())
    traced = scenario.run_windowing(windowing, aggregate=lw.collect(), trace=True)
    assert traced == plain
    (stage,) = traced.trace.stages
    assert list(stage.panes) == plain.panes
    assert len(stage.elements) == len(scenario.elements)
    what_was_dropped_was_late(stage, traced.late)
    panes_show_the_elements_that_their_lineage_names(stage)


def what_was_dropped_was_late(stage: Any, late: Any) -> None:
    told: list[Any] = [(e.key, e.time, window) for e in stage.elements for window in e.dropped]
    told += [(e.key, e.time, None) for e in stage.elements if e.reason == "unwindowed"]
    assert sorted(map(repr, told)) == sorted(
        repr((record.key, record.time, record.window)) for record in late
    )
    for element in stage.elements:
        assert (element.outcome == "kept") == (element.reason is None)
        assert (element.outcome == "late") == (element.reason is not None and not element.windows)


def panes_show_the_elements_that_their_lineage_names(stage: Any) -> None:
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
