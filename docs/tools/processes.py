"""The processes that :mod:`docs.tools.graph_probes` runs: one for each kind of cell, and more."""

from __future__ import annotations

from typing import Any

import lowwater as lw

HALF_MINUTE = 30_000_000


class Doubled:
    """Emits each value twice."""

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit({"shown": record["value"]})
        ctx.emit({"shown": record["value"]})


class LastValue:
    """Emits the value before."""

    last = lw.value_cell(-1)

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit({"shown": ctx.last.get()})
        ctx.last.set(record["value"])


class Listed:
    """Emits how far the sum of all values has come."""

    values = lw.list_cell()

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.values.append(record["value"])
        ctx.emit({"shown": sum(ctx.values.get())})


class Mapped:
    """Emits how often a value was there."""

    times = lw.map_cell()

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.times[record["value"]] = ctx.times.get(record["value"], 0) + 1
        ctx.emit({"shown": ctx.times[record["value"]]})


class Distinct:
    """Emits how many different values there were."""

    values = lw.set_cell()

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.values.add(record["value"])
        ctx.emit({"shown": len(ctx.values)})


class Combined:
    """Emits the largest value."""

    most = lw.combining_cell(lw.max())

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.most.add(record["value"])
        ctx.emit({"shown": ctx.most.get()})


class Ordered:
    """Emits how many values are of the last minute."""

    values = lw.ordered_cell()

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.values.add(ctx.time, record["value"])
        ctx.values.delete(stop=ctx.time - 2 * HALF_MINUTE)
        ctx.emit({"shown": len(ctx.values)})


class EventTimer:
    """Emits how many records there were when half a minute of event time has no more."""

    count = lw.value_cell(0)
    quiet = lw.timer()

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.count.set(ctx.count.get() + 1)
        ctx.quiet.set(ctx.time + HALF_MINUTE, output_time=ctx.time)

    def on_timer(self, name: str, ctx: Any) -> None:
        ctx.emit({"shown": ctx.count.get()})
        ctx.count.clear()


class ClockTimer:
    """Emits, a tick of the clock after the first record of a key, how many there were."""

    count = lw.value_cell(0)
    since = lw.value_cell()
    later = lw.timer(domain="processing")

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.count.set(ctx.count.get() + 1)
        if ctx.later.get() is None:
            ctx.since.set(ctx.time)
            ctx.later.set(ctx.clock + 1, output_time=ctx.time)

    def on_timer(self, name: str, ctx: Any) -> None:
        ctx.emit({"shown": ctx.count.get()}, time=ctx.since.get())
        ctx.count.clear()


class Sorted:
    """Emits odd values to an output of their own."""

    odd = lw.output()

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit({"shown": record["value"]}, tag="odd" if record["value"] % 2 else "main")


class InWindows:
    """Emits the number of records of a window when it expires."""

    count = lw.value_cell(0, merge=lambda one, other: one + other)

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.count.set(ctx.count.get() + 1)

    def on_window_expired(self, ctx: Any) -> None:
        ctx.emit({"shown": ctx.count.get()})


class Vectorised:
    """Emits the total of each key when the watermark reaches the next full minute."""

    total = lw.value_cell(dtype="int64")
    minute = lw.timer()

    def on_records(self, batch: Any, ctx: Any) -> None:
        ctx.total.add(batch.ids, batch["value"])
        idle = ~ctx.minute.is_set(batch.ids)
        minutes = (batch.times[idle] // 60_000_000 + 1) * 60_000_000
        ctx.minute.set(batch.ids[idle], minutes)

    def on_timers(self, batch: Any, ctx: Any) -> None:
        ctx.emit({"shown": ctx.total[batch.ids]}, ids=batch.ids, times=batch.times)
        ctx.total.clear(batch.ids)
