"""Cases for what reads the records of a key one behind the other, for ``every_operator``.

Row patterns, values over the rows before each row, and windows of a number of records.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import lowwater as lw
from tests.property.bundled import Build
from tests.property.operator_parts import EARLY, NUMBERS, PICKS, RANKED, WINDOWS, case

# -- row patterns --------------------------------------------------------------------------------

UP: dict[str, Any] = {"up": lw.col("v") > lw.prev("v")}
TOP: dict[str, Any] = {"top": lw.col("v") > 400}
OF_ROWS: dict[str, Any] = {
    "opened": lw.first("v"), "ups": lw.count(of="up"), "names": lw.collect("s", of="up"),
    "texts": lw.matched("up").last("s"), "before": lw.prev("n"),
}  # fmt: skip


def matched(text: str, **options: Any) -> Build:
    return lambda stream: stream.key_by("k").match(text, **options)


for emit, skip in product(("on_time", "final"), ("past_last", "next")):
    case(
        f"matches {emit}, {skip}",
        matched(
            "low up+", define=UP, measures=OF_ROWS, within="90s", emit=emit, skip=skip,
            allowed_lateness="40s", order="version",
        ),
        is_short=skip == "past_last",
        is_large=(emit, skip) == ("on_time", "past_last"),
    )  # fmt: skip
case(
    "rows of matches",
    matched(
        "up+ .. top", define=UP | TOP,
        measures={"so_far": lw.sum("v", of="up"), "rows": lw.count()},
        within="60s", rows="all", skip=("last", "up"), allowed_lateness="20s",
    ),
)  # fmt: skip
case(
    "early matches",
    matched(
        "low up{2,} | top", define=UP | TOP, measures=OF_ROWS, within="90s", emit="early",
        allowed_lateness="20s",
    ),
    is_short=False,
)  # fmt: skip
case(
    "matches by what matched so far",
    matched(
        "low (up | other)+? top",
        define={
            "up": lw.col("v") > lw.matched().first("v"),
            "other": lambda match: (match.row["n"] or 0) % 3 and match.matched("up").count() < 4,
            "top": lw.col("n") > lw.matched("up").last("n"),
        },
        measures={"ups": lw.count(of="up"), "total": lw.sum("v"), "end": lw.col("n")},
        within="90s", allowed_lateness="20s",
    ),
)  # fmt: skip
case(
    "what nothing follows",
    matched("top", define=TOP, without=lw.absent(lw.col("v") < 100, within="30s")),
    is_short=False,
)
case(
    "unusable values in matches",
    matched(
        "any up", define={"up": lw.col("n") > lw.prev("n")}, within="90s",
        measures={"values": lw.collect("v"), "last": lw.last("s")}, allowed_lateness="40s",
    ),
    written="python",
)  # fmt: skip


def matched_panes(stream: Any) -> Any:
    """Matches of retracted panes, and windows over them."""
    panes = stream.key_by("k").window(
        WINDOWS["fixed"], trigger=EARLY, accumulation="retracting", allowed_lateness="60s"
    )
    counts = panes.aggregate(rows=lw.count()).to_stream()
    grown = counts.key_by("k").match(
        "low more+", define={"more": lw.col("rows") > lw.prev("rows")},
        measures={"most": lw.max("rows")}, within="600s",
    )  # fmt: skip
    rates = grown.to_stream().key_by("k").window(lw.FixedWindows("200s"), trigger=EARLY,
        accumulation="retracting")  # fmt: skip
    return grown, rates.aggregate(rises=lw.count(), most=lw.max("most"))


case("matches of retracted panes", matched_panes, content="final")


# -- values over the rows before each row --------------------------------------------------------

OF_RANGES: dict[str, Any] = {
    "seen": lw.count(), "total": lw.sum("v"), "mean": lw.mean("v"), "most": lw.max("v"),
    "opened": lw.first("v"), "texts": lw.collect("s"), "low": lw.rank(by="v"),
    "high": lw.count(where=lw.col("v") > 400),
}  # fmt: skip


def over(length: str | None = None, **options: Any) -> Build:
    return lambda stream: stream.key_by("k").over(length, **options)


case(
    "over a time", over("45s", allowed_lateness="40s", **OF_RANGES), is_large=True,
    has_workers=True,
)  # fmt: skip
case("over a time, late dropped", over("45s", late="drop", **OF_RANGES))
case(
    "over rows",
    over(
        rows=4, order="version", allowed_lateness="40s", number=lw.row_number(),
        step=lw.col("v") - lw.prev("v", 2), **OF_RANGES,
    ),
    is_large=True,
)  # fmt: skip
case(
    "over rows, not for ever",
    over(rows=3, keep="30s", allowed_lateness="20s", before=lw.prev("s"), **OF_RANGES),
)
case(
    "unusable values in ranges",
    over("60s", mean=lw.mean("v"), last=lw.last("s"), list=lw.collect("v"), rank=lw.rank("n")),
    written="python",
)  # fmt: skip


def over_panes(stream: Any) -> Any:
    """Ranges over retracted panes, and windows over what comes of them."""
    panes = stream.key_by("k").window(
        WINDOWS["fixed"], trigger=EARLY, accumulation="retracting", allowed_lateness="60s"
    )
    # How many panes a window has, and so their numbers, depends on bundles.
    counts = panes.aggregate(rows=lw.count()).to_stream().select("k", "rows")
    moving = counts.key_by("k").over("300s", mean=lw.mean("rows"), most=lw.max("rows"))
    rates = moving.to_stream().key_by("k").window(lw.FixedWindows("200s"), trigger=EARLY,
        accumulation="retracting")  # fmt: skip
    return moving, rates.aggregate(panes=lw.count(), most=lw.max("most"))


case("over retracted panes", over_panes, content="final")


# -- windows of a number of records --------------------------------------------------------------


def counted(windows: lw.CountWindows, **aggregates: Any) -> Build:
    return lambda stream: stream.key_by("k").window(windows).aggregate(**aggregates)


case(
    "windows of a number of records",
    counted(lw.CountWindows(3), **NUMBERS, **{f"pick {n}": a for n, a in PICKS.items()}),
    is_large=True,
)
case(
    "overlapping windows of a number of records",
    counted(lw.CountWindows(5, every=2), total=lw.sum("v"), **RANKED),
    is_large=True,
)
case(
    "unusable values in windows of a number of records",
    counted(lw.CountWindows(2), total=lw.sum("v"), texts=lw.collect("s"), high=lw.max("n")),
    written="python",
)


def counted_again(stream: Any) -> Any:
    """Windows of a number of panes, and windows of time over them."""
    pairs = stream.key_by("k").window(lw.CountWindows(2)).aggregate(v=lw.sum("v"))
    again = pairs.key_by("k").window(lw.CountWindows(3, every=1)).aggregate(vs=lw.collect("v"))
    return (
        again,
        again.key_by("k").window(lw.FixedWindows("200s")).aggregate(panes=lw.count()),
    )


case("windows of a number of panes", counted_again)
