"""Sources over files: Parquet, CSV and JSON lines, sound and damaged (S-B1)."""

from __future__ import annotations

import gzip
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.graph.graph import Read
from lowwater.pipeline import Result, Stream

Reader = Callable[..., Stream]
ROWS = [
    {"t": "2000-01-01T12:00:00Z", "k": "a", "v": 1},
    {"t": "2000-01-01T12:00:10Z", "k": "b", "v": 2},
    {"t": "2000-01-01T12:00:20Z", "k": "a", "v": 3},
]


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    pa_csv.write_csv(pa.Table.from_pylist(rows), path)


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


KINDS = [
    pytest.param(lw.read_parquet, write_parquet, "parquet", id="parquet"),
    pytest.param(lw.read_csv, write_csv, "csv", id="csv"),
    pytest.param(lw.read_jsonl, write_jsonl, "jsonl", id="jsonl"),
]


def run(stream: Stream, **options: Any) -> Result:
    return stream.key_by("k").window(lw.GlobalWindow()).aggregate(lw.sum("v")).collect(**options)


def sums(result: Result) -> dict[Any, Any]:
    return {pane.key: pane.value for pane in result.panes}


def reasons(result: Result) -> list[str]:
    return [error.reason for error in result.errors]


@pytest.mark.parametrize(("read", "write", "suffix"), KINDS)
@pytest.mark.parametrize("size", [1, 2, 50_000])
def test_a_file(tmp_path: Path, read: Reader, write: Any, suffix: str, size: int) -> None:
    path = tmp_path / f"rides.{suffix}"
    write(path, ROWS)
    result = run(read(path, time="t"), bundle_size=size)
    assert sums(result) == {"a": 4, "b": 2}
    assert result.metrics.events == 3
    assert not result.errors


@pytest.mark.parametrize(("read", "write", "suffix"), KINDS)
def test_folders_globs_and_lists(tmp_path: Path, read: Reader, write: Any, suffix: str) -> None:
    inner = tmp_path / "data" / "day"
    inner.mkdir(parents=True)
    for name, row in zip(("data/b", "data/day/a", "data/_passing"), ROWS, strict=True):
        write(tmp_path / f"{name}.{suffix}", [row])
    (tmp_path / "data" / "notes.txt").write_text("no data")
    folder = str(tmp_path / "data")
    assert sums(run(read(folder, time="t"))) == {"a": 1, "b": 2}
    assert sums(run(read(f"{folder}/*.{suffix}", time="t"))) == {"a": 4}
    assert sums(run(read([f"{folder}/b.{suffix}", inner], time="t"))) == {"a": 1, "b": 2}


@pytest.mark.parametrize(("read", "write", "suffix"), KINDS)
def test_files_come_in_sorted_order(tmp_path: Path, read: Reader, write: Any, suffix: str) -> None:
    for name in ("2", "10", "1"):
        row = {"t": "2000-01-01T12:00:00Z", "k": "x", "v": int(name)}
        write(tmp_path / f"{name}.{suffix}", [row])
    pipeline = read(tmp_path, time="t").key_by("k").window(lw.GlobalWindow())
    (pane,) = pipeline.aggregate(lw.collect("v")).run()
    assert pane.value == [1, 10, 2]


@pytest.mark.parametrize(("read", "write", "suffix"), KINDS)
def test_a_missing_file_names_the_nearest(
    tmp_path: Path, read: Reader, write: Any, suffix: str
) -> None:
    write(tmp_path / f"rides.{suffix}", ROWS)
    with pytest.raises(lw.InvalidArgument, match=rf"Did you mean 'rides\.{suffix}'"):
        read(tmp_path / f"ride.{suffix}", time="t")
    with pytest.raises(lw.InvalidArgument, match="no file matches"):
        read(tmp_path / "*.nothing", time="t")
    with pytest.raises(lw.InvalidArgument, match="nor a folder"):
        read(tmp_path / "no" / "where", time="t")
    (tmp_path / "empty").mkdir()
    with pytest.raises(lw.InvalidArgument, match="holds no files"):
        read(tmp_path / "empty", time="t")


