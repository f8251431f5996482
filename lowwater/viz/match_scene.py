"""The scene of a stage of ``match``: the rows of each key on a line, and its matches as arcs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from lowwater.viz.scene import Mark, Span, WatermarkStep


@final
@dataclass(frozen=True, slots=True)
class RowMark:
    """A row on the line of its key.

    Args:
        mark: The row; its text is the variable that it stands for, empty without one.
        corrects: Whether its arrival changed a match that was emitted before.
    """

    mark: Mark
    corrects: bool = False


@final
@dataclass(frozen=True, slots=True)
class Arc:
    """A match: an arc from its first row to its last.

    Args:
        left: The event time of its first row.
        right: That of its last row.
        y: When it was emitted.
        retracted: When it was retracted; ``None`` if it stands.
        level: How high it is drawn, from 0: arcs that overlap differ.
        variables: The variables of its rows, in the form of a pattern.
        title: A description.
    """

    left: int
    right: int
    y: int
    retracted: int | None
    level: int
    variables: str
    title: str


@final
@dataclass(frozen=True, slots=True)
class MatchPanel:
    """The content of one key."""

    name: str
    rows: tuple[RowMark, ...]
    arcs: tuple[Arc, ...]
    notes: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class MatchScene:
    """The content of the diagram of a stage of ``match``.

    Args:
        title: The stage and its pattern.
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
    panels: tuple[MatchPanel, ...]
    headed: bool
    notes: tuple[str, ...] = field(default=())

    @property
    def frames(self) -> tuple[int, ...]:
        """The moments at which something appears in the picture, ascending."""
        moments: set[int] = set()
        for panel in self.panels:
            moments.update(row.mark.y for row in panel.rows)
            moments.update(arc.y for arc in panel.arcs)
            moments.update(arc.retracted for arc in panel.arcs if arc.retracted is not None)
        return tuple(sorted({self.y.clip(moment) for moment in moments}))
