"""MillWheel's low watermark over random graphs and schedules (S-H3)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lowwater.time import END_OF_TIME, START_OF_TIME
from lowwater.watermark import Hold, LowWatermarks

AT = st.one_of(st.integers(0, 50), st.sampled_from([START_OF_TIME, END_OF_TIME]))


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    """Draw stages with the ones before them, named and listed in any order."""
    count = draw(st.integers(1, 6))
    before = {f"s{at}": [f"s{b}" for b in range(at) if draw(st.booleans())] for at in range(count)}
    names = draw(st.permutations(list(before)))
    return {name: before[name] for name in names}


@given(graphs(), st.data())
def test_the_invariants_hold_at_every_step(
    graph: dict[str, list[str]], data: st.DataObject
) -> None:
    """It never goes back, nor beyond the inputs, nor beyond work that is not late."""
    low = LowWatermarks(graph)
    assert sorted(low.stages) == sorted(graph)
    for stage, before in graph.items():
        assert all(low.stages.index(name) < low.stages.index(stage) for name in before)
    marks = dict.fromkeys(graph, (START_OF_TIME, START_OF_TIME))
    for _ in range(data.draw(st.integers(1, 25))):
        stage = data.draw(st.sampled_from(list(graph)))
        come, gone = marks[stage]
        holds = [Hold(at, f"work at {at}") for at in data.draw(st.lists(AT, max_size=2))]
        least = min((hold.at for hold in holds), default=END_OF_TIME)
        if data.draw(st.booleans()):
            if not graph[stage]:
                holds = holds or [Hold(3, "the estimate")]
                least = min(hold.at for hold in holds)
            outputs = [low.output_of(name) for name in graph[stage]]
            assert low.enter(stage, holds) == max(come, min([least, *outputs]))
        else:
            assert low.leave(stage, holds) == max(gone, min(least, come))
        marks[stage] = (low.input_of(stage), low.output_of(stage))
        for name, before in graph.items():
            assert low.output_of(name) <= low.input_of(name)
            assert all(low.input_of(name) <= low.output_of(one) for one in before)
        for report in low.report(10):
            assert (report.input, report.output) == marks[report.stage]
            assert report.held_by
            at = report.output
            known = at not in (START_OF_TIME, END_OF_TIME)
            assert report.gap_us == (10 - at if known else None)
    later = LowWatermarks(graph)
    later.resume(low.remember())
    assert later.remember() == low.remember()


@given(graphs(), st.data())
def test_what_holds_a_watermark_is_what_must_move_for_it_to_move(
    graph: dict[str, list[str]], data: st.DataObject
) -> None:
    """After one pass over all stages, whoever is named holds by the very instant."""
    low = LowWatermarks(graph)
    for stage in low.stages:
        waiting = [Hold(at, f"{at}") for at in data.draw(st.lists(st.integers(0, 50), max_size=2))]
        if not graph[stage] and not waiting:
            waiting = [Hold(40, "40")]
        low.enter(stage, waiting)
        holds = [Hold(at, f"{at}") for at in data.draw(st.lists(st.integers(0, 50), max_size=2))]
        low.leave(stage, holds)
    for report in low.report(0):
        root = low.chain(report.stage)[-1]
        named, at = report.held_by.split(" (through")[0].split(": ")
        assert (named, int(at)) == (root, report.output)
        for stage, before in zip(
            low.chain(report.stage), low.chain(report.stage)[1:], strict=False
        ):
            assert before in graph[stage]
