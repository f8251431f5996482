"""Writes the page of a run to one file, which needs no server and loads nothing."""

from __future__ import annotations

from concurrent.futures import TimeoutError as NotInTime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lowwater.display.palette import Theme
from lowwater.display.text import shown
from lowwater.engine.local.traced_columns import TraceColumns
from lowwater.errors import InvalidArgument
from lowwater.io.paths import PathLike, as_paths
from lowwater.live.page import report_page
from lowwater.viz import Diagram, GraphDiagram

if TYPE_CHECKING:
    from lowwater.engine.graph.trace import Trace
    from lowwater.live.watch import Watch

_WAIT_S = 30.0
_KEYS = 3


def write_report(
    watch: Watch, path: PathLike, *, where: str = "report", theme: Theme = "auto"
) -> None:
    """Write the page of a run to a file.

    Of a traced run it has the diagrams of the keys with the most elements: three of each stage.

    Args:
        watch: Has watched the run.
        path: A file whose name ends in ``.html``; it is replaced.
        where: What the user called, for errors.
        theme: ``light``, ``dark``, or ``auto``, which follows the system of the reader.

    Raises:
        InvalidArgument: The name ends otherwise, the file cannot be written, or the run has not
            finished its first bundle.
    """
    (place,) = as_paths(path, writes=True)
    if not place.endswith(".html"):
        raise InvalidArgument(
            f"{place!r} does not end in .html", where=where, hint='Name a page: "run.html"'
        )
    found = watch.feed.latest()
    if found is None:
        raise InvalidArgument(
            "the run has not finished its first bundle", where=where, hint="Wait for a pane"
        )
    diagrams = _diagrams(_trace_of(watch, where), theme) if watch.is_traced else []
    graph = GraphDiagram.of(watch.graph).to_svg()  # it follows the theme of the page
    page = report_page(found.snapshot, graph_svg=graph, diagrams=diagrams, theme=theme)
    try:
        Path(place).write_text(page, encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(
            f"{place!r} cannot be written: {error.strerror or error}",
            where=where,
            hint="Name another file",
        ) from None


def _trace_of(watch: Watch, where: str) -> Trace:
    asked = watch.trace()
    try:
        return asked.result(_WAIT_S)[0]
    except NotInTime:
        asked.cancel()
        raise InvalidArgument(
            f"the run has not finished a bundle in {_WAIT_S:.0f} s, and hands its trace over only "
            "then",
            where=where,
            hint="Try again, or stop the run first",
        ) from None


def _diagrams(trace: Trace, theme: Theme) -> list[tuple[str, str]]:
    """Return diagrams as HTML documents, each with its title."""
    found = []
    for stage in trace.stages:
        columns = TraceColumns.of(stage)
        events = columns.events()
        for at in np.argsort(-events, kind="stable")[:_KEYS].tolist():
            if events[at]:
                key = columns.keys[at]
                drawn = Diagram.of(trace, key=key, stage=stage.name, theme=theme)
                found.append((f"{stage.name}: {shown(key)}", drawn.to_html()))
    return found