@pytest.mark.parametrize(("read", "write", "suffix"), KINDS)
def test_a_wrong_column_is_found_when_the_pipeline_is_built(
    tmp_path: Path, read: Reader, write: Any, suffix: str
) -> None:
    write(tmp_path / f"rides.{suffix}", ROWS)
    with pytest.raises(lw.InvalidArgument, match="no column 'kk'"):
        read(tmp_path, time="t").key_by("kk")
    with pytest.raises(lw.InvalidArgument, match="no column 'at'"):
        read(tmp_path, time="at")
    with pytest.raises(lw.InvalidArgument, match="needs numbers"):
        read(tmp_path, time="t").key_by("k").window(lw.GlobalWindow()).aggregate(lw.sum("t"))


@pytest.mark.parametrize(("read", "write", "suffix"), KINDS)
def test_unusable_times_and_keys_are_dead_letters_with_their_place(
    tmp_path: Path, read: Reader, write: Any, suffix: str
) -> None:
    rows = [ROWS[0], {**ROWS[1], "t": "soon"}, {**ROWS[1], "k": None}, {**ROWS[2], "t": None}]
    path = tmp_path / f"rides.{suffix}"
    write(path, rows)
    result = run(read(path, time="t"))
    assert reasons(result) == ["bad_time", "null_key", "null_time"]
    assert [error.where for error in result.errors] == [f"{path}, row {row}" for row in (1, 2, 3)]
    assert sums(result) == {"a": 1}
    with pytest.raises(lw.DataError, match="bad_time"):
        run(read(path, time="t"), on_error="raise")


@pytest.mark.parametrize(("read", "write", "suffix"), KINDS)
def test_a_column_that_a_later_file_lacks_is_null_or_a_clear_error(
    tmp_path: Path, read: Reader, write: Any, suffix: str
) -> None:
    write(tmp_path / f"1.{suffix}", ROWS)
    write(tmp_path / f"2.{suffix}", [{"t": ROWS[0]["t"], "k": "c"}])
    if suffix in ("jsonl", "parquet"):  # it is null, as on Spark
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert sums(run(read(tmp_path, time="t"))) == {"a": 4, "b": 2, "c": 0}
        texts = [str(one.message) for one in told if issubclass(one.category, lw.DataWarning)]
        assert len(texts) == (suffix == "parquet")
        assert all("lacks the column 'v'" in text and "2.parquet" in text for text in texts)
        return
    with pytest.raises(lw.DataError, match=rf"no column 'v', but there was .*2\.{suffix}"):
        run(read(tmp_path, time="t"))


@pytest.mark.parametrize(("read", "write", "suffix"), KINDS)
def test_a_column_of_another_type_in_a_later_file_gives_dead_letters(
    tmp_path: Path, read: Reader, write: Any, suffix: str
) -> None:
    write(tmp_path / f"1.{suffix}", ROWS)
    write(tmp_path / f"2.{suffix}", [{**ROWS[0], "v": "many"}])
    result = run(read(tmp_path, time="t"))
    assert reasons(result) == ["wrong_type"]
    assert sums(result) == {"a": 4, "b": 2}


@pytest.mark.parametrize(("read", "write", "suffix"), KINDS)
def test_integers_become_floats_in_a_later_file(
    tmp_path: Path, read: Reader, write: Any, suffix: str
) -> None:
    write(tmp_path / f"1.{suffix}", ROWS)
    write(tmp_path / f"2.{suffix}", [{**ROWS[0], "v": 0.5}])
    result = run(read(tmp_path, time="t"))
    assert sums(result) == {"a": 4.5, "b": 2}


