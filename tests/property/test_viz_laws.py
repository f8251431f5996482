"""Laws of diagrams, over any scenario and any windowing."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import combinations, pairwise

from hypothesis import given

import lowwater as lw
from lowwater.engine.window.windowing import Windowing
from lowwater.testing import Scenario
from lowwater.testing._moments import moment
from lowwater.viz import Diagram
from lowwater.viz.compose import MOST_KEYS
from lowwater.viz.shapes import Label, Rect
from tests.examples import examples
from tests.property.strategies import scenarios, windowings


def diagram(scenario: Scenario, windowing: Windowing) -> tuple[Diagram, lw.testing.ScenarioRun]:
    run = scenario.run_windowing(windowing, aggregate=lw.collect(), trace=True)
    return run.diagram(), run


@given(scenarios(), windowings())
def test_everything_that_happened_is_in_the_scene(scenario: Scenario, windowing: Windowing) -> None:
    drawn, run = diagram(scenario, windowing)
    scene = drawn.scene
    stage = run.trace.stage()
    if len({element.key for element in stage.elements}) <= MOST_KEYS:
        marks = [mark for panel in scene.panels for mark in panel.marks]
        assert len(marks) == len(stage.elements)
        dropped = [element for element in stage.elements if element.outcome == "late"]
        assert [mark.outcome for mark in marks].count("late") == len(dropped)
        boxes = [box for panel in scene.panels for box in panel.boxes if box.kind != "OPEN"]
        assert len(boxes) == sum(pane.kind == "insert" for pane in run.panes)
        taken = [retraction for panel in scene.panels for retraction in panel.retractions]
        assert len(taken) == sum(pane.kind == "retract" for pane in run.panes)
    assert scene.x.size > 0
    assert scene.y.size > 0
    for panel in scene.panels:
        for mark in panel.marks:
            assert mark.y in scene.y
            assert mark.x in scene.x or mark.outcome != "kept"
        for box in panel.boxes:
            assert scene.y.low <= box.bottom <= box.top <= scene.y.high
        for band in panel.bands:
            assert band.bottom < band.top


@given(scenarios(), windowings())
def test_boxes_of_a_window_stand_on_one_another(scenario: Scenario, windowing: Windowing) -> None:
    drawn, _ = diagram(scenario, windowing)
    for panel in drawn.scene.panels:
        reached: dict[tuple[int, int], int] = {}
        for box in panel.boxes:
            window = (box.left, box.right)
            if box.index > 0:
                assert box.bottom == reached[window]
            reached[window] = box.top


@given(scenarios(), windowings())
def test_watermarks_only_rise(scenario: Scenario, windowing: Windowing) -> None:
    drawn, _ = diagram(scenario, windowing)
    steps = drawn.scene.watermark
    assert all(a.x < b.x and a.y <= b.y for a, b in pairwise(steps))


@given(scenarios(), windowings())
def test_no_pane_is_on_time_before_the_watermark_is_there(
    scenario: Scenario, windowing: Windowing
) -> None:
    drawn, run = diagram(scenario, windowing)
    stage = run.trace.stage()
    still = replace(
        stage,
        elements=tuple(replace(element, clock=moment("12:00")) for element in stage.elements),
        panes=tuple(replace(pane, emitted_at=moment("12:00")) for pane in stage.panes),
    )
    steps = Diagram.of_stage(still)
    assert steps.scene.steps or len(stage.elements) < 2
    for scene in (drawn.scene, steps.scene):
        reached = [(step.x, step.y) for step in scene.watermark]
        for panel in scene.panels:
            for box in panel.boxes:
                if box.kind in ("ON_TIME", "LATE"):
                    since = min(y for x, y in reached if x >= box.right)
                    assert since <= box.top, f"{box} below the watermark's step at {since}"


@given(scenarios(), windowings())
@examples(0.6)
def test_pictures_are_well_formed_and_labels_apart(
    scenario: Scenario, windowing: Windowing
) -> None:
    drawn, _ = diagram(scenario, windowing)
    text = drawn.to_svg()
    ET.fromstring(text)
    assert text == diagram(scenario, windowing)[0].to_svg()
    picture = drawn.picture
    own = [
        shape
        for shape in picture.shapes
        if isinstance(shape, Label) and shape.style in ("value", "timing", "retract-text")
    ]
    for one, two in combinations(own, 2):
        assert one.area.overlap(two.area) < 1e-6, f"{one.text!r} covers {two.text!r}"
    for shape in picture.shapes:
        if isinstance(shape, Rect):
            area = shape.area
            assert area.left <= area.right
            assert area.top <= area.bottom
            assert area.left >= -30
            assert area.right <= picture.width + 30
    assert str(drawn).endswith("\n")
