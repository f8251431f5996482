"""Turns a graph into a Spark DataFrame of what leaves it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as every user of Spark calls it

from lowwater.engine.graph.clocks import ClockLike
from lowwater.engine.graph.graph import Graph, Read, Stage
from lowwater.engine.local.memory_budget import MemoryBudget
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.pane_table import MICROS_UTC
from lowwater.engine.records.stateless import require_names
from lowwater.errors import InvalidArgument, UnsupportedByRunner, describe
from lowwater.spark.cell_files import CellPlace
from lowwater.spark.chains import adapter_of, at_once, streamed
from lowwater.spark.checkpoints import require_own
from lowwater.spark.in_arrow import LevelInArrow, Registering, in_arrow
from lowwater.spark.level import LevelOptions
from lowwater.spark.level_call import BeatCall, LevelCall, PackCall
from lowwater.spark.levels import Levels, with_reads
from lowwater.spark.observed_counts import observed
from lowwater.spark.one_task import in_one_task, is_order_free
from lowwater.spark.options import SparkOptions, Timers
from lowwater.spark.output_schema import ColumnTypes, QueryOutput, schema_of
from lowwater.spark.own_state import own_backend, place_of, require_time
from lowwater.spark.reading import (
    FileSource,
    SourceFrame,
    frame_of_source,
    may_be_pruned,
    names_of_files,
    warn_of_first_time,
    with_places,
)
from lowwater.spark.rows import COUNTED, LEAVES, ROW_DDL, unpacked_rows
from lowwater.spark.shipped import shipped
from lowwater.spark.signals import Signals, signals_of, time_columns
from lowwater.spark.source_packer import NOW, SourcePacker
from lowwater.spark.state_backends import GrowingBackend, StateBackend
from lowwater.spark.supported import clock_of, require_supported
from lowwater.spark.types import arrow_type, numbered, quoted
from lowwater.spark.versioned import HOT_BYTES, RocksBackend, backend_of
from lowwater.time import duration
from lowwater.triggers._machine import Machine
from lowwater.watermark import Telling, columns_read

_NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
_LOG = logging.getLogger("lowwater.spark")


def outputs_on_spark(
    spark: SparkSession, graph: Graph, outputs: Sequence[QueryOutput], options: SparkOptions
) -> DataFrame:
    """Return what leaves a graph as a DataFrame: streaming if its sources are.

    Args:
        spark: The session.
        graph: The pipeline.
        outputs: Its outputs, at least one; several have different names.
        options: How to run it.

    Raises:
        InvalidArgument: A column is not there, or its name is taken.
        UnsupportedByRunner: The pipeline does what cannot be done here.
    """
    if not hasattr(spark, "createDataFrame"):
        raise InvalidArgument(
            f"{describe('spark', spark)} is no Spark session",
            where="to_spark",
            hint="Give what SparkSession.builder.getOrCreate() returns",
        )
    require_supported(graph)
    clock = clock_of(graph)
    sources = [_source_of(spark, graph, read, clock, options) for read in graph.reads]
    streaming = _is_streaming(graph, sources)
    if streaming and options.drain:
        _require_last_batch(spark)
    types = ColumnTypes(
        graph,
        [one.schema() for one in sources],
        {name: arrow_type(name, kind) for name, kind in (options.types or {}).items()},
    )
    for stage in graph.stages:
        _require_columns(stage, types)
    ahead = None if options.max_ahead is None else duration(options.max_ahead)
    levels = Levels(
        with_reads(
            graph,
            lambda read: replace(
                read, clock=clock, max_ahead_us=read.max_ahead_us if ahead is None else ahead
            ),
        )
    )
    nodes = {
        stage: levels.node_of(shipped).number
        for stage, shipped in zip(graph.stages, levels.graph.stages, strict=True)
    }
    sides = options.outputs == "all"
    shown = schema_of(
        [(nodes[output.stage], output) for output in outputs],
        types,
        several=len(outputs) > 1,
        sides=sides,
    )
    result = shown.to_spark()
    carries_clock = any(one.carries_clock for one in sources)
    query, place = uuid.uuid4().hex, None
    if streaming and options.operator == "mapInArrow":
        require_time(options, _timers(graph, options, carries_clock=carries_clock))
        backend = own_backend(spark, options)
        place = place_of(spark, options, query, backend)
    else:
        backend = backend_of(spark, options.state, options.state_location, streaming=streaming)
    level_options = LevelOptions(
        key_groups=options.key_groups,
        ends=frozenset(nodes[output.stage] for output in outputs),
        on_error=options.on_error,
        keep_records=sides,
        carries_clock=carries_clock,
        memory=_memory(graph, options, backend) if streaming else None,
    )
    calls = [
        LevelCall(query, levels, level, level_options, shown, backend)
        for level in range(1, levels.depth + 1)
    ]
    adapter = adapter_of(spark, levels.depth)
    tells_now = not streaming or place is not None or adapter != "applyInPandasWithState"
    packs = []
    for at, one in enumerate(sources):
        packer = SourcePacker(
            levels,
            at,
            one.signals,
            options.key_groups,
            options.on_error,
            keep_records=sides,
            files=names_of_files(one.read.source),
            text=one.given.text,
        )
        packs.append(_pack_call(one, packer, calls[0], tells_now=tells_now))
    packed = [_packed(read, pack, place) for read, pack in packs]
    if streaming and options.drain:
        packed += [
            _beats(one, at, levels, options.key_groups)
            for at, one in enumerate(sources)
            if may_be_pruned(one.read.source, one.frame)
        ]
    rows = reduce(DataFrame.unionByName, packed)
    _LOG.info(
        "a query over %s is made, in %d levels on %s, with %r",
        ", ".join(repr(read.source) for read in graph.reads), levels.depth, adapter, options,
    )  # fmt: skip
    if place is not None:
        fits = _fits_one_task(graph, sources[0], place)
        made = _in_one_task(packs[0], calls[0], place) if fits else in_arrow(rows, calls, place)
        made = observed(made, graph, outputs)
        return made.where(F.col(COUNTED).isNull()).select(*map(quoted, result.names))
    if streaming:
        require_own(spark, levels, adapter, backend, options)
        timers = _timers(graph, options, carries_clock=carries_clock)
        made = streamed(rows, calls, adapter, timers=timers, ends=options.drain)
    else:
        made = at_once(rows, calls)
    made = made.where(F.col("level") == LEAVES)
    if streaming:
        made = observed(made.withColumnRenamed("counted", COUNTED), graph, outputs)
    return made.select("body").mapInArrow(shipped(unpacked_rows), result)


@final
@dataclass(frozen=True, slots=True)
class _Source:
    read: Read
    given: SourceFrame
    frame: DataFrame
    signals: Signals
    carries_clock: bool
    columns: Sequence[str]

    def schema(self) -> pa.Schema:
        """Return the columns of its records, with that of the times of arrival, if it has one."""
        schema = self.given.schema
        if not self.read.arrives:
            return schema
        return schema.append(pa.field(self.read.time, MICROS_UTC))


def _source_of(
    spark: SparkSession, graph: Graph, read: Read, clock: ClockLike | None, options: SparkOptions
) -> _Source:
    signals, carries_clock = signals_of(replace(read, clock=clock))
    flows = [flow for stage in graph.stages for flow in stage.inputs if flow.origin is read]
    stages = [stage for stage in graph.stages if any(flow.origin is read for flow in stage.inputs)]
    keys = stages[0].keys if len(stages) == 1 else ()
    given = frame_of_source(spark, read.source, keys, options.files_per_batch)
    plain = not any(flow.steps for flow in flows)
    of_data = plain and not read.arrives
    named = {*time_columns(signals), *([read.time] if of_data else ())}
    require_names(sorted(named), given.schema.names, "to_spark")
    frame = with_places(given.frame, read.source, read.watermark)
    if read.times.unit is None and of_data and given.text is None:
        warn_of_first_time(frame, read.time, graph.name_of(read))
    columns = list(frame.columns)
    # Of text all columns are read: a record with a wrong value in any of them is a dead letter.
    is_pruned = plain and given.text is None
    if is_pruned and options.outputs != "all" and options.on_error != "raise":
        needed = _read(read, stages, signals)
        if needed is not None:
            columns = [name for name in columns if name in needed or name.startswith(HIDDEN)]
    return _Source(read, given, frame, signals, carries_clock, columns)


def _read(read: Read, stages: Sequence[Stage], signals: Signals) -> set[str] | None:
    """Return the columns of a source that are read, if nothing needs all of them."""
    needed = {read.time, *time_columns(signals)}
    if read.watermark is not None:
        named = columns_read(read.watermark)
        if not named and not isinstance(read.watermark, Telling):
            return None
        needed |= set(named)
    for stage in stages:
        work = stage.work
        if work.takes_whole_records:
            return None
        needed |= {*stage.keys, *_computed_with(stage)}
        if stage.deduplication is not None:
            needed |= set(stage.deduplication.columns)
    return needed


def _computed_with(stage: Stage) -> set[str]:
    """Return the columns that a stage's windows and operator compute with."""
    windowing = stage.windowing
    return {*stage.work.needs(), *(() if windowing is None else windowing.windows.columns)}


