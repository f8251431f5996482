"""What a run takes in memory is that of the windows that are open, however long it goes on.

Sources make their records as they are read, and every key is new, so whatever is kept of those that
are over shows.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import lowwater as lw
from lowwater.engine.graph.graph import Graph
from lowwater.engine.process import column_state
from lowwater.engine.records import json_rows as sidecars
from lowwater.engine.records import steps
from lowwater.engine.records.json_rows import rows_of
from lowwater.engine.records.pane_table import panes_to_table
from lowwater.engine.window import window_state as _window_state
from lowwater.pipeline import Pipeline
from lowwater.pipeline.fluent import Processed
from lowwater.pipeline.outcomes import Outcomes
from tests.unit.engine.local.back_pressure_runs import (
    SECOND,
    WatchedSource,
    branched,
    passed,
    summed,
)

pytestmark = pytest.mark.long(reason="runs past every buffer to measure memory")

BATCHES = 10
ROWS = 20
SLACK = 32 * 1024
"""Bytes by which Python's own books grow; the 70 batches between would be twice this."""


def source(number: int, batches: int, **options: Any) -> lw.Stream:
    """Return a source of batches of one second each."""
    return WatchedSource(number, None, batches, ROWS, **options).stream()


def united(batches: int, **options: Any) -> lw.Stream:
    return source(0, batches) | source(1, batches, **options)


class Kept:
    """Keeps the records of each key, and emits how many there were when the window expires."""

    records = lw.list_cell()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.records.append(record["v"])

    def on_window_expired(self, ctx: lw.ProcessContext) -> None:
        ctx.emit({"v": len(ctx.records)})


class Counted:
    """Counts the records of each key in columns, and lets go of it three seconds later."""

    seen = lw.value_cell(dtype="int64")
    bell = lw.timer()

    def on_records(self, batch: Any, ctx: Any) -> None:
        ctx.seen.add(batch.ids, batch["v"])
        ctx.bell.set(batch.ids, batch.times + 3 * SECOND)

    def on_timers(self, timers: Any, ctx: Any) -> None:
        ctx.emit({"v": ctx.seen[timers.ids]}, ids=timers.ids, times=timers.times)
        ctx.seen[timers.ids] = 0


GRAPHS: dict[str, Callable[[int], list[Pipeline | Processed]]] = {
    "union": lambda n: [summed(united(n))],
    "skewed": lambda n: [summed(united(n, ahead=5))],
    "one rests": lambda n: [summed(united(n, rests=3))],
    "two windowed": lambda n: [summed(summed(source(0, n)), lw.FixedWindows("6s"))],
    "one total": lambda n: [summed(summed(source(0, n)).select("v", key=lw.lit(1)))],
    "sessions": lambda n: [summed(source(0, n), lw.Sessions("1s"))],
    "finished": lambda n: [summed(source(0, n), trigger=lw.AfterCount(1), allow_data_loss="test")],
    "deduplicated": lambda n: [summed(source(0, n).deduplicate(id="key", within="2s"))],
    "process": lambda n: [passed(source(0, n))],
    "process in windows": lambda n: [
        source(0, n).key_by("key").window(lw.FixedWindows("2s")).process(Kept())
    ],
    "process in columns": lambda n: [source(0, n).key_by("key").process(Counted())],
    "several ends": lambda n: branched(source(0, n), source(1, n)),
}


@pytest.fixture(autouse=True)
def few_keys_are_kept() -> Iterator[None]:
    """Stages forget keys without state once they are many: here, at once."""
    with (
        mock.patch.object(_window_state, "_GARBAGE", 64),
        mock.patch.object(column_state, "_GARBAGE", 64),
    ):
        yield


def run(name: str, batches: int, look: Callable[[Outcomes], None]) -> Outcomes:
    """Run a graph, and look at it behind each turn."""
    ends = GRAPHS[name](batches)
    outcomes: Outcomes = Outcomes(
        tuple(end._stage for end in ends),
        {
            "progress": lambda _: look(outcomes),
            "clock": lw.ManualClock(0),
            "bundle_size": ROWS,
            "max_skew": "2s",
        },
    )
    for _ in outcomes:
        pass
    return outcomes


