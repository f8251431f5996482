"""Readers of poison records: from memory, and from files of each kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import lowwater as lw
from tests.poison import poison_places
from tests.poison.poison_places import PLACES, POISON, SECOND, Place

Rows = list[dict[str, Any]]
JSON_LINES: dict[str, bytes] = {
    "nothing": b"{}",
    "null": b"null",
    "list": b"[1]",
    "text": b'"x"',
    "not JSON": b"{",
    "two objects": b"{} {}",
    "not UTF-8": b'{"t": 7000000, "k": "odd", "n": 1000, "v": "\xff"}',
    "half a pair": b'{"t": 7000000, "k": "\\ud800", "n": 1000, "v": 3}',
    "reserved name": b'{"t": 7000000, "k": "odd", "n": 1000, "v": 3, "__lw_x": 1}',
    "other type": b'{"t": 7000000, "k": "odd", "n": 1000, "v": {"a": [1]}}',
    "beyond floats": b'{"t": 7000000, "k": "odd", "n": 1000, "v": 1e400}',
    "beyond 64 bits": b'{"t": 7000000, "k": "odd", "n": 1000, "v": 1%s}' % (b"0" * 30),
    "fraction": b'{"t": 7000000, "k": "odd", "n": 1000, "v": 2.5}',
    "nested": b'{"t": 7000000, "k": "odd", "n": 1000, "v": ' + b"[" * 60 + b"]" * 60 + b"}",
    "null key": b'{"t": 7000000, "k": null, "n": 1000, "v": 3}',
    "list as key": b'{"t": 7000000, "k": [1], "n": 1000, "v": 3}',
    "text as time": b'{"t": "noon", "k": "odd", "n": 1000, "v": 3}',
    "null time": b'{"t": null, "k": "odd", "n": 1000, "v": 3}',
    "time beyond 64 bits": b'{"t": 100000000000000000000, "k": "odd", "n": 1000, "v": 3}',
}
CSV_LINES: dict[str, bytes] = {
    "too short": b"7000000,odd",
    "too long": b"7000000,odd,3,1000,5",
    "not UTF-8": b"7000000,\xff,3,1000",
    "text as number": b"7000000,odd,x,1000",
    "fraction": b"7000000,odd,2.5,1000",
    "beyond 64 bits": b"7000000,odd,1000000000000000000000000000000,1000",
    "text as time": b"noon,odd,3,1000",
    "null time": b",odd,3,1000",
    "null key": b"7000000,,3,1000",
    "nul": b"7000000,o\x00d,3,1000",
}
ARROW: dict[str, pa.Array] = {
    "text": pa.array(["x"]),
    "decimal": pa.array([1]).cast(pa.decimal128(30, 2)),
    "unsigned": pa.array([2**64 - 1], pa.uint64()),
    "nan": pa.array([float("nan")]),
    "bool": pa.array([True]),
    "null": pa.nulls(1),
    "list": pa.array([[1, None]]),
    "struct": pa.array([{"a": 1}]),
    "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "bytes": pa.array([b"\xff"]),
    "fixed bytes": pa.array([b"ab"], pa.binary(2)),
    "time of day": pa.array([5], pa.time64("us")),
    "timestamp": pa.array([5], pa.timestamp("ns", "Asia/Tokyo")),
    "duration": pa.array([5], pa.duration("ns")),
    "dictionary": pa.array(["x"]).dictionary_encode(),
    "uuid": pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([b"0123456789abcdef"], pa.binary(16))
    ),
    "tensor": pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int8(), (2,)), pa.array([[1, 2]], pa.list_(pa.int8(), 2))
    ),
    "not UTF-8": pa.array([b"\xff"]).view(pa.string()),
}
"""Columns of a row, of types that those of the other files are not."""


def _shared() -> dict[str, Any]:
    return {"unit": "us", "watermark": lw.Ascending(), "clock": lw.ManualClock(0)}


def _iterable(time: Any = "t") -> Callable[[Rows, Path], Any]:
    return lambda rows, _: lw.from_iterable(rows, time=time, **_shared())


def _items(rows: Rows, _: Path) -> Any:
    """Return a stream in which a poison record is the value itself."""
    items = [poison_places.VALUES[row["n"]] if row["n"] >= POISON else row for row in rows]
    return lw.from_iterable(iter(items), time="t", **_shared())


def _frame(rows: Rows, _: Path) -> Any:
    values = np.empty(len(rows), dtype=object)
    values[:] = [row["v"] for row in rows]
    frame = pd.DataFrame({name: [row[name] for row in rows] for name in ("t", "k", "n")})
    return lw.from_pandas(frame.assign(v=values), time="t", **_shared())


def _jsonl(rows: Rows, folder: Path) -> Any:
    lines = [
        poison_places.VALUES[row["n"]] if row["n"] >= POISON else json.dumps(row).encode()
        for row in rows
    ]
    folder.mkdir(exist_ok=True)
    (folder / "rows.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    return lw.read_jsonl(str(folder / "rows.jsonl"), time="t", **_shared())


def _csv(rows: Rows, folder: Path) -> Any:
    lines = [
        poison_places.VALUES[row["n"]]
        if row["n"] >= POISON
        else f"{row['t']},{row['k']},{row['v']},{row['n']}".encode()
        for row in rows
    ]
    folder.mkdir(exist_ok=True)
    (folder / "rows.csv").write_bytes(b"".join(line + b"\n" for line in [b"t,k,v,n", *lines]))
    types = {"v": pa.int64(), "n": pa.int64()}  # else the poison would be in what they follow from
    return lw.read_csv(str(folder / "rows.csv"), time="t", types=types, **_shared())


def _tables(rows: Rows) -> list[pa.Table]:
    made = []
    for row in rows:
        value = poison_places.VALUES[row["n"]] if row["n"] >= POISON else pa.array([row["v"]])
        table = pa.table({name: [row[name]] for name in ("t", "k", "n")})
        made.append(table.append_column("v", value))
    return made


def _parquet(rows: Rows, folder: Path) -> Any:
    folder.mkdir(exist_ok=True)
    for at, table in enumerate(_tables(rows)):
        pq.write_table(table, folder / f"{at:03}.parquet")
    return lw.read_parquet(str(folder), time="t", **_shared())


def _collected(stream: Any) -> Any:
    windowed = stream.key_by("k").window(lw.FixedWindows("1h"))
    return windowed.aggregate(a=lw.collect("v"), c=lw.count())


def _summed(stream: Any) -> Any:
    return stream.key_by("k").window(lw.FixedWindows("1h")).aggregate(a=lw.sum("v"), c=lw.count())


def _counted(stream: Any) -> Any:
    return stream.key_by("k").window(lw.FixedWindows("1h")).aggregate(c=lw.count())


def _time(row: Any) -> Any:
    """Return the time of a record; of poison ones, the value."""
    return row["v"] if row["n"] >= POISON else row["t"]


def _time_fails(row: Any) -> Any:
    return row["t"] if row["n"] < POISON else row["v"].missing + SECOND


PLACES |= {
    "from_iterable": Place(_collected, reads=_iterable(), is_durable=False),
    "item of from_iterable": Place(_counted, "", reads=_items, is_durable=False),
    "time of from_iterable": Place(
        _counted, "t", lambda n: n * SECOND, reads=_iterable(), moves=True, is_durable=False
    ),
    "time function": Place(_counted, reads=_iterable(_time), is_durable=False, moves=True),
    "time function raises": Place(_counted, reads=_iterable(_time_fails), is_durable=False),
    "from_pandas": Place(_collected, reads=_frame, is_durable=False),
    "number of from_pandas": Place(_summed, reads=_frame, is_durable=False),
    "read_jsonl": Place(_collected, "", reads=_jsonl, values=JSON_LINES),
    "sum of read_jsonl": Place(_summed, "", reads=_jsonl, values=JSON_LINES),
    "read_csv": Place(_collected, "", reads=_csv, values=CSV_LINES),
    "sum of read_csv": Place(_summed, "", reads=_csv, values=CSV_LINES),
    "read_parquet": Place(_collected, "", reads=_parquet, values=ARROW),
    "sum of read_parquet": Place(_summed, "", reads=_parquet, values=ARROW),
}
