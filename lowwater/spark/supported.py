"""What this runner takes of a pipeline."""

from __future__ import annotations

from dataclasses import replace

from lowwater.display.text import shown
from lowwater.engine.graph.clocks import ClockLike
from lowwater.engine.graph.graph import Graph, Read
from lowwater.engine.records.async_calls import MapAsync
from lowwater.errors import InvalidArgument, UnsupportedByRunner
from lowwater.spark.levels import Elsewhere, with_reads
from lowwater.watermark import External


def require_supported(graph: Graph) -> None:
    """Raise if a source's watermark is one that only a process of the user's can say.

    So is a stream that reads a source without a stage: Spark's operators are there for state by
    key.

    Raises:
        UnsupportedByRunner: It is.
    """
    passing = [stage for stage in graph.stages if stage.work.keys_are_ids and not stage.keys]
    if any(isinstance(flow.origin, Read) for stage in passing for flow in stage.inputs):
        raise UnsupportedByRunner(
            "a stream without a stage has no state, and so nothing to run on Spark",
            where="to_spark",
            hint="Use the steps of Spark's DataFrame; or group first, with key_by(...)",
        )
    flows = (flow for stage in graph.stages for flow in stage.inputs)
    if any(isinstance(step, MapAsync) for flow in flows for step in flow.steps):
        raise UnsupportedByRunner(
            "map_async calls the outside from one process, and tasks of a cluster are many",
            where="map_async",
            hint="Call it in a step of Spark's before: mapInPandas, or a pandas_udf",
        )
    for read in graph.reads:
        if isinstance(read.watermark, External):
            raise UnsupportedByRunner(
                f"the watermark of {graph.name_of(read)} is moved by this process, which the tasks "
                "of a cluster cannot ask",
                where="watermark=",
                hint='Carry it in a column: CarriedTime("column") or Punctuated("column")',
            )


def clock_of(graph: Graph) -> ClockLike | None:
    """Return the clock that the sources name: a query has one alone.

    Raises:
        InvalidArgument: They name several.
    """
    named = [read.clock for read in graph.reads if read.clock is not None]
    for clock in named:
        if clock != named[0]:
            raise InvalidArgument(
                f"the sources have different clocks: {shown(named[0])} and {shown(clock)}",
                where="to_spark",
                hint="Name the same clock in all of them",
            )
    return named[0] if named else None


def as_spark_reads(graph: Graph, *, endless: bool) -> Graph:
    """Return a graph with sources that end when Spark's do.

    A folder, which ends when it is read embedded, is a stream on Spark; ``drain=True`` ends one.

    Args:
        graph: The graph.
        endless: Whether the query reads its sources for ever.
    """

    def elsewhere(read: Read) -> Read:
        return replace(read, source=Elsewhere(endless=endless), name=graph.name_of(read))

    return with_reads(graph, elsewhere)