def peaks(name: str, batches: int, parts: int) -> list[int]:
    """Return how many bytes a run takes at most in each part of it, those of Python and numpy."""
    found: list[int] = []

    def look(outcomes: Outcomes) -> None:
        if outcomes.metrics.events >= (len(found) + 1) * events // parts:
            found.append(tracemalloc.get_traced_memory()[1])
            gc.collect()  # which lets go of what the interpreter keeps for later, too
            tracemalloc.reset_peak()

    ends = Graph.of([end._stage for end in GRAPHS[name](batches)])
    events = len(ends.reads) * batches * ROWS
    tracemalloc.start()
    try:
        run(name, batches, look)
    finally:
        tracemalloc.stop()
    return found


@pytest.mark.parametrize("name", GRAPHS)
def test_memory_does_not_grow_with_the_input(name: str) -> None:
    run(name, BATCHES, lambda _: None)  # what is made once is made
    _, few, *_, many, _ = peaks(name, 10 * BATCHES, 10)
    assert many < few + SLACK


@pytest.mark.parametrize("name", GRAPHS)
def test_rows_are_those_of_open_windows_and_nothing_waits_between_turns(name: str) -> None:
    def most(batches: int) -> int:
        rows: list[int] = []

        def look(outcomes: Outcomes) -> None:
            stages = outcomes.local._stages
            assert not any(outcomes.local._waiting)
            assert not any(stage._unread for stage in stages)
            rows.append(sum(stage.operator.state_rows for stage in stages))

        done = run(name, batches, look)
        assert done.metrics.events >= batches * ROWS
        assert rows[-1] == 0
        assert done.metrics.open_windows == 0
        return max(rows)

    assert most(10 * BATCHES) == most(2 * BATCHES)


# ----------------------------------------------------------------- what comes out all at one moment

WIDE = [
    {"at": n, "key": f"k{n}", "v": None if n % 5 == 0 else n, "w": [n, str(n)], "x": n % 3 == 0}
    for n in range(20)
]


def wide(rows: list[dict[str, Any]]) -> Pipeline:
    """Return panes of values of several kinds, all of which come at the end of the input."""
    return (
        lw.from_iterable(rows, time="at", clock=lw.ManualClock(0))
        .key_by("key", "x")
        .window(lw.FixedWindows("1h"))
        .aggregate(least=lw.min("v"), mean=lw.mean("v"), every=lw.collect("w"), n=lw.count())
    )


@pytest.mark.parametrize("size", [1, 7, 20, 100])
def test_panes_made_a_few_at_a_time_are_the_same(size: int, tmp_path: Path) -> None:
    (batch,) = wide(WIDE).run_batches()
    wide(WIDE).write_jsonl(tmp_path / "whole.jsonl").run()
    with (
        mock.patch.object(steps, "PANES_AT_ONCE", size),
        mock.patch.object(sidecars, "ROWS_AT_ONCE", size),
    ):
        assert list(batch) == batch.to_panes()
        assert len(batch) == len(WIDE)
        wide(WIDE).write_jsonl(tmp_path / "parts.jsonl").run()
    assert (tmp_path / "parts.jsonl").read_text() == (tmp_path / "whole.jsonl").read_text()


@pytest.mark.parametrize("how", ["panes", "jsonl"])
def test_what_comes_at_once_is_made_into_python_values_bit_by_bit(how: str) -> None:
    """So a sink takes a fraction of what the Python values of all would."""
    (batch,) = wide([{**WIDE[1], "key": n} for n in range(15_000)]).run_batches()
    table = panes_to_table(batch, ("key", "x"))

    def take() -> Iterator[Any]:
        return iter(batch) if how == "panes" else rows_of(table)

    tracemalloc.start()
    try:
        every = list(take())
        whole, _ = tracemalloc.get_traced_memory()
        del every
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        for _ in take():
            pass
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most - before < 0.75 * whole
