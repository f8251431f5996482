"""Processes that use every cell, timer, hook and output, for the cases of ``every_operator``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

import lowwater as lw
from lowwater.engine.process.outputs import Order
from tests.property.bundled import SECOND

BOTH: tuple[Order, ...] = ("arrival", "event_time")


class Echo:
    """Emits what it gets."""

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.emit({"n": record["n"], "v": record["v"]})


class Numbers:
    """Emits the numbers of records."""

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.emit({"n": record["n"]})


class Answers:
    """Emits to two outputs, refuses some records, and answers others when a timer fires."""

    before = lw.value_cell(default=-1)
    wake = lw.timer()
    odd = lw.output()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        n = record["n"]
        if n % 11 == 5:
            ctx.late(f"{n} is refused")
        elif n % 2:
            ctx.emit({"n": n, "before": ctx.before.get()}, tag="odd")
        else:
            ctx.emit({"n": n, "before": ctx.before.get()})
        ctx.before.set(n)
        if n % 7 == 0:
            ctx.wake.set(ctx.time + 9 * SECOND, tag=n % 3)
        elif n % 7 == 1:
            ctx.wake.clear(tag=n % 3)

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.emit({"n": -1, "before": ctx.before.get()})


class EveryCell:
    """Uses every cell, holds the output watermark, and forgets keys that are silent."""

    value = lw.value_cell(dtype="int64")
    texts = lw.list_cell()
    by_text = lw.map_cell()
    seen = lw.set_cell()
    total = lw.combining_cell(lw.sum())
    by_time = lw.ordered_cell()
    quiet = lw.timer()
    clocked = lw.timer(domain="processing")

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        n, s = record["n"], record["s"]
        ctx.value.set(ctx.value.get() + n)
        ctx.texts.append(s)
        ctx.by_text[s] = n
        ctx.seen.add(n % 13)
        ctx.total.add(n)
        ctx.by_time.add(ctx.time, n)
        ctx.quiet.set(ctx.time + 15 * SECOND)
        if n % 29 == 0:
            ctx.clocked.set(ctx.clock + 20 * SECOND)

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        if name == "clocked":
            ctx.emit({"clock": ctx.clock, "value": ctx.value.get()}, time=ctx.due)
            return
        self._tell(ctx)
        for cell in (ctx.value, ctx.texts, ctx.by_text, ctx.seen, ctx.total, ctx.by_time):
            cell.clear()

    def _tell(self, ctx: lw.ProcessContext) -> None:
        ctx.emit(
            {
                "clock": 0,
                "value": ctx.value.get(),
                "texts": list(ctx.texts),
                "by_text": dict(ctx.by_text.items()),
                "seen": sorted(ctx.seen),
                "total": ctx.total.get(),
                "by_time": [n for _, n in ctx.by_time],
            }
        )

    def on_end(self, ctx: lw.ProcessContext) -> None:
        self._tell(ctx)


class InWindows:
    """Keeps something for each window, and emits it when the window expires."""

    numbers = lw.list_cell()
    most = lw.value_cell(merge=max)
    wake = lw.timer()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        n = record["n"]
        if n % 11 == 5:
            ctx.late(f"{n} is refused")
            return
        ctx.numbers.append(n)
        ctx.most.set(n if ctx.most.get() is None else max(n, ctx.most.get()))
        if n % 5 == 0:
            assert ctx.window is not None
            ctx.wake.set(min(ctx.time + 2 * SECOND, ctx.window.end - 1))

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.emit({"due": ctx.due, "many": len(ctx.numbers)})

    def on_window_expired(self, ctx: lw.ProcessContext) -> None:
        ctx.emit({"numbers": list(ctx.numbers), "most": ctx.most.get()})


class Retracting:
    """Emits the latest record of a key, and retracts the one before."""

    retracts = True
    last = lw.value_cell()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        if ctx.last.get() is not None:
            time, n = ctx.last.get()
            if time >= ctx.time - SECOND:
                ctx.emit({"n": n}, time=max(time, ctx.time), kind="retract")
        ctx.emit({"n": record["n"]})
        ctx.last.set((int(ctx.time), record["n"]))


class Holding:
    """Holds the output watermark for each record until an answer is emitted at its time."""

    wake = lw.timer()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.wake.set(ctx.time + 6 * SECOND, output_time=ctx.time, tag=record["n"] % 50)

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.emit({"tag": ctx.tag, "due": int(ctx.due)})


class Columns:
    """A vectorised process whose hooks do not depend on how records are split (S-K9)."""

    total = lw.value_cell(dtype="int64")
    wake = lw.timer()

    def on_records(self, batch: Any, ctx: Any) -> None:
        ctx.total.add(batch.ids, batch["n"])
        ctx.late(batch["n"] % 11 == 5, "refused")
        ctx.wake.set(batch.ids, batch.times * 0 + 2**60)
        ctx.emit({"n": batch["n"]}, ids=batch.ids, times=batch.times)

    def on_timers(self, batch: Any, ctx: Any) -> None:
        at = np.full(len(batch), 2**60)
        ctx.emit({"n": ctx.total[batch.ids]}, ids=batch.ids, times=at)


class ColumnsInWindows:
    """A vectorised process that sums up windows."""

    total = lw.value_cell(dtype="int64")

    def on_records(self, batch: Any, ctx: Any) -> None:
        ctx.total.add(batch.ids, batch["n"])

    def on_windows_expired(self, batch: Any, ctx: Any) -> None:
        ctx.emit({"n": ctx.total[batch.ids]}, ids=batch.ids, times=batch.times)


class ColumnsInOrder:
    """A vectorised process with timers, which in event-time order gets one instant at a time."""

    total = lw.value_cell(dtype="int64")
    quiet = lw.timer()

    def on_records(self, batch: Any, ctx: Any) -> None:
        ctx.total.add(batch.ids, batch["n"])
        ctx.quiet.set(batch.ids, batch.times + 9 * SECOND)

    def on_timers(self, batch: Any, ctx: Any) -> None:
        ctx.emit({"n": ctx.total[batch.ids]}, ids=batch.ids, times=batch.times)
        ctx.total.clear(batch.ids)

    def on_keys_end(self, batch: Any, ctx: Any) -> None:
        ctx.emit({"n": ctx.total[batch.ids]}, ids=batch.ids, times=batch.times)


@final
@dataclass(frozen=True)
class Kind:
    """A process, and how it is used.

    Args:
        process: The process.
        windows: Its windows, if any.
        orders: In which orders it may take records.
        has_workers: Whether workers can call it.
    """

    process: Any
    windows: Any = None
    orders: tuple[Order, ...] = BOTH
    has_workers: bool = True
    options: tuple[tuple[str, Any], ...] = ()

    def build(self, stream: Any, order: Order) -> Any:
        """Build it on a stream."""
        keyed = stream.key_by("k")
        if self.windows is not None:
            patience = {} if order == "event_time" else dict(self.options)
            keyed = keyed.window(self.windows, **patience)
        return keyed.process(self.process, order=order)


LATE = (("allowed_lateness", "90s"), ("accumulation", "discarding"))
PROCESSES: dict[str, Kind] = {
    "echoing": Kind(Echo()),
    "answering": Kind(Answers()),
    "remembering": Kind(EveryCell()),
    "holding": Kind(Holding()),
    "retracting": Kind(Retracting()),
    "windowed": Kind(InWindows(), lw.FixedWindows("40s"), options=LATE),
    "sliding": Kind(InWindows(), lw.SlidingWindows("20s", "30s")),
    "session": Kind(InWindows(), lw.Sessions("5s"), orders=("event_time",)),
    "column": Kind(Columns(), has_workers=False),
    "windowed column": Kind(
        ColumnsInWindows(), lw.FixedWindows("40s"), has_workers=False, options=LATE
    ),
    "timed column": Kind(ColumnsInOrder(), orders=("event_time",), has_workers=False),
}
"""Processes whose output is the same for any bundles.

Left out are those that S-K8 and S-K9 exempt: in arrival order, sessions of one bundle merge before
its records are processed, and timers of a vectorised process fire after a bundle.
"""
