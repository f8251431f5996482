"""Diagrams as SVG and HTML: well-formed, alone, escaped, readable."""

from __future__ import annotations

import html
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import lowwater as lw
from lowwater.display.palette import DARK, LIGHT, STYLES
from lowwater.testing import Scenario
from lowwater.viz import Diagram
from lowwater.viz.answers import _short
from lowwater.viz.shapes import Label, Rect, text_width
from lowwater.viz.shapes import Path as Line
from tests.unit.display.colours import contrast
from tests.unit.viz.viz_runs import NAMES, RETRACTING, diagram_of, named_diagram, nine_events

NAMESPACE = "{http://www.w3.org/2000/svg}"
EVIL = "</svg><script>alert('1')</script>&\"]]>\x00\x1b\ud800"
VALUE = EVIL.replace("\ud800", "")  # half a pair is no text that a stage takes


def evil_diagram() -> Diagram:
    scenario = Scenario(start="12:00").add((VALUE, "12:00:10", VALUE), at="12:01")
    scenario = scenario.add((VALUE, "12:00:20", "b"), at="12:02").end(at="12:03")
    windowing = lw.Windowing(windows=lw.FixedWindows("1m"), accumulation="accumulating")
    run = scenario.run_windowing(windowing, aggregate={EVIL: lw.collect()}, trace=True)
    return run.diagram()


@pytest.mark.parametrize("name", NAMES)
def test_svg_is_well_formed_and_alone(name: str) -> None:
    for text in (named_diagram(name).to_svg(), named_diagram(name).with_theme("dark").to_svg()):
        root = ET.fromstring(text)
        assert root.tag == f"{NAMESPACE}svg"
        assert_alone(text)
        assert "<script" not in text


def assert_alone(text: str) -> None:
    """Assert that nothing is loaded from elsewhere."""
    assert text.count("http") == text.count('xmlns="http://www.w3.org/2000/svg"') == 1
    for sign in ("@import", "url(", "href", "src=", "<image", "<link", "<use", "<iframe", "//www"):
        assert sign not in text.replace("http://www.w3.org/2000/svg", ""), sign


def test_html_is_alone_and_its_script_is_the_only_one() -> None:
    for text in (evil_diagram().to_html(), evil_diagram()._repr_html_()):
        assert_alone(text)
        parser = _Tags()
        parser.feed(text)
        assert parser.tags.count("script") == 1
        (answers,) = re.findall(r",answers=(\{.*?\}),last=", parser.script)
        assert "<" not in answers
        assert "alert" not in parser.script.replace(answers, "")


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.script = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script":
            self.script += data


def test_keys_and_values_are_escaped() -> None:
    text = evil_diagram().to_svg()
    root = ET.fromstring(text)  # which a bare "<" or a control character would not let through
    assert {child.tag for child in root.iter()} <= {
        NAMESPACE + tag for tag in ("svg", "title", "style", "rect", "path", "text")
    }
    words = " ".join(root.itertext())
    assert "<script>alert" in words


def test_notebooks_and_pages_show_the_whole_run_without_scripts() -> None:
    diagram = named_diagram("retracting")
    svg = diagram._repr_svg_()
    assert svg == diagram.to_svg()
    assert svg in diagram._repr_html_()
    assert "display:none" not in svg
    assert '<div class="lw-bar" style="display:none">' in diagram._repr_html_()
    assert diagram.to_html().startswith("<!DOCTYPE html>")


def test_the_same_run_gives_the_same_bytes() -> None:
    assert diagram_of(RETRACTING).to_html() == named_diagram("retracting").to_html()


@pytest.mark.parametrize("name", NAMES)
def test_no_label_covers_another_or_an_element(name: str) -> None:
    picture = named_diagram(name).picture
    labels = [shape for shape in picture.shapes if isinstance(shape, Label) and not shape.turned]
    assert len(labels) > 20
    for one, two in combinations(labels, 2):
        assert one.area.overlap(two.area) == 0, f"{one.text!r} covers {two.text!r}"
    signs = [s.area for s in picture.shapes if isinstance(s, Rect) and s.style == "kept"]
    plain = [label for label in labels if label.style in ("value", "timing", "retract-text")]
    for label in plain:
        assert not any(label.area.overlap(sign) for sign in signs), label.text


@pytest.mark.parametrize("name", NAMES)
def test_every_pane_is_labelled_inside_the_paper(name: str) -> None:
    diagram = named_diagram(name)
    picture = diagram.picture
    (panel,) = diagram.scene.panels
    values = [s.text for s in picture.shapes if isinstance(s, Label) and s.style == "value"]
    assert sorted(values) == sorted(box.value for box in panel.boxes)
    timings = [s.text for s in picture.shapes if isinstance(s, Label) and s.style == "timing"]
    assert sorted(timings) == sorted(box.label for box in panel.boxes)
    for shape in picture.shapes:
        if isinstance(shape, Label) and not shape.turned:
            area = shape.area
            assert 0 <= area.left < area.right <= picture.width, shape.text
            assert 0 <= area.top < area.bottom <= picture.height, shape.text
    assert picture.width == 800


