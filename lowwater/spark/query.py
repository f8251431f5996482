"""Turns a stage into a Spark DataFrame of panes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as every user of Spark calls it

from lowwater.engine.aggregates._base import strictest_needs
from lowwater.engine.graph.clocks import ClockLike
from lowwater.engine.graph.plan import Plan
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.stateless import require_names
from lowwater.errors import (
    InternalError,
    InvalidArgument,
    UnsupportedByRunner,
    describe,
    nearest,
)
from lowwater.spark.cell import CELL_DDL
from lowwater.spark.key_group import OUTPUT_DDL, PARTS, KeyGroup, ShuffleRows, Timers
from lowwater.spark.options import SparkOptions
from lowwater.spark.reading import frame_of_source
from lowwater.spark.shuffle import NOW, SHUFFLE_DDL, ShuffleWriter, from_bytes
from lowwater.spark.signals import CarriedTime, Signals, signals_of, time_columns
from lowwater.spark.spark_steps import native_steps
from lowwater.spark.types import (
    SIDE_FIELDS,
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
from lowwater.watermark import Ascending, BoundedDisorder

METRICS = "lowwater"
"""The name of the observed metrics in a query's progress."""
_NOW_STAMP = "now_stamp"


def panes_on_spark(
    spark: SparkSession, plan: Plan, options: SparkOptions, clock: ClockLike | None = None
) -> DataFrame:
    """Return the panes of a stage as a DataFrame, which is streaming if the source is.

    Args:
        spark: The session.
        plan: The stage.
        options: How to run it.
        clock: The ``clock=`` of its only source.

    Raises:
        InvalidArgument: A column does not exist, or its name is taken.
        UnsupportedByRunner: The stage uses a feature that Spark does not support.
    """
    if not hasattr(spark, "createDataFrame"):
        raise InvalidArgument(
            f"{describe('spark', spark)} is no Spark session",
            where="to_spark",
            hint="Give what SparkSession.builder.getOrCreate() returns",
        )
    _require_supported(plan)
    signals, carries_clock = signals_of(plan, clock)
    frame = frame_of_source(spark, plan.source, plan.keys, options.files_per_batch)
    frame, schema, steps = native_steps(frame, plan.steps)
    require_names(sorted(_read(plan, signals)), schema.names, "to_spark")
    columns = {field.name: field.type for field in schema}
    given = {name: _arrow_type(name, kind) for name, kind in (options.types or {}).items()}
    for name in given:
        if name not in plan.aggregates:
            raise InvalidArgument(
                f"types= names {name!r}, which is no aggregate",
                where="to_spark",
                hint=nearest(name, plan.aggregates),
            )
    shown = pane_schema(
        {name: columns[key] for name, key in zip(plan.key_names, plan.keys, strict=True)},
        result_types(plan.aggregates, columns, given),
        tagged=options.outputs == "all",
    )
    _require_distinct(shown.names, plan.key_names)
    backend = backend_of(spark, options.state, options.state_location, streaming=frame.isStreaming)
    shipped = replace(plan, source=Elsewhere(), steps=steps)
    packed = _packed(frame, shipped, options, signals)
    group = KeyGroup(
        stage=uuid.uuid4().hex,
        plan=shipped,
        schema=shown,
        key_groups=options.key_groups,
        backend=backend,
        timers=_timers(plan, options, carries_clock=carries_clock),
        ends=options.drain,
        carries_clock=carries_clock,
    )
    made = _streamed(packed, group) if frame.isStreaming else _at_once(packed, group)
    return _counted(made).select("rows").mapInArrow(_unpack, spark_schema(shown))


def _packed(frame: DataFrame, plan: Plan, options: SparkOptions, signals: Signals) -> DataFrame:
    ahead = plan.max_ahead_us
    if options.max_ahead is not None:
        ahead = duration(options.max_ahead)
    columns = {name: quoted(name) for name in _needed(frame, plan, options, signals)}
    if ahead is not None:
        columns[NOW] = F.unix_micros(F.current_timestamp())
    packer = ShuffleWriter(
        plan=plan,
        key_groups=options.key_groups,
        on_error=options.on_error,
        signals=signals,
        keep_records=options.outputs == "all",
        max_ahead_us=ahead,
        partition=_partition,
        names=tuple(columns),
    )
    return numbered(frame, columns).mapInArrow(packer.__call__, SHUFFLE_DDL)


def _needed(frame: DataFrame, plan: Plan, options: SparkOptions, signals: Signals) -> list[str]:
    """Return the columns in use, so that Spark need not read the others."""
    if plan.steps or options.outputs == "all" or options.on_error == "raise":
        return list(frame.columns)
    needed = _read(plan, signals)
    return [name for name in frame.columns if name in needed or name.startswith(HIDDEN)]


def _read(plan: Plan, signals: Signals) -> set[str]:
    """Return the columns that are read after the steps."""
    needed = {plan.time, *plan.keys, *plan.windowing.windows.columns}
    return needed | strictest_needs(plan.aggregates).keys() | time_columns(signals)


def _streamed(packed: DataFrame, group: KeyGroup) -> DataFrame:
    timeout = "ProcessingTimeTimeout" if group.timers == "clock" else "NoTimeout"
    if group.ends:
        # Spark's own watermark follows the times of micro-batches, so that it advances in each one
        # and Spark runs a final micro-batch without records. The delay of a day keeps Spark from
        # dropping rows as late.
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
    """Report the counters of each micro-batch in Spark's progress."""
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


def _require_supported(plan: Plan) -> None:
    if plan.deduplication is not None:
        raise UnsupportedByRunner(
            "deduplicate is not done by the Spark runner yet",
            where="deduplicate",
            hint="Let each id come once, or use a combiner that takes an id once",
        )
    watermark = plan.watermark
    if watermark is not None and not isinstance(
        watermark, (BoundedDisorder, Ascending, CarriedTime)
    ):
        raise UnsupportedByRunner(
            f"the watermark {watermark!r} is guessed from every record in order, which no "
            "partition of a micro-batch sees",
            where="watermark=",
            hint='Use BoundedDisorder("..."), Ascending() or CarriedTime("column")',
        )


def _timers(plan: Plan, options: SparkOptions, *, carries_clock: bool) -> Timers:
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
    machine = Machine(plan.windowing.trigger, merging=plan.windowing.merging is not None)
    return "clock" if machine.has_deadlines and not options.drain else "batches"


def _require_distinct(names: list[str], keys: tuple[str, ...]) -> None:
    """Raise if Spark, which ignores case, would take two columns of the result for one."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.casefold(), name)
        if other is name:
            continue
        side = name == other and name in {field.name for field in SIDE_FIELDS}
        raise InvalidArgument(
            f"{_called(other, keys)} and {_called(name, keys)} are one name to Spark"
            if not side
            else f'{_called(name, keys)} is called as a column that outputs="all" adds',
            where="to_spark",
            hint="Rename it" if not side else 'Rename it, or leave outputs="all" out',
        )


def _called(name: str, keys: tuple[str, ...]) -> str:
    return f"the key {name!r}" if name in keys else f"the column {name!r}"


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


@final
@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Stands in for a source that is not shipped to the workers."""

    @property
    def schema(self) -> pa.Schema | None:
        return None

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        raise InternalError("a worker was asked for the records of the source")
