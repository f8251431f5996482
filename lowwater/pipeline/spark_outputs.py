"""Several outputs of a pipeline on Spark, as one DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lowwater.engine.graph.graph import MAIN, Graph
from lowwater.errors import InvalidArgument, load_extra
from lowwater.explain.findings import findings_of
from lowwater.pipeline.outcomes import heed
from lowwater.pipeline.outputs import Writing


def on_spark(spark: Any, outputs: Sequence[Writing], options: Mapping[str, Any]) -> Any:
    """Return what leaves a pipeline as a Spark DataFrame.

    Args:
        spark: The Spark session.
        outputs: The outputs, at least one.
        options: See :class:`lowwater.spark.SparkOptions`.
    """
    load_extra("pyspark.sql", extra="spark", purpose="to_spark")
    from lowwater.spark.options import options_of
    from lowwater.spark.output_schema import SIDES, QueryOutput
    from lowwater.spark.query import outputs_on_spark
    from lowwater.spark.supported import as_spark_reads

    chosen = options_of(options)
    graph = Graph.of([one._stage for one in outputs])
    named = []
    for one in outputs:
        name = graph.name_of(one._stage)
        name = name if one._tag == MAIN else f"{name}.{one._tag}"
        if len(outputs) == 1:
            named.append(QueryOutput(one._stage, one._tag))
            continue
        if any(name == other.name for other in named):
            raise InvalidArgument(
                f"the output {name!r} is given twice", where="to_spark", hint="Leave one out"
            )
        if name in SIDES:
            raise InvalidArgument(
                f"an output is called {name!r}, as rows of another kind are",
                where="to_spark",
                hint='Give its stage another name: counts.named("counts")',
            )
        named.append(QueryOutput(one._stage, one._tag, name))
    made = outputs_on_spark(spark, graph, named, chosen)
    read = as_spark_reads(graph, endless=made.isStreaming and not chosen.drain)
    of = dict(zip(graph.stages, read.stages, strict=True))
    heed(findings_of(read, [(of[one.stage], ()) for one in named]))
    return made
