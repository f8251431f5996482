"""The law of places: a dead letter names the one record that it is of, whichever reader read it.

File and row, partition and offset, table and position: also where one batch has records of several
partitions, and behind steps that drop, change or multiply records.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import lowwater as lw
from lowwater.io import Log
from lowwater.io.kafka.message_values import MessageColumns, MessageDecoder
from lowwater.io.postgres_changes.pgoutput import ChangeDecoder
from lowwater.io.postgres_changes.snapshot import RowChunk, snapshot_records
from lowwater.io.postgres_changes.table_definition import TableColumn, TableDefinition
from tests.unit.io.kafka.model import ModelBroker, Stored
from tests.unit.io.postgres_changes import pgoutput

Rows = Sequence[dict[str, Any]]
Read = tuple[Any, Callable[[int], str]]
"""A stream of rows, and the place of each by its number."""

SCHEMA = pa.schema([("at", pa.int64()), ("k", pa.string()), ("n", pa.int64())])


def table_of(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def of_lines(folder: Path, rows: Rows) -> Read:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return lw.read_jsonl(path, time="at", unit="s"), lambda n: f"{path}, row {n}"


def of_csv(folder: Path, rows: Rows) -> Read:
    path = folder / "a.csv"
    pyarrow.csv.write_csv(table_of(rows), path)
    return lw.read_csv(path, time="at", unit="s"), lambda n: f"{path}, row {n}"


def of_parquet(folder: Path, rows: Rows) -> Read:
    path = folder / "a.parquet"
    pyarrow.parquet.write_table(table_of(rows), path, row_group_size=200)
    return lw.read_parquet(path, time="at", unit="s"), lambda n: f"{path}, row {n}"


def of_log(folder: Path, rows: Rows, partitions: int) -> Read:
    with Log(folder / "log", partitions=partitions) as log:
        for start in range(0, len(rows), 100 * partitions):
            part = table_of(rows[start : start + 100 * partitions]).to_batches()[0]
            for number in range(partitions):
                log.append(
                    part.take(pa.array(range(number, len(part), partitions))), partition=number
                )

    def place(n: int) -> str:
        return f"{folder / 'log' / f'partition-{n % partitions:05}'}, row {n // partitions}"

    return lw.read_log(folder / "log", time="at", unit="s"), place


def of_topic(broker: ModelBroker, rows: Rows, partitions: int, form: str) -> Read:
    topic = broker.topic(partitions)
    for number in range(partitions):
        own = rows[number::partitions]
        values = [json.dumps(row).encode() for row in own]
        if form == "arrow":
            values = []
            for row in own:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, SCHEMA) as stream:
                    stream.write_table(table_of([row]))
                values.append(sink.getvalue().to_pybytes())
        broker.produce(topic, {number: [(None, value) for value in values]})
    value: Any = json.loads if form == "function" else form
    stream = lw.read_kafka("a:1", topic, time="at", unit="s", end="latest", value=value)
    return stream, lambda n: f"{topic}/{n % partitions}, offset {n // partitions}"


@pytest.fixture
def broker() -> Iterator[ModelBroker]:
    with ModelBroker().patched() as broker:
        yield broker


STEPS: dict[str, Callable[[Any], Any]] = {
    "none": lambda stream: stream,
    "filter": lambda stream: stream.filter(lw.col("n") % 3 != 0),
    "map": lambda stream: stream.map(lambda row: {**row, "twice": 2 * row["n"]}),
    "flat_map": lambda stream: stream.flat_map(lambda row: [row] * (row["n"] % 2 + 1)),
    "explode": lambda stream: (
        stream.with_columns(items=nw.list("n", "n")).explode("items").filter(lw.col("n") >= 0)
    ),
    "several": lambda stream: (
        stream.filter(lw.col("n") > 5).map(lambda row: row).with_columns(m=lw.col("n") + 1)
    ),
}
READERS = [
    *("lines", "csv", "parquet", "log 1", "log 3"),
    *(f"topic {partitions} {form}" for partitions in (1, 3) for form in ("json", "arrow")),
    "topic 2 function",
]
COPIES: dict[str, Callable[[int], int]] = {
    "flat_map": lambda n: n % 2 + 1,
    "filter": lambda n: int(n % 3 != 0),
    "explode": lambda n: 2,
}


def once(n: int) -> int:
    return 1


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("reader", READERS)
def test_each_dead_letter_names_its_record(
    reader: str,
    steps: str,
    tmp_path: Path,
    broker: ModelBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a time that is missing, and of a null key; with bundles of one size and another."""
    monkeypatch.setattr("lowwater.io.jsonl._FIRST_LINES", 700)  # of two batches of lines
    kind, *rest = reader.split()
    count = 400 if kind == "topic" else 1_000
    rows: list[dict[str, Any]] = [{"at": n // 100, "k": "k", "n": n} for n in range(count)]
    bad = [6, 7, 8, 100, 101, 333, 335, count - 1]
    for n in bad:
        rows[n]["k" if n % 2 else "at"] = None
    if kind == "log":
        stream, place = of_log(tmp_path, rows, int(rest[0]))
    elif kind == "topic":
        stream, place = of_topic(broker, rows, int(rest[0]), rest[1])
    else:
        stream, place = {"lines": of_lines, "csv": of_csv, "parquet": of_parquet}[kind](
            tmp_path, rows
        )
    copies = COPIES.get(steps, once)
    made = STEPS[steps](stream).key_by("k").window(lw.FixedWindows("1m")).aggregate(c=lw.count())
    for size in (50_000, 64):
        errors = made.collect(on_error="dead_letter", bundle_size=size).errors
        # A time is judged before the steps, once; a key after them.
        times = Counter(error.where for error in errors if error.reason == "null_time")
        assert times == Counter(place(n) for n in bad if n % 2 == 0)
        keys = Counter(error.where for error in errors if error.reason != "null_time")
        wanted = {place(n): copies(n) for n in bad if n % 2 and copies(n)}
        assert keys == wanted


def test_messages_that_cannot_be_decoded_beside_those_that_cannot_be_admitted() -> None:
    """One batch has both, of three partitions; a message of several rows is one place."""
    decoder = MessageDecoder("t", "json", MessageColumns(), "at", False, {}, None)
    messages = [
        Stored(("t", number, offset), (None, b"no JSON" if (number, offset) == (1, 4) else value))
        for number in range(3)
        for offset, value in ((offset, b'{"at": %d}' % offset) for offset in range(3, 9))
    ]
    records = decoder.records(messages)
    assert [letter.where for letter in records.unreadable] == ["t/1, offset 4"]
    every = {f"t/{n}, offset {o}" for n in range(3) for o in range(3, 9)} - {"t/1, offset 4"}
    assert {records.place(n) for n in range(len(records))} == every
    part = records.slice(2, 9).take(pa.array([4, 0]).to_numpy())
    assert [part.place(0), part.place(1)] == [records.place(6), records.place(2)]


def test_changes_name_their_table_and_transaction() -> None:
    number = TableColumn("id", 23, "integer", pa.int32())
    table = TableDefinition("public", "t", (number,), (number,))
    decoder = ChangeDecoder(table, keep_truncates=False)
    relation = pgoutput.relation(7, "t", [("id", 23)])
    messages = [
        message
        for lsn in (0x1_00000010, 0x1_00000020)
        for message in (
            pgoutput.begin(lsn, 0, 1),
            *([relation] if lsn == 0x1_00000010 else []),
            pgoutput.insert(7, [b"1"]),
            pgoutput.insert(7, [b"2"]),
            pgoutput.commit(lsn, lsn + 8, 0),
        )
    ]
    records = decoder.records(messages)
    assert [records.place(n) for n in range(4)] == [
        *["public.t, 1/10"] * 2, *["public.t, 1/20"] * 2,
    ]  # fmt: skip
    chunk = RowChunk([pa.array(["4", "5"])], 2, [pa.array(["4", "5"])])
    rows = snapshot_records(table, chunk, 9, 0)
    assert rows.slice(1, 2).place(0) == "public.t, the row with id = 5"
