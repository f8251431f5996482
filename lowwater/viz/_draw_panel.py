"""Draws one panel: bands, boxes, the watermark, elements and labels, in this order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import final

from lowwater.viz.label_placement import Room
from lowwater.viz.marks import dot_shapes, mark_area, mark_shapes
from lowwater.viz.scene import Box, DenseKind, Mark, Panel, Retraction, Scene
from lowwater.viz.shapes import BOLD, Area, Label, Path, Rect, Shape, text_width

_STYLES = {"EARLY": "early", "ON_TIME": "ontime", "LATE": "late", "OPEN": "open"}
_BARS = 3
_DENSE: dict[DenseKind, tuple[str, str, int | None]] = {
    "kept": ("dense", "element", None),
    "dropped": ("dense-dropped", "dropped or retracted element", None),
    "EARLY": ("dense-early", "EARLY pane", 0),
    "ON_TIME": ("dense-ontime", "ON TIME pane", 1),
    "LATE": ("dense-late", "LATE pane", 2),
}
"""How cells of each kind are drawn: the style, what it counts, which bar of the cell it is."""
_MOST_LARGE = 60
"""In a panel with more elements than this, each is a dot without its value."""
_MOST_LABELS = 150
_PER_BOX = 28.0
"""Below this width per pane, labels stay inside their boxes and retractions have none."""
_RADIUS = 9.0
_VALUE, _TIMING = 13.0, 9.5
_LINE = 1.5
_SLACK = 3.0
_NARROWEST_BRACKET = 8.0
_FORM_COSTS = (0.0, 50.0, 170.0)
"""The cost of a label on one line, on two lines, and without its timing."""


@final
class PanelDrawing:
    """Draws a panel.

    Args:
        scene: What the panel is of.
        panel: The panel.
        area: Its place, in pixels.
        across: The pixel of an event time.
        up: The pixel of a processing time.
    """

    def __init__(
        self,
        scene: Scene,
        panel: Panel,
        area: Area,
        across: Callable[[int], float],
        up: Callable[[int], float],
    ) -> None:
        self._scene, self._panel, self._area = scene, panel, area
        self._across, self._up = across, up
        self._room = Room(Area(area.left + 1, area.top + 1, area.right - 1, area.bottom - 1))
        self._few = len(panel.boxes) * _PER_BOX <= area.right - area.left

    def shapes(self) -> Iterator[Shape]:
        """Yield the shapes from back to front."""
        yield from self._bands()
        yield from self._cells()
        yield from self._boxes()
        yield from self._ideal()
        yield from self._watermark()
        area = self._area
        yield Rect(
            Area(area.left, area.top, area.right, area.top), "cover",
            covers=area.bottom - area.top,
        )  # fmt: skip
        yield from self._brackets()
        yield from self._retraction_lines()
        marks = list(self._marks())
        if sum(len(part) for part in (self._panel.boxes, self._panel.retractions)) <= _MOST_LABELS:
            for box in sorted(self._panel.boxes, key=lambda box: box.top - box.bottom):
                yield from self._box_label(box)
            for retraction in self._panel.retractions if self._few else ():
                yield from self._retraction_label(retraction)
        yield from marks

    # -- what lies behind --------------------------------------------------------------------

    def _bands(self) -> Iterator[Shape]:
        for band in self._panel.bands:
            yield Rect(self._place(band.left, band.right, band.bottom, band.top), "band")

    def _cells(self) -> Iterator[Shape]:
        most: dict[str, int] = {}
        for cell in self._panel.cells:
            most[cell.kind] = max(most.get(cell.kind, 1), cell.count)
        for cell in self._panel.cells:
            style, what, share = _DENSE[cell.kind]
            area = self._place(cell.left, cell.right, cell.bottom, cell.top)
            if share is not None:  # panes: a bar in the cell, beside those of other timings
                wide = (area.right - area.left) / _BARS
                left = area.left + share * wide
                area = Area(left, area.top, left + wide, area.bottom)
            yield Rect(
                area, style, since=self._scene.y.clip(cell.bottom),
                title=f"{cell.count:,} {what}{'' if cell.count == 1 else 's'}",
                opacity=0.12 + 0.6 * (cell.count / most[cell.kind]) ** 0.5,
            )  # fmt: skip

    def _boxes(self) -> Iterator[Shape]:
        for box in self._panel.boxes:
            area = self._place(box.left, box.right, box.bottom, box.top)
            if area.bottom - area.top < 2:
                area = Area(area.left, area.top, area.right, area.top + 2)
            yield Rect(area, _STYLES[box.kind], title=box.title)
            if box.kind != "OPEN":
                self._room.avoid(Area(area.left, area.top - _LINE, area.right, area.top + _LINE))

    def _ideal(self) -> Iterator[Shape]:
        x, y = self._scene.x, self._scene.y
        if has_ideal(self._scene):
            low, high = max(x.low, y.low), min(x.high, y.high)
            ends = tuple((self._across(at), self._up(at)) for at in (low, high))
            title = "ideal watermark: no delay between event time and processing time"
            yield Path(ends, "ideal", title=title)

    def _watermark(self) -> Iterator[Shape]:
        steps = self._scene.watermark
        y_span = self._scene.y
        x_before: float | None = None
        for at, step in enumerate(steps):
            above = steps[at + 1].y if at + 1 < len(steps) else y_span.high
            if above < y_span.low:
                continue
            x, y = self._across(step.x), self._up(step.y)
            # Before the first step nothing is known: the line comes in from the left.
            if x_before is None:
                x_before = x if step.y <= y_span.low else self._across(self._scene.x.low)
            begin = x_before
            x_before = x
            points = [] if step.y < y_span.low else [(begin, y)]
            points += [(x, y), (x, self._up(above))]
            # Without a known value, or beyond the picture, there is no line to draw upwards.
            if step.x not in self._scene.x:
                points.pop()
            for one, two in pairwise(points):
                self._room.avoid(_around(one, two))
            if len(points) > 1 and len(set(points)) > 1:
                yield Path(tuple(points), "watermark", title=step.title)

    # -- what lies before --------------------------------------------------------------------

    def _brackets(self) -> Iterator[Shape]:
        for bracket in self._panel.brackets:
            y = self._up(bracket.y)
            since = self._scene.y.clip(bracket.y)
            left, right = self._across(bracket.left), self._across(bracket.right)
            if right - left < _NARROWEST_BRACKET:
                continue
            points = ((left, y + 5), (left, y - 2), (right, y - 2), (right, y + 5))
            yield Path(points, "bracket", since=since, title=bracket.title)
            for at, (start, end) in enumerate(bracket.parts):
                low = y + 3 + 3 * (at % 2)
                ends = ((self._across(start) + 2, low), (self._across(end) - 2, low))
                yield Path(ends, "merged", since=since, title=bracket.title)
            self._room.avoid(Area(left, y - 3, right, y + 9))

    def _retraction_lines(self) -> Iterator[Shape]:
        for retraction in self._panel.retractions:
            y = self._up(retraction.y) + 3.5
            ends = ((self._across(retraction.left) + 2, y), (self._across(retraction.right) - 2, y))
            since = self._scene.y.clip(retraction.y)
            yield Path(ends, "retract", since=since, title=retraction.title)

    def _marks(self) -> Iterator[Shape]:
        large = len(self._panel.marks) <= _MOST_LARGE and not self._panel.cells
        placed: list[list[float]] = []  # of each large one: left, right, middle; dots beside it
        for mark in self._panel.marks:
            x, y = self._across(mark.x), self._up(mark.y)
            area = mark_area(mark, x, y, _RADIUS)
            if large and self._room.is_free(area):
                self._room.take(area)
                placed.append([area.left, area.right, y])
                yield from mark_shapes(mark, x, y, _RADIUS, mark.y)
            else:
                for sign in placed:
                    # Where a value is written already, the dot stands beside it.
                    if sign[0] < x + 3 and x - 3 < sign[1] and abs(sign[2] - y) < _RADIUS:
                        x = sign[1] + 3
                        sign[1] += 7
                self._room.take(Area(x - 4, y - 4, x + 4, y + 4))
                yield from dot_shapes(mark, x, y, mark.y)
            yield from self._beyond(mark, x, y)

    def _beyond(self, mark: Mark, x: float, y: float) -> Iterator[Shape]:
        """Yield an arrow next to an element outside the picture."""
        if mark.x not in self._scene.x:
            side = 1 if mark.x < self._scene.x.low else -1
            tip = x + side * 1.5
            points = ((tip, y - 15), (tip + side * 6, y - 19), (tip + side * 6, y - 11))
            yield Path(points, "dropped", True, mark.y, mark.title)

    # -- labels ------------------------------------------------------------------------------

    def _box_label(self, box: Box) -> Iterator[Shape]:
        if box.kind == "OPEN":
            return
        area = self._place(box.left, box.right, box.bottom, box.top)
        value, timing = text_width(box.value, _VALUE) * BOLD, text_width(box.label, _TIMING)
        sizes = [(value + 5 + timing, 15.0), (max(value, timing), 26.0), (value, 13.0)]
        found = [
            (cost + _FORM_COSTS[form], place, form)
            for form, (wide, high) in enumerate(sizes)
            for cost, place in _places(area, wide, high, outside=self._few)
        ]
        chosen = self._room.place((cost, place) for cost, place, _ in found)
        if chosen is None:
            return
        _, place, form = found[chosen]
        yield Rect(place, "plate", 3, box.top, box.title)
        y = place.top + 12
        yield Label(place.left, y, box.value, "value", _VALUE, "start", box.top, box.title)
        if form == 0:
            x = place.left + value + 5
            yield Label(x, y, box.label, "timing", _TIMING, "start", box.top, box.title)
        elif form == 1:
            yield Label(
                place.left, y + 11.5, box.label, "timing", _TIMING, "start", box.top, box.title
            )

    def _retraction_label(self, retraction: Retraction) -> Iterator[Shape]:
        y = self._up(retraction.y)
        area = Area(self._across(retraction.left), y, self._across(retraction.right), y + 22)
        wide = text_width(retraction.value, 11.5) * BOLD
        # Above its line it would be read as the next firing's.
        found = [
            (cost + (300 if place.top < y else 0), place)
            for cost, place in _places(area, wide, 14, outside=True)
        ]
        chosen = self._room.place(found)
        if chosen is not None:
            _, place = found[chosen]
            yield Rect(place, "plate", 3, retraction.y, retraction.title)
            yield Label(
                place.left, place.top + 11, retraction.value, "retract-text", 11.5, "start",
                retraction.y, retraction.title,
            )  # fmt: skip

    def _place(self, left: int, right: int, bottom: int, top: int) -> Area:
        return Area(self._across(left), self._up(top), self._across(right), self._up(bottom))


def _places(box: Area, wide: float, high: float, *, outside: bool) -> Iterator[tuple[float, Area]]:
    """Yield places for a label of a box and what each costs, the best first.

    Best is below the box's upper edge, on the left; then lower in it; then, if it may be outside,
    above it and below it.
    """
    inner = box.right - box.left - 8
    # A label wider than its box would be read as its neighbour's: each pixel too many costs.
    over = max(0.0, wide - inner)
    right, middle = box.right - 4 - wide, box.left + 4 + (inner - wide) / 2
    lefts = ((4 * over, box.left + 4), (8 + 4 * over, right), (12 + 4 * over, middle))
    tops = [(3.0, box.top + 3)]
    room = box.bottom - box.top - high - 4
    tops += [(10.0 + 0.4 * down, box.top + 3 + down) for down in range(6, int(room), 6)]
    if outside:
        tops += [(45.0 + 2 * above, box.top - 3 - high - above) for above in range(0, 31, 6)]
        tops += [(120.0 + 3 * below, box.bottom + 3 + below) for below in range(0, 19, 6)]
    for across, left in lefts:
        for cost, top in tops:
            too_low = max(0.0, top + high - box.bottom) if top >= box.top else 0.0
            if outside or (too_low <= _SLACK and over <= 0):
                yield across + cost + 4 * too_low, Area(left, top, left + wide, top + high)


def _around(one: tuple[float, float], two: tuple[float, float]) -> Area:
    (a, b), (c, d) = one, two
    return Area(min(a, c) - _LINE, min(b, d) - _LINE, max(a, c) + _LINE, max(b, d) + _LINE)


def has_ideal(scene: Scene) -> bool:
    """Whether the line of equal event time and processing time crosses the picture."""
    low, high = max(scene.x.low, scene.y.low), min(scene.x.high, scene.y.high)
    return not scene.steps and bool(scene.watermark) and high > low
