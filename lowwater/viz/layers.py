"""Layered graph layout: upstream nodes above downstream ones, with few crossings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias, final

Edge: TypeAlias = tuple[int, int]
_SWEEPS = 4


@final
@dataclass(frozen=True, slots=True)
class Layers:
    """The positions of the nodes of a graph.

    Args:
        rows: Layer by layer, the nodes from left to right. A number of at least ``nodes`` stands
            for a bend: a place that a line passes on its way through a layer.
        ways: For each edge, all it passes, from the node it leaves to the node it comes to.
        nodes: How many nodes there are.
    """

    rows: tuple[tuple[int, ...], ...]
    ways: tuple[tuple[int, ...], ...]
    nodes: int

    @classmethod
    def of(cls, nodes: int, edges: Sequence[Edge]) -> Layers:
        """Return a layout. O((nodes + edges) · layers · log).

        Args:
            nodes: How many nodes there are; each stands behind those it is fed by.
            edges: (from, to), with ``from < to``.
        """
        depth = [0] * nodes
        for origin, target in sorted(edges, key=lambda edge: edge[1]):
            depth[target] = max(depth[target], depth[origin] + 1)
        places: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
        for node in range(nodes):
            places[depth[node]].append(node)
        ways, bends = [], nodes
        for origin, target in edges:
            between = range(depth[origin] + 1, depth[target])
            for layer in between:
                places[layer].append(bends + layer - between.start)
            ways.append((origin, *range(bends, bends + len(between)), target))
            bends += len(between)
        return cls(_untangled(places, ways), tuple(ways), nodes)


def _untangled(
    places: Sequence[Sequence[int]], ways: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], ...]:
    """Return the rows, each node near the middle of what it is tied to in the row before."""
    up: dict[int, list[int]] = {}
    down: dict[int, list[int]] = {}
    for way in ways:
        for one, two in _pairs(way):
            up.setdefault(two, []).append(one)
            down.setdefault(one, []).append(two)
    rows = [list(row) for row in places]
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        order = range(1, len(rows)) if downwards else range(len(rows) - 2, -1, -1)
        ties = up if downwards else down
        for at in order:
            fixed = rows[at - 1 if downwards else at + 1]
            share = {node: (place + 0.5) / len(fixed) for place, node in enumerate(fixed)}
            own = {node: (place + 0.5) / len(rows[at]) for place, node in enumerate(rows[at])}
            rows[at].sort(key=lambda node: _middle(ties.get(node, ()), share, own[node]))
    return tuple(tuple(row) for row in rows)


def _middle(tied: Sequence[int], share: dict[int, float], otherwise: float) -> float:
    return sum(share[node] for node in tied) / len(tied) if tied else otherwise


def _pairs(way: tuple[int, ...]) -> Iterator[Edge]:
    return pairwise(way)
