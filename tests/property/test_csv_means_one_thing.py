"""A row of a CSV file means what it means alone, whatever is read with it (S-B1)."""

from __future__ import annotations

import datetime as dt
import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from tests.examples import sampled

BIG = 2**53
INTEGERS = ["0", "7", "-3", str(BIG + 1), str(2**60 + 1), str(2**63 - 1)]
COLUMNS = {
    "integers": INTEGERS,
    "huge integers": [*INTEGERS[:3], str(2**63), str(2**64 - 1)],
    "numbers": [*INTEGERS, "0.5", "7.0", "1e20", "-0.25", "NA", ""],
    "text": ["a", "", '""', "NA", "null", "nan", '"a, b"', '"say ""hi"""', "x\u00e4", "Fr"],
    "truth": ["true", "False", "", "NA"],
    "days": ["2024-05-01", "2024-02-29", ""],
    "times": ["2024-05-01 12:00:00", "2024-05-01 12:00:00.25", ""],
    "hours": ["09:30", "10:00:01", "10:00:01.5", ""],
}
FIRST = {
    "huge integers": str(2**63), "numbers": "1.5", "text": "a", "truth": "true",
    "days": "2024-05-01", "times": "2024-05-01 12:00:00", "hours": "09:30",
}  # fmt: skip
"""A first value that says what a column holds."""


def read(folder: Path, text: str, name: str = "in.csv", **options: Any) -> Any:
    (folder / name).write_text(text, encoding="utf-8")
    return echoed(lw.read_csv(folder, time="t", unit="us", **options))


def echoed(stream: lw.Stream) -> Any:
    letters: list[Any] = []
    options: dict[str, Any] = {"on_error": "dead_letter", "on_dead_letter": letters.append}
    return stream.map(lambda row: row).collect(**options)


def rows_of(result: Any) -> list[Any]:
    return [
        {name: plain(value) for name, value in row.items() if value is not None}
        for row in result.values()
    ]


def plain(value: Any) -> Any:
    """Return a value with large integers as text, so that no float equals them."""
    if type(value) is int and abs(value) > BIG:
        return str(value)
    return value.isoformat() if isinstance(value, (dt.datetime, dt.time)) else value


@given(st.data())
def test_rows_are_the_same_beside_a_broken_one(tmp_path_factory: Any, data: Any) -> None:
    folder = tmp_path_factory.mktemp("csv")
    kind = data.draw(st.sampled_from(list(COLUMNS)))
    first = FIRST.get(kind, "1")
    values = [first] * 4 + data.draw(st.lists(st.sampled_from(COLUMNS[kind]), max_size=12))
    lines = [f"{at},{value}" for at, value in enumerate(values)]
    sound = read(folder, "\n".join(["t,v", *lines]) + "\n")
    at = data.draw(st.integers(1, len(lines)))
    broken = read(folder, "\n".join(["t,v", *lines[:at], "1,2,3", *lines[at:]]) + "\n")
    assert rows_of(broken) == rows_of(sound)
    assert [one.reason for one in broken.errors] == [
        "malformed_csv", *(one.reason for one in sound.errors),
    ]  # fmt: skip


@given(st.lists(st.sampled_from(COLUMNS["numbers"]), min_size=1, max_size=20))
def test_no_number_is_rounded(tmp_path_factory: Any, texts: list[str]) -> None:
    result = read(
        tmp_path_factory.mktemp("csv"),
        "t,v\n" + "".join(f"{at},{text}\n" for at, text in enumerate(texts)),
    )
    assert not result.errors
    for row in result.values():
        text = texts[row["t"]]
        if text in ("", "NA"):
            assert row["v"] is None
        elif text.lstrip("-").isdigit():
            assert plain(row["v"]) == plain(int(text))
        else:
            assert row["v"] == float(text)


@given(st.lists(st.sampled_from(COLUMNS["text"]), min_size=1, max_size=12))
def test_words_are_text_in_a_column_of_text(tmp_path_factory: Any, texts: list[str]) -> None:
    result = read(
        tmp_path_factory.mktemp("csv"),
        "t,v\n" + "".join(f"{at},{text}\n" for at, text in enumerate(["word", *texts])),
    )
    wanted = [None if t == "" else written(t) for t in texts]
    assert [row["v"] for row in result.values()] == ["word", *wanted]


def written(text: str) -> str:
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


@pytest.mark.parametrize("first", ["t,v,k\n", "t,v,k\n1,,\n", "t,v,k\n1,NA,\n"])
def test_an_empty_first_file_settles_nothing(tmp_path: Path, first: str) -> None:
    (tmp_path / "0.csv").write_text(first)
    result = read(tmp_path, "t,v,k\n2,9,0\n3,10,5\n", "1.csv")
    assert [row["v"] for row in result.values() if row["v"] is not None] == [9, 10]
    assert not result.errors


def test_a_column_whose_first_block_is_empty_is_settled_by_its_first_value(tmp_path: Path) -> None:
    count, filler = 40_000, "x" * 300  # 12 MB: past the first block
    lines = [f"{at},{filler},{at if at > 35_000 else ''}" for at in range(count)]
    (tmp_path / "in.csv").write_text("t,f,v\n" + "\n".join(lines))
    stream = lw.read_csv(tmp_path, time="t", unit="us").key_by(k=lw.col("t") * 0)
    found = stream.window(lw.FixedWindows("1h")).aggregate(s=lw.max("v"), n=lw.count("v"))
    (pane,) = found.collect().panes
    assert pane.values == {"s": count - 1, "n": count - 35_001}