def test_an_empty_parquet_file_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "rides.parquet"
    path.touch()
    with pytest.raises(lw.DataError, match=r"empty \(0 bytes\).*rides\.parquet"):
        lw.read_parquet(path, time="t")


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_truncated_parquet_file_is_a_clear_error(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "rides.parquet"
    write_parquet(path, ROWS)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(lw.DataError, match=r"may be truncated.*rides\.parquet"):
        lw.read_parquet(path, time="t")


def test_a_damaged_page_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "rides.parquet"
    pq.write_table(pa.table({"t": range(10_000), "k": ["a"] * 10_000, "v": range(10_000)}), path)
    damaged = bytearray(path.read_bytes())
    damaged[4:2000] = b"\xff" * 1996
    path.write_bytes(damaged)
    with pytest.raises(lw.DataError, match="cannot be read as Parquet"):
        run(lw.read_parquet(path, time="t"))


def test_a_parquet_file_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "rides.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS).slice(0, 0), path)
    result = run(lw.read_parquet(path, time="t"))
    assert result.panes == []
    assert result.to_arrow().schema.field("k").type == pa.string()


def test_chosen_columns(tmp_path: Path) -> None:
    path = tmp_path / "rides.parquet"
    write_parquet(path, ROWS)
    assert lw.read_parquet(path, time="t", columns=["k"]).columns == ("k", "t")
    with pytest.raises(lw.InvalidArgument, match="no column 'w'"):
        lw.read_parquet(path, time="t", columns=["w"])


def test_text_keys_of_parquet_are_read_as_dictionaries(tmp_path: Path) -> None:
    path = tmp_path / "rides.parquet"
    write_parquet(path, ROWS)
    (flow,) = lw.read_parquet(path, time="t")._flows
    assert isinstance(flow.origin, Read)
    source = flow.origin.source
    (batch,) = source.batches(10, ("k",))
    assert pa.types.is_dictionary(batch.columns["k"].type)


@pytest.mark.parametrize("read", [lw.read_csv, lw.read_jsonl])
def test_an_empty_file_has_no_rows(tmp_path: Path, read: Reader) -> None:
    suffix = "csv" if read is lw.read_csv else "jsonl"
    (tmp_path / f"rides.{suffix}").touch()
    assert run(read(tmp_path, time="t")).panes == []


def test_a_csv_file_of_a_header_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "rides.csv").write_text("t,k,v\n")
    assert run(lw.read_csv(tmp_path, time="t", types={"v": "int64"})).panes == []


def test_malformed_csv_rows_are_dead_letters(tmp_path: Path) -> None:
    path = tmp_path / "rides.csv"
    path.write_text("t,k,v\n1,a,1\n2,b\n3,a,2,extra\n4,a,3\n")
    result = run(lw.read_csv(path, time="t"))
    assert reasons(result) == ["malformed_csv", "malformed_csv"]
    assert [error.record for error in result.errors] == ["2,b", "3,a,2,extra"]
    assert [error.where for error in result.errors] == [f"{path}:3", f"{path}:4"]
    assert sums(result) == {"a": 4}
    assert result.metrics.events == 4


def test_values_of_the_wrong_type_in_csv_are_dead_letters(tmp_path: Path) -> None:
    path = tmp_path / "rides.csv"
    path.write_text("t,k,v\n1,a,1\n2,b,many\n3,x\n4,a, 3\nsoon,a,4\n")
    result = run(lw.read_csv(path, time="t", types={"v": "int64", "t": "int64"}))
    assert sorted(reasons(result)) == ["malformed_csv", "wrong_type", "wrong_type"]
    wrong = [error for error in result.errors if error.reason == "wrong_type"]
    assert wrong[0].record == {"t": "2", "k": "b", "v": "many"}
    assert wrong[0].detail == "v='many' is not int64"
    assert sums(result) == {"a": 4}


def test_text_that_is_no_utf8_in_csv_is_a_dead_letter(tmp_path: Path) -> None:
    path = tmp_path / "rides.csv"
    path.write_bytes(b"t,k,v\n1,a,1\n2,\xff,2\n")
    result = run(lw.read_csv(path, time="t"))
    assert reasons(result) == ["wrong_type"]
    assert sums(result) == {"a": 1}


def test_empty_fields_in_csv_are_null(tmp_path: Path) -> None:
    path = tmp_path / "rides.csv"
    path.write_text('t,k,v\n1,,1\n2,"",2\n3,a,\n')
    result = run(lw.read_csv(path, time="t"))
    assert reasons(result) == ["null_key"]
    assert sums(result) == {"": 2, "a": 0}


