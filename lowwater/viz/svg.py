"""Renders pictures as self-contained SVG, and as HTML with a slider through the run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, assert_never

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
var frames=FRAMES,answers=ANSWERS,last=frames.length-1,bar=root.querySelector('.lw-bar');
var timer=null,slider=bar.querySelector('input'),text=bar.querySelector('output');
var play=bar.querySelector('.p'),svg=root.querySelector('svg'),said=root.querySelector('.lw-said');
function show(at){at=Math.max(0,Math.min(last,at));slider.value=at;text.textContent=frames[at][0];
root.querySelectorAll('[data-since]').forEach(function(shape){
shape.style.display=+shape.dataset.since<=at?'':'none'});
root.querySelectorAll('[data-covers]').forEach(function(cover){
cover.setAttribute('height',at===last?0:cover.dataset.covers*(1-frames[at][1]))})}
function stop(){if(timer)clearInterval(timer);timer=null;play.textContent='\\u25b6'}
function go(by){stop();show(+slider.value+by)}
function on(name,act){bar.querySelector(name).addEventListener('click',act)}
slider.addEventListener('input',function(){stop();show(+slider.value)});
on('.b',function(){go(-1)});on('.f',function(){go(1)});
on('.p',function(){if(timer){stop();return}
if(+slider.value>=last)show(0);play.textContent='\\u23f8';
timer=setInterval(function(){if(+slider.value>=last){stop();return}show(+slider.value+1)},700)});
var box=svg.viewBox.baseVal,wide=box.width,high=box.height,left=0,top=0,scale=1;
function view(){scale=Math.max(1,Math.min(40,scale));
left=Math.max(0,Math.min(wide-wide/scale,left));top=Math.max(0,Math.min(high-high/scale,top));
svg.setAttribute('viewBox',left+' '+top+' '+wide/scale+' '+high/scale);
svg.style.cursor=scale>1?'grab':'';
svg.style.touchAction=scale>1?'none':''}
function zoom(by,x,y){var before=scale;scale=Math.max(1,Math.min(40,scale*by));
left+=x*wide*(1/before-1/scale);top+=y*high*(1/before-1/scale);view()}
on('.i',function(){zoom(1.5,.5,.5)});on('.o',function(){zoom(1/1.5,.5,.5)});
on('.a',function(){scale=1;view()});
function share(event){var area=svg.getBoundingClientRect();
return[(event.clientX-area.left)/area.width,(event.clientY-area.top)/area.height]}
svg.addEventListener('wheel',function(event){if(!event.ctrlKey&&!event.metaKey)return;
event.preventDefault();var at=share(event);zoom(event.deltaY<0?1.2:1/1.2,at[0],at[1])},
{passive:false});
var held=null,moved=false;
svg.addEventListener('pointerdown',function(event){moved=false;
if(scale>1)held=[share(event),left,top]});
svg.addEventListener('pointermove',function(event){if(!held)return;var at=share(event);
var dx=at[0]-held[0][0],dy=at[1]-held[0][1];if(Math.abs(dx)+Math.abs(dy)>.01)moved=true;
left=held[1]-dx*wide/scale;top=held[2]-dy*high/scale;view()});
['pointerup','pointerleave'].forEach(function(name){
svg.addEventListener(name,function(){held=null})});
svg.addEventListener('keydown',function(event){var step=.15/scale,key=event.key;
if(key==='+'||key==='=')zoom(1.5,.5,.5);else if(key==='-')zoom(1/1.5,.5,.5);
else if(key==='0'){scale=1;view()}else if(scale>1&&key==='ArrowLeft'){left-=step*wide;view()}
else if(scale>1&&key==='ArrowRight'){left+=step*wide;view()}
else if(scale>1&&key==='ArrowUp'){top-=step*high;view()}
else if(scale>1&&key==='ArrowDown'){top+=step*high;view()}else return;event.preventDefault()});
svg.addEventListener('click',function(event){if(moved)return;
var shape=event.target,title=shape.querySelector&&shape.querySelector('title');
var name=shape!==svg&&title?title.textContent:'';said.hidden=!name;
said.textContent=answers[name]||name});
svg.setAttribute('tabindex','0');bar.style.display='flex';
if(last<1)['.b','.p','.f','input','output'].forEach(function(name){
bar.querySelector(name).style.display='none'});if(last>=0)show(last)})})();"""
_STYLE = (
    ".lw-run{max-width:WIDTHpx;margin:0 auto}"
    ".lw-bar{gap:8px;align-items:center;font:13px system-ui,sans-serif;padding:4px 14px}"
    ".lw-bar input{flex:1;min-width:60px}.lw-bar output{min-width:9em}"
    ".lw-bar button{font:inherit;min-width:2.4em}"
    ".lw-said{font:12px/1.4 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;"
    "margin:4px 14px;padding:6px 8px;border:1px solid;max-height:24em;overflow-y:auto}"
    ".lw-said[hidden]{display:none}"
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


def to_html(
    picture: Picture,
    *,
    theme: Theme = "auto",
    page: bool,
    answers: Mapping[str, str] | None = None,
) -> str:
    """Render a picture as self-contained HTML, to step through, to zoom into and to click.

    Args:
        picture: The picture.
        theme: The colours.
        page: Whether to return a page, or an element to embed in one.
        answers: What a click on a shape says, by the title of the shape; otherwise its title.
    """
    svg = to_svg(picture, theme=theme)
    name = digest(svg)
    inner = svg + _bar(max(0, len(picture.frames) - 1))
    inner += f"<script>{_script(picture, name, answers or {})}</script>"
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
        "<output></output>"
        '<button class="i" aria-label="zoom in">+</button>'
        '<button class="o" aria-label="zoom out">\u2212</button>'
        '<button class="a" aria-label="show all">1:1</button></div>'
        '<div class="lw-said" aria-live="polite" hidden></div>\n'
    )


def _script(picture: Picture, name: str, answers: Mapping[str, str]) -> str:
    frames = [[frame.text, round(frame.share, 5)] for frame in picture.frames]
    script = _SCRIPT.replace("ID", name).replace("FRAMES", _json(frames))
    return script.replace("ANSWERS", _json(answers))


def _json(value: Any) -> str:
    # Escape "<", so that no text in the data can close the script element.
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
