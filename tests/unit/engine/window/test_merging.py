"""Windows that merge: which rows are theirs, and what their triggers count from then on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import lowwater as lw
from lowwater.engine.records.steps import EndOfInput, WatermarkAdvance
from lowwater.engine.window.operator import WindowOperator
from tests.kernels import BOTH, using
from tests.unit.engine.window.test_operator import bundle, panes


@pytest.mark.parametrize("kernels", BOTH)
def test_a_merge_of_every_other_window_takes_those_between_apart(kernels: Any) -> None:
    """A user's merge need not be of neighbours: the rows of its groups are in turn."""

    def every_other(active: Sequence[Any]) -> list[Any]:
        groups: list[Any] = []
        for odd in (0, 1) if len(active) == 6 else ():
            members = [window for window in active if window.start // 10 % 2 == odd]
            if members:
                groups.append((members, (members[0].start, members[-1].end)))
        return groups

    windows = lw.CustomWindows(
        lambda at: [(at, at + 1)], merge_active=every_other, name="every other"
    )
    windowing = lw.Windowing(windows=windows, accumulation="discarding")
    with using(kernels):
        stage = WindowOperator(windowing, {"n": lw.count(), "all": lw.collect("v")})
        for at in (0, 10, 20, 30):  # each is a window of its own until there are six
            stage.step(bundle([at], ["a"], [at]))
        stage.step(bundle([40, 50], ["a", "a"], [40, 50]))
        stage._check()
        assert stage.open_windows == 2
        found = [(p.window, dict(p.values)) for p in panes(stage, EndOfInput())]
    assert found == [
        (lw.Window(lw.Instant(0), lw.Instant(41)), {"n": 3, "all": [0, 20, 40]}),
        (lw.Window(lw.Instant(10), lw.Instant(51)), {"n": 3, "all": [10, 30, 50]}),
    ]
    assert stage.state_rows == 0


def test_late_elements_of_late_windows_that_merge_count_together() -> None:
    """S-R2: two windows with one late element each, one between them, and the fourth."""
    windowing = lw.Windowing(
        windows=lw.Sessions(10, merge_touching=False),
        trigger=lw.AfterWatermark(late=lw.AfterCount(4)),
        accumulation="accumulating",
        allowed_lateness=200,
    )
    stage = WindowOperator(windowing, {"n": lw.count()})
    stage.step(bundle([0, 14], ["a", "a"]))
    assert len(panes(stage, WatermarkAdvance(40))) == 2
    for at in (1, 15, 8):
        assert panes(stage, bundle([at], ["a"])) == []
    (pane,) = panes(stage, bundle([9], ["a"]))
    assert (pane.timing, dict(pane.values)) == ("LATE", {"n": 6})


def test_a_session_that_grows_waits_for_its_completion_again() -> None:
    """S-R2: what follows the watermark in a sequence does not fire before it."""
    windowing = lw.Windowing(
        windows=lw.Sessions(10, merge_touching=False),
        trigger=lw.AfterEach(lw.AfterWatermark(), lw.Repeatedly(lw.AfterCount(2))),
        accumulation="accumulating",
        allowed_lateness=200,
    )
    stage = WindowOperator(windowing, {"n": lw.count()})
    stage.step(bundle([0], ["a"]))
    assert [p.timing for p in panes(stage, WatermarkAdvance(15))] == ["ON_TIME"]
    assert panes(stage, bundle([8], ["a"])) == []  # it ends at 18 now
    (pane,) = panes(stage, WatermarkAdvance(20))
    assert (pane.timing, dict(pane.values)) == ("ON_TIME", {"n": 2})
    assert panes(stage, bundle([7], ["a"])) == []
    (pane,) = panes(stage, bundle([6], ["a"]))
    assert (pane.timing, dict(pane.values)) == ("LATE", {"n": 4})
