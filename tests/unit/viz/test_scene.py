"""What a diagram shows, as numbers: the nine events of Streaming 102 under each windowing."""

from __future__ import annotations

from typing import Any

import pytest

import lowwater as lw
from lowwater.testing import Scenario
from lowwater.testing._moments import moment
from lowwater.time import END_OF_TIME
from lowwater.viz.scene import Box, Panel
from tests.unit.viz.viz_runs import (
    CASES,
    DATA,
    GLOBAL,
    RETRACTING,
    SESSIONS,
    SLIDING,
    case_diagram,
    diagram_of,
    nine_events,
)


def at(text: str) -> int:
    return int(moment(text))


def only(windowing: lw.Windowing) -> Panel:
    (panel,) = diagram_of(windowing).scene.panels
    return panel


def shown(box: Box) -> tuple[str, str, str]:
    """Return where a box begins and ends in processing time, and its label."""
    return _clock(box.bottom), _clock(box.top), f"{box.value} {box.label}"


def _clock(micros: int) -> str:
    return str(lw.Instant(micros))[11:19]


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case["name"])
def test_each_pane_of_the_book_is_a_box(case: dict[str, Any]) -> None:
    (panel,) = case_diagram(case).scene.panels
    expected = []
    fired: dict[str, int] = {}
    first = {
        name: min(at(came) for _, time, came in DATA["events"] if at(time) in range(*map(at, ends)))
        for name, ends in DATA["windows"].items()
    }
    for clock, name, value, timing, index, *_ in case["panes"]:
        left, right = map(at, DATA["windows"][name])
        bottom = fired.get(name, first[name])
        fired[name] = at(clock)
        expected.append((left, right, bottom, at(clock), timing, str(value), index))
    assert [
        (box.left, box.right, box.bottom, box.top, box.kind, box.value, box.index)
        for box in panel.boxes
    ] == expected


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case["name"])
def test_each_element_is_a_mark_where_and_when_it_came(case: dict[str, Any]) -> None:
    (panel,) = case_diagram(case).scene.panels
    dropped = {value for value, _, _ in case["late"]}
    assert [(mark.x, mark.y, mark.text, mark.outcome) for mark in panel.marks] == [
        (at(time), at(came), str(value), "late" if value in dropped else "kept")
        for value, time, came in DATA["events"]
    ]


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case["name"])
def test_the_watermark_moves_as_it_did(case: dict[str, Any]) -> None:
    scene = case_diagram(case).scene
    moves = [(at(clock), at(to)) for clock, to in DATA["watermarks"].get(case["watermark"], [])]
    steps = [(step.y, step.x) for step in scene.watermark]
    last = max(at(came) for _, _, came in DATA["events"])
    end = max(last, moves[-1][0] if moves else last)
    assert steps == [(at("12:00:00"), at("12:00:00")), *moves, (end, END_OF_TIME)]


def test_a_dropped_element_says_why() -> None:
    (panel,) = case_diagram(CASES[next(iter(CASES))]).scene.panels
    (nine,) = [mark for mark in panel.marks if mark.outcome == "late"]
    assert nine.reason == "late, dropped: its window had expired"
    assert nine.reason in nine.title
    assert "event time 2000-01-01T12:01:26Z" in nine.title


def test_retractions_stand_at_the_firing_that_takes_them_back() -> None:
    panel = only(RETRACTING)
    assert [(_clock(r.y), _clock(r.left), r.value) for r in panel.retractions] == [
        ("12:07:30", "12:02:00", "\u221210"),
        ("12:07:41", "12:04:00", "\u22124"),
        ("12:08:19", "12:00:00", "\u22125"),
        ("12:09:22", "12:06:00", "\u22123"),
    ]


def test_sessions_grow_from_the_last_firing_of_their_parts() -> None:
    #  7 |-------|            12:02:26 to 12:03:26, shown at 12:06:39
    #  3       |-------|      joined to 4 at 12:06:39, to 7 by the 8 at 12:07:06
    panel = only(SESSIONS)
    assert [shown(box) for box in panel.boxes] == [
        ("12:05:19", "12:06:00", "5 ON TIME #0"),
        ("12:05:39", "12:06:39", "7 EARLY #0"),
        ("12:06:39", "12:07:13", "22 EARLY #0"),
        ("12:07:13", "12:07:41", "22 ON TIME #1"),
        ("12:07:19", "12:08:19", "3 EARLY #0"),
        ("12:08:19", "12:08:19", "9 LATE #0"),
        ("12:08:19", "12:09:22", "12 ON TIME #0"),
    ]
    assert [(_clock(b.y), _clock(b.left), _clock(b.right)) for b in panel.brackets] == [
        ("12:06:39", "12:03:39", "12:05:19"),
        ("12:07:06", "12:02:26", "12:05:19"),
        ("12:08:39", "12:06:39", "12:08:26"),
        ("12:09:00", "12:06:39", "12:08:46"),
    ]
    assert [len(bracket.parts) for bracket in panel.brackets] == [2, 3, 2, 2]


