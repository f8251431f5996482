"""The outputs of a pipeline: results in memory, Arrow, pandas, Parquet and JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.records.json_rows import to_json
from tests.unit.io.deliveries import files_in

MINUTE = 60_000_000
ID = "000000000001-000-000000"
ITEMS: list[dict[str, Any]] = [
    {"t": "2000-01-01T12:00:05Z", "k": "a", "v": 1},
    {"t": "2000-01-01T12:01:05Z", "k": "b", "v": 2},
    {"t": "2000-01-01T12:00:06Z", "k": "a", "v": 3},
    {"t": "soon", "k": "a", "v": 4},
]
STAMP = pa.timestamp("us", "UTC")


def pipeline(items: list[dict[str, Any]] = ITEMS) -> lw.Pipeline:
    return (
        lw.from_iterable(
            items, time="t", key="k", watermark=lw.Ascending(), clock=lw.ManualClock(0)
        )
        .window(lw.FixedWindows("1m"))
        .aggregate(total=lw.sum("v"), values=lw.collect("v"))
    )


def test_arrow() -> None:
    table = pipeline().to_arrow(bundle_size=1)
    assert table.schema.names == [
        "k", "window_start", "window_end", "total", "values", "timing", "index", "on_time_index",
        "is_first", "is_last", "kind", "weight", "timestamp", "emitted_at", "watermark",
    ]  # fmt: skip
    assert table.schema.field("window_start").type == STAMP
    assert table.schema.field("timing").type == pa.string()
    rows = table.select(["k", "total", "values", "timing", "kind"]).to_pylist()
    assert rows == [
        {"k": "a", "total": 1, "values": [1], "timing": "ON_TIME", "kind": "insert"},
        {"k": "b", "total": 2, "values": [2], "timing": "ON_TIME", "kind": "insert"},
    ]


def test_the_ends_of_time_come_out_as_the_last_year() -> None:
    """S-T1: instants that Python and pandas cannot show saturate."""
    items = [{"t": 1, "k": "a"}]
    built = lw.from_iterable(items, time="t", key="k").window(lw.GlobalWindow())
    table = built.aggregate(lw.count()).to_arrow()
    assert table["window_end"][0].as_py().year == 9999
    assert table["window_start"][0].as_py().year == 1
    assert table["watermark"][0].as_py() is None  # beyond all times
    table.to_pandas()


def test_pandas() -> None:
    frame = pipeline().to_pandas(bundle_size=1)
    assert frame["total"].tolist() == [1, 2]


def test_a_result_has_everything() -> None:
    result = pipeline().collect(bundle_size=1)
    assert [pane.values["total"] for pane in result.panes] == [1, 2]
    assert [late.value for late in result.late] == [ITEMS[2]]
    assert [error.record for error in result.errors] == [ITEMS[3]]
    assert repr(result) == "Result(4 events, panes: 2 ON_TIME, 1 late, 1 errors)"


def test_batches() -> None:
    run = pipeline().run_batches(bundle_size=1)
    assert sum(len(batch) for batch in run) == 2
    assert run.metrics.events == 4
    assert [batch.num_rows for batch in pipeline().to_arrow_batches()] == [1, 1]


def test_an_aggregate_that_becomes_a_float() -> None:
    items = [*ITEMS[:2], {"t": "2000-01-01T12:02:05Z", "k": "b", "v": 0.5}]
    assert pipeline(items).to_arrow(bundle_size=1)["total"].to_pylist() == [1.0, 2.0, 0.5]


def test_parquet(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    metrics = pipeline().write_parquet(folder).run(bundle_size=1)
    assert metrics.panes == {"ON_TIME": 2}
    assert sorted(files_in(folder)) == [
        f"errors-{ID}.jsonl", f"late-{ID}.jsonl", f"part-{ID}.parquet",
    ]  # fmt: skip
    table = pq.read_table(folder / f"part-{ID}.parquet")
    assert table["total"].to_pylist() == [1, 2]
    (late,) = map(json.loads, (folder / f"late-{ID}.jsonl").read_text().splitlines())
    assert late == {
        "reason": "expired",
        "detail": None,
        "time": "2000-01-01T12:00:06Z",
        "key": "a",
        "window_start": "2000-01-01T12:00:00Z",
        "window_end": "2000-01-01T12:01:00Z",
        "watermark": "2000-01-01T12:01:05Z",
        "record": ITEMS[2],
    }
    (error,) = map(json.loads, (folder / f"errors-{ID}.jsonl").read_text().splitlines())
    assert (error["reason"], error["record"]) == ("bad_time", ITEMS[3])


def test_what_was_written_can_be_read_back(tmp_path: Path) -> None:
    pipeline().write_parquet(tmp_path).run(bundle_size=1)
    again = lw.read_parquet(tmp_path, time="window_start").key_by("k").window(lw.GlobalWindow())
    assert {pane.key: pane.value for pane in again.aggregate(lw.sum("total")).run()} == {
        "a": 1,
        "b": 2,
    }


def test_each_part_has_the_types_of_its_own_panes(tmp_path: Path) -> None:
    items = [*ITEMS[:2], {"t": "2000-01-01T12:02:05Z", "k": "b", "v": 0.5}]
    for every, wanted in (("1h", [[1.0, 2.0, 0.5]]), ("bundle", [[1], [2.0], [0.5]])):
        folder = tmp_path / every
        pipeline(items).write_parquet(folder).run(bundle_size=1, commit_every=every)
        parts = sorted(folder.glob("part-*.parquet"))
        assert [pq.read_table(part)["total"].to_pylist() for part in parts] == wanted


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "out.jsonl"
    pipeline().write_jsonl(path).run(bundle_size=1)
    assert sorted(files_in(path.parent)) == ["out.errors.jsonl", "out.jsonl", "out.late.jsonl"]
    first, _ = map(json.loads, path.read_text().splitlines())
    assert first["k"] == "a"
    assert first["window_start"] == "2000-01-01T12:00:00Z"
    assert first["values"] == [1]


def test_a_later_run_leaves_nothing_of_the_one_before(tmp_path: Path) -> None:
    folder, path = tmp_path / "out", tmp_path / "out.jsonl"
    pipeline().write_parquet(folder).run(bundle_size=1)
    pipeline().write_jsonl(path).run(bundle_size=1)
    before = files_in(folder) | files_in(tmp_path)
    for refused in (pipeline().write_parquet(folder), pipeline().write_jsonl(path)):
        with pytest.raises(lw.StateError, match=r"output of another run.*overwrite=True"):
            refused.run(bundle_size=1)
    assert files_in(folder) | files_in(tmp_path) == before
    few = pipeline(ITEMS[:2])
    few.write_parquet(folder, overwrite=True).run(bundle_size=1)
    few.write_jsonl(path, overwrite=True).run(bundle_size=1)
    assert set(files_in(folder)) == {f"part-{ID}.parquet"}
    assert set(files_in(tmp_path)) == {"out.jsonl"}


def test_a_run_that_fails_leaves_what_it_published(tmp_path: Path) -> None:
    folder, path = tmp_path / "out", tmp_path / "out.jsonl"
    for items, files in ((ITEMS[3:], 0), (ITEMS, 1)):
        for output in (pipeline(items).write_parquet(folder), pipeline(items).write_jsonl(path)):
            with pytest.raises(lw.DataError, match="bad_time"):
                output.run(bundle_size=1, on_error="raise", commit_every="bundle")
        assert len(list(folder.glob("part-*"))) == len(list(tmp_path.glob("out.jsonl"))) == files
    owners = [folder / ".lowwater.json", tmp_path / ".out.jsonl.lowwater.json"]
    assert [json.loads(owner.read_text())["complete"] for owner in owners] == [False, False]


def test_no_panes(tmp_path: Path) -> None:
    pipeline([]).write_parquet(tmp_path / "out").run()
    pipeline([]).write_jsonl(tmp_path / "out.jsonl").run()
    assert files_in(tmp_path / "out") == {}
    assert (tmp_path / "out.jsonl").read_text() == ""


def test_files_where_folders_belong_and_the_other_way_round(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "out.jsonl").mkdir()
    for output in (pipeline().write_parquet, pipeline().write_jsonl):
        with pytest.raises(lw.InvalidArgument, match="goes into a folder"):
            output(tmp_path / "file").run()
    with pytest.raises(lw.InvalidArgument, match="is a folder, but"):
        pipeline().write_jsonl(tmp_path / "out.jsonl").run()


def test_what_json_lacks() -> None:
    assert to_json({"a": float("nan"), "b": b"\x01", "c": {1}}) == (
        '{"a": null, "b": "01", "c": [1]}'
    )
    assert to_json({("k", 1): 2.0}) == "{\"('k', 1)\": 2.0}"


def test_keys_that_arrow_has_no_type_for_are_text() -> None:
    items = [{"t": 1, "k": (1, "a")}, {"t": 2, "k": "b"}]
    built = lw.from_iterable(items, time="t", key="k").window(lw.GlobalWindow())
    assert sorted(built.aggregate(lw.count()).to_arrow()["k"].to_pylist()) == ["(1, 'a')", "b"]


class _Emits:
    """Emits what a function makes of each record."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.emit(self.function(record))


