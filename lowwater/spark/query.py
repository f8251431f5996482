"""Turns a stage into a Spark DataFrame of panes."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as every user of Spark calls it

from lowwater.engine.aggregates._base import strictest_needs
from lowwater.engine.graph.graph import Graph, Stage, Windowed
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.stateless import require_names
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import (
    InvalidArgument,
    describe,
    nearest,
)
from lowwater.spark.key_group import OUTPUT_DDL, PARTS, KeyGroup, ShuffleRows, Timers
from lowwater.spark.options import SparkOptions
from lowwater.spark.reading import frame_of_source, warn_of_first_time
from lowwater.spark.shuffle import NOW, SHUFFLE_DDL, ShuffleWriter, from_bytes
from lowwater.spark.signals import Signals, signals_of, time_columns
from lowwater.spark.spark_steps import native_steps
from lowwater.spark.state_backends import CELL_DDL
from lowwater.spark.supported import only_stage, require_distinct, shippable
from lowwater.spark.types import (
    arrow_schema,
    numbered,
    pane_schema,
    quoted,
    result_types,
    spark_schema,
)
from lowwater.spark.versioned import backend_of
from lowwater.time import duration
from lowwater.triggers._machine import Machine

METRICS = "lowwater"
"""The name of the observed metrics in a query's progress."""
_LOG = logging.getLogger("lowwater.spark")


_NOW_STAMP = "now_stamp"


def panes_on_spark(spark: SparkSession, graph: Graph, options: SparkOptions) -> DataFrame:
    """Return the panes of a graph's only stage as a DataFrame: streaming if the source is.

    Args:
        spark: The session.
        graph: The pipeline.
        options: How to run it.

    Raises:
        InvalidArgument: A column is not there, or its name is taken.
        UnsupportedByRunner: The pipeline does what cannot be done here.
    """
    stage, read, work = only_stage(graph)
    if not hasattr(spark, "createDataFrame"):
        raise InvalidArgument(
            f"{describe('spark', spark)} is no Spark session",
            where="to_spark",
            hint="Give what SparkSession.builder.getOrCreate() returns",
        )
    signals, carries_clock = signals_of(read)
    frame = frame_of_source(spark, read.source, stage.keys, options.files_per_batch)
    frame, schema, steps = native_steps(frame, stage.inputs[0].steps)
    require_names(sorted(_read(stage, signals)), schema.names, "to_spark")
    columns = {field.name: field.type for field in schema}
    given = {name: _arrow_type(name, kind) for name, kind in (options.types or {}).items()}
    for name in given:
        if name not in work.aggregates:
            raise InvalidArgument(
                f"types= names {name!r}, which is no aggregate",
                where="to_spark",
                hint=nearest(name, work.aggregates),
            )
    shown = pane_schema(
        {name: columns[key] for name, key in zip(stage.key_names, stage.keys, strict=True)},
        result_types(work.aggregates, columns, given),
        tagged=options.outputs == "all",
    )
    require_distinct(shown.names, stage.key_names)
    flow = stage.inputs[0]
    if flow.times.unit is None and not steps:  # a step that workers apply may make the times
        warn_of_first_time(frame, flow.time, graph.name_of(read))
    _LOG.info("a query over %r is made, with %r", read.source, options)
    backend = backend_of(spark, options.state, options.state_location, streaming=frame.isStreaming)
    shipped = shippable(stage, steps)
    packed = _packed(frame, shipped, options, signals, read.max_ahead_us)
    group = KeyGroup(
        stage=uuid.uuid4().hex,
        work=work,
        key_names=stage.key_names,
        watermark=read.watermark,
        schema=shown,
        key_groups=options.key_groups,
        backend=backend,
        timers=_timers(work.windowing, options, carries_clock=carries_clock),
        ends=options.drain,
        carries_clock=carries_clock,
    )
    made = _streamed(packed, group) if frame.isStreaming else _at_once(packed, group)
    return _counted(made).select("rows").mapInArrow(_unpack, spark_schema(shown))


