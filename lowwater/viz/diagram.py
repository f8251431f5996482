"""Diagrams of runs: event time by processing time, as in *Streaming 101* and *102*."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from lowwater.display.palette import Theme
from lowwater.display.text import printable, visible
from lowwater.engine.graph.trace import StageTrace, Trace
from lowwater.errors import InvalidArgument
from lowwater.io.paths import PathLike, as_paths
from lowwater.viz.answers import Asked, apart
from lowwater.viz.compose import Between, compose
from lowwater.viz.join_picture import lay_out_join
from lowwater.viz.join_scene import AnyScene, JoinScene
from lowwater.viz.join_timeline import join_text
from lowwater.viz.match_picture import lay_out_matches
from lowwater.viz.match_timeline import match_text
from lowwater.viz.picture import lay_out
from lowwater.viz.raster import save_picture
from lowwater.viz.scene import Scene
from lowwater.viz.shapes import Picture
from lowwater.viz.svg import check_theme, to_html, to_svg
from lowwater.viz.timeline import to_text


@final
@dataclass(frozen=True, slots=True, repr=False)
class Diagram:
    """The input and output of a stage as a picture.

    Event time runs to the right, processing time upwards. A join has a lane for each side, and a
    line for each pair. In a stage of ``match`` each key has a line of rows, with an arc for each
    match. Notebooks display the picture; ``print(diagram)`` prints a text timeline.

    Args:
        content: The content, without pixels.
        theme: ``light``, ``dark``, or ``auto``, which follows the system of the reader.
    """

    content: AnyScene
    theme: Theme = "auto"
    _asked: Asked | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_theme(self.theme)

    @classmethod
    def of_stage(
        cls,
        trace: StageTrace,
        *,
        key: Any = None,
        column: str | None = None,
        between: Between | None = None,
        theme: Theme = "auto",
    ) -> Diagram:
        """Return the diagram of one stage.

        Args:
            trace: The trace of the stage.
            key: The key to draw, or a list of keys; by default the six with the most events.
            column: The aggregate to draw, the first by default; of a join, the column whose values
                are written at records.
            between: The first event time to draw, and the end (exclusive); all by default.
            theme: ``light``, ``dark``, or ``auto``, which follows the system of the reader.

        Raises:
            InvalidArgument: There is no such key, aggregate or theme.
        """
        keys = None if key is None else key if isinstance(key, list) else [key]
        check_theme(theme)  # before the work, which may take long
        return cls(compose(trace, keys=keys, column=column, between=between), theme)

    @classmethod
    def of(
        cls,
        trace: Trace,
        *,
        key: Any = None,
        stage: str | None = None,
        column: str | None = None,
        between: Between | None = None,
        theme: Theme = "auto",
    ) -> Diagram:
        """Return the diagram of a stage of a run; of the last stage by default."""
        of = trace.stage(stage)
        drawn = cls.of_stage(of, key=key, column=column, between=between, theme=theme)
        return replace(drawn, _asked=Asked(trace, of))

    def with_theme(self, theme: Theme) -> Diagram:
        """Return the same diagram in a light or dark theme, whatever the system of the reader."""
        return replace(self, theme=theme)

    @property
    def scene(self) -> Scene:
        """The content of the diagram of a windowed stage or a process.

        Raises:
            InvalidArgument: It is the diagram of a join, or of matches.
        """
        if not isinstance(self.content, Scene):
            of = "a join" if isinstance(self.content, JoinScene) else "matches"
            raise InvalidArgument(
                f"the diagram of {of} has a scene of its own", where="scene", hint="Use .content"
            )
        return self.content

    @property
    def picture(self) -> Picture:
        """The shapes of the picture, in pixels."""
        return _picture(self.content)

    def to_svg(self) -> str:
        """Render it as a self-contained SVG element without scripts."""
        return to_svg(self.picture, theme=self.theme)

    def to_html(self) -> str:
        """Render it as a self-contained page.

        It has a slider to step through the run, and can be zoomed (buttons, keys, or the wheel with
        Ctrl) and panned. A click on an element answers as ``why`` does, on a pane as ``explain``;
        of long runs, where that takes long, it describes them.
        """
        return self._html(page=True)

    def _html(self, *, page: bool) -> str:
        content = apart(self.content)
        answers = {} if self._asked is None else self._asked.answers(content)
        return to_html(_picture(content), theme=self.theme, page=page, answers=answers)

    def to_text(self, *, width: int = 100, rows: int = 60) -> str:
        """Return a text timeline, a line per moment.

        Args:
            width: Characters per line; long notes on the right may exceed it.
            rows: The most moments per key; moments in the middle are left out.
        """
        if isinstance(self.content, Scene):
            return visible(to_text(self.content, width=width, rows=rows))
        if isinstance(self.content, JoinScene):
            return visible(join_text(self.content, width=width, rows=rows))
        return visible(match_text(self.content, width=width, rows=rows))

    def save(self, path: PathLike) -> None:
        """Write a file: ``.svg``, ``.html``, ``.txt``, or with matplotlib ``.png`` and ``.gif``.

        Raises:
            InvalidArgument: The file has another suffix, or cannot be written.
            UnsupportedByRunner: matplotlib is not installed.
        """
        (place,) = as_paths(path, writes=True)
        texts = {".svg": self.to_svg, ".html": self.to_html, ".txt": self.__str__}
        save_picture(Path(place), self.picture, self.theme, texts)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        keys = ", ".join(panel.name for panel in self.content.panels)
        title = self.content.title.partition(":")[0]
        return printable(f"<diagram of {title}, keys: {keys or 'none'}>")

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def _repr_html_(self) -> str:
        return self._html(page=False)


def _picture(content: AnyScene) -> Picture:
    if isinstance(content, Scene):
        return lay_out(content)
    return lay_out_join(content) if isinstance(content, JoinScene) else lay_out_matches(content)
