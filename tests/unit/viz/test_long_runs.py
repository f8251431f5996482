"""Diagrams of long runs stay small, and say what they leave out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lowwater as lw

MOST_BYTES = 300_000
EARLY = lw.AfterWatermark(early=lw.AfterCount(20), late=lw.AfterCount(1))
WINDOWS: dict[str, tuple[int, Any, dict[str, Any]]] = {
    "one key": (1, lw.FixedWindows("10ms"), {"accumulation": "accumulating"}),
    "sessions": (8, lw.Sessions("5ms"), {"accumulation": "retracting", "trigger": EARLY}),
    "sliding": (
        3,
        lw.SlidingWindows("200ms", "20ms"),
        {"accumulation": "retracting", "trigger": EARLY},
    ),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_the_svg_of_a_long_run_is_small(name: str) -> None:
    keys, windows, how = WINDOWS[name]
    random, count = np.random.default_rng(1), 12_000
    at = np.arange(count, dtype=np.int64) * 500 + random.integers(0, 1_000_000, count)
    table = pa.table(
        {
            "at": pa.array(at).cast(pa.timestamp("us")),
            "key": random.integers(0, keys, count),
            "value": random.integers(0, 100, count),
        }
    )
    sums = (
        lw.from_arrow(table, time="at", watermark=lw.BoundedDisorder("800ms"), timezone="UTC")
        .key_by("key")
        .window(windows, allowed_lateness="100ms", **how)
        .aggregate(total=lw.sum("value"))
    )
    result = sums.collect(
        trace=lw.Tracing(limit=2_000), bundle_size=50, clock=lw.ManualClock(0), progress=False
    )
    assert result.trace.stage().sample is not None
    svg = result.diagram().to_svg()
    assert len(svg.encode()) <= MOST_BYTES
    assert "are drawn as density" in svg
    assert " of 12,000 elements are in the trace" in svg
    assert " of 12,000 elements are in the trace" in str(result.diagram())


COUNT, SECOND = 20_000, 1_000_000


@pytest.fixture(scope="module")
def long_run() -> lw.Result:
    at = np.arange(COUNT, dtype=np.int64) * SECOND
    at[::20] = np.maximum(at[::20] - 600 * SECOND, 0)  # dropped
    at[1::20] = np.maximum(at[1::20] - 40 * SECOND, 0)  # corrections
    return (
        lw.from_arrow(
            pa.table(
                {"at": pa.array(at).cast(pa.timestamp("us")), "key": at * 0, "value": at % 7}
            ),
            time="at", watermark=lw.Ascending(), timezone="UTC",
        )
        .key_by("key")
        .window(
            lw.FixedWindows("20s"), allowed_lateness="2m", accumulation="retracting",
            trigger=lw.AfterWatermark(late=lw.AfterCount(1)),
        )
        .aggregate(total=lw.sum("value"))
        .collect(trace=lw.Tracing(limit=None), bundle_size=10, progress=False)
    )  # fmt: skip


def test_what_is_drawn_is_spread_over_the_run(long_run: lw.Result) -> None:
    (panel,) = long_run.diagram().scene.panels
    drawn = {
        "panes": [box.left for box in panel.boxes],
        "dropped": [mark.x for mark in panel.marks if mark.outcome == "late"],
        "retractions": [retraction.left for retraction in panel.retractions],
    }
    for what, places in drawn.items():
        tenths = np.histogram(places, bins=10, range=(0, COUNT * SECOND))[0]
        assert tenths.min() >= len(places) // 20, (what, tenths)
    for kind in ("dropped", "ON_TIME", "LATE"):
        cells = [cell for cell in panel.cells if cell.kind == kind]
        assert min(cell.left for cell in cells) < 0.1 * COUNT * SECOND
        assert max(cell.right for cell in cells) > 0.9 * COUNT * SECOND


def test_what_is_not_drawn_is_counted(long_run: lw.Result) -> None:
    diagram = long_run.diagram()
    (panel,) = diagram.scene.panels
    late_panes = sum(pane.timing == "LATE" and pane.kind == "insert" for pane in long_run.panes)
    assert sum(cell.count for cell in panel.cells if cell.kind == "LATE") == late_panes
    assert len(diagram.to_html()) < 400_000
