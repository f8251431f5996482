"""S-A4: what stands is the batch answer, whatever the mode, the order and the merges."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.window.windowing import Windowing
from lowwater.pipeline import Pipeline, Stream
from lowwater.testing import Scenario, replay, strategies
from lowwater.testing._oracle_windows import merge_sets, windows_of
from lowwater.testing._settled import same
from lowwater.testing.laws.arrival import waiting_for
from lowwater.testing.replay import as_pipeline
from lowwater.triggers import Repeatedly
from tests.examples import examples
from tests.property import strategies as own

MODES = ("accumulating", "retracting", "discarding")
LISTED = {"each", "set"}


def build(windowing: Windowing) -> Pipeline:
    def pipeline(stream: Stream) -> Pipeline:
        return (
            stream.with_columns(odd=lw.col("value") % 2 == 1)
            .key_by("key")
            .window(windowing)
            .aggregate(
                n=lw.count(),
                total=lw.sum("value"),
                least=lw.min("value"),
                most=lw.max("value"),
                some=lw.any("odd"),
                every=lw.all("odd"),
                each=lw.collect("value"),
                set=lw.collect_set("value"),
            )
        )

    return as_pipeline(pipeline)


def answer(values: list[int]) -> dict[str, Any]:
    odd = [value % 2 == 1 for value in values]
    return {
        "n": len(values),
        "total": sum(values),
        "least": min(values),
        "most": max(values),
        "some": any(odd),
        "every": all(odd),
        "each": values,
        "set": list(dict.fromkeys(values)),
    }


def stands(pipeline: Pipeline, scenario: Scenario) -> dict[Any, lw.Pane]:
    return standing(replay(pipeline, scenario))


def standing(result: lw.Result) -> dict[Any, lw.Pane]:
    final = result.final()
    found = {(pane.key, pane.window): pane for pane in final}
    assert len(found) == len(final)
    assert all(pane.kind == "insert" for pane in final)
    return found


def assert_same(found: dict[Any, Any], wanted: dict[Any, Any]) -> None:
    assert found.keys() == wanted.keys()
    for at, values in found.items():
        for name, value in values.items():
            assert same(value, wanted[at][name], listed=name in LISTED), (at, name)


SAFE = strategies.windowings(
    windows=strategies.windows(gap_column="gap"),
    triggers=st.builds(Repeatedly, strategies.triggers(depth=2)),
)


@st.composite
def safe_cases(draw: st.DrawFn) -> tuple[Windowing, Scenario]:
    windowing = draw(SAFE)
    columns = {"gap": strategies.durations(most=9)} if windowing.windows.columns else None
    return windowing, draw(strategies.scenarios(columns=columns))


@given(case=safe_cases())
@examples(2)
def test_it_is_the_batch_answer(case: tuple[Windowing, Scenario]) -> None:
    windowing, scenario = case
    whole = waiting_for(build(windowing), scenario)
    elements = [one for one in scenario.elements if isinstance(one.time, lw.Instant)]
    windows = windowing.windows
    assigned = [(one, windows_of(windows, int(one.time), one.columns)) for one in elements]
    held: dict[Any, list[Any]] = defaultdict(list)
    for key in {one.key for one in elements}:
        active = {window for one, protos in assigned if one.key == key for window in protos}
        merged = {
            part: whole for parts, whole in merge_sets(windows, sorted(active)) for part in parts
        }
        for one, protos in assigned:
            if one.key == key:
                for window in protos:
                    held[key, merged[window]].append(one.value)
    batch = {at: answer(values) for at, values in held.items()}
    for mode in MODES:
        found = stands(build(windowing.with_(accumulation=mode)), whole)
        assert_same({at: pane.values for at, pane in found.items()}, batch)


@given(case=own.cases())
@examples(3)
def test_all_modes_agree(case: tuple[Windowing, Scenario]) -> None:
    """Also with late elements, triggers that finish, and windows that merge in odd ways."""
    windowing, scenario = case
    results = [replay(build(windowing.with_(accumulation=mode)), scenario) for mode in MODES]
    one, two, three = map(standing, results)
    net: dict[Any, lw.Pane] = {}
    for pane in results[MODES.index("retracting")].panes:
        if pane.kind == "insert":
            net[pane.key, pane.window] = pane
        else:
            del net[pane.key, pane.window]
    assert two == net
    assert one == two  # with all labels
    assert_same(
        {at: pane.values for at, pane in three.items()},
        {at: pane.values for at, pane in two.items()},
    )


FIRST = strategies.windowings(
    windows=strategies.fixed_windows() | strategies.sessions(),
    triggers=st.builds(Repeatedly, strategies.triggers(depth=1)) | st.just(lw.Default()),
    accumulation="retracting",
    timestamps="end",
)
SECOND = strategies.windowings(
    windows=strategies.fixed_windows() | strategies.sessions() | st.just(lw.GlobalWindow()),
    triggers=st.just(Repeatedly(lw.AfterCount(1))),
    allowed_lateness="1h",
)


@given(first=FIRST, second=SECOND, scenario=own.scenarios(gaps=False))
@examples(1)
def test_downstream_of_a_stage_that_retracts(
    first: Windowing, second: Windowing, scenario: Scenario
) -> None:
    """The differences of discarding panes add up to what the other modes emit (S-C5)."""

    def chain(mode: Any) -> Pipeline:
        def pipeline(stream: Stream) -> Pipeline:
            sums = stream.key_by("key").window(first).aggregate(total=lw.sum("value"))
            return (
                sums.key_by(all=lw.lit("all"))
                .window(second.with_(accumulation=mode))
                .aggregate(total=lw.sum("total"), windows=lw.count())
            )

        return as_pipeline(pipeline)

    one, two, three = (
        {at: pane.values for at, pane in stands(chain(mode), scenario).items()} for mode in MODES
    )
    assert one == two == three
