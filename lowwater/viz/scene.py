"""A scene: the content of a diagram in event time and processing time, without pixels.

A scene is computed once from the trace of a stage (:mod:`lowwater.viz.compose`), and all renderers
draw the same one. ``x`` is event time, ``y`` is processing time, both int64 microseconds; if the
clock hardly moves, ``y`` counts the steps of the run instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, final

from lowwater.time import END_OF_TIME, START_OF_TIME

ElementOutcome: TypeAlias = Literal["kept", "late", "duplicate", "partly late"]
BoxKind: TypeAlias = Literal["EARLY", "ON_TIME", "LATE", "OPEN"]
DenseKind: TypeAlias = Literal["kept", "dropped", "EARLY", "ON_TIME", "LATE"]
"""Kept elements, dropped and retracted ones, or panes by timing."""


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

    @classmethod
    def airy(cls, low: int, high: int, parts: int) -> Span:
        """Return a range with some air at either end: one part in so many."""
        air = max(1, (high - low) // parts)
        return cls(max(START_OF_TIME + 1, low - air), min(END_OF_TIME - 1, high + air))

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
        outcome: Whether it was kept or dropped.
        title: A description, with the reason if it was dropped.
        retract: Whether it is a retraction.
        reason: Why it was dropped, in words; empty if it was not.
        place: Its index among the elements of the trace; -1 if that is not known.
    """

    x: int
    y: int
    text: str
    outcome: ElementOutcome
    title: str
    retract: bool = False
    reason: str = ""
    place: int = -1


@final
@dataclass(frozen=True, slots=True)
class Box:
    """A pane: as wide as its window, from the window's previous firing up to this one.

    Args:
        left: Start of the window.
        right: End of the window.
        bottom: The previous firing, or the arrival of the first element.
        top: The firing; for ``OPEN`` the end of the run.
        kind: The pane's timing; ``OPEN`` for elements that no pane has emitted.
        value: The emitted value, shortened; empty for ``OPEN``.
        index: The pane's index; -1 for ``OPEN``.
        title: A description.
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
        """The timing and the index in readable form: ``ON TIME #0``."""
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
        left: Start of the resulting window.
        right: Its end.
        y: The time of the merge.
        parts: Start and end of each window that merged.
        title: A description.
    """

    left: int
    right: int
    y: int
    parts: tuple[tuple[int, int], ...]
    title: str


@final
@dataclass(frozen=True, slots=True)
class Band:
    """Allowed lateness: a window from its completion to its expiry, or to the end of the run."""

    left: int
    right: int
    bottom: int
    top: int


@final
@dataclass(frozen=True, slots=True)
class DensityCell:
    """A cell of the plane and the number of elements or panes in it; half-open on both axes.

    An element is at its event time and arrival, a pane at the end of its window and its firing.
    """

    left: int
    right: int
    bottom: int
    top: int
    count: int
    kind: DenseKind = "kept"


@final
@dataclass(frozen=True, slots=True)
class WatermarkStep:
    """The watermark from a moment on.

    Args:
        y: The moment.
        x: The watermark; the ends of time mean that it is unknown or that all input has arrived.
        title: A description, with what holds the watermark.
    """

    y: int
    x: int
    title: str


@final
@dataclass(frozen=True, slots=True)
class Panel:
    """The content of one key; ``key`` is the key itself."""

    name: str
    marks: tuple[Mark, ...]
    cells: tuple[DensityCell, ...]
    bands: tuple[Band, ...]
    boxes: tuple[Box, ...]
    retractions: tuple[Retraction, ...]
    brackets: tuple[Bracket, ...]
    notes: tuple[str, ...] = ()
    key: Any = None


@final
@dataclass(frozen=True, slots=True)
class Scene:
    """The content of a diagram.

    Args:
        title: The stage and its windowing.
        x: The range of event times.
        y: The range of processing times, or of steps.
        steps: Whether ``y`` counts steps, because the clock hardly moved.
        watermark: The watermark's steps, in order.
        panels: One for each key that is drawn.
        headed: Whether each panel has its key as a heading: if there are several keys.
        notes: What is left out, in words.
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
