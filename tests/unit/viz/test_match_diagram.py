"""The diagram of matches: what its scene holds, and that it is drawn whole and escaped."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

import lowwater as lw
from lowwater.testing import PipelineRun, Scenario
from lowwater.viz import Diagram
from lowwater.viz.match_scene import Arc, MatchScene
from lowwater.viz.shapes import Path

PRICES = (
    Scenario(start="12:00")
    .add((10, "12:00", "a"), (8, "12:01", "a"), (9, "12:02", "a"), (7, "12:01", "b"), at="12:02:10")
    .watermark("12:03", at="12:03")
    .add((5, "12:02:30", "a"), at="12:04")
    .watermark("12:05", at="12:05")
    .add((1, "12:00:30", "a"), at="12:06")
    .add((3, "11:30", "a"), at="12:07")
    .end(at="12:20")
)


def run_of(
    scenario: Scenario = PRICES, pattern: str = "start down+ up+", **how: Any
) -> PipelineRun:
    options: dict[str, Any] = {
        "define": {
            "down": lw.col("value") < lw.prev("value"),
            "up": lw.col("value") > lw.prev("value"),
        },
        "measures": {"n": lw.count()},
        "within": "1h",
        "allowed_lateness": "10m",
        **how,
    }

    def matched(stream: Any) -> Any:
        return stream.key_by("key").match(pattern, **options)

    return scenario.run_pipeline(matched, trace=True)


def scene_of(diagram: Diagram) -> MatchScene:
    assert isinstance(diagram.content, MatchScene)
    with pytest.raises(lw.InvalidArgument, match="of matches has a scene of its own"):
        _ = diagram.scene
    return diagram.content


def clock(at: int | None) -> str:
    return "" if at is None else str(lw.Instant(at))[11:19]


def arcs_of(arcs: tuple[Arc, ...]) -> list[tuple[str, str, str, int]]:
    return [(arc.variables, clock(arc.y), clock(arc.retracted), arc.level) for arc in arcs]


def test_a_scene_has_the_rows_with_their_variables_and_the_matches() -> None:
    scene = scene_of(run_of().diagram())
    first, second = scene.panels
    assert [(row.mark.text, row.mark.outcome, row.corrects) for row in first.rows] == [
        ("start", "kept", False), ("up", "kept", False), ("up", "kept", False),
        ("", "kept", False), ("down", "kept", True), ("", "late", False),
    ]  # fmt: skip
    assert arcs_of(first.arcs) == [
        ("start down up", "12:04:00", "12:06:00", 0),
        ("start down up{2}", "12:06:00", "", 1),
    ]
    assert "n = 3" in first.arcs[0].title
    assert "changed at 2000-01-01T12:06:00Z" in first.arcs[0].title
    assert [row.mark.text for row in second.rows] == [""]
    assert not second.arcs
    assert scene.headed
    assert "match('start down+ up+'), within 1h, allowed lateness 10m" in scene.title
    assert [clock(at) for at in scene.frames] == ["12:02:10", "12:04:00", "12:06:00", "12:07:00"]


def test_a_match_whose_rows_change_is_drawn_anew() -> None:
    (panel,) = scene_of(run_of(measures={}).diagram(key="a")).panels
    assert [arc.retracted is None for arc in panel.arcs] == [False, True]


def test_the_picture_has_dashed_arcs_for_what_was_retracted() -> None:
    diagram = run_of().diagram(key="a")
    shapes = diagram.picture.shapes
    arcs = [shape for shape in shapes if isinstance(shape, Path) and len(shape.points) > 10]
    assert [shape.style for shape in arcs] == ["pair", "erased", "retract", "pair"]
    assert len({shape.points for shape in arcs}) == 2
    for text in ("start", "row that corrected a match", "retracted match", "late, dropped"):
        assert f">{text}<" in diagram.to_svg()
    ET.fromstring(diagram.to_svg())
    assert diagram.to_svg() == run_of().diagram(key="a").to_svg()
    assert "slider" in diagram.to_html() or "range" in diagram.to_html()


def test_the_text_timeline() -> None:
    text = run_of(emit="early").diagram(key="a").to_text()
    assert "match start down up retracted" in text
    assert "(down)" in text
    assert "<*>" in text
    assert "late, dropped: it was later than the stage allows" in text


def test_hostile_names_and_values_are_escaped() -> None:
    evil = '<script>alert("x")</script>&\u202e'
    scenario = Scenario(start="12:00").add((evil, "12:00", evil), ("b", "12:01", evil)).end()
    run = run_of(
        scenario, "a b", define={"a": lw.col("value") == evil}, measures={evil: lw.first("value")}
    )
    diagram = run.diagram()
    for page in (diagram.to_svg(), diagram.to_html()):
        assert "<script>alert" not in page
        assert "\u202e" not in page
    ET.fromstring(diagram.to_svg())
    assert "<script>alert" not in run.explain(evil, "2000-01-01T12:00:00Z")._repr_html_()


def test_overlapping_matches_differ_in_height_and_many_are_cut() -> None:
    scenario = Scenario(start="12:00")
    rows = [(n, f"12:{n // 60:02}:{n % 60:02}", "a") for n in range(400)]
    run = run_of(scenario.add(*rows).end(), "a b c", define={}, skip="next", measures={})
    (panel,) = scene_of(run.diagram()).panels
    assert {arc.level for arc in panel.arcs} == {0, 1, 2}
    assert panel.notes == (
        "100 more rows are not shown: narrow between=", "198 of 398 matches are not shown",
    )  # fmt: skip
    between = ("2000-01-01T12:00:00Z", "2000-01-01T12:00:10Z")
    (panel,) = scene_of(run.diagram(between=between)).panels
    assert (len(panel.rows), len(panel.arcs)) == (10, 10)
    run.diagram().to_svg()


def test_a_diagram_without_rows_and_one_with_a_column() -> None:
    empty = run_of(Scenario(start="12:00").end()).diagram()
    assert "no elements and no panes" in str(empty)
    empty.to_svg()
    with pytest.raises(lw.InvalidArgument, match="Leave column= out"):
        run_of().diagram(column="value")
