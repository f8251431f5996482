"""The legend: what the shapes in a scene mean, only those that are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lowwater.viz.marks import mark_shapes
from lowwater.viz.scene import ElementOutcome, Mark, Scene
from lowwater.viz.shapes import Area, Label, Path, Rect, Shape, text_width
from lowwater.viz.words import MINUS, outcome_text

_SIZE = 10.5
_KEY = 24.0
_BOXES = {
    "EARLY": ("early", "EARLY pane"),
    "ON_TIME": ("ontime", "ON TIME pane"),
    "LATE": ("late", "LATE pane"),
    "OPEN": ("open", "not shown yet"),
}
_Key = Callable[[float, float], list[Shape]]


def legend(scene: Scene, shapes: list[Shape], left: float, top: float, right: float) -> float:
    """Add a legend to shapes, and return where it ends."""
    x, y = left, top + 8
    for draw, text in _entries(scene):
        wide = _KEY + 5 + text_width(text, _SIZE) + 12
        if x + wide > right and x > left:
            x, y = left, y + 19
        shapes += draw(x, y)
        shapes.append(Label(x + _KEY + 5, y + 3.5, text, "quiet", _SIZE))
        x += wide
    return y + 10


def _entries(scene: Scene) -> Iterator[tuple[_Key, str]]:
    marks = [mark for panel in scene.panels for mark in panel.marks]
    outcomes: dict[ElementOutcome, None] = dict.fromkeys(m.outcome for m in marks if not m.retract)
    for outcome in sorted(outcomes, key=["kept", "late", "partly late", "duplicate"].index):
        yield _mark(Mark(0, 0, "", outcome, "")), outcome_text(outcome)
    if any(mark.retract for mark in marks):
        yield _mark(Mark(0, 0, MINUS, "kept", "", retract=True)), "takes an element back"
    if any(panel.cells for panel in scene.panels):
        yield _box("dense", 0.45), "many elements"
    if scene.watermark:
        yield _line("watermark"), "watermark"
    if has_ideal(scene):
        yield _line("ideal"), "ideal watermark"
    kinds = dict.fromkeys(box.kind for panel in scene.panels for box in panel.boxes)
    for kind, (style, text) in _BOXES.items():
        if kind in kinds:
            yield _box(style), text
    if any(panel.retractions for panel in scene.panels):
        yield _line("retract"), "retraction"
    if any(panel.brackets for panel in scene.panels):
        yield _bracket, "windows merge"
    if any(panel.bands for panel in scene.panels):
        yield _box("band"), "allowed lateness"


def has_ideal(scene: Scene) -> bool:
    """Whether the line on which event time is processing time crosses the picture."""
    low, high = max(scene.x.low, scene.y.low), min(scene.x.high, scene.y.high)
    return not scene.steps and bool(scene.watermark) and high > low


def _mark(mark: Mark) -> _Key:
    return lambda x, y: list(mark_shapes(mark, x + _KEY / 2, y, 6.5, None))


def _line(style: str) -> _Key:
    return lambda x, y: [Path(((x, y), (x + _KEY, y)), style)]


def _box(style: str, opacity: float = 1.0) -> _Key:
    return lambda x, y: [Rect(Area(x + 2, y - 6, x + _KEY, y + 6), style, opacity=opacity)]


def _bracket(x: float, y: float) -> list[Shape]:
    points = ((x + 1, y + 4), (x + 1, y - 3), (x + _KEY - 1, y - 3), (x + _KEY - 1, y + 4))
    return [Path(points, "bracket")]