def test_quoted_line_breaks_and_other_delimiters(tmp_path: Path) -> None:
    path = tmp_path / "rides.csv"
    path.write_text('t;k;v\n1;"a\nb";1\n')
    assert sums(run(lw.read_csv(path, time="t", delimiter=";"))) == {"a\nb": 1}


def test_unknown_types_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rides.csv").write_text("t,k,v\n1,a,1\n")
    with pytest.raises(lw.InvalidArgument, match="is not a type"):
        lw.read_csv(tmp_path, time="t", types={"v": "number"})
    with pytest.raises(lw.InvalidArgument, match="column 'w' that is not there"):
        lw.read_csv(tmp_path, time="t", types={"w": "int64"})


def test_malformed_json_lines_are_dead_letters(tmp_path: Path) -> None:
    path = tmp_path / "rides.jsonl"
    lines = ['{"t": 1, "k": "a", "v": 1}', "{oops", "", "[1]", '{"t": 2, "k": "a", "v": 2}', '{"t"']
    path.write_text("\n".join(lines))
    result = run(lw.read_jsonl(path, time="t"))
    assert reasons(result) == ["malformed_json"] * 3
    assert [error.where for error in result.errors] == [f"{path}:{n}" for n in (2, 4, 6)]
    assert [error.record for error in result.errors] == ["{oops", "[1]", '{"t"']
    assert sums(result) == {"a": 3}
    with pytest.raises(lw.DataError, match=r"malformed_json.*rides\.jsonl:2"):
        run(lw.read_jsonl(path, time="t"), on_error="raise")


def test_values_of_the_wrong_type_in_json_are_dead_letters(tmp_path: Path) -> None:
    path = tmp_path / "rides.jsonl"
    rows: list[dict[str, Any]] = [
        {"t": 1, "k": "a", "v": 1},
        {"t": 2, "k": "a", "v": "many"},
        {"t": 3, "k": "a", "v": True},
        {"t": 4, "k": "a", "v": 2.5},
        {"t": 5, "k": "a", "v": None},
        {"t": 6, "k": "a"},
    ]
    write_jsonl(path, rows)
    result = run(lw.read_jsonl(path, time="t"))
    assert reasons(result) == ["wrong_type", "wrong_type"]
    assert [error.where for error in result.errors] == [f"{path}:2", f"{path}:3"]
    assert [error.record["v"] for error in result.errors] == ["many", True]
    assert sums(result) == {"a": 3.5}


def test_json_that_is_no_utf8_is_a_dead_letter(tmp_path: Path) -> None:
    path = tmp_path / "rides.jsonl"
    path.write_bytes(b'{"t": 1, "k": "\xff", "v": 1}\n{"t": 1, "k": "a", "v": 1}\n')
    result = run(lw.read_jsonl(path, time="t"))
    assert reasons(result) == ["malformed_json"]
    assert sums(result) == {"a": 1}


def test_a_block_after_the_first_that_fails_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "rides.jsonl"
    lines = [json.dumps({"t": at, "k": "a", "v": 1}) for at in range(5000)]
    lines[4500] = '{"t": 4500, "k": "a", "v": '
    lines[4600] = '{"t": 4600, "k": "a", "v": "1"}'
    path.write_text("\n".join(lines))
    result = run(lw.read_jsonl(path, time="t"), bundle_size=1000)
    assert reasons(result) == ["malformed_json", "wrong_type"]
    assert sums(result) == {"a": 4998}


def test_compressed_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "rides.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"t": 1, "k": "a", "v": 1}\n'))
    assert sums(run(lw.read_jsonl(tmp_path, time="t"))) == {"a": 1}
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(lw.DataError, match="cannot be read"):
        run(lw.read_jsonl(path, time="t"))


def test_text_that_looks_like_a_time_stays_text(tmp_path: Path) -> None:
    path = tmp_path / "rides.jsonl"
    write_jsonl(path, [{"t": 1, "k": "2000-01-01", "v": 1}])
    assert sums(run(lw.read_jsonl(path, time="t"))) == {"2000-01-01": 1}
