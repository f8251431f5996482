"""Streams without a stage are run, collected and written: their records come out as they are."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.pipeline.state_tools import verify_state
from tests.unit.engine.local.durable_runs import output, run, stopped, write_files

SECOND = 1_000_000
ROWS = [{"at": at * SECOND, "k": key, "v": v} for at, key, v in [(3, "a", 1), (1, "b", 2)]]


def stream(rows: list[Any] = ROWS, **options: Any) -> lw.Stream:
    return lw.from_iterable(rows, time="at", **options)


def test_records_come_out_as_they_are() -> None:
    result = stream().collect()
    assert result.values() == ROWS
    assert [(one.key, int(one.timestamp), one.kind) for one in result.elements()] == [
        (None, 3 * SECOND, "insert"), (None, SECOND, "insert"),
    ]  # fmt: skip
    assert [one.value for one in stream().run()] == ROWS
    table = stream().to_arrow()
    assert table.column_names == ["at", "k", "v", "timestamp"]
    assert table["v"].to_pylist() == [1, 2]
    assert [at.second for at in table["timestamp"].to_pylist()] == [3, 1]
    assert stream().to_pandas()["k"].to_list() == ["a", "b"]
    assert sum(len(batch) for batch in stream().run_batches()) == 2
    assert result.metrics.events == 2
    assert result.metrics.stages["stage 1"].emitted == {"main": 2}


def test_steps_are_applied() -> None:
    some = stream().filter(lw.col("v") > 1).with_columns(w=lw.col("v") * 2).select("w")
    assert some.collect().values() == [{"at": SECOND, "w": 4}]
    assert stream().map(lambda record: {**record, "x": 1}).collect().values()[0]["x"] == 1


def test_plain_values_stay_plain() -> None:
    plain = lw.from_iterable([5, 7], time=lambda value: value * SECOND)
    assert plain.collect().values() == [5, 7]
    assert [int(one.timestamp) for one in plain.run()] == [5 * SECOND, 7 * SECOND]
    assert plain.to_arrow()["value"].to_pylist() == [5, 7]


def test_invalid_records_are_dead_letters() -> None:
    result = stream([*ROWS, {"at": None, "k": "c", "v": 3}]).collect(on_error="dead_letter")
    assert len(result.values()) == 2
    assert [error.reason for error in result.errors] == ["null_time"]


def test_late_records_are_records_as_others() -> None:
    result = stream(watermark=lw.Ascending()).collect(bundle_size=1)
    assert result.values() == ROWS
    assert not result.late


@given(
    rows=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3))),
    others=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3))),
    size=st.integers(1, 7),
)
def test_nothing_is_lost_of_a_union_without_duplicates(
    rows: list[tuple[int, int]], others: list[tuple[int, int]], size: int
) -> None:
    sides = [[{"at": at, "v": v} for at, v in side] for side in (rows, others)]
    both = stream(sides[0], unit="us") | stream(sides[1], unit="us")
    found = both.collect(bundle_size=size)
    assert Counter(map(str, found.values())) == Counter(map(str, sides[0] + sides[1]))
    once = both.deduplicate(id="v", within="1h").collect(bundle_size=size)
    values = [one["v"] for one in once.values()]
    assert sorted(values) == sorted({v for _, v in rows + others})
    assert once.metrics.duplicates == len(rows) + len(others) - len(values)


@given(
    rows=st.lists(st.tuples(st.integers(0, 30), st.sampled_from("ab"), st.integers(1, 9))),
    size=st.integers(1, 5),
)
def test_retractions_keep_their_signs(rows: list[tuple[int, str, int]], size: int) -> None:
    """S-C1: downstream of retracting panes and of joins."""
    items = [{"at": at, "k": key, "v": v} for at, key, v in rows]
    source = stream(items, unit="us", watermark=lw.Ascending())
    panes = source.key_by("k").window(
        lw.FixedWindows("10us"), accumulation="retracting", allowed_lateness="1m"
    )
    sums = panes.aggregate(v=lw.sum("v"))
    joined = sums.filter(lw.col("v") > 0).join(
        source.filter(lw.col("v") > 0), on="k", within="100us"
    )
    for made in (sums, joined):
        plain = made.collect(bundle_size=size)
        alone = made.filter(lw.col("v") > 3).collect(bundle_size=size)
        wanted: Counter[Any] = Counter()
        if isinstance(made, lw.Pipeline):
            for pane in plain.panes:
                if pane.values["v"] > 3:
                    wanted[pane.key, int(pane.timestamp), pane.values["v"], pane.kind] += 1
        else:
            for one in plain.elements():
                if one.value["v"] > 3:
                    wanted[one.key, int(one.timestamp), one.value["v"], one.kind] += 1
        found: Counter[Any] = Counter()
        for one in alone.elements():
            found[one.value["k"], int(one.timestamp), one.value["v"], one.kind] += 1
        assert found == wanted


def test_tables_of_streams_that_may_retract_have_a_kind(tmp_path: Path) -> None:
    panes = stream().key_by("k").window(lw.FixedWindows("1m"), accumulation="retracting")
    sums = panes.aggregate(n=lw.sum("v")).filter(lw.col("n") > 0)
    assert sums.to_arrow()["kind"].to_pylist() == ["insert", "insert"]
    sums.write_jsonl(tmp_path / "out.jsonl").run()
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["insert", "insert"]


def test_it_is_written(tmp_path: Path) -> None:
    stream().write_parquet(tmp_path / "out").run()
    (file,) = (tmp_path / "out").glob("part-*.parquet")
    assert pq.read_table(file)["k"].to_pylist() == ["a", "b"]
    one, two = stream(), stream().filter(lw.col("v") > 1)
    lw.run(one.write_jsonl(tmp_path / "one.jsonl"), two.write_jsonl(tmp_path / "two.jsonl"))
    assert len((tmp_path / "one.jsonl").read_text().splitlines()) == 2
    assert len((tmp_path / "two.jsonl").read_text().splitlines()) == 1


def test_nothing_has_the_columns_that_are_known() -> None:
    table = pa.table({"at": pa.array([], pa.int64()), "v": pa.array([], pa.float64())})
    found = lw.from_arrow(table, time="at").to_arrow()
    assert found.schema.names == ["at", "v", "timestamp"]
    assert found.schema.field("v").type == pa.float64()
    assert len(found) == 0


@pytest.mark.parametrize("commits", [1, 7])
def test_a_durable_run_writes_each_record_once(tmp_path: Path, commits: int) -> None:
    files = write_files(tmp_path / "in", 2)

    def made() -> Any:
        read = lw.read_parquet(files, time="at", clock=lw.ManualClock(0))
        return read.deduplicate(id="value", within="1h")

    stopped(made(), tmp_path, commits)
    assert verify_state(tmp_path / "state") > 0
    run(made(), tmp_path)
    assert verify_state(tmp_path / "state") > 0
    assert sorted(row["value"] for row in output(tmp_path)["part"]) == list(range(200))
    with pytest.raises(lw.StateError, match="deduplicate was"):
        run(lw.read_parquet(files, time="at", clock=lw.ManualClock(0)), tmp_path)  # type: ignore[arg-type]


def test_it_is_described() -> None:
    some = stream().select("v")
    assert some.explain().splitlines()[-3:] == [
        "stage 1", "  reads: source 1 → select('v')", "  records as they are",
    ]  # fmt: skip
    assert "records as they are" in some.to_mermaid()
    assert "exchanges" not in some.explain()
    assert repr(some).startswith("Stream(")
    assert "records as they are" in str(some.graph())
    assert not lw.check(stream(watermark=lw.Ascending()))


def test_it_is_traced() -> None:
    result = stream().collect(trace=True)
    assert len(result.trace.stages[0].elements) == 2
    assert "b" in str(result.why({"v": 2}))


def test_an_endless_stream_is_not_collected(tmp_path: Path) -> None:
    file = tmp_path / "in" / "a.jsonl"
    file.parent.mkdir()
    file.write_text("")
    endless = lw.read_jsonl(tmp_path / "in", time="at", follow=True)
    with pytest.raises(lw.InvalidArgument, match="never ends"):
        endless.collect()
