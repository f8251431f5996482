"""``memory_limit=`` for joins and tables: keys leave memory, and nothing else changes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.join.interval_join import JoinOperator
from lowwater.engine.join.joining import Between, Joining
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.join.tables import UpsertOperator
from lowwater.engine.join.upserting import Upserting
from lowwater.engine.keyed.inspect import verify_records
from lowwater.engine.keyed.operator import SideBundle
from lowwater.engine.keyed.sides import LEFT, RIGHT
from lowwater.engine.local import memory_budget
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, WatermarkAdvance
from lowwater.errors import StateError
from lowwater.pipeline.state_tools import verify_state
from lowwater.state.key_layout import StoredPlace, table_prefix
from lowwater.state.memory import MemoryStore
from lowwater.state.store import Batch

PLACE = StoredPlace("join", 0, 4)
ROWS = 1_500


class Counting:
    """A store that counts what is read from it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.scan = self.store.scan
        self.reads = 0

    def get(self, keys: Any) -> Any:
        self.reads += len(keys)
        return self.store.get(keys)


def counting() -> Any:
    """Return such a store; it has what operators use."""
    return Counting()


def joined() -> JoinOperator:
    columns = JoinedColumns({"value": None}, {"value": None}, ("key",))
    return JoinOperator(Joining(Between("-10us", "10us"), "left", "final", 0), columns)


def bundle(keys: list[int], times: list[int], values: Column | None = None) -> Bundle:
    given = values or Column(np.array(keys))
    return Bundle(np.array(times), (Column(np.array(keys)),), {"value": given})


def save(operator: Any, store: Any) -> None:
    batch = Batch()
    operator.save(batch)
    store.store.commit(batch)
    store.reads = 0


def test_what_was_touched_longest_ago_leaves_first() -> None:
    operator, store = joined(), counting()
    operator.keep_in_store(PLACE, 30_000)
    for key in range(400):
        given = bundle([key], [5])
        operator.load(store, given)
        operator.step(SideBundle(LEFT, given))
        if operator.is_over:
            save(operator, store)
    assert 100 < operator.spilled_rows < operator.state_rows == 400
    store.reads = 0
    operator.load(store, bundle([399], [6]))  # of late, so it is in memory still
    assert store.reads == 0
    operator.load(store, bundle([1, 1, 2], [6, 6, 6]))
    assert store.reads == 2
    operator.load(store, bundle([1, 2, 5_000], [6, 6, 6]))  # a new key might be there
    assert store.reads == 3


def test_nothing_is_read_while_nothing_is_due() -> None:
    operator, store = joined(), counting()
    operator.keep_in_store(PLACE, 0)
    operator.step(SideBundle(LEFT, bundle(list(range(500)), [100] * 500)))
    save(operator, store)
    assert operator.spilled_rows == 500
    assert operator.load_due(store, 110, 110) is None
    operator.step(WatermarkAdvance(110))
    assert store.reads == 0
    operator.load_holder(store)  # one of them says what the watermark is held at
    assert store.reads == 1
    assert operator.output_watermark == 100
    assert operator.load_due(store, 111, 111) is None
    output = operator.step(WatermarkAdvance(111))
    assert sum(map(len, output.emitted.values())) == 500
    assert operator.state_rows == 0


def test_a_restart_reads_what_was_in_memory() -> None:
    operator, store = joined(), counting()
    operator.keep_in_store(PLACE, 0)
    operator.step(SideBundle(LEFT, bundle(list(range(500)), [100] * 500)))
    save(operator, store)
    again = joined()
    again.keep_in_store(PLACE, 0)
    assert again.restore(store)
    assert store.reads == 1  # the facts
    assert (again.state_rows, again.spilled_rows) == (500, 500)
    whole = joined()
    whole.keep_in_store(PLACE)  # no limit any more
    assert whole.restore(store)
    assert (whole.state_rows, whole.spilled_rows) == (500, 0)
    partner = bundle([7], [105])
    again.load(store, partner)
    for one in (again, whole):
        (emitted,) = one.step(SideBundle(RIGHT, partner)).emitted.values()
        assert emitted.to_list() == [{"value": 7, "value_right": 7}]


def test_values_are_the_same_after_their_column_has_changed_its_type() -> None:
    operator, store = UpsertOperator(Upserting(), {}), counting()
    operator.keep_in_store(PLACE, 0)
    day = pa.array([dt.date(2000, 1, 5), None])
    operator.step(bundle([1, 2], [5, 5], Column.from_arrow(day)))
    save(operator, store)
    other = bundle([3], [5], Column.of_objects(["text"]))
    operator.load(store, other)
    operator.step(other)
    save(operator, store)
    operator = UpsertOperator(Upserting(), {})
    operator.keep_in_store(PLACE, 0)
    assert operator.restore(store)
    new = bundle([1, 2], [6, 6], Column.of_objects(["new", "new"]))
    operator.load(store, new)
    (emitted,) = operator.step(new).emitted.values()
    assert [one["value"] for one in emitted.to_list()] == [day[0].as_py(), None, "new", "new"]


