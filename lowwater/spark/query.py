"""Turns a graph into a Spark DataFrame of what leaves it."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as every user of Spark calls it

from lowwater.engine.aggregates._base import strictest_needs
from lowwater.engine.graph.clocks import ClockLike
from lowwater.engine.graph.graph import Graph, Read, Stage, Upserted, Windowed
from lowwater.engine.local.memory_budget import MemoryBudget
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.stateless import require_names
from lowwater.errors import InvalidArgument, UnsupportedByRunner, describe
from lowwater.spark.cell_files import CellPlace
from lowwater.spark.chains import adapter_of, at_once, streamed
from lowwater.spark.in_arrow import Registering, in_arrow
from lowwater.spark.level import LevelOptions
from lowwater.spark.level_call import BeatCall, LevelCall, PackCall
from lowwater.spark.levels import Levels, with_reads
from lowwater.spark.options import SparkOptions, Timers
from lowwater.spark.output_schema import ColumnTypes, QueryOutput, schema_of
from lowwater.spark.own_state import own_backend, place_of, require_time
from lowwater.spark.reading import (
    frame_of_source,
    may_be_pruned,
    names_of_files,
    warn_of_first_time,
    with_places,
)
from lowwater.spark.rows import COUNTED, COUNTS, LEAVES, NUMBERS, ROW_DDL, unpacked_rows
from lowwater.spark.shipped import shipped
from lowwater.spark.signals import Signals, signals_of, time_columns
from lowwater.spark.source_packer import NOW, SourcePacker
from lowwater.spark.state_backends import GrowingBackend, StateBackend
from lowwater.spark.supported import clock_of, require_supported
from lowwater.spark.types import arrow_schema, arrow_type, numbered, quoted
from lowwater.spark.versioned import HOT_BYTES, RocksBackend, backend_of
from lowwater.time import duration
from lowwater.triggers._machine import Machine
from lowwater.watermark import Telling, columns_read

METRICS = "lowwater"
"""The name of the observed metrics in a query's progress."""
_NUMBERS, _HELD_BY, _PLACE, _TELLS = (
    HIDDEN + name for name in ("numbers", "held_by", "place", "tells")
)
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
    given = {name: arrow_type(name, kind) for name, kind in (options.types or {}).items()}
    types = ColumnTypes(graph, [arrow_schema(one.frame.schema) for one in sources], given)
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
    packed = []
    for at, one in enumerate(sources):
        packer = SourcePacker(
            levels,
            at,
            one.signals,
            options.key_groups,
            options.on_error,
            keep_records=sides,
            files=names_of_files(one.read.source),
        )
        packed.append(_packed(one, packer, calls[0], place, tells_now=tells_now))
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
        made = _observed(in_arrow(rows, calls, place), graph, outputs)
        return made.where(F.col(COUNTED).isNull()).select(*map(quoted, result.names))
    if streaming:
        timers = _timers(graph, options, carries_clock=carries_clock)
        made = streamed(rows, calls, adapter, timers=timers, ends=options.drain)
    else:
        made = at_once(rows, calls)
    made = made.where(F.col("level") == LEAVES)
    if streaming:
        made = _observed(made.withColumnRenamed("counted", COUNTED), graph, outputs)
    return made.select("body").mapInArrow(shipped(unpacked_rows), result)


@final
@dataclass(frozen=True, slots=True)
class _Source:
    read: Read
    frame: DataFrame
    signals: Signals
    carries_clock: bool
    columns: Sequence[str]


def _source_of(
    spark: SparkSession, graph: Graph, read: Read, clock: ClockLike | None, options: SparkOptions
) -> _Source:
    signals, carries_clock = signals_of(replace(read, clock=clock))
    flows = [flow for stage in graph.stages for flow in stage.inputs if flow.origin is read]
    stages = [stage for stage in graph.stages if any(flow.origin is read for flow in stage.inputs)]
    keys = stages[0].keys if len(stages) == 1 else ()
    frame = frame_of_source(spark, read.source, keys, options.files_per_batch)
    plain = not any(flow.steps for flow in flows)
    named = {*time_columns(signals), *([read.time] if plain else ())}
    require_names(sorted(named), frame.columns, "to_spark")
    frame = with_places(frame, read.source, read.watermark)
    if read.times.unit is None and plain:
        warn_of_first_time(frame, read.time, graph.name_of(read))
    columns = list(frame.columns)
    if plain and options.outputs != "all" and options.on_error != "raise":
        needed = _read(read, stages, signals)
        if needed is not None:
            columns = [name for name in columns if name in needed or name.startswith(HIDDEN)]
    return _Source(read, frame, signals, carries_clock, columns)


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
        if not isinstance(work, Windowed):
            return None
        needed |= {*stage.keys, *work.windowing.windows.columns}
        needed |= strictest_needs(work.aggregates).keys()
        if stage.deduplication is not None:
            needed |= set(stage.deduplication.columns)
    return needed


