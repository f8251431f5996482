"""Shapes in pixels, x to the right and y downwards, which all renderers draw in order."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

Anchor: TypeAlias = Literal["start", "middle", "end"]


@final
@dataclass(frozen=True, slots=True)
class Area:
    """A rectangle of pixels, as geometry only."""

    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: Area) -> float:
        """Return the area of the overlap of two rectangles, in square pixels."""
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        return wide * high if wide > 0 and high > 0 else 0.0


@final
@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle, round at the corners by ``round`` pixels.

    ``since`` is the moment from which it is seen as the run is stepped through; ``None``: always.
    One with ``covers`` hides what is yet to come: it is that high before anything has come, and
    shrinks to nothing at its top as the run goes on.
    """

    area: Area
    style: str
    round: float = 0.0
    since: int | None = None
    title: str | None = None
    opacity: float = 1.0
    covers: float = 0.0


@final
@dataclass(frozen=True, slots=True)
class Path:
    """Straight lines from point to point, back to the first if it is closed."""

    points: tuple[tuple[float, float], ...]
    style: str
    closed: bool = False
    since: int | None = None
    title: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Label:
    """Text; ``y`` is its baseline, ``turned`` says that it runs upwards."""

    x: float
    y: float
    text: str
    style: str
    size: float
    anchor: Anchor = "start"
    since: int | None = None
    title: str | None = None
    turned: bool = False

    @property
    def area(self) -> Area:
        """Its area, estimated from the widest letters of common fonts."""
        wide = text_width(self.text, self.size)
        left = self.x - {"start": 0.0, "middle": wide / 2, "end": wide}[self.anchor]
        return Area(left, self.y - 0.8 * self.size, left + wide, self.y + 0.22 * self.size)


Shape: TypeAlias = Rect | Path | Label


@final
@dataclass(frozen=True, slots=True)
class Keyframe:
    """A moment at which something appears in a picture.

    Args:
        moment: When.
        text: The same as people read it.
        share: How much of the vertical axis lies at or below it, from 0 to 1.
    """

    moment: int
    text: str
    share: float


@final
@dataclass(frozen=True, slots=True)
class Picture:
    """A picture: shapes in drawing order.

    Args:
        width: In pixels.
        height: In pixels.
        shapes: In the order in which they are drawn.
        name: What it is, for readers who cannot see it.
        frames: The moments at which something comes to it, rising.
    """

    width: int
    height: int
    shapes: tuple[Shape, ...]
    name: str
    frames: tuple[Keyframe, ...] = ()


BOLD = 1.13
"""The relative width of bold text."""
_NARROW = frozenset("iljtfr.,:;'|!()[]{}I1 -")
_WIDE = frozenset("mwMWOQ@%#—…∞")


def text_width(text: str, size: float) -> float:
    """Return about how wide text is in a usual sans-serif font, rather too much, in pixels."""
    return size * sum(map(_share, text))


def fitted(text: str, width: float, size: float) -> str:
    """Return text, shortened with an ellipsis if it is wider than a width."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "…", size) > width:
        text = text[:-1]
    return text.rstrip() + "…"


def _share(sign: str) -> float:
    if sign in _NARROW and sign != "1":
        return 0.36
    if unicodedata.east_asian_width(sign) in "WF":
        return 1.05
    if sign in _WIDE:
        return 0.92
    return 0.72 if sign.isupper() else 0.62
