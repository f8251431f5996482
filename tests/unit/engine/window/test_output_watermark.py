"""What a stage promises to the one behind it: its output watermark and the holds on it."""

from __future__ import annotations

from typing import Any

import numpy as np

import lowwater as lw
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, EndOfInput, StepInput, WatermarkAdvance
from lowwater.engine.window.operator import WindowOperator

SECOND = 1_000_000


def operator(trigger: lw.Trigger | None = None, **options: Any) -> WindowOperator:
    trigger = lw.Default() if trigger is None else trigger
    options = {"accumulation": "accumulating", **options}
    windowing = lw.Windowing(windows=lw.FixedWindows("10s"), trigger=trigger, **options)
    return WindowOperator(windowing, {"n": lw.count()})


def bundle(*seconds: int) -> Bundle:
    times = np.array(seconds, dtype=np.int64) * SECOND
    return Bundle(times, (Column.of_objects(["A"] * len(seconds)),), {})


def test_unshown_elements_hold_the_output_watermark_at_their_output_time() -> None:
    """S-H2; S-H3: the output watermark is the minimum of the input's and the holds."""
    stage = operator()
    stage.step(bundle(3))
    stage.step(WatermarkAdvance(5 * SECOND))
    assert stage.output_watermark == 5 * SECOND  # the hold, at 9.999999 s, is not reached
    stage.step(bundle(13))
    stage.step(WatermarkAdvance(10 * SECOND))  # the first window is shown, so its hold is gone
    assert stage.output_watermark == 10 * SECOND
    stage.step(EndOfInput())
    assert stage.output_watermark == lw.END_OF_TIME


def test_a_hold_stands_at_the_earliest_unshown_element() -> None:
    """S-H2 with the output time of S-H1 ``"earliest"``; a firing releases the hold."""
    stage = operator(lw.Repeatedly(lw.AfterCount(2)), timestamps="earliest")
    stage.step(WatermarkAdvance(1 * SECOND))
    stage.step(bundle(3))
    stage.step(WatermarkAdvance(8 * SECOND))
    assert stage.output_watermark == 3 * SECOND
    shown = stage.step(bundle(9)).panes
    assert shown is not None
    assert list(shown.timestamp) == [3 * SECOND]
    assert stage.output_watermark == 8 * SECOND


def test_no_pane_comes_below_the_output_watermark_that_stood_before() -> None:
    """S-H2: a stage behind this one never sees a pane as late because this one waited."""
    stage = operator(lw.Repeatedly(lw.AfterCount(3)), timestamps="earliest", allowed_lateness="5s")
    promised = stage.output_watermark
    steps: list[StepInput] = [
        bundle(1, 12),
        WatermarkAdvance(9 * SECOND),
        bundle(13, 14),
        WatermarkAdvance(11 * SECOND),
        bundle(15, 22),
        WatermarkAdvance(40 * SECOND),
        EndOfInput(),
    ]
    for step in steps:
        panes = stage.step(step).panes
        if panes is not None:
            assert (np.asarray(panes.timestamp) >= promised).all()
        assert stage.output_watermark >= promised
        promised = stage.output_watermark
    assert promised == lw.END_OF_TIME


def test_the_output_watermark_never_goes_back() -> None:
    """S-H3, S-T3: neither for an input that goes back nor for a hold below what was promised."""
    stage = operator(lw.Repeatedly(lw.AfterCount(2)), timestamps="earliest", allowed_lateness="1h")
    stage.step(WatermarkAdvance(30 * SECOND))
    assert stage.output_watermark == 30 * SECOND
    stage.step(bundle(3))  # late, but admitted
    assert stage.output_watermark == 30 * SECOND
    stage.step(WatermarkAdvance(20 * SECOND))
    assert stage.output_watermark == 30 * SECOND
