"""Pipelines of every sort over random records, for tests that turn what they emit into tests."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import lowwater as lw

SECOND = 1_000_000
BASE = 1_000 * SECOND
Make = Callable[[random.Random], Any]
PIPELINES: dict[str, Make] = {}


def pipeline(make: Make) -> Make:
    PIPELINES[make.__name__] = make
    return make


def rows(pick: random.Random, count: int = 60) -> list[dict[str, Any]]:
    """Records whose times go up roughly; some come late, a few twice."""
    at, found = 0, []
    for number in range(count):
        at += pick.randrange(4)
        time = max(0, at - pick.choice([0, 0, 0, 0, 3, 9, 25]))
        found.append(
            {
                "at": BASE + time * SECOND,
                "name": pick.choice("AB'\n"),
                "v": pick.choice([None, 2**53 + 1, *range(10)]),
                "id": number - pick.choice([0, 0, 0, 1]),
                "arrived": BASE + at * SECOND,
            }
        )
    return found


def stream(pick: random.Random, name: str, **options: Any) -> lw.Stream:
    watermark = lw.BoundedDisorder(f"{pick.randrange(5)}s")
    return lw.from_iterable(rows(pick), time="at", unit="us", watermark=watermark, **options).named(
        name
    )


def trigger(pick: random.Random) -> lw.Trigger:
    early = pick.choice([None, lw.AfterCount(2), lw.AfterProcessingTime("4s")])
    return lw.AfterWatermark(early=early, late=lw.AfterCount(pick.choice([1, 2])))


@pipeline
def fixed(pick: random.Random) -> Any:
    return (
        stream(pick, "plays", clock=lw.ArrivalClock("arrived", tick="1s"))
        .key_by("name")
        .window(
            lw.FixedWindows("10s"),
            trigger=trigger(pick),
            accumulation=pick.choice(["discarding", "accumulating", "retracting"]),
            allowed_lateness="10s",
        )
        .aggregate(total=lw.sum("v"), most=lw.max("v"))
    )


@pipeline
def sessions(pick: random.Random) -> Any:
    return (
        stream(pick, "plays")
        .filter(lw.col("v") != 3)
        .key_by("name")
        .window(
            lw.Sessions("5s"),
            trigger=trigger(pick),
            accumulation=pick.choice(["accumulating", "retracting"]),
            allowed_lateness="10s",
        )
        .aggregate(total=lw.sum("v"), mean=lw.mean("v"))
    )


@pipeline
def sliding(pick: random.Random) -> Any:
    return (
        stream(pick, "plays")
        .deduplicate(id="id", within="1m")
        .key_by(lambda record: record["name"] == "A")
        .window(lw.SlidingWindows("10s", "5s"))
        .aggregate(values=lw.collect("v"))
    )


@pipeline
def chain(pick: random.Random) -> Any:
    return (
        stream(pick, "plays")
        .key_by("name")
        .window(
            lw.FixedWindows("5s"),
            trigger=trigger(pick),
            accumulation="retracting",
            allowed_lateness="10s",
        )
        .aggregate(total=lw.sum("v"))
        .key_by("name")
        .window(lw.FixedWindows("20s"), trigger=trigger(pick), accumulation="accumulating")
        .aggregate(total=lw.sum("total"), panes=lw.count())
    )


@pipeline
def union(pick: random.Random) -> Any:
    return (
        (stream(pick, "left") | stream(pick, "right hand"))
        .key_by("name")
        .window(
            lw.FixedWindows("10s"),
            trigger=trigger(pick),
            accumulation="retracting",
            allowed_lateness="5s",
        )
        .aggregate(total=lw.sum("v"))
    )


@pipeline
def joined(pick: random.Random) -> Any:
    how: Any = pick.choice(["inner", "left", "outer"])
    unmatched: Any = "final" if how == "inner" else pick.choice(["final", "early"])
    left, right = stream(pick, "left"), stream(pick, "right")
    return left.join(right, on="name", within="6s", how=how, unmatched=unmatched)


class Running:
    """Emits the sum so far, and how many there were when nothing has come for a while."""

    total = lw.value_cell(default=0)
    quiet = lw.timer()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        self_total = ctx.total.get() + (record["v"] or 0)
        ctx.total.set(self_total)
        ctx.emit({"total": self_total})
        ctx.quiet.set(ctx.time + 4 * SECOND)

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.emit({"quiet": ctx.total.get()})
        ctx.total.clear()


@pipeline
def process(pick: random.Random) -> Any:
    order: Any = pick.choice(["arrival", "event_time"])
    return stream(pick, "plays").key_by("name").process(Running(), order=order)


@pipeline
def pattern(pick: random.Random) -> Any:
    return (
        stream(pick, "plays")
        .key_by("name")
        .match(
            "low up+",
            define={"up": lw.col("v") > lw.prev("v")},
            measures={"top": lw.last("v"), "rows": lw.count()},
            within="20s",
            allowed_lateness="5s",
            emit=pick.choice(["on_time", "early"]),
        )
    )


def questions(result: lw.Result, pick: random.Random, count: int) -> Iterator[tuple[Any, Any]]:
    """Yield keys with windows of which a run emitted something, or from which it dropped some."""
    asked: list[tuple[Any, Any]]
    if result._stage.work.emits_panes:
        asked = [(pane.key, pane.window) for pane in result.panes]
        asked += [(late.key, late.window) for late in result.late if late.window is not None]
    else:
        asked = [(one.key, one.timestamp) for one in result.elements()]
        asked += [(late.key, late.time) for late in result.late]
    every = list(dict.fromkeys(asked))
    yield from pick.sample(every, min(count, len(every)))
