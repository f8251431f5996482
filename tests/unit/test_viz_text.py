"""Diagrams as text: what terminals and failing tests show."""

from __future__ import annotations

import pytest

import lowwater as lw
from lowwater.testing import Scenario
from tests.unit.viz_runs import all_diagrams

DIAGRAMS = all_diagrams()

WATERMARK_ONLY = """\
scenario: value = sum(): FixedWindows('2m'), AfterWatermark(), accumulating
came              12:00       12:02      12:04      12:06       12:08  event time, 2000-01-01
12:05:10.900000   W           |          |          |           |
12:05:19          : (5)       |          |          |           |
12:05:39          :           |(7)       |          |           |
12:06:00          |===========W          |          |           |    [12:00, 12:02) 5 ON TIME #0
12:06:13          |           :       (3)|          |           |
12:06:39          |           :          |(4)       |           |
12:07:06          |           :    (8)   |          |           |
12:07:19          |           :          |          |  (3)      |
12:07:30          |           |==========W          |           |    [12:02, 12:04) 18 ON TIME #0
12:07:41          |           |          |==========W           |    [12:04, 12:06) 4 ON TIME #0
12:08:19          |      <9>  |          |          :           |    9 late, dropped: its window had expired
12:08:39          |           |          |          :       (8) |
12:09:00          |           |          |          :         (1)
12:09:22          |           |          |          |===========|    [12:06, 12:08) 12 ON TIME #0
                                                                     the watermark has passed all
(v) element  <v> late, dropped  W watermark  === ON TIME pane
"""

EARLY_ON_TIME_LATE = """\
scenario: value = sum(): FixedWindows('2m'), AfterWatermark(early=AfterProcessingTime('1m'), late=AfterCount(1)), accumulating, allowed lateness 1d
came              12:00       12:02      12:04      12:06       12:08  event time, 2000-01-01
12:05:10.900000   W           |          |          |           |
12:05:19          : (5)       |          |          |           |
12:05:39          :           |(7)       |          |           |
12:06:00          |===========W          |          |           |    [12:00, 12:02) 5 ON TIME #0
12:06:13          |           :       (3)|          |           |
12:06:39          |           :----------|(4)       |           |    [12:02, 12:04) 10 EARLY #0
12:07:06          |           :    (8)   |          |           |
12:07:19          |           :          |          |  (3)      |
12:07:30          |           |==========W          |           |    [12:02, 12:04) 18 ON TIME #1
12:07:39          |           |          :----------|           |    [12:04, 12:06) 4 EARLY #0
12:07:41          |           |          |==========W           |    [12:04, 12:06) 4 ON TIME #1
12:08:19          |~~~~~~(9)~~|          |          :-----------|    [12:06, 12:08) 3 EARLY #0
                                                                     [12:00, 12:02) 14 LATE #1
12:08:39          |           |          |          :       (8) |
12:09:00          |           |          |          :         (1)
12:09:22          |           |          |          |===========|    [12:06, 12:08) 12 ON TIME #1
                                                                     the watermark has passed all
(v) element  W watermark  --- EARLY pane  === ON TIME pane  ~~~ LATE pane
"""

