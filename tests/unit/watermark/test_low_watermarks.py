"""Low watermarks of stages, what holds them, and sources that wait for one another (S-H3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.time import END_OF_TIME, START_OF_TIME
from lowwater.watermark import Hold, LowWatermarks, StageWatermark, which_may_read

GRAPH = {"clicks": [], "views": [], "sessions": ["clicks", "views"], "counts": ["sessions"]}


def test_a_report_names_the_one_that_holds() -> None:
    low = LowWatermarks(GRAPH)
    low.enter("clicks", [Hold(50, "partition 1 is behind the others")])
    low.enter("views", [Hold(90, "the estimate")])
    for stage in low.stages:
        if GRAPH[stage]:
            low.enter(stage)
        low.leave(stage)
    assert low.report(100)[-1] == StageWatermark(
        "counts",
        lw.Instant(50),
        lw.Instant(50),
        50,
        "clicks: partition 1 is behind the others (through sessions)",
    )
    assert low.chain("counts") == ("counts", "sessions", "clicks")
    low.leave("sessions", [Hold(55, "key 'a'")])
    low.enter("clicks", [Hold(70, "the estimate")])
    low.leave("clicks")
    assert low.enter("sessions") == 70
    assert low.leave("sessions", [Hold(55, "key 'a'")]) == 55
    assert low.enter("counts", [Hold(52, "a pane on its way")]) == 52
    low.leave("counts")
    held = {report.stage: report.held_by for report in low.report(100)}
    assert held["sessions"] == "sessions: key 'a'"
    assert held["counts"] == "counts: a pane on its way"


def test_the_end_is_held_by_nothing() -> None:
    low = LowWatermarks({"a": [], "b": ["a"]})
    (a, b) = low.report(5)
    assert (a.output, a.gap_us, a.held_by) == (START_OF_TIME, None, "a: it has not started")
    low.enter("a", [Hold(END_OF_TIME, "the estimate")])
    low.leave("a")
    low.enter("b")
    low.leave("b")
    (a, b) = low.report(5)
    assert (b.output, b.gap_us, b.held_by) == (END_OF_TIME, None, "nothing: the input has ended")


@pytest.mark.parametrize(
    ("graph", "match"),
    [
        ({"a": ["b"], "b": ["a"], "c": []}, "come before themselves: 'a', 'b'"),
        ({"a": ["a"]}, "come before themselves: 'a'"),
        ({"ab": [], "b": ["aa"]}, "no stage 'aa' before 'b'.*'ab'"),
    ],
)
def test_what_is_no_graph_is_refused(graph: dict[str, list[str]], match: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=match):
        LowWatermarks(graph)


def test_a_source_without_an_estimate_is_refused() -> None:
    with pytest.raises(lw.InvalidArgument, match="source 'a' has no watermark"):
        LowWatermarks({"a": []}).enter("a")
    with pytest.raises(lw.InvalidArgument, match="no stage 'z'"):
        LowWatermarks({"a": []}).leave("z")


@pytest.mark.parametrize(
    ("watermarks", "skew", "wanted"),
    [
        ([], 5, []),
        ([10, 15, 16], 5, [0, 1]),
        ([10, 15, 16], 0, [0]),
        ([10, 15, 16], None, [0, 1, 2]),
        ([START_OF_TIME, 0], 5, [0]),
        ([None, 30, 10], 5, [0, 2]),
        ([None, None], 5, [0, 1]),
        ([END_OF_TIME, 30, 10], 25, [1, 2]),
        ([END_OF_TIME], 25, []),
    ],
)
def test_the_source_that_is_ahead_waits(
    watermarks: list[int | None], skew: int | None, wanted: list[int]
) -> None:
    assert which_may_read(watermarks, skew) == wanted


@given(st.lists(st.none() | st.integers(START_OF_TIME, END_OF_TIME)), st.integers(0, END_OF_TIME))
def test_somebody_may_read_unless_all_have_ended(marks: list[int | None], skew: int) -> None:
    ready = which_may_read(marks, skew)
    assert bool(ready) == any(mark != END_OF_TIME for mark in marks)
    read = [mark for at in ready if (mark := marks[at]) is not None]
    assert not read or max(read) - min(read) <= skew
