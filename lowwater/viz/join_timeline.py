"""Renders the scene of a join as a text timeline in plain ASCII.

There is a line for each moment and side in which something happens, the first on top, and event
time runs to the right::

    clock     12:00     12:05     12:10
    12:00:00  (boots)                     left
    12:03:00     (a)                      right  boots + a
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import final

from lowwater.time import END_OF_TIME
from lowwater.viz.axes import day_text, short_text, ticks
from lowwater.viz.join_scene import JoinPanel, JoinScene, Lane
from lowwater.viz.scene import Mark
from lowwater.viz.timeline import check_room, plain, signed

_LEAST_PLOT, _LEAST_MARGIN = 30, 6
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
    check_room(width, rows)
    lines = wrap(scene.title, width, subsequent_indent="  ")
    for panel in scene.panels:
        lines += _Timeline(scene, panel, width, rows).lines()
    lines += [*scene.notes, _legend(scene)]
    return "\n".join(plain(line.rstrip()) for line in lines if line.strip()) + "\n"


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
        names = (len(self._name(at)) for at in self._moments())
        self._margin = max(_LEAST_MARGIN, 2 + max(names, default=0))
        self._columns = max(_LEAST_PLOT, min(64, width - self._margin - 44))

    def lines(self) -> Iterator[str]:
        if self._scene.headed:
            yield f"{self._panel.name}:"
        yield self._axis()
        moments = self._moments()
        left_out = len(moments) - self._rows
        head = moments if left_out <= 0 else moments[: self._rows - self._rows // 2]
        watermark: int | None = None
        for at in moments:
            watermark = self._moved.get(at, watermark)
            if left_out > 0 and at == moments[len(head)]:
                yield f"{'':{self._margin}}... {left_out:,} more moments ..."
            if left_out <= 0 or at in head or at in moments[-(self._rows // 2) :]:
                yield from self._moment(at, watermark)
        yield from (f"{'':{self._margin}}{note}" for note in self._panel.notes)

    def _moments(self) -> list[int]:
        low = self._scene.y.low
        moved = {step.y for step in self._scene.watermark if step.y > low}
        return sorted({at for at, _ in (*self._marks, *self._said)} | moved)

    def _moment(self, at: int, watermark: int | None) -> Iterator[str]:
        sides = [side for side in (0, 1) if (at, side) in self._marks or (at, side) in self._said]
        name = self._name(at)
        lanes: list[int | None] = [*sides] or [None]
        for side in lanes:
            row = [" "] * (self._columns + 1)
            notes = [] if side is None else list(self._said.get((at, side), ()))
            if watermark is not None and watermark in self._scene.x:
                row[self._column(watermark)] = "W" if at in self._moved else ":"
            elif at in self._moved and not sides:
                every = "everything" if watermark == END_OF_TIME else "everything shown"
                notes.append(f"the watermark has passed {every}")
            for mark in () if side is None else self._marks.get((at, side), ()):
                self._write(row, mark)
            which = "" if side is None else self._panel.lanes[side].name.partition(":")[0]
            head = f"{name:{self._margin}}{''.join(row)}  {which:8}"
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

    def _write(self, row: list[str], mark: Mark) -> None:
        text = signed(mark)
        column = max(0, min(self._column(mark.x) - 1, len(row) - len(text)))
        row[column : column + len(text)] = text

    def _axis(self) -> str:
        row = [" "] * (self._columns + 12)
        free = 0
        for tick in ticks(self._scene.x, self._columns // 9):
            column = self._column(tick.at)
            if column >= free:
                row[column : column + len(tick.text)] = tick.text
                free = column + len(tick.text) + 1
        name = "step" if self._scene.steps else "clock"
        when = day_text(self._scene.x)
        return f"{name:{self._margin}}{''.join(row).rstrip()}  event time, {when}"

    def _column(self, at: int) -> int:
        x = self._scene.x
        return (x.clip(at) - x.low) * self._columns // x.size

    def _name(self, at: int) -> str:
        return str(at) if self._scene.steps else short_text(at, self._scene.y, seconds=True)


def _legend(scene: JoinScene) -> str:
    lanes = [lane for panel in scene.panels for lane in panel.lanes]
    outcomes = {mark.outcome for lane in lanes for mark in lane.marks}
    parts = ["(v) record", *(text for name, text in _OUTCOMES.items() if name in outcomes)]
    if any(panel.links for panel in scene.panels):
        parts.append("v + v pair")
    if scene.watermark:
        parts.append("W watermark")
    return "  ".join(parts)