GIVEN = ["int64", "int32", "uint64", "double", "string", "bool", "date32", "timestamp[us]"]
ANY = sorted({text for texts in COLUMNS.values() for text in texts})


@given(st.sampled_from(GIVEN), st.lists(st.sampled_from(ANY), min_size=1, max_size=12))
def test_a_value_of_a_type_that_is_given_is_what_it_is_alone(
    tmp_path_factory: Any, kind: str, texts: list[str]
) -> None:
    """However many others in its block are not of the type."""
    folder = tmp_path_factory.mktemp("csv")
    types = {"v": kind if "[" not in kind else pa.timestamp("us")}
    lines = "".join(f"{at},{text}\n" for at, text in enumerate(texts))
    whole = read(folder, f"t,v\n{lines}", types=types)
    rows, letters = [], []
    for at, text in enumerate(texts):
        alone = read(folder, f"t,v\n{at},{text}\n", types=types)
        rows += alone.values()
        letters += [(one.record, one.reason, one.detail) for one in alone.errors]
    assert [repr(row) for row in whole.values()] == [repr(row) for row in rows]
    assert [(one.record, one.reason, one.detail) for one in whole.errors] == letters


def test_a_type_that_is_given_is_never_widened(tmp_path: Path) -> None:
    text = f"t,v\n1,{BIG + 1}\n2,7.0\n3,x\n4,{BIG + 3}\n"
    result = read(tmp_path, text, types={"v": pa.int64()})
    assert [row["v"] for row in result.values()] == [BIG + 1, BIG + 3]
    assert [one.reason for one in result.errors] == ["wrong_type", "wrong_type"]


def test_one_word_among_numbers_is_one_dead_letter(tmp_path: Path) -> None:
    text = "t,v\n" + "".join(f"{at},{at}\n" for at in range(999)) + "999,n.a.\n"
    result = read(tmp_path, text)
    assert [row["v"] for row in result.values()] == list(range(999))
    (letter,) = result.errors
    assert letter.detail == "v='n.a.' is not int64; types= can name another"


def test_compressed_files_need_no_ending(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(gzip.compress(b"t,v\n1,5\n"))
    result = echoed(lw.read_csv(tmp_path, time="t", unit="us"))
    assert result.values() == [{"t": 1, "v": 5}]


@pytest.mark.parametrize("odd", sampled(["0.5", "x"], every=2))
def test_one_odd_row_changes_no_other(tmp_path: Path, odd: str) -> None:
    """Past every block: 500,000 ids above 2^60, in two blocks of 8 MiB."""
    count = 500_000
    ids = [str(2**60 + 1 + 2 * at) for at in range(count)]
    ids[400_000] = odd
    (tmp_path / "in.csv").write_text("t,id\n" + "\n".join(map(",".join, enumerated(ids))))
    stream = lw.read_csv(tmp_path, time="t", unit="us").key_by(k=lw.col("t") * 0)
    stage = stream.window(lw.FixedWindows("1h")).aggregate(n=lw.count_distinct("id"))
    found = stage.collect(on_error="dead_letter")
    assert found.panes[0].values["n"] == count - (odd == "x")
    assert len(found.errors) == (odd == "x")


def enumerated(values: list[str]) -> list[tuple[str, str]]:
    return [(str(at), value) for at, value in enumerate(values)]


@pytest.mark.parametrize(
    "kind", ["string", "large_string", "binary", pa.dictionary(pa.int32(), pa.string())], ids=str
)
@pytest.mark.parametrize("broken", ["", "9,9,9\n"])
def test_types_of_text_that_are_given(tmp_path: Path, kind: Any, broken: str) -> None:
    text = 't,v\n1,"a, b"\n2,NA\n3,\n4,""\n'.replace("2,", f"{broken}2,")
    found = [row["v"] for row in read(tmp_path, text, types={"v": kind}).values()]
    assert [v.decode() if isinstance(v, bytes) else v for v in found] == ["a, b", "NA", None, ""]


@pytest.mark.parametrize("first", [f"{value}" for value in FIRST.values()])
@pytest.mark.parametrize("broken", ["", "9,9,9\n"])
def test_a_later_file_settles_as_a_first_one_does(tmp_path: Path, first: str, broken: str) -> None:
    alone, later = tmp_path / "alone", tmp_path / "later"
    for folder in (alone, later):
        folder.mkdir()
    (later / "0.csv").write_text("t,v\n0,\n")
    sound = read(alone, f"t,v\n1,{first}\n2,\n", "1.csv")
    found = read(later, f"t,v\n{broken}1,{first}\n2,\n", "1.csv")
    assert [type(row["v"]) for row in found.values()[1:]] == [
        type(row["v"]) for row in sound.values()
    ]
    assert rows_of(found)[1:] == rows_of(sound)


def test_half_of_the_numbers_may_be_wrong(tmp_path: Path) -> None:
    odd = ["x", "1e", "0x", "1_0", "--5", "1.5.5", "\u0663", "n/a!"]
    values = [odd[at // 2 % len(odd)] if at % 2 else str(at) for at in range(20_000)]
    text = "t,v\n" + "".join(f"{at},{value}\n" for at, value in enumerate(values))
    result = read(tmp_path, text, types={"v": pa.int64()})
    assert [row["v"] for row in result.values()] == list(range(0, 20_000, 2))
    assert {one.reason for one in result.errors} == {"wrong_type"}
    assert len(result.errors) == 10_000
