"""Goldens of values over rows: by time and by number, and stages over them."""

from __future__ import annotations

from typing import Any

import lowwater as lw
from lowwater.pipeline.outputs import Writing
from tests.goldens.golden import Golden
from tests.goldens.rows import feed_sides
from tests.goldens.windows import CLOCK, OFTEN, read, written


def ranges() -> list[Writing]:
    """Values over rows of each kind, and stages over them."""
    keyed = read("left").select("at", "arrived", "id", "key", "v", "big", "s", "dec").key_by("key")
    results: dict[str, Any] = {
        "n": lw.count(), "mean": lw.mean("v"), "total": lw.sum("dec"), "most": lw.max("big"),
        "texts": lw.collect("s"), "high": lw.count(where=lw.col("v") > 3), "rank": lw.rank("v"),
    }  # fmt: skip
    by_time = keyed.over("70s", allowed_lateness="50s", **results).named("by time")
    by_rows = keyed.over(
        rows=3, order="big", allowed_lateness="50s", nth=lw.row_number(), before=lw.prev("s", 2),
        **results,
    ).named("by rows")  # fmt: skip
    kept = keyed.over(
        rows=4, keep="60s", step=lw.col("v") - lw.prev("v"), last=lw.last("id"), late="drop"
    ).named("kept")
    sums = (
        by_time.key_by("key")
        .window(lw.FixedWindows("60s"), trigger=OFTEN, accumulation="retracting")
        .aggregate(rows=lw.count(), most=lw.max("n"))
        .named("sums")
    )
    again = sums.key_by("key").over("300s", panes=lw.sum("rows")).named("again")
    return written(by_time, by_rows, kept, sums, again)


GOLDENS = (Golden(name="over", feed=feed_sides, outputs=ranges, clock=CLOCK),)
