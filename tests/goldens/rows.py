"""The input of the goldens: rows of many types, some late, some invalid, some twice.

Each part is a function of its number alone, so that the test writes the same further input as the
program that wrote the goldens.
"""

from __future__ import annotations

import datetime as dt
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from lowwater.io import Log

START = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
ROWS = 30
"""The rows of a part."""
FIRST, LATER = (0, 1), (2,)
"""The parts that were there before a run was stopped, and those that come later."""
BEYOND = 2**53 + 1

_INSTANT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    {
        "at": _INSTANT,
        "arrived": _INSTANT,
        "complete": _INSTANT,
        "id": pa.int64(),
        "key": pa.string(),
        "part": pa.string(),
        "v": pa.int64(),
        "big": pa.int64(),
        "f": pa.float64(),
        "b": pa.bool_(),
        "s": pa.string(),
        "d": pa.date32(),
        "dec": pa.decimal128(12, 2),
        "by": pa.binary(),
        "t": _INSTANT,
        "gap": pa.duration("us"),
        "tags": pa.list_(pa.string()),
        "who": pa.struct({"name": pa.string(), "age": pa.int64()}),
    }
)


def rows(part: int, side: int = 0) -> list[dict[str, Any]]:
    """Return a part of the input of one side: a row in two seconds, every tenth a minute late."""
    return [_row(part * ROWS + n, side) for n in range(ROWS)]


def _row(n: int, side: int) -> dict[str, Any]:
    m = 3 * n + side
    seconds = 2 * n + side
    at = START + dt.timedelta(seconds=seconds - (60 if n % 10 == 9 else n % 4))
    return {
        "at": None if n % 53 == 17 else at,
        "arrived": START + dt.timedelta(seconds=seconds + 1),
        "complete": START + dt.timedelta(seconds=seconds - 12) if n % 6 == 0 else None,
        "id": n - 1 if n % 8 == 5 else n,
        "key": None if n % 31 == 11 else f"k{m % 5}",
        "part": "pq"[n % 2],
        "v": None if n % 9 == 4 else m * 7 % 23 - 8,
        "big": BEYOND + m % 3,
        "f": float("nan") if n % 29 == 3 else (m * 13 % 17) / 8 - 0.5,
        "b": None if n % 7 == 5 else m % 3 != 0,
        "s": None if n % 11 == 6 else ["", "ä", "zwei", "\N{SNOWMAN}", "a\nb", "0"][m % 6],
        "d": dt.date(2024, 2, 27 + m % 3),
        "dec": Decimal(m % 7) / 4 - 1,
        "by": bytes([0, m % 3, 255])[: 1 + m % 3],
        "t": START - dt.timedelta(days=m % 4, microseconds=1),
        "gap": dt.timedelta(seconds=3 + m % 4),
        "tags": ["x", None, "y"][: m % 4],
        "who": {"name": f"n{m % 3}", "age": None if m % 5 == 0 else m % 3},
    }


def feed_parquet(later: bool, folder: str = "in", side: int = 0) -> None:
    """Write the input of one side as Parquet files, the first parts or those that come later."""
    for part in LATER if later else FIRST:
        table = pa.Table.from_pylist(rows(part, side), SCHEMA)
        path = Path(folder, f"{part}.parquet")
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table, path)


def feed_sides(later: bool) -> None:
    """Write the input of both sides of a join."""
    feed_parquet(later, "left", 0)
    feed_parquet(later, "right", 1)


def plain(part: int, side: int = 0) -> list[dict[str, Any]]:
    """Return a part as JSON has it: times as text, no bytes, no NaN."""
    return [
        {
            "at": None if row["at"] is None else row["at"].isoformat(),
            "arrived": row["arrived"].isoformat(),
            "key": row["key"],
            "v": row["v"],
            "big": row["big"],
            "f": None if row["f"] != row["f"] else row["f"],
            "b": row["b"],
            "s": row["s"],
        }
        for row in rows(part, side)
    ]


