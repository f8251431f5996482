"""How a process sees times that Python's datetimes cannot hold (S-K10)."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.records.batch import Records
from lowwater.engine.records.python_values import python_values

FIRST = dt.datetime.min.replace(tzinfo=dt.UTC)
LAST = dt.datetime.max.replace(tzinfo=dt.UTC)
FAR = 2**50  # ms: the year 37648


class Echo:
    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit({**record, "key": ctx.key})


class Columns:
    def on_records(self, batch: Any, ctx: Any) -> None:
        ctx.emit({"x": batch["x"]}, ids=batch.ids, times=batch.times)


def table(unit: str = "ms", zone: str | None = "UTC") -> pa.Table:
    seen = pa.array([10**8, FAR, -FAR, None, FAR + 1], pa.int64()).view(pa.timestamp(unit, zone))
    return pa.table({"at": range(5), "k": ["a"] * 5, "x": seen})


def test_the_panes_of_a_window_without_an_end() -> None:
    windows = lw.from_arrow(table(), time="at").key_by("k").window(lw.GlobalWindow())
    panes = windows.aggregate(n=lw.count()).to_stream()
    (value,) = panes.key_by("k").process(Echo()).collect().values()
    assert (value["window_start"], value["window_end"], value["n"]) == (FIRST, LAST, 5)
    (pane,) = panes.key_by("k").window(lw.GlobalWindow()).aggregate(lw.max("window_end")).run()
    assert pane.value == LAST
    assert windows.aggregate(n=lw.count()).to_arrow()["window_end"].to_pylist() == [LAST]


@pytest.mark.parametrize("zone", ["UTC", None, "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("unit", ["s", "ms"])
def test_a_time_is_the_nearest_that_a_datetime_can_hold(unit: str, zone: str | None) -> None:
    stream = lw.from_arrow(table(unit, zone), time="at").key_by("k")
    seen = [value["x"] for value in stream.process(Echo()).collect().values()]
    assert [each and each.year for each in seen][1:] == [9999, 1, None, 9999]
    assert all(each is None or isinstance(each, dt.datetime) for each in seen)
    exact = [value["x"] for value in stream.process(Columns()).collect().values()]
    assert exact[1] == FAR


def test_keys_stay_apart() -> None:
    stream = lw.from_arrow(table(), time="at").filter(lw.col("at") != 3).key_by("x")
    keys = [element.key for element in stream.process(Echo()).collect().elements()]
    assert keys[1:] == [
        lw.Instant(FAR * 1_000),
        lw.Instant(-FAR * 1_000),
        lw.Instant(FAR * 1_000 + 1_000),
    ]
    panes = stream.window(lw.GlobalWindow()).aggregate(lw.count()).collect().panes
    assert sorted(pane.key for pane in panes if isinstance(pane.key, int)) == sorted(keys[1:])


def test_a_dead_letter_is_exact() -> None:
    columns = table().set_column(1, "k", pa.nulls(5, pa.string()))
    process = lw.from_arrow(columns, time="at").key_by("k").process(Echo())
    result = process.collect(on_error="dead_letter")
    assert result.errors[1].record["x"] == lw.Instant(FAR * 1_000)


def test_functions_get_datetimes() -> None:
    stream = lw.from_arrow(table(), time="at").filter(lw.col("at") < 2)
    years = stream.map(lambda row: {"at": row["at"], "k": "a", "year": row["x"].year})
    assert [v["year"] for v in years.key_by("k").process(Echo()).collect().values()] == [1970, 9999]


def test_a_durable_run_goes_past_one(tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / "1.parquet")
    for _ in range(2):
        stream = lw.read_parquet(tmp_path / "1.parquet", time="at").key_by("k")
        stream.process(Echo()).write_jsonl(tmp_path / "out").run(
            state=tmp_path / "state", commit_every="bundle", bundle_size=1
        )
    rows = [
        json.loads(line)
        for path in sorted((tmp_path / "out").glob("part-*"))
        for line in path.read_text().splitlines()
    ]
    assert [row["x"] for row in rows] == [
        "1970-01-02T03:46:40Z", "9999-12-31T23:59:59.999000Z", "0001-01-01T00:00:00Z", None,
        "9999-12-31T23:59:59.999000Z",
    ]  # fmt: skip


def test_the_first_instant_is_no_event_time() -> None:
    """It stands for no time at all, so a process could emit nothing at it."""
    times = pa.array([-(2**63), -(2**63) + 1], pa.int64())
    stream = lw.from_arrow(pa.table({"at": times, "k": ["a"] * 2, "x": [1, 2]}), time="at")
    result = stream.key_by("k").process(Echo()).collect()
    assert [value["x"] for value in result.values()] == [2]
    assert [error.reason for error in result.errors] == ["time_out_of_range"]


@pytest.mark.parametrize("exact", [True, False])
def test_values_inside_others(exact: bool) -> None:
    far = pa.array([FAR, None], pa.timestamp("ms", "UTC"))
    days, long = pa.array([2**30], pa.date32()), pa.array([2**62], pa.duration("s"))
    wanted: Any = lw.Instant(FAR * 1_000) if exact else LAST.replace(microsecond=999_000)
    lists = pa.ListArray.from_arrays(pa.array([0, 2]), far)
    assert python_values(lists, exact=exact) == [[wanted, None]]
    structs = pa.StructArray.from_arrays([lists], ["s"])
    assert python_values(structs, exact=exact) == [{"s": [wanted, None]}]
    pairs = pa.MapArray.from_arrays(pa.array([0, 1]), pa.array(["a"]), far[:1])
    assert python_values(pairs, exact=exact) == [[("a", wanted)]]
    codes = far.dictionary_encode()
    assert python_values(pa.chunked_array([codes, codes]), exact=exact) == [wanted, None] * 2
    assert python_values(days, exact=exact) == [
        "92771293593600000000us" if exact else dt.date.max  # beyond 64 bits
    ]
    assert python_values(long, exact=exact) == [dt.timedelta.max]


def test_rows_of_records() -> None:
    (batch,) = table().to_batches()
    records = Records.from_arrow(batch)
    assert records.row(1)["x"] == lw.Instant(FAR * 1_000)
