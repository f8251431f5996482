"""Files that are hostile: each record is a dead letter, or the error names the file (S-B1)."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.pipeline import Result, Stream
from tests.children import run_code
from tests.examples import is_campaign

TIME_US = 1_714_564_800_000_000
TWICE = 2
"""The place of the record for which runs are stopped: it is not in the first bundle."""
SOUND = [{"at": TIME_US + at, "k": "a", "v": at} for at in range(5)]
READS: dict[str, Callable[..., Stream]] = {
    ".jsonl": lw.read_jsonl, ".csv": lw.read_csv, ".parquet": lw.read_parquet,
}  # fmt: skip


def lines(*rows: Any) -> bytes:
    return b"".join(
        row + b"\n" if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows
    )


def collected(stream: Stream, column: str = "v", **options: Any) -> Result:
    windows = stream.key_by("k").window(lw.GlobalWindow())
    return windows.aggregate(lw.collect(column)).collect(**options)


def values(result: Result) -> list[Any]:
    return [value for pane in result.panes for value in pane.value]


def read_lines(tmp_path: Path, *rows: Any, column: str = "v") -> Result:
    path = tmp_path / "1.jsonl"
    path.write_bytes(lines(*rows))
    return collected(lw.read_jsonl(path, time="at"), column, on_error="dead_letter")


def twice(tmp_path: Path, read: Callable[..., Stream], path: Path) -> list[str]:
    """Run with state until a callback stops the run, and again; return the dead letters' places."""

    class Stopped(Exception):
        pass

    def stop(_metrics: object) -> None:
        raise Stopped

    windows = read(path, time="at").key_by("k").window(lw.GlobalWindow())
    written = windows.aggregate(n=lw.count()).write_jsonl(tmp_path / "out")
    with pytest.raises(Stopped):
        written.run(state=tmp_path / "state", commit_every="bundle", bundle_size=2, progress=stop)
    for _ in range(2):
        written.run(state=tmp_path / "state", commit_every="bundle", bundle_size=2)
    panes = [json.loads(line) for file in sorted((tmp_path / "out").glob("part-*"))
             for line in file.read_text().splitlines()]  # fmt: skip
    assert [pane["n"] for pane in panes] == [5]
    letters = [json.loads(line) for file in sorted((tmp_path / "out").glob("errors-*"))
               for line in file.read_text().splitlines()]  # fmt: skip
    return [letter["where"] for letter in letters]


@pytest.mark.slow(
    reason="runs in a process of its own"
)  # a process of its own, as this ended the process
def test_null_before_all_objects_does_not_end_the_process(tmp_path: Path) -> None:
    path = tmp_path / "1.jsonl"
    path.write_bytes(b"null\n" + lines(*SOUND))
    program = (
        "import lowwater as lw\n"
        f"stream = lw.read_jsonl({str(path)!r}, time='at').key_by('k')\n"
        "result = stream.window(lw.GlobalWindow()).aggregate(lw.count()).collect()\n"
        "print([pane.value for pane in result.panes], [e.where for e in result.errors])\n"
    )
    done = run_code(program)
    assert (done.returncode, done.stdout) == (0, f"[5] [{str(path) + ':1'!r}]\n")


@pytest.mark.parametrize("place", [0, 2, 5])
@pytest.mark.parametrize(
    "line", ["null", " null", "1", "[]", "true", "{} {}", "null null", '{"at": 1,', "}", "NaN"]
)
def test_a_line_that_is_no_object_is_a_dead_letter(tmp_path: Path, line: str, place: int) -> None:
    rows: list[Any] = list(SOUND)
    rows.insert(place, line.encode())
    result = read_lines(tmp_path, *rows)
    assert values(result) == [0, 1, 2, 3, 4]
    (letter,) = result.errors
    assert (letter.reason, letter.record) == ("malformed_json", line)
    assert letter.where == f"{tmp_path / '1.jsonl'}:{place + 1}"


def test_objects_across_lines_are_not_records(tmp_path: Path) -> None:
    """As many objects as lines, but not one on each."""
    one, other = (json.dumps(row).encode() for row in SOUND[:2])
    result = read_lines(tmp_path, one + b" " + other, *other.split(b", ", 1))
    assert [error.reason for error in result.errors] == ["malformed_json"] * 3


