"""Draws the marks of elements, whose shape and colour show the outcome, and the legend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_never

from lowwater.viz.scene import ElementOutcome, Mark, Scene
from lowwater.viz.shapes import Area, Label, Path, Rect, Shape, text_width
from lowwater.viz.words import MINUS, outcome_text

_TEXT = 10.5


def half_width(mark: Mark, radius: float) -> float:
    """Return half the width of a mark, which depends on its text."""
    text = text_width(mark.text, _TEXT) / 2 if mark.text else 0.0
    return max(radius, text + (2 if mark.outcome in ("kept", "duplicate") else 6))


def mark_area(mark: Mark, x: float, y: float, radius: float) -> Area:
    """Return the area of a mark."""
    wide = half_width(mark, radius) + 1
    high = radius + 1 + (3 if mark.outcome in ("late", "partly late") else 0)
    return Area(x - wide, y - high, x + wide, y + high)


def mark_shapes(
    mark: Mark, x: float, y: float, radius: float, since: int | None
) -> Iterator[Shape]:
    """Draw a mark: round if kept, a diamond if late, square if a duplicate; its value inside.

    An element that was late for some windows and kept in others is round within a diamond; a
    retraction is round and dashed.
    """
    wide = half_width(mark, radius)
    title = mark.title or None
    round_one = Rect(Area(x - wide, y - radius, x + wide, y + radius), "kept", radius, since, title)
    square = Area(x - wide, y - radius, x + wide, y + radius)
    style = "text"
    match mark.outcome:
        case "late":
            style = "dropped-text"
            yield _diamond(x, y, wide + 2, radius + 3, since, title)
        case "partly late":
            yield _diamond(x, y, wide + 4, radius + 4, since, title)
            yield round_one
        case "duplicate":
            style = "duplicate-text"
            yield Rect(square, "duplicate-shape", 0, since, title)
        case "kept" if mark.retract:
            style = "duplicate-text"
            yield Rect(square, "taken-back", radius, since, title)
        case "kept":
            yield round_one
        case _:
            assert_never(mark.outcome)
    if mark.text:
        yield Label(x, y + 3.8, mark.text, style, _TEXT, "middle", since, title)


def dot_shapes(mark: Mark, x: float, y: float, since: int) -> Iterator[Shape]:
    """Draw a small mark, for hundreds of elements, with the same shapes as the large ones."""
    match mark.outcome:
        case "late" | "partly late":
            yield _diamond(x, y, 5, 5, since, mark.title, small=mark.outcome == "late")
        case "duplicate":
            yield Rect(Area(x - 3, y - 3, x + 3, y + 3), "duplicate", 0, since, mark.title)
        case "kept":
            style = "taken-back" if mark.retract else "kept-dot"
            yield Rect(Area(x - 2.5, y - 2.5, x + 2.5, y + 2.5), style, 2.5, since, mark.title)
        case _:
            assert_never(mark.outcome)


def _diamond(
    x: float, y: float, wide: float, high: float, since: int | None, title: str | None,
    *, small: bool = False,
) -> Path:  # fmt: skip
    points = ((x - wide, y), (x, y - high), (x + wide, y), (x, y + high))
    return Path(points, "dropped" if small else "dropped-shape", True, since, title)


_SIZE = 10.5
_KEY = 24.0
_BOXES = {
    "EARLY": ("early", "EARLY pane"),
    "ON_TIME": ("ontime", "ON TIME pane"),
    "LATE": ("late", "LATE pane"),
    "OPEN": ("open", "not emitted yet"),
}
_Key = Callable[[float, float], list[Shape]]


def legend(scene: Scene, shapes: list[Shape], left: float, top: float, right: float) -> float:
    """Append a legend to shapes; return its bottom edge."""
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
        yield _mark(Mark(0, 0, MINUS, "kept", "", retract=True)), "retracted element"
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
        yield _bracket, "merged windows"
    if any(panel.bands for panel in scene.panels):
        yield _box("band"), "allowed lateness"


def has_ideal(scene: Scene) -> bool:
    """Whether the line of equal event time and processing time crosses the picture."""
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
