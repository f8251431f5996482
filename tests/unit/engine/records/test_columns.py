"""Columns of several types, put together."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.records.columns import Column

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
INSTANTS = pa.timestamp("us", "UTC")


def together(*arrays: pa.Array) -> Column:
    return Column.concat([Column.from_arrow(array) for array in arrays])


@pytest.mark.parametrize(
    "array",
    [
        pa.array([NOON], INSTANTS),
        pa.array([NOON.date()]),
        pa.array([dt.timedelta(seconds=3)]),
        pa.array([7]),
        pa.array(["a"]).dictionary_encode(),
        pa.array([[1]]),
    ],
    ids=lambda array: str(array.type),
)
def test_nulls_take_the_type_of_the_others(array: pa.Array) -> None:
    for nulls in (Column.from_arrow(pa.nulls(2)), Column.of_objects([None, None])):
        for is_first in (True, False):
            for is_loaded in (True, False):
                column = Column.from_arrow(array)
                if is_loaded:
                    assert len(column.data) == 1
                made = Column.concat([nulls, column] if is_first else [column, nulls])
                assert made.type == array.type
                missing, value = [None, None], array.to_pylist()
                assert made.to_list() == ([*missing, *value] if is_first else [*value, *missing])
                assert made.to_arrow().null_count == 2


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ((pa.array([NOON], INSTANTS), pa.array([5])), [NOON, 5]),
        ((pa.array([5]), pa.array([NOON], INSTANTS)), [5, NOON]),
        ((pa.array([NOON], pa.timestamp("ms", "UTC")), pa.array([NOON], INSTANTS)), [NOON, NOON]),
        ((pa.array([NOON.date()]), pa.array([None, 2.5])), [NOON.date(), None, 2.5]),
        ((pa.array(["a"]), pa.array([b"a"])), ["a", b"a"]),
        ((pa.array([True]), pa.array([1])), [True, 1]),
        ((pa.array([5]), pa.array([2.5])), [5.0, 2.5]),
        ((pa.array([5], pa.int8()), pa.array([500])), [5, 500]),
        ((pa.array([2.5], pa.float32()), pa.array([0.1])), [2.5, 0.1]),
    ],
)
def test_values_stay_what_they_are(arrays: tuple[pa.Array, ...], expected: list[Any]) -> None:
    made = together(*arrays)
    assert made.to_list() == expected
    assert [type(value) for value in made.to_list()] == [type(value) for value in expected]


def test_columns_of_files_that_differ(tmp_path: Path) -> None:
    """A table does not depend on how many files a commit comprises."""
    prices = [pa.nulls(1, pa.int64()), pa.array([5]), pa.array([2.5])]
    since = [pa.nulls(1), pa.nulls(1), pa.array([NOON], INSTANTS)]
    for at, (price, when) in enumerate(zip(prices, since, strict=True)):
        (tmp_path / "in").mkdir(exist_ok=True)
        columns = {"at": pa.array([at]), "item": pa.array([at]), "price": price, "since": when}
        pq.write_table(pa.table(columns), tmp_path / f"in/{at}.parquet")
    found = []
    for every in ("bundle", 1000):
        read = lw.read_parquet(str(tmp_path / "in"), time="at", unit="s", watermark=lw.Ascending())
        table = read.select("item", "price", "since").table(key="item")
        folder = tmp_path / str(every)
        table.changes().write_jsonl(str(folder)).run(commit_every=every)
        files = sorted(folder.glob("part-*"))
        lines = [line for path in files for line in path.read_text().splitlines()]
        found.append([(line["price"], line["since"]) for line in map(json.loads, lines)])
    assert found[0] == found[1] == [(None, None), (5, None), (2.5, "2024-05-01T12:00:00Z")]


@pytest.mark.parametrize("bundle_size", [1, 100])
def test_a_union_of_streams_of_several_types_comes_out_as_it_came(bundle_size: int) -> None:
    def stream(time: Any, number: Any) -> lw.Stream:
        columns = {"at": pa.array([0], pa.timestamp("us", "UTC")), "t": time, "n": number}
        return lw.from_arrow(pa.table(columns), time="at")

    one = stream(pa.array([5], pa.timestamp("s", "UTC")), pa.array([1], pa.int32()))
    other = stream(pa.array([7], pa.timestamp("us", "UTC")), pa.array([2**40], pa.int64()))
    for united in (one | other, other | one):
        found = united.to_arrow(bundle_size=bundle_size)
        assert sorted(found["t"].cast(pa.int64()).to_pylist()) == [7, 5_000_000]
        assert sorted(found["n"].to_pylist()) == [1, 2**40]
