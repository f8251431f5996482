"""A graph to kill: a union of files and a log, two branches, seven outputs.

::

    files ─┐         ┌─ panes (by key) ── totals (over all keys)
           ├─ union ─┤
    log ───┘         └─ visits ── quiet ── sums
"""

from __future__ import annotations

from typing import Any, final

import lowwater as lw
from lowwater.engine.graph import sources
from lowwater.io.sinks import JsonLinesFolder, ParquetFolder, SqliteTable
from tests.crash.killed_process import instructions

SECOND = 1_000_000
PARTITIONS = 3
_CLOCK = lw.ArrivalClock("arrived", tick="5s")
_OFTEN = lw.AfterWatermark(
    early=lw.AfterAny(lw.AfterCount(3), lw.AfterProcessingTime("4s")), late=lw.AfterCount(1)
)


@final
class Visits:
    """Collects values in cells of every kind and emits them on timers of both domains."""

    count = lw.value_cell(0)
    names = lw.list_cell()
    by_name = lw.map_cell()
    rests = lw.set_cell()
    total = lw.combining_cell(lw.sum())
    values = lw.ordered_cell()
    silence = lw.timer()
    reminder = lw.timer()
    look = lw.timer(domain="processing")
    quiet = lw.output()
    reminded = lw.output()
    looked = lw.output()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        name, value = record["name"], record["value"]
        ctx.count.set(ctx.count.get() + 1)
        ctx.names.append(name)
        ctx.by_name[name] = ctx.by_name.get(name, 0) + value
        ctx.rests.add(value % 7)
        ctx.total.add(value)
        ctx.values.add(ctx.time, value)
        ctx.silence.set(max(ctx.time + 8 * SECOND, ctx.silence.get() or 0), output_time=ctx.time)
        if value % 3 == 0:
            ctx.reminder.set(ctx.time + 6 * SECOND, tag=value % 2)
        elif value % 3 == 1:
            ctx.reminder.clear(tag=value % 2)
        if ctx.look.get() is None:
            ctx.look.set(ctx.clock + 7 * SECOND, output_time=ctx.time)
        ctx.emit({"value": value, "count": ctx.count.get(), "total": ctx.total.get()})

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        if name == "reminder":
            ctx.emit({"due": ctx.due, "about": ctx.tag, "count": ctx.count.get()}, tag="reminded")
        elif name == "look":
            ctx.emit(
                {"due": ctx.due, "clock": ctx.clock, "names": list(ctx.names.get())}, tag="looked"
            )
        else:
            ctx.emit(self._gathered(ctx), tag="quiet")
            for cell in (ctx.count, ctx.names, ctx.by_name, ctx.rests, ctx.total, ctx.values):
                cell.clear()

    def _gathered(self, ctx: lw.ProcessContext) -> dict[str, Any]:
        return {
            "count": ctx.count.get(),
            "total": ctx.total.get(),
            "names": sorted(ctx.by_name.items()),
            "rests": sorted(ctx.rests),
            "values": [value for _, value in ctx.values.range()],
        }


def main() -> None:
    """Run the graph over the files and the log in the folder, until the end or death."""
    work = instructions()
    sources.READ_ROWS = 40  # so that the sources take turns
    place, out = work.folder / "in", work.folder / "out"
    table = str(out / "tables.sqlite")
    files = lw.read_parquet(
        str(place / "files"), time="at", watermark=lw.BoundedDisorder("5s"), clock=_CLOCK
    ).named("files")
    log = lw.read_log(
        place / "log",
        time="at",
        watermark=lw.PerPartition(
            lw.BoundedDisorder("4s"), expected=range(PARTITIONS), idle_after="12s"
        ),
        clock=_CLOCK,
    ).named("log")
    union = files | log
    panes = (
        union.deduplicate(id="id", within="20s")
        .key_by("key")
        .window(
            lw.Sessions("6s"), trigger=_OFTEN, accumulation="retracting", allowed_lateness="10s"
        )
        .aggregate(total=lw.sum("value"), values=lw.collect("value"), last=lw.last("name"))
        .named("panes")
    )
    totals = (
        panes.filter(lw.col("total") != 0)
        .key_by(all=lw.lit("all"))
        .window(lw.FixedWindows("20s"), trigger=_OFTEN, accumulation="retracting")
        .aggregate(total=lw.sum("total"), panes=lw.count(), most=lw.max("total"))
        .named("totals")
    )
    visits = union.filter(lw.col("value") > -40).key_by("key").process(Visits()).named("visits")
    sums = (
        visits.output("quiet")
        .key_by(many=lw.col("count") > 3)
        .window(lw.FixedWindows("30s"), trigger=_OFTEN, accumulation="discarding")
        .aggregate(total=lw.sum("total"), visits=lw.count())
        .named("sums")
    )
    work.run(
        panes.write_to(ParquetFolder(str(out / "panes")), SqliteTable(table, "panes")),
        totals.write_jsonl(out / "totals"),
        visits.write_parquet(out / "visits"),
        visits.output("quiet").write_jsonl(out / "quiet"),
        visits.output("reminded").write_parquet(out / "reminded"),
        visits.output("looked").write_jsonl(out / "looked"),
        sums.write_to(SqliteTable(table, "sums"), JsonLinesFolder(str(out / "sums"))),
        bundle_size=20,
        parted=True,
    )


if __name__ == "__main__":
    main()