@pytest.mark.parametrize("name", NAMES)
def test_every_shape_has_a_style_and_every_moment_a_frame(name: str) -> None:
    picture = named_diagram(name).picture
    moments = {frame.moment for frame in picture.frames}
    assert {shape.style for shape in picture.shapes} <= set(STYLES)
    assert {shape.since for shape in picture.shapes} - {None} <= moments
    shares = [frame.share for frame in picture.frames]
    assert shares == sorted(shares)
    assert 0 <= shares[0] < shares[-1] <= 1


def test_fates_differ_in_shape_and_colour() -> None:
    picture = named_diagram("watermark only, heuristic (the 9 is dropped as expired)").picture
    kept = [s for s in picture.shapes if isinstance(s, Rect) and s.style == "kept" and s.title]
    late = [s for s in picture.shapes if isinstance(s, Line) and s.style == "dropped-shape"]
    assert len(kept) == 8
    (nine,) = [line for line in late if line.title]
    assert len(nine.points) == 4
    assert nine.title is not None
    assert "its window had expired" in nine.title
    assert STYLES["kept"].stroke != STYLES["dropped-shape"].stroke


def test_light_and_dark() -> None:
    diagram = named_diagram("retracting")
    run = nine_events("heuristic").run_windowing(RETRACTING, aggregate=lw.sum(), trace=True)
    assert run.diagram(theme="dark") == diagram.with_theme("dark")
    auto = diagram.to_svg()
    assert "@media (prefers-color-scheme:dark)" in auto
    assert LIGHT["paper"] in auto
    assert DARK["paper"] in auto
    dark = diagram.with_theme("dark").to_svg()
    assert DARK["paper"] in dark
    assert LIGHT["paper"] not in dark
    assert "@media" not in dark
    with pytest.raises(lw.InvalidArgument, match="theme='drak'"):
        diagram.with_theme("drak")  # type: ignore[arg-type]


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_stands_out_from_the_paper(theme: dict[str, str]) -> None:
    for name, least in (
        ("ink", 7.0), ("quiet", 4.5), ("dropped", 3.0), ("retract", 3.0), ("mark", 3.0),
        ("ontime", 3.0),
    ):  # fmt: skip
        assert contrast(theme[name], theme["paper"]) >= least, name


def test_every_variable_is_defined() -> None:
    for text in (
        named_diagram("sessions").to_svg(),
        named_diagram("sessions").with_theme("light").to_svg(),
    ):
        used = set(re.findall(r"var\(--lw-([a-z]+)\)", text))
        assert used <= set(LIGHT) == set(DARK)
        assert set(re.findall(r'class="([a-z-]+)"', text)) <= set(STYLES)


def test_the_stepper_knows_every_frame() -> None:
    diagram = named_diagram("retracting")
    page = diagram.to_html()
    (found,) = re.findall(r"var frames=(\[\[.*?\]\]),answers", page)
    frames = json.loads(found)
    assert len(frames) == len(diagram.picture.frames)
    assert frames[-1][0] == "12:09:22"
    numbers = {int(number) for number in re.findall(r'data-since="(\d+)"', page)}
    assert max(numbers) == len(frames) - 1
    assert f'max="{len(frames) - 1}" value="{len(frames) - 1}"' in page


def test_many_elements_are_density_with_outliers() -> None:
    scenario = Scenario(start="12:00")
    for minute in range(20):
        many = [(n, f"12:{minute:02}:{n:02}", "A") for n in range(40)]
        scenario = scenario.add(*many, at=f"12:{minute + 1:02}")
        scenario = scenario.watermark(f"12:{minute:02}:30")
    scenario = scenario.add((99, "12:00:01", "A"), at="12:21").end(at="12:22")
    windowing = lw.Windowing(windows=lw.FixedWindows("1m"), accumulation="accumulating")
    diagram = scenario.run_windowing(windowing, aggregate=lw.sum(), trace=True).diagram()
    (panel,) = diagram.scene.panels
    assert sum(cell.count for cell in panel.cells) == 800
    assert [mark.outcome for mark in panel.marks].count("late") == 1
    assert len(panel.marks) == 21
    assert panel.notes == ("800 elements are drawn as density; the 20 latest are marked",)
    text = diagram.to_svg()
    ET.fromstring(text)
    assert text.count('class="dense"') == len(panel.cells) + 1  # and the legend's
    assert len(text) < 200_000


def test_widths_of_text_are_rather_too_much() -> None:
    assert text_width("ON TIME #0", 10) > 55
    assert text_width("漢字", 10) > 20
    assert text_width("", 10) == 0


def test_saving(tmp_path: Path) -> None:
    diagram = named_diagram("sessions")
    for kind, text in ((".svg", diagram.to_svg()), (".html", diagram.to_html())):
        diagram.save(tmp_path / f"run{kind}")
        assert (tmp_path / f"run{kind}").read_text(encoding="utf-8") == text
    diagram.save(str(tmp_path / "run.txt"))
    assert (tmp_path / "run.txt").read_text(encoding="utf-8") == str(diagram)
    with pytest.raises(lw.InvalidArgument, match=r"End it with one of \.gif, \.html, \.png, \.svg"):
        diagram.save(tmp_path / "run.jpg")
    with pytest.raises(lw.InvalidArgument, match="cannot be written"):
        diagram.save(tmp_path / "nowhere" / "run.svg")


