"""Diagrams as text: what terminals and failing tests show."""

from __future__ import annotations

from pathlib import Path

import pytest

import lowwater as lw
from lowwater.testing import Scenario
from tests.unit.viz_runs import all_diagrams

DIAGRAMS = all_diagrams()

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
    assert str(DIAGRAMS[GOLDENS[golden]]) == expected


@pytest.mark.parametrize("name", DIAGRAMS)
def test_plain_signs_in_lines_of_bounded_width(name: str) -> None:
    text = str(DIAGRAMS[name])
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 110
    narrow = DIAGRAMS[name].to_text(width=60)
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


def test_a_run_with_nothing_in_it() -> None:
    windowing = lw.Windowing(windows=lw.FixedWindows("1m"), accumulation="accumulating")
    diagram = Scenario(start="12:00").end().run_windowing(windowing, trace=True).diagram()
    assert str(diagram).startswith("scenario: value = collect(): FixedWindows('1m')")
    assert diagram.to_svg()
    assert repr(diagram) == "<diagram of scenario, keys: none>"
