"""The levels of a graph: what runs in one Spark operator, and what is sent to which level.

A stage is on the level behind the highest one that it reads. All stages of a level run in one
stateful operator of Spark's, once per key group. What is for a deeper level passes through, so that
branches and diamonds stay one line of operators, and no source is read twice.

Duplicates are dropped where all records with one id meet, and a stage's own work is where all
records with one key meet. These are two places, on two levels, unless the id has the key in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import final

import pyarrow as pa

from lowwater.engine.graph.graph import Flow, Graph, Read, Stage
from lowwater.engine.local.compatibility import describe_stages
from lowwater.engine.records.batch import Records
from lowwater.errors import InternalError
from lowwater.spark.signals import CarriedTime
from lowwater.state.codec import encode


def rank(origin: int) -> int:
    """Return where an origin of elements stands: sources (below zero) first, as embedded."""
    return origin if origin >= 0 else -1 - origin - (1 << 32)


@final
@dataclass(frozen=True, slots=True, eq=False)
class LevelNode:
    """What runs of a stage on one level.

    Args:
        number: Its number; upstream nodes have lower ones.
        stage: The stage.
        name: Its name in the state: that of the stage, or another one for what drops duplicates.
        level: The level, from 1.
        drops_duplicates: Whether it does only that, and another node does the rest.
        upstream: The numbers of the nodes that it reads, ascending.
        sources: The numbers of the sources that it reads, ascending.
    """

    number: int
    stage: Stage
    name: str
    level: int
    drops_duplicates: bool
    upstream: tuple[int, ...]
    sources: tuple[int, ...]

    @property
    def by_id(self) -> bool:
        """Whether records are sent to it by their id, rather than by their key."""
        return self.drops_duplicates


@final
@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """What a source or a node sends to a node.

    Args:
        to: The node.
        nth: Which input of its stage it is; 0 behind what drops duplicates.
        flow: The input; ``None`` for what is left when duplicates are dropped.
    """

    to: LevelNode
    nth: int
    flow: Flow | None


@final
class Levels:
    """A graph in levels, as it is shipped to the workers: its sources stay with the driver.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph = with_reads(graph, _shipped)
        self.described = encode(describe_stages(graph))
        self.nodes: list[LevelNode] = []
        by_stage: dict[Stage, LevelNode] = {}
        for stage in graph.stages:
            before = [flow.origin for flow in stage.inputs]
            upstream = sorted({by_stage[one].number for one in before if isinstance(one, Stage)})
            reads = sorted({graph.reads.index(one) for one in before if isinstance(one, Read)})
            name = graph.name_of(stage)
            level = 1 + max((self.nodes[one].level for one in upstream), default=0)
            first = LevelNode(
                len(self.nodes), stage, name, level, False, tuple(upstream), tuple(reads)
            )
            if is_split(stage):
                first = replace(first, name=_free(name, graph.names), drops_duplicates=True)
                self.nodes.append(first)
                first = LevelNode(
                    len(self.nodes), stage, name, level + 1, False, (first.number,), ()
                )
            self.nodes.append(first)
            by_stage[stage] = first
        self.depth = max(node.level for node in self.nodes)
        self._by_stage = by_stage

    def at(self, level: int) -> list[LevelNode]:
        """Return the nodes of a level, in topological order."""
        return [node for node in self.nodes if node.level == level]

    def node_of(self, stage: Stage) -> LevelNode:
        """Return the node that does a stage's own work."""
        return self._by_stage[stage]

    def place_of(self, node: LevelNode) -> int:
        """Return the number of a node's stage in the graph."""
        return self.graph.stages.index(node.stage)

    def out_of(self, node: LevelNode) -> list[Edge]:
        """Return what a node sends, in the order of the nodes it sends to."""
        if node.drops_duplicates:
            return [Edge(self.node_of(node.stage), 0, None)]
        return list(self._edges(node.stage))

    def out_of_source(self, source: int) -> list[Edge]:
        """Return what a source sends, in the order of the nodes it sends to."""
        return list(self._edges(self.graph.reads[source]))

    def ports_into(self, node: LevelNode) -> list[tuple[int, int]]:
        """Return where a node's elements come from, in order: sources first, then nodes.

        Returns:
            The rank of the origin and the number of the input, for each input of its stage.
        """
        found = []
        for nth, flow in enumerate(node.stage.inputs):
            if isinstance(flow.origin, Read):
                origin = -1 - self.graph.reads.index(flow.origin)
            else:
                origin = self.node_of(flow.origin).number
            found.append((rank(origin), nth))
        return sorted(found)

    def levels_told(self) -> list[int]:
        """Return the levels at which sources are read: they estimate the sources' watermarks."""
        return sorted({node.level for node in self.nodes if node.sources})

    def _edges(self, origin: Read | Stage) -> Iterator[Edge]:
        for at, nth in self.graph.into(origin):
            stage = self.graph.stages[at]
            node = self._by_stage[stage]
            if is_split(stage):
                node = self.nodes[node.number - 1]
            yield Edge(node, nth, stage.inputs[nth])


def _free(name: str, taken: Sequence[str]) -> str:
    """Return the name in the state of what drops a stage's duplicates, which no stage has."""
    name = f"{name}: ids"
    while name in taken:
        name += "'"
    return name


def is_split(stage: Stage) -> bool:
    """Whether duplicates of a stage are dropped by a node of their own, for want of the key."""
    ids = stage.deduplication
    return ids is not None and not set(stage.keys) <= set(ids.columns)


def with_reads(graph: Graph, changed: Callable[[Read], Read]) -> Graph:
    """Return a graph that reads its sources in another way."""
    reads = {one: changed(one) for one in graph.reads}
    stages: dict[Stage, Stage] = {}
    for stage in graph.stages:
        inputs = tuple(
            replace(
                flow,
                origin=reads[flow.origin] if isinstance(flow.origin, Read) else stages[flow.origin],
            )
            for flow in stage.inputs
        )
        stages[stage] = replace(stage, inputs=inputs)
    return Graph(tuple(reads.values()), tuple(stages.values()), graph.names)


def _shipped(read: Read) -> Read:
    """Return a source as the workers get it: what reads it stays with the driver."""
    carried = isinstance(read.watermark, CarriedTime)
    return replace(read, source=Elsewhere(), watermark=None if carried else read.watermark)


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
