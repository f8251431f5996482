"""Goldens of row patterns: each way to emit and to go on, of one record or of all rows."""

from __future__ import annotations

from typing import Any

import lowwater as lw
from lowwater.pipeline.outputs import Writing
from tests.goldens.golden import Golden
from tests.goldens.rows import feed_sides
from tests.goldens.windows import CLOCK, OFTEN, read, written


def is_even(match: Any) -> bool:
    """Whether the row under test has an even number, or the match is short."""
    return bool(match.row["id"] % 2 == 0 or match.matched("up").count() < 2)


def matches() -> list[Writing]:
    """Row patterns of each kind, and stages over them."""
    keyed = read("left").select("at", "arrived", "id", "key", "v", "big", "s", "dec").key_by("key")
    up = {"up": lw.col("v") > lw.prev("v")}
    top = {"top": lw.col("v") > 9}
    measures: dict[str, Any] = {
        "first": lw.first("id"), "ups": lw.count(of="up"), "total": lw.sum("dec"),
        "texts": lw.collect("s", of="up"), "last_up": lw.matched("up").last("big"),
    }  # fmt: skip
    options: dict[str, Any] = {"within": "70s", "allowed_lateness": "50s"}
    rising = keyed.match("low up+", define=up, measures=measures, **options).named("rising")
    found = [
        rising,
        keyed.match("low up+", define=up, measures=measures, emit="final", **options)
        .named("final"),
        keyed.match(
            "low up+ top?", define=up | top, measures=measures, emit="early", order="big", **options
        ).named("early"),
        keyed.match("low .. top", define=top, measures={"n": lw.count()}, skip="next", **options)
        .named("next"),
        keyed.match(
            "low up+", define=up, measures={"so_far": lw.sum("v")}, rows="all",
            skip=("last", "up"), **options,
        ).named("all rows"),
        keyed.match(
            "any (up | even)+",
            define={"up": lw.col("v") > lw.matched().first("v"), "even": is_even},
            measures={"n": lw.count(), "values": lw.collect("v")},
            within="70s",
        ).named("so far"),
        keyed.match(
            "top", define={"top": lw.col("v") > 3}, allowed_lateness="50s",
            without=lw.absent(lw.col("v") < 0, within="20s"),
        ).named("alone"),
    ]  # fmt: skip
    sums = (
        rising.key_by("key")
        .window(lw.FixedWindows("60s"), trigger=OFTEN, accumulation="retracting")
        .aggregate(n=lw.count(), ups=lw.sum("ups"))
        .named("sums")
    )
    again = (
        sums.key_by("key")
        .match("one more", define={"more": lw.col("ups") >= lw.prev("ups")}, within="600s")
        .named("again")
    )
    return written(*found, sums, again)


GOLDENS = (Golden(name="matches", feed=feed_sides, outputs=matches, clock=CLOCK),)
