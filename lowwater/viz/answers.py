"""What a click on a shape of a diagram answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

from lowwater.engine.graph.trace import StageTrace, Trace
from lowwater.time import Instant
from lowwater.viz.join_scene import AnyScene, JoinScene
from lowwater.viz.scene import Mark, Scene
from lowwater.windows import Window

MOST_LOOKED_AT = 1_500_000
"""The most questions times elements: an answer looks at every element of the trace."""
_LINES, _LENGTH = 25, 1_800


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