def _packed(
    frame: DataFrame, stage: Stage, options: SparkOptions, signals: Signals, ahead: int | None
) -> DataFrame:
    if options.max_ahead is not None:
        ahead = duration(options.max_ahead)
    columns = {name: quoted(name) for name in _needed(frame, stage, options, signals)}
    if ahead is not None:
        columns[NOW] = F.unix_micros(F.current_timestamp())
    packer = ShuffleWriter(
        stage=stage,
        key_groups=options.key_groups,
        on_error=options.on_error,
        signals=signals,
        keep_records=options.outputs == "all",
        max_ahead_us=ahead,
        partition=_partition,
        names=tuple(columns),
    )
    return numbered(frame, columns).mapInArrow(packer.__call__, SHUFFLE_DDL)


def _needed(frame: DataFrame, stage: Stage, options: SparkOptions, signals: Signals) -> list[str]:
    """Return the columns that the workers need, so that Spark does not read the others."""
    if stage.inputs[0].steps or options.outputs == "all" or options.on_error == "raise":
        return list(frame.columns)
    needed = _read(stage, signals)
    return [name for name in frame.columns if name in needed or name.startswith(HIDDEN)]


def _read(stage: Stage, signals: Signals) -> set[str]:
    """Return the columns that the stage reads after the steps."""
    (flow,), work = stage.inputs, stage.work
    assert isinstance(work, Windowed)
    needed = {flow.time, *stage.keys, *work.windowing.windows.columns}
    return needed | strictest_needs(work.aggregates).keys() | time_columns(signals)


def _streamed(packed: DataFrame, group: KeyGroup) -> DataFrame:
    timeout = "ProcessingTimeTimeout" if group.timers == "clock" else "NoTimeout"
    if group.ends:
        # Spark's own watermark follows the micro-batches' times, so it advances in each of them and
        # Spark runs one more without records at the end. With a delay of a day no row is late.
        timeout = "EventTimeTimeout"
        packed = packed.withColumn(_NOW_STAMP, F.current_timestamp())
        packed = packed.withWatermark(_NOW_STAMP, "1 day")
    return packed.groupBy("key_group").applyInPandasWithState(
        group.__call__, OUTPUT_DDL, CELL_DDL, "append", timeout
    )


def _at_once(packed: DataFrame, group: KeyGroup) -> DataFrame:
    stamped = packed.withColumn(_NOW_STAMP, F.unix_micros(F.current_timestamp()))

    def whole(table: pa.Table) -> pa.Table:
        shuffle_rows = ShuffleRows.of_table(table)
        now = table.column(_NOW_STAMP)[0].as_py()
        return group.once(shuffle_rows, now)

    return stamped.groupBy("key_group").applyInArrow(whole, OUTPUT_DDL)


def _counted(given: DataFrame) -> DataFrame:
    """Add the counts of each micro-batch to Spark's progress reports."""
    if not given.isStreaming:
        return given
    most = ("watermark", "clock")
    counts = [
        F.max(name).alias(name) if name in most else F.sum(name).alias(name) for name in PARTS
    ]
    return given.observe(METRICS, *counts)


def _unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for stream in batch.column(0):
            yield from from_bytes(stream.as_buffer()).to_batches()


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _timers(windowing: Windowing, options: SparkOptions, *, carries_clock: bool) -> Timers:
    if carries_clock:
        if options.timers == "clock":
            raise InvalidArgument(
                'timers="clock" has Spark wait by its own clock, but here the records carry time',
                where="to_spark",
                hint="Leave it out: timers are judged as records move the clock",
            )
        return "batches"
    if options.timers is not None:
        return options.timers
    machine = Machine(windowing.trigger, merging=windowing.merging is not None)
    return "clock" if machine.has_deadlines and not options.drain else "batches"


def _arrow_type(name: str, kind: str | pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.DataType):
        return kind
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructField, StructType, _parse_datatype_string

    try:
        return arrow_schema(StructType([StructField(name, _parse_datatype_string(kind))]))[0].type
    except PySparkException:
        raise InvalidArgument(
            f"{describe(f'types[{name!r}]', kind)} is not a type of Spark's",
            hint='Use, say, "double", "bigint" or "array<string>"',
        ) from None
