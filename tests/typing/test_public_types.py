"""What type checkers infer for users: checked by mypy, and run so that it stays true."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lowwater as lw
import lowwater.spark


class FirstSeen:
    """A process, as a user types it: no base class, nothing imported but ``lw``."""

    seen = lw.value_cell(False)

    def on_record(self, record: dict[str, Any], ctx: lw.ProcessContext) -> None:
        if not ctx.seen.get():
            ctx.seen.set(True)
            ctx.emit(record)


def test_a_name_that_is_not_there_is_known() -> None:
    # Strict mode refuses an ignored error that is none.
    with pytest.raises(AttributeError, match="no attribute 'Windows'"):
        lw.Windows  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        lowwater.spark.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_pipelines() -> None:
    stream = lw.from_iterable([{"t": 1, "k": "a", "v": 2}], time="t")
    assert_type(stream, lw.Stream)
    assert_type(stream.filter(lw.col("v") > 1), lw.Stream)
    assert_type(stream.explode("v"), lw.Stream)
    assert_type(lw.when(lw.col("v") > 1, "a", lw.col("k")), lw.Expr)
    assert_type(lw.col("k").str.extract("(a)"), lw.Expr)
    assert_type(lw.col("k").str.to_uppercase().str.extract("(?P<a>A)", "a"), lw.Expr)
    assert_type(lw.prev("v") > lw.matched("a").count(), lw.Expr)
    assert_type(lw.absent(lw.col("v") > 1, within="1m"), lw.Absent)
    keyed = stream.key_by("k")
    assert_type(keyed, lw.KeyedStream)
    windowed = keyed.window(lw.FixedWindows("1m"), accumulation="discarding")
    assert_type(windowed, lw.WindowedStream)
    totals = windowed.aggregate(total=lw.sum("v"))
    assert_type(totals, lw.Pipeline)
    assert_type(totals | stream, lw.Stream)
    assert_type(totals.key_by(all=lw.lit(0)), lw.KeyedStream)
    result = totals.collect()
    assert_type(result, lw.Result)
    assert_type(result.panes, list[lw.Pane])
    assert_type(result.panes[0].window.start, lw.Instant)
    assert_type(result.to_arrow(), pa.Table)
    assert_type(result.to_pandas(final=True), pd.DataFrame)
    assert_type(result.to_polars(), pl.DataFrame)
    assert_type(totals.to_polars(final=True, bundle_size=1), pl.DataFrame)
    assert_type(result.final(), lw.FinalPanes)
    assert_type(list(result.final()), list[lw.Pane])
    assert_type(result.final().to_pandas(), pd.DataFrame)
    assert_type(lw.from_frame(result, time="timestamp"), lw.Stream)
    panes = totals.run()
    assert_type(panes, lw.Run[lw.Pane])
    assert_type(next(totals.run_batches()), lw.PaneBatch)
    assert_type(next(panes), lw.Pane)
    assert_type(result.metrics.watermarks(), list[lw.StageWatermark])


def test_tables() -> None:
    stream = lw.from_iterable([{"t": 1, "k": "a", "v": 2}], time="t")
    table = stream.table(key="k")
    assert_type(table, lw.Table[lw.Stream])
    assert_type(table.key, tuple[str, ...])
    assert_type(table.filter(lw.col("v") > 1).select("k"), lw.Table[lw.Stream])
    assert_type(table.with_columns(w=lw.col("v") + 1), lw.Table[lw.Stream])
    assert_type(table.join(table, on="k", how="outer"), lw.Table[lw.Stream])
    assert_type(table.group_by("v"), lw.GroupedTable[lw.Stream])
    assert_type(table.group_by("v").aggregate(lw.count(), w=lw.sum("v")), lw.Table[lw.Stream])
    assert_type(table.changes(), lw.Stream)
    assert_type(table.changes(form="upsert").run(), lw.Run[lw.Element])
    assert_type(table.rows(), list[dict[str, Any]])
    assert_type(table.to_polars(), pl.DataFrame)
    changed = lw.from_iterable([{"t": 1, "op": "c", "before": None, "after": {"k": 1}}], time="t")
    assert_type(lw.changelog(changed, key="k"), lw.Table[lw.Stream])
    assert_type(lw.debezium(changed, key="k"), lw.Table[lw.Stream])


def test_processes() -> None:
    stream = lw.from_iterable([{"t": 1, "k": "a", "v": 2}], time="t")
    first = stream.key_by("k").process(FirstSeen())
    assert_type(first, lw.Processed)
    result = first.collect()
    assert_type(result, lw.Result)
    assert_type(result.elements(), list[lw.Element])
    assert_type(first.run(), lw.Run[lw.Element])
    assert_type(next(first.run_batches()), lw.Emitted)
    assert_type(first.filter(lw.col("v") > 1), lw.Stream)


def test_ends(tmp_path: Path) -> None:
    stream = lw.from_iterable([{"t": 1, "k": "a", "v": 2}], time="t")
    first = stream.key_by("k").process(FirstSeen())
    assert_type(lw.run(first.write_jsonl(tmp_path / "first.jsonl")), lw.Metrics)