@pytest.mark.parametrize("place", [0, 2, 5])
@pytest.mark.parametrize("at", ["1714564800.5", "NaN", "1e400", "true", '"soon"', "[]", "{}"])
def test_one_event_time_does_not_change_the_others(tmp_path: Path, at: str, place: int) -> None:
    rows: list[Any] = list(SOUND)
    rows.insert(place, f'{{"at": {at}, "k": "a", "v": 9}}'.encode())
    result = read_lines(tmp_path, *rows)
    assert values(result) == [0, 1, 2, 3, 4]
    assert [error.reason for error in result.errors] == ["wrong_type"]
    if place == TWICE or is_campaign():
        assert twice(tmp_path, lw.read_jsonl, tmp_path / "1.jsonl") == [
            f"{tmp_path / '1.jsonl'}:{place + 1}"
        ]


@pytest.mark.parametrize("place", [0, 2, 5])
@pytest.mark.parametrize("at", ["1714564800.5", "soon", "true", "9" * 30])
def test_one_event_time_of_csv_does_not_change_the_others(
    tmp_path: Path, at: str, place: int
) -> None:
    rows = [f"{row['at']},a,{row['v']}" for row in SOUND]
    rows.insert(place, f"{at},a,9")
    path = tmp_path / "1.csv"
    path.write_text("at,k,v\n" + "\n".join(rows) + "\n")
    result = collected(lw.read_csv(path, time="at"))
    assert values(result) == [0, 1, 2, 3, 4]
    assert [error.reason for error in result.errors] == ["wrong_type"]
    if place == TWICE or is_campaign():
        assert twice(tmp_path, lw.read_csv, path) == [f"{path}, row {place}"]


def test_most_first_lines_decide_the_type_of_a_field(tmp_path: Path) -> None:
    result = read_lines(tmp_path, {**SOUND[0], "v": [1]}, {**SOUND[0], "v": "x"}, *SOUND)
    assert values(result) == [0, 1, 2, 3, 4]
    assert [error.reason for error in result.errors] == ["wrong_type"] * 2


