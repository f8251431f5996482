"""What this runner takes of a pipeline."""

from __future__ import annotations

from dataclasses import replace

from lowwater.engine.graph.graph import Graph, Read
from lowwater.errors import UnsupportedByRunner
from lowwater.spark.levels import Elsewhere, with_reads
from lowwater.watermark import External, PerPartition


def require_supported(graph: Graph) -> None:
    """Raise if a source's watermark is one that only a process of the user's can say.

    Raises:
        UnsupportedByRunner: It is.
    """
    for read in graph.reads:
        watermark = read.watermark
        inner = watermark.estimator if isinstance(watermark, PerPartition) else watermark
        if isinstance(inner, External):
            raise UnsupportedByRunner(
                f"the watermark of {graph.name_of(read)} is moved by this process, which the tasks "
                "of a cluster cannot ask",
                where="watermark=",
                hint='Carry it in a column: CarriedTime("column") or Punctuated("column")',
            )


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
