"""The page of an exploration: one piece of HTML with sliders, for notebooks and static pages.

A frame is a list of fragments: elements of the picture, rows of tables. Frames share most of them,
so the page has each fragment once, and of a frame only their numbers, as runs of successive ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import final

import numpy as np

from lowwater.display.html import escaped
from lowwater.display.palette import STYLES, Theme
from lowwater.exploration._page_parts import CSS, SCRIPT
from lowwater.exploration.completeness import NO_END, curve
from lowwater.exploration.grid import Grid
from lowwater.exploration.point import Frame, wait_text
from lowwater.time import Int64Array, format_duration
from lowwater.viz.compose import Axes
from lowwater.viz.picture import lay_out_panel, legend_of
from lowwater.viz.scene import Scene
from lowwater.viz.svg import digest, page_around, shape_texts, svg_of

HEIGHT = 420
_CURVE = 60
_PANES = ("window", "pane", "values")
_DROPPED = ("key", "event time", "dropped from", "why")


@final
class _Pool:
    """Fragments of text, each once."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}

    def runs(self, texts: Iterable[str]) -> list[int]:
        """Return the numbers of fragments as runs: of each the first, and how many."""
        found: list[int] = []
        for text in texts:
            number = self.texts.setdefault(text, len(self.texts))
            if found and number == found[-2] + found[-1]:
                found[-1] += 1
            else:
                found += [number, 1]
        return found


def page_of(grid: Grid, frames: Sequence[Frame], axes: Axes, theme: Theme) -> str:
    """Return the page as an element to embed.

    Args:
        grid: The settings.
        frames: What each point shows, in the order of the settings.
        axes: The axes of all diagrams.
        theme: The colours.
    """
    pool = _Pool()
    some_before = any(frame.point.dropped_before for frame in frames)
    labels = [label for label in _LABELS if label != _BEFORE or some_before]
    at = _latencies(frames)
    pictures = [lay_out_panel(frame.scene, HEIGHT) for frame in frames]
    data = {
        "axes": [len(values) for _, values in _sliders(grid)],
        "frames": [
            [
                pool.runs(shape_texts(picture)),
                pool.runs(map(_row, frame.panes)),
                pool.runs(map(_row, frame.dropped)),
                pool.runs(escaped(_numbers(frame)[label]) for label in labels),
                pool.runs([escaped(grid.code(frame.point.settings))]),
                _shares(frame, at),
                pool.runs(f"<li>{escaped(note)}</li>" for note in _notes(frame.scene)),
            ]
            for picture, frame in zip(pictures, frames, strict=True)
        ],
        "latencies": [wait_text(latency) for latency in at.tolist()],
    }
    data["pool"] = list(pool.texts)
    first = frames[0]
    used = {shape.style for picture in pictures for shape in picture.shapes} | set(STYLES)
    name = digest(json.dumps(data))
    title = first.scene.title.partition(":")[0]
    drawn = first.scene.panels[0].name if first.scene.panels else "no key"
    legend = legend_of([frame.scene for frame in frames])
    return _FRAGMENT.format(
        name=name,
        css=CSS,
        theme=theme,
        title=escaped(f"{title}: key {drawn}"),
        sliders="".join(_slider(label, values) for label, values in _sliders(grid)),
        legend=svg_of(legend, "".join(shape_texts(legend)), used, theme=theme, name="legend"),
        picture=svg_of(
            pictures[0], "".join(shape_texts(pictures[0])), used, theme=theme, name="diagram"
        ),
        numbers="".join(f"<div><b>{escaped(_numbers(first)[label])}</b> {escaped(label)}</div>"
                        for label in labels),
        code=escaped(grid.code(first.point.settings)),
        panes=_table(_PANES, first.panes),
        dropped=_table(_DROPPED, first.dropped),
        measured="the clock" if not axes.by_arrival else "the latest event time that had arrived",
        script=SCRIPT.replace("ID", name).replace(
            # Escape what can end a script element, or change how its end is found.
            "DATA", re.sub(
                r"<(?=/?[sS]|!)", r"\\u003c",
                json.dumps(data, separators=(",", ":"), ensure_ascii=False),
            ),
        ),
    )  # fmt: skip


