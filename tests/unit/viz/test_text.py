"""Diagrams as text: what terminals and failing tests show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.testing import Scenario
from lowwater.viz import Diagram
from tests.unit.viz.viz_runs import NAMES, named_diagram

GOLDENS = {
    "watermark_only": "watermark only, heuristic (the 9 is dropped as expired)",
    "early_on_time_late": "early each minute, on time, late each element; accumulating, heuristic",
    "retracting": "retracting",
    "sessions": "sessions",
}
FOLDER = Path(__file__).parent / "timelines"


@pytest.mark.parametrize("golden", GOLDENS)
def test_golden(golden: str) -> None:
    expected = (FOLDER / f"{golden}.txt").read_text(encoding="ascii")
    assert str(named_diagram(GOLDENS[golden])) == expected


@pytest.mark.parametrize("name", NAMES)
def test_plain_signs_in_lines_of_bounded_width(name: str) -> None:
    text = str(named_diagram(name))
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 110
    narrow = named_diagram(name).to_text(width=60)
    assert max(map(len, narrow.splitlines())) < max(map(len, text.splitlines()))


def test_many_moments_leave_out_the_middle() -> None:
    scenario = Scenario(start="12:00")
    for minute in range(50):
        scenario = scenario.add((minute, f"12:{minute:02}", "A"), at=f"12:{minute:02}:30")
    windowing = lw.Windowing(windows=lw.FixedWindows("1h"), accumulation="accumulating")
    diagram = scenario.run_windowing(windowing, trace=True).diagram()
    text = diagram.to_text(rows=11)
    assert "... 39 more moments ..." in text
    for minute, there in ((0, True), (5, True), (6, False), (44, False), (45, True), (49, True)):
        assert (f"12:{minute:02}:30" in text) == there, minute
    assert "more moments" not in diagram.to_text(rows=50)
    with pytest.raises(lw.InvalidArgument, match="rows=1"):
        diagram.to_text(rows=1)
    with pytest.raises(lw.InvalidArgument, match="width=10"):
        diagram.to_text(width=10)


def test_keys_stand_one_below_the_other() -> None:
    scenario = Scenario(start="12:00").add((1, "12:00:10", "a"), at="12:01")
    scenario = scenario.add((2, "12:00:20", "b\n\x1b[31m"), at="12:02").end(at="12:03")
    windowing = lw.Windowing(windows=lw.FixedWindows("1m"), accumulation="accumulating")
    lines = str(scenario.run_windowing(windowing, trace=True).diagram()).splitlines()
    assert "a:" in lines
    assert "b  [31m:" in lines  # no key can write to the terminal


def counted(minutes: int, windows: object = "1m", **how: Any) -> Diagram:
    """Return the diagram of a run of one element a minute, behind a watermark a minute before."""
    scenario = Scenario(start="12:00")
    for minute in range(minutes):
        scenario = scenario.add((minute, f"12:{minute:02}", "a")).watermark(f"12:{minute:02}")
    chosen = lw.FixedWindows(windows) if isinstance(windows, str) else windows
    windowing = lw.Windowing(windows=chosen, accumulation="accumulating")  # type: ignore[arg-type]
    run = scenario.end().run_windowing(windowing, trace=True)
    return run.diagram(**how)


def test_steps_stand_apart_from_the_first_tick() -> None:
    axis = next(line for line in str(counted(2)).splitlines() if line.startswith("step"))
    assert axis.startswith("step  "), axis


def test_many_elements_begin_with_the_first_step() -> None:
    scenario = Scenario(start="12:00")
    for second in range(400):
        scenario = scenario.add((1, f"12:{second // 60:02}:{second % 60:02}", "a"))
    windowing = lw.Windowing(windows=lw.FixedWindows("1m"), accumulation="accumulating")
    diagram = scenario.end().run_windowing(windowing, trace=True).diagram()
    assert diagram.scene.steps
    (panel,) = diagram.scene.panels
    assert panel.cells
    assert min(cell.bottom for cell in panel.cells) >= 1
    assert not [line for line in str(diagram).splitlines() if line.startswith("-")]


def test_what_the_watermark_passed_is_said_once_and_truly() -> None:
    lines = str(counted(9, between=("2000-01-01T12:01Z", "2000-01-01T12:04Z"))).splitlines()
    told = [line for line in lines if "has passed" in line]
    assert [line.rpartition("  ")[2].strip() for line in told] == [
        "the watermark has passed everything shown", "the watermark has passed everything",
    ]  # fmt: skip
    assert "passed everything" in lines[-2]  # above the legend
    moments = [line for line in lines if line[:1].isdigit()]
    assert all("|" in line and line.strip("0123456789 |") for line in moments), lines


def test_a_part_of_a_window_is_not_all_time() -> None:
    part = ("2000-01-01T12:01Z", "2000-01-01T12:02Z")
    assert "all time" not in str(counted(4, "10m", between=part))
    drawn = counted(4, lw.GlobalWindow())
    assert "all time [0, 1, 2, 3]" in str(drawn)
    assert "all time emits value = [0, 1, 2, 3]" in drawn.to_svg()
    assert "us)" not in drawn.to_svg()


def test_an_element_taken_back_is_no_negative_value() -> None:
    events = [{"k": "a", "v": value, "at": f"2000-01-01T12:00:{value:02}Z"} for value in (5, 7)]
    first = (
        lw.from_iterable(events, time="at", watermark=lw.Ascending())
        .key_by("k")
        .window(
            lw.FixedWindows("1m"),
            trigger=lw.AfterWatermark(early=lw.AfterCount(1)),
            accumulation="retracting",
        )
        .aggregate(v=lw.sum("v"))
    )
    second = (
        first.key_by("k")
        .window(lw.FixedWindows("1h"), accumulation="accumulating")
        .aggregate(total=lw.sum("v"))
    )
    result = second.collect(trace=True, bundle_size=1, clock=lw.ManualClock("2000-01-01T12:05Z"))
    text = str(result.diagram())
    assert "[-5]" in text
    assert "(-5)" not in text
    assert "[-v] retracted element" in text


def test_a_key_without_signs_has_a_heading() -> None:
    scenario = Scenario(start="12:00").add((1, "12:00:10", "")).add((2, "12:00:20", "b")).end()
    windowing = lw.Windowing(windows=lw.FixedWindows("1m"), accumulation="accumulating")
    assert "'':" in str(scenario.run_windowing(windowing, trace=True).diagram()).splitlines()


def test_whole_records_are_called_a_group() -> None:
    events = [{"k": "a", "v": 1, "at": "2000-01-01T12:00:00Z"}]
    stream = lw.from_iterable(events, time="at").key_by("k").window(lw.FixedWindows("1m"))
    for pipeline, said in (
        (stream.group(), "records = group()"),
        (stream.group(name="all"), "all = group()"),
        (stream.group("v"), "records = collect('v')"),
    ):
        result = pipeline.collect(trace=True)
        shown = (
            str(result.diagram()), str(pipeline.graph()), pipeline.to_mermaid(),
            pipeline.explain(), repr(pipeline),
        )  # fmt: skip
        assert not [text for text in shown if "__lw" in text]
        assert all(said in text for text in shown[:4])


def test_a_run_or_a_stretch_with_nothing_in_it_says_so() -> None:
    windowing = lw.Windowing(windows=lw.FixedWindows("1m"), accumulation="accumulating")
    empty = Scenario(start="12:00").end().run_windowing(windowing, trace=True)
    assert "no elements and no panes in this run" in str(empty.diagram())
    with pytest.raises(lw.InvalidArgument, match="There are no keys in this run"):
        empty.diagram(key="a")
    later = ("2000-01-01T13:00Z", "2000-01-01T14:00Z")
    stretch = "from 2000-01-01T13:00:00Z to 2000-01-01T14:00:00Z"
    drawn = counted(2, between=later)
    assert f"no elements and no panes {stretch}" in str(drawn)
    assert f"no elements and no panes {stretch}" in drawn.to_svg()
    elsewhere = r"occurs in this run, but not from .*13:00"
    with pytest.raises(lw.InvalidArgument, match=elsewhere) as told:
        counted(2, between=later, key="a")
    assert f"There are no keys {stretch}" in str(told.value)
    with pytest.raises(lw.InvalidArgument, match="does not occur in this run"):
        counted(2, between=later, key="b")


def test_a_run_with_nothing_in_it() -> None:
    windowing = lw.Windowing(windows=lw.FixedWindows("1m"), accumulation="accumulating")
    diagram = Scenario(start="12:00").end().run_windowing(windowing, trace=True).diagram()
    assert str(diagram).startswith("scenario: value = collect(): FixedWindows('1m')")
    assert diagram.to_svg()
    assert repr(diagram) == "<diagram of scenario, keys: none>"
