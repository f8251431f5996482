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
    assert "not shown" in svg or "density" in svg
    assert " of 12,000 elements are in the trace" in svg
    assert " of 12,000 elements are in the trace" in str(result.diagram())
