"""Lays out a scene as a picture: assigns pixels to everything in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

from lowwater.viz._draw_panel import PanelDrawing
from lowwater.viz.axes import count_ticks, day_text, short_text, ticks
from lowwater.viz.marks import legend
from lowwater.viz.scene import Panel, Scene, Span
from lowwater.viz.shapes import (
    BOLD,
    Area,
    Keyframe,
    Label,
    Path,
    Picture,
    Rect,
    Shape,
    fitted,
    text_width,
)

WIDTH = 800
_MARGIN = 14.0
_LEFT, _BELOW, _ABOVE = 72.0, 40.0, 20.0
_HEIGHTS = {1: 440.0, 2: 300.0}
_HEIGHT_OF_MANY = 230.0


@final
@dataclass(frozen=True, slots=True)
class Plot:
    """The position of a panel in the picture, and the mapping from data to pixels.

    Args:
        area: In pixels.
        x: Event times from its left to its right.
        y: Processing times from its bottom to its top.
    """

    area: Area
    x: Span
    y: Span

    def across(self, value: int) -> float:
        """Return the pixel of an event time, clipped to the plot."""
        wide = self.area.right - self.area.left
        return self.area.left + wide * (self.x.clip(value) - self.x.low) / self.x.size

    def up(self, value: int) -> float:
        """Return the pixel of a processing time."""
        high = self.area.bottom - self.area.top
        return self.area.bottom - high * (self.y.clip(value) - self.y.low) / self.y.size


def lay_out(scene: Scene) -> Picture:
    """Lay out a scene as a picture 800 pixels wide. O(n log n)."""
    shapes: list[Shape] = []
    top = _head(scene, shapes)
    count = len(scene.panels)
    columns = 1 if count <= 2 else 2
    high = _HEIGHTS.get(count, _HEIGHT_OF_MANY)
    wide = (WIDTH - 2 * _MARGIN) / columns
    for at, panel in enumerate(scene.panels):
        row, column = divmod(at, columns)
        left = _MARGIN + column * wide
        above = top + row * (high + _ABOVE + _BELOW) + (_ABOVE if scene.headed else 4.0)
        area = Area(left + _LEFT, above, left + wide - 8, above + high)
        plot = Plot(area, scene.x, scene.y)
        shapes += _panel(scene, panel, plot, titled=scene.headed)
    rows = -(-count // columns)
    bottom = top + rows * (high + _ABOVE + _BELOW) + (0.0 if scene.headed else 4.0 - _ABOVE)
    for note in _notes(scene):
        shapes.append(Label(_MARGIN, bottom + 12, fitted(note, WIDTH - 28, 11), "quiet", 11))
        bottom += 16
    height = round(bottom + 8)
    paper = Rect(Area(0, 0, WIDTH, height), "paper")
    frames = keyframes(scene.frames, scene.y, steps=scene.steps)
    return Picture(WIDTH, height, (paper, *shapes), scene.title, tuple(frames))


def _head(scene: Scene, shapes: list[Shape]) -> float:
    """Append title and legend; return their bottom edge."""
    y = title_labels(scene.title, shapes)
    return legend(scene, shapes, _MARGIN, y, WIDTH - _MARGIN) + 6


def title_labels(title: str, shapes: list[Shape]) -> float:
    """Append a title; return its bottom edge."""
    y = 22.0
    for line in _wrapped(title, WIDTH - 2 * _MARGIN, 13):
        shapes.append(Label(_MARGIN, y, line, "head", 13))
        y += 17
    return y + 1


def _wrapped(text: str, width: float, size: float) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".lstrip()
        if text_width(longer, size) * BOLD <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > 3:
        lines = [*lines[:2], " ".join(lines[2:])]
    return [fitted(line, width / BOLD, size) for line in lines]


def _panel(scene: Scene, panel: Panel, plot: Plot, *, titled: bool) -> Iterator[Shape]:
    area = plot.area
    if titled:
        name = fitted(panel.name, (area.right - area.left) / BOLD, 12)
        yield Label(area.left, area.top - 6, name, "head", 12)
    yield from _grid(scene, plot)
    yield from PanelDrawing(scene, panel, plot.area, plot.across, plot.up).shapes()
    yield Rect(area, "frame")
    yield from _axis_names(scene, plot)


def _grid(scene: Scene, plot: Plot) -> Iterator[Shape]:
    area = plot.area
    for tick in ticks(scene.x, int((area.right - area.left) // 64)):
        x = plot.across(tick.at)
        yield Path(((x, area.top), (x, area.bottom)), "grid")
        yield Label(x, area.bottom + 14, tick.text, "quiet", 10.5, "middle")
    most = int((area.bottom - area.top) // 34)
    for tick in count_ticks(scene.y, most) if scene.steps else ticks(scene.y, most):
        y = plot.up(tick.at)
        yield Path(((area.left, y), (area.right, y)), "grid")
        yield Label(area.left - 6, y + 3.5, tick.text, "quiet", 10.5, "end")


def _axis_names(scene: Scene, plot: Plot) -> Iterator[Shape]:
    area = plot.area
    middle = (area.left + area.right) / 2
    yield Label(middle, area.bottom + 30, _event_name(scene, area), "text", 11.5, "middle")
    up = "step of the run" if scene.steps else "processing time"
    if not scene.steps and day_text(scene.y) != day_text(scene.x):
        up = fitted(f"{up} ({day_text(scene.y)})", area.bottom - area.top, 11.5)
    centre = (area.top + area.bottom) / 2
    yield Label(area.left - 64, centre, up, "text", 11.5, "middle", turned=True)


def _event_name(scene: Scene, area: Area) -> str:
    return fitted(f"event time ({day_text(scene.x)}, UTC)", area.right - area.left, 11.5)


def _notes(scene: Scene) -> Iterator[str]:
    yield from scene.notes
    for panel in scene.panels:
        head = f"{panel.name}: " if len(scene.panels) > 1 else ""
        yield from (f"{head}{note}" for note in panel.notes)
    if not scene.watermark:
        yield "The watermark never advanced in this run."


def keyframes(moments: Sequence[int], y: Span, *, steps: bool) -> Iterator[Keyframe]:
    """Yield the moments at which something appears, as frames of a picture."""
    for moment in moments:
        text = f"step {moment}" if steps else short_text(moment, y)
        yield Keyframe(moment, text, (moment - y.low) / y.size)
