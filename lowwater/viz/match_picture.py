"""Lays out the scene of a stage of ``match``: a line of rows for each key, and arcs above it."""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, pi, sin
from typing import final

from lowwater.viz.axes import day_text, ticks
from lowwater.viz.label_placement import Room
from lowwater.viz.legend import KEY_WIDTH, Key, in_order, legend, line_key, mark_key
from lowwater.viz.marks import dot_shapes, mark_area, mark_shapes
from lowwater.viz.match_scene import Arc, MatchPanel, MatchScene
from lowwater.viz.plot import MARGIN, WIDTH, Plot, picture_of, title_labels
from lowwater.viz.scene import Mark
from lowwater.viz.shapes import BOLD, Area, Label, Path, Picture, Rect, Shape, fitted
from lowwater.viz.words import outcome_text

_LOW, _LEVEL, _MOST_LEVELS = 26.0, 15.0, 8
"""How high the lowest arc is, and each above it; of the highest ones, all are as high."""
_RADIUS, _UNDER, _BELOW = 9.0, 15.0, 22.0
_POINTS = 24


def lay_out_matches(scene: MatchScene) -> Picture:
    """Lay out the scene of a stage of ``match`` as a picture 800 pixels wide. O(n log n)."""
    shapes: list[Shape] = []
    top = legend(_entries(scene), shapes, title_labels(scene.title, shapes)) + 6
    for panel in scene.panels:
        levels = min(_MOST_LEVELS, max((arc.level for arc in panel.arcs), default=0) + 1)
        top += 20
        line = top + _LOW + levels * _LEVEL
        area = Area(MARGIN + 8, top, WIDTH - MARGIN - 8, line + _BELOW)
        plot = Plot(area, scene.x, scene.y, scene.steps)
        shapes += _PanelDrawing(scene, panel, plot, line).shapes()
        top = area.bottom + 18
    if scene.panels:
        text = fitted(f"event time ({day_text(scene.x)}, UTC)", WIDTH - 2 * MARGIN, 11.5)
        shapes.append(Label(WIDTH / 2, top + 12, text, "text", 11.5, "middle"))
    return picture_of(scene, shapes, top + 16, 12)


@final
class _PanelDrawing:
    """Draws the line of a key."""

    def __init__(self, scene: MatchScene, panel: MatchPanel, plot: Plot, line: float) -> None:
        self._scene, self._panel, self._plot, self._line = scene, panel, plot, line

    def shapes(self) -> Iterator[Shape]:
        """Yield the shapes from back to front."""
        area, line = self._plot.area, self._line
        for tick in ticks(self._plot.x, int((area.right - area.left) // 64)):
            x = self._plot.across(tick.at)
            yield Path(((x, area.top), (x, area.bottom)), "grid")
            yield Label(x, area.bottom + 13, tick.text, "quiet", 10.5, "middle")
        yield Path(((area.left, line), (area.right, line)), "merged")
        for arc in self._panel.arcs:
            points = self._points(arc)
            yield Path(points, "pair", False, arc.y, arc.title)
            if arc.retracted is not None:
                yield Path(points, "erased", False, arc.retracted, arc.title)
                yield Path(points, "retract", False, arc.retracted, arc.title)
        yield from self._rows()
        if self._scene.headed:
            name = fitted(self._panel.name, (area.right - area.left) / BOLD, 11.5)
            yield Label(area.left, area.top - 5, name, "head", 11.5)

    def _points(self, arc: Arc) -> tuple[tuple[float, float], ...]:
        """Return an arc as a line: half an ellipse."""
        left, right = self._plot.across(arc.left), self._plot.across(arc.right)
        middle, half = (left + right) / 2, max(6.0, (right - left) / 2)
        high = _LOW + min(arc.level, _MOST_LEVELS - 1) * _LEVEL
        angles = (pi * at / _POINTS for at in range(_POINTS + 1))
        return tuple((middle - half * cos(a), self._line - high * sin(a)) for a in angles)

    def _rows(self) -> Iterator[Shape]:
        """Yield the rows: with their variable where there is room, else as dots."""
        area, line = self._plot.area, self._line
        room = Room(Area(area.left - 40, area.top - 20, area.right + 40, area.bottom + 20))
        for row in self._panel.rows:
            mark, x = row.mark, self._plot.across(row.mark.x)
            place = mark_area(mark, x, line, _RADIUS)
            is_plain = not mark.text and mark.outcome == "kept" and not mark.retract
            is_large = not is_plain and room.is_free(place)
            # A dot stands below the line where a larger row is in its place.
            is_hidden = not is_large and not room.is_free(Area(x - 1, line - 1, x + 1, line + 1))
            if row.corrects:
                title = f"it corrected a match\n{mark.title}"
                yield from _sign(x, line + _UNDER, mark.y, title)
            if is_large:
                room.take(place)
                yield from mark_shapes(mark, x, line, _RADIUS, mark.y)
            else:
                yield from dot_shapes(mark, x, line + _UNDER * is_hidden, mark.y)


def _sign(x: float, y: float, since: int | None, title: str | None) -> Iterator[Shape]:
    """Yield the sign of a row that corrected a match: a small hollow square below it."""
    yield Rect(Area(x - 4, y - 4, x + 4, y + 4), "alone-shape", 1.5, since, title)


def _entries(scene: MatchScene) -> Iterator[tuple[Key, str]]:
    rows = [row for panel in scene.panels for row in panel.rows]
    for outcome in in_order(row.mark.outcome for row in rows):
        text = "row" if outcome == "kept" else outcome_text(outcome)
        yield mark_key(Mark(0, 0, "", outcome, "")), text
    arcs = [arc for panel in scene.panels for arc in panel.arcs]
    if arcs:
        yield line_key("pair"), "match"
    if any(arc.retracted is not None for arc in arcs):
        yield line_key("retract"), "retracted match"
    if any(row.corrects for row in rows):
        yield (
            lambda x, y: list(_sign(x + KEY_WIDTH / 2, y, None, None)),
            "row that corrected a match",
        )