@pytest.mark.parametrize("levels", [40, 60, 90, 495, 3_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"y": ', "}")])
def test_values_nested_too_deep(tmp_path: Path, opening: str, closing: str, levels: int) -> None:
    x = opening * levels + "1" + closing * levels
    line = f'{{"at": {TIME_US}, "k": "a", "v": 9, "x": {x}}}'.encode()
    result = read_lines(tmp_path, *SOUND, line)
    deep = levels > 40
    assert values(result) == [0, 1, 2, 3, 4] + [9] * (not deep)
    assert [error.detail for error in result.errors] == [
        "values are nested more than 40 deep"
    ] * deep


def test_forty_levels_pass_through_state_and_parquet(tmp_path: Path) -> None:
    x: Any = 1
    for _ in range(40):
        x = [x]
    path = tmp_path / "1.jsonl"
    path.write_bytes(lines({**SOUND[0], "x": x}))
    windows = lw.read_jsonl(path, time="at").key_by("k").window(lw.GlobalWindow())
    windows.aggregate(all=lw.collect("x")).write_parquet(tmp_path / "out").run(
        state=tmp_path / "state", commit_every="bundle"
    )
    (part,) = (tmp_path / "out").glob("part-*")
    assert pq.read_table(part).column("all").to_pylist() == [[x]]


@pytest.mark.parametrize("name", ["\ud800", "__lw_time", "__lw_sign"])
def test_fields_with_names_that_cannot_be(tmp_path: Path, name: str) -> None:
    result = read_lines(tmp_path, *SOUND, {**SOUND[0], name: 1})
    assert values(result) == [0, 1, 2, 3, 4]
    assert [error.reason for error in result.errors] == ["malformed_json"]


@pytest.mark.parametrize("odd", [[], {}, [[]], [{"a": "x"}], {"a": True}, {"a": [1]}, "x", 1])
def test_values_of_another_shape(tmp_path: Path, odd: Any) -> None:
    for sound in ({"a": 1}, [{"a": 1}]):
        rows = [{**row, "s": sound} for row in SOUND]
        result = read_lines(tmp_path, *rows, {**SOUND[0], "s": odd}, column="s")
        alike = odd == {} if isinstance(sound, dict) else odd == []
        assert len(result.errors) == (not alike)
        assert values(result)[:5] == [sound] * 5


def test_nulls_at_the_beginning_of_lists_are_kept(tmp_path: Path) -> None:
    """Arrow leaves them out where it infers the type (its issue 51305)."""
    lists: list[Any] = [[None, 1], [2], [None, None], [], None]
    rows = [{**row, "s": each} for row, each in zip(SOUND, lists, strict=True)]
    assert values(read_lines(tmp_path, *rows, column="s")) == lists[:4]


@pytest.mark.parametrize("broken", [b"", b"{"])
def test_fields_that_structs_get_later_are_not_lost(tmp_path: Path, broken: bytes) -> None:
    first = [{**SOUND[0], "s": {"a": 1}}] * 4096  # by which types are settled
    (tmp_path / "1.jsonl").write_bytes(lines(*first))
    more = {**SOUND[0], "s": {"b": "x"}}
    (tmp_path / "2.jsonl").write_bytes(lines(more, broken))

    class Echo:
        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.emit(record["s"])

    echoed = lw.read_jsonl(tmp_path, time="at").key_by("k").process(Echo()).collect()
    assert echoed.values()[-1] == {"a": None, "b": "x"}
    result = collected(lw.read_jsonl(tmp_path, time="at"), "s")
    assert values(result) == [{"a": 1}] * 4096 + [{"a": None, "b": "x"}]
    assert [error.reason for error in result.errors] == ["malformed_json"] * bool(broken)


def test_rows_after_a_bad_line_keep_their_numbers(tmp_path: Path) -> None:
    result = read_lines(tmp_path, b"{", SOUND[0], {**SOUND[1], "k": None}, {**SOUND[1], "at": None})
    path = tmp_path / "1.jsonl"
    assert [error.where for error in result.errors] == [
        f"{path}:1", f"{path}, row 2", f"{path}, row 3",
    ]  # fmt: skip


def test_files_without_a_usable_line_do_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_bytes(b"null\n{}\n[]\n")
    (tmp_path / "2.jsonl").write_bytes(lines(*SOUND))
    result = collected(lw.read_jsonl(tmp_path, time="at"))
    assert values(result) == [0, 1, 2, 3, 4]
    assert sorted(error.reason for error in result.errors) == [
        "malformed_json", "malformed_json", "null_time",
    ]  # fmt: skip


def damaged(data: bytes) -> bytes:
    """Return gzip data whose bits do not decompress."""
    packed = bytearray(gzip.compress(data * 1_000))
    for at in range(12, len(packed)):
        packed[at] ^= 0xFF
        try:
            gzip.decompress(bytes(packed))
        except zlib.error:
            return bytes(packed)
        except (OSError, EOFError):
            packed[at] ^= 0xFF
    raise AssertionError("no change damages it")


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
@pytest.mark.parametrize("change", [damaged, lambda data: gzip.compress(data)[:-9], lambda _: b"x"])
def test_a_damaged_gzip_names_the_file(
    tmp_path: Path, suffix: str, change: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"1{suffix}.gz"
    sound = lines(*SOUND) if suffix == ".jsonl" else b"at,k,v\n" + b"1,a,1\n" * 50
    path.write_bytes(change(sound))
    for _ in range(2):
        with pytest.raises(lw.DataError, match=r"cannot be read.*gz") as raised:
            collected(READS[suffix](path, time="at"))
        assert raised.value.hint


@pytest.mark.parametrize("codec", ["zstd", "lz4", "bz2"])
def test_other_compressions_of_json_lines_are_named(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "1.jsonl"
    with pa.output_stream(str(path), compression=codec) as file:
        file.write(lines(*SOUND))
    with pytest.raises(lw.DataError, match=r"compressed with .*1\.jsonl"):
        lw.read_jsonl(path, time="at")
    path.write_bytes(gzip.compress(lines(*SOUND)))
    assert values(collected(lw.read_jsonl(path, time="at"))) == [0, 1, 2, 3, 4]


def write_parquet(path: Path, **columns: pa.Array) -> Path:
    sound = {"at": pa.array(range(TIME_US, TIME_US + 3)), "k": pa.array(["a"] * 3)}
    pq.write_table(pa.table({**sound, "v": pa.array(range(3)), **columns}), path)
    return path


def test_an_unknown_time_zone_is_read_as_utc(tmp_path: Path) -> None:
    for zone in ("Nowhere/Land", "+25:00"):
        times = pa.array(range(3), pa.timestamp("ms", zone))
        path = write_parquet(tmp_path / "1.parquet", v=times, at=times)
        result = collected(lw.read_parquet(path, time="at"))
        assert [value.microsecond for value in values(result)] == [0, 1_000, 2_000]
        assert collected(lw.from_arrow(pq.read_table(path), time="at")).errors == []


def test_times_at_the_ends_of_64_bits(tmp_path: Path) -> None:
    ends = pa.array([0, -(2**63), 2**63 - 1], pa.int64())
    for unit in ("s", "ms", "us"):
        path = tmp_path / "1.parquet"
        if unit == "s":  # which Parquet does not hold
            table = pa.table({"at": ends.view(pa.timestamp(unit, "UTC")), "k": ["a"] * 3})
            stream = lw.from_arrow(table, time="at")
        else:
            write_parquet(path, at=ends.view(pa.timestamp(unit, "UTC")))
            stream = lw.read_parquet(path, time="at")
        result = collected(stream, "at")
        assert [error.reason for error in result.errors] == ["time_out_of_range"] * 2
        assert len(values(result)) == 1
    local = ends.view(pa.timestamp("us"))
    for zone in ("America/New_York", "Europe/Berlin", "UTC"):
        table = pa.table({"at": local, "k": ["a"] * 3})
        result = collected(lw.from_arrow(table, time="at", timezone=zone), "at")
        assert [error.reason for error in result.errors] == ["time_out_of_range"] * 2


@pytest.mark.parametrize("name", ["at", "k"])
def test_a_type_that_changes_in_a_later_file_gives_dead_letters(tmp_path: Path, name: str) -> None:
    write_parquet(tmp_path / "1.parquet")
    odd = pa.array([1.5] * 3) if name == "at" else pa.array([["a"]] * 3)
    write_parquet(tmp_path / "2.parquet", **{name: odd})
    result = collected(lw.read_parquet(tmp_path, time="at"))
    assert values(result) == [0, 1, 2]
    assert [error.reason for error in result.errors] == ["wrong_type"] * 3
    (tmp_path / "1.parquet").unlink()
    with pytest.raises(lw.InvalidArgument, match=f"'{name}' is"):
        collected(lw.read_parquet(tmp_path, time="at"))


def test_text_of_parquet_that_is_not_utf8(tmp_path: Path) -> None:
    texts = pa.array([b"a", b"\xff", b"a"])
    invalid = pa.Array.from_buffers(pa.string(), 3, texts.buffers())
    for name in ("k", "v"):
        path = write_parquet(tmp_path / "1.parquet", **{name: invalid})
        result = collected(lw.read_parquet(path, time="at"))
        assert [error.detail for error in result.errors] == [f"{name!r} is not valid UTF-8"]
        assert [error.where for error in result.errors] == [f"{path}, row 1"]
        assert len(values(result)) == 2
    nested = pa.ListArray.from_arrays(pa.array(range(4), pa.int32()), invalid)
    path = write_parquet(tmp_path / "1.parquet", v=nested)
    with pytest.raises(lw.DataError, match=r"'v' is damaged.*1\.parquet"):
        collected(lw.read_parquet(path, time="at"))


def test_columns_that_cannot_be(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "1.parquet", __lw_sign=pa.array(range(3)))
    with pytest.raises(lw.DataError, match=r"'__lw_sign' is reserved.*1\.parquet"):
        collected(lw.read_parquet(path, time="at"))
    deep = pa.array(range(3))
    for _ in range(300):
        deep = pa.ListArray.from_arrays(pa.array(range(4), pa.int32()), deep)
    table = pa.table({"at": range(3), "k": ["a"] * 3, "x": deep})
    with pytest.raises(lw.DataError, match="'x' is nested more than 40 deep"):
        lw.from_arrow(table, time="at")
    (tmp_path / "1.csv").write_text("at,k,v,__lw_row\n1,a,1,1\n")
    with pytest.raises(lw.DataError, match=r"'__lw_row' is reserved.*1\.csv"):
        collected(lw.read_csv(tmp_path / "1.csv", time="at"))


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_short_rows_of_csv_that_are_not_utf8(tmp_path: Path) -> None:
    """Arrow fails to pass on the text of such a row, and takes the whole file to be invalid."""
    path = tmp_path / "1.csv"
    path.write_bytes(b"at,k,v,\xc3\xa9\n1,a,1,x\n2,\xff\n3,b,many,\xff\n4,\xc3\xa9,4,\xc3\xa9\n")
    stream = lw.read_csv(path, time="at", types={"v": "int64"})
    result = collected(stream, "é")
    assert [(pane.key, pane.value) for pane in result.panes] == [("a", ["x"]), ("é", ["é"])]
    assert [(error.reason, error.record) for error in result.errors] == [
        ("malformed_csv", "2,\ufffd"),
        ("wrong_type", {"at": "3", "k": "b", "v": "many", "é": "\ufffd"}),
    ]