def _require_columns(stage: Stage, types: ColumnTypes) -> None:
    """Raise if a stage reads a column of which it is known that it is not there."""
    needed = set() if stage.work.takes_whole_records else _computed_with(stage)
    for nth, flow in enumerate(stage.inputs):
        schema = types.of_flow(flow)
        if schema is not None:
            names = {*needed, *stage.keys_of(nth), flow.time}
            require_names(sorted(names), schema.names, "to_spark")


def _memory(graph: Graph, options: SparkOptions, backend: StateBackend) -> int | None:
    """Return how many bytes windows, a join or a table in a key group may take."""
    rows = MemoryBudget.of(options.memory_limit).rows
    if rows is None:
        return HOT_BYTES if isinstance(backend, (RocksBackend, GrowingBackend)) else None
    spilling = [stage for stage in graph.stages if stage.spills]
    if not spilling:
        raise InvalidArgument(
            "memory_limit= bounds windows that are aggregated, joins and tables, and there are "
            "none: the state of processes stays in memory",
            where="to_spark(memory_limit=)",
            hint="Leave it out, and clear cells that are not needed",
        )
    return max(1, rows // (len(spilling) * options.key_groups))


def _is_streaming(graph: Graph, sources: Sequence[_Source]) -> bool:
    """Return whether the sources are streams; all of them must be, or none."""
    streams = [one.frame.isStreaming for one in sources]
    if any(streams) and not all(streams):
        one = graph.name_of(sources[streams.index(False)].read)
        other = graph.name_of(sources[streams.index(True)].read)
        raise UnsupportedByRunner(
            f"{one} is data at rest and {other} is a stream: Spark takes no union of the two",
            where="to_spark",
            hint="Read both as streams: a folder of files is one, and what a join with data at "
            "rest adds can be done in from_spark's DataFrame",
        )
    return all(streams)


def _require_last_batch(spark: SparkSession) -> None:
    """Raise if Spark runs no micro-batch without records, which would end the input."""
    if spark.conf.get(_NO_DATA, "true") == "false":
        raise InvalidArgument(
            f"drain=True ends the input in a micro-batch without records, but {_NO_DATA} is false",
            where="to_spark(drain=)",
            hint=f'Leave drain out, or allow them: spark.conf.set("{_NO_DATA}", "true")',
        )


def _pack_call(
    source: _Source, packer: SourcePacker, call: LevelCall, *, tells_now: bool
) -> tuple[DataFrame, PackCall]:
    """Return what is read of a source, and the function that packs it."""
    columns: dict[str, Column] = {name: quoted(name) for name in source.columns}
    read = packer.levels.graph.reads[packer.source]
    if tells_now or read.arrives or read.max_ahead_us is not None:
        columns[NOW] = F.unix_micros(F.current_timestamp())
    return numbered(source.frame, columns), PackCall(packer, call.outputs, tuple(columns))


def _packed(read: DataFrame, pack: PackCall, place: CellPlace | None) -> DataFrame:
    packed = shipped(pack if place is None else Registering(pack, place))

    def partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        for table in packed(batches, 0 if context is None else context.partitionId()):
            yield from table.to_batches()

    return read.mapInArrow(partition, ROW_DDL)


def _fits_one_task(graph: Graph, source: _Source, place: CellPlace) -> bool:
    """Whether a pipeline may be packed and stepped in one task of each micro-batch."""
    if place.partitions > 1 or not is_order_free(graph, source.given.schema):
        return False
    if isinstance(source.read.source, FileSource):
        return True
    # Where Spark finds out beforehand that there is nothing to read, no task would run. And only
    # what is deterministic gives the records of a micro-batch again after a restart.
    return not may_be_pruned(source.read.source, source.frame) and _is_deterministic(source.frame)


def _is_deterministic(frame: DataFrame) -> bool:
    return bool(frame._jdf.queryExecution().analyzed().deterministic())


def _in_one_task(read: tuple[DataFrame, PackCall], call: LevelCall, place: CellPlace) -> DataFrame:
    rows, pack = read
    return in_one_task(rows, pack, LevelInArrow(call, place, is_last=True))


def _beats(source: _Source, number: int, levels: Levels, key_groups: int) -> DataFrame:
    """Return a message to each key group in every micro-batch that has anything to read.

    So a micro-batch of which nothing is left does not look like the one without data at the end:
    of a real relation, however empty, an exchange makes a partition; of no relation it makes none.
    The condition reads no column, and is one that Spark cannot evaluate beforehand: of one random
    number and a literal it knows the answer.
    """
    beat = shipped(BeatCall(number, levels, key_groups))

    def beats(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert next(batches, None) is None
        yield from beat().to_batches()

    never = F.rand() + F.rand() > F.lit(2)
    nothing = source.frame.where(never).select(F.lit(0).alias("_0"))
    return nothing.repartition(1).mapInArrow(beats, ROW_DDL)


def _timers(graph: Graph, options: SparkOptions, *, carries_clock: bool) -> Timers:
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
    waits = any(_has_deadlines(stage) for stage in graph.stages)
    return "clock" if waits and not options.drain else "batches"


def _has_deadlines(stage: Stage) -> bool:
    windowing = stage.windowing
    if windowing is None or not stage.fires:
        return False  # what timers of the clock a process sets is not known before it runs
    return Machine(windowing.trigger, merging=windowing.merging is not None).has_deadlines