RETRACTING = """\
scenario: value = sum(): FixedWindows('2m'), AfterWatermark(early=AfterProcessingTime('1m'), late=AfterCount(1)), retracting, allowed lateness 1d
came              12:00       12:02      12:04      12:06       12:08  event time, 2000-01-01
12:05:10.900000   W           |          |          |           |
12:05:19          : (5)       |          |          |           |
12:05:39          :           |(7)       |          |           |
12:06:00          |===========W          |          |           |    [12:00, 12:02) 5 ON TIME #0
12:06:13          |           :       (3)|          |           |
12:06:39          |           :----------|(4)       |           |    [12:02, 12:04) 10 EARLY #0
12:07:06          |           :    (8)   |          |           |
12:07:19          |           :          |          |  (3)      |
12:07:30          |           |==========W          |           |    [12:02, 12:04) -10 taken back
                                                                     [12:02, 12:04) 18 ON TIME #1
12:07:39          |           |          :----------|           |    [12:04, 12:06) 4 EARLY #0
12:07:41          |           |          |==========W           |    [12:04, 12:06) -4 taken back
                                                                     [12:04, 12:06) 4 ON TIME #1
12:08:19          |~~~~~~(9)~~|          |          :-----------|    [12:00, 12:02) -5 taken back
                                                                     [12:06, 12:08) 3 EARLY #0
                                                                     [12:00, 12:02) 14 LATE #1
12:08:39          |           |          |          :       (8) |
12:09:00          |           |          |          :         (1)
12:09:22          |           |          |          |===========|    [12:06, 12:08) -3 taken back
                                                                     [12:06, 12:08) 12 ON TIME #1
                                                                     the watermark has passed all
(v) element  W watermark  --- EARLY pane  === ON TIME pane  ~~~ LATE pane
"""

SESSIONS = """\
scenario: value = sum(): Sessions('1m'), AfterWatermark(early=AfterProcessingTime('1m'), late=AfterCount(1)), retracting, allowed lateness 1d
came                       12:02      12:04      12:06      12:08  event time, 2000-01-01
12:05:10.900000   |     |    |     |         |      |     |     |
12:05:19         (5)    |    |     |         |      |     |     |
12:05:39          |     |   (7)    |         |      |     |     |
12:06:00          |=====|  W |     |         |      |     |     |    [12:00:26, 12:01:26) 5 ON TIME #0
12:06:13          |     |  : |     (3)       |      |     |     |
12:06:39          |     |  : |-----|  (4)    |      |     |     |    2 windows became [12:03:39, 12:05:19)
                                                                     [12:02:26, 12:03:26) 7 EARLY #0
12:07:06          |     |  : |  (8)|         |      |     |     |    3 windows became [12:02:26, 12:05:19)
12:07:13          |     |  : |---------------|      |     |     |    [12:02:26, 12:03:26) -7 taken back
                                                                     [12:02:26, 12:05:19) 22 EARLY #0
12:07:19          |     |  : |     |         |     (3)    |     |
12:07:30          |     |    |     |  W      |      |     |     |
12:07:41          |     |    |===============|   W  |     |     |    [12:02:26, 12:05:19) -22 taken back
                                                                     [12:02:26, 12:05:19) 22 ON TIME #1
12:08:19          |    (9)~~~|     |         |   :  |-----|     |    [12:06:39, 12:07:39) 3 EARLY #0
                                                                     [12:01:26, 12:02:26) 9 LATE #0
12:08:39          |     |    |     |         |   :  |   (8)     |    2 windows became [12:06:39, 12:08:26)
12:09:00          |     |    |     |         |   :  |    (1)    |    2 windows became [12:06:39, 12:08:46)
12:09:22          |     |    |     |         |      |===========|    [12:06:39, 12:07:39) -3 taken back
                                                                     [12:06:39, 12:08:46) 12 ON TIME #0
                                                                     the watermark has passed all
(v) element  W watermark  --- EARLY pane  === ON TIME pane  ~~~ LATE pane
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("watermark only, heuristic (the 9 is dropped as expired)", WATERMARK_ONLY),
        (
            "early each minute, on time, late each element; accumulating, heuristic",
            EARLY_ON_TIME_LATE,
        ),
        ("retracting", RETRACTING),
        ("sessions", SESSIONS),
    ],
)
def test_golden(name: str, expected: str) -> None:
    assert str(DIAGRAMS[name]) == expected


@pytest.mark.parametrize("name", DIAGRAMS)
def test_plain_signs_in_lines_of_bounded_width(name: str) -> None:
    text = str(DIAGRAMS[name])
    assert text.isascii()
    title, *lines = text.splitlines()
    assert title == DIAGRAMS[name].scene.title
    assert max(map(len, lines)) <= 140
    narrow = DIAGRAMS[name].to_text(width=60)
    assert max(map(len, narrow.splitlines()[1:])) < max(map(len, lines))


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