def feed_jsonl(later: bool, folder: str = "in", *, zipped: bool = False) -> None:
    """Write the input as files of JSON lines, of which some lines are no JSON."""
    for part in LATER if later else FIRST:
        lines = [json.dumps(row) for row in plain(part)]
        lines[7] = "{oops"
        data = ("\n".join(lines) + "\n").encode()
        path = Path(folder, f"{part}.jsonl" + (".gz" if zipped else ""))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(data, mtime=0) if zipped else data)


def feed_csv(later: bool, folder: str = "in") -> None:
    """Write the input as CSV files, of which some rows are too short."""
    for part in LATER if later else FIRST:
        table = pa.Table.from_pylist(plain(part)).drop_columns(["s", "arrived"])
        path = Path(folder, f"{part}.csv")
        path.parent.mkdir(exist_ok=True)
        pa_csv.write_csv(table, path)
        with path.open("a") as file:
            file.write("2024-05-01T12:00:00Z,k1\n")


class Appended:
    """A clock of appends that moves a second each time it is read."""

    def __init__(self, part: int) -> None:
        self._at = part * 1_000_000_000

    def now(self) -> int:
        self._at += 1_000_000
        return self._at


def feed_log(later: bool, folder: str = "log") -> None:
    """Append the input to a log of two partitions, a few rows at a time."""
    for part in LATER if later else FIRST:
        with Log(folder, partitions=2, segment_bytes=4_000, fsync=0, clock=Appended(part)) as log:
            given = plain(part)
            for start in range(0, ROWS, 6):
                log.append(
                    pa.Table.from_pylist(given[start : start + 6], _LOGGED),
                    partition=start // 6 % 2,
                )


_LOGGED = pa.schema(
    {
        "at": pa.string(), "arrived": pa.string(), "key": pa.string(), "v": pa.int64(),
        "big": pa.int64(), "f": pa.float64(), "b": pa.bool_(), "s": pa.string(),
    }
)  # fmt: skip


def changes(part: int) -> list[dict[str, Any]]:
    """Return a part of a log of changes, some of which lack what they need."""
    found = []
    for row in rows(part):
        n = row["id"]
        key = row["key"] or "k0"
        before = {"id": n % 7, "key": key, "v": row["v"]}
        after = {"id": n % 7, "key": key, "v": n}
        op = "crudx"[n % 5] if n % 11 else None
        found.append(
            {
                "at": row["at"],
                "arrived": row["arrived"],
                "op": op,
                "before": before if op in ("u", "d") else None,
                "after": after if op in ("c", "r", "u") else None,
            }
        )
    return found


_CHANGED = pa.struct({"id": pa.int64(), "key": pa.string(), "v": pa.int64()})
_CHANGES = pa.schema(
    {
        "at": _INSTANT, "arrived": _INSTANT, "op": pa.string(), "before": _CHANGED,
        "after": _CHANGED,
    }
)  # fmt: skip


def feed_changes(later: bool, folder: str = "in") -> None:
    """Write the log of changes as Parquet files."""
    for part in LATER if later else FIRST:
        path = Path(folder, f"{part}.parquet")
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(changes(part), _CHANGES), path)


def feed_far(later: bool) -> None:
    """Write one file for each reader of files, with more rows than are read at a time."""
    if later:
        return
    seconds = [n // 5_000 for n in range(FAR_ROWS)]
    at = [f"2024-05-01T12:00:{second:02}Z" for second in seconds]
    keys = ["ab"[second % 2] for second in seconds]
    for name in ("in", "csv", "lines"):
        Path(name).mkdir(exist_ok=True)
    table = pa.table({"at": at, "k": keys})
    pq.write_table(table, "in/0.parquet")
    pa_csv.write_csv(table, "csv/0.csv")
    lines = (f'{{"at":"{time}","k":"{key}"}}\n' for time, key in zip(at, keys, strict=True))
    Path("lines/0.jsonl").write_text("".join(lines))


FAR_ROWS = 140_000
