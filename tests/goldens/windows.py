"""Goldens of windows: each kind of window, trigger, mode, aggregate and key; and chains of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import lowwater as lw
from lowwater.engine.aggregates import AggregateSpec, combiner_of
from lowwater.engine.window.windowing import Accumulation
from lowwater.pipeline import Pipeline, Stream
from lowwater.pipeline.outputs import Writing
from lowwater.windows import WindowFunction
from tests.goldens.golden import Golden
from tests.goldens.rows import feed_parquet

CLOCK = lw.ArrivalClock("arrived", tick="30s")
SECOND = 1_000_000
OFTEN = lw.AfterWatermark(
    early=lw.AfterAny(lw.AfterCount(3), lw.AfterProcessingTime("9s")), late=lw.AfterCount(1)
)


def read(folder: str = "in") -> Stream:
    """Return the records of a folder of Parquet files."""
    return lw.read_parquet(
        folder, time="at", watermark=lw.BoundedDisorder("8s"), clock=CLOCK
    ).named(folder)


def written(*pipelines: Any) -> list[Writing]:
    """Return pipelines as outputs, each in a folder by the name of its stage."""
    return [one.write_jsonl(Path("out", one._stage.name)) for one in pipelines]


class Range:
    """The largest value minus the smallest, with an accumulator of several types."""

    def create_accumulator(self) -> Any:
        return None

    def add_input(self, accumulator: Any, value: Any) -> Any:
        low, high, seen = accumulator or (value, value, frozenset())
        return (min(low, value), max(high, value), seen | {value})

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        parts = [part for part in accumulators if part]
        if not parts:
            return None
        lows, highs, seen = zip(*parts, strict=True)
        return (min(lows), max(highs), frozenset().union(*seen))

    def extract_output(self, accumulator: Any) -> Any:
        return (
            None if accumulator is None else [accumulator[1] - accumulator[0], len(accumulator[2])]
        )


class Total:
    """A sum of a user's own, which can take an input back."""

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, value: int) -> int:
        return accumulator + value

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator

    def remove_input(self, accumulator: int, value: int) -> int:
        return accumulator - value


AGGREGATES: Mapping[str, AggregateSpec] = {
    "n": lw.count(),
    "n_v": lw.count("v"),
    "sum_v": lw.sum("v"),
    "sum_f": lw.sum("f"),
    "sum_big": lw.sum("big"),
    "sum_b": lw.sum("b"),
    "mean_v": lw.mean("v"),
    "mean_f": lw.mean("f"),
    "var_v": lw.var("v"),
    "std_f": lw.std("f", ddof=0),
    "min_v": lw.min("v"),
    "max_big": lw.max("big"),
    "min_s": lw.min("s"),
    "max_d": lw.max("d"),
    "min_dec": lw.min("dec"),
    "max_t": lw.max("t"),
    "min_by_bytes": lw.min("by"),
    "first_s": lw.first("s"),
    "first_v": lw.first("v", by="big"),
    "last_f": lw.last("f"),
    "last_dec": lw.last("dec", by="d"),
    "max_by": lw.max_by("s", "v"),
    "min_by": lw.min_by("b", "t"),
    "any_b": lw.any("b"),
    "all_b": lw.all("b"),
    "collect": lw.collect("v"),
    "collect_s": lw.collect("s"),
    "collect_tags": lw.collect("tags"),
    "set_s": lw.collect_set("s"),
    "set_d": lw.collect_set("d"),
    "set_who": lw.collect_set("who"),
    "distinct_v": lw.count_distinct("v"),
    "distinct_dec": lw.count_distinct("dec"),
    "range": lw.combine(Range(), "v"),
    "total": lw.combine(Total(), "v"),
}
"""Every aggregate, over columns of every type."""

NO_NAN = ~lw.col("f").is_nan()


def quarter(at: int) -> list[tuple[int, int]]:
    """Return the quarter of a minute that an instant is in, and the minute."""
    low = at - at % (15 * SECOND)
    return [
        (low, low + 15 * SECOND),
        (at - at % (60 * SECOND), at - at % (60 * SECOND) + 60 * SECOND),
    ]


