"""Lays out a scene as a picture: assigns pixels to everything in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from lowwater.viz._draw_panel import PanelDrawing, has_ideal
from lowwater.viz.legend import KEY_WIDTH, Key, in_order, legend, line_key, mark_key
from lowwater.viz.plot import MARGIN, WIDTH, Plot, axis_names, picture_of, title_labels
from lowwater.viz.scene import DenseKind, Mark, Panel, Scene
from lowwater.viz.shapes import BOLD, Area, Label, Path, Picture, Rect, Shape, fitted
from lowwater.viz.words import MINUS, outcome_text

_LEFT, _BELOW, _ABOVE = 72.0, 40.0, 20.0
_HEIGHTS = {1: 440.0, 2: 300.0}
_HEIGHT_OF_MANY = 230.0
_BOXES = {
    "EARLY": ("early", "EARLY pane"),
    "ON_TIME": ("ontime", "ON TIME pane"),
    "LATE": ("late", "LATE pane"),
    "OPEN": ("open", "not emitted yet"),
}
_DENSE: tuple[tuple[frozenset[DenseKind], str, str], ...] = (
    (frozenset({"kept"}), "dense", "many elements"),
    (frozenset({"dropped"}), "dense-dropped", "many dropped"),
    (frozenset({"EARLY", "ON_TIME", "LATE"}), "dense-ontime", "many panes"),
)
"""Kinds of density, and how the legend names them."""


def lay_out(scene: Scene) -> Picture:
    """Lay out a scene as a picture 800 pixels wide. O(n log n)."""
    shapes: list[Shape] = []
    top = legend(_entries(scene), shapes, title_labels(scene.title, shapes)) + 6
    count = len(scene.panels)
    columns = 1 if count <= 2 else 2
    high = _HEIGHTS.get(count, _HEIGHT_OF_MANY)
    wide = (WIDTH - 2 * MARGIN) / columns
    for at, panel in enumerate(scene.panels):
        row, column = divmod(at, columns)
        left = MARGIN + column * wide
        above = top + row * (high + _ABOVE + _BELOW) + (_ABOVE if scene.headed else 4.0)
        area = Area(left + _LEFT, above, left + wide - 8, above + high)
        shapes += _panel(scene, panel, Plot(area, scene.x, scene.y, scene.steps))
    rows = -(-count // columns)
    bottom = top + rows * (high + _ABOVE + _BELOW) + (0.0 if scene.headed else 4.0 - _ABOVE)
    return picture_of(scene, shapes, bottom, 12)


def lay_out_panel(scene: Scene, height: int) -> Picture:
    """Lay out the only panel of a scene, without title, legend and notes: a frame of several.

    Args:
        scene: The scene.
        height: The height of the picture, in pixels.
    """
    area = Area(MARGIN + _LEFT, 6, WIDTH - MARGIN - 8, height - _BELOW)
    plot = Plot(area, scene.x, scene.y, scene.steps, "records that have arrived")
    scene = replace(scene, headed=False)  # a heading has no room above the area
    shapes = (shape for panel in scene.panels for shape in _panel(scene, panel, plot))
    return Picture(WIDTH, height, tuple(map(_with_short_title, shapes)), scene.title)


def _with_short_title(shape: Shape) -> Shape:
    """Return a shape with the two lines of its title that say what it is, not when it came.

    Labels and what lies below them have none: the boxes that they are in have the same.
    """
    if shape.title is None:
        return shape
    is_label = isinstance(shape, Label) or shape.style == "plate"
    return replace(shape, title=None if is_label else "\n".join(shape.title.split("\n")[:2]))


def legend_of(scenes: Iterable[Scene]) -> Picture:
    """Lay out the legend of several pictures."""
    entries: dict[str, Key] = {}
    for scene in scenes:
        for key, text in _entries(scene):
            entries.setdefault(text, key)
    shapes: list[Shape] = []
    bottom = legend(((key, text) for text, key in entries.items()), shapes, 0)
    return Picture(WIDTH, round(bottom), tuple(shapes), "legend")


def _panel(scene: Scene, panel: Panel, plot: Plot) -> Iterator[Shape]:
    area = plot.area
    if scene.headed:
        name = fitted(panel.name, (area.right - area.left) / BOLD, 12)
        yield Label(area.left, area.top - 6, name, "head", 12)
    yield from plot.grid()
    yield from PanelDrawing(scene, panel, plot.area, plot.across, plot.up).shapes()
    yield Rect(area, "frame")
    yield from axis_names(plot, plot)


def _entries(scene: Scene) -> Iterator[tuple[Key, str]]:
    marks = [mark for panel in scene.panels for mark in panel.marks]
    for outcome in in_order(mark.outcome for mark in marks if not mark.retract):
        yield mark_key(Mark(0, 0, "", outcome, "")), outcome_text(outcome)
    if any(mark.retract for mark in marks):
        yield mark_key(Mark(0, 0, MINUS, "kept", "", retract=True)), "retracted element"
    dense = {cell.kind for panel in scene.panels for cell in panel.cells}
    for cells, style, text in _DENSE:
        if cells & dense:
            yield _box(style, 0.45), text
    if scene.watermark:
        yield line_key("watermark"), "watermark"
    if has_ideal(scene):
        yield line_key("ideal"), "ideal watermark"
    kinds = dict.fromkeys(box.kind for panel in scene.panels for box in panel.boxes)
    for kind, (style, text) in _BOXES.items():
        if kind in kinds:
            yield _box(style), text
    if any(panel.retractions for panel in scene.panels):
        yield line_key("retract"), "retraction"
    if any(panel.brackets for panel in scene.panels):
        yield _bracket, "merged windows"
    if any(panel.bands for panel in scene.panels):
        yield _box("band"), "allowed lateness"


def _box(style: str, opacity: float = 1.0) -> Key:
    return lambda x, y: [Rect(Area(x + 2, y - 6, x + KEY_WIDTH, y + 6), style, opacity=opacity)]


def _bracket(x: float, y: float) -> list[Shape]:
    points = (
        (x + 1, y + 4),
        (x + 1, y - 3),
        (x + KEY_WIDTH - 1, y - 3),
        (x + KEY_WIDTH - 1, y + 4),
    )
    return [Path(points, "bracket")]