def whole_page(fragment: str, name: str, theme: Theme) -> str:
    """Return the page as a file of its own."""
    return page_around(fragment, name, theme)


_BEFORE = "dropped before"
_LABELS = (
    "on time", "early", "late panes", "retractions", "dropped", _BEFORE, "dead letters", "complete",
    "median wait", "99 % wait",
)  # fmt: skip


def _numbers(frame: Frame) -> dict[str, str]:
    point = frame.point
    counts = (
        point.on_time, point.early, point.late, point.retractions, point.dropped,
        point.dropped_before, point.dead,
    )  # fmt: skip
    texts = (
        *(f"{n:,}" for n in counts), point.complete_text,
        *map(wait_text, (point.median_wait, point.p99_wait)),
    )  # fmt: skip
    return dict(zip(_LABELS, texts, strict=True))


def _sliders(grid: Grid) -> list[tuple[str, list[str]]]:
    """Return the name and the values of each slider, the one that changes slowest first."""
    delays = ["own" if delay is None else format_duration(delay) for delay in grid.delays]
    return [
        ("windows", list(grid.windows)),
        ("trigger", list(grid.triggers)),
        ("allowed lateness", [format_duration(lateness) for lateness in grid.latenesses]),
        ("watermark delay", delays),
    ]


def _slider(label: str, values: Sequence[str]) -> str:
    shown = escaped(json.dumps(list(values)))
    hidden = " hidden" if len(values) < 2 else ""
    return (
        f"<label{hidden}><span>{escaped(label)}</span>"
        f'<input type="range" min="0" max="{len(values) - 1}" value="0" data-values="{shown}" '
        f'aria-valuetext="{escaped(values[0])}"><output>{escaped(values[0])}</output></label>'
    )


def _row(cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in cells)}</tr>"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escaped(heading)}</th>" for heading in headings)
    body = "".join(map(_row, rows))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _notes(scene: Scene) -> list[str]:
    return [*scene.notes, *(note for panel in scene.panels for note in panel.notes)]


def _latencies(frames: Sequence[Frame]) -> Int64Array:
    """Return the latencies at which completeness is drawn, the same for all frames."""
    every = np.concatenate([np.zeros(1, np.int64), *(frame.latency for frame in frames)])
    every = every[every < NO_END]
    low, high = (int(np.quantile(every, share, method="nearest")) for share in (0.005, 0.995))
    return np.unique(np.linspace(min(low, 0), max(high, 1), _CURVE).astype(np.int64))


def _shares(frame: Frame, at: Int64Array) -> list[int]:
    """Return the completeness at each latency, in thousandths."""
    reached = curve(frame.latency, frame.added, at)
    expected = max(1, frame.point.expected)
    return [int(1000 * count // expected) for count in reached.tolist()]


_FRAGMENT = """\
<div class="lw-explore lw-explore-{theme}" data-lowwater="{name}"><style>{css}</style>
<div class="lw-x-title">{title}</div>
<div class="lw-x-sliders">{sliders}</div>
<div class="lw-x-numbers" aria-live="polite">{numbers}</div>
<div class="lw-x-body"><div><div class="lw-x-picture">{legend}{picture}</div>
<ul class="lw-x-notes"></ul></div>
<div><section><h4>Complete, by time after the window's end</h4>
<svg class="lw-x-curve" role="img" aria-label="completeness" viewBox="0 0 400 200"></svg>
<p>waits are measured by {measured}</p></section>
<section><h4>Code</h4><pre tabindex="0" role="region" aria-label="code"><code>{code}</code></pre>
<button type="button">Copy</button></section></div></div>
<div class="lw-x-parts">
<section><h4>First panes of the key</h4>
<div class="lw-x-scroll lw-x-panes" tabindex="0" role="region"
aria-label="first panes">{panes}</div></section>
<section><h4>Dropped elements</h4>
<div class="lw-x-scroll lw-x-dropped" tabindex="0" role="region"
aria-label="dropped elements">{dropped}</div></section>
</div><script>{script}</script></div>
"""
