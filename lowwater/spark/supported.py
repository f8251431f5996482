"""What this runner takes of a pipeline, and what of it is shipped to the workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

import pyarrow as pa

from lowwater.engine.graph.graph import Graph, Read, Stage, Windowed
from lowwater.engine.records.batch import Records
from lowwater.engine.records.stateless import Step
from lowwater.errors import InternalError, InvalidArgument, UnsupportedByRunner
from lowwater.spark.signals import CarriedTime
from lowwater.spark.types import SIDE_FIELDS
from lowwater.watermark import Ascending, BoundedDisorder


def only_stage(graph: Graph) -> tuple[Stage, Read, Windowed]:
    """Return the stage of a graph that has one alone, the source it reads, and what it does.

    Raises:
        UnsupportedByRunner: The graph has more to it, or the stage does what this runner cannot.
    """
    stage = graph.stages[-1]
    flow, *others = stage.inputs
    read, work = flow.origin, stage.work
    if others or not isinstance(read, Read) or not isinstance(work, Windowed):
        what = "a union" if others else "a stage behind another stage"
        if not isinstance(work, Windowed):
            what = "process()"
        raise UnsupportedByRunner(
            f"to_spark cannot run {what}",
            hint="Run the pipeline embedded, or write the panes of its first windowed stage "
            "to files or a table there, and read these with a pipeline of their own",
        )
    if stage.deduplication is not None:
        raise UnsupportedByRunner(
            "deduplicate is not done by the Spark runner yet",
            where="deduplicate",
            hint="Let each id come once, or use a combiner that takes an id once",
        )
    watermark = read.watermark
    if watermark is not None and not isinstance(
        watermark, (BoundedDisorder, Ascending, CarriedTime)
    ):
        raise UnsupportedByRunner(
            f"the watermark {watermark!r} is guessed from every record in order, which no "
            "partition of a micro-batch sees",
            where="watermark=",
            hint='Use BoundedDisorder("..."), Ascending() or CarriedTime("column")',
        )
    return stage, read, work


def require_distinct(names: list[str], keys: tuple[str, ...]) -> None:
    """Raise if names of result columns differ only by case, which Spark ignores."""
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


def shippable(stage: Stage, steps: tuple[Step, ...]) -> Stage:
    """Return a stage as the workers get it: without its source, which stays with the driver.

    Args:
        stage: The stage, which reads one source.
        steps: Those of its steps that Spark does not run as columns.
    """
    (flow,) = stage.inputs
    origin = Read(Elsewhere(), flow.time, flow.times)
    return replace(stage, inputs=(replace(flow, origin=origin, steps=steps),))


def as_spark_reads(graph: Graph, *, endless: bool) -> Graph:
    """Return a graph of one stage and one source, with a source that ends when Spark's does.

    A folder, which ends when it is read embedded, is a stream on Spark; ``drain=True`` ends one.

    Args:
        graph: The graph.
        endless: Whether the query reads its source for ever.
    """
    stage, read, _ = only_stage(graph)
    origin = replace(read, source=Elsewhere(endless=endless), name=graph.name_of(read))
    return Graph.of([replace(stage, inputs=(replace(stage.inputs[0], origin=origin),))])


@final
@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Stands for a source that stayed with the driver.

    Args:
        endless: Whether it never ends by itself.
    """

    endless: bool = False

    @property
    def schema(self) -> pa.Schema | None:
        return None

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        raise InternalError("a worker was asked for the records of the source")
