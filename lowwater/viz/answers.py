"""What a click on a shape of a diagram answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, final

from lowwater.engine.graph.trace import StageTrace, Trace
from lowwater.time import Instant
from lowwater.viz.join_scene import AnyScene, JoinScene, Lane
from lowwater.viz.match_scene import MatchScene
from lowwater.viz.scene import Box, Mark, Scene
from lowwater.windows import Window

MOST_LOOKED_AT = 1_500_000
"""The most questions times elements: an answer looks at every element of the trace."""
_LINES, _LENGTH = 25, 1_800
_Titled = TypeVar("_Titled", Mark, Box)


@final
@dataclass(frozen=True, slots=True, repr=False)
class Asked:
    """The trace that a diagram is of, to be asked about what is drawn.

    Args:
        trace: The trace of the run.
        stage: The stage that is drawn.
    """

    trace: Trace
    stage: StageTrace

    def answers(self, content: AnyScene) -> Mapping[str, str]:
        """Return what ``why`` and ``explain`` say of the elements and panes, by their titles.

        None if there is too much to ask. O(elements and panes drawn · elements of the trace).
        """
        # Imported on use: pictures need no explanations.
        from lowwater.explain import explain, why

        name, elements = self.stage.name, self.stage.elements
        marks = {mark.title: mark.place for mark in _marks(content) if mark.place >= 0}
        windows: dict[str, tuple[Any, Window]] = {}
        for panel in content.panels if isinstance(content, Scene) else ():
            for box in panel.boxes:
                window = Window(Instant(box.left), Instant(box.right))
                windows.setdefault(box.title, (panel.key, window))
        if (len(marks) + len(windows)) * len(elements) > MOST_LOOKED_AT:
            return {}
        said = {
            title: str(why(self.trace, elements[place], stage=name))
            for title, place in marks.items()
        }
        said |= {
            title: str(explain(self.trace, key, window, stage=name))
            for title, (key, window) in windows.items()
        }
        return {title: _short(text) for title, text in said.items()}


def apart(content: AnyScene) -> AnyScene:
    """Return content in which the titles of elements and panes differ by key and side.

    A click is answered by the title of a shape, and elements of two keys may be alike in all else.
    """
    if isinstance(content, JoinScene):
        joined = (
            replace(
                panel,
                left=_lane_apart(panel.left, panel.name),
                right=_lane_apart(panel.right, panel.name),
            )
            for panel in content.panels
        )
        return replace(content, panels=tuple(joined))
    if len(content.panels) < 2:
        return content
    if isinstance(content, MatchScene):
        matched = (
            replace(panel, rows=tuple(
                replace(row, mark=_of(row.mark, panel.name)) for row in panel.rows
            ))
            for panel in content.panels
        )  # fmt: skip
        return replace(content, panels=tuple(matched))
    windowed = (
        replace(
            panel,
            marks=tuple(_of(mark, panel.name) for mark in panel.marks),
            boxes=tuple(_of(box, panel.name) for box in panel.boxes),
        )
        for panel in content.panels
    )
    return replace(content, panels=tuple(windowed))


def _lane_apart(lane: Lane, key: str) -> Lane:
    return replace(lane, marks=tuple(_of(mark, f"{key}, {lane.name}") for mark in lane.marks))


def _of(titled: _Titled, whose: str) -> _Titled:
    return replace(titled, title=f"{titled.title}\nof {whose}")


def _marks(content: AnyScene) -> Iterator[Mark]:
    if isinstance(content, Scene):
        for panel in content.panels:
            yield from panel.marks
    elif isinstance(content, JoinScene):
        for joined in content.panels:
            for lane in joined.lanes:
                yield from lane.marks
    else:
        for matched in content.panels:
            yield from (row.mark for row in matched.rows)


def _short(text: str) -> str:
    lines = text.strip().splitlines()
    shown = "\n".join(lines[:_LINES])
    if len(lines) > _LINES or len(shown) > _LENGTH:
        shown = f"{shown[:_LENGTH].rstrip()}\n…"
    return shown
