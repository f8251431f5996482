"""A pipeline level by level in micro-batches, as Spark calls it but without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import pyarrow as pa

from lowwater.engine.graph.graph import Graph
from lowwater.spark.level import LevelOptions
from lowwater.spark.level_call import LevelCall, PackCall
from lowwater.spark.levels import Levels
from lowwater.spark.output_schema import ColumnTypes, QueryOutput, schema_of
from lowwater.spark.rows import counted_of, receivers
from lowwater.spark.signals import signals_of
from lowwater.spark.source_packer import NOW, SourcePacker
from lowwater.spark.state_backends import GroupCell, InlineBackend, Live
from tests.spark.cases import leaving

GROUPS = 3


@final
@dataclass
class Stepped:
    """A query.

    Args:
        pipeline: Its output.
        schema: The columns of each source.
        cells: The cells of an earlier query, which it takes up.
    """

    pipeline: Any
    schema: pa.Schema
    cells: dict[tuple[int, int], GroupCell] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        stage = self.pipeline._stage
        graph = Graph.of([stage])
        levels = Levels(graph)
        node = levels.node_of(levels.graph.stages[graph.stages.index(stage)]).number
        types = ColumnTypes(graph, [self.schema] * len(graph.reads), {})
        self._outputs = schema_of([(node, QueryOutput(stage))], types, several=False, sides=True)
        signals = [signals_of(read) for read in graph.reads]
        options = LevelOptions(
            GROUPS,
            frozenset({node}),
            keep_records=True,
            carries_clock=any(carries for _, carries in signals),
        )
        self._packers = [
            SourcePacker(levels, at, one, GROUPS, "dead_letter", keep_records=True)
            for at, (one, _) in enumerate(signals)
        ]
        self._calls = [
            LevelCall("query", levels, level, options, self._outputs, InlineBackend())
            for level in range(1, levels.depth + 1)
        ]
        self._live: Live[Any] = Live()
        self.counted: dict[int, list[Mapping[str, Any]]] = {}
        self.sent: dict[int, int] = {}

    def step(
        self, tables: Sequence[pa.Table | None], now: int, *, ended: bool = False
    ) -> list[dict[str, Any]]:
        """Run a micro-batch; return the rows that left. ``counted`` has those of each place, and
        ``sent`` how many rows with messages were sent to each level.

        Args:
            tables: What each source gives.
            now: The time of the micro-batch, int microseconds.
            ended: Whether the input has ended.
        """
        self.counted = defaultdict(list)
        self.sent = defaultdict(int)
        made: list[dict[str, Any]] = []
        sent: dict[tuple[int, int], list[bytes]] = defaultdict(list)

        def take(given: pa.Table) -> None:
            made.extend(row for table in leaving(given) for row in table.to_pylist())
            for row in given.to_pylist():
                if row["level"]:
                    self.sent[abs(row["level"])] += 1
                    for to in receivers(row["key_group"], row["level"], GROUPS):
                        sent[to].append(row["body"])
                    continue
                counted = counted_of(row["counted"].decode())
                if counted["tells"]:
                    self.counted[counted["place"]].append(counted)

        for packer, table in zip(self._packers, tables, strict=True):
            if table is not None:
                stamped = table.append_column(NOW, pa.array([now] * len(table), pa.int64()))
                pack = PackCall(packer, self._outputs, stamped.schema.names)
                for given in pack(stamped.to_batches(), 0):
                    take(given)
        for call in self._calls:
            for group in range(GROUPS):
                rows, cell, _ = call.step(
                    group,
                    self.cells.get((call.level, group)),
                    sent.pop((call.level, group), []),
                    now,
                    ended=ended and call.level == 1,
                    live=self._live,
                )
                self.cells[call.level, group] = cell
                take(rows)
        assert not sent
        self.rows += made
        return made

    def end(self, now: int) -> list[dict[str, Any]]:
        """End the input; return the rows that left."""
        return self.step([None] * len(self._packers), now, ended=True)

    def watermark(self, place: int = 0) -> int:
        """Return the watermark of a stage, or of a source below zero: the lowest of its groups."""
        return min(row["watermark"] for row in self.counted[place])
