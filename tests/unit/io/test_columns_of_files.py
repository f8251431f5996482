"""Which columns records of files have: those asked for, those of paths, and what is null."""

from __future__ import annotations

import datetime as dt
import json
import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.io.csv import CsvSource
from lowwater.io.jsonl import JsonLinesSource
from lowwater.io.parquet import ParquetSource

KINDS = ["parquet", "csv", "jsonl"]


class Echo:
    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit(dict(record))


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(kind: str, paths: Any, **options: Any) -> Any:
    return getattr(lw, f"read_{kind}")(paths, time="at", unit="s", **options)


def echoed(stream: Any, **options: Any) -> tuple[list[Any], list[Any]]:
    letters: list[Any] = []
    result = stream.key_by("k").process(Echo()).collect(
        on_error="dead_letter", on_dead_letter=letters.append, progress=False, **options
    )  # fmt: skip
    return result.values(), letters


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lw.LowwaterWarning)
        yield


SOURCES: dict[str, Any] = {
    "parquet": lambda path: ParquetSource((path,)),
    "csv": lambda path: CsvSource((path,), {}, "at"),
    "jsonl": lambda path: JsonLinesSource((path,), "at"),
}
ROW = {"at": 1, "k": 1, "v": 2}


@pytest.mark.parametrize("kind", KINDS)
def test_folders_name_columns(kind: str, tmp_path: Path) -> None:
    write(tmp_path / f"year=2023/city=Bad%20Ems/a.{kind}", [ROW, ROW])
    write(tmp_path / f"year=2024/city=01/a.{kind}", [ROW])
    write(tmp_path / f"year=__HIVE_DEFAULT_PARTITION__/city=Ulm/a.{kind}", [ROW])
    found, letters = echoed(read(kind, tmp_path))
    assert letters == []
    assert [(row["year"], row["city"]) for row in found] == [
        (2023, "Bad Ems"), (2023, "Bad Ems"), (2024, "01"), (None, "Ulm"),
    ]  # fmt: skip
    assert all({"at", "k", "v"} <= row.keys() for row in found)
    of_glob, _ = echoed(read(kind, f"{tmp_path}/year=20*/*/a.{kind}"))
    assert of_glob == found[:3]
    (below,) = {tuple(row) for row in echoed(read(kind, tmp_path / "year=2024"))[0]}
    assert "city" in below
    assert "year" not in below  # as the folder that is read has the name
    (alone,) = echoed(read(kind, tmp_path / f"year=2024/city=01/a.{kind}"))[0]
    assert alone == ROW


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_may_be_in_the_path(kind: str, tmp_path: Path) -> None:
    for city in ("Ulm", "Bonn"):
        write(tmp_path / f"city={city}/a.{kind}", [ROW] * 3)
    panes = (
        read(kind, tmp_path).key_by("city").window(lw.FixedWindows("1h"))
        .aggregate(n=lw.count(), v=lw.sum("v")).collect(progress=False).panes
    )  # fmt: skip
    assert {pane.key: pane.values for pane in panes} == {
        "Bonn": {"n": 3, "v": 6}, "Ulm": {"n": 3, "v": 6},
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_path_that_is_of_no_number_costs_its_own_file(kind: str, tmp_path: Path) -> None:
    """The types are settled by the files of the first look, and stay so through a restart."""
    write(tmp_path / f"n=1/a.{kind}", [ROW])
    source: Any = SOURCES[kind](str(tmp_path))
    *_, (_, position) = source.batches_from(None, 10, ())
    write(tmp_path / f"n=x/a.{kind}", [ROW, ROW])
    write(tmp_path / f"n=7/a.{kind}", [ROW])
    rest = [records for records, _ in source.batches_from(position, 10, ())]
    assert [row["n"] for records in rest for row in records.rows()] == [7]
    letters = [letter for records in rest for letter in records.unreadable]
    assert [one.reason for one in letters] == ["wrong_type"] * 2
    assert all("n='x' in the path is not int64" in one.detail for one in letters)
    assert all("n=x" in str(one.where) for one in letters)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_that_are_not_read_may_hold_anything(kind: str, tmp_path: Path) -> None:
    rows = [{**ROW, "odd": odd} for odd in (1, "x", 2.5)]
    if kind == "parquet":
        rows = [{**row, "odd": str(row["odd"])} for row in rows]
    write(tmp_path / f"year=2024/a.{kind}", rows)
    found, letters = echoed(read(kind, tmp_path, columns=iter(["k", "year"])))
    assert letters == []
    assert [sorted(row) for row in found] == [["at", "k", "year"]] * 3


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_that_is_not_there_is_told_when_the_reader_is_made(
    kind: str, tmp_path: Path
) -> None:
    write(tmp_path / f"a.{kind}", [ROW])
    with pytest.raises(lw.InvalidArgument, match="there is no column 'vv'"):
        read(kind, tmp_path, columns=["k", "vv"])


@pytest.mark.parametrize("kind", KINDS)
def test_columns_is_no_text(kind: str, tmp_path: Path) -> None:
    write(tmp_path / f"a.{kind}", [ROW])
    with pytest.raises(lw.InvalidArgument, match="are not the names of columns"):
        read(kind, tmp_path, columns="kv")


def test_types_of_json_lines_are_strict(tmp_path: Path) -> None:
    lines = [f'{{"at":1,"k":1,"v":{v}}}' for v in ("1", "2.50", "9007199254740993")]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))

    def values(kind: Any) -> tuple[list[Any], int]:
        found, letters = echoed(read("jsonl", tmp_path, types={"v": kind}))
        return [row["v"] for row in found], len(letters)

    assert values("int64") == ([1, 2**53 + 1], 1)
    assert values("float64") == ([1.0, 2.5, float(2**53)], 0)
    assert values(pa.decimal128(20, 2)) == (
        [Decimal("1.00"), Decimal("2.50"), Decimal("9007199254740993.00")], 0,
    )  # fmt: skip
    assert values("int8") == ([1], 2)
    assert values("string") == ([], 3)
    for wrong in ("timestamp[us]", pa.binary(), pa.map_(pa.string(), pa.int64())):
        with pytest.raises(lw.InvalidArgument, match="JSON has no such values"):
            read("jsonl", tmp_path, types={"v": wrong})
    with pytest.raises(lw.InvalidArgument, match="it is the event time"):
        read("jsonl", tmp_path, types={"at": "int64"})