@pytest.mark.parametrize(
    ("tick", "said"), [(7_000, "processing time (12:34)"), (7_000_000, "processing time")]
)
def test_names_of_times_leave_room_for_the_name_of_their_axis(tick: int, said: str) -> None:
    """A run by the wall clock takes milliseconds: ``12:34:56.789`` is too wide for every tick."""
    scenario = Scenario(start="12:34:05")
    start = lw.instant("2000-01-01T12:34:05.123Z")
    for n in range(9):
        scenario = scenario.add((1, "12:34:00", "a"), at=lw.Instant(start + n * tick))
    windows = lw.Windowing(windows=lw.FixedWindows("1m"))
    run = scenario.run_windowing(windows, aggregate=lw.count(), trace=True)
    picture = run.diagram().picture
    labels = [shape for shape in picture.shapes if isinstance(shape, Label)]
    (name,) = (label for label in labels if label.turned)
    ticks = [label for label in labels if label.anchor == "end" and label.size == 10.5]
    assert len(ticks) > 2
    assert all(label.x - text_width(label.text, 10.5) > name.x + 5 for label in ticks)
    assert name.text == said


def answers_of(page: str) -> dict[str, str]:
    found = re.search(r",answers=(\{.*?\}),last=", page)
    assert found is not None
    answers: dict[str, str] = json.loads(found.group(1))
    return answers


def test_a_click_answers_as_why_and_explain_do() -> None:
    run = nine_events("heuristic").run_windowing(RETRACTING, aggregate=lw.sum(), trace=True)
    answers = answers_of(run.diagram().to_html())
    (panel,) = run.diagram().scene.panels
    stage = run.trace.stage()
    assert len(panel.marks) == 9
    for mark in panel.marks:
        assert answers[mark.title] == str(run.why(stage.elements[mark.place])).strip()
    for box in panel.boxes:
        window = lw.Window(lw.Instant(box.left), lw.Instant(box.right))
        assert answers[box.title] == str(run.explain(panel.key, window)).strip()


KEYS = "ab"


def alike() -> lw.Stream:
    """Records of two keys that are alike in all else; the last corrects what there was."""
    rows = [{"at": at * 1_000_000, "key": key, "v": v} for at, v in
            ((0, 1), (3, 2), (21, 1), (24, 3), (23, 2)) for key in KEYS]  # fmt: skip
    return lw.from_iterable(rows, time="at", unit="us", watermark=lw.BoundedDisorder("9s"))


def traced(pipeline: Any) -> lw.Result:
    result: lw.Result = pipeline.collect(
        trace=True, bundle_size=2, clock=lw.ManualClock(0), progress=False
    )
    return result


def test_a_click_on_one_of_several_keys_answers_of_that_key() -> None:
    keyed = alike().key_by("key")
    result = traced(keyed.window(lw.FixedWindows("10s")).aggregate(n=lw.count()))
    page = result.diagram().to_html()
    answers = answers_of(page)
    said = {answers[title] for title in titles_of(page) if title in answers}
    for key in KEYS:
        assert len([text for text in said if f"key {key!r}, window" in text]) == 2
        assert len([text for text in said if f", key {key!r}\n" in text]) == 5


def test_a_click_on_a_side_of_a_join_answers_of_that_side() -> None:
    result = traced(alike().named("l").join(alike().named("r"), on="key", within="5s"))
    stage, page = result.trace.stage(), result.diagram().to_html()
    answers = answers_of(page)
    said = {answers[title] for title in titles_of(page) if title in answers}
    assert said == {_short(str(result.why(element))) for element in stage.elements}
    assert len(said) == 20


def test_a_click_on_a_row_of_several_keys_answers_of_that_key() -> None:
    keyed = alike().key_by("key")
    rising = {"up": lw.col("v") > lw.prev("v")}
    result = traced(keyed.match("low up+", define=rising, measures={"n": lw.count()}, within="1m"))
    page = result.diagram().to_html()
    answers = answers_of(page)
    said = {answers[title] for title in titles_of(page) if title in answers}
    assert len(said) == 10
    for key in KEYS:
        assert len([text for text in said if f", key {key!r}\n" in text]) == 5


def titles_of(page: str) -> list[str]:
    return [html.unescape(title) for title in re.findall("<title>([^<]*)</title>", page)]


def test_a_click_on_a_long_run_says_what_it_is_of() -> None:
    run = nine_events("heuristic").run_windowing(RETRACTING, aggregate=lw.sum(), trace=True)
    with mock.patch("lowwater.viz.answers.MOST_LOOKED_AT", 20):
        page = run.diagram().to_html()
    assert answers_of(page) == {}
    assert "answers[name]||name" in page