def _emitted(function: Any) -> lw.Processed:
    rows = [{"at": at * 1_000_000, "k": "a", "v": at} for at in range(4)]
    return lw.from_iterable(rows, time="at").key_by("k").process(_Emits(function))


def test_values_of_mixed_types_are_written_as_they_are(tmp_path: Path) -> None:
    ends = _emitted(lambda record: {"x": record["v"] if record["v"] % 2 else "s"})
    ends.write_jsonl(tmp_path / "mixed.jsonl").run()
    lines = (tmp_path / "mixed.jsonl").read_text().splitlines()
    assert [json.loads(line)["x"] for line in lines] == ["s", 1, "s", 3]
    ends.write_parquet(tmp_path / "mixed").run()
    table = pq.read_table(tmp_path / "mixed" / f"part-{ID}.parquet")
    assert table["x"].to_pylist() == ['"s"', "1", '"s"', "3"]


def test_fields_that_come_and_go_are_one_parquet_file(tmp_path: Path) -> None:
    ends = _emitted(lambda record: {"x": 1} if record["v"] % 2 else {"y": None, "z": "s"})
    ends.write_parquet(tmp_path).run(bundle_size=1)
    (file,) = tmp_path.glob("*.parquet")
    table = pq.read_table(file)
    assert table["x"].to_pylist() == [None, 1, None, 1]
    assert table["z"].to_pylist() == ["s", None, "s", None]


def test_each_part_has_the_fields_of_its_own_records(tmp_path: Path) -> None:
    ends = _emitted(lambda record: {"x": 1} if record["v"] != 1 else {"x": 1, "y": 2})
    ends.write_parquet(tmp_path).run(bundle_size=1, commit_every=2)
    files = sorted(tmp_path.glob("part-*.parquet"))
    columns = [pq.read_table(file).schema.names for file in files]
    assert columns == [["k", "x", "y", "timestamp"], ["k", "x", "timestamp"]]
