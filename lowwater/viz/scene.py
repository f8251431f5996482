"""A scene: the content of a diagram in event time and processing time, without pixels.

A scene is computed once from the trace of a stage (:mod:`lowwater.viz.compose`); each painter shows
the same one. ``x`` is event time, ``y`` is processing time, both int64 microseconds; where the
clock hardly moves, ``y`` counts the steps of the run instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, final

ElementOutcome: TypeAlias = Literal["kept", "late", "duplicate", "partly late"]
BoxKind: TypeAlias = Literal["EARLY", "ON_TIME", "LATE", "OPEN"]


@final
@dataclass(frozen=True, slots=True)
class Span:
    """A range of an axis, both ends inclusive.

    Args:
        low: The first value.
        high: The last value, above ``low``.
    """

    low: int
    high: int

    @property
    def size(self) -> int:
        """Its length."""
        return self.high - self.low

    def clip(self, value: int) -> int:
        """Clip a value to the span."""
        return max(self.low, min(self.high, value))

    def __contains__(self, value: int) -> bool:
        return self.low <= value <= self.high


@final
@dataclass(frozen=True, slots=True)
class Mark:
    """An element: its event time, its arrival and its outcome.

    Args:
        x: Event time.
        y: Processing time.
        text: Its value, short.
        outcome: What became of it.
        title: All of it in words, and why it was dropped if it was.
        retract: Whether it takes an element back.
        reason: That and why it was dropped, in words; empty if it was not.
    """

    x: int
    y: int
    text: str
    outcome: ElementOutcome
    title: str
    retract: bool = False
    reason: str = ""


@final
@dataclass(frozen=True, slots=True)
class Box:
    """A pane: its window wide, and high from the window's previous firing to this one.

    Args:
        left: Start of the window.
        right: End of the window.
        bottom: The previous firing, or when the first element came.
        top: The firing; for ``OPEN`` the end of the run, as nothing fired yet.
        kind: The pane's timing; ``OPEN`` for what no pane has shown.
        value: The value shown, short; empty for ``OPEN``.
        index: The pane's index; -1 for ``OPEN``.
        title: All of it in words.
    """

    left: int
    right: int
    bottom: int
    top: int
    kind: BoxKind
    value: str
    index: int
    title: str

    @property
    def label(self) -> str:
        """The timing and the index as people read them: ``ON TIME #0``."""
        return "" if self.kind == "OPEN" else f"{self.kind.replace('_', ' ')} #{self.index}"


@final
@dataclass(frozen=True, slots=True)
class Retraction:
    """A retraction: the window and the values of the retracted pane."""

    left: int
    right: int
    y: int
    value: str
    title: str


@final
@dataclass(frozen=True, slots=True)
class Bracket:
    """Windows that merged.

    Args:
        left: Start of the window they became.
        right: Its end.
        y: When.
        parts: Start and end of each that merged.
        title: The same in words.
    """

    left: int
    right: int
    y: int
    parts: tuple[tuple[int, int], ...]
    title: str


@final
@dataclass(frozen=True, slots=True)
class Band:
    """Allowed lateness: a window from its completion to its expiry, or as far as the run went."""

    left: int
    right: int
    bottom: int
    top: int


@final
@dataclass(frozen=True, slots=True)
class DensityCell:
    """A cell of the plane and the number of elements in it; half-open on both axes."""

    left: int
    right: int
    bottom: int
    top: int
    count: int


@final
@dataclass(frozen=True, slots=True)
class WatermarkStep:
    """The watermark from a moment on.

    Args:
        y: Since when.
        x: Where it stands; the ends of time for "nothing known" and "all has come".
        title: The same in words, and what holds it if something does.
    """

    y: int
    x: int
    title: str


@final
@dataclass(frozen=True, slots=True)
class Panel:
    """The content of one key."""

    name: str
    marks: tuple[Mark, ...]
    cells: tuple[DensityCell, ...]
    bands: tuple[Band, ...]
    boxes: tuple[Box, ...]
    retractions: tuple[Retraction, ...]
    brackets: tuple[Bracket, ...]
    notes: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Scene:
    """The content of a diagram.

    Args:
        title: Which stage and what it does.
        x: Event times shown.
        y: Processing times shown, or steps.
        steps: Whether ``y`` counts steps, as the clock hardly moved.
        watermark: The watermark's steps, in order.
        panels: One for each key shown.
        headed: Whether each is headed by its key, as there are more keys than one.
        notes: What is not shown, in words.
    """

    title: str
    x: Span
    y: Span
    steps: bool
    watermark: tuple[WatermarkStep, ...]
    panels: tuple[Panel, ...]
    headed: bool
    notes: tuple[str, ...] = field(default=())

    @property
    def frames(self) -> tuple[int, ...]:
        """The moments at which something appears in the picture, ascending."""
        moments = {step.y for step in self.watermark if step.y > self.y.low}
        for panel in self.panels:
            moments.update(mark.y for mark in panel.marks)
            moments.update(box.top for box in panel.boxes)
            moments.update(cell.bottom for cell in panel.cells)
            moments.update(retraction.y for retraction in panel.retractions)
            moments.update(bracket.y for bracket in panel.brackets)
        return tuple(sorted({self.y.clip(moment) for moment in moments}))
