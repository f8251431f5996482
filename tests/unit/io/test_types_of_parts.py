"""Parts of a Parquet folder are read together: what has no value has the type of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.local.delivery import Delivery
from lowwater.io.sinks import Compaction, ParquetFolder
from tests.unit.io.deliveries import WRITER, with_everything


class Echo:
    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit(dict(record))


FULL = {"v": 1, "l": [1], "s": {"x": "a"}, "d": [{"y": 1.5}]}
EMPTY: dict[str, Any] = {"v": None, "l": [], "s": {"x": None}, "d": [{"y": None}]}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return the rows as pyarrow and polars read them."""
    rows: list[dict[str, Any]] = pq.read_table(folder).drop_columns(["timestamp"]).to_pylist()
    frame = pl.read_parquet(f"{folder}/part-*.parquet").drop("timestamp")
    assert frame.to_dicts() == rows
    return rows


def written(records: list[dict[str, Any]], folder: Path, **options: Any) -> None:
    rows = [{"k": 1, "at": at, **record} for at, record in enumerate(records)]
    stream = lw.from_iterable(rows, time="at", unit="s").key_by("k").process(Echo())
    stream.write_parquet(folder, **options).run(
        bundle_size=2, commit_every="bundle", progress=False
    )


def test_a_part_without_values_has_the_types_of_those_before(tmp_path: Path) -> None:
    records = [FULL, FULL, EMPTY, EMPTY, FULL, EMPTY]
    written(records, tmp_path / "out")
    assert len(list((tmp_path / "out").glob("part-*"))) == 3
    found = [{n: row[n] for n in FULL} for row in rows_of(tmp_path / "out")]
    assert found == records


@pytest.mark.parametrize("records", [[EMPTY, EMPTY, FULL, FULL], [EMPTY] * 4 + [FULL] * 2])
def test_parts_that_are_joined_have_the_types_of_those_behind(
    records: list[dict[str, Any]], tmp_path: Path
) -> None:
    with pytest.warns(lw.DataWarning, match="has had no value yet"):
        written(records, tmp_path / "out", compact=Compaction(size="1GB", age="1h"))
    assert len(list((tmp_path / "out").glob("part-*"))) == 1
    assert [{n: row[n] for n in FULL} for row in rows_of(tmp_path / "out")] == records


def test_a_part_without_a_known_type_is_told_and_read_by_lowwater(tmp_path: Path) -> None:
    records = [EMPTY, EMPTY, FULL, FULL]
    with pytest.warns(lw.DataWarning, match="'v' has had no value yet"):
        written(records, tmp_path / "out")
    echoed = (
        lw.read_parquet(f"{tmp_path}/out/part-*.parquet", time="timestamp").key_by("k")
        .process(Echo()).collect(progress=False)
    )  # fmt: skip
    assert [{n: row[n] for n in FULL} for row in echoed.values()] == records


def test_the_types_of_an_earlier_run_are_known(tmp_path: Path) -> None:
    def deliver(number: int, values: pa.Array) -> None:
        sink = ParquetFolder(str(tmp_path / "out"))
        sink.open(WRITER)
        panes = with_everything().panes.slice(0, 1).append_column("v", values)
        sink.deliver(Delivery(number, 0, 0, panes, None, None))
        sink.close(complete=False)

    deliver(1, pa.array([[{"x": 1}]]))
    deliver(2, pa.array([[{"x": None}]]))
    deliver(3, pa.nulls(1))
    table = pq.read_table(tmp_path / "out")
    assert table.column("v").to_pylist() == [[{"x": 1}], [{"x": None}], None]
    assert len(pl.read_parquet(f"{tmp_path}/out/part-*.parquet")) == 3
