"""Goldens of processes: record by record, in windows, vectorised; duplicates; and workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import lowwater as lw
from lowwater.io.sinks import JsonLinesFolder
from lowwater.pipeline import Stream
from lowwater.pipeline.outputs import Writing
from tests.goldens.golden import Golden
from tests.goldens.rows import feed_parquet, feed_sides
from tests.goldens.windows import CLOCK, NO_NAN, OFTEN, SECOND, Range, Total, read, written


class Everything:
    """Has cells of every kind and timers of both domains, with values of many types."""

    count = lw.value_cell(0)
    whole = lw.value_cell(dtype="int64")
    real = lw.value_cell(dtype="float64")
    flag = lw.value_cell(dtype="bool")
    anything = lw.value_cell()
    names = lw.list_cell()
    by_name = lw.map_cell()
    seen = lw.set_cell()
    total = lw.combining_cell(lw.sum())
    most = lw.combining_cell(lw.max())
    mean = lw.combining_cell(lw.mean())
    spread = lw.combining_cell(Range())
    history = lw.ordered_cell()
    silence = lw.timer()
    reminder = lw.timer()
    look = lw.timer(domain="processing")
    fired = lw.output()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        v = record["v"]
        ctx.count.set(ctx.count.get() + 1)
        ctx.names.append(record["s"])
        ctx.by_name[record["big"], record["d"]] = record["dec"]
        ctx.seen.add((record["by"], record["b"]))
        if v is None:
            ctx.late("it has no value")
            return
        ctx.whole.set(v)
        ctx.real.set(v / 4)
        ctx.flag.set(v % 2 == 0)
        ctx.anything.set(
            {"t": record["t"], "tags": record["tags"], "who": record["who"], "n": 2**70}
        )
        for cell in (ctx.total, ctx.most, ctx.mean, ctx.spread):
            cell.add(v)
        ctx.history.add(ctx.time, (v, record["s"]))
        ctx.silence.set(max(ctx.time + 30 * SECOND, ctx.silence.get() or 0), output_time=ctx.time)
        ctx.reminder.set(ctx.time + 11 * SECOND, tag=v % 2)
        if v % 3 == 0:
            ctx.reminder.clear(tag=1)
        if ctx.look.get() is None:
            ctx.look.set(ctx.clock + 20 * SECOND, tag=("x", v))
        ctx.emit({"v": v, "count": ctx.count.get(), "total": ctx.total.get()})

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.emit({"name": name, "due": ctx.due, "about": str(ctx.tag), **_all(ctx)}, tag="fired")
        if name == "silence":
            for cell in (ctx.count, ctx.names, ctx.by_name, ctx.seen, ctx.history, ctx.spread):
                cell.clear()

    def on_end(self, ctx: lw.ProcessContext) -> None:
        ctx.emit({"name": "end", **_all(ctx)}, tag="fired", time=lw.instant("2024-05-02T00:00Z"))


def _all(ctx: lw.ProcessContext) -> dict[str, Any]:
    return {
        "count": ctx.count.get(),
        "whole": ctx.whole.get(),
        "real": ctx.real.get(),
        "flag": ctx.flag.get(),
        "anything": str(ctx.anything.get()),
        "names": str(ctx.names.get()),
        "by_name": str(sorted(ctx.by_name.items())),
        "seen": str(sorted(ctx.seen, key=str)),
        "total": [ctx.total.get(), ctx.most.get(), ctx.mean.get(), str(ctx.spread.get())],
        "history": str(list(ctx.history.range())),
    }


class OfWindow:
    """Keeps its state by key and window, in windows that may merge."""

    last = lw.value_cell(merge=max)
    names = lw.list_cell()
    by_name = lw.map_cell(merge=max)
    seen = lw.set_cell()
    total = lw.combining_cell(Total())
    history = lw.ordered_cell()
    soon = lw.timer()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        v = record["v"] or 0
        ctx.last.set(max(v, ctx.last.get() or 0))
        ctx.names.append(record["s"])
        ctx.by_name[record["b"]] = v
        ctx.seen.add(record["big"])
        ctx.total.add(v)
        ctx.history.add(ctx.time, v)
        ctx.soon.set(ctx.time + 2 * SECOND, tag=v % 2)

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.emit({"due": ctx.due, "tag": ctx.tag, "total": ctx.total.get()})

    def on_window_expired(self, ctx: lw.ProcessContext) -> None:
        ctx.emit(
            {
                "last": ctx.last.get(),
                "names": str(ctx.names.get()),
                "by_name": str(sorted(ctx.by_name.items(), key=str)),
                "seen": sorted(ctx.seen),
                "total": ctx.total.get(),
                "history": [value for _, value in ctx.history.range()],
            }
        )


class Columns:
    """A vectorised process with a column of each type, and timers."""

    total = lw.value_cell(dtype="int64")
    least = lw.value_cell(dtype="float64")
    odd = lw.value_cell(dtype="bool")
    soon = lw.timer()
    look = lw.timer(domain="processing")
    fired = lw.output()

    def on_records(self, batch: Any, ctx: Any) -> None:
        values = batch["id"]
        ctx.total.add(batch.ids, values)
        ctx.least.minimum(batch.ids, values / 8.0)
        ctx.odd[batch.ids] = values % 2 == 1
        idle = ~ctx.soon.is_set(batch.ids)
        times, ends = batch.times[idle], ctx.ends(batch.ids[idle])
        due = np.where(ends > 0, np.minimum(times + 25 * SECOND, ends), times + 25 * SECOND)
        ctx.soon.set(batch.ids[idle], due, output_times=times)
        ctx.look.set(batch.ids, [ctx.clock + 31 * SECOND] * len(batch))
        ctx.late(values % 13 == 5, "thirteens")
        ctx.emit({"id": values}, ids=batch.ids, times=batch.times)

    def on_timers(self, batch: Any, ctx: Any) -> None:
        ctx.emit(
            {
                "due": batch.due,
                "total": ctx.total[batch.ids],
                "least": ctx.least[batch.ids],
                "odd": ctx.odd[batch.ids],
            },
            ids=batch.ids,
            times=batch.times,
            tag="fired",
        )
        if batch.name == "soon":
            ctx.total.clear(batch.ids)


class Newest:
    """Emits the newest value of each key, and retracts the one before."""

    retracts = True
    lateness = "1h"
    newest = lw.value_cell()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        if ctx.newest.is_set:
            v, at = ctx.newest.get()
            ctx.emit({"v": v}, time=at, kind="retract")
        ctx.emit({"v": record["v"]})
        ctx.newest.set((record["v"], ctx.time))


class Kinds:
    """Counts what a stage inserts and retracts."""

    count = lw.value_cell(0)

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.count.set(ctx.count.get() + (-1 if record.get("kind") == "retract" else 1))
        ctx.emit({"count": ctx.count.get()})


LATER: Any = {"accumulation": "discarding", "allowed_lateness": "15s"}


def _folder(output: Any, name: str) -> Writing:
    return output.write_jsonl(Path("out", name))


def by_record(records: Stream) -> list[Writing]:
    """Processes record by record: both orders, several key types, windows, and retractions."""
    found = []
    for order in ("arrival", "event_time"):
        made = records.key_by("key").process(Everything(), order=order).named(f"by {order}")
        found += [_folder(made, f"by {order}"), _folder(made.output("fired"), f"fired {order}")]
        totals = (
            made.output("fired")
            .key_by("name")
            .window(lw.FixedWindows("60s"), trigger=OFTEN, accumulation="retracting")
            .aggregate(n=lw.count(), most=lw.max("count"))
            .named(f"totals {order}")
        )
        found += written(totals)
    newest = records.key_by("d", "dec").process(Newest()).named("newest")
    everywhere = (
        newest.key_by(every=lw.lit("all"))
        .window(lw.GlobalWindow(), trigger=OFTEN, accumulation="retracting")
        .aggregate(n=lw.count(), v=lw.sum("v"))
        .named("of newest")
    )
    kinds = everywhere.key_by("every").process(Kinds()).named("kinds")
    of_windows = [
        records.key_by("key").window(windows, **LATER).process(OfWindow()).named(name)
        for name, windows in (
            ("in windows", lw.FixedWindows("40s")),
            ("in sessions", lw.Sessions("9s")),
            ("in sliding", lw.SlidingWindows("60s", "30s")),
        )
    ]
    ordered = (
        records.key_by("big")
        .window(lw.Sessions("9s"), accumulation="discarding")
        .process(OfWindow(), order="event_time")
        .named("ordered in sessions")
    )
    return [*found, *written(newest, everywhere, kinds, *of_windows, ordered)]


def records_alone() -> list[Writing]:
    """Processes record by record, in the process of the run."""
    return by_record(read())


def _even(record: Any) -> bool:
    return bool(record["id"] % 4 != 2)


def _doubled(record: Any) -> Any:
    return [record, {**record, "v": (record["v"] or 0) * 2}] if record["id"] % 5 == 0 else [record]


def with_workers() -> list[Writing]:
    """The same whose keys are in parts, and combiners and steps that workers call."""
    records = read()
    stepped = records.filter(_even).flat_map(_doubled)
    combined = (
        stepped.key_by("key")
        .window(lw.FixedWindows("40s"), trigger=OFTEN, accumulation="accumulating")
        .aggregate(n=lw.count(), range=lw.combine(Range(), "v"), total=lw.combine(Total(), "id"))
        .named("combined")
    )
    return [*by_record(records), *written(combined)]


def vectorised() -> list[Writing]:
    """Vectorised processes: both orders, and in windows."""
    records = read()
    made = [
        records.key_by("key").process(Columns(), order=order).named(f"columns {order}")
        for order in ("arrival", "event_time")
    ]
    made.append(records.key_by("big", "b").process(Columns()).named("columns by two"))
    windows = records.key_by("key").window(lw.SlidingWindows("60s", "30s"), **LATER)
    made.append(windows.process(Columns()).named("columns in windows"))
    fired = [_folder(one.output("fired"), f"fired {one._stage.name}") for one in made]
    return [*written(*made), *fired]


def duplicates() -> list[Writing]:
    """Ids that are remembered, of several types, before windows, joins and processes."""
    left, right = read("left"), read("right")
    once = left.deduplicate(id="id", within="60s")
    windows = once.key_by("key").window(lw.FixedWindows("40s"))
    found: list[Any] = [windows.aggregate(n=lw.count(), ids=lw.collect("id")).named("once")]
    ids: dict[str, str | tuple[str, ...]] = {
        "text": "s", "pair": ("key", "v"), "bytes": "by", "decimal": "dec", "date": "d",
        "flag": "b", "instant": "t", "whole": "big",
    }  # fmt: skip
    for name, of in ids.items():
        kept = left.deduplicate(id=of, within="25s").key_by("part").window(lw.FixedWindows("30s"))
        found.append(kept.aggregate(n=lw.count(), ids=lw.collect("id")).named(f"id {name}"))
    names = ("at", "arrived", "id", "key", "v")
    joined = (
        left.select(*names)
        .deduplicate(id="id", within="60s")
        .join(
            right.select(*names).deduplicate(id="v", within="30s"),
            on="key",
            within="20s",
            how="left",
        )
    )
    found.append(joined.named("joined once"))
    found.append(once.key_by("key").process(Kept()).named("processed once"))
    return written(*found)


class Kept:
    """Emits each record's id, with how many there were."""

    count = lw.value_cell(0)

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.count.set(ctx.count.get() + 1)
        ctx.emit({"id": record["id"], "count": ctx.count.get()})


def passed() -> list[Writing]:
    """Records that pass without a stage of their own, changed and united."""
    left, right = read("left"), read("right")
    changed = (
        left.filter(NO_NAN).with_columns(twice=lw.col("v") * 2).select("at", "id", "twice", "s")
    )
    return [
        changed.write_to(JsonLinesFolder("out/changed")),
        (left | right).filter(_even).write_parquet("out/united"),
    ]


GOLDENS = [
    Golden(name="processes", feed=feed_parquet, outputs=records_alone, clock=CLOCK),
    Golden(
        name="workers", feed=feed_parquet, outputs=with_workers, clock=CLOCK, killed=False,
        options={"workers": 2},
    ),
    Golden(name="vectorised", feed=feed_parquet, outputs=vectorised, clock=CLOCK, killed=False),
    Golden(name="duplicates", feed=feed_sides, outputs=duplicates, clock=CLOCK, stop=6),
    Golden(name="passed", feed=feed_sides, outputs=passed, clock=CLOCK, stop=6),
]  # fmt: skip
