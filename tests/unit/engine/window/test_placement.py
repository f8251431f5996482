"""Placement: windows for elements, and lateness judged on each (element, window) (S-O3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lowwater as lw
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import REASONS, Bundle
from lowwater.engine.window.placement import DroppedElements, Placement
from lowwater.time import END_OF_TIME, START_OF_TIME

Pair = tuple[int, tuple[int, int]]


def place(
    placement: Placement, watermark: int, *times: int
) -> tuple[list[Pair], list[tuple[int, tuple[int, int], str]]]:
    """Return (element, window) of what is placed, and of what is dropped with the reason."""
    at = np.array(times, dtype=np.int64)
    late = DroppedElements(watermark)
    bundle = Bundle(at, (Column(at),), {})
    element, start, end = placement.assign(bundle, watermark, late)
    which = range(len(start)) if element is None else element.tolist()
    placed = list(zip(which, zip(start.tolist(), end.tolist(), strict=True), strict=True))
    batch = late.batch()
    if batch is None:
        return placed, []
    assert batch.watermark == watermark
    windows = zip(batch.start.tolist(), batch.end.tolist(), strict=True)
    reasons = [REASONS[reason] for reason in batch.reason.tolist()]
    return placed, list(zip(batch.element.tolist(), windows, reasons, strict=True))


def placement(windows: Any, lateness: int = 0) -> Placement:
    return Placement(
        lw.Windowing(windows=windows, allowed_lateness=lateness, accumulation="discarding")
    )


def test_one_window_each() -> None:
    """
    time   0         10        20
           [---------)[--------)
              0    1      2
    """
    made = placement(lw.FixedWindows(10))
    assert place(made, START_OF_TIME, 3, 8, 12) == ([(0, (0, 10)), (1, (0, 10)), (2, (10, 20))], [])


@pytest.mark.parametrize(("watermark", "dropped"), [(14, False), (15, True), (16, True)])
def test_a_window_expires_when_the_watermark_reaches_its_end_and_lateness(
    watermark: int, dropped: bool
) -> None:
    """S-T3."""
    placed, late = place(placement(lw.FixedWindows(10), 5), watermark, 3, 12)
    assert late == ([(0, (0, 10), "expired")] if dropped else [])
    assert [element for element, _ in placed] == ([1] if dropped else [0, 1])


def test_an_element_dropped_from_one_window_may_be_placed_in_another() -> None:
    """
    time   0    5    10   15
           [---------)
                [---------)
                   0     W
    """
    placed, late = place(placement(lw.SlidingWindows(10, 5)), 12, 8)
    assert placed == [(0, (5, 15))]
    assert late == [(0, (0, 10), "expired")]


def test_lateness_is_judged_on_the_proto_window() -> None:
    placed, late = place(placement(lw.Sessions(4)), 10, 6, 7)
    assert placed == [(1, (7, 11))]
    assert late == [(0, (6, 10), "expired")]


def test_dropped_elements_come_in_order_of_element_then_window() -> None:
    _, late = place(placement(lw.SlidingWindows(10, 5)), 50, 23, 8)
    assert [(element, window) for element, window, _ in late] == [
        (0, (15, 25)),
        (0, (20, 30)),
        (1, (0, 10)),
        (1, (5, 15)),
    ]


def test_what_falls_in_no_window() -> None:
    """S-W2: between sliding windows there may be gaps."""
    assert place(placement(lw.SlidingWindows(2, 5)), START_OF_TIME, 3) == (
        [],
        [(0, (0, 0), "unwindowed")],
    )


def test_what_expired_under_a_shorter_lateness_stays_expired() -> None:
    made = placement(lw.FixedWindows(10), 100)
    made.resume(0, 20, START_OF_TIME)
    assert made.gone_until == 20
    assert place(made, 20, 12, 22) == ([(1, (20, 30))], [(0, (10, 20), "expired")])


def test_a_longer_former_lateness_changes_nothing_that_was_gone() -> None:
    made = placement(lw.FixedWindows(10), 0)
    made.resume(50, 60, 30)
    assert made.gone_until == 30
    made.resume(5, 60, 30)
    assert made.gone_until == 55


def test_expiry_saturates_at_the_end_of_time() -> None:
    made = placement(lw.FixedWindows(10), 100)
    ends = np.array([10, END_OF_TIME - 5], dtype=np.int64)
    assert made.expiry(ends).tolist() == [made.expires(10), END_OF_TIME]
