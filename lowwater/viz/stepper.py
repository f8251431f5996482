"""The painter for HTML: the SVG, and where scripts run a slider that moves through the run.

Without scripts the whole run is shown and the slider stays hidden.
"""

from __future__ import annotations

import json

from lowwater.viz.palette import Theme
from lowwater.viz.shapes import Picture
from lowwater.viz.svg import digest, escaped, to_svg

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
    """Return a picture as HTML that loads nothing.

    Args:
        picture: What to show.
        theme: For light or dark paper.
        page: Whether to return a page, or an element to put into one.
    """
    svg = to_svg(picture, theme=theme)
    name = digest(svg)
    inner = svg
    if len(picture.frames) > 1:
        inner += _bar(len(picture.frames) - 1) + f"<script>{_script(picture, name)}</script>"
    style = _STYLE.replace("WIDTH", str(picture.width))
    body = f'<div class="lw-run" data-lowwater="{name}"><style>{style}</style>\n{inner}</div>\n'
    if not page:
        return body
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escaped(picture.name)}</title><style>{_PAGE_STYLES[theme]}</style></head>"
        f"<body>\n{body}</body></html>\n"
    )


def _bar(last: int) -> str:
    return (
        '<div class="lw-bar" style="display:none">'
        '<button class="b" aria-label="one step back">\u25c0</button>'
        '<button class="p" aria-label="play">\u25b6</button>'
        '<button class="f" aria-label="one step on">\u25b6\ufe0e|</button>'
        f'<input type="range" min="0" max="{last}" value="{last}" aria-label="moment of the run">'
        "<output></output></div>\n"
    )


def _script(picture: Picture, name: str) -> str:
    frames = [[frame.text, round(frame.share, 5)] for frame in picture.frames]
    # No "<" comes into the script, so no text can end it.
    data = json.dumps(frames, separators=(",", ":")).replace("<", "\\u003c")
    return _SCRIPT.replace("ID", name).replace("FRAMES", data)
