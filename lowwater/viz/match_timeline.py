"""Renders the scene of a stage of ``match`` as a text timeline in plain ASCII.

There is a line for each moment in which something happens, and event time runs to the right::

    clock     12:00     12:05     12:10
    12:00:00  (start)  (down)
    12:03:00                   (up)       match start down up
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from lowwater.viz.match_scene import MatchPanel, MatchScene
from lowwater.viz.scene import Mark
from lowwater.viz.text_axis import TextAxis, text_page


def match_text(scene: MatchScene, *, width: int = 100, rows: int = 60) -> str:
    """Render the scene of a stage of ``match`` as lines of text. O(size of the scene · width).

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

    def __init__(self, scene: MatchScene, panel: MatchPanel, width: int, rows: int) -> None:
        self._panel, self._rows = panel, rows
        self._marks: dict[int, list[Mark]] = {}
        self._said: dict[int, list[str]] = {}
        for row in panel.rows:
            mark = row.mark
            self._marks.setdefault(mark.y, []).append(mark)
            if mark.reason:
                self._say(mark.y, f"{mark.text} {mark.reason}".strip())
        for arc in panel.arcs:
            self._say(arc.y, f"match {arc.variables}")
            if arc.retracted is not None:
                self._say(arc.retracted, f"match {arc.variables} retracted")
        self._axis = TextAxis.of(scene, self._moments(), width)

    def lines(self) -> Iterator[str]:
        return self._axis.lines(self._panel, self._moments(), self._rows, self._moment)

    def _moments(self) -> list[int]:
        return sorted({*self._marks, *self._said})

    def _moment(self, at: int) -> Iterator[str]:
        axis = self._axis
        row = [" "] * (axis.columns + 1)
        for mark in self._marks.get(at, ()):
            axis.write(row, mark)
        notes = self._said.get(at, [])
        head = f"{axis.name(at):{axis.margin}}{''.join(row)}"
        yield f"{head}  {notes[0]}" if notes else head
        yield from (f"{'':{len(head)}}  {note}" for note in notes[1:])

    def _say(self, at: int, text: str) -> None:
        self._said.setdefault(at, []).append(text)


def _legend(scene: MatchScene) -> str:
    outcomes = {row.mark.outcome for panel in scene.panels for row in panel.rows}
    parts = ["(v) row as variable v", "(*) row of no match"]
    if "late" in outcomes:
        parts.append("<v> late, dropped")
    if "duplicate" in outcomes:
        parts.append("{v} duplicate, dropped")
    return "  ".join(parts)
