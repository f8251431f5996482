"""The diagram of a join: what its scene holds, and that it is drawn whole, escaped and the same."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import lowwater as lw
from lowwater.testing import PipelineRun, Scenario
from lowwater.testing import strategies as lws
from lowwater.time import START_OF_TIME
from lowwater.viz import Diagram
from lowwater.viz.join_scene import JoinScene
from tests.examples import examples

SHOPPING = (
    Scenario("searches", "clicks", start="12:00")
    .add(("boots", "12:00:00", "s1"), ("umbrella", "12:01:00", "s2"), to="searches", at="12:00:10")
    .add(("a", "12:00:20", "s1"), to="clicks", at="12:01:00")
    .add(("b", "12:02:10", "s1"), to="clicks", at="12:03:00")
    .watermark("12:04", of="clicks", at="12:04")
    .watermark("12:04", of="searches", at="12:06")
    .watermark("12:06:30", at="12:09")
    .add(("c", "12:03:00", "s2"), ("d", "12:06:40", "s3"), to="clicks", at="12:10")
    .add(("e", "12:05:30", "s2"), to="clicks", at="12:11")
    .end(at="12:19")
)


def run_of(scenario: Scenario = SHOPPING, **how: Any) -> PipelineRun:
    options: Any = {"how": "left", "unmatched": "on_time", "allowed_lateness": "2m", **how}

    def joined(searches: lw.Stream, clicks: lw.Stream) -> Any:
        return searches.join(clicks, on="key", within="5m", **options)

    return scenario.run_pipeline(joined, trace=True)


def scene_of(diagram: Diagram) -> JoinScene:
    assert isinstance(diagram.content, JoinScene)
    with pytest.raises(lw.InvalidArgument, match="scene of its own"):
        _ = diagram.scene
    return diagram.content


BOTH = [("12:04:00", "12:04:00"), ("12:06:30", "12:06:30")]


def clock(at: int) -> str:
    return str(lw.Instant(at))[11:19]


def test_a_trace_has_the_pairs_and_the_watermarks_of_both_sides() -> None:
    stage = run_of().trace.stage()
    sides = [(element.side, element.record["value"]) for element in stage.elements]
    assert sides[:3] == [("left", "boots"), ("left", "umbrella"), ("right", "a")]
    found = [
        (pair.left, pair.right, pair.retract, clock(pair.time), clock(pair.clock))
        for pair in stage.pairs
    ]
    assert found == [
        (0, 2, False, "12:00:20", "12:01:00"),
        (0, 3, False, "12:02:10", "12:03:00"),
        (1, None, False, "12:01:00", "12:09:00"),
        (1, None, True, "12:01:00", "12:11:00"),
        (1, 6, False, "12:05:30", "12:11:00"),
    ]
    moves = dict.fromkeys(tuple(map(clock, move.sides or ())) for move in stage.moves)
    assert list(moves)[1:4] == [(clock(START_OF_TIME), "12:04:00"), *BOTH]


def test_the_scene_has_lanes_links_and_frontiers() -> None:
    scene = scene_of(run_of().diagram())
    assert [panel.name for panel in scene.panels] == ["s1", "s2", "s3"]
    first, second, third = scene.panels
    assert [lane.name for lane in first.lanes] == ["left: searches", "right: clicks"]
    assert [(link.left, link.right, clock(link.y)) for link in first.links] == [
        (0, 0, "12:01:00"),
        (0, 1, "12:03:00"),
    ]
    (alone,) = second.left.alone
    assert (clock(alone.y), clock(alone.retracted or 0)) == ("12:09:00", "12:11:00")
    (link,) = second.links
    assert second.right.marks[link.right].text == "e"
    assert [mark.outcome for mark in second.right.marks] == ["late", "kept"]
    assert not third.left.marks
    frontiers = [clock(step.x) for step in first.left.frontier[:2]]
    assert frontiers == ["11:57:00", "11:59:30"]  # five minutes and two behind the watermark
    assert [clock(step.x) for step in first.right.frontier[:2]] == ["12:02:00", "12:04:30"]
    assert not first.left.watermark, "that of the slower side is that of the join"
    assert [clock(step.y) for step in first.right.watermark[:2]] == ["12:04:00", "12:09:00"]


def test_retracted_pairs_stay_as_such() -> None:
    scenario = (
        Scenario("orders", "rates")
        .add((1.1, "12:00", "eur"), to="rates")
        .add((100.0, "12:15", "eur"), to="orders")
        .watermark("12:30")
        .add((1.15, "12:10", "eur"), to="rates")
        .end()
    )
    run = scenario.run_pipeline(
        lambda orders, rates: orders.join_as_of(rates, on="key", late_versions="correct"),
        trace=True,
    )
    (panel,) = scene_of(run.diagram()).panels
    assert [lane.name for lane in panel.lanes] == ["facts: orders", "versions: rates"]
    assert [(link.right, link.retracted is not None) for link in panel.links] == [
        (0, True),
        (1, False),
    ]
    assert "100 + 1.1 retracted" in str(run.diagram())


def test_the_text_timeline() -> None:
    text = str(run_of().diagram(key="s2"))
    assert [" ".join(line.split()) for line in text.splitlines()] == [
        "stage 1: left join within between('0s', '5m'), unmatched on_time, allowed lateness 2m",
        "s2:",
        "clock 12:00 12:02 12:04 12:06 event time, 2000-01-01",
        "12:00:10 (umbrella) left",
        "12:06:00 W",
        "12:09:00 W left umbrella: record without a partner",
        "12:10:00 <c> : right c late, dropped: it was later than the stage allows",
        "12:11:00 : left umbrella: record without a partner, retracted",
        "(e) : right umbrella + e",
        "12:19:00 the watermark has passed everything",
        "(v) record <v> late, dropped v + v pair W watermark",
    ]


def test_what_is_drawn_can_be_chosen() -> None:
    run = run_of()
    assert [panel.name for panel in scene_of(run.diagram(key="s2")).panels] == ["s2"]
    stretch = ("2000-01-01T12:01:00Z", "2000-01-01T12:03:00Z")
    panels = scene_of(run.diagram(between=stretch)).panels
    assert [[len(lane.marks) for lane in panel.lanes] for panel in panels] == [[1, 0], [0, 1]]
    assert not any(panel.links for panel in panels), "one end is outside"
    marks = scene_of(run.diagram(column="key")).panels[0].left.marks
    assert marks[0].text == "s1"
    with pytest.raises(lw.InvalidArgument, match=r"no record of the join 'stage 1' has .*'amount'"):
        run.diagram(column="amount")
    with pytest.raises(lw.InvalidArgument, match="does not occur"):
        run.diagram(key="nobody")


def test_many_records_are_dots_and_more_are_left_out() -> None:
    elements = [(n, f"12:{n // 60:02}:{n % 60:02}", "A") for n in range(250)]
    scenario = Scenario("left", "right").add(*elements, to="left").end()
    diagram = run_of(scenario).diagram()
    (panel,) = scene_of(diagram).panels
    assert len(panel.left.marks) == 200
    assert "50 more records are not shown" in diagram.to_svg()
    assert diagram.to_svg().count('class="kept-dot"') == 200


def test_files_and_themes(tmp_path: Path) -> None:
    diagram = run_of().diagram()
    for name in ("j.svg", "j.html", "j.txt"):
        diagram.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 500
    assert (tmp_path / "j.svg").read_text() == run_of().diagram().to_svg()
    for style in ("pair", "alone-shape", "frontier", "side-watermark"):
        assert f".{style}{{" in diagram.to_svg()
    windowed = lw.from_iterable([{"at": 0, "k": 1}], time="at").key_by("k")
    run = windowed.window(lw.GlobalWindow()).aggregate(lw.count()).collect(trace=True)
    assert ".frontier{" not in run.diagram().to_svg(), "pictures without a join stay as they were"


EVIL = "<script>&\"'\x00\u202e"


@given(lws.scenarios(inputs=("left", "right"), keys=("A", EVIL), max_steps=8))
@examples(0.7)
def test_any_join_is_drawn_whole(scenario: Scenario) -> None:
    """SVG is well-formed, stays on the paper, and shows all pairs at their moments."""
    run = run_of(scenario, how="outer", unmatched="early")
    diagram = run.diagram()
    svg = diagram.to_svg()
    assert svg == run_of(scenario, how="outer", unmatched="early").diagram().to_svg()
    root = ET.fromstring(svg)
    wide, high = (float(root.attrib["viewBox"].split()[at]) for at in (2, 3))
    for d in re.findall(r' d="([^"]*)"', svg):
        numbers = [float(one) for one in re.findall(r"-?[\d.]+", d)]
        assert all(-1 <= x <= wide + 1 for x in numbers[::2]), d
        assert all(-1 <= y <= high + 1 for y in numbers[1::2]), d
    assert "<script>" not in svg
    scene = scene_of(diagram)
    links = sum(len(panel.links) for panel in scene.panels)
    pairs = [one for one in run.trace.stage().pairs if None not in (one.left, one.right)]
    assert links == sum(not pair.retract for pair in pairs)
    assert svg.count('class="pair"') == links + bool(links)
    emitted = [one for one in run.elements if one.kind == "insert"]
    assert len(emitted) == sum(not pair.retract for pair in run.trace.stage().pairs)
    text = diagram.to_text(width=80)
    assert all(sign.isprintable() or sign == "\n" for sign in text)
