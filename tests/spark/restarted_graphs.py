"""Runs a random graph on Spark in micro-batches, restarts it once, and compares all it gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, final
from unittest import mock

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from lowwater.engine.graph.graph import Graph
from lowwater.explain.findings import findings_of
from lowwater.spark import counts
from lowwater.spark.levels import Levels
from lowwater.spark.session import CHECKS
from tests.property.graphs import Batches, Drawn
from tests.property.levels import graph_of
from tests.spark.graphs_on_spark import (
    Expected,
    Sink,
    draw_graph,
    expected,
    frame_of,
    output,
    start,
    write_files,
)
from tests.spark.query_to_kill import ADAPTERS, OWN, operator_of

_SPLIT = "spark.sql.files.maxPartitionBytes"
_WANTED: Sequence[Callable[[Graph], bool]] = (
    lambda graph: any(stage.signed for stage in graph.stages),
    lambda graph: Levels(graph).depth >= 3,
    lambda graph: any(len(stage.inputs) > 1 for stage in graph.stages),
    lambda graph: any(not stage.work.emits_panes for stage in graph.stages),
)


@final
@dataclass(frozen=True)
class Way:
    """How a graph is run.

    Args:
        adapter: Spark's operator.
        state: How state is kept.
        key_groups: How many key groups there are.
        splits: Whether a micro-batch's file is read in several partitions, a row in each.
        stops: Whether the micro-batch in which it is stopped is lost, or kept without Spark
            knowing of it.
        same_frame: Whether the query that resumes is made of the same DataFrame.
    """

    adapter: str
    state: str
    key_groups: int = 2
    splits: bool = False
    stops: Literal["before", "after"] = "after"
    same_frame: bool = False


def _is_refused_endless(graph: Graph) -> bool:
    """Whether a graph is refused if its input may never end, as where a query does not drain it."""
    with mock.patch.object(Batches, "endless", True, create=True):
        return any(finding.severity == "error" for finding in findings_of(graph, []))


def graph_number(number: int) -> Drawn:
    """Return one of many graphs of several levels, always the same.

    Every fourth has a stage that reads retractions, another three levels or more, another a union,
    another a process.
    """
    wants = _WANTED[number % len(_WANTED)]

    def wanted(case: Drawn) -> bool:
        graph = graph_of(case)
        if not wants(graph) or Levels(graph).depth < 2:
            return False
        if not any(stage.windowing for stage in graph.stages):
            return False
        if _is_refused_endless(graph):
            return False
        longest = max(len(getattr(read.source, "rows", ())) for read in graph.reads)
        if not 3 <= longest <= 5:
            return False
        rows = expected(case).rows
        return sum(map(len, rows)) >= 12 and sum(map(bool, rows)) >= 3

    found = (draw_graph(1_000 * number + again, wanted) for again in itertools.count())
    return next(case for case in found if case is not None)


def side_by_side(cases: Sequence[Drawn]) -> Drawn:
    """Return several graphs as one, of as many parts that have nothing to do with each other."""
    return replace(cases[0], ends=tuple(end for case in cases for end in case.ends))


@contextmanager
def settings(spark: SparkSession, given: dict[str, str]) -> Iterator[None]:
    """Change settings of the session for a while."""
    before = {name: spark.conf.get(name, None) for name in given}
    for name, value in given.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def with_adapter(spark: SparkSession, adapter: str) -> Any:
    """Have graphs of several levels run on one of Spark's operators for a while."""
    return settings(spark, {CHECKS: str(adapter != ADAPTERS[0]).lower()})


def check_restarted(spark: SparkSession, case: Drawn, folder: Path, way: Way) -> None:
    """Run a graph, stop it in the middle and resume it; compare with the embedded runner."""
    write_files(case, folder / "in", row_group_size=1 if way.splits else None)
    wanted = expected(case)
    if way.adapter == OWN:  # which has no end
        wanted = Expected(wanted.rows[:-1], wanted.watermarks[:-1])
    middle = len(wanted.rows) // 2
    split = {_SPLIT: "1200"} if way.splits else {}
    with with_adapter(spark, way.adapter), settings(spark, split):

        def frame() -> DataFrame:
            return frame_of(
                spark, case, folder, state=way.state, key_groups=way.key_groups,
                operator=operator_of(way.adapter),
            )  # fmt: skip

        first = frame()
        query = start(first, folder, _Stops(folder, middle, way.stops))
        with pytest.raises(StreamingQueryException, match=_STOPPED):
            query.awaitTermination(300)
        reports = list(query.recentProgress)
        query = start(first if way.same_frame else frame(), folder)
        assert query.awaitTermination(300)
        reports += query.recentProgress
    for number, (found, rows) in enumerate(zip(output(folder), wanted.rows, strict=True)):
        lacks, adds = set(rows) - set(found), set(found) - set(rows)
        assert found == rows, f"micro-batch {number}: no {lacks}, but {adds}; of {case}"
    told = {report["batchId"]: _watermarks(report) for report in reports}
    assert told == dict(enumerate(wanted.watermarks)), case


_STOPPED = "stopped in the middle"


@final
@dataclass(frozen=True)
class _Stops:
    folder: Path
    number: int
    when: Literal["before", "after"]

    def __call__(self, frame: DataFrame, number: int) -> None:
        if number < self.number or self.when == "after":
            Sink(self.folder)(frame, number)
        else:
            frame.count()  # its state is saved, and its rows are lost
        if number == self.number:
            raise RuntimeError(_STOPPED)


def _watermarks(report: Any) -> dict[str, tuple[int, int]]:
    """Return the input and the output watermark of each stage in a progress report."""
    return {
        name.removeprefix("lowwater: "): (row["watermark"], row["output_watermark"])
        for name, row in counts(report).items()
        if name.startswith("lowwater: stage ")
    }
