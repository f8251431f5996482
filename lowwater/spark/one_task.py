"""A pipeline in one task of a micro-batch: packed and stepped by one Python function, no exchange.

Two Python functions with an exchange between them cost as much as the rest of a small micro-batch.
Where all key groups are in one partition, one task can read, pack and step them.

Only that packing and stepping are then in one stage: a run is not registered *before* its driver
has started the tasks that keep state. A task registers first of all. But if one from the first
micro-batch of its run survives its driver, and begins only after the next driver's tasks have, it
registers its run behind the next one, and :mod:`lowwater.spark.cell_files` takes its file for the
later of two of one micro-batch. Both are of the same records and the same time, but maybe in
another order. So only a pipeline whose state does not depend on the order of records within a
micro-batch runs in one task: any file of the micro-batch means the same. (Not if that restart
changed what is read, the watermark, the lateness or ``max_ahead``, which a checkpoint allows.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import pyarrow as pa
from pyspark.sql import DataFrame

from lowwater.engine.aggregates._base import AggregateSpec
from lowwater.engine.aggregates.specs import BuiltIn
from lowwater.engine.graph.clocks import ArrivalClock
from lowwater.engine.graph.graph import Graph
from lowwater.spark.in_arrow import LevelInArrow, output_type, stepped
from lowwater.spark.level_call import PackCall
from lowwater.spark.messages import Message
from lowwater.spark.micro_batch import MicroBatch
from lowwater.triggers._machine import Machine
from lowwater.watermark import Ascending, BoundedDisorder
from lowwater.windows import CustomWindows

_OF_ANY_TYPE = {"count"}
_EXACT = {"sum", "min", "max"}


def is_order_free(graph: Graph, schema: pa.Schema) -> bool:
    """Whether the state after a micro-batch is the same in whatever order its records came.

    That is known of one windowed stage over one source, without steps between: steps may be
    functions of several records; and without triggers and windows of users, which are functions of
    records in order. Its aggregates count, or take the sum, the least or the largest of
    values that are added and compared exactly: not of floats. Its watermark follows the latest
    event time alone.

    Args:
        graph: The pipeline.
        schema: The columns of its source.
    """
    if len(graph.reads) > 1 or len(graph.stages) > 1:
        return False
    (read,), (stage,) = graph.reads, graph.stages
    work = stage.work
    windowing = work.windowing
    if not work.emits_panes or windowing is None or stage.deduplication is not None:
        return False  # windows of a number of records are by arrival
    if isinstance(windowing.windows, CustomWindows):
        return False
    if Machine(windowing.trigger, merging=windowing.merging is not None).is_custom:
        return False
    if any(flow.steps for flow in stage.inputs) or isinstance(read.clock, ArrivalClock):
        return False
    if not isinstance(read.watermark, (Ascending, BoundedDisorder, type(None))):
        return False
    return all(_is_order_free(spec, schema) for spec in work.aggregates.values())


def _is_order_free(spec: AggregateSpec, schema: pa.Schema) -> bool:
    if not isinstance(spec, BuiltIn):
        return False
    if spec.name in _OF_ANY_TYPE:
        return True
    if spec.name not in _EXACT or spec.column not in schema.names:
        return False
    kind = schema.field(spec.column).type
    exact = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_timestamp, pa.types.is_date)
    return any(is_of(kind) for is_of in exact)


def in_one_task(rows: DataFrame, pack: PackCall, level: LevelInArrow) -> DataFrame:
    """Return the output rows of a streaming query, and rows that have counters alone.

    Args:
        rows: The records of the source, with the columns that ``pack`` reads.
        pack: The function that packs them.
        level: The only level, all of whose key groups are in one partition.
    """
    task = OneTask(pack, level)
    return rows.coalesce(1).mapInArrow(stepped(task), output_type(level.call))


@final
@dataclass(frozen=True, slots=True)
class OneTask:
    """The function for ``mapInArrow`` that packs all records of a micro-batch and steps them.

    Args:
        pack: The function that packs them.
        level: The function of the level.
    """

    pack: PackCall
    level: LevelInArrow

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self.level.place.runs().register(MicroBatch.of_task())
        messages: dict[int, list[bytes | Message]] = defaultdict(list)
        leaving: list[pa.RecordBatch] = []
        for packed in self.pack.packed(batches, 0):
            for _, group, message in packed.messages:
                messages[group].append(message)
            leaving += self.pack.leaving(packed, 0).to_batches()
        yield from self.level.stepped(messages, leaving)
