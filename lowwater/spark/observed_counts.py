"""Counts in Spark's progress reports: observed as text, and added up when they are read.

A sum for each count of each stage would be some sixty aggregates, which Spark plans, sends,
compiles and merges in every micro-batch: as much as all else that a small one costs. So the texts
that rows leave with are collected as they are, in one aggregate.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as every user of Spark calls it

from lowwater.engine.graph.graph import Graph
from lowwater.errors import InvalidArgument, describe
from lowwater.spark.output_schema import QueryOutput
from lowwater.spark.rows import COUNTED, COUNTS, counted_of

METRICS = "lowwater"
"""The name of the observed metrics in a query's progress, and of a pipeline's totals."""
_COUNTED, _GRAPH = "counted", "graph"
_OF_ENDS = ("early", "on_time", "late", "retractions", "emitted")
_OF_ALL = ("dead_letters", "sent")


def observed(rows: DataFrame, graph: Graph, outputs: Sequence[QueryOutput]) -> DataFrame:
    """Add the counts of each micro-batch to Spark's progress reports, for :func:`counts`.

    Args:
        rows: Rows with :data:`~lowwater.spark.rows.COUNTED`, null in those that count nothing.
        graph: The pipeline.
        outputs: Its outputs.
    """
    ends = [graph.stages.index(output.stage) for output in outputs]
    described = {"places": list(_places(graph)), "ends": ends}
    return rows.observe(
        METRICS,
        F.collect_list(F.col(COUNTED).cast("string")).alias(_COUNTED),
        F.lit(json.dumps(described)).alias(_GRAPH),
    )


def counts(report: Any) -> dict[str, dict[str, Any]]:
    """Return what a micro-batch counted, from Spark's progress report of it.

    Args:
        report: An item of ``query.recentProgress``, ``query.lastProgress``, the ``progress`` of a
            listener's event, or one of these as JSON, read.

    Returns:
        The counts by name: of the whole pipeline as ``"lowwater"``, and of each source and stage as
        ``"lowwater: NAME"``; empty if the micro-batch counted nothing.

    Raises:
        InvalidArgument: It is no progress report.
    """
    try:
        row = _by_name(report["observedMetrics"].get(METRICS))
    except (TypeError, KeyError, AttributeError):
        raise InvalidArgument(
            f"{describe('report', report)} is no progress report of a streaming query",
            where="counts",
            hint="Give query.lastProgress, or an item of query.recentProgress",
        ) from None
    if row is None or not row[_COUNTED]:
        return {}
    found = [counted_of(text) for text in row[_COUNTED]]
    described = json.loads(row[_GRAPH])
    places, ends = described["places"], set(described["ends"])
    last = max(at for _, at, _ in places)
    total: dict[str, Any] = {
        name: sum(_of_total(name, one, ends) for one in found) for name in COUNTS
    }
    of_last = [one["watermark"] for one in found if one["place"] == last and one["tells"]]
    total |= {"watermark": max(of_last, default=None), "clock": max(one["clock"] for one in found)}
    by_place: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for one in found:
        by_place[one["place"]].append(one)
    return {
        METRICS: total,
        **{f"{METRICS}: {name}": _of_place(by_place[at], reads) for name, at, reads in places},
    }


def _by_name(row: Any) -> Any:
    """Return observed metrics by name; Spark Connect has their values and their schema apart."""
    if row is None or _COUNTED in row:
        return row
    names = (field["name"] for field in row["schema"]["fields"])
    return dict(zip(names, row["values"], strict=True))


def _of_total(name: str, one: Mapping[str, Any], ends: set[int]) -> int:
    """Return what a row adds to a count of the whole pipeline."""
    place = one["place"]
    if name == "events":
        is_of = place < 0
    elif name in _OF_ENDS:
        is_of = place in ends
    else:
        is_of = place >= 0 or name in _OF_ALL
    return int(one[name]) if is_of else 0


def _of_place(found: Sequence[Mapping[str, Any]], reads: Sequence[str]) -> dict[str, Any]:
    """Return the counts of a source or a stage."""
    told = [one for one in found if one["tells"]]
    row: dict[str, Any] = {name: sum(one[name] for one in found) for name in COUNTS}
    row["watermark"] = max((one["watermark"] for one in told), default=None)
    # Of several that hold it, the same one is named whatever the order of rows.
    lowest = min(told, key=lambda one: (one["output_watermark"], one["held_by"] or ""), default={})
    row["output_watermark"] = lowest.get("output_watermark")
    row["held_by"] = lowest.get("held_by")
    return {**row, "reads": list(reads)}


def _places(graph: Graph) -> Iterator[tuple[str, int, list[str]]]:
    """Yield the name and the place of each source and stage, and the names of what it reads."""
    for nth, read in enumerate(graph.reads):
        yield graph.name_of(read), -1 - nth, []
    for nth, stage in enumerate(graph.stages):
        origins = dict.fromkeys(graph.name_of(flow.origin) for flow in stage.inputs)
        yield graph.name_of(stage), nth, list(origins)
