"""What text timelines share: event time to the right, a line per moment, and the rest of a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import final

from lowwater.errors import InvalidArgument, describe
from lowwater.viz.axes import day_text, short_text, ticks
from lowwater.viz.join_scene import AnyScene, JoinPanel
from lowwater.viz.match_scene import MatchPanel
from lowwater.viz.scene import Mark, Panel
from lowwater.viz.words import MINUS

_SIGNS = {
    "kept": ("(", ")"), "late": ("<", ">"), "duplicate": ("{", "}"), "partly late": ("(", ">"),
}  # fmt: skip
_LEAST_WIDTH, _LEAST_PLOT = 60, 30
_LEAST_MARGIN = 6


def text_page(
    scene: AnyScene,
    panels: Callable[[], Iterable[Iterable[str]]],
    legend: str,
    width: int,
    rows: int,
) -> str:
    """Return a page: the title, the lines of each panel, notes and a legend.

    Args:
        scene: What is drawn.
        panels: Returns the lines of each panel.
        legend: The legend.
        width: Characters per line.
        rows: The most moments per panel.

    Raises:
        InvalidArgument: There is no room for a timeline.
    """
    for name, value, least in (("width", width, _LEAST_WIDTH), ("rows", rows, 2)):
        if value < least:
            raise InvalidArgument(
                f"{describe(name, value)} leaves no room for a timeline",
                where="to_text",
                hint=f"Use {least} or more",
            )
    lines = wrap(scene.title, width, subsequent_indent="  ")
    lines += [line for panel in panels() for line in panel]
    lines += [*scene.notes, legend]
    return "\n".join(_plain(line.rstrip()) for line in lines if line.strip()) + "\n"


@final
@dataclass(frozen=True, slots=True)
class TextAxis:
    """Where moments and event times stand in the lines of a panel.

    Args:
        scene: The scene.
        margin: How many characters the name of a moment takes.
        columns: How many characters event time takes.
    """

    scene: AnyScene
    margin: int
    columns: int

    @classmethod
    def of(cls, scene: AnyScene, moments: Iterable[int], width: int) -> TextAxis:
        """Return the axis of a panel with these moments, for lines of so many characters."""
        names = (len(_name(scene, at)) for at in moments)
        margin = max(_LEAST_MARGIN, 2 + max(names, default=0))
        return cls(scene, margin, max(_LEAST_PLOT, min(64, width - margin - 44)))

    def lines(
        self,
        panel: Panel | JoinPanel | MatchPanel,
        moments: Sequence[int],
        rows: int,
        moment: Callable[[int], Iterator[str]],
    ) -> Iterator[str]:
        """Yield the lines of a panel.

        Args:
            panel: The panel.
            moments: Its moments, ascending.
            rows: How many are shown; of more, those in the middle are left out.
            moment: Returns the lines of a moment.
        """
        if self.scene.headed:
            yield f"{panel.name}:"
        yield self._scale()
        left_out = len(moments) - rows
        first, last = rows - rows // 2, len(moments) - rows // 2
        for place, at in enumerate(moments):
            if left_out > 0 and place == first:
                yield f"{'':{self.margin}}... {left_out:,} more moments ..."
            if left_out <= 0 or place < first or place >= last:
                yield from moment(at)
        yield from (f"{'':{self.margin}}{note}" for note in panel.notes)

    def column(self, at: int) -> int:
        """Return the column of an event time."""
        x = self.scene.x
        return (x.clip(at) - x.low) * self.columns // x.size

    def name(self, at: int) -> str:
        """Return what a moment is called."""
        return _name(self.scene, at)

    def write(self, row: list[str], mark: Mark) -> None:
        """Write an element's value into a row, within the signs of its outcome."""
        text = _signed(mark)
        column = max(0, min(self.column(mark.x) - 1, len(row) - len(text)))
        for sign in text:
            if column < len(row):
                row[column] = sign
            column += 1

    def _scale(self) -> str:
        scene = self.scene
        row = [" "] * (self.columns + 12)
        free = 0
        for tick in ticks(scene.x, self.columns // 9):
            column = self.column(tick.at)
            if column >= free:
                row[column : column + len(tick.text)] = tick.text
                free = column + len(tick.text) + 1
        name = "step" if scene.steps else "clock"
        return f"{name:{self.margin}}{''.join(row).rstrip()}  event time, {day_text(scene.x)}"


def _name(scene: AnyScene, at: int) -> str:
    return str(at) if scene.steps else short_text(at, scene.y, seconds=True)


def _signed(mark: Mark) -> str:
    """Return an element's value within the signs of its outcome."""
    opening, closing = _SIGNS[mark.outcome]
    text = mark.text or "*"
    if mark.retract:
        text = f"[{text}]"
    if not mark.retract or mark.outcome != "kept":
        text = f"{opening}{text}{closing}"
    return text


def _plain(line: str) -> str:
    """Return a line without signs that a terminal may not have."""
    shown = line.replace(MINUS, "-").replace("…", "...")
    return "".join(sign if sign.isprintable() else "?" for sign in shown)
