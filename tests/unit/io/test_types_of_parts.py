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
from lowwater.io.sinks import Compaction, ParquetFolder, compaction
from tests.unit.engine.local.durable_runs import Stopped, stopping
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


@pytest.mark.parametrize("compact", [None, Compaction(size="1GB", age="1h")])
@pytest.mark.parametrize(
    "records", [[EMPTY, EMPTY, FULL, FULL], [EMPTY] * 4 + [FULL] * 2, [FULL, {**FULL, "v": None}]]
)
def test_a_part_without_values_has_the_types_of_those_behind(
    records: list[dict[str, Any]], compact: Compaction | None, tmp_path: Path
) -> None:
    """It waits for them, unseen, and they become one file."""
    written(records, tmp_path / "out", compact=compact)
    assert len(list((tmp_path / "out").glob("part-*"))) == 1
    assert [{n: row[n] for n in FULL} for row in rows_of(tmp_path / "out")] == records


def test_a_column_that_never_has_a_value_is_published_at_the_end(tmp_path: Path) -> None:
    records = [{**FULL, "v": None}] * 6
    written(records, tmp_path / "out")
    table = pq.read_table(tmp_path / "out")
    assert table.schema.field("v").type == pa.null()
    assert table.num_rows == 6


def test_what_waits_too_long_is_published_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on such parts are published at once."""
    now = [0.0]
    monkeypatch.setattr(compaction, "clock", lambda: now[0])
    sink = ParquetFolder(str(tmp_path / "out"))
    sink.open(WRITER)
    for number in range(4):
        panes = with_everything().panes.slice(0, 1).append_column("v", pa.nulls(1))
        sink.deliver(Delivery(number + 1, 0, 0, panes, None, None))
        parts = len(list((tmp_path / "out").glob("part-*")))
        assert parts == (0 if number < 2 else number)
        if number == 1:
            sink.publish_due()
            assert not list((tmp_path / "out").glob("part-*"))
            now[0] = 61.0
            with pytest.warns(lw.DataWarning, match="'v' has had no value yet"):
                sink.publish_due()
            assert len(list((tmp_path / "out").glob("part-*"))) == 1
    sink.close(complete=True)
    assert pq.read_table(tmp_path / "out").num_rows == 4


@pytest.mark.parametrize("fails_at", [1, 2])
def test_what_waits_is_as_durable_as_what_is_published(fails_at: int, tmp_path: Path) -> None:
    """The run is cut off while parts wait, and resumed: each row is there once, of one type."""
    records = [EMPTY, EMPTY, EMPTY, FULL, FULL]
    for number in range(len(records)):
        table = pa.Table.from_pylist([{"at": number, "k": 1, "n": number}])
        pq.write_table(table, tmp_path / f"{number}.parquet")

    class Given:
        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.emit({"n": record["n"], **records[record["n"]]})

    stream = lw.read_parquet(f"{tmp_path}/*.parquet", time="at", unit="s").key_by("k")
    writing = stream.process(Given()).write_parquet(tmp_path / "out")
    options: dict[str, Any] = {"state": tmp_path / "state", "commit_every": "bundle"}
    with stopping("before forgetting", fails_at), pytest.raises(Stopped):
        writing.run(bundle_size=1, progress=False, **options)
    assert not list((tmp_path / "out").glob("part-*"))
    writing.run(bundle_size=1, progress=False, **options)
    rows = sorted(rows_of(tmp_path / "out"), key=lambda row: row["n"])
    assert [{n: row[n] for n in FULL} for row in rows] == records


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
