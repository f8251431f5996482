"""Records per second of keyed computations: per record in Python, and as columns.

``python -m benchmarks --only process``, or ``python -m benchmarks.process [RECORDS]``
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow.parquet as pq

import lowwater as lw
from benchmarks.events import DISORDER_US, events_file
from lowwater.engine.process import ProcessOperator
from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import KEY_GROUPS
from lowwater.engine.records.steps import Bundle, EndOfInput, WatermarkAdvance
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.windowing import Windowing
from lowwater.state.key_layout import StoredPlace
from lowwater.state.memory import MemoryStore
from lowwater.state.store import Batch

BUNDLE = 50_000
PER_RECORD_TARGET = 100_000
COLUMNS_TARGET = 0.3
ORDERED_TARGET = 0.8
_EVERY = 20  # bundles between commits
_MINUTES = Windowing(windows=lw.FixedWindows("1m"))


class Count:
    """Counts the records of each key, one by one."""

    count = lw.value_cell(0)

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        count = ctx.count.get() + 1
        ctx.count.set(count)
        if count % 100 == 0:
            ctx.emit(count)


class Expiring:
    """Counts the records of each key until it has been silent for a minute."""

    count = lw.value_cell(0)
    silent = lw.timer()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.count.set(ctx.count.get() + 1)
        ctx.silent.set(ctx.time + 60_000_000)

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.emit({"count": ctx.count.get()})
        ctx.count.clear()


class Sum:
    """Sums values by key and minute, as columns."""

    total = lw.value_cell(dtype="int64")

    def on_records(self, batch: Any, ctx: Any) -> None:
        ctx.total.add(batch.ids, batch["value"])

    def on_windows_expired(self, batch: Any, ctx: Any) -> None:
        ctx.emit({"total": ctx.total[batch.ids]}, ids=batch.ids, times=batch.times)


class SumByTimer:
    """Sums values by key, and tells of the sum each minute that has any, by a timer."""

    total = lw.value_cell(dtype="int64")
    minute = lw.timer()

    def on_records(self, batch: Any, ctx: Any) -> None:
        ctx.total.add(batch.ids, batch["value"])
        idle = ~ctx.minute.is_set(batch.ids)
        ends = (batch.times[idle] // 60_000_000 + 1) * 60_000_000
        ctx.minute.set(batch.ids[idle], ends)

    def on_timers(self, batch: Any, ctx: Any) -> None:
        ctx.emit({"total": ctx.total[batch.ids]}, ids=batch.ids, times=batch.times)
        ctx.total.clear(batch.ids)


@final
@dataclass(frozen=True, slots=True)
class Timing:
    """What a case came to: the best of some rounds."""

    case: str
    per_second: float
    emitted: int
    target: str


def measure(count: int, rounds: int, folder: Path) -> list[Timing]:
    """Time each case in turn, over the same bundles."""
    bundles = list(_bundles(events_file(count, folder)))
    few = bundles[: max(1, min(len(bundles), 1_000_000 // BUNDLE))]
    best: dict[str, Timing] = {}
    for _ in range(rounds):
        for case, given, store in (
            ("windowed sum (no process)", bundles, False),
            ("columns: windowed sum", bundles, False),
            ("columns: windowed sum, committed", bundles, True),
            ("columns: sum by timer", bundles, False),
            ("per record: count", few, False),
            ("per record: count, by event time", few, False),
            ("per record: count, committed", few, True),
            ("per record: count and timer", few, False),
        ):
            spent, emitted = _run(case, given, store)
            speed = sum(map(len, given)) / spent
            if case not in best or best[case].per_second < speed:
                best[case] = Timing(case, speed, emitted, "")
    yardstick = best["windowed sum (no process)"].per_second
    arrival = best["per record: count"].per_second
    return [
        Timing(
            each.case,
            each.per_second,
            each.emitted,
            f"{each.per_second / yardstick:.2f} of it, ≥ {COLUMNS_TARGET}"
            if name.startswith("columns")
            else f"{each.per_second / arrival:.2f} of arrival, ≥ {ORDERED_TARGET}"
            if name.endswith("by event time")
            else f"≥ {PER_RECORD_TARGET:,}"
            if name.startswith("per record")
            else "",
        )
        for name, each in best.items()
    ]


def _run(case: str, bundles: list[Bundle], stored: bool) -> tuple[float, int]:
    operator = _operator(case)
    store = MemoryStore()
    if stored:
        operator.keep_in_store(StoredPlace("stage 1", 0, KEY_GROUPS))
    emitted = 0
    began = time.perf_counter()
    for turn, bundle in enumerate(bundles):
        watermark = WatermarkAdvance(int(bundle.times[-1]) - 3 * DISORDER_US)
        for step in (bundle, watermark):
            emitted += _count(operator.step(step))
        if stored and turn % _EVERY == 0:
            batch = Batch()
            operator.save(batch)
            store.commit(batch)
    emitted += _count(operator.step(EndOfInput()))
    return time.perf_counter() - began, emitted


def _operator(case: str) -> Any:
    if case.startswith("windowed sum"):
        return WindowOperator(_MINUTES, {"total": lw.sum("value")})
    if case.startswith("columns: windowed"):
        return ProcessOperator(Sum(), windowing=_MINUTES)
    if case.startswith("columns"):
        return ProcessOperator(SumByTimer())
    if case.endswith("by event time"):
        return ProcessOperator(Count(), order="event_time")
    return ProcessOperator(Expiring() if "timer" in case else Count())


def _count(output: Any) -> int:
    if hasattr(output, "outputs"):
        return sum(map(len, output.outputs.values()))
    return 0 if output.panes is None else len(output.panes)


def _bundles(path: Path) -> Iterator[Bundle]:
    for batch in pq.ParquetFile(path).iter_batches(BUNDLE):
        times = Column.from_arrow(batch.column("at")).data.astype(np.int64)
        value = Column.from_arrow(batch.column("value"))
        # Keys as the dictionary that readers make of repeated text.
        key = Column.from_arrow(batch.column("key").dictionary_encode())
        yield Bundle(times, (key,), {"value": value})


def main() -> None:
    """Print the table."""
    count = int(sys.argv[1]) if sys.argv[1:] else 5_000_000
    for found in measure(count, 3, Path(__file__).parent / ".data"):
        print(f"{found.case:<36} {found.per_second:>12,.0f} /s   {found.target}")


if __name__ == "__main__":
    main()