@pytest.mark.parametrize("cut", [0, 20, -1])
def test_damaged_parts_are_refused(cut: int) -> None:
    operator, store = joined(), counting()
    operator.keep_in_store(PLACE, 0)
    operator.step(SideBundle(LEFT, bundle([1], [100])))
    save(operator, store)
    for group in PLACE.groups:
        prefix = table_prefix("join", group, 7)
        for key, value in list(store.store.scan(prefix, prefix + b"\xff")):
            batch = Batch()
            batch.put([key], [value[:cut]])
            store.store.commit(batch)
    with pytest.raises(StateError, match=r"a stored (row|record of a join)"):
        operator.load(store, bundle([1], [100]))


def test_a_part_that_is_queued_and_not_there_is_missed() -> None:
    """Neither waited for without end, nor left out of what comes out."""
    operator, store = joined(), counting()
    operator.keep_in_store(PLACE, 0)
    operator.step(SideBundle(LEFT, bundle([1], [100])))
    save(operator, store)
    batch = Batch()
    for group in PLACE.groups:
        batch.delete_range(table_prefix("join", group, 7), table_prefix("join", group, 8))
    store.store.commit(batch)
    operator.step(WatermarkAdvance(105))
    with pytest.raises(StateError, match="1 of 1 that are queued are not there"):
        operator.load_holder(store)
    with pytest.raises(StateError, match="1 of 1 that are queued are not there"):
        operator.load_due(store, 200, 200)


@pytest.mark.parametrize("table", [8, 10])
@pytest.mark.parametrize("more", [False, True])
def test_queues_that_do_not_fit_the_parts_are_found(table: int, more: bool) -> None:
    operator, store = joined(), counting()
    operator.keep_in_store(PLACE, 0)
    operator.step(SideBundle(LEFT, bundle([1], [100])))
    save(operator, store)
    verify_records(store.store, PLACE)
    batch = Batch()
    for group in PLACE.groups:
        prefix = table_prefix("join", group, table)
        for key, _ in store.store.scan(prefix, prefix + b"\xff"):
            if more:
                batch.put([key[:-1] + bytes([key[-1] ^ 1])], [b""])
            else:
                batch.delete([key])
    store.store.commit(batch)
    with pytest.raises(StateError, match="queued"):
        verify_records(store.store, PLACE)


def inputs(folder: Path, *, files: int = 4) -> None:
    """Write both sides: each record of the left mostly has a partner, some time later."""
    random = np.random.default_rng(5)
    at = np.sort(random.integers(0, 10_000_000, ROWS))
    key = random.permutation(ROWS)
    later = at + random.integers(0, 6_000_000, ROWS)
    order = np.argsort(later)
    sides = {
        "left": {"at": at, "key": key, "l": at % 97},
        "right": {"at": later[order], "key": key[order], "r": at[order] % 89},
    }
    for side, columns in sides.items():
        (folder / side).mkdir(parents=True)
        table = pa.table(columns).append_column(
            "city", pa.array([f"c{n % 50}" for n in range(ROWS)])
        )
        for number in range(files):
            part = table.slice(number * ROWS // files, ROWS // files)
            pq.write_table(part, folder / side / f"{number}.parquet")


def by_time(left: lw.Stream, right: lw.Stream) -> Any:
    return left.join(right, on="key", within="5s", how="outer")


def as_of(left: lw.Stream, right: lw.Stream) -> Any:
    return right.join_as_of(left, on="key", late_versions="correct", keep="3s")


def tables(left: lw.Stream, right: lw.Stream) -> Any:
    both = left.table(key="key").join(right.table(key="key").select("key", "r"), on="key")
    return both.group_by("city").aggregate(n=lw.count(), most=lw.max("r")).changes()


@pytest.mark.slow(reason="more keys than memory holds")
@pytest.mark.parametrize("graph", [by_time, as_of, tables])
def test_a_run_gives_the_same_with_a_limit(
    graph: Callable[[lw.Stream, lw.Stream], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_budget, "_LEAST", 0)
    inputs(tmp_path / "in")
    found = {}
    for name, limit in (("all", None), ("some", 150_000)):
        left, right = (
            lw.read_parquet(tmp_path / "in" / side, time="at", watermark=lw.BoundedDisorder("1s"))
            for side in ("left", "right")
        )
        stream, out = graph(left, right), tmp_path / f"{name}.jsonl"
        writing = stream.write_jsonl(out)
        for last in (False, True):
            state = tmp_path / name
            handle = writing.start(
                state=state, memory_limit=limit, bundle_size=250, commit_every="bundle",
                progress=False,
            )  # fmt: skip
            if not last:
                handle.stop()
            handle.wait()
            verify_state(state)
        found[name] = out.read_bytes()
    assert found["some"] == found["all"]
    assert len(found["all"].splitlines()) > ROWS // 2
