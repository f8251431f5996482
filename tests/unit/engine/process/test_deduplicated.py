"""Duplicates are dropped before a process as before windows (S-D1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.pipeline.state_tools import verify_state
from tests.unit.engine.local.durable_runs import output, run, stopped, write_file


class All:
    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.emit({"v": record["v"]})


class AllColumns:
    def on_records(self, batch: Any, ctx: Any) -> None:
        ctx.emit({"v": batch["v"]}, ids=batch.ids, times=batch.times)


ROWS = st.lists(st.tuples(st.integers(0, 40), st.sampled_from("ab"), st.integers(0, 4)))


@pytest.mark.parametrize("process", [All, AllColumns])
@pytest.mark.parametrize("id", ["v", ("v", "k")])
@given(rows=ROWS, size=st.integers(1, 5))
def test_a_process_gets_what_windows_get(
    process: type, id: Any, rows: list[tuple[int, str, int]], size: int
) -> None:
    items = [{"at": at, "k": key, "v": v} for at, key, v in rows]
    stream = lw.from_iterable(items, time="at", unit="us", watermark=lw.BoundedDisorder("5us"))
    once = stream.deduplicate(id=id, within="10us").key_by("k")
    found = once.process(process()).collect(bundle_size=size)
    wanted = once.window(lw.GlobalWindow()).group("v", name="v").collect(bundle_size=size)
    assert found.metrics.duplicates == wanted.metrics.duplicates
    per_key: dict[str, list[int]] = {}
    for one in found.elements():
        per_key.setdefault(one.key, []).append(one.value["v"])
    assert per_key == {pane.key: pane.values["v"] for pane in wanted.panes}


def test_the_late_record_is_the_right_one() -> None:
    class Refuses:
        def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
            if record["v"] == 2:
                ctx.late("two")

    items = [{"at": 1, "k": "a", "v": v} for v in (1, 1, 1, 2, 3)]
    stream = lw.from_iterable(items, time="at").deduplicate(id="v", within="1h")
    (late,) = stream.key_by("k").process(Refuses()).collect(trace=True).late
    assert late.value == items[3]


@pytest.mark.parametrize("commits", [1, 3, 5])
def test_ids_are_remembered_across_runs(tmp_path: Path, commits: int) -> None:
    file = write_file(tmp_path / "in" / "0.parquet", 0)

    def made() -> Any:
        read = lw.read_parquet(file, time="at", clock=lw.ManualClock(0))
        ids = read.with_columns(v=lw.col("value") % 30).deduplicate(id="v", within="1h")
        return ids.key_by("key").process(All())

    stopped(made(), tmp_path, commits)
    done = run(made(), tmp_path)
    assert sorted(row["v"] for row in output(tmp_path)["part"]) == list(range(30))
    assert done.duplicates == 70
    assert verify_state(tmp_path / "state") > 0
