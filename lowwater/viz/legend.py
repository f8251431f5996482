"""The legend of a picture: small drawings, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from lowwater.viz.marks import mark_shapes
from lowwater.viz.plot import MARGIN, WIDTH
from lowwater.viz.scene import ElementOutcome, Mark
from lowwater.viz.shapes import Label, Path, Shape, text_width

KEY_WIDTH = 24.0
_SIZE = 10.5

Key: TypeAlias = Callable[[float, float], list[Shape]]
"""Draws what an entry is about: from its left edge, around its middle."""


def legend(entries: Iterable[tuple[Key, str]], shapes: list[Shape], top: float) -> float:
    """Append a legend to shapes, over several lines if need be; return its bottom edge."""
    x, y = MARGIN, top + 8
    for draw, text in entries:
        wide = KEY_WIDTH + 5 + text_width(text, _SIZE) + 12
        if x + wide > WIDTH - MARGIN and x > MARGIN:
            x, y = MARGIN, y + 19
        shapes += draw(x, y)
        shapes.append(Label(x + KEY_WIDTH + 5, y + 3.5, text, "quiet", _SIZE))
        x += wide
    return y + 10


def in_order(outcomes: Iterable[ElementOutcome]) -> list[ElementOutcome]:
    """Return outcomes in the order in which legends name them, each once."""
    return sorted(set(outcomes), key=["kept", "late", "partly late", "duplicate"].index)


def mark_key(mark: Mark) -> Key:
    """Return what draws an element."""
    return lambda x, y: list(mark_shapes(mark, x + KEY_WIDTH / 2, y, 6.5, None))


def line_key(style: str) -> Key:
    """Return what draws a line."""
    return lambda x, y: [Path(((x, y), (x + KEY_WIDTH, y)), style)]
