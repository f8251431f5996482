"""``memory_limit=``: windows leave memory for the state directory, and nothing else changes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.local import memory_budget as _memory_budget
from lowwater.engine.local.memory_budget import MemoryBudget
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, ClockAdvance, WatermarkAdvance
from lowwater.engine.window import spilling as _cold
from lowwater.engine.window import window_state
from lowwater.engine.window.inspect import InspectedWindows
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.persistence import DUES, FACTS, HOLDS, SPILLED, SPILLED_KEYS
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import StateError
from lowwater.io.sinks import Callback, ParquetFolder
from lowwater.pipeline.state_tools import state_info, verify_state
from lowwater.state.key_layout import StoredPlace, prefix_range, split_key, table_prefix
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch, Put
from lowwater.time import END_OF_TIME
from tests.unit.engine.local.durable_runs import Stopped, stopping

pytestmark = pytest.mark.slow(reason="more windows than memory holds")

SECOND = 1_000_000
QUIET: Any = {"progress": False}


class CountingStore:
    """A store that counts what is read from it."""

    def __init__(self) -> None:
        self._store = MemoryStore(MemoryContents())
        self.commit = self._store.commit
        self.reads = self.gets = self.rows_scanned = 0

    def get(self, keys: Any) -> Any:
        self.reads += len(keys)
        self.gets += 1
        return self._store.get(keys)

    def scan(self, start: bytes, stop: bytes) -> Any:
        self.reads += 1
        for row in self._store.scan(start, stop):
            self.rows_scanned += 1
            yield row


class Driven:
    def __init__(self, windowing: Windowing, memory: int | None) -> None:
        self.operator = WindowOperator(windowing, {"total": lw.sum("value")})
        self.operator.keep_in_store(StoredPlace("stage 1", 0, 4), memory=memory)
        self.store: Any = CountingStore()

    def take(self, keys: list[int], seconds: list[int]) -> None:
        bundle = Bundle(
            np.array(seconds, dtype=np.int64) * SECOND,
            (Column(np.array(keys)),),
            {"value": Column(np.ones(len(keys), dtype=np.int64))},
        )
        self.operator.load(self.store, bundle)
        self.operator.step(bundle)

    def advance(self, second: int) -> list[lw.Pane]:
        panes: list[lw.Pane] = []
        to = second * SECOND
        while (bound := self.operator.load_due(self.store, to)) is not None:
            output = self.operator.step(WatermarkAdvance(to, due=bound))
            panes += output.panes or []
        output = self.operator.step(WatermarkAdvance(to))
        return panes + list(output.panes or [])

    def tick(self, second: int) -> list[lw.Pane]:
        self.operator.load_timers(self.store, second * SECOND)
        return list(self.operator.step(ClockAdvance(second * SECOND)).panes or [])

    @property
    def output_watermark(self) -> int:
        self.operator.load_holder(self.store)
        return self.operator.output_watermark

    def save(self) -> None:
        batch = Batch()
        self.operator.save(batch)
        self.store.commit(batch)
        self.store.reads = 0

    @property
    def in_memory(self) -> int:
        return self.operator.state_rows - self.operator.spilled_rows


FIXED = Windowing(windows=lw.FixedWindows("10s"), allowed_lateness="1h", trigger=lw.AfterWatermark(
    late=lw.AfterCount(1)), accumulation="accumulating")  # fmt: skip


def test_what_was_touched_longest_ago_leaves_first() -> None:
    driven = Driven(FIXED, memory=60_000)
    for key in range(1000):
        driven.take([key], [0])
        if driven.operator.is_over:
            driven.save()
    assert driven.operator.open_windows == 1000
    assert 0 < driven.in_memory < 400
    driven.store.reads = 0
    driven.take([999], [0])  # of late, so it is in memory still
    assert driven.store.reads == 0
    driven.take([1], [0])
    assert driven.store.reads == 2  # the key, and the window


def test_only_the_windows_that_are_touched_come_back() -> None:
    driven = Driven(FIXED, memory=0)
    driven.take([1] * 50 + [2] * 50, [100 * at for at in range(50)] * 2)
    driven.save()
    assert driven.in_memory == 0
    driven.take([1], [1_200])
    assert driven.in_memory == 1
    assert driven.store.reads == 2  # the key, and the window
    driven.take([1], [1_201])
    assert driven.store.reads == 2
    driven.take([1], [1_255])  # a window that is new, but might be there
    assert driven.store.reads == 3
    driven.take([1], [9_999])  # behind all that left memory
    assert driven.store.reads == 3


def test_windows_and_their_keys_are_written_in_the_order_of_the_store() -> None:
    """A store takes rows in order in half the time, whatever the hashes of their keys."""
    driven = Driven(FIXED, memory=0)
    driven.take([1, *range(200), 1], [5, *([0] * 100), *([100] * 100), 7_000])
    batch = Batch()
    driven.operator.save(batch)
    written = [one.keys for one in batch.changes() if isinstance(one, Put) and len(one.keys) > 100]
    assert [split_key(keys[0])[2] for keys in written] == [SPILLED, SPILLED_KEYS]
    assert all(list(keys) == sorted(keys) for keys in written)


@pytest.mark.parametrize("memory", [None, 0])
@mock.patch.object(window_state, "_GARBAGE", 64)
def test_keys_that_are_forgotten_between_two_steps_are_encoded_again(memory: int | None) -> None:
    """Ids are remembered from loading a bundle to taking it, and no longer."""
    driven = Driven(Windowing(windows=lw.FixedWindows("10s")), memory)
    names = [f"key {at:03}" for at in range(500)]
    keys = (Column.from_arrow(pa.array(names)),)
    ones = np.ones(500, dtype=np.int64)
    bundle = Bundle(ones, keys, {"value": Column(ones)})
    for second in (0, 100, 200):
        driven.operator.load(driven.store, bundle)
        driven.operator.step(bundle)
        driven.save()
        found = driven.advance(second + 20)
        assert sorted(pane.key for pane in found) == names
        bundle = Bundle(bundle.times + 100 * SECOND, keys, bundle.values)


def test_nothing_is_read_while_nothing_is_due() -> None:
    driven = Driven(FIXED, memory=0)
    driven.take(list(range(500)), [100] * 500)
    driven.save()
    assert driven.in_memory == 0
    assert driven.advance(109) == []
    assert driven.store.reads == 0
    assert len(driven.advance(110)) == 500


def test_timers_and_holds_are_known_of_what_is_not_in_memory() -> None:
    """Of windows that wait for the clock, and of those that hold the output watermark."""
    windowing = Windowing(
        windows=lw.FixedWindows("10s"), timestamps="earliest", accumulation="accumulating",
        trigger=lw.AfterWatermark(early=lw.AfterProcessingTime("5s")),
    )  # fmt: skip
    plain, cold = Driven(windowing, memory=None), Driven(windowing, memory=0)
    given = []
    for driven in (plain, cold):
        seen: list[Any] = []
        for second in range(0, 40, 3):
            driven.take([second % 7, 8], [second, second + 1])
            driven.save()
            seen.append(driven.operator.next_deadline)
            seen.append(driven.tick(second))
            driven.save()
            seen.append(driven.advance(second - 10))
            driven.save()
            seen.append((driven.output_watermark, driven.operator.open_windows))
        given.append(seen)
    assert given[0] == given[1]


def test_a_shorter_lateness_is_applied_to_what_is_not_in_memory() -> None:
    def made(lateness: str) -> Driven:
        windowing = Windowing(
            windows=lw.FixedWindows("10s"), allowed_lateness=lateness, accumulation="accumulating"
        )
        return Driven(windowing, 0)

    before, after = made("1h"), made("30s")
    before.take([1, 2], [5, 25])
    before.advance(40)
    before.save()
    after.store = before.store
    assert after.operator.restore(after.store)
    after.advance(45)
    after.save()
    assert after.operator.state_rows == 1
    after.advance(60)
    after.save()
    assert after.operator.state_rows == 0


def test_windows_that_overlap_complete_one_after_the_other() -> None:
    """Each is stored anew when it is complete, beside those of its key that were so before."""
    windowing = Windowing(
        windows=lw.SlidingWindows("1h", "1m"), allowed_lateness="1d",
        trigger=lw.AfterWatermark(late=lw.AfterCount(1)), accumulation="accumulating",
    )  # fmt: skip
    plain, cold = Driven(windowing, memory=None), Driven(windowing, memory=0)
    given = []
    for driven in (plain, cold):
        panes = []
        driven.take([1, 2], [30, 90])
        driven.save()
        for minute in range(1, 70, 3):
            panes += driven.advance(60 * minute)
            driven.save()
        driven.take([1, 2], [31, 91])  # of late, into windows that are complete
        driven.save()
        panes += driven.advance(200_000)
        driven.save()
        given.append((panes, driven.operator.state_rows))
    assert given[0] == given[1]
    assert given[1][1] == 0


def test_rows_are_released_from_memory_and_store() -> None:
    driven = Driven(FIXED, memory=0)
    for second in range(0, 1000, 10):
        driven.take([1, 2], [second, second])
        driven.advance(second)
        driven.save()
    driven.advance(10_000)
    driven.save()
    assert driven.operator.state_rows == 0
    left = {split_key(key)[2] for key, _ in driven.store.scan(b"", b"\xff")}
    assert left == {FACTS}


def test_a_late_element_brings_its_window_back_as_it_was() -> None:
    driven = Driven(FIXED, memory=0)
    driven.take([7], [3])
    driven.advance(20)
    driven.save()
    assert driven.in_memory == 0
    driven.take([7], [5])
    assert driven.in_memory == 1
    assert driven.operator.open_windows == 1


def test_an_advance_in_portions_gives_what_one_step_gives() -> None:
    keys = [at % 10 + at // 100 * 10 for at in range(1000)]
    seconds = [at // 10 * 10 for at in range(1000)]
    plain, cold = Driven(FIXED, memory=None), Driven(FIXED, memory=0)
    for driven in (plain, cold):
        driven.take(keys, seconds)
        driven.save()
    with mock.patch.object(_cold, "AT_ONCE", 16):
        assert cold.operator.load_due(cold.store, 900 * SECOND) is not None
        assert cold.advance(900) == plain.advance(900)
        assert cold.advance(10_000) == plain.advance(10_000)
    assert cold.operator.state_rows == plain.operator.state_rows == 0


def with_windows_away(memory: int) -> Driven:
    """Return an operator with windows of three keys, most of which are not in memory."""
    cold = Driven(FIXED, memory)
    for second in range(0, 40_000, 100):
        cold.take([1, 2, 3] * 10, [second + 10 * (at // 3) for at in range(30)])
        if cold.operator.is_over:
            cold.save()
    cold.save()
    assert cold.operator.spilled_rows > 10_000
    return cold


def test_an_advance_in_portions_reads_each_window_about_once() -> None:
    """However long the next commit takes to come; and of keys that are known, nothing."""
    cold = with_windows_away(200_000)
    away, portions, to = cold.operator.spilled_rows, 0, 50_000 * SECOND
    cold.store.rows_scanned = 0
    with (
        mock.patch.object(_cold, "AT_ONCE", 500),
        mock.patch.object(cold.store, "get", side_effect=AssertionError("nothing is to be got")),
    ):
        while (bound := cold.operator.load_due(cold.store, to)) is not None:
            cold.operator.step(WatermarkAdvance(to, due=bound))
            portions += 1
    assert portions > 15
    assert away <= cold.store.rows_scanned < 2 * away


def test_windows_that_merge_are_read_many_at_a_time() -> None:
    """Though no two of them are due at the same time."""
    cold = Driven(Windowing(windows=lw.Sessions("10s")), memory=0)
    cold.take(list(range(12_000)), [100 * key for key in range(12_000)])
    cold.save()
    assert cold.in_memory == 0
    cold.store.gets = 0
    with mock.patch.object(_cold, "AT_ONCE", 10_000):
        assert len(cold.advance(2_000_000)) == 12_000
    assert cold.store.gets < 20


def test_what_was_loaded_counts_until_the_next_commit() -> None:
    """So an advance commits now and then: what it loads is in memory until it does."""
    cold = with_windows_away(200_000)
    spilled: Any = cold.operator._spilled
    to, most, commits = 50_000 * SECOND, 0, 0
    with mock.patch.object(_cold, "AT_ONCE", 100):
        while (bound := cold.operator.load_due(cold.store, to)) is not None:
            cold.operator.step(WatermarkAdvance(to, due=bound))
            most = max(most, spilled.loaded_bytes)
            if cold.operator.is_over:
                cold.save()
                commits += 1
                assert spilled.loaded_bytes == 0
    assert commits > 10
    assert 0 < most < 300_000


@pytest.mark.parametrize("limit", [-1, "1KB", "a lot", "12", True, "5 parsecs", 2.5], ids=repr)
def test_a_limit_that_is_none(limit: Any) -> None:
    with pytest.raises(lw.InvalidArgument, match="memory_limit"):
        MemoryBudget.of(limit)


def test_limits() -> None:
    budget = MemoryBudget.of("1GB")
    assert budget.rows is not None
    assert budget.rows == 375_000_000
    assert budget.rows + budget.cache + 2 * budget.memtable <= 10**9 // 8 * 5
    assert MemoryBudget.of("1 GiB") == MemoryBudget.of(1 << 30)


def test_a_limit_needs_a_state_directory(tmp_path: Path) -> None:
    pipeline = records(tmp_path).aggregate(n=lw.count())
    with pytest.raises(lw.InvalidArgument, match="state directory"):
        pipeline.write_parquet(tmp_path / "out").run(memory_limit="64MB", **QUIET)


def records(folder: Path, windows: Any = None, count: int = 4_000) -> Any:
    source = folder / "in.parquet"
    if not source.exists():
        random = np.random.default_rng(3)
        times = np.sort(random.integers(0, 4000, count)) - random.integers(0, 300, count)
        times = np.maximum(times, 0) * SECOND
        table = pa.table(
            {
                "time": pa.array(times, pa.timestamp("us", "UTC")),
                "key": pa.array([f"k{each}" for each in random.integers(0, 20, count)]),
                "value": pa.array(random.integers(0, 9, count)),
            }
        )
        pq.write_table(table, source)
    return (
        lw.read_parquet(str(source), time="time", watermark=lw.BoundedDisorder("30s"))
        .key_by("key")
        .window(
            windows or lw.FixedWindows("10s"),
            trigger=lw.AfterWatermark(early=lw.AfterCount(2), late=lw.AfterCount(1)),
            accumulation="retracting",
            allowed_lateness="10m",
        )
    )


def rows(folder: Path) -> list[Any]:
    files = sorted(folder.glob("*.parquet"))
    table = pa.concat_tables([pq.read_table(file) for file in files])
    return table.drop_columns(["emitted_at"]).to_pylist()


@pytest.mark.parametrize("windows", [lw.FixedWindows("10s"), lw.Sessions("3s")], ids=repr)
def test_runs_that_are_stopped_and_go_on_with_other_limits(tmp_path: Path, windows: Any) -> None:
    pipeline = records(tmp_path, windows, 2_000).aggregate(
        n=lw.count(), total=lw.sum("value"), seen=lw.collect("value")
    )
    options: Any = {"bundle_size": 50, "commit_every": "bundle", **QUIET}
    plain = tmp_path / "plain"
    pipeline.write_to(ParquetFolder(str(plain))).run(state=tmp_path / "one", **options)
    cold, state = tmp_path / "cold", tmp_path / "two"
    with (
        mock.patch.object(_memory_budget, "_LEAST", 0),
        mock.patch.object(_cold, "AT_ONCE", 50),
    ):
        limits: list[Any] = [100_000, 1 << 20, None, 100_000]
        for turn, limit in enumerate(limits):
            with stopping("before forgetting", 13):
                try:
                    pipeline.write_to(ParquetFolder(str(cold))).run(
                        state=state, memory_limit=limit, **options
                    )
                except Stopped:
                    pass
            if not turn:
                verify_state(state)
                tables = {size.table for size in state_info(state).sizes if size.rows}
                assert "windows not in memory" in tables
        pipeline.write_to(ParquetFolder(str(cold))).run(
            state=state, memory_limit=100_000, **options
        )
    assert rows(cold) == rows(plain)


def test_sessions_that_end_with_time_are_found_again() -> None:
    sessions = Windowing(windows=lw.Sessions("5s"))
    driven = Driven(sessions, memory=0)
    last = END_OF_TIME // SECOND
    driven.take([1], [last - 3])
    driven.save()
    driven.take([1], [last - 2])
    assert driven.operator.open_windows == 1


@pytest.mark.parametrize("table", [SPILLED, SPILLED_KEYS, DUES, HOLDS])
def test_parts_that_are_missing_are_told(table: int) -> None:
    driven = Driven(Windowing(windows=lw.Sessions("5s"), timestamps="earliest"), memory=0)
    driven.take([1, 2], [10, 50])
    driven.save()
    batch = Batch()
    for group in range(4):
        batch.delete_range(*prefix_range(table_prefix("stage 1", group, table)))
    driven.store.commit(batch)
    with pytest.raises(StateError, match="cannot be read"):
        InspectedWindows(driven.store, StoredPlace("stage 1", 0, 4)).verify()


def test_a_run_commits_once_it_has_more_state_than_it_may(tmp_path: Path) -> None:
    pipeline = records(tmp_path).aggregate(n=lw.count()).write_to(Callback(str))
    options: Any = {"bundle_size": 100, "commit_every": 10**9, **QUIET}
    pipeline.run(state=tmp_path / "one", **options)  # commits at its end alone
    with (
        mock.patch.object(_memory_budget, "_LEAST", 0),
        stopping("after the write", 5),
        pytest.raises(Stopped),
    ):
        pipeline.run(state=tmp_path / "two", memory_limit=100_000, **options)


def test_a_run_stopped_in_its_last_advance_takes_nothing_more(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    records(tmp_path)
    source = tmp_path / "in.parquet"
    shutil.copy(source, folder / "a.parquet")
    pipeline = (
        lw.read_parquet(str(folder), time="time", watermark=lw.BoundedDisorder("2h"))
        .key_by("key")
        .window(lw.FixedWindows("10s"))
        .aggregate(n=lw.count())
    )
    options: Any = {"state": tmp_path / "state", "memory_limit": 4096, **QUIET}
    with (
        mock.patch.object(_memory_budget, "_LEAST", 0),
        mock.patch.object(_cold, "AT_ONCE", 50),
    ):
        with stopping("before forgetting", 5), pytest.raises(Stopped):
            pipeline.write_to(Callback(str)).run(bundle_size=1000, commit_every="bundle", **options)
        shutil.copy(source, folder / "b.parquet")
        with pytest.raises(StateError, match="there is more to read"):
            pipeline.write_to(Callback(str)).run(bundle_size=1000, **options)
        (folder / "b.parquet").unlink()
        metrics = pipeline.write_to(Callback(str)).run(bundle_size=1000, **options)
    plain = pipeline.collect(**QUIET)
    assert metrics.panes == plain.metrics.panes


def test_what_was_in_memory_while_a_portion_was_loaded_is_due_in_the_next_one() -> None:
    """Its entry in the queue is before where the next portion begins, and stays as it was."""
    driven = Driven(Windowing(windows=lw.Sessions("10s")), memory=0)
    driven.take([1, 2, 3], [0, 1, 2])
    driven.save()
    driven.take([2], [1])  # loaded, due when it was
    found: list[lw.Pane] = []
    with mock.patch.object(_cold, "AT_ONCE", 1):
        while (bound := driven.operator.load_due(driven.store, 15 * SECOND)) is not None:
            found += driven.operator.step(WatermarkAdvance(15 * SECOND, due=bound)).panes or []
            driven.save()
    found += driven.operator.step(WatermarkAdvance(15 * SECOND)).panes or []
    assert [pane.key for pane in found] == [1, 2, 3]
