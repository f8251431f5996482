"""Several outputs of a pipeline on Spark, as one DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lowwater.engine.graph.graph import MAIN, Graph
from lowwater.errors import InvalidArgument, describe, load_extra
from lowwater.explain.findings import findings_of
from lowwater.pipeline.run import heed

if TYPE_CHECKING:
    from lowwater.pipeline.runnable import Runnable


def on_spark(spark: Any, outputs: Sequence[Runnable[Any, Any]], options: Mapping[str, Any]) -> Any:
    """Return what leaves a pipeline as a Spark DataFrame.

    Args:
        spark: The Spark session.
        outputs: The outputs, at least one.
        options: See :class:`lowwater.spark.SparkOptions`.
    """
    load_extra("pyspark.sql", extra="spark", purpose="to_spark")
    from lowwater.spark.options import options_of
    from lowwater.spark.output_schema import SIDES, Output
    from lowwater.spark.query import outputs_on_spark
    from lowwater.spark.supported import as_spark_reads

    chosen = options_of(options)
    writings = [output._to() for output in outputs]
    graph = Graph.of([one._stage for one in writings])
    named = []
    for one in writings:
        name = graph.name_of(one._stage)
        name = name if one._tag == MAIN else f"{name}.{one._tag}"
        if len(writings) == 1:
            named.append(Output(one._stage, one._tag))
            continue
        if name in SIDES or any(name == other.name for other in named):
            raise InvalidArgument(
                f"two outputs are called {name!r}"
                if name not in SIDES
                else f"an output is called {name!r}, as rows of another kind are",
                where="to_spark",
                hint='Name the stages: counts.named("counts")',
            )
        named.append(Output(one._stage, one._tag, name))
    made = outputs_on_spark(spark, graph, named, chosen)
    read = as_spark_reads(graph, endless=made.isStreaming and not chosen.drain)
    of = dict(zip(graph.stages, read.stages, strict=True))
    heed(findings_of(read, [(of[one.stage], ()) for one in named]))
    return made


def to_spark(spark: Any, *outputs: Runnable[Any, Any], **options: Any) -> Any:
    """Return several outputs as one Spark DataFrame, so that no source is read twice.

    Rows say in the column ``output`` which output they are of: the name of its stage, and for a
    side output of a process ``stage.output``. The columns of all outputs stand side by side, and
    are null where an output has no such column. :func:`lowwater.spark.split` takes the rows of one
    output.

    Args:
        spark: The Spark session.
        *outputs: Pipelines and outputs of processes.
        **options: See :class:`lowwater.spark.SparkOptions`.

    Raises:
        InvalidArgument: There is no output, or something else; or two have the same name.
        UnsupportedByRunner: Spark does not support the pipeline.
    """
    from lowwater.pipeline.runnable import Runnable

    if not outputs:
        raise InvalidArgument("to_spark needs an output", hint="Write to_spark(spark, counts)")
    for output in outputs:
        if not isinstance(output, Runnable):
            raise InvalidArgument(
                f"{describe('output', output)} is no output of a pipeline",
                where="to_spark",
                hint="Give what .aggregate(...), .group() or .process(...) returned",
            )
    return on_spark(spark, outputs, options)
