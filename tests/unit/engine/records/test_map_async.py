"""``map_async``: many calls at a time, and records as if each had been made in turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.graph.graph import Graph
from lowwater.engine.records import async_calls
from lowwater.errors import UnsupportedByRunner
from lowwater.spark.supported import require_supported
from tests.examples import examples
from tests.unit.engine.local.durable_runs import Stopped, stopping

Row = dict[str, Any]


def stream(count: int) -> lw.Stream:
    rows = [{"at": n, "k": "ab"[n % 2], "n": n} for n in range(count)]
    return lw.from_iterable(rows, time="at", unit="s")


@examples(20)
@given(
    count=st.integers(0, 40),
    capacity=st.integers(1, 50),
    batch=st.none() | st.integers(1, 9),
    waits=st.lists(st.integers(0, 5), min_size=1, max_size=7),
    fails=st.sets(st.integers(0, 40)),
    retries=st.integers(0, 2),
)
def test_it_is_as_if_each_call_was_made_in_turn(
    count: int,
    capacity: int,
    batch: int | None,
    waits: list[int],
    fails: set[int],
    retries: int,
) -> None:
    """Whatever calls take, records come in order; those of failed calls are dead letters."""
    running, most = 0, 0
    calls: Counter[int] = Counter()

    async def call(given: Any) -> Any:
        nonlocal running, most
        rows = given if batch is not None else [given]
        running += 1
        most = max(most, running)
        calls.update(row["n"] for row in rows)
        for _ in range(waits[rows[0]["n"] % len(waits)]):
            await asyncio.sleep(0)
        running -= 1
        if any(row["n"] in fails for row in rows):
            raise ValueError("no")
        results = [{**row, "twice": row["n"] * 2} for row in rows]
        return results if batch is not None else results[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(async_calls, "_FIRST_WAIT_S", 0.0)
        result = (
            stream(count)
            .map_async(call, capacity=capacity, batch=batch, retries=retries)
            .collect(progress=False, on_error="dead_letter")
        )
    size = 1 if batch is None else batch
    failed = {
        n
        for n in range(count)
        if any(m in fails for m in range(n // size * size, min(count, n // size * size + size)))
    }
    assert [row["n"] for row in result.values()] == [n for n in range(count) if n not in failed]
    assert all(row["twice"] == 2 * row["n"] for row in result.values())
    assert [letter.record["n"] for letter in result.errors] == sorted(failed)
    assert {letter.reason for letter in result.errors} <= {"function_failed"}
    assert most <= capacity
    assert calls == {n: retries + 1 if n in failed else 1 for n in range(count)}


def test_20_000_records_in_one_batch() -> None:
    async def call(row: Row) -> Row:
        await asyncio.sleep(0)
        return {**row, "twice": row["n"] * 2}

    rows = stream(20_000).map_async(call, capacity=1_000).collect(progress=False).values()
    assert [row["twice"] for row in rows] == [2 * n for n in range(20_000)]


def test_a_call_that_takes_too_long_is_a_dead_letter() -> None:
    async def call(row: Row) -> Row:
        if row["n"] == 1:
            await asyncio.Event().wait()
        return row

    result = (
        stream(3).map_async(call, timeout="1ms").collect(progress=False, on_error="dead_letter")
    )
    assert [row["n"] for row in result.values()] == [0, 2]
    (letter,) = result.errors
    assert letter.reason == "timed_out"
    assert letter.detail == "the function of map_async took longer than 1ms"


def test_a_retry_that_works() -> None:
    tries: Counter[int] = Counter()

    async def call(row: Row) -> Row:
        tries[row["n"]] += 1
        if tries[row["n"]] < 3:
            raise ConnectionError
        return row

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(async_calls, "_FIRST_WAIT_S", 0.0)
        result = stream(5).map_async(call, retries=2).collect(progress=False)
    assert len(result.values()) == 5
    assert set(tries.values()) == {3}


@pytest.mark.parametrize("returned", [None, [], {"n": 1}, [1, 2, 3]])
def test_what_is_no_list_of_results(returned: Any) -> None:
    async def call(rows: list[Row]) -> Any:
        return returned

    result = stream(4).map_async(call, batch=2).collect(progress=False, on_error="dead_letter")
    assert result.values() == []
    assert len(result.errors) == 4
    assert "not a list with a result for each" in str(result.errors[0].detail)


def test_none_is_no_record() -> None:
    async def call(row: Row) -> Row | None:
        return row if row["n"] else None

    result = stream(3).map_async(call).collect(progress=False, on_error="dead_letter")
    assert [letter.reason for letter in result.errors] == ["null_record"]


def test_on_error_raise_stops_the_run() -> None:
    async def call(row: Row) -> Row:
        raise ValueError("no")

    with pytest.raises(lw.DataError, match="map_async failed: ValueError: no"):
        stream(3).map_async(call).collect(progress=False, on_error="raise")


def test_within_a_running_loop_as_in_a_notebook() -> None:
    async def call(row: Row) -> Row:
        await asyncio.sleep(0)
        return row

    async def cell() -> int:
        return len(stream(10).map_async(call).collect(progress=False).values())

    assert asyncio.run(cell()) == 10


def test_all_calls_share_one_loop() -> None:
    loops = set()

    async def call(row: Row) -> Row:
        loops.add(asyncio.get_running_loop())
        return row

    for _ in range(2):
        stream(10).map_async(call).collect(progress=False)
    assert len(loops) == 1


def test_killed_runs_write_each_record_once(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(4):
        at = range(number * 10, number * 10 + 10)
        pq.write_table(pa.table({"at": at, "n": at}), tmp_path / "in" / f"{number}.parquet")
    called: Counter[int] = Counter()

    async def call(row: Row) -> Row:
        called[row["n"]] += 1
        return {**row, "k": "a"}

    def run() -> None:
        rows = lw.read_parquet(tmp_path / "in", time="at", unit="s", watermark=lw.Ascending())
        panes = (
            rows.map_async(call)
            .key_by("k")
            .window(lw.FixedWindows("5s"))
            .aggregate(values=lw.collect("n"))
        )
        panes.write_jsonl(tmp_path / "out").run(
            state=tmp_path / "state", commit_every="bundle", bundle_size=7, progress=False
        )

    for point in ("before the write", "after the write", "before publishing"):
        with stopping(point, 2), pytest.raises(Stopped):
            run()
    run()
    import json

    lines = [
        json.loads(line)
        for path in sorted((tmp_path / "out").glob("part-*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    assert [value for line in lines for value in line["values"]] == list(range(40))
    assert max(called.values()) > 1  # what was not committed was called for again


def test_what_is_refused() -> None:
    async def call(row: Row) -> Row:
        return row

    with pytest.raises(lw.InvalidArgument, match=r"async.*Use \.map_async\(function\)"):
        stream(1).map(call)
    with pytest.raises(lw.InvalidArgument, match="is not async"):
        stream(1).map_async(dict)  # type: ignore[arg-type]
    for options in ({"capacity": 0}, {"retries": -1}, {"batch": 0}, {"timeout": "0s"}):
        with pytest.raises(lw.InvalidArgument):
            stream(1).map_async(call, **options)
    keyed = stream(1).map_async(call).key_by("k").window(lw.FixedWindows("1m"))
    stage = keyed.aggregate(n=lw.count())._stage
    with pytest.raises(UnsupportedByRunner, match="map_async calls the outside"):
        require_supported(Graph.of([stage]))


ODD: list[Any] = [
    None, 2**53 + 1, 2**70, float("nan"), "text", b"bytes", 1.5, [1, "x"], {"a": None}, True,
]  # fmt: skip


def test_odd_values_are_those_of_map() -> None:
    """What a call returns is taken as ``map`` takes it, whatever it is; so are broken records."""

    def odd(row: Row) -> Any:
        n = row["n"]
        if n % 13 == 12:
            return {1: "no name of a column"}
        if n % 17 == 16:
            raise ValueError("no")
        return {**row, "value": ODD[n % len(ODD)]}

    async def call(row: Row) -> Any:
        return odd(row)

    options: dict[str, Any] = {"progress": False, "on_error": "dead_letter", "bundle_size": 100}
    by_call = stream(1_000).map_async(call, capacity=9).collect(**options)
    in_turn = stream(1_000).map(odd).collect(**options)
    assert repr(by_call.values()) == repr(in_turn.values())  # a NaN is not equal to itself
    assert [letter.record for letter in by_call.errors] == [
        letter.record for letter in in_turn.errors
    ]
    assert len(by_call.errors) > 100
