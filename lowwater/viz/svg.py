"""Renders pictures as self-contained SVG, and as HTML with a slider through the run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from typing import assert_never

from lowwater.display.html import escaped
from lowwater.display.palette import THEMES, Theme, css
from lowwater.errors import InvalidArgument, describe, nearest
from lowwater.viz.shapes import Label, Path, Picture, Rect, Shape

SCOPE = "lw-picture"


def to_svg(picture: Picture, *, theme: Theme = "auto") -> str:
    """Return a picture as an SVG element; the same picture gives the same text.

    A shape that appears at some moment has the number of its frame in ``data-since``, so that a
    script can hide it before.
    """
    number = {frame.moment: at for at, frame in enumerate(picture.frames)}
    body = "\n".join(_element(shape, number) for shape in picture.shapes)
    name, used = escaped(picture.name), {shape.style for shape in picture.shapes}
    styles = css(f"{SCOPE}-{theme}", theme, used)
    size = f'viewBox="0 0 {picture.width} {picture.height}" width="{picture.width}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{SCOPE} {SCOPE}-{theme}" {size} '
        f'height="{picture.height}" role="img" aria-label="{name}" '
        'style="max-width:100%;height:auto">'
        f"<title>{name}</title><style>{styles}</style>\n{body}\n</svg>\n"
    )


def shape_texts(picture: Picture) -> list[str]:
    """Return the element of each shape, without the moments at which they appear."""
    return [_element(shape, None) for shape in picture.shapes]


def svg_of(picture: Picture, inner: str, used: Collection[str], *, theme: Theme, name: str) -> str:
    """Return an SVG element with other content than the shapes of a picture.

    Args:
        picture: Has the size.
        inner: The content, as :func:`shape_texts` returns it.
        used: The styles that it uses.
        theme: The colours.
        name: What it is, for readers who cannot see it.
    """
    styles = css(f"{SCOPE}-{theme}", theme, used)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{SCOPE} {SCOPE}-{theme}" '
        f'viewBox="0 0 {picture.width} {picture.height}" width="{picture.width}" '
        f'height="{picture.height}" role="img" aria-label="{escaped(name)}" '
        f'style="max-width:100%;height:auto"><style>{styles}</style><g>{inner}</g></svg>'
    )


def check_theme(theme: object) -> None:
    """Raise if there is no such theme.

    Raises:
        InvalidArgument: There is none.
    """
    if theme not in THEMES:
        raise InvalidArgument(
            f"{describe('theme', theme)} is none of {', '.join(map(repr, THEMES))}",
            where="diagram",
            hint=nearest(str(theme), THEMES),
        )


def digest(text: str) -> str:
    """Return a short hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _element(shape: Shape, number: dict[int, int] | None) -> str:
    since = ""
    if number is not None and shape.since is not None:
        since = f' data-since="{number[shape.since]}"'
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
    """Format a number with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


_SCRIPT = """\
(function(){document.querySelectorAll('[data-lowwater="ID"]').forEach(function(root){
if(root.dataset.ready)return;root.dataset.ready='1';
var frames=FRAMES,last=frames.length-1,bar=root.querySelector('.lw-bar'),timer=null;
var slider=bar.querySelector('input'),text=bar.querySelector('output'),play=bar.querySelector('.p');
function show(at){at=Math.max(0,Math.min(last,at));slider.value=at;text.textContent=frames[at][0];
root.querySelectorAll('[data-since]').forEach(function(shape){
shape.style.display=+shape.dataset.since<=at?'':'none'});
root.querySelectorAll('[data-covers]').forEach(function(cover){
cover.setAttribute('height',at===last?0:cover.dataset.covers*(1-frames[at][1]))})}
function stop(){if(timer)clearInterval(timer);timer=null;play.textContent='\\u25b6'}
function go(by){stop();show(+slider.value+by)}
slider.addEventListener('input',function(){stop();show(+slider.value)});
bar.querySelector('.b').addEventListener('click',function(){go(-1)});
bar.querySelector('.f').addEventListener('click',function(){go(1)});
play.addEventListener('click',function(){if(timer){stop();return}
if(+slider.value>=last)show(0);play.textContent='\\u23f8';
timer=setInterval(function(){if(+slider.value>=last){stop();return}show(+slider.value+1)},700)});
bar.style.display='flex';show(last)})})();"""
_STYLE = (
    ".lw-run{max-width:WIDTHpx;margin:0 auto}"
    ".lw-bar{gap:8px;align-items:center;font:13px system-ui,sans-serif;padding:4px 14px}"
    ".lw-bar input{flex:1;min-width:60px}.lw-bar output{min-width:9em}"
    ".lw-bar button{font:inherit;min-width:2.4em}"
)
_PAGE_STYLE = (
    ":root{color-scheme:light dark}body{margin:0;background:#fff;color:#1a1a1a}"
    "@media (prefers-color-scheme:dark){body{background:#16181c;color:#ececec}}"
)
_PAGE_STYLES = {
    "auto": _PAGE_STYLE,
    "light": ":root{color-scheme:light}body{margin:0;background:#fff;color:#1a1a1a}",
    "dark": ":root{color-scheme:dark}body{margin:0;background:#16181c;color:#ececec}",
}


def to_html(picture: Picture, *, theme: Theme = "auto", page: bool) -> str:
    """Render a picture as self-contained HTML.

    Args:
        picture: The picture.
        theme: The colours.
        page: Whether to return a page, or an element to embed in one.
    """
    svg = to_svg(picture, theme=theme)
    name = digest(svg)
    inner = svg
    if len(picture.frames) > 1:
        inner += _bar(len(picture.frames) - 1) + f"<script>{_script(picture, name)}</script>"
    style = _STYLE.replace("WIDTH", str(picture.width))
    body = f'<div class="lw-run" data-lowwater="{name}"><style>{style}</style>\n{inner}</div>\n'
    return page_around(body, picture.name, theme) if page else body


def page_around(body: str, name: str, theme: Theme) -> str:
    """Return a page with a body, on paper of a theme."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escaped(name)}</title><style>{_PAGE_STYLES[theme]}</style></head>"
        f"<body>\n{body}</body></html>\n"
    )


def _bar(last: int) -> str:
    return (
        '<div class="lw-bar" style="display:none">'
        '<button class="b" aria-label="one step back">\u25c0</button>'
        '<button class="p" aria-label="play">\u25b6</button>'
        '<button class="f" aria-label="one step forward">\u25b6\ufe0e|</button>'
        f'<input type="range" min="0" max="{last}" value="{last}" aria-label="position in the run">'
        "<output></output></div>\n"
    )


def _script(picture: Picture, name: str) -> str:
    frames = [[frame.text, round(frame.share, 5)] for frame in picture.frames]
    # Escape "<", so that no text in the data can close the script element.
    data = json.dumps(frames, separators=(",", ":")).replace("<", "\\u003c")
    return _SCRIPT.replace("ID", name).replace("FRAMES", data)
