"""Results as frames: Arrow, pandas, polars, and whatever reads Arrow streams."""

from __future__ import annotations

from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.records.pane_table import PANE_FIELDS

ROWS = [
    {"at": 0, "k": "a", "v": 1},
    {"at": 70_000_000, "k": "a", "v": 2},
    {"at": 1, "k": "a", "v": 4},
]


def pipeline(mode: Any = "retracting", **aggregates: Any) -> lw.Pipeline:
    stream = lw.from_iterable(
        ROWS, time="at", watermark=lw.BoundedDisorder("10s"), clock=lw.ManualClock(0)
    )
    return (
        stream.key_by("k")
        .window(
            lw.FixedWindows("1m"),
            trigger=lw.AfterWatermark(late=lw.AfterCount(1)),
            allowed_lateness="1h",
            accumulation=mode,
        )
        .aggregate(**(aggregates or {"total": lw.sum("v")}))
    )


def test_retractions_have_a_weight_of_minus_one() -> None:
    frame = pipeline().to_pandas(bundle_size=1)
    assert frame["weight"].tolist() == [1, -1, 1, 1]
    assert frame["weight"].dtype == "int8"
    assert (frame["total"] * frame["weight"]).sum() == 1 + 2 + 4
    stands = pipeline().to_pandas(bundle_size=1, final=True)
    assert stands["total"].tolist() == [5, 2]
    assert stands["weight"].tolist() == [1, 1]


@pytest.mark.parametrize("name", ["timing", "kind"])
def test_timing_and_kind_are_plain_text(name: str) -> None:
    result = pipeline().collect(bundle_size=1)
    frame = result.to_pandas()
    assert not isinstance(frame[name].dtype, pd.CategoricalDtype)
    assert set(map(type, frame[name])) == {str}
    assert result.to_polars().schema[name] == pl.String
    assert result.to_arrow().schema.field(name).type == pa.string()


def test_times_of_emission_that_are_not_known_are_null() -> None:
    """A watermark before the first element or after the last is no instant of a calendar."""
    rows = [{"at": 0, "k": "a"}, {"at": 1, "k": "a"}]
    built = lw.from_iterable(rows, time="at").key_by("k")
    windowed = built.window(
        lw.FixedWindows("1m"), trigger=lw.Repeatedly(lw.AfterCount(1)), accumulation="discarding"
    )
    frame = windowed.aggregate(lw.count()).to_pandas(clock=lw.ManualClock(lw.START_OF_TIME))
    assert frame["watermark"].isna().all()
    assert frame["emitted_at"].isna().all()
    assert str(frame["watermark"].dtype) == "datetime64[us, UTC]"


def test_all_ways_out_have_the_same_rows() -> None:
    result = pipeline().collect(bundle_size=1)
    table = result.to_arrow()
    assert pa.table(result).equals(table)
    assert pl.DataFrame(result).equals(result.to_polars())
    assert result.to_polars().equals(pl.DataFrame(table))
    assert pd.DataFrame.equals(result.to_pandas(), table.to_pandas())
    batches = list(pipeline().to_arrow_batches(bundle_size=1))
    assert pa.Table.from_batches(batches).drop_columns(["emitted_at"]) == table.drop_columns(
        ["emitted_at"]
    )
    final = result.final()
    assert pa.table(final) == result.to_arrow(final=True) == final.to_arrow()
    assert pl.DataFrame(final).equals(pipeline().to_polars(bundle_size=1, final=True))
    assert final.to_pandas().equals(result.to_pandas(final=True))
    assert len(final) == len(final.panes) == 2
    assert repr(final) == "FinalPanes(2 windows)"


def test_an_empty_result_has_the_same_columns() -> None:
    def collected(rows: list[dict[str, Any]]) -> lw.Result:
        stream = lw.from_arrow(pa.Table.from_pylist(ROWS, SCHEMA).slice(0, len(rows)), time="at")
        return stream.key_by("k").window(lw.FixedWindows("1m")).aggregate(n=lw.count()).collect()

    full, empty = collected(ROWS), collected([])
    names = full.to_arrow().schema.names
    assert empty.to_arrow().schema.names == names == empty.to_polars().columns
    for field in PANE_FIELDS:
        one, two = (result.to_arrow().schema.field(field.name) for result in (full, empty))
        assert one == two


SCHEMA = pa.schema([("at", pa.int64()), ("k", pa.string()), ("v", pa.int64())])


class Mixed:
    def on_record(self, record: dict[str, Any], ctx: lw.ProcessContext) -> None:
        ctx.emit({"value": [1, "one", {"two": 2}][int(record["v"]) // 2]})


def test_values_without_an_arrow_type_are_python_values_in_polars() -> None:
    result = lw.from_iterable(ROWS, time="at").key_by("k").process(Mixed()).collect()
    assert result.to_polars()["value"].to_list() == result.to_pandas()["value"].tolist()
    assert sorted(map(repr, result.to_polars()["value"].to_list())) == ["'one'", "1", "{'two': 2}"]


def test_sinks_keep_the_compact_form(tmp_path: Any) -> None:
    """Stored output neither grows a column nor changes its types."""
    pipeline().write_parquet(tmp_path / "out").run(bundle_size=1)
    import pyarrow.parquet as pq

    (path,) = (tmp_path / "out").glob("part-*.parquet")
    stored = pq.ParquetFile(path).schema_arrow
    assert "weight" not in stored.names
    assert pa.types.is_dictionary(stored.field("kind").type)


def test_an_aggregate_called_weight_keeps_its_name() -> None:
    """The name belongs to users: only tables of results have a column of their own called so."""
    result = pipeline(weight=lw.sum("v")).collect()
    assert result.to_arrow()["weight"].to_pylist() == [
        pane.values["weight"] for pane in result.panes
    ]
    assert result.to_arrow().column_names.count("weight") == 1
    assert "kind" in result.to_arrow(final=True).column_names


def test_a_key_called_weight_keeps_its_name() -> None:
    rows = [{"at": row["at"], "weight": 70} for row in ROWS]
    stream = lw.from_iterable(rows, time="at").key_by("weight")
    parcels = stream.window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    assert set(parcels.to_arrow()["weight"].to_pylist()) == {70}


@pytest.mark.parametrize("size", [1, 1000])
def test_no_integer_is_rounded_beside_floats(size: int) -> None:
    values = [1, 2.5, 2**53 + 1, None, -(2**53) - 1]
    rows = [{"at": n, "v": value} for n, value in enumerate(values)]
    result = lw.from_iterable(rows, time="at", unit="s").collect(bundle_size=size)
    assert [row["v"] for row in result.values()] == values
    assert result.to_pandas()["v"].tolist() == values
    assert result.to_polars()["v"].to_list() == values
