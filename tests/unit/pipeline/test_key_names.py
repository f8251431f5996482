"""A key that is called as a column of the output gets another name there, and the user is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.records.pane_table import RESERVED

ROWS = [
    {"at": 0, "index": 3, "timing": "x", "v": 1},
    {"at": 1, "index": 2**53 + 1, "timing": "\u00e9", "v": 2},
    {"at": 61, "index": 3, "timing": "x", "v": 4},
]


def stream(**columns: Any) -> lw.Stream:
    return lw.from_iterable([{**row, **columns} for row in ROWS], time="at", unit="s")


def totals(keyed: lw.KeyedStream) -> lw.Pipeline:
    return keyed.window(lw.FixedWindows("1m")).aggregate(total=lw.sum("v"))


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_key_with_the_name_of_a_column_of_panes(name: str) -> None:
    rows = [{"at": row["at"], name: row["index"], "v": row["v"]} for row in ROWS]
    read = lw.from_iterable(rows, time="at", unit="s")
    with pytest.warns(lw.PipelineWarning, match=rf"'{name}' is called '{name}_key'.*my_{name}="):
        keyed = read.key_by(name)
    result = totals(keyed).collect()
    assert [(pane.key, pane.value) for pane in result.panes] == [(3, 1), (2**53 + 1, 2), (3, 4)]
    table = result.to_arrow()
    assert table.column(f"{name}_key").to_pylist() == [3, 2**53 + 1, 3]
    assert table.column_names.count(name) == 1
    assert list(result.to_pandas()[f"{name}_key"]) == [3, 2**53 + 1, 3]


def test_the_warning_is_at_the_line_of_the_user() -> None:
    with pytest.warns(lw.PipelineWarning) as caught:
        stream().key_by("index", "timing")
    assert [Path(one.filename).name for one in caught] == [Path(__file__).name] * 2
    assert str(caught[0].message) == (
        "the key 'index' is called 'index_key' in tables, frames and records of the output, which "
        "have a column 'index' of their own (at key_by). Name it yourself, which ends this "
        "warning: key_by(my_index=lw.col('index'))"
    )


def test_a_name_of_ones_own_gives_no_warning() -> None:
    made = totals(stream().key_by(my_index=lw.col("index"))).to_arrow()
    assert made.column_names[:3] == ["my_index", "window_start", "window_end"]


def test_the_next_stage_reads_it_under_its_new_name(tmp_path: Path) -> None:
    with pytest.warns(lw.PipelineWarning, match="'index_key'"):
        first = totals(stream().key_by("index"))
    windows = lw.FixedWindows("1h")
    second = first.key_by("index_key").window(windows).aggregate(sum=lw.sum("total"))
    assert {pane.key: pane.value for pane in second.run()} == {3: 5, 2**53 + 1: 2}
    first.write_parquet(tmp_path).run()
    (file,) = tmp_path.glob("**/*.parquet")
    assert "index_key" in pq.read_schema(file).names
    assert first.table().key == ("index_key", "window_start", "window_end")
    with pytest.raises(lw.InvalidArgument, match=r"no column 'indx_key'.*'index_key'"):
        first.key_by("indx_key")


class Emit:
    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.emit({"seen": [ctx.key, record["index"]]})


def test_a_process_gets_its_records_as_they_were() -> None:
    with pytest.warns(lw.PipelineWarning, match="'index_key'"):
        keyed = stream().key_by("index")
    table = keyed.process(Emit()).to_arrow()
    assert table.column("index_key").to_pylist() == [3, 2**53 + 1, 3]
    assert table.column("seen").to_pylist() == [[3, 3], [2**53 + 1, 2**53 + 1], [3, 3]]


def test_names_that_would_be_taken_are_refused() -> None:
    taken = stream(index_key=1)
    with pytest.raises(lw.InvalidArgument, match=r"a key cannot be called 'index'.*'index_key'"):
        taken.key_by("index", "index_key")
    with pytest.raises(lw.InvalidArgument, match=r"a key cannot be called 'index': there are two"):
        taken.key_by("index", "index")
    with pytest.warns(lw.PipelineWarning):
        keyed = taken.key_by("index")
    windowed = keyed.window(lw.FixedWindows("1m"))
    with pytest.raises(lw.InvalidArgument, match="'index_key': that is a key"):
        windowed.aggregate(index_key=lw.count())
    with pytest.raises(lw.InvalidArgument, match="a key cannot be called 'kind'"):
        stream(kind="a", kind_key="b").table(key="kind")
    with pytest.raises(lw.InvalidArgument, match="no column 'indx'"):
        stream().select("index").key_by("indx")


def test_tables_keep_names_that_their_rows_do_not_have() -> None:
    table = stream().table(key="index")
    assert table.key == ("index",)
    assert {row["index"]: row["v"] for row in table.rows()} == {3: 4, 2**53 + 1: 2}
    grouped = stream().table(key="index").group_by("timing").aggregate(n=lw.count())
    assert {row["timing"]: row["n"] for row in grouped.rows()} == {"x": 1, "\u00e9": 1}


def test_tables_rename_keys_that_are_called_as_a_column_of_their_rows() -> None:
    with pytest.warns(lw.PipelineWarning, match=r"'kind' is called 'kind_key'.*table\(key=\)"):
        table = stream(kind="a").table(key=["kind", "index"])
    assert table.key == ("kind_key", "index")
    assert {(row["kind_key"], row["index"]) for row in table.rows()} == {
        ("a", 3),
        ("a", 2**53 + 1),
    }
    assert table.changes().collect().to_arrow().column("kind_key").to_pylist() == ["a"] * 2
    with pytest.warns(lw.PipelineWarning, match=r"'timestamp_key'.*group_by"):
        grouped = stream(timestamp=5).table(key="index").group_by("timestamp")
    counted = grouped.aggregate(n=lw.count())
    assert counted.key == ("timestamp_key",)
    assert [(row["timestamp_key"], row["n"]) for row in counted.rows()] == [(5, 2)]
    with pytest.raises(lw.InvalidArgument, match="it is grouped by that column"):
        grouped.aggregate(timestamp_key=lw.count())


def test_joins_keep_names_that_their_output_does_not_have() -> None:
    with pytest.warns(lw.PipelineWarning):
        counts = totals(stream().key_by("index"))
    both = counts.join(counts, on=["index_key", "window_start"], within="0s")
    assert [(*one.key[:1], one.value["total"], one.value["total_right"]) for one in both.run()] == [
        (3, 1, 1), (2**53 + 1, 2, 2), (3, 4, 4),
    ]  # fmt: skip
    joined = stream().join(stream(), on="index", within="1s")
    assert {one.key for one in joined.run()} == {3, 2**53 + 1}
    with pytest.raises(lw.InvalidArgument, match=r"'timestamp'.*event times.*join\(on=\)"):
        stream(timestamp=1).join(stream(timestamp=1), on="timestamp", within="1s")
    with pytest.raises(lw.InvalidArgument, match="'window_start'"):
        stream(window_start=1).join(
            stream(window_start=1), on="window_start", within=lw.FixedWindows("1m")
        )


@pytest.mark.filterwarnings("ignore::lowwater.PipelineWarning")
def test_a_new_name_that_only_the_records_show_to_be_taken() -> None:
    rows = [{"at": f"2026-05-01T12:00:0{n}Z", "kind": "ab"[n % 2], "kind_key": n} for n in range(4)]
    table = lw.from_iterable(rows, time="at").map(lambda row: row).table(key="kind")
    with pytest.raises(lw.InvalidArgument, match=r"'kind'.* another one of the name 'kind_key'"):
        table.rows()
