"""Goldens of windows of a number of records, and of windows without records."""

from __future__ import annotations

from typing import Any

import lowwater as lw
from lowwater.pipeline.outputs import Writing
from tests.goldens.golden import Golden
from tests.goldens.rows import feed_sides
from tests.goldens.windows import CLOCK, OFTEN, read, written


def counts() -> list[Writing]:
    """Windows of a number of records of each kind, and stages over them."""
    keyed = read("left").select("at", "arrived", "id", "key", "v", "big", "s", "dec").key_by("key")
    results: dict[str, Any] = {
        "n": lw.count(), "mean": lw.mean("v"), "total": lw.sum("dec"), "most": lw.max("big"),
        "texts": lw.collect("s"), "high": lw.count(where=lw.col("v") > 3), "last": lw.last("id"),
    }  # fmt: skip
    apart = keyed.window(lw.CountWindows(4)).aggregate(**results).named("apart")
    moving = keyed.window(lw.CountWindows(5, every=2)).aggregate(**results).named("moving")
    again = apart.key_by("key").window(lw.CountWindows(2)).aggregate(n=lw.sum("n")).named("again")
    timed = (
        moving.key_by("key").window(lw.FixedWindows("60s")).aggregate(n=lw.count()).named("timed")
    )
    return written(apart, moving, again, timed)


def filled() -> list[Writing]:
    """Windows without records of each kind, in each mode, and a stage over them."""
    keyed = read("left").select("at", "arrived", "id", "key", "v", "big", "s", "dec").key_by("key")
    results: dict[str, Any] = {
        "n": lw.count(), "mean": lw.mean("v"), "total": lw.sum("dec"), "texts": lw.collect("s"),
    }  # fmt: skip
    fixed = keyed.window(
        lw.FixedWindows("30s"), fill="3 windows", allowed_lateness="50s", accumulation="retracting"
    )
    sliding = keyed.window(
        lw.SlidingWindows("60s", "20s"), fill=lw.until_idle("2m"), trigger=OFTEN,
        allowed_lateness="50s", accumulation="discarding",
    )  # fmt: skip
    days = keyed.window(lw.CalendarWindows(days=1), fill="1 window")
    first = fixed.aggregate(**results).named("fixed")
    again = (
        first.key_by("key")
        .window(lw.FixedWindows("2m"), fill="2 windows", accumulation="retracting")
        .aggregate(panes=lw.count(), n=lw.sum("n"))
        .named("again")
    )
    return written(
        first,
        sliding.aggregate(n=lw.count(), total=lw.sum("v")).named("sliding"),
        days.aggregate(**results).named("days"),
        again,
    )


GOLDENS = (
    Golden(name="counted", feed=feed_sides, outputs=counts, clock=CLOCK),
    Golden(name="filled", feed=feed_sides, outputs=filled, clock=CLOCK),
)
