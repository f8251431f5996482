"""Many scenarios in one query: a key group for each, its own windowing and all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lowwater.spark.chains import Adapter, streamed
from lowwater.spark.group_numbers import numbers_of_groups
from lowwater.spark.level import LevelOptions
from lowwater.spark.messages import table_of
from lowwater.spark.rows import ROW_DDL
from lowwater.spark.state_backends import GroupCell, StateBackend
from tests.spark.cases import Case


@dataclass(frozen=True)
class ManyCalls:
    """The function of a level whose key groups are cases, each as if it were alone.

    Args:
        cases: The cases.
        options: Those of the first: what concerns cells is the same for all.
        backend: The state backend.
        level: The only level.
    """

    cases: Sequence[Case]
    options: LevelOptions
    backend: StateBackend
    level: int = 1

    def group_of(self, number: int) -> int:
        return numbers_of_groups(len(self.cases)).index(number)

    def step(
        self, case: int, held: GroupCell | None, bodies: list[bytes], now: int, *, ended: bool
    ) -> tuple[pa.Table, GroupCell, int]:
        call = self.cases[case].call(self.backend, f"case {case}")
        given, cell, deadline = call.step(0, held, bodies, now, ended=ended)
        return _of_case(given, case, len(self.cases)), cell, deadline


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


def run_many(
    spark: Any, cases: Sequence[Case], folder: Path, adapter: Adapter = "applyInPandasWithState"
) -> dict[int, pa.Table]:
    """Run cases in one streaming query; return the rows of each, in order."""
    (folder / "in").mkdir()
    longest = write_steps(cases, folder / "in")
    frame = spark.readStream.schema("number int, batch binary").option("maxFilesPerTrigger", 1)
    packed = frame.parquet(str(folder / "in")).mapInArrow(_packer(cases), ROW_DDL)
    call = cases[0].call()
    calls: Any = [ManyCalls(tuple(cases), call.options, call.backend)]
    shown = streamed(packed, calls, adapter, timers="batches", ends=False)
    found: dict[int, list[tuple[int, pa.Table]]] = {number: [] for number in range(len(cases))}
    numbers = numbers_of_groups(len(cases))
    steps: set[int] = set()

    def keep(frame: Any, at: int) -> None:
        rows = frame.toArrow()
        steps.add(at)
        for part in rows.group_by("key_group").aggregate([("body", "list")]).to_pylist():
            number = numbers.index(part["key_group"])
            found[number] += [(at, table_of(body)) for body in part["body_list"] if body]

    query = (
        shown.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert len(steps) == longest
    return {
        number: pa.concat_tables(
            [
                cases[number].outputs.schema.empty_table(),
                *(table for _, table in sorted(tables, key=lambda pair: pair[0])),
            ]
        )
        for number, tables in found.items()
    }


def _packer(cases: Sequence[Case]) -> Any:
    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                number = row["number"]
                for given in table_of(row["batch"]).to_batches():
                    rows = cases[number].packed(given)
                    yield from _of_case(rows, number, len(cases)).to_batches()

    return pack


def _of_case(rows: pa.Table, case: int, cases: int) -> pa.Table:
    """Return rows as those of the key group that stands for a case."""
    number = numbers_of_groups(cases)[case]
    return rows.set_column(0, "key_group", pa.array([number] * len(rows), pa.int32()))


def _bytes(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
