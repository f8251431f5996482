"""Draws the marks of elements, whose shape and colour show the outcome."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from lowwater.viz.scene import Mark
from lowwater.viz.shapes import Area, Label, Path, Rect, Shape, text_width

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
