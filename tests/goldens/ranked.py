"""Goldens of aggregates that order, sketch or choose among values."""

from __future__ import annotations

import lowwater as lw
from lowwater.pipeline.outputs import Writing
from tests.goldens.golden import Golden
from tests.goldens.rows import feed_parquet
from tests.goldens.windows import CLOCK, NO_NAN, OFTEN, read, written

RANKED = {
    "top": lw.top(2, by="v", keep=("s", "dec", "t"), ties="d"),
    "bottom": lw.top(3, by="s", keep="big", reverse=True),
    "tied": lw.top(1, by="v", with_ties=True),
    "often_s": lw.most_frequent("s", n=3),
    "often_dec": lw.most_frequent("dec", n=2),
    "quantiles": lw.quantile("v", [0, 0.5, 0.9]),
    "median_d": lw.median("d"),
    "about": lw.approx_quantile("f", [0.1, 0.9], error=0.05),
    "distinct_s": lw.approx_count_distinct("s"),
    "distinct_few": lw.approx_count_distinct("big", precision=4),
    "high": lw.count(where=lw.col("v") > 3),
    "sum_high": lw.sum("v", where=lw.col("v") > 3),
    "last_of_true": lw.last("s", where=lw.col("b")),
}


def ranked() -> list[Writing]:
    """Ranked aggregates in windows that do not merge, that do, and over what is retracted."""
    sound = read().filter(NO_NAN).key_by("key")
    fixed = sound.window(
        lw.FixedWindows("40s"), trigger=OFTEN, accumulation="accumulating", allowed_lateness="20s"
    )
    sessions = sound.window(
        lw.Sessions("9s"), trigger=OFTEN, accumulation="retracting", allowed_lateness="20s"
    )
    first = sound.window(
        lw.FixedWindows("10s"), trigger=OFTEN, accumulation="retracting", allowed_lateness="20s"
    ).aggregate(v=lw.max("v"), s=lw.last("s"))
    second = first.key_by(all=lw.lit(1)).window(lw.FixedWindows("60s"), accumulation="retracting")
    return written(
        fixed.aggregate(**RANKED).named("ranked fixed"),
        sessions.aggregate(**RANKED).named("ranked sessions"),
        second.aggregate(
            top=lw.top(2, by="v", keep="s"), middle=lw.median("v"), often=lw.most_frequent("s"),
            about=lw.approx_quantile("v", 0.9), distinct=lw.approx_count_distinct("s"),
            high=lw.count(where=lw.col("v") > 3),
        ).named("ranked again"),
    )  # fmt: skip


GOLDENS = [
    Golden(name="ranked", feed=feed_parquet, outputs=ranked, clock=CLOCK, stop=3),
    Golden(name="ranked-tables", feed=feed_parquet, outputs=ranked, clock=CLOCK, killed=False),
]
