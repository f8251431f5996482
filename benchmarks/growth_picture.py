"""Draws the figures of growth: a panel for each axis, with times from zero on, as SVG."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path as File
from statistics import median

from benchmarks.growth import FLAT, Line
from lowwater.viz.shapes import Area, Label, Path, Picture, Rect, Shape
from lowwater.viz.svg import to_svg

_WIDTH, _COLUMNS = 800, 3
_PANEL, _HIGH, _TOP = 262.0, 232.0, 44.0
_LINES = (("pair", "dense"), ("alone", "alone-shape"))
"""Styles of the first line of a panel and its dots, and of the second."""


def save(lines: Sequence[Line], file: File, caption: str) -> None:
    """Write the picture of some lines, with a caption below."""
    file.write_text(to_svg(picture(lines, caption)))


def picture(lines: Sequence[Line], caption: str) -> Picture:
    """Return the picture of some lines: those of one axis share a panel."""
    axes = [list(found) for _, found in itertools.groupby(lines, key=lambda line: line.axis)]
    shapes: list[Shape] = [Label(14, 24, "CPU time per event as things grow", "head", 14)]
    for at, panel in enumerate(axes):
        row, column = divmod(at, _COLUMNS)
        shapes += _panel(panel, 14 + column * _PANEL, _TOP + row * _HIGH)
    bottom = _TOP + -(-len(axes) // _COLUMNS) * _HIGH
    note = (
        f"Dots are medians, bars go from the least to the most of the rounds; the band is "
        f"{FLAT:.0%} either side of a panel's first figure."
    )
    for text in (*textwrap.wrap(note, 125), *textwrap.wrap(caption, 125)):
        bottom += 16
        shapes.append(Label(14, bottom, text, "quiet", 11))
    height = int(bottom + 14)
    paper = Rect(Area(0, 0, _WIDTH, height), "paper")
    return Picture(_WIDTH, height, (paper, *shapes), "CPU time per event as things grow")


def _panel(lines: Sequence[Line], left: float, top: float) -> Iterator[Shape]:
    area = Area(left + 40, top + 40, left + _PANEL - 20, top + _HIGH - 36)
    sizes = sorted({size for line in lines for size in line.rounds})
    first = median(next(iter(lines[0].rounds.values())))
    every = (ns for line in lines for each in line.rounds.values() for ns in each)
    most = _round_up(max(first * (1 + FLAT), *every))
    low, high = math.log10(sizes[0]), math.log10(max(sizes[-1], sizes[0] + 1))

    def across(size: int) -> float:
        return (
            area.left + 8 + (area.right - area.left - 16) * (math.log10(size) - low) / (high - low)
        )

    def up(ns: float) -> float:
        return area.bottom - (area.bottom - area.top) * ns / most

    yield Label(left, top + 14, lines[0].axis.name, "head", 12)
    yield Label(left, top + 28, lines[0].axis.unit, "quiet", 10.5)
    for step in range(5):
        y = up(most * step / 4)
        yield Path(((area.left, y), (area.right, y)), "grid")
        yield Label(area.left - 6, y + 3.5, f"{most * step / 4:,.0f}", "quiet", 10.5, "end")
    flat = Area(area.left, up(first * (1 + FLAT)), area.right, up(first * (1 - FLAT)))
    yield Rect(flat, "band")
    for size in sizes:
        yield Label(across(size), area.bottom + 14, _short(size), "quiet", 10.5, "middle")
    for line, (stroke, dot) in zip(lines, _LINES, strict=False):
        at = [(across(size), up(ns)) for size, ns in line.medians.items()]
        yield Path(tuple(at), stroke)
        for (x, y), (size, found) in zip(at, line.rounds.items(), strict=True):
            title = f"{size:,}: {median(found):,.0f} ns ({min(found):,.0f} to {max(found):,.0f})"
            yield Path(((x, up(min(found))), (x, up(max(found)))), stroke)
            yield Rect(Area(x - 3, y - 3, x + 3, y + 3), dot, 3, title=title)
    if len(lines) > 1:
        yield from _names(lines, left, area.bottom + 30)


def _names(lines: Sequence[Line], left: float, y: float) -> Iterator[Shape]:
    """Yield what the lines of a panel are called, below it."""
    for line, (stroke, dot) in zip(lines, _LINES, strict=False):
        yield Path(((left, y - 3.5), (left + 18, y - 3.5)), stroke)
        yield Rect(Area(left + 6, y - 6.5, left + 12, y - 0.5), dot, 3)
        yield Label(left + 23, y, line.name, "text", 10.5)
        left += 122


def _round_up(most: float) -> float:
    """Return a round number at or above one, which four divides well."""
    power = 10 ** math.floor(math.log10(max(most, 1)))
    return next(n * power for n in (1, 2, 4, 6, 8, 10, 20) if n * power >= most)


def _short(size: int) -> str:
    for unit, name in ((1_000_000, " M"), (1_000, " k")):
        if size >= unit:
            return f"{size / unit:.3g}{name}"
    return str(size)
