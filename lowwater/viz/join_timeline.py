"""Renders the scene of a join as a text timeline in plain ASCII.

There is a line for each moment and side in which something happens, the first on top, and event
time runs to the right::

    clock     12:00     12:05     12:10
    12:00:00  (boots)                     left
    12:03:00     (a)                      right  boots + a
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from lowwater.time import END_OF_TIME
from lowwater.viz.join_scene import JoinPanel, JoinScene, Lane
from lowwater.viz.scene import Mark
from lowwater.viz.text_axis import TextAxis, text_page

_OUTCOMES = {"late": "<v> late, dropped", "duplicate": "{v} duplicate, dropped"}


def join_text(scene: JoinScene, *, width: int = 100, rows: int = 60) -> str:
    """Render the scene of a join as lines of text. O(size of the scene · width).

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

    def __init__(self, scene: JoinScene, panel: JoinPanel, width: int, rows: int) -> None:
        self._scene, self._panel, self._rows = scene, panel, rows
        self._marks: dict[tuple[int, int], list[Mark]] = {}
        self._said: dict[tuple[int, int], list[str]] = {}
        for side, lane in enumerate(panel.lanes):
            for mark in lane.marks:
                self._marks.setdefault((mark.y, side), []).append(mark)
                if mark.reason:
                    self._say(mark.y, side, f"{mark.text} {mark.reason}".strip())
            self._say_alone(lane, side)
        for link in panel.links:
            left, right = panel.left.marks[link.left], panel.right.marks[link.right]
            side = 1 if (link.y, 1) in self._marks else 0
            self._say(link.y, side, f"{left.text} + {right.text}")
            if link.retracted is not None:
                self._say(link.retracted, side, f"{left.text} + {right.text} retracted")
        self._moved = {step.y: step.x for step in scene.watermark}
        self._axis = TextAxis.of(scene, self._moments(), width)
        self._watermarks: dict[int, int | None] = {}
        watermark: int | None = None
        for at in self._moments():
            self._watermarks[at] = watermark = self._moved.get(at, watermark)

    def lines(self) -> Iterator[str]:
        return self._axis.lines(self._panel, self._moments(), self._rows, self._moment)

    def _moments(self) -> list[int]:
        low = self._scene.y.low
        moved = {step.y for step in self._scene.watermark if step.y > low}
        return sorted({at for at, _ in (*self._marks, *self._said)} | moved)

    def _moment(self, at: int) -> Iterator[str]:
        axis = self._axis
        watermark = self._watermarks[at]
        sides = [side for side in (0, 1) if (at, side) in self._marks or (at, side) in self._said]
        name = axis.name(at)
        lanes: list[int | None] = [*sides] or [None]
        for side in lanes:
            row = [" "] * (axis.columns + 1)
            notes = [] if side is None else list(self._said.get((at, side), ()))
            if watermark is not None and watermark in self._scene.x:
                row[axis.column(watermark)] = "W" if at in self._moved else ":"
            elif at in self._moved and not sides:
                every = "everything" if watermark == END_OF_TIME else "everything shown"
                notes.append(f"the watermark has passed {every}")
            for mark in () if side is None else self._marks.get((at, side), ()):
                axis.write(row, mark)
            which = "" if side is None else self._panel.lanes[side].name.partition(":")[0]
            head = f"{name:{axis.margin}}{''.join(row)}  {which:8}"
            yield f"{head}  {notes[0]}" if notes else head
            yield from (f"{'':{len(head)}}  {note}" for note in notes[1:])
            name = ""

    def _say_alone(self, lane: Lane, side: int) -> None:
        for one in lane.alone:
            text = f"{lane.marks[one.mark].text}: {self._scene.alone}"
            self._say(one.y, side, text)
            if one.retracted is not None:
                self._say(one.retracted, side, f"{text}, retracted")

    def _say(self, at: int, side: int, text: str) -> None:
        self._said.setdefault((at, side), []).append(text)


def _legend(scene: JoinScene) -> str:
    lanes = [lane for panel in scene.panels for lane in panel.lanes]
    outcomes = {mark.outcome for lane in lanes for mark in lane.marks}
    parts = ["(v) record", *(text for name, text in _OUTCOMES.items() if name in outcomes)]
    if any(panel.links for panel in scene.panels):
        parts.append("v + v pair")
    if scene.watermark:
        parts.append("W watermark")
    return "  ".join(parts)