def halves(times: Any) -> Any:
    """Return the half minute that each instant is in."""
    low = times - times % (30 * SECOND)
    return low, low + 30 * SECOND


def short(at: int) -> list[tuple[int, int]]:
    """Return a window of its own for an instant."""
    return [(at, at + 6 * SECOND)]


def overlapping(windows: Sequence[lw.Window]) -> Iterator[tuple[list[lw.Window], tuple[int, int]]]:
    """Merge windows that overlap, as sessions do."""
    group: list[lw.Window] = []
    for window in windows:
        if group and window.start >= max(one.end for one in group):
            yield group, (group[0].start, max(one.end for one in group))
            group = []
        group.append(window)
    if group:
        yield group, (group[0].start, max(one.end for one in group))


class Halves:
    """A trigger of a user's own: fires when both halves of a window have had an element."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Halves)

    def __hash__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "Halves()"

    def on_element(self, context: lw.TriggerContext, time: int) -> None:
        middle = (context.window.start + context.window.end) // 2
        context.state = {*(context.state or ()), time < middle}
        context.wake_at_clock(context.clock + 20 * SECOND)

    def ready(self, context: lw.TriggerContext) -> bool:
        return len(context.state or ()) == 2

    def on_fire(self, context: lw.TriggerContext) -> bool:
        context.state = None
        return False

    def on_merge(self, context: lw.TriggerContext, states: Sequence[Any]) -> None:
        context.state = set().union(*(state or () for state in states))


SUMS: Mapping[str, AggregateSpec] = {"n": lw.count(), "total": lw.sum("v"), "s": lw.collect("s")}

KINDS: Mapping[str, WindowFunction] = {
    "fixed": lw.FixedWindows("40s", offset="3s"),
    "sliding": lw.SlidingWindows("60s", "20s"),
    "sparse": lw.SlidingWindows("10s", "25s"),
    "sessions": lw.Sessions("9s"),
    "touching": lw.Sessions("5s", merge_touching=True),
    "own_gaps": lw.Sessions(gap_column="gap"),
    "days": lw.CalendarWindows(days=1, timezone="Europe/Berlin"),
    "weeks": lw.CalendarWindows(weeks=2, week_starts="sunday"),
    "global": lw.GlobalWindow(),
    "each": lw.CustomWindows(quarter, name="quarters"),
    "columns": lw.CustomWindows(assign_column=halves, name="halves"),
    "merged": lw.CustomWindows(short, merge_active=overlapping, name="visits"),
}


MODES: tuple[Accumulation, ...] = ("discarding", "accumulating", "retracting")


def kinds() -> list[Writing]:
    """Every kind of window; the usual ones in every mode."""
    found, records = [], read()
    for at, (name, windows) in enumerate(KINDS.items()):
        modes = MODES if name in ("fixed", "sliding", "sessions") else (MODES[at % 3],)
        for mode in modes:
            of = records.key_by("key").window(
                windows, trigger=OFTEN, accumulation=mode, allowed_lateness="30s"
            )
            found.append(of.aggregate(**SUMS).named(f"{name} {mode}"))
    return written(*found)


def aggregates() -> list[Writing]:
    """Every aggregate, in windows that do not merge, that do, and whose slices are shared."""
    sound = read().filter(NO_NAN)
    chosen: tuple[tuple[str, WindowFunction, Accumulation], ...] = (
        ("fixed", lw.FixedWindows("40s"), "accumulating"),
        ("sessions", lw.Sessions("9s"), "retracting"),
        ("sliding", lw.SlidingWindows("60s", "20s"), "discarding"),
    )
    return written(
        *(
            sound.key_by("key")
            .window(windows, trigger=OFTEN, accumulation=mode, allowed_lateness="20s")
            .aggregate(**AGGREGATES)
            .named(f"all {name}")
            for name, windows, mode in chosen
        ),
        sound.key_by("key")
        .window(lw.SlidingWindows("80s", "20s"))
        .aggregate(**AGGREGATES)
        .named("all once"),
        sound.key_by("key").window(lw.FixedWindows("50s")).group().named("grouped"),
        sound.key_by("key").window(lw.FixedWindows("50s")).group("who").named("grouped column"),
    )


TRIGGERS: Mapping[str, tuple[lw.Trigger, dict[str, Any]]] = {
    "watermark": (lw.AfterWatermark(), {"allow_data_loss": "a golden"}),
    "count": (lw.Repeatedly(lw.AfterCount(4)), {"closing": "always"}),
    "clock": (lw.Repeatedly(lw.AfterProcessingTime("7s", align="10s")), {"on_time": "if_new"}),
    "any": (lw.Repeatedly(lw.AfterAny(lw.AfterCount(5), lw.AfterWatermark())), {}),
    "all": (lw.Repeatedly(lw.AfterAll(lw.AfterCount(2), lw.AfterProcessingTime("6s"))), {}),
    "each": (
        lw.AfterEach(lw.AfterCount(1), lw.AfterCount(2), lw.Repeatedly(lw.AfterCount(3))),
        {"timestamps": "earliest"},
    ),
    "finally": (
        lw.OrFinally(lw.Repeatedly(lw.AfterCount(2)), lw.AfterCount(7)),
        {"timestamps": "latest", "allow_data_loss": "a golden"},
    ),
    "never": (lw.Never(), {"closing": "always"}),
    "always": (lw.Always(), {}),
    "default": (lw.Default(), {}),
    "custom": (lw.CustomTrigger(Halves()), {}),
}


def triggers() -> list[Writing]:
    """Every kind of trigger, in windows that do not merge or in those that do."""
    records, found = read(), []
    for at, (name, (trigger, more)) in enumerate(TRIGGERS.items()):
        windows = (lw.Sessions("9s"), lw.FixedWindows("40s"))[at % 2]
        keyed = records.key_by("key").window(
            windows, trigger=trigger, accumulation="accumulating", allowed_lateness="25s", **more
        )
        found.append(keyed.aggregate(**SUMS).named(name))
    return written(*found)


def _pair(record: Any) -> Any:
    return None if record["v"] is None else (record["v"] % 3, record["s"])


def _mixed(record: Any) -> Any:
    return [1, "one", 2.5, b"\x00", True, (1, "x"), 2**63 - 1, record["dec"], record["d"]][
        record["id"] % 9
    ]


KEYS: Mapping[str, Any] = {
    **{name: name for name in ("s", "v", "big", "b", "d", "dec", "by", "t", "f")},
    "a pair": ("s", "v"),
    "three": ("b", "d", "dec"),
    "a tuple": _pair,
    "mixed": _mixed,
}


def keys() -> list[Writing]:
    """Keys of every type, of several columns and of Python values."""
    sound = read().filter(NO_NAN)
    of = {
        name: sound.key_by(*(key if isinstance(key, tuple) else (key,)))
        for name, key in KEYS.items()
    }
    return written(
        *(
            keyed.window(lw.FixedWindows("45s"), trigger=OFTEN, accumulation="retracting")
            .aggregate(n=lw.count(), total=lw.sum("v"))
            .named(f"key {name}")
            for name, keyed in of.items()
        ),
        sound.key_by(day=lw.col("at").dt.date(), even=lw.col("id") % 2 == 0)
        .window(lw.Sessions("9s"))
        .aggregate(n=lw.count())
        .named("key expressions"),
    )


def chains() -> list[Writing]:
    """Stages over panes: retractions of every aggregate, differences, and a third level."""
    sound = read().filter(NO_NAN)
    picks: Mapping[str, AggregateSpec] = {
        "v": lw.sum("v"), "f": lw.mean("f"), "b": lw.any("b"), "s": lw.last("s"),
        "big": lw.max("big"), "d": lw.max("d"), "dec": lw.min("dec"), "t": lw.max("t"),
        "by": lw.min("by"), "tags": lw.last("tags"), "who": lw.last("who"),
    }  # fmt: skip
    first: Pipeline = (
        sound.key_by("key")
        .window(lw.Sessions("9s"), trigger=OFTEN, accumulation="retracting", allowed_lateness="20s")
        .aggregate(**{f"of_{name}": spec for name, spec in picks.items()})
        .named("first")
    )
    again = first.with_columns(**{name: lw.col(f"of_{name}") for name in picks}).filter(
        ~lw.col("v").is_null() & ~lw.col("f").is_null()
    )
    signed = {name: spec for name, spec in AGGREGATES.items() if name != "range"}
    second = (
        again.key_by(all=lw.lit("all"))
        .window(lw.FixedWindows("60s"), trigger=OFTEN, accumulation="retracting")
        .aggregate(**signed)
        .named("second")
    )
    third = (
        second.key_by("n")
        .window(lw.FixedWindows("2m"), accumulation="retracting")
        .aggregate(total=lw.sum("sum_v"), most=lw.max("max_big"), of=lw.combine(Total(), "n_v"))
        .named("third")
    )
    subtracted = (
        again.key_by("b")
        .window(lw.FixedWindows("60s"), trigger=OFTEN, accumulation="discarding")
        .aggregate(more=lw.count(), of_v=lw.sum("v"), of_f=lw.sum("f"))
        .named("differences")
    )
    sessions = (
        again.key_by("d")
        .window(lw.Sessions("30s"), trigger=OFTEN, accumulation="accumulating")
        .aggregate(
            many=lw.count(), vs=lw.collect("v"), least=lw.min("s"), range=lw.combine(Range(), "v")
        )
        .named("sessions of panes")
    )
    return written(first, second, third, subtracted, sessions)


def cumulative() -> list[Writing]:
    """Windows that share their start: kept once, and each with state of its own."""
    found, records = [], read().filter(NO_NAN)
    numbers = {name: one for name, one in AGGREGATES.items() if combiner_of(one) is None}
    for mode in MODES:
        for name, trigger in (("once", lw.AfterWatermark(late=lw.Always())), ("each", OFTEN)):
            of = records.key_by("key").window(
                lw.CumulativeWindows("60s", step="15s"), trigger=trigger, accumulation=mode,
                allowed_lateness="30s",
            )  # fmt: skip
            of_all = numbers if (mode, name) == ("retracting", "once") else SUMS
            found.append(of.aggregate(**of_all).named(f"{name} {mode}"))
    days = lw.CumulativeWindows("1d", step="6h", offset="1h", timezone="Europe/Berlin")
    found.append(records.key_by("key").window(days).aggregate(**SUMS).named("days"))
    return written(*found)


def bounded() -> list[Writing]:
    """Windows by two columns of a record."""
    opened = lw.col("at").dt.truncate("20s")
    closes = opened + (lw.col("id") % 5) * timedelta(seconds=15)
    records = read().with_columns(opened=opened, closes=closes)
    found = []
    for mode in MODES:
        of = records.key_by("key").window(
            lw.ColumnWindows("opened", "closes", longest="50s"), trigger=OFTEN, accumulation=mode,
            allowed_lateness="30s",
        )  # fmt: skip
        found.append(of.aggregate(**SUMS).named(f"columns {mode}"))
    return written(*found)


GOLDENS = [
    Golden(name="window-kinds", feed=feed_parquet, outputs=kinds, clock=CLOCK, stop=3),
    Golden(
        name="aggregates", feed=feed_parquet, outputs=aggregates, clock=CLOCK, killed=False,
        point="after the write",
    ),
    Golden(name="cumulative", feed=feed_parquet, outputs=cumulative, clock=CLOCK, stop=3),
    Golden(name="column-windows", feed=feed_parquet, outputs=bounded, clock=CLOCK, stop=3),
    Golden(name="triggers", feed=feed_parquet, outputs=triggers, clock=CLOCK, stop=3),
    Golden(name="keys", feed=feed_parquet, outputs=keys, clock=CLOCK, killed=False),
    Golden(
        name="chains", feed=feed_parquet, outputs=chains, clock=CLOCK, stop=3,
        point="after the write",
    ),
    Golden(
        name="chains-with-headers", feed=feed_parquet, outputs=chains, clock=CLOCK, stop=3,
        point="after the write",
    ),
]  # fmt: skip