def test_an_element_of_sliding_windows_is_one_mark_and_makes_two_boxes() -> None:
    panel = only(SLIDING)
    assert len(panel.marks) == 9
    first = [box for box in panel.boxes if box.kind == "ON_TIME"][:2]
    assert [(_clock(box.left), box.value) for box in first] == [
        ("11:59:00", "5"),
        ("12:00:00", "5"),
    ]


def test_the_global_window_is_as_wide_as_the_picture() -> None:
    scene = diagram_of(GLOBAL).scene
    assert at("12:00:00") < scene.x.low < at("12:00:26")
    assert at("12:07:46") < scene.x.high < at("12:09:00")
    (panel,) = scene.panels
    assert [box.value for box in panel.boxes] == ["12", "19", "30", "47", "48"]


def test_allowed_lateness_is_from_completion_to_expiry() -> None:
    # W1 is complete at 12:06 and, a minute of lateness later, expired at 12:07:30.
    (band, *_) = only(SLIDING.with_(windows=lw.FixedWindows("2m"))).bands
    assert (_clock(band.bottom), _clock(band.top)) == ("12:06:00", "12:07:30")
    assert (_clock(band.left), _clock(band.right)) == ("12:00:00", "12:02:00")


def test_what_no_pane_has_shown_is_an_open_box() -> None:
    scenario = Scenario(start="12:00").add((5, "12:00:10", "A"), (6, "12:00:20", "A"), at="12:01")
    scenario = scenario.add((7, "12:05", "A"), at="12:02").add((8, "12:05", "A"), at="12:03")
    windowing = lw.Windowing(windows=lw.FixedWindows("1m"), accumulation="accumulating")
    (panel,) = scenario.run_windowing(windowing, trace=True).diagram().scene.panels
    assert [(box.kind, _clock(box.bottom)) for box in panel.boxes] == [
        ("OPEN", "12:01:00"),
        ("OPEN", "12:02:00"),
    ]
    assert panel.boxes[0].title.endswith("2 elements that no pane has emitted")


def test_a_clock_that_hardly_moves_gives_way_to_steps() -> None:
    scenario = Scenario(start="12:00")
    for value in range(5):
        scenario = scenario.add((value, f"12:00:0{value}", "A")).watermark(f"12:00:0{value}")
    windowing = lw.Windowing(windows=lw.FixedWindows("2s"), accumulation="accumulating")
    diagram = scenario.end().run_windowing(windowing, trace=True).diagram()
    assert diagram.scene.steps
    (panel,) = diagram.scene.panels
    rising = [mark.y for mark in panel.marks]
    assert rising == sorted(set(rising))
    assert "step of the run" in diagram.to_svg()
    assert all(box.bottom < box.top for box in panel.boxes)


def test_an_element_far_before_the_rest_does_not_squash_the_picture() -> None:
    windowing = lw.Windowing(windows=lw.FixedWindows("1m"), accumulation="accumulating")
    scenario = Scenario(start="12:00").add((1, "12:00:10", "A"), at="12:01")
    scenario = scenario.watermark("12:01", at="12:02").add((2, "00:00:02", "A"), at="12:03")
    scenario = scenario.add((3, "00:00:01", "A"), at="12:04").end(at="12:05")
    diagram = scenario.run_windowing(windowing, trace=True).diagram()
    (panel,) = diagram.scene.panels
    far = [mark for mark in panel.marks if mark.x not in diagram.scene.x]
    assert [mark.text for mark in far] == ["2", "3"]
    assert diagram.scene.x.low > at("11:55:00")


def test_keys_are_panels_and_may_be_chosen() -> None:
    scenario = Scenario(start="12:00")
    for number in range(10):
        scenario = scenario.add(
            (number, "12:00:10", f"k{number}"), (1, "12:00:11", "k8"), at=f"12:0{number}"
        )
    windowing = lw.Windowing(windows=lw.FixedWindows("1m"), accumulation="accumulating")
    run = scenario.run_windowing(windowing, trace=True)
    scene = run.diagram().scene
    assert "k8" in [panel.name for panel in scene.panels]
    assert len(scene.panels) == 6
    assert scene.notes == ("4 more keys are not shown: select keys with key=",)
    one = run.diagram(key="k3")
    assert [panel.name for panel in one.scene.panels] == ["k3"]
    assert one.to_text().splitlines()[1] == "k3:"
    assert ">k3</text>" in one.to_svg()
    assert [panel.name for panel in run.diagram(key=["k9", "k1"]).scene.panels] == ["k9", "k1"]
    with pytest.raises(lw.InvalidArgument, match=r"key='k77' \(str\) does not occur"):
        run.diagram(key="k77")
    with pytest.raises(lw.InvalidArgument, match="Did you mean 'value'"):
        run.diagram(column="valeu")


