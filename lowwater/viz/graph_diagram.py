"""Pictures of pipeline graphs: sources, stages, and their watermarks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import cos, pi, sin
from pathlib import Path
from typing import Literal, TypeAlias, final

from lowwater.display.palette import Theme
from lowwater.display.text import printable, shown
from lowwater.engine.graph.graph import Graph
from lowwater.engine.graph.metrics import Metrics, watermark_text
from lowwater.explain.graph_text import exchange_text, summary_texts
from lowwater.io.paths import PathLike, as_paths
from lowwater.time import END_OF_TIME
from lowwater.viz.layers import Layers
from lowwater.viz.raster import save_picture
from lowwater.viz.shapes import (
    BOLD,
    Area,
    Label,
    Picture,
    Rect,
    Shape,
    fitted,
    text_width,
)
from lowwater.viz.shapes import Path as Line
from lowwater.viz.svg import check_theme, to_svg

_WIDTH, _MARGIN, _GAP, _BETWEEN = 800, 16.0, 18.0, 46.0
_LINE_HEIGHT, _TEXT, _BEND = 15.0, 11.0, 16.0
_WIDEST = 330.0
_LID, _ARC = 5.0, 24
"""Of a cylinder: half the height of its lid, and how many lines make half an ellipse."""

NodeKind: TypeAlias = Literal["source", "stage", "table"]


@final
@dataclass(frozen=True, slots=True)
class GraphNode:
    """A source, a stage or a table in the picture: its name, steps and watermarks, a line each."""

    name: str
    lines: tuple[str, ...]
    watermarks: tuple[str, ...]
    kind: NodeKind

    @property
    def is_source(self) -> bool:
        """Whether it is a source."""
        return self.kind == "source"


@final
@dataclass(frozen=True, slots=True, repr=False)
class GraphDiagram:
    """A pipeline as a graph, with the sources on top and the exchange keys on the arrows.

    Args:
        nodes: Sources and stages, each after those it reads.
        edges: (from, to, the keys by which records are exchanged).
        theme: ``light``, ``dark``, or ``auto``, which follows the system of the reader.
    """

    nodes: tuple[GraphNode, ...]
    edges: tuple[tuple[int, int, str], ...]
    theme: Theme = "auto"

    def __post_init__(self) -> None:
        check_theme(self.theme)

    @classmethod
    def of(
        cls, graph: Graph, metrics: Metrics | None = None, *, theme: Theme = "auto"
    ) -> GraphDiagram:
        """Return the picture of a graph.

        Args:
            graph: Sources and stages.
            metrics: The metrics of a run, with the watermarks; ``None`` before a run.
            theme: ``light``, ``dark``, or ``auto``, which follows the system of the reader.
        """
        number = {id(part): at for at, part in enumerate((*graph.reads, *graph.stages))}
        nodes = [
            _node(graph.name_of(read), (shown(read.source),), metrics, "source")
            for read in graph.reads
        ]
        edges: list[tuple[int, int, str]] = []
        for stage in graph.stages:
            lines = tuple(summary_texts(stage))
            kind: NodeKind = "table" if stage.makes_table else "stage"
            keeps_rows = stage.work.keeps_rows
            kept = "rows" if keeps_rows else "open windows"
            nodes.append(_node(graph.name_of(stage), lines, metrics, kind, kept))
            edges += [
                (number[id(flow.origin)], number[id(stage)], exchange_text(stage, nth) or "")
                for nth, flow in enumerate(stage.inputs)
            ]
        return cls(tuple(nodes), tuple(dict.fromkeys(edges)), theme)

    def with_theme(self, theme: Theme) -> GraphDiagram:
        """Return the same picture in a light or dark theme."""
        return replace(self, theme=theme)

    @property
    def picture(self) -> Picture:
        """The shapes of the picture, in pixels."""
        return _lay_out(self)

    def to_svg(self) -> str:
        """Render it as a self-contained SVG element without scripts."""
        return to_svg(self.picture, theme=self.theme)

    def save(self, path: PathLike) -> None:
        """Write it to a file: ``.svg``, or ``.png`` with matplotlib.

        Raises:
            InvalidArgument: The file has another suffix, or cannot be written.
            UnsupportedByRunner: matplotlib is not installed.
        """
        (place,) = as_paths(path, writes=True)
        save_picture(Path(place), self.picture, self.theme, {".svg": self.to_svg})

    def __str__(self) -> str:
        lines = []
        for at, node in enumerate(self.nodes):
            lines.append(node.name)
            lines += [f"  reads: {self.nodes[a].name}, {by}" for a, b, by in self.edges if b == at]
            lines += [f"  {text}" for text in (*node.lines, *node.watermarks)]
        return "\n".join(map(printable, lines)) + "\n"

    def __repr__(self) -> str:
        return printable(f"<graph of {', '.join(node.name for node in self.nodes)}>")

    def _repr_svg_(self) -> str:
        return self.to_svg()


def _node(
    name: str, lines: tuple[str, ...], metrics: Metrics | None, kind: NodeKind, kept: str = ""
) -> GraphNode:
    marks: list[str] = []
    for known in () if metrics is None else metrics.watermarks():
        if known.stage != name:
            continue
        if known.input != known.output:
            marks.append(f"watermark in: {watermark_text(known.input)}")
        out = "watermark" if kind == "source" or known.input == known.output else "watermark out"
        marks.append(f"{out}: {watermark_text(known.output)}")
        if known.held_by is not None and known.output != END_OF_TIME:
            marks.append(f"held by {known.held_by}")
    stage = None if metrics is None else metrics.stages.get(name)
    if stage is not None and stage.open_windows:
        marks.append(f"{kept}: {stage.open_windows:,}")
    return GraphNode(name, lines, tuple(marks), kind)


def _lay_out(diagram: GraphDiagram) -> Picture:
    nodes = diagram.nodes
    layers = Layers.of(len(nodes), [(origin, target) for origin, target, _ in diagram.edges])
    places: dict[int, Area] = {}
    top = _MARGIN
    width = _picture_width(layers, diagram)
    for row in layers.rows:
        high = max(_height(nodes[at]) for at in row if at < layers.nodes)
        places.update(_row(row, nodes, top, high, width))
        top += high + _BETWEEN
    shapes: list[Shape] = [Rect(Area(0, 0, width, top - _BETWEEN + _MARGIN), "paper")]
    for (_, _, by), way in zip(diagram.edges, layers.ways, strict=True):
        shapes += _arrow([places[at] for at in way], by)
    for at, node in enumerate(nodes):
        shapes += _box(node, places[at])
    name = f"graph of {', '.join(node.name for node in nodes)}"
    return Picture(width, round(max(_MARGIN, top - _BETWEEN) + _MARGIN), tuple(shapes), name)


def _picture_width(layers: Layers, diagram: GraphDiagram) -> int:
    """Return the width that the widest layer needs, with room for texts beside the arrows."""
    nodes = diagram.nodes
    widest = max(
        (sum(_wished(row, nodes)) + _GAP * (len(row) - 1) for row in layers.rows), default=0.0
    )
    beside = max((text_width(by, 10) for _, _, by in diagram.edges), default=0.0)
    return min(_WIDTH, round(max(widest, 2 * min(beside, 200.0) + 2 * _BEND) + 2 * _MARGIN))


def _wished(row: tuple[int, ...], nodes: tuple[GraphNode, ...]) -> list[float]:
    return [_width(nodes[at]) if at < len(nodes) else _BEND for at in row]


def _row(
    row: tuple[int, ...], nodes: tuple[GraphNode, ...], top: float, high: float, width: int
) -> Iterator[tuple[int, Area]]:
    """Yield the places of a layer, in the middle of the paper; wide ones give way."""
    room = width - 2 * _MARGIN - _GAP * (len(row) - 1)
    wished = _wished(row, nodes)
    share = min(1.0, room / sum(wished))
    left = (width - sum(wished) * share - _GAP * (len(row) - 1)) / 2
    for at, wide in zip(row, wished, strict=True):
        bottom = top + (_height(nodes[at]) if at < len(nodes) else high)
        yield at, Area(left, top, left + wide * share, bottom)
        left += wide * share + _GAP


def _texts(node: GraphNode) -> tuple[str, ...]:
    return (node.name, *node.lines, *node.watermarks)


def _width(node: GraphNode) -> float:
    return min(_WIDEST, max(text_width(text, _TEXT) * BOLD for text in _texts(node)) + 24)


def _height(node: GraphNode) -> float:
    return _LINE_HEIGHT * len(_texts(node)) + 14 + (2 * _LID if node.kind == "table" else 0)


def _box(node: GraphNode, area: Area) -> Iterator[Shape]:
    title = "\n".join(_texts(node))
    y = area.top + 18
    if node.kind == "table":
        yield from _cylinder(area, title)
        y += 2 * _LID - 3
    else:
        yield Rect(area, "paper", 7)
        yield Rect(area, node.kind, 14 if node.is_source else 4, None, title)
    room = area.right - area.left - 16
    for at, text in enumerate(_texts(node)):
        style = "text" if at <= len(node.lines) else "watermark-name"
        style = "head" if at == 0 else style
        shown = fitted(text, room if style == "text" else room / BOLD, _TEXT)
        yield Label((area.left + area.right) / 2, y, shown, style, _TEXT, "middle", None, title)
        y += _LINE_HEIGHT


def _cylinder(area: Area, title: str) -> Iterator[Shape]:
    """Draw a table as the cylinder that stands for stored rows."""
    middle, half = (area.left + area.right) / 2, (area.right - area.left) / 2

    def arc(y: float, down: int) -> list[tuple[float, float]]:
        """Return half an ellipse from left to right, above or below a height."""
        turns = (pi * at / _ARC for at in range(_ARC + 1))
        return [(middle - half * cos(turn), y + down * _LID * sin(turn)) for turn in turns]

    top, bottom = area.top + _LID, area.bottom - _LID
    outline = (*arc(top, -1), *reversed(arc(bottom, 1)))
    yield Line(outline, "paper", True)
    yield Line(outline, "table", True, None, title)
    yield Line(tuple(arc(top, 1)), "lid")


def _arrow(way: list[Area], by: str) -> Iterator[Shape]:
    points = [((way[0].left + way[0].right) / 2, way[0].bottom)]
    for bend in way[1:-1]:
        middle = (bend.left + bend.right) / 2
        points += [(middle, bend.top), (middle, bend.bottom)]
    end = ((way[-1].left + way[-1].right) / 2, way[-1].top)
    yield Line((*points, (end[0], end[1] - 7)), "arrow", title=by)
    tip = ((end[0] - 5, end[1] - 9), end, (end[0] + 5, end[1] - 9))
    yield Line(tip, "arrow-head", True)
    (a, b), (c, d) = list(pairwise((*points, end)))[-1]
    # Below a slanting line there is room on the side it comes from.
    side = -1 if a < c - 1 else 1
    x, y = (a + c) / 2 + 8 * side, (b + d) / 2 + (10 if abs(a - c) > 1 else 3)
    yield Label(x, y, fitted(by, 200, 10), "quiet", 10, "end" if side < 0 else "start")
