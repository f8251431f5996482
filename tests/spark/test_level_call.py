"""What Spark's operators call, without Spark: a level at a time, all input at once."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lowwater as lw
from lowwater.engine.graph.graph import Graph
from lowwater.spark.level import LevelOptions
from lowwater.spark.level_call import LevelCall, PackCall
from lowwater.spark.levels import Levels
from lowwater.spark.output_schema import ColumnTypes, QueryOutput, schema_of
from lowwater.spark.rows import receivers
from lowwater.spark.signals import NoSignals
from lowwater.spark.source_packer import SourcePacker
from lowwater.spark.state_backends import InlineBackend
from tests.spark.cases import leaving

GROUPS = 3
TABLE = pa.table(
    {
        "timestamp": pa.array(np.arange(60) * 7_000_000).cast(pa.timestamp("us", "UTC")),
        "key": [f"key {n % 5}" for n in range(60)],
        "n": np.arange(60) % 11,
    }
)


def whole(pipeline: Any, partitions: int) -> list[dict[str, Any]]:
    """Return the output rows of a pipeline over data at rest."""
    stage = pipeline._stage
    graph = Graph.of([stage])
    levels = Levels(graph)
    node = levels.node_of(levels.graph.stages[graph.stages.index(stage)]).number
    types = ColumnTypes(graph, [TABLE.schema] * len(graph.reads), {})
    outputs = schema_of([(node, QueryOutput(stage))], types, several=False, sides=False)
    options = LevelOptions(GROUPS, frozenset({node}))
    sent: dict[tuple[int, int], list[bytes]] = defaultdict(list)
    rows: list[dict[str, Any]] = []

    def take(given: pa.Table) -> None:
        rows.extend(row for table in leaving(given) for row in table.to_pylist())
        for row in given.filter(pc.not_equal(given.column("level"), 0)).to_pylist():
            for to in receivers(row["key_group"], row["level"], GROUPS):
                sent[to].append(row["body"])

    for source in range(len(graph.reads)):
        packer = SourcePacker(
            levels, source, NoSignals(), GROUPS, "dead_letter", keep_records=False
        )
        size = -(-len(TABLE) // partitions)
        for partition in range(partitions):
            batches = TABLE.slice(partition * size, size).to_batches()
            for given in PackCall(packer, outputs, TABLE.schema.names)(batches, partition):
                take(given)
    for level in range(1, levels.depth + 1):
        call = LevelCall("query", levels, level, options, outputs, InlineBackend())
        for group in range(GROUPS):
            take(call.once(group, list(reversed(sent.pop((level, group))))))
    assert not sent
    return rows


def begun() -> lw.Stream:
    return lw.from_arrow(TABLE, time="timestamp")


def summed(stream: Any, size: str) -> lw.Pipeline:
    made: lw.Pipeline = stream.key_by("key").window(lw.FixedWindows(size)).aggregate(n=lw.sum("n"))
    return made


def sources_at_two_levels() -> lw.Pipeline:
    """What a source sends to a level behind the first one, and its end, come together."""
    return summed(begun() | summed(begun(), "1m").select("key", "n"), "2m")


def duplicates_dropped() -> lw.Pipeline:
    return summed(begun().deduplicate(id="n", within="1d"), "1m")


@pytest.mark.parametrize("partitions", [1, 2, 7])
@pytest.mark.parametrize("make", [sources_at_two_levels, duplicates_dropped])
def test_data_at_rest_gives_what_it_gives_embedded(make: Any, partitions: int) -> None:
    found = {(row["key"], row["window_end"]): row["n"] for row in whole(make(), partitions)}
    wanted = make().to_arrow().to_pylist()
    assert found == {(row["key"], row["window_end"]): row["n"] for row in wanted} != {}
