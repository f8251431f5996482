"""A line of JSON or CSV means on Spark what it means embedded: the same record, or dead letter."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from tests.examples import sampled
from tests.spark.test_to_spark import Rows, embedded, plain, run

TYPES = {"n": "int64", "x": "double", "s": "string"}
AT = "2000-01-01T12:00:0{}Z"
SOUND = {"at": AT.format(0), "key": "a", "n": 1, "x": 0.5, "s": "text"}
JSON_VALUES: dict[str, list[Any]] = {
    "n": [2.5, 2.0, "7", True, None, 2**53 + 1, 2**63, [1], {"a": 1}, float("nan"), 1e400],
    "x": [7, 2**53 + 1, "0.5", None, 1e308, float("inf"), False],
    "s": [7, 7.0, "", None, True, {"a": 1}, ["x"], "NA", "é\u2028"],
    "key": [7, None, "", 1.5, True, "a b", "A"],
    "at": [None, "", "soon", 7, 946728000.5, "2000-01-01", AT.format(3)],
}
CHOSEN = ["n", "day", "city"]
BROKEN = [b"", b"   ", b"{", b"[1]", b'"a"', b"{'a': 1}", b'{"at": "\xff"}', b"null", b"{}",
          b"\xff",
]  # fmt: skip
CSV_VALUES: dict[str, list[str]] = {
    "n": ["2.5", "2.0", " 7 ", "+7", "0x10", "NA", "", '""', "9007199254740993", str(2**63), "1e3"],
    "x": ["7", "9007199254740993", "inf", "nan", "", "1e400", "x"],
    "s": ["7", "NA", "", '""', '"a,b"', '"a ""b"" \\"', '"two\nlines"', " x ", "é"],
    "key": ["7", "", '""', "null", " a", "A"],
    "at": ["", "soon", "7", "2000-01-01", AT.format(3)],
}


def lines_of_json(at: int) -> bytes:
    """Return sound objects and odd ones, of which the first are sound."""
    made = [json.dumps(SOUND).encode()] * (4 if at else 4_200)  # which settle the types
    for name, values in JSON_VALUES.items() if at else ():
        for value in values:
            made.append(json.dumps({**SOUND, name: value}).encode())
            made.append(json.dumps({**SOUND, "more": {"a": at}}).encode())
    return b"\n".join([*made, *BROKEN, json.dumps(SOUND).encode()])


def lines_of_csv(at: int) -> bytes:
    names = list(SOUND)
    sound = ",".join(map(str, SOUND.values()))
    made = [",".join(names), *[sound] * 30]
    for name, values in CSV_VALUES.items() if at else ():
        for value in values:
            made += [",".join(value if n == name else str(SOUND[n]) for n in names), sound]
    return "\n".join([*made, "", "a,b", f"{sound},more", sound, ""]).encode()


def written(folder: Path, kind: str, mark: bytes = b"") -> Path:
    """Write two files in the order of their names, one with a byte order mark."""
    folder.mkdir()
    make = lines_of_json if kind == "jsonl" else lines_of_csv
    for at in range(2):
        path = folder / f"{at}.{kind}"
        path.write_bytes((mark if at else b"") + make(at))
        os.utime(path, (1_000_000_000 + at, 1_000_000_000 + at))
    return folder


def made_of(begun: Any) -> Any:
    return (
        begun.key_by("key")
        .window(lw.FixedWindows("1h"), accumulation="accumulating")
        .aggregate(
            rows=lw.count(), total=lw.sum("n"), mean=lw.mean("n"), most=lw.max("x"),
            low=lw.min("n"), texts=lw.collect("s"),
        )
    )  # fmt: skip


def shown(reason: str, record: Any) -> tuple[str, str]:
    return reason, _record(json.dumps(record, default=str))


@pytest.mark.parametrize("operator", sampled(["", "mapInArrow"], every=2))
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_records_and_dead_letters_are_those_of_an_embedded_run(
    spark: Any, tmp_path: Path, kind: str, operator: str
) -> None:
    folder = written(tmp_path / "in", kind, b"\xef\xbb\xbf")
    read = lw.read_jsonl if kind == "jsonl" else lw.read_csv
    options: dict[str, Any] = {"time": "at", "watermark": lw.BoundedDisorder("1h")}
    strict = made_of(read(folder, types=TYPES, **options))
    wanted = strict.collect()
    made = made_of(read(folder, **options))
    how: dict[str, Any] = {"operator": operator} if operator else {"drain": True}
    frame = made.to_spark(spark, outputs="all", files_per_batch=1, **how)
    rows, _ = run(frame, tmp_path / "checkpoint")
    letters = [row for row in rows if row["output"] == "dead_letter"]
    found = sorted((row["reason"], _record(row["record"])) for row in letters)
    assert found == sorted(shown(error.reason, error.record) for error in wanted.errors)
    assert {reason for reason, _ in found} >= {f"malformed_{kind.removesuffix('l')}", "wrong_type"}
    if not operator:
        assert _panes(rows) == plain(embedded(strict), but=("emitted_at",))


def _record(text: str) -> str:
    try:
        record = json.loads(text)
    except ValueError:
        return text
    return record.rstrip("\n") if isinstance(record, str) else json.dumps(record, sort_keys=True)


def _panes(rows: Rows) -> list[str]:
    names = ("output", "reason", "detail", "record", "emitted_at")
    return plain([row for row in rows if row["output"] == "pane"], but=names)


@pytest.mark.parametrize(
    ("kind", "columns"),
    sampled(
        [
            pytest.param(kind, columns)
            for kind, columns in (
                *(("jsonl", CHOSEN), ("jsonl", None)),
                *(("csv", None), ("csv", CHOSEN)),
            )
        ],
        every=2,
    ),
)
def test_columns_of_paths_and_columns_that_are_chosen(
    spark: Any, tmp_path: Path, kind: str, columns: list[str] | None
) -> None:
    """What is not read may hold anything."""
    for at in range(2):
        folder = tmp_path / f"in/day={at}/city=U%20{at}"
        folder.mkdir(parents=True)
        rows = [{"s": "x", "at": 10 * at + n, "n": n, "odd": n if n % 2 else "y"} for n in range(6)]
        lines = [json.dumps(row) for row in rows]
        if kind == "csv":
            lines = ["s,at,n,odd", *(",".join(map(str, row.values())) for row in rows)]
        (folder / f"{at}.{kind}").write_text("\n".join([*lines, "oops"]))
    read = lw.read_jsonl if kind == "jsonl" else lw.read_csv
    begun = read(
        tmp_path / "in", time="at", unit="s", columns=columns, watermark=lw.BoundedDisorder("1h")
    )
    windowed = begun.key_by("day", "city").window(lw.FixedWindows("1h"))
    made = windowed.aggregate(rows=lw.count(), total=lw.sum("n"))
    wanted = made.collect()
    rows_found, _ = run(made.to_spark(spark, outputs="all", drain=True), tmp_path / "checkpoint")
    letters = [row["reason"] for row in rows_found if row["output"] == "dead_letter"]
    assert sorted(letters) == sorted(error.reason for error in wanted.errors)
    panes = [row for row in rows_found if row["output"] == "pane"]
    assert sorted((row["day"], row["city"], row["rows"], row["total"]) for row in panes) == sorted(
        (*pane.key, pane.values["rows"], pane.values["total"]) for pane in wanted.panes
    )
    assert len(panes) == 2
