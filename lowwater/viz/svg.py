"""The painter for SVG: one self-contained element, nothing loaded, nothing run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import assert_never

from lowwater.viz.palette import Theme, css
from lowwater.viz.shapes import Label, Path, Picture, Rect, Shape

SCOPE = "lw-picture"


def to_svg(picture: Picture, *, theme: Theme = "auto") -> str:
    """Return a picture as an SVG element; the same picture gives the same text.

    Each shape that comes to the picture at a moment says so in ``data-since``, by the number of
    its frame, so that a script may hide what is yet to come.
    """
    number = {frame.moment: at for at, frame in enumerate(picture.frames)}
    body = "\n".join(_element(shape, number) for shape in picture.shapes)
    name = escaped(picture.name)
    size = f'viewBox="0 0 {picture.width} {picture.height}" width="{picture.width}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{SCOPE} {SCOPE}-{theme}" {size} '
        f'height="{picture.height}" role="img" aria-label="{name}" '
        'style="max-width:100%;height:auto">'
        f"<title>{name}</title><style>{css(f'{SCOPE}-{theme}', theme)}</style>\n{body}\n</svg>\n"
    )


def digest(text: str) -> str:
    """Return a short name for a text that only it has."""
    return hashlib.sha256(text.encode()).hexdigest()[:10]


_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}


def escaped(text: str) -> str:
    """Return text as XML takes it anywhere; for signs that XML cannot hold, the replacement."""
    return "".join(_ESCAPES.get(sign) or (sign if _allowed(sign) else "\ufffd") for sign in text)


def _allowed(sign: str) -> bool:
    code = ord(sign)
    return sign in "\t\n\r" or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code > 0xFFFF


def _element(shape: Shape, number: dict[int, int]) -> str:
    since = "" if shape.since is None else f' data-since="{number[shape.since]}"'
    title = "" if shape.title is None else f"<title>{escaped(shape.title)}</title>"
    match shape:
        case Rect():
            name, attributes, inner = "rect", _rect(shape), title
        case Path():
            name, attributes, inner = "path", _path(shape), title
        case Label():
            name, attributes, inner = "text", _label(shape), title + escaped(shape.text)
        case _:
            assert_never(shape)
    open_tag = f'<{name} class="{shape.style}"{since} {" ".join(attributes)}'
    return f"{open_tag}>{inner}</{name}>" if inner else f"{open_tag}/>"


def _rect(rect: Rect) -> Iterator[str]:
    area = rect.area
    yield f'x="{_n(area.left)}" y="{_n(area.top)}"'
    yield f'width="{_n(area.right - area.left)}" height="{_n(area.bottom - area.top)}"'
    if rect.round:
        yield f'rx="{_n(rect.round)}"'
    if rect.covers:
        yield f'data-covers="{_n(rect.covers)}"'
    if rect.opacity < 1:
        yield f'opacity="{_n(rect.opacity)}"'


def _path(path: Path) -> Iterator[str]:
    points = " L".join(f"{_n(x)} {_n(y)}" for x, y in path.points)
    yield f'd="M{points}{"Z" if path.closed else ""}"'


def _label(label: Label) -> Iterator[str]:
    yield f'x="{_n(label.x)}" y="{_n(label.y)}" font-size="{_n(label.size)}"'
    if label.anchor != "start":
        yield f'text-anchor="{label.anchor}"'
    if label.turned:
        yield f'transform="rotate(-90 {_n(label.x)} {_n(label.y)})"'


def _n(value: float) -> str:
    """Return a number with two decimals at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"
