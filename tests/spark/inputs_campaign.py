"""Scenarios of several inputs on Spark: the conformance cases of joins and tables, side by side.

It takes minutes, so `make nightly` runs it. `make test` runs the same cases on the functions that
Spark calls, without Spark.

A source of a case is a folder with a file for each step, so that a micro-batch is a step of every
case. Each file has the elements that come to the source and a heartbeat, which carries the clock
and the watermark of its input.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lowwater as lw
from lowwater.pipeline.fluent import Processed
from lowwater.spark import CarriedTime
from lowwater.testing import PipelineRun, Scenario, StepRun
from lowwater.testing._inputs import inputs_of
from lowwater.testing._pipeline_drivers import Moves, table_of
from lowwater.testing._text import from_data
from lowwater.time import START_OF_TIME
from tests.conformance.test_scenarios_of_inputs import CASES, pipeline_of

CARRIED = CarriedTime("at_watermark", clock="at_clock")


def chosen() -> list[dict[str, Any]]:
    """Return the cases, all values as text: columns of one name have one type in a query."""
    cases = [one.values[0] for one in CASES if not one.values[0].get("of_streams")]
    return [case | {"steps": list(map(_as_text, case["steps"]))} for case in cases]


def _as_text(step: dict[str, Any]) -> dict[str, Any]:
    if "add" not in step:
        return step
    added = [
        [value if isinstance(value, dict) else str(value), *rest] for value, *rest in step["add"]
    ]
    return step | {"add": added}


def micro_batches(scenario: Scenario) -> Iterator[list[pa.Table]]:
    """Yield what each input has in each step, the start first."""
    inputs = inputs_of(scenario)
    moves, tables = Moves(scenario, inputs), [_typed(table_of(one)) for one in inputs]
    coming = (0, 0, 0)
    for number in range(len(scenario.steps) + 1):
        if number:
            coming = moves.take(scenario.steps[number - 1], number)
        at, first, stop = coming
        yield [
            _with_heartbeat(table.slice(first, (stop - first) * (at == nth)), moves, nth)
            for nth, table in enumerate(tables)
        ]


def _typed(table: pa.Table) -> pa.Table:
    """Return a table in which columns of nulls are text: files of Parquet have no other nulls."""
    fields = [
        field.with_type(pa.string()) if pa.types.is_null(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def _with_heartbeat(part: pa.Table, moves: Moves, nth: int) -> pa.Table:
    beat = pa.Table.from_pylist([{}], schema=part.schema)
    whole = pa.concat_tables([part, beat])
    to = moves.watermarks[nth]
    marks = [*[None] * (len(whole) - 1), None if to == START_OF_TIME else to]
    whole = whole.append_column("at_watermark", pa.array(marks, pa.int64()))
    return whole.append_column("at_clock", pa.array([moves.clock] * len(whole), pa.int64()))


def on_files(scenario: Scenario, build: Callable[..., Any], folder: Path) -> Any:
    """Write a scenario as files, and return its pipeline on them."""
    names = scenario.inputs or ("elements",)
    for step, tables in enumerate(micro_batches(scenario)):
        for name, table in zip(names, tables, strict=True):
            path = folder / name / f"{step:03}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, path)
            os.utime(path, (1_000_000_000 + step, 1_000_000_000 + step))
    return build(
        *(lw.read_parquet(folder / name, time="time", watermark=CARRIED) for name in names)
    )


def changes(rows: list[dict[str, Any]], names: Sequence[str]) -> Counter[tuple[Any, ...]]:
    """Return by how much rows change each record, in the columns that are compared."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        record = (row["timestamp"], *(row[name] for name in names))
        found[record] += -1 if row.get("kind") == "retract" else 1
    return Counter({record: count for record, count in found.items() if count})


def rows_of(run: PipelineRun, step: StepRun) -> list[dict[str, Any]]:
    """Return what a step gave as rows such as Spark's."""
    found = []
    for one in step.outputs:
        key = (one.key,) if len(run.key_names) == 1 else one.key
        own = dict(zip(run.key_names, key, strict=True))
        when = one.timestamp.to_datetime()
        found.append({**one.value, **own, "timestamp": when, "kind": one.kind})
    return found


def test_each_step_changes_what_it_changes_embedded(spark: Any, tmp_path: Path) -> None:
    cases = chosen()
    scenarios = [from_data(case, Scenario) for case in cases]
    outputs = [
        on_files(scenario, pipeline_of(case), tmp_path / str(number)).named(f"case {number}")
        for number, (case, scenario) in enumerate(zip(cases, scenarios, strict=True))
    ]
    # A table is the changes that its stage emits.
    ends = [Processed(one._stage) if isinstance(one, lw.Table) else one for one in outputs]
    frame = lw.to_spark(spark, *ends, outputs="all", key_groups=2, files_per_batch=1)
    found: dict[int, list[dict[str, Any]]] = {}

    def keep(part: Any, number: int) -> None:
        found[number] = part.toArrow().to_pylist()

    query = (
        frame.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    for number, (case, scenario) in enumerate(zip(cases, scenarios, strict=True)):
        run = scenario.run_pipeline(pipeline_of(case))
        fields = {name for _, _, _, value, _ in case["elements"] for name in value}
        names = [*run.key_names, *sorted(fields - {*run.key_names})]
        for nth, step in enumerate(run.steps, 1):
            rows = [row for row in found.get(nth, []) if row["output"] == f"case {number}"]
            assert changes(rows, names) == changes(rows_of(run, step), names), (case["name"], nth)
        late = [
            row["reason"]
            for rows in found.values()
            for row in rows
            if row["output"] == "late" and row["stage"] == f"case {number}"
        ]
        assert late == [one.reason for one in run.late]
