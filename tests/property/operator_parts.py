"""What the cases of ``every_operator`` are, and the windows, aggregates and triggers in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, final

import lowwater as lw
from lowwater.windows import Window
from tests.property import custom_windows
from tests.property.bundled import SECOND, Build, Content, Written


@final
@dataclass(frozen=True)
class Case:
    """A pipeline to hold laws against.

    Args:
        name: What it is about.
        build: Builds it on a stream for each input.
        inputs: How many inputs it reads.
        content: What of its output does not depend on bundles.
        written: How its records come.
        is_short: Whether ``make test`` tries it with few records; others repeat its proof.
        is_large: Whether ``make test`` tries it with many.
        has_workers: Whether it calls Python that workers can call.
    """

    name: str
    build: Build
    inputs: int = 1
    content: Content = "all"
    written: Written = "arrow"
    is_short: bool = True
    is_large: bool = False
    has_workers: bool = False

    def __str__(self) -> str:
        return self.name


CASES: dict[str, Case] = {}


def case(name: str, build: Build, **options: Any) -> None:
    """Add a case."""
    assert name not in CASES, name
    CASES[name] = Case(name, build, **options)


# -- windows -------------------------------------------------------------------------------------


def merge_overlapping(active: Sequence[Window]) -> custom_windows.MergeSets:
    """Sessions, by hand."""
    for members in custom_windows._runs(active):
        if len(members) > 1:
            yield members, (members[0].start, max(window.end for window in members))


WINDOWS: dict[str, Any] = {
    "fixed": lw.FixedWindows("40s"),
    "sliding": lw.SlidingWindows("60s", "20s"),
    "cumulative": lw.CumulativeWindows("60s", "20s"),
    "columns": lw.ColumnWindows("opened", "closes", longest="3m"),
    "gaps between": lw.SlidingWindows("20s", "30s"),
    "sessions": lw.Sessions("7s"),
    "touching sessions": lw.Sessions("4s", merge_touching=True),
    "own gaps": lw.Sessions(gap_column="gap"),
    "calendar": lw.CalendarWindows(days=1, timezone="Europe/Berlin"),
    "global": lw.GlobalWindow(),
    "custom": lw.CustomWindows(custom_windows.assign_many),
    "custom columns": lw.CustomWindows(assign_column=custom_windows.assign_column),
    "custom merging": lw.CustomWindows(
        custom_windows.assign_growing, merge_active=merge_overlapping
    ),
}
NUMBERS: dict[str, Any] = {
    "rows": lw.count(),
    "values": lw.count("v"),
    "total": lw.sum("v"),
    "large": lw.sum("big"),
    "least": lw.min("v"),
    "most": lw.max("x"),
    "longest": lw.max("s"),
    "mean": lw.mean("v"),
    "var": lw.var("v"),
    "std": lw.std("v", ddof=0),
}
PICKS: dict[str, Any] = {
    "first": lw.first("v"),
    "last": lw.last("s"),
    "newest": lw.last("v", by="version"),
    "oldest": lw.first("n", by="version"),
    "at most": lw.max_by("s", "v"),
    "at least": lw.min_by("n", "x"),
    "any": lw.any("b"),
    "all": lw.all("b"),
}
LISTS: dict[str, Any] = {
    "numbers": lw.collect("n"),
    "texts": lw.collect_set("s"),
    "kinds": lw.count_distinct("s"),
    "larges": lw.collect_set("big"),
}
RANKED: dict[str, Any] = {
    "top": lw.top(2, by="v", keep=("s", "n"), ties="x"),
    "bottom": lw.top(3, by="s", keep="v", reverse=True),
    "tied": lw.top(1, by="n", with_ties=True),
    "frequent": lw.most_frequent("s", n=2),
    "larges": lw.most_frequent("big"),
    "middle": lw.median("v"),
    "texts": lw.quantile("s", [0.1, 0.9]),
    "about": lw.approx_quantile("x", [0.1, 0.9]),
    "distinct": lw.approx_count_distinct("s"),
    "numbers": lw.approx_count_distinct("big"),
    "few": lw.approx_count_distinct("n", precision=4),
}
CONDITIONS: dict[str, Any] = {
    "rows": lw.count(where=lw.col("v") > 3),
    "texts": lw.count("s", where=lw.col("v") > 3),
    "total": lw.sum("v", where=lw.col("b")),
    "mean": lw.mean("x", where=lw.col("b")),
    "most": lw.max("v", where=lw.col("s") > "b"),
    "list": lw.collect("n", where=lw.col("b")),
    "last": lw.last("s", by="version", where=lw.col("v") > 3),
    "top": lw.top(2, by="v", keep="s", where=lw.col("b")),
}
ADDING: dict[str, Any] = {"rows": lw.count(), "total": lw.sum("v"), "numbers": lw.collect("n")}


class Longest:
    """A combiner of a user: the largest value and how many there were."""

    def create_accumulator(self) -> Any:
        return (0, None)

    def add_input(self, accumulator: Any, value: Any) -> Any:
        count, most = accumulator
        return (count + 1, value if most is None else max(most, value))

    def merge_accumulators(self, accumulators: Any) -> Any:
        every = list(accumulators)
        most = [most for _, most in every if most is not None]
        return (sum(count for count, _ in every), max(most, default=None))

    def extract_output(self, accumulator: Any) -> Any:
        return accumulator[1]


class Subtracting(Longest):
    """A combiner that can take a value back."""

    def create_accumulator(self) -> Any:
        return (0, 0)

    def add_input(self, accumulator: Any, value: Any) -> Any:
        return (accumulator[0] + 1, accumulator[1] + value)

    def remove_input(self, accumulator: Any, value: Any) -> Any:
        return (accumulator[0] - 1, accumulator[1] - value)

    def merge_accumulators(self, accumulators: Any) -> Any:
        every = list(accumulators)
        return (sum(count for count, _ in every), sum(total for _, total in every))


COMBINED: dict[str, Any] = {
    "longest": lw.combine(Longest(), "v"),
    "subtracted": lw.combine(Subtracting(), "n"),
}
FAMILIES = {
    "numbers": NUMBERS, "picks": PICKS, "lists": LISTS, "combined": COMBINED, "ranked": RANKED,
    "conditions": CONDITIONS,
}  # fmt: skip
PATIENT: dict[str, Any] = {"allowed_lateness": "90s"}
EARLY = lw.AfterWatermark(early=lw.AfterCount(3), late=lw.AfterCount(1))
TRIGGERS: dict[str, Any] = {
    "early and late": EARLY,
    "by the clock": lw.AfterWatermark(
        early=lw.AfterProcessingTime("20s", align="30s"), late=lw.AfterProcessingTime("10s")
    ),
    "count": lw.Repeatedly(lw.AfterCount(5)),
    "always": lw.Always(),
    "never": lw.Never(),
    "either": lw.Repeatedly(lw.AfterAny(lw.AfterCount(7), lw.AfterProcessingTime("40s"))),
    "both": lw.Repeatedly(lw.AfterAll(lw.AfterCount(2), lw.AfterProcessingTime("40s"))),
    "in turn": lw.Repeatedly(lw.AfterEach(lw.AfterCount(1), lw.AfterProcessingTime("30s"))),
    "or finally": lw.OrFinally(lw.Repeatedly(lw.AfterCount(4)), lw.Never()),
    "custom": lw.CustomTrigger(custom_windows.ParitySum(3, finishes=False)),
    "custom alarm": lw.CustomTrigger(custom_windows.WatermarkAlarm(20 * SECOND)),
}
MODES: tuple[Any, ...] = ("discarding", "accumulating", "retracting")


def with_bounds(stream: Any) -> Any:
    """Add bounds of windows: some records are not inside, and some windows too long."""
    minute = lw.col("time").dt.truncate("1m")
    length = lw.when(lw.col("i") == 3, 500, lw.col("i") * 20)
    return stream.with_columns(opened=minute).with_columns(
        closes=minute + length * timedelta(seconds=1)
    )
