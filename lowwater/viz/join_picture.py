"""Lays out the scene of a join as a picture: two lanes, the left side above, and links between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

from lowwater.viz.join_scene import Alone, JoinPanel, JoinScene, Lane
from lowwater.viz.label_placement import Room
from lowwater.viz.legend import KEY_WIDTH, Key, in_order, legend, line_key, mark_key
from lowwater.viz.marks import dot_shapes, half_width, mark_area, mark_shapes
from lowwater.viz.plot import MARGIN, WIDTH, Plot, axis_names, picture_of, title_labels
from lowwater.viz.scene import Mark, Span, WatermarkStep
from lowwater.viz.shapes import BOLD, Area, Label, Path, Picture, Rect, Shape, fitted, text_width
from lowwater.viz.words import outcome_text

_LEFT, _BELOW, _ABOVE, _BETWEEN = 72.0, 40.0, 16.0, 28.0
_HEIGHTS = {1: 190.0, 2: 130.0}
_HEIGHT_OF_MANY = 100.0
_RADIUS, _DOT = 9.0, 2.5
_MOST_LARGE = 40
"""In a panel with more records than this, each is a dot without its value."""


def lay_out_join(scene: JoinScene) -> Picture:
    """Lay out the scene of a join as a picture 800 pixels wide. O(n log n)."""
    shapes: list[Shape] = []
    top = legend(_entries(scene), shapes, title_labels(scene.title, shapes)) + 6
    high = _HEIGHTS.get(len(scene.panels), _HEIGHT_OF_MANY)
    for panel in scene.panels:
        top += _ABOVE
        lanes = []
        for number in range(2):
            above = top + number * (high + _BETWEEN)
            area = Area(MARGIN + _LEFT, above, WIDTH - MARGIN - 8, above + high)
            lanes.append(Plot(area, scene.x, scene.y, scene.steps))
        shapes += _PanelDrawing(scene, panel, lanes[0], lanes[1]).shapes()
        top = lanes[1].area.bottom + _BELOW
    return picture_of(scene, shapes, top, 10)


@final
class _PanelDrawing:
    """Draws both lanes of a key."""

    def __init__(self, scene: JoinScene, panel: JoinPanel, left: Plot, right: Plot) -> None:
        self._scene, self._panel = scene, panel
        self._plots = (left, right)
        few = sum(len(lane.marks) for lane in panel.lanes) <= _MOST_LARGE
        self._radii = tuple(
            tuple(_radii(lane, plot)) if few else (_DOT,) * len(lane.marks)
            for lane, plot in zip(panel.lanes, self._plots, strict=True)
        )

    def shapes(self) -> Iterator[Shape]:
        """Yield the shapes from back to front."""
        for lane, plot in zip(self._panel.lanes, self._plots, strict=True):
            yield from self._lane(lane, plot)
        yield from self._links()
        for lane, plot, radii in zip(self._panel.lanes, self._plots, self._radii, strict=True):
            yield from self._alone(lane, plot, radii)
            yield from self._marks(lane, plot, radii)
        yield from self._names()

    def _lane(self, lane: Lane, plot: Plot) -> Iterator[Shape]:
        scene, area = self._scene, plot.area
        yield from plot.grid(labelled=plot is self._plots[1])
        yield from _staircase(plot, lane.frontier, "frontier")
        yield from _staircase(plot, lane.watermark, "side-watermark")
        yield from _staircase(plot, scene.watermark, "watermark")
        yield Rect(
            Area(area.left, area.top, area.right, area.top), "cover",
            covers=area.bottom - area.top,
        )  # fmt: skip
        yield Rect(area, "frame")

    def _links(self) -> Iterator[Shape]:
        for link in self._panel.links:
            ends = (self._edge(0, link.left, 1), self._edge(1, link.right, -1))
            yield Path(ends, "pair", False, link.y, link.title)
            if link.retracted is not None:
                yield Path(ends, "erased", False, link.retracted, link.title)
                yield Path(ends, "retract", False, link.retracted, link.title)

    def _alone(self, lane: Lane, plot: Plot, radii: Sequence[float]) -> Iterator[Shape]:
        """Yield a line from each record that came out by itself up to when it did."""
        for one in lane.alone:
            mark, radius = lane.marks[one.mark], radii[one.mark]
            x, low, high = plot.across(mark.x), plot.up(mark.y), plot.up(one.y)
            if low - high > _RADIUS + 6:
                line = ((x, low - radius), (x, high + 5))
                yield Path(line, "alone", False, one.y, one.title)
            else:  # it came out at once: the sign stands beside the record
                x += 9 + (half_width(mark, radius) if radius > _DOT else 0)
            yield from _sign(one, x, high)
            if one.retracted is not None:
                yield from _crossed(one, x, high)

    @staticmethod
    def _marks(lane: Lane, plot: Plot, radii: Sequence[float]) -> Iterator[Shape]:
        for mark, radius in zip(lane.marks, radii, strict=True):
            x, y = plot.across(mark.x), plot.up(mark.y)
            if radius > _DOT:
                yield from mark_shapes(mark, x, y, radius, mark.y)
            else:
                yield from dot_shapes(mark, x, y, mark.y)

    def _edge(self, side: int, number: int, down: int) -> tuple[float, float]:
        """Return where a link leaves a record."""
        plot, mark = self._plots[side], self._panel.lanes[side].marks[number]
        return plot.across(mark.x), plot.up(mark.y) + down * self._radii[side][number]

    def _names(self) -> Iterator[Shape]:
        scene = self._scene
        for lane, plot in zip(self._panel.lanes, self._plots, strict=True):
            area = plot.area
            name = f"{self._panel.name}, {lane.name}" if scene.headed else lane.name
            name = fitted(name, (area.right - area.left) / BOLD, 11.5)
            wide = text_width(name, 11.5) * BOLD  # links may pass behind it
            yield Rect(Area(area.left, area.top - 16, area.left + wide, area.top - 2), "plate", 3)
            yield Label(area.left, area.top - 5, name, "head", 11.5)
        yield from axis_names(*self._plots)


def _radii(lane: Lane, plot: Plot) -> Iterator[float]:
    """Yield the size of each record: those that would hide another one are dots."""
    area = plot.area
    room = Room(Area(area.left - 40, area.top - 20, area.right + 40, area.bottom + 20))
    for mark in lane.marks:
        place = mark_area(mark, plot.across(mark.x), plot.up(mark.y), _RADIUS)
        is_free = room.is_free(place)
        if is_free:
            room.take(place)
        yield _RADIUS if is_free else _DOT


def _staircase(plot: Plot, steps: Sequence[WatermarkStep], style: str) -> Iterator[Shape]:
    """Yield a watermark as a line from below: to the right when it advances, then upwards."""
    span: Span = plot.y
    before = plot.across(plot.x.low)
    for at, step in enumerate(steps):
        if step.y > span.high:
            break  # it moved after all that is drawn
        above = steps[at + 1].y if at + 1 < len(steps) else span.high
        x, y = plot.across(step.x), plot.up(step.y)
        points = [(before, y), (x, y)]
        if step.x in plot.x:  # beyond the picture there is no line to draw upwards
            points.append((x, plot.up(above)))
        before = x
        if len(set(points)) > 1:
            yield Path(tuple(points), style, title=step.title)


def _sign(one: Alone, x: float, y: float) -> Iterator[Shape]:
    """Yield the sign of a record that came out by itself: a small hollow square."""
    yield Rect(Area(x - 5, y - 5, x + 5, y + 5), "alone-shape", 1.5, one.y, one.title)


def _crossed(one: Alone, x: float, y: float) -> Iterator[Shape]:
    """Cross a sign out: what came out was retracted."""
    for slope in (1, -1):
        ends = ((x - 8, y - 8 * slope), (x + 8, y + 8 * slope))
        yield Path(ends, "retracted-sign", False, one.retracted, one.title)


def _entries(scene: JoinScene) -> Iterator[tuple[Key, str]]:
    lanes = [lane for panel in scene.panels for lane in panel.lanes]
    for outcome in in_order(mark.outcome for lane in lanes for mark in lane.marks):
        text = "record" if outcome == "kept" else outcome_text(outcome)
        yield mark_key(Mark(0, 0, "", outcome, "")), text
    links = [link for panel in scene.panels for link in panel.links]
    if links:
        yield line_key("pair"), "pair"
    if any(link.retracted is not None for link in links):
        yield line_key("retract"), "retracted pair"
    alone = [one for lane in lanes for one in lane.alone]
    if alone:
        yield _sign_key(crossed=False), scene.alone
    if any(one.retracted is not None for one in alone):
        yield _sign_key(crossed=True), "retracted"
    if scene.watermark:
        yield line_key("watermark"), "watermark of the join"
    if any(lane.watermark for lane in lanes):
        yield line_key("side-watermark"), "watermark of the side"
    if any(lane.frontier for lane in lanes):
        yield line_key("frontier"), f"{scene.frontier} before"


def _sign_key(*, crossed: bool) -> Key:
    def draw(x: float, y: float) -> list[Shape]:
        middle = x + KEY_WIDTH / 2
        shapes: list[Shape] = [Rect(Area(middle - 5, y - 5, middle + 5, y + 5), "alone-shape", 1.5)]
        if crossed:
            shapes += [
                Path(((middle - 8, y - 8 * slope), (middle + 8, y + 8 * slope)), "retracted-sign")
                for slope in (1, -1)
            ]
        return shapes

    return draw