NOTHING_YET = [
    (pa.nulls(2), pa.array([9, 10])),
    (pa.nulls(1), pa.array(["a"])),
    (pa.array([[], []], pa.list_(pa.null())), pa.array([[9], [10]])),
    (pa.array([[[]]], pa.list_(pa.list_(pa.null()))), pa.array([[["a"]]])),
    (pa.array([{"x": None}]), pa.array([{"x": 5}])),
    (pa.array([[{"x": None}]]), pa.array([[{"x": dt.date(2024, 5, 1)}]])),
    (pa.array([{"x": 1}]), pa.array([{"x": 1, "y": "b"}])),
    (pa.array([[1]], pa.list_(pa.int32())), pa.array([[2**40]])),
    (pa.array([[1]]), pa.array([[1.5]])),
    (pa.array([[2**53 + 1]]), pa.array([[1.5]])),
    (pa.array([2**53 + 1]), pa.array([1.5])),
    (pa.array([1.5]), pa.array([2**53 + 1])),
    (pa.array([2**63], pa.uint64()), pa.array([-1])),
    (pa.array([1], pa.timestamp("us")), pa.array([1000], pa.timestamp("ns"))),
    (pa.array([Decimal("1.5")]), pa.array([Decimal("1.2345")])),
]  # fmt: skip


def in_parts(tmp_path: Path, parts: tuple[pa.Array, ...]) -> Path:
    for number, part in enumerate(parts):
        columns = {"at": pa.array([1] * len(part)), "k": pa.array([1] * len(part)), "v": part}
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet")
    return tmp_path


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("parts", NOTHING_YET, ids=lambda p: f"{p[0].type}-{p[-1].type}")
def test_files_of_parquet_keep_their_values_whatever_came_before(
    parts: tuple[pa.Array, ...], size: int, tmp_path: Path
) -> None:
    """Null settles no type, and a wider type is read as it is."""
    stream = read("parquet", in_parts(tmp_path, parts))
    found, letters = echoed(stream, bundle_size=size)
    assert letters == []
    plain = [value for part in parts for value in part.to_pylist()]
    assert [row["v"] for row in found] == plain
    result = (
        stream.key_by("k").window(lw.FixedWindows("1h")).aggregate(v=lw.collect("v"))
        .collect(on_error="dead_letter", bundle_size=size, progress=False)
    )  # fmt: skip
    assert list(result.errors) == []
    (pane,) = result.panes
    assert [_filled(one, plain[-1]) for one in pane.values["v"]] == [
        _filled(one, plain[-1]) for one in plain if one is not None
    ]


def _filled(value: Any, like: Any) -> Any:
    """Return an object with a null for each field that it lacks."""
    if isinstance(value, dict) and isinstance(like, dict):
        return {name: value.get(name) for name in like}
    return value


