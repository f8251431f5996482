"""Records of files and messages are the same in any cut, and from each position on (S-B1)."""

from __future__ import annotations

import json
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.records.batch import Records
from lowwater.io.csv import CsvSource
from lowwater.io.jsonl import JsonLinesSource
from lowwater.io.kafka.message_values import MessageColumns, MessageDecoder
from lowwater.io.parquet import ParquetSource
from tests.property.test_csv_means_one_thing import COLUMNS, FIRST
from tests.property.test_json_lines_mean_one_thing import LINES, plain
from tests.unit.io.kafka.model import Stored

PARTS = [
    pa.nulls(2), pa.array([1, 2**53 + 1]), pa.array([0.5]), pa.array([1], pa.int32()),
    pa.array([[], None], pa.list_(pa.null())), pa.array([[1], []]), pa.array([{"x": None}]),
    pa.array([{"x": 1, "y": "a"}]), pa.array([Decimal("1.25")]), pa.array(["a", None]),
    pa.array(["a", "b"]).dictionary_encode(), pa.array([1], pa.timestamp("us", "UTC")), None,
]  # fmt: skip


def canonical(value: Any) -> Any:
    """Return a value in which equal numbers are written alike."""
    if isinstance(value, dict):
        return {name: canonical(one) for name, one in value.items()}
    if isinstance(value, list):
        return [canonical(one) for one in value]
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) <= 2**53
    return int(value) if is_whole else value


def told(records: Records) -> list[Any]:
    """Return records, and then dead letters, as values that can be compared."""
    rows = [("row", repr(canonical(plain(row)))) for row in records.rows(exact=True)]
    letters = [("letter", one.reason, one.detail, one.where) for one in records.unreadable]
    return [*rows, *letters]


def check(source: Any, again: Any) -> None:
    """Read a source from each of its positions: what comes is the rest."""
    steps = [(told(records), position) for records, position in source.batches_from(None, 3, ())]
    assert [one for part, _ in steps for one in part] == [
        one for records in again().batches(3, ()) for one in told(records)
    ]
    for at, (_, position) in enumerate(steps):
        rest = [one for part, _ in steps[at + 1 :] for one in part]
        found = again().batches_from(position, 3, ())
        assert [one for records, _ in found for one in told(records)] == rest


def write(folder: Path, suffix: str, parts: list[bytes]) -> None:
    for number, part in enumerate(parts):
        place = folder / f"n={number}"
        place.mkdir()
        (place / f"{number}.{suffix}").write_bytes(part)


@given(LINES, st.integers(0, 24), st.integers(0, 24))
def test_lines_of_json(tmp_path_factory: Any, lines: list[bytes], one: int, two: int) -> None:
    folder = tmp_path_factory.mktemp("json")
    low, high = sorted((min(one, len(lines)), min(two, len(lines))))
    write(folder, "jsonl", [b"".join(p) for p in (lines[:low], lines[low:high], lines[high:])])
    for options in ({}, {"columns": ("a", "n")}, {"types": {"a": pa.int64()}}):
        made: Any = partial(JsonLinesSource, (str(folder),), "t", **options)
        check(made(), made)


@given(st.data())
def test_rows_of_csv(tmp_path_factory: Any, data: Any) -> None:
    folder = tmp_path_factory.mktemp("csv")
    kind = data.draw(st.sampled_from(list(COLUMNS)))
    values = st.lists(st.sampled_from([*COLUMNS[kind], "0x1f", "odd,row"]), max_size=5)
    first = [FIRST.get(kind, "1"), *data.draw(values)]
    parts = [first, data.draw(values), data.draw(values)]
    if data.draw(st.booleans()):
        parts.insert(0, [])  # a header alone settles nothing
    write(folder, "csv", ["".join(["t,v\n", *(f"1,{v}\n" for v in p)]).encode() for p in parts])
    for columns in (None, ("v", "n")):
        made: Any = partial(CsvSource, (str(folder),), {}, "t", columns=columns)
        check(made(), made)


@given(st.lists(st.sampled_from(range(len(PARTS))), min_size=1, max_size=4))
def test_parts_of_parquet(tmp_path_factory: Any, picked: list[int]) -> None:
    folder = tmp_path_factory.mktemp("parquet")
    parts = []
    for at in picked:
        part = PARTS[at]
        table = pa.table({"t": pa.array([1] * (1 if part is None else len(part)))})
        sink = pa.BufferOutputStream()
        pq.write_table(table if part is None else table.append_column("v", part), sink)
        parts.append(sink.getvalue().to_pybytes())
    write(folder, "parquet", parts)
    made: Any = partial(ParquetSource, (str(folder),))
    check(made(), made)


@given(LINES, st.integers(1, 5))
def test_messages_are_what_lines_are(tmp_path_factory: Any, lines: list[bytes], size: int) -> None:
    """In any number of batches, and from a restart on, given the types that are known then."""
    values = [line.rstrip(b"\n") for line in lines if line.strip()]
    settling = MessageDecoder("t", "json", MessageColumns(), "t", False, {}, None)
    messages = [Stored(("t", 0, at), (None, value), at) for at, value in enumerate(values)]
    settling.records(messages)
    settled = dict(settling.types)

    def decoded(cuts: int, *, restarts: bool) -> list[Any]:
        types = dict(settled)
        found: list[Any] = []
        decoder = MessageDecoder("t", "json", MessageColumns(), "t", False, types, None)
        for low in range(0, len(messages), cuts):
            records = decoder.records(messages[low : low + cuts])
            numbers = [] if records.row_numbers is None else records.row_numbers.tolist()
            for number, row in zip(numbers, records.rows(exact=True), strict=True):
                shown = {n: v for n, v in plain(row).items() if not n.startswith("\0")}
                shown.pop("__lowwater_partition", None)
                found.append((low + number, repr(canonical(shown))))
            found += [(str(one.where), one.reason, one.detail) for one in records.unreadable]
            if restarts:
                types = dict(decoder.types)
                decoder = MessageDecoder("t", "json", MessageColumns(), "t", False, types, None)
        return sorted(found, key=str)

    whole = decoded(len(messages) or 1, restarts=False)
    assert decoded(size, restarts=False) == whole
    assert decoded(size, restarts=True) == whole
    assert len(whole) == len(values)
    assert all(json.loads(values[at]) is not None for at, *_ in whole if isinstance(at, int))