def test_a_column_chooses_what_panes_and_elements_show() -> None:
    items = [{"t": f"2000-01-01T12:00:0{n}Z", "k": "a", "v": n, "w": 10 * n} for n in range(4)]
    pipeline = (
        lw.from_iterable(items, time="t")
        .key_by("k")
        .window(lw.FixedWindows("1m"))
        .aggregate(vs=lw.sum("v"), ws=lw.max("w"), n=lw.count())
    )
    result = pipeline.collect(trace=True, bundle_size=1)
    for column, value, texts in (
        (None, "6", ["0", "1", "2", "3"]),
        ("ws", "30", ["0", "10", "20", "30"]),
        ("n", "4", ["", "", "", ""]),
    ):
        (panel,) = result.diagram(column=column).scene.panels
        assert [box.value for box in panel.boxes] == [value]
        assert [mark.text for mark in panel.marks] == texts
        assert "vs = 6, ws = 30, n = 4" in panel.boxes[0].title


def test_an_untraced_run_says_what_to_do() -> None:
    pipeline = lw.from_iterable(
        [{"t": "2000-01-01T12:00:05Z", "k": "a"}], time="t", key="k"
    ).window(lw.FixedWindows("1m"))
    with pytest.raises(lw.InvalidArgument, match="trace=True"):
        pipeline.aggregate(n=lw.count()).collect().diagram()


def test_runs_have_diagrams_as_they_go() -> None:
    items = [{"t": f"2000-01-01T12:0{n}:05Z", "k": "a", "v": n} for n in range(6)]
    run = (
        lw.from_iterable(items, time="t", watermark=lw.Ascending())
        .key_by("k")
        .window(lw.FixedWindows("1m"))
        .aggregate(v=lw.sum("v"))
        .run(trace=True, bundle_size=1)
    )
    next(run)
    some = run.diagram().scene.panels[0]
    list(run)
    everything = run.diagram().scene.panels[0]
    assert len(some.marks) < len(everything.marks) == 6
    assert len([box for box in everything.boxes if box.kind == "ON_TIME"]) == 6


def test_a_stretch_of_event_time() -> None:
    run = nine_events("heuristic").run_windowing(RETRACTING, aggregate=lw.sum(), trace=True)
    scene = run.diagram(between=("2000-01-01T12:02:00Z", "2000-01-01T12:04:00Z")).scene
    (panel,) = scene.panels
    assert [mark.text for mark in panel.marks] == ["7", "3", "8"]
    assert [box.value for box in panel.boxes] == ["10", "18"]
    assert at("12:01:50") < scene.x.low < at("12:02:00")
    assert at("12:04:00") < scene.x.high < at("12:04:10")
    for wrong, said in (
        (("2000-01-01T12:04:00Z", "2000-01-01T12:02:00Z"), "Give the earlier instant first"),
        ("2000-01-01T12:04:00Z", "not a pair of instants"),
        ((None, 5), "is not an instant"),
    ):
        with pytest.raises(lw.InvalidArgument, match=said):
            run.diagram(between=wrong)  # type: ignore[arg-type]


class Tens:
    """A process that emits ten times each value."""

    outputs = ("main",)

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit({"ten": 10 * record["v"]})


def test_a_process_without_windows_shows_its_elements() -> None:
    items = [{"t": f"2000-01-01T12:00:0{n}Z", "k": "a", "v": n} for n in range(5)]
    processed = lw.from_iterable(items, time="t").key_by("k").process(Tens()).named("tens")
    pipeline = processed.key_by("k").window(lw.FixedWindows("1m")).aggregate(ten=lw.sum("ten"))
    result = pipeline.collect(trace=True, bundle_size=1)
    scene = result.diagram(stage="tens").scene
    assert scene.title == "tens: a process without windows"
    (panel,) = scene.panels
    assert len(panel.marks) == 5
    assert not panel.boxes
    assert result.diagram(stage="tens").to_svg()
    (panel,) = result.diagram().scene.panels
    assert [box.value for box in panel.boxes] == ["100"]
    assert [node.name for node in processed.graph().nodes] == ["source 1", "tens"]