def _require_columns(stage: Stage, types: ColumnTypes) -> None:
    """Raise if a stage reads a column of which it is known that it is not there."""
    needed: set[str] = set()
    if isinstance(stage.work, Windowed):
        needed |= {*stage.work.windowing.windows.columns}
        needed |= strictest_needs(stage.work.aggregates).keys()
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


def _packed(
    source: _Source,
    packer: SourcePacker,
    call: LevelCall,
    place: CellPlace | None,
    *,
    tells_now: bool,
) -> DataFrame:
    columns: dict[str, Column] = {name: quoted(name) for name in source.columns}
    if tells_now or packer.levels.graph.reads[packer.source].max_ahead_us is not None:
        columns[NOW] = F.unix_micros(F.current_timestamp())
    pack = PackCall(packer, call.outputs, tuple(columns))

    packed = shipped(pack if place is None else Registering(pack, place))

    def partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        for table in packed(batches, 0 if context is None else context.partitionId()):
            yield from table.to_batches()

    return numbered(source.frame, columns).mapInArrow(partition, ROW_DDL)


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


def _observed(rows: DataFrame, graph: Graph, outputs: Sequence[QueryOutput]) -> DataFrame:
    """Add the counts of each micro-batch to Spark's progress reports: in total, and per stage.

    What is known to be zero is no sum: Spark plans, sends and compiles each of them in every
    micro-batch, which costs more than to add up a few rows.
    """
    places = {stage: at for at, stage in enumerate(graph.stages)}
    ends = [places[output.stage] for output in outputs]
    rows = _with_numbers(rows)
    place, tells = F.col(_PLACE), F.col(_TELLS)
    of_source, of_end = place.between(-len(graph.reads), -1), place.isin(ends)
    counted = {count for stage in graph.stages for count in _counted(stage)}
    whose = dict.fromkeys(COUNTS, place >= 0)
    whose |= {"events": of_source, "dead_letters": place >= -len(graph.reads)}
    whose |= dict.fromkeys(("early", "on_time", "late", "retractions", "emitted"), of_end)
    totals = [_sum(name, of, counted) for name, of in whose.items()]
    last = (place == len(graph.stages) - 1) & tells
    totals += [F.max(F.when(last, _number("watermark"))).alias("watermark")]
    totals += [F.max(_number("clock")).alias("clock")]
    rows = rows.observe(METRICS, *totals)
    for name, at, reads in _places(graph):
        here = place == at
        told = here & tells
        out, held = _number("output_watermark"), F.col(_HELD_BY)
        counted = {"events", "dead_letters"} if at < 0 else _counted(graph.stages[at])
        rows = rows.observe(
            f"{METRICS}: {name}",
            *(_sum(count, here, counted) for count in COUNTS),
            F.max(F.when(told, _number("watermark"))).alias("watermark"),
            F.min(F.when(told, out)).alias("output_watermark"),
            F.min_by(F.when(told, held), F.when(told, out)).alias("held_by"),
            F.lit(json.dumps(reads)).alias("reads"),
        )
    return rows


def _with_numbers(rows: DataFrame) -> DataFrame:
    """Make numbers of what rows that leave have counted."""
    parts = F.split(F.col(COUNTED).cast("string"), "\n", 2)
    numbers = F.split(parts[0], ",").cast("array<bigint>")
    rows = rows.withColumns({_NUMBERS: numbers, _HELD_BY: F.get(parts, F.lit(1))})
    return rows.withColumns({_PLACE: _number("place"), _TELLS: _number("tells") > 0})


def _counted(stage: Stage) -> set[str]:
    """Return the counts that may differ from zero in a stage."""
    never = {"emitted"} if isinstance(stage.work, Windowed) else set()
    if stage.deduplication is None:
        never.add("duplicates")
    if not isinstance(stage.work, Upserted):
        never.add("superseded")
    return {*COUNTS} - never


def _places(graph: Graph) -> Iterator[tuple[str, int, list[str]]]:
    """Yield the name and the place of each source and stage, and the names of what it reads."""
    for nth, read in enumerate(graph.reads):
        yield graph.name_of(read), -1 - nth, []
    for nth, stage in enumerate(graph.stages):
        origins = dict.fromkeys(graph.name_of(flow.origin) for flow in stage.inputs)
        yield graph.name_of(stage), nth, list(origins)


def _number(name: str) -> Column:
    return F.col(_NUMBERS)[NUMBERS.index(name)]


def _sum(name: str, where: Column, counted: Collection[str]) -> Column:
    if name not in counted:
        return F.lit(0).cast("long").alias(name)
    return F.sum(F.when(where, _number(name)).otherwise(0)).alias(name)


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