@pytest.mark.parametrize("pick", [lw.max, lw.last, lw.collect_set])
@pytest.mark.parametrize("parts", [([2**53 + 1], [1.5]), ([1.5], [2**53 + 1])], ids=str)
@pytest.mark.parametrize("size", [1, 100])
def test_integers_beside_fractions_stay_what_they_are(
    pick: Any, parts: tuple[list[Any], ...], size: int, tmp_path: Path
) -> None:
    in_parts(tmp_path, tuple(pa.array(part) for part in parts))
    (pane,) = (
        read("parquet", tmp_path).key_by("k").window(lw.FixedWindows("1h")).aggregate(v=pick("v"))
        .collect(bundle_size=size, progress=False).panes
    )  # fmt: skip
    values = [value for part in parts for value in part]
    wanted = {lw.max: max(values), lw.last: values[-1], lw.collect_set: values}[pick]
    assert pane.values["v"] == wanted
    mixed = lw.from_iterable([{**ROW, "v": v} for v in values], time="at", unit="s")
    (pane,) = (
        mixed.key_by("k").window(lw.FixedWindows("1h")).aggregate(v=pick("v"))
        .collect(bundle_size=size, progress=False).panes
    )  # fmt: skip
    assert pane.values["v"] == wanted


def test_times_without_a_zone_are_not_of_the_type_of_those_with_one(tmp_path: Path) -> None:
    naive = pa.array([1], pa.timestamp("us"))
    in_parts(tmp_path, (pa.array([1], pa.timestamp("us", "UTC")), naive))
    result = (
        read("parquet", tmp_path).key_by("k").window(lw.FixedWindows("1h"))
        .aggregate(v=lw.max("v")).collect(on_error="dead_letter", progress=False)
    )  # fmt: skip
    assert [error.reason for error in result.errors] == ["wrong_type"]


def test_a_value_of_a_finer_unit_costs_its_own_record(tmp_path: Path) -> None:
    micros, nanos = pa.timestamp("us"), pa.timestamp("ns")
    in_parts(tmp_path, (pa.array([1], micros), pa.array([5000, 5001, 7000], nanos)))
    result = (
        read("parquet", tmp_path).key_by("k").window(lw.FixedWindows("1h"))
        .aggregate(n=lw.count(), v=lw.max("v")).collect(on_error="dead_letter", progress=False)
    )  # fmt: skip
    assert [error.reason for error in result.errors] == ["wrong_type"]
    (pane,) = result.panes
    assert pane.values["n"] == 3
    assert pane.values["v"] == dt.datetime(1970, 1, 1, 0, 0, 0, 7)  # noqa: DTZ001


def test_old_timestamps_of_parquet_do_not_wrap(tmp_path: Path) -> None:
    last = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001
    first = dt.datetime(1, 1, 1)  # noqa: DTZ001
    table = pa.table({"at": [1, 2], "k": [1, 1], "v": pa.array([first, last], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    found, _ = echoed(read("parquet", tmp_path))
    assert [row["v"] for row in found] == [first, last]


@pytest.mark.parametrize("first", [True, False])
def test_a_column_that_a_file_of_parquet_lacks_is_null(first: bool, tmp_path: Path) -> None:
    with_v: dict[str, Any] = {**ROW, "v": [1]}
    without: dict[str, Any] = {"at": 1, "k": 1}
    rows = [without, with_v] if first else [with_v, without]
    for number, row in enumerate(rows):
        write(tmp_path / f"{number}.parquet", [row])
    with pytest.warns(lw.DataWarning, match="lacks the column 'v'"):
        found, letters = echoed(read("parquet", tmp_path, columns=["k", "v"]))
    assert letters == []
    assert [row["v"] for row in found] == [row.get("v") for row in rows]


@pytest.mark.parametrize("text", ["0x10", "-0X1f", " 0xA"])
def test_hexadecimal_digits_are_no_integer(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("at,k,v\n" + "1,1,16\n" * 20 + f"1,1,{text}\n1,1,17\n")
    for kind in (None, "int64", "int16", "uint64"):
        types = {} if kind is None else {"types": {"v": kind}}
        found, letters = echoed(read("csv", path, **types))
        assert [one.reason for one in letters] == ["wrong_type"]
        assert letters[0].detail.startswith(f"v={text!r} is not ")
        assert [row["v"] for row in found] == [16] * 20 + [17]
    path.write_text("at,k,v\n" + f"1,1,{text}\n" * 3)
    found, letters = echoed(read("csv", path))
    assert letters == []
    assert [row["v"].strip() for row in found] == [text.strip()] * 3


def test_two_columns_of_one_name_are_an_error_unless_they_are_not_read(tmp_path: Path) -> None:
    twins = pa.Table.from_arrays([pa.array([1])] * 3, names=["at", "k", "k"])
    pq.write_table(twins, tmp_path / "a.parquet")
    with pytest.raises(lw.InvalidArgument, match="two columns are called 'k'"):
        echoed(read("parquet", tmp_path))
    stream = read("parquet", tmp_path, columns=["at"])
    assert stream.map(dict).collect(progress=False).values() == [{"at": 1}]
