"""Renders a scene as a text timeline in plain ASCII, for terminals and test failures.

There is a line for each moment with an event, the first on top, and event time runs to the right::

    12:05:19  |  (5)      |           |
    12:06:00  |===========W           |           [12:00, 12:02) 5 ON TIME #0

Only keys and values may contain other characters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never, final

from lowwater.time import END_OF_TIME
from lowwater.viz.axes import short_text
from lowwater.viz.scene import (
    Box,
    Bracket,
    DensityCell,
    Mark,
    Panel,
    Retraction,
    Scene,
    WatermarkStep,
)
from lowwater.viz.text_axis import TextAxis, text_page
from lowwater.viz.words import endless

_FILL = {"EARLY": "-", "ON_TIME": "=", "LATE": "~", "OPEN": " "}
_MEANS = {
    "kept": "(v) element",
    "late": "<v> late, dropped",
    "duplicate": "{v} duplicate, dropped",
    "partly late": "(v> late for some of its windows",
}
_DENSE, _DROPPED = ".:*#", "<"
_SPARSE = 3
_Happening = Mark | Box | Retraction | Bracket | DensityCell | WatermarkStep


def to_text(scene: Scene, *, width: int = 100, rows: int = 60) -> str:
    """Render a scene as lines of text. O(size of the scene · width).

    Args:
        scene: The scene.
        width: Characters per line; long notes on the right may exceed it.
        rows: The most moments per key; moments in the middle are left out.

    Raises:
        InvalidArgument: There is no room for a timeline.
    """
    return text_page(
        scene,
        lambda: (_Timeline(scene, panel, width, rows).lines() for panel in scene.panels),
        _legend(scene), width, rows,
    )  # fmt: skip


@final
class _Timeline:
    """Renders one panel."""

    def __init__(self, scene: Scene, panel: Panel, width: int, rows: int) -> None:
        self._scene, self._panel, self._rows = scene, panel, rows
        self._moments: dict[int, list[_Happening]] = {}
        for moment, happening in _happenings(scene, panel):
            self._moments.setdefault(moment, []).append(happening)
        self._axis = axis = TextAxis.of(scene, self._moments, width)
        self._watermarks: dict[int, int | None] = {}
        watermark: int | None = None
        for at in sorted(self._moments):
            for happening in self._moments[at]:
                if isinstance(happening, WatermarkStep):
                    watermark = happening.x
            self._watermarks[at] = watermark
        self._edges = {
            axis.column(edge)
            for box in panel.boxes
            for edge in (box.left, box.right)
            if edge in scene.x
        }
        if len(self._edges) > axis.columns // _SPARSE:
            self._edges = set()  # they would be a wall, not marks on a scale

    def lines(self) -> Iterator[str]:
        return self._axis.lines(self._panel, sorted(self._moments), self._rows, self._moment)

    def _moment(self, at: int) -> Iterator[str]:
        axis, watermark = self._axis, self._watermarks[at]
        row = ["|" if column in self._edges else " " for column in range(axis.columns + 1)]
        notes: list[str] = []
        moved = False
        happenings = self._moments[at]
        for happening in happenings:
            match happening:
                case DensityCell():
                    row[axis.column(happening.left)] = self._dense(happening)
                case Box():
                    self._fill(row, happening)
                    notes.append(f"{self._window(happening)} {happening.value} {happening.label}")
                case Retraction():
                    notes.append(f"{self._window(happening)} {happening.value} retracted")
                case Bracket():
                    many = len(happening.parts)
                    notes.append(f"{many} windows merged into {self._window(happening)}")
                case WatermarkStep():
                    moved = True
                case Mark():
                    if happening.reason:
                        notes.append(f"{happening.text} {happening.reason}".strip())
                case _:
                    assert_never(happening)
        if watermark is not None and watermark in self._scene.x:
            row[axis.column(watermark)] = "W" if moved else ":"
        elif moved and watermark is not None:
            every = "everything" if watermark == END_OF_TIME else "everything shown"
            notes.append(f"the watermark has passed {every}")
        for happening in happenings:
            if isinstance(happening, Mark):
                axis.write(row, happening)
        head = f"{axis.name(at):{axis.margin}}{''.join(row)}"
        yield f"{head}  {notes[0]}" if notes else head
        yield from (f"{'':{len(head)}}  {note}" for note in notes[1:])

    def _fill(self, row: list[str], box: Box) -> None:
        left, right = self._axis.column(box.left), self._axis.column(box.right)
        for column in range(left + 1, right):
            row[column] = _FILL[box.kind]

    def _dense(self, cell: DensityCell) -> str:
        if cell.kind == "dropped":
            return _DROPPED
        most = max(other.count for other in self._panel.cells if other.kind == "kept")
        return _DENSE[min(len(_DENSE) - 1, len(_DENSE) * cell.count // (most + 1))]

    def _window(self, of: Box | Retraction | Bracket) -> str:
        x = self._scene.x
        if endless(of.left) and endless(of.right):
            return "all time"
        return f"[{short_text(of.left, x)}, {short_text(of.right, x)})"


def _happenings(scene: Scene, panel: Panel) -> Iterator[tuple[int, _Happening]]:
    """Yield (moment, event); events of one moment in the order in which lines name them."""
    steps = list(_noted(scene))
    yield from ((step.y, step) for step in steps if step.y > scene.y.low)
    before = [step for step in steps if step.y <= scene.y.low]
    came = [*(mark.y for mark in panel.marks), *(cell.bottom for cell in panel.cells)]
    if before and came:
        yield min(came), before[-1]
    # Panes are lines of text: those that are left out are in a note.
    cells = [cell for cell in panel.cells if cell.kind in ("kept", "dropped")]
    yield from ((cell.bottom, cell) for cell in cells)
    yield from ((mark.y, mark) for mark in panel.marks)
    yield from ((bracket.y, bracket) for bracket in panel.brackets)
    yield from ((retraction.y, retraction) for retraction in panel.retractions)
    yield from ((box.top, box) for box in panel.boxes if box.kind != "OPEN")


def _noted(scene: Scene) -> Iterator[WatermarkStep]:
    """Yield the steps of the watermark to draw or to mention; beyond the picture at most two."""
    is_beyond = False
    for step in scene.watermark:
        if step.x > scene.x.high:
            if not is_beyond or step.x == END_OF_TIME:
                yield step
            is_beyond = True
        elif step.x in scene.x:
            yield step


def _legend(scene: Scene) -> str:
    marks = [mark for panel in scene.panels for mark in panel.marks]
    outcomes = {mark.outcome for mark in marks if mark.outcome != "kept" or not mark.retract}
    parts = [text for outcome, text in _MEANS.items() if outcome in outcomes]
    if any(mark.retract for mark in marks):
        parts.append("[-v] retracted element")
    dense = {cell.kind for panel in scene.panels for cell in panel.cells}
    if "kept" in dense:
        parts.append(". : * # element density, increasing")
    if "dropped" in dense:
        parts.append("< dropped or retracted elements")
    if scene.watermark:
        parts.append("W watermark")
    kinds = {box.kind for panel in scene.panels for box in panel.boxes}
    parts += [
        f"{_FILL[kind] * 3} {kind.replace('_', ' ')} pane" for kind in _FILL
        if kind in kinds and kind != "OPEN"
    ]  # fmt: skip
    return "  ".join(parts)
