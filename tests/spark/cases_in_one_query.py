"""Many scenarios in one query: a key group for each, its own windowing and all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lowwater.spark.key_group import OUTPUT_DDL
from lowwater.spark.shuffle import SHUFFLE_DDL, from_bytes
from lowwater.spark.state_backends import CELL_DDL
from tests.spark.cases import Case

_GIVEN = f"number int, at int, {OUTPUT_DDL}"


def write_steps(cases: Sequence[Case], folder: Path) -> int:
    """Write a file for each micro-batch, with what each case has in that step; return how many."""
    steps = [list(case.micro_batches()) for case in cases]
    longest = max(map(len, steps))
    for at in range(longest):
        rows = [
            {"number": number, "batch": _bytes(batches[at])}
            for number, batches in enumerate(steps)
            if at < len(batches)
        ]
        path = folder / f"{at:04}.parquet"
        schema = pa.schema([("number", pa.int32()), ("batch", pa.binary())])
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
        os.utime(path, (1_000_000_000 + at, 1_000_000_000 + at))  # Spark reads the oldest first
    return longest


def run_many(spark: Any, cases: Sequence[Case], folder: Path) -> dict[int, pa.Table]:
    """Run cases in one streaming query; return the rows of each, in order."""
    (folder / "in").mkdir()
    longest = write_steps(cases, folder / "in")
    frame = spark.readStream.schema("number int, batch binary").option("maxFilesPerTrigger", 1)
    packed = frame.parquet(str(folder / "in")).mapInArrow(_packer(cases), SHUFFLE_DDL)
    shown = packed.groupBy("key_group").applyInPandasWithState(
        _stepper(cases), _GIVEN, CELL_DDL, "append", "NoTimeout"
    )
    found: dict[int, list[tuple[int, pa.Table]]] = {number: [] for number in range(len(cases))}

    def keep(frame: Any, at: int) -> None:
        for row in frame.select("number", "rows").collect():
            found[row["number"]].append((at, from_bytes(bytes(row["rows"]))))

    query = (
        shown.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert len({at for tables in found.values() for at, _ in tables}) == longest
    return {
        number: pa.concat_tables(table for _, table in sorted(tables, key=lambda pair: pair[0]))
        for number, tables in found.items()
    }


def _packer(cases: Sequence[Case]) -> Any:
    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                number = row["number"]
                given = from_bytes(row["batch"]).to_batches()
                for shuffle_rows in cases[number].packer()(iter(given)):
                    numbers = pa.array([number], pa.int32())
                    yield shuffle_rows.set_column(0, "key_group", numbers)

    return pack


def _stepper(cases: Sequence[Case]) -> Any:
    def step(key: tuple[Any, ...], frames: Iterable[Any], state: Any) -> Iterator[Any]:
        number = int(key[0])
        for given in cases[number].key_group()((0,), frames, state):
            given.insert(0, "number", number)
            given.insert(1, "at", 0)
            yield given

    return step


def _bytes(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
