"""Graphs of three levels whose queries are killed; all that leaves them is compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import lowwater as lw
from tests.property.graphs import BASE, PARTS, SECOND, Batches, Drawn, Row
from tests.spark.graphs_on_spark import CLOCK

_FILES, _ROWS = 5, 40
_PATIENT = lw.AfterWatermark(
    early=lw.AfterAny(lw.AfterCount(3), lw.AfterProcessingTime("4s")), late=lw.AfterCount(1)
)


class Watch:
    """Keeps something in each sort of cell, and has timers of both clocks."""

    total = lw.value_cell(0)
    seen = lw.list_cell()
    parts = lw.set_cell()
    last = lw.map_cell()
    most = lw.combining_cell(lw.max())
    ordered = lw.ordered_cell()
    alarm = lw.timer()
    wall = lw.timer(domain="processing")
    rang = lw.output()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        v = int(record["v"])
        ctx.total.set(ctx.total.get() + v)
        ctx.seen.append(v)
        ctx.parts.add(v % 3)
        ctx.last[v % 4] = ctx.time
        ctx.most.add(v)
        ctx.ordered.add(ctx.time, v)
        ctx.alarm.set(ctx.time + (2 + v % 5) * SECOND, output_time=ctx.time, tag=v % 2)
        if v % 3 == 0:
            # Without a time it would be the output watermark: on Spark, that of the key group.
            ctx.wall.set(ctx.clock + 3 * SECOND, output_time=ctx.time)
        ctx.emit({"v": ctx.total.get(), "n": len(ctx.seen)})

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        count = len(list(ctx.ordered.range())) + len(ctx.parts) + len(list(ctx.last.items()))
        ctx.emit({"v": ctx.most.get() or 0, "n": count, "name": name}, tag="rang")
        if name == "wall":
            ctx.seen.clear()
            ctx.ordered.delete(None, ctx.time)

    def on_end(self, ctx: lw.ProcessContext) -> None:
        left = {"v": ctx.total.get(), "n": len(ctx.seen), "name": "end"}
        ctx.emit(left, tag="rang", time=BASE + 99 * SECOND)


def retractions() -> Drawn:
    """Sessions that retract; sums of them that retract; what is left of these, of all keys."""
    sessions = (
        _events(1)
        .key_by("key")
        .window(
            lw.Sessions("4s"), trigger=_PATIENT, accumulation="retracting",
            allowed_lateness="8s",
        )
        .aggregate(v=lw.sum("v"), n=lw.count())
    )  # fmt: skip
    sums = (
        sessions.to_stream()
        .key_by("key")
        .window(
            lw.FixedWindows("20s"), trigger=_PATIENT, accumulation="retracting",
            allowed_lateness="8s",
        )
        .aggregate(v=lw.sum("v"), n=lw.count())
    )  # fmt: skip
    left = (
        sums.to_stream()
        .key_by(key=lw.lit(0))
        .window(lw.FixedWindows("40s"), accumulation="accumulating", allowed_lateness="8s")
        .aggregate(v=lw.sum("v"), n=lw.count())
    )
    return Drawn((sessions, sums, left), CLOCK, {})


def process() -> Drawn:
    """A process behind windows, and windows behind both of its outputs."""
    counts = (
        _events(2)
        .filter(lw.col("v") != 7)
        .key_by("key")
        .window(lw.FixedWindows("5s"), trigger=_PATIENT, accumulation="discarding",
                allowed_lateness="5s")
        .aggregate(v=lw.sum("v"), n=lw.count())
    )  # fmt: skip
    watched = counts.to_stream().key_by("key").process(Watch())
    both = watched.to_stream() | watched.output("rang").to_stream()
    every = (
        both.key_by(key=lw.lit(0))
        .window(lw.SlidingWindows("20s", "10s"), trigger=_PATIENT, accumulation="retracting",
                allowed_lateness="10s")
        .aggregate(v=lw.sum("v"), n=lw.count())
    )  # fmt: skip
    return Drawn((watched, every), CLOCK, {})


def duplicates() -> Drawn:
    """Duplicates are dropped on a level of their own; behind it are sessions, behind these sums."""
    sessions = (
        (_events(3) | _events(4, "8s"))
        .deduplicate(id=("v", "part"), within="3s")
        .key_by("key")
        .window(
            lw.Sessions("6s"), trigger=_PATIENT, accumulation="retracting",
            allowed_lateness="6s",
        )
        .aggregate(v=lw.sum("v"), n=lw.count())
    )  # fmt: skip
    sums = (
        sessions.to_stream()
        .key_by(key=lw.lit(0))
        .window(
            lw.FixedWindows("30s"), trigger=_PATIENT, accumulation="retracting",
            allowed_lateness="6s",
        )
        .aggregate(v=lw.sum("v"), n=lw.count())
    )  # fmt: skip
    return Drawn((sessions, sums), CLOCK, {})


def windows() -> Drawn:
    """Two levels without anything special."""
    counts = (
        _events(5)
        .key_by("key")
        .window(lw.FixedWindows("5s"), accumulation="discarding", allowed_lateness="5s")
        .aggregate(v=lw.sum("v"), n=lw.count())
    )
    sums = (
        counts.to_stream()
        .key_by(key=lw.lit(0))
        .window(lw.FixedWindows("20s"), trigger=_PATIENT, accumulation="accumulating",
                allowed_lateness="5s")
        .aggregate(v=lw.sum("v"), n=lw.count())
    )  # fmt: skip
    return Drawn((sums,), CLOCK, {})


def matches() -> Drawn:
    """Row patterns over sessions that retract, and sums of what matched, which late records
    correct; and the rows of matches on the first level, joined."""
    sessions = (
        _events(6)
        .key_by("key")
        .window(
            lw.Sessions("3s"), trigger=_PATIENT, accumulation="retracting",
            allowed_lateness="6s",
        )
        .aggregate(v=lw.sum("v"), n=lw.count())
    )  # fmt: skip
    grown = sessions.to_stream().key_by("key").match(
        "low up+ down?",
        define={"up": lw.col("v") > lw.prev("v"), "down": lw.col("n") < lw.matched("up").max("n")},
        measures={"v": lw.sum("v"), "n": lw.count(of="up"), "values": lw.collect("v")},
        within="15s",
    )  # fmt: skip
    sums = (
        grown.to_stream()
        .key_by(key=lw.lit(0))
        .window(lw.FixedWindows("20s"), trigger=_PATIENT, accumulation="retracting")
        .aggregate(v=lw.sum("v"), n=lw.count())
    )
    rises = _events(7).key_by("key").match(
        "low up", define={"up": lw.col("v") > lw.prev("v")},
        measures={"high": lw.last("v")}, within="9s", allowed_lateness="8s", rows="all",
    )  # fmt: skip
    pairs = (
        rises.to_stream()
        .select("key", "variable", "v")
        .join(_events(8).select("key", "v", "arrived"), on="key", within="2s", how="left")
    )
    return Drawn((grown, sums, pairs), CLOCK, {})


GRAPHS: Mapping[str, Callable[[], Drawn]] = {
    "retractions": retractions,
    "process": process,
    "duplicates": duplicates,
    "windows": windows,
    "matches": matches,
}


def _events(seed: int, behind: str = "5s") -> lw.Stream:
    """Return files of events: out of order, some of them late."""
    random_ = np.random.default_rng(seed)
    count = _FILES * _ROWS
    arrived = np.arange(count) // 4
    at = np.maximum(arrived - random_.integers(0, 20, count), 0)
    rows: list[Row] = [
        (BASE + int(t) * SECOND, int(key), int(v), 1, PARTS[int(part)], BASE + int(a) * SECOND)
        for t, key, v, part, a in zip(
            at,
            random_.integers(0, 6, count),
            random_.integers(0, 10, count),
            random_.integers(0, 2, count),
            arrived,
            strict=True,
        )
    ]
    files = [rows[begin : begin + _ROWS] for begin in range(0, count, _ROWS)]
    return lw.from_source(Batches(files), time="at", watermark=lw.BoundedDisorder(behind))
