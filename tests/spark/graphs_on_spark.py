"""Whole graphs on Spark, and what the embedded runner gives of them: micro-batch by micro-batch.

Each source of a graph is a folder with a file for each micro-batch; the clock is when the records
arrived. So a micro-batch on Spark is one bundle of each source for the embedded runner, and all
that leaves the graph is the same: panes, retractions, what processes emit, and late records.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import hypothesis
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import lowwater as lw
from lowwater.engine.graph.graph import Graph, Origin, Read, Stage
from lowwater.engine.local.outcomes import Outcome
from lowwater.engine.records.python_values import FIRST_DATETIME, LAST_DATETIME
from lowwater.pipeline.fluent import Processed
from lowwater.spark import StateBackend
from lowwater.spark.messages import record_text
from lowwater.spark.output_schema import PANE
from tests.property.graphs import SCHEMA, Batches, Drawn, drawn
from tests.property.levels import graph_of, turns

CLOCK = lw.ArrivalClock("arrived", tick="1s")
TYPES = {"key": "bigint", "v": "bigint", "n": "bigint"}
Rows: TypeAlias = list[str]
"""What left a graph in a micro-batch, sorted."""


def draw_graph(seed: int, wanted: Callable[[Drawn], bool]) -> Drawn | None:
    """Draw the same graph whenever the seed is the same; ``None`` if none is wanted in a few."""
    found: list[Drawn] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=10,
        phases=[hypothesis.Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(drawn())
    def collect(case: Drawn) -> None:
        case = replace(case, clock=CLOCK)
        if not found and wanted(case):
            found.append(case)

    collect()
    return found[0] if found else None


def write_files(case: Drawn, folder: Path, row_group_size: int | None = None) -> None:
    """Write a folder for each source, with a file for each micro-batch in which it has one."""
    for at, read in enumerate(graph_of(case).reads):
        source = folder / str(at)
        source.mkdir(parents=True)
        for number, rows in enumerate(_batches(read.source)):
            path = source / f"{number:03}.parquet"
            table = pa.Table.from_pylist(
                [dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA
            )
            pq.write_table(table, path, row_group_size=row_group_size)
            os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))


def _batches(source: Any) -> Sequence[Sequence[Any]]:
    assert isinstance(source, Batches)
    return source.rows or [()]  # a folder without a file has no columns


def on_files(case: Drawn, folder: Path) -> list[Any]:
    """Return all outputs of a graph that reads the files which :func:`write_files` wrote."""
    graph = graph_of(case)
    found: dict[Origin, Origin] = {}
    for at, read in enumerate(graph.reads):
        source = lw.read_parquet(str(folder / str(at)), time=read.time)._flows[0].origin
        assert isinstance(source, Read)
        found[read] = replace(
            source, watermark=read.watermark, idle_after_us=read.idle_after_us, clock=case.clock
        )
    for one in graph.stages:
        inputs = tuple(replace(flow, origin=found[flow.origin]) for flow in one.inputs)
        found[one] = replace(one, inputs=inputs)
    outputs: list[Any] = []
    for end in case.ends:
        stage: Any = found[end._stage]
        made: Any = replace(end, _stage=stage)
        outputs += map(made.output, made.outputs) if isinstance(made, Processed) else [made]
    return outputs


def frame_of(
    spark: SparkSession,
    case: Drawn,
    folder: Path,
    *,
    state: str | StateBackend = "inline",
    key_groups: int = 2,
    operator: Literal["mapInArrow"] | None = None,
) -> DataFrame:
    """Return what leaves a graph that reads the files in ``folder/in``, and drains them.

    With an operator of the library's own it does not drain them: it cannot.

    Args:
        spark: The session.
        case: The graph.
        folder: Its folder.
        state: How state is kept.
        key_groups: How many key groups there are.
        operator: The option of that name.
    """
    outputs = on_files(case, folder / "in")
    emits = any(isinstance(one, Processed) for one in outputs)
    frame: DataFrame = lw.to_spark(
        spark, *outputs, state=state, key_groups=key_groups, files_per_batch=1,
        drain=operator is None, operator=operator,
        outputs="all", on_error="raise", types={**TYPES, **({"name": "string"} if emits else {})},
        state_location=folder / "state" if state == "rocksdb" or operator else None,
    )  # fmt: skip
    return frame


def start(
    frame: DataFrame, folder: Path, keep: Callable[[DataFrame, int], None] | None = None
) -> StreamingQuery:
    """Start or resume the query of a graph.

    Args:
        frame: What leaves it.
        folder: Its folder: there is the checkpoint.
        keep: Called with the rows of each micro-batch instead of :class:`Sink`.
    """
    query: StreamingQuery = (
        frame.writeStream.foreachBatch(keep or Sink(folder))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    return query


@final
@dataclass(frozen=True)
class Sink:
    """Keeps the rows of each micro-batch once, by its number.

    Of a micro-batch that runs again the rows are the same again: sinks that know by its number that
    they have it, such as a table of epochs, skip it.
    """

    folder: Path

    def __call__(self, frame: DataFrame, number: int) -> None:
        rows = rows_of_table(frame.toArrow())
        path = self.folder / "out" / f"{number:04}.json"
        if path.exists():
            assert json.loads(path.read_text()) == rows, f"micro-batch {number} ran again"
            return
        path.parent.mkdir(exist_ok=True)
        written = path.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps(rows))
        written.replace(path)


def output(folder: Path) -> list[Rows]:
    """Return what :class:`Sink` kept, by micro-batch."""
    paths = sorted((folder / "out").glob("*.json"))
    assert [int(path.stem) for path in paths] == list(range(len(paths)))
    return [json.loads(path.read_text()) for path in paths]


@final
@dataclass(frozen=True)
class Expected:
    """What is expected of a graph.

    Args:
        rows: What leaves it, by micro-batch; the last one is the end of the input.
        watermarks: The input and the output watermark of each stage, by name, after each.
    """

    rows: list[Rows]
    watermarks: list[dict[str, tuple[int, int]]]


def expected(case: Drawn) -> Expected:
    """Run a graph embedded."""
    graph = graph_of(case)
    several = len(case.ends) > 1 or isinstance(case.ends[0], Processed)
    rows, watermarks = [], []
    for turn in turns(case):
        rows.append(sorted(row for one in turn.outcomes for row in _rows_of(graph, one, several)))
        watermarks.append({graph.name_of(graph.stages[n]): w for n, w in turn.watermarks.items()})
    return Expected(rows, watermarks)


def expected_of(case: Drawn, folder: Path, *, drained: bool = True) -> list[Rows]:
    """Return what is expected of a query that may have been killed, by micro-batch.

    A driver that dies after it noted a file as read, and before it noted the micro-batch, leaves
    Spark with that file and the next one for one micro-batch: its checkpoint says which.

    Args:
        case: The graph; its sources are changed.
        folder: The query's.
        drained: Whether its input ended.
    """
    logs = sorted((folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda log: int(log.name))
    planned = [log.read_text().splitlines()[2:] for log in logs]
    if drained:
        assert planned.pop() == planned[-1]  # the micro-batch without data
    for at, read in enumerate(graph_of(case).reads):
        source: Any = read.source
        rows, taken = [], 0
        for lines in planned:
            until = taken if lines[at] == "-" else json.loads(lines[at])["logOffset"] + 1
            rows.append([row for batch in source.rows[taken:until] for row in batch])
            taken = until
        assert taken >= len(source.rows)
        object.__setattr__(source, "rows", rows)
    return expected(case).rows[: None if drained else -1]


def _rows_of(graph: Graph, outcome: Outcome, several: bool) -> Iterator[str]:
    stage = graph.stages[outcome.stage]
    name = graph.name_of(stage) if several else PANE
    if outcome.panes is not None:
        for pane in outcome.panes.to_panes():
            yield _row(
                {
                    "output": name,
                    **_keys(stage, pane.key),
                    "window_start": pane.window.start,
                    "window_end": pane.window.end,
                    **pane.values,
                    "timing": pane.timing,
                    "index": pane.index,
                    "on_time_index": pane.on_time_index,
                    "is_first": pane.is_first,
                    "is_last": pane.is_last,
                    "kind": pane.kind,
                    "timestamp": pane.timestamp,
                    "emitted_at": _known(pane.emitted_at),
                    "watermark": _known(pane.watermark),
                }
            )
    for tag, emitted in outcome.emitted.items():
        keys = [key.to_list() for key in emitted.keys]
        for at, (time, record) in enumerate(zip(emitted.times, emitted.to_list(), strict=True)):
            own = {key: column[at] for key, column in zip(stage.key_names, keys, strict=True)}
            output = name if tag == "main" else f"{name}.{tag}"
            signed = {}
            if emitted.signs is not None:
                signed = {"kind": "insert" if emitted.signs[at] > 0 else "retract"}
            # A column of that name, as pairs with panes have one, is the record's own.
            yield _row({"output": output, "timestamp": time, **own, **record, **signed})
    if outcome.late is not None:
        for late in outcome.late.to_records():
            bounds = {} if late.window is None else {
                "window_start": late.window.start, "window_end": late.window.end
            }  # fmt: skip
            yield _row(
                {
                    "output": "late",
                    "stage": name if several else None,
                    **_keys(stage, late.key),
                    **bounds,
                    "timestamp": late.time,
                    "watermark": _known(late.watermark),
                    "reason": late.reason,
                    "record": record_text(late.value),
                }
            )


def _keys(stage: Stage, key: Any) -> dict[str, Any]:
    return dict(zip(stage.key_names, key if len(stage.key_names) > 1 else (key,), strict=True))


def _known(at: int) -> int | None:
    return int(at) if FIRST_DATETIME < at < LAST_DATETIME else None


def _plain(value: Any) -> Any:
    """Return instants as int microseconds."""
    if isinstance(value, dt.datetime):
        return int(lw.instant(value))
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _row(columns: Mapping[str, Any]) -> str:
    """Return a row as text; columns without a value are left out."""
    plain: dict[str, Any] = {
        name: _plain(value) for name, value in columns.items() if value is not None
    }
    if "record" in plain:
        plain["record"] = json.loads(plain["record"])
    return json.dumps(plain, sort_keys=True, default=int)


def rows_of_table(table: pa.Table) -> Rows:
    """Return what left a graph in a micro-batch of Spark's as :func:`expected` gives it."""
    fields = [
        field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field
        for field in table.schema
    ]
    return sorted(map(_row, table.cast(pa.schema(fields)).to_pylist()))
