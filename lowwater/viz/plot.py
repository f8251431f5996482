"""What pictures share: where data stands in pixels, grids, the names of axes, title and notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

from lowwater.viz.axes import Tick, count_ticks, day_text, short_text, ticks
from lowwater.viz.join_scene import AnyScene
from lowwater.viz.scene import Span
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
MARGIN = 14.0
_ROOM = 50.0
"""How wide the name of a time may be between the name of the axis and the plot."""


@final
@dataclass(frozen=True, slots=True)
class Plot:
    """The position of a panel in the picture, and the mapping from data to pixels.

    Args:
        area: In pixels.
        x: Event times from its left to its right.
        y: Processing times from its bottom to its top.
        steps: Whether these are steps of the run.
        counts: What they are otherwise called.
    """

    area: Area
    x: Span
    y: Span
    steps: bool
    counts: str = "step of the run"

    def across(self, value: int) -> float:
        """Return the pixel of an event time, clipped to the plot."""
        wide = self.area.right - self.area.left
        return self.area.left + wide * (self.x.clip(value) - self.x.low) / self.x.size

    def up(self, value: int) -> float:
        """Return the pixel of a processing time."""
        high = self.area.bottom - self.area.top
        return self.area.bottom - high * (self.y.clip(value) - self.y.low) / self.y.size

    def grid(self, *, labelled: bool = True) -> Iterator[Shape]:
        """Yield lines at round times, and what these are called.

        Args:
            labelled: Whether event times are named below.
        """
        area = self.area
        for tick in ticks(self.x, int((area.right - area.left) // 64)):
            x = self.across(tick.at)
            yield Path(((x, area.top), (x, area.bottom)), "grid")
            if labelled:
                yield Label(x, area.bottom + 14, tick.text, "quiet", 10.5, "middle")
        _, named = self.named_upwards()
        for tick in named:
            y = self.up(tick.at)
            yield Path(((area.left, y), (area.right, y)), "grid")
            yield Label(area.left - 6, y + 3.5, tick.text, "quiet", 10.5, "end")

    def named_upwards(self) -> tuple[str, Sequence[Tick]]:
        """Return round times of the run, without the hour and minute that wide ones all have."""
        most = int((self.area.bottom - self.area.top) // 34)
        if self.steps:
            return "", count_ticks(self.y, most)
        found = ticks(self.y, most)
        if all(text_width(tick.text, 10.5) <= _ROOM for tick in found):
            return "", found
        for size in (6, 3):  # "12:34:56.789"
            shared = {tick.text[:size] for tick in found}
            if len(shared) == 1 and (start := shared.pop()).endswith(":"):
                return start[:-1], [Tick(tick.at, tick.text[size:]) for tick in found]
        return "", found


def axis_names(upper: Plot, lower: Plot) -> Iterator[Shape]:
    """Yield the names of both axes, for plots one above the other, or for one plot."""
    left, right, top, bottom = (
        lower.area.left, lower.area.right, upper.area.top, lower.area.bottom,
    )  # fmt: skip
    text = fitted(f"event time ({day_text(lower.x)}, UTC)", right - left, 11.5)
    yield Label((left + right) / 2, bottom + 30, text, "text", 11.5, "middle")
    up = lower.counts if lower.steps else "processing time"
    day = day_text(lower.y)
    when = [day] if not lower.steps and day != day_text(lower.x) else []
    when += [start] if (start := lower.named_upwards()[0]) else []
    if when:
        up = fitted(f"{up} ({', '.join(when)})", bottom - top, 11.5)
    yield Label(left - 64, (top + bottom) / 2, up, "text", 11.5, "middle", turned=True)


def title_labels(title: str, shapes: list[Shape]) -> float:
    """Append a title; return its bottom edge."""
    y = 22.0
    for line in _wrapped(title, WIDTH - 2 * MARGIN, 13):
        shapes.append(Label(MARGIN, y, line, "head", 13))
        y += 17
    return y + 1


def picture_of(scene: AnyScene, shapes: Sequence[Shape], bottom: float, gap: float) -> Picture:
    """Return the whole picture, with the notes of a scene below its panels.

    Args:
        scene: The scene.
        shapes: Its title, legend and panels.
        bottom: Where these end.
        gap: How far below that the first note stands.
    """
    notes: list[Shape] = []
    for note in _notes(scene):
        notes.append(Label(MARGIN, bottom + gap, fitted(note, WIDTH - 28, 11), "quiet", 11))
        bottom += 16
    height = round(bottom + 8)
    paper = Rect(Area(0, 0, WIDTH, height), "paper")
    return Picture(
        WIDTH, height, (paper, *shapes, *notes), scene.title, tuple(_keyframes(scene))
    )  # fmt: skip


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


def _notes(scene: AnyScene) -> Iterator[str]:
    yield from scene.notes
    for panel in scene.panels:
        head = f"{panel.name}: " if len(scene.panels) > 1 else ""
        yield from (f"{head}{note}" for note in panel.notes)
    if not scene.watermark:
        yield "The watermark never advanced in this run."


def _keyframes(scene: AnyScene) -> Iterator[Keyframe]:
    """Yield the moments at which something appears, as frames of a picture."""
    y = scene.y
    for moment in scene.frames:
        text = f"step {moment}" if scene.steps else short_text(moment, y)
        yield Keyframe(moment, text, (moment - y.low) / y.size)
