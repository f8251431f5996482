"""The building blocks of displays in notebooks: tables, badges, tiles, heat cells.

A display is one element with its style inside: it loads nothing and runs no script. All text is
escaped, except for :class:`Markup`, which only these functions make. Colours are those of the
diagrams; none of them carries meaning alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final

from lowwater.display.palette import DARK, LIGHT, Theme, colours_css, tinted
from lowwater.display.text import plain, printable

Kind: TypeAlias = Literal["early", "ontime", "late", "retract", "mark", "dropped", "quiet"]
"""What a badge or tile is about, by the name of its colour."""
KINDS: tuple[Kind, ...] = ("early", "ontime", "late", "retract", "mark", "dropped", "quiet")
TIMINGS: dict[str, Kind] = {"EARLY": "early", "ON_TIME": "ontime", "LATE": "late"}

SCOPE = "lw-display"
HEATS = 6
"""The number of shades of heat cells."""
_CODE = re.compile(r"`([^`]+)`")
_HOTTEST = 0.6
_TINT = 0.18
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}


@final
class Markup(str):
    """HTML whose text is escaped already."""

    __slots__ = ()


@final
@dataclass(frozen=True, slots=True)
class TableCell:
    """A cell of a table with a class or a title of its own.

    Args:
        content: A value, or markup.
        style: The class.
        title: What hovering over it says.
    """

    content: Any
    style: str = ""
    title: str = ""


def escaped(text: str) -> str:
    """Escape text for HTML and XML; characters that XML cannot represent become U+FFFD."""
    return "".join(_ESCAPES.get(sign) or (sign if _allowed(sign) else "\ufffd") for sign in text)


def display(name: str | Markup, *content: Markup, theme: Theme = "auto") -> str:
    """Return a display: an element to embed in a page, with a heading and its style.

    Args:
        name: The heading, as text or markup.
        content: What comes below it.
        theme: The colours.
    """
    scope = f"{SCOPE}-{theme}"
    head = _element("div", name, style="lw-name")
    style = colours_css(scope, theme, *map(_colours, (LIGHT, DARK))) + _CSS
    return f'<div class="{SCOPE} {scope}"><style>{style}</style>{head}{"".join(content)}</div>'


def badge(text: str, kind: Kind) -> Markup:
    """Return a short text on its colour."""
    return _element("span", text, style=f"lw-badge lw-{kind}")


def joined(*parts: Any) -> Markup:
    """Return values one after the other, with spaces between."""
    return Markup(" ".join(map(_inner, parts)))


def sentence(parts: Iterable[str]) -> Markup:
    """Return texts and markup one after the other, with no space that they do not have."""
    return Markup(
        "".join(part if isinstance(part, Markup) else escaped(printable(part)) for part in parts)
    )


def marked(text: str) -> Markup:
    """Return a text with what stands between backticks as code.

    >>> str(marked("in `a<b`"))
    'in <code class="lw-code">a&lt;b</code>'
    """
    parts = _CODE.split(printable(text))  # which has the code at each odd place
    return sentence(
        _element("code", Markup(escaped(part)), style="lw-code") if at % 2 else part
        for at, part in enumerate(parts)
    )


def line(*parts: Any) -> Markup:
    """Return values on a line of their own."""
    return _element("div", joined(*parts), style="lw-line")


def heading(text: str | Markup) -> Markup:
    """Return the heading of a part."""
    return _element("div", text, style="lw-head")


def stacked(*parts: Any) -> Markup:
    """Return values one below the other."""
    return Markup("".join(_element("div", part, style="lw-part") for part in parts))


def rule() -> Markup:
    """Return a line across, between two things of one kind."""
    return Markup('<div class="lw-rule"></div>')


def note(text: str | Markup) -> Markup:
    """Return a line of small print."""
    return _element("div", text, style="lw-note")


def link(url: str) -> Markup:
    """Return a link that opens in a window of its own."""
    address = escaped(url)
    return Markup(f'<a href="{address}" target="_blank" rel="noopener">{address}</a>')


def code(text: str) -> Markup:
    """Return lines of code as they are."""
    return Markup(f"<pre>{escaped(text)}</pre>")


def more(number: int, noun: str) -> Markup:
    """Return how many things are left out; nothing if there are none."""
    return note(f"… {number:,} more {noun}{'' if number == 1 else 's'}") if number > 0 else Markup()


def event(when: str, what: Any, *, indent: int = 0) -> Markup:
    """Return a line with a time on its left; on narrow pages the time is above.

    Args:
        when: The time; empty for none.
        what: What happened.
        indent: How many steps it is indented by.
    """
    time = _element("span", when, style="lw-when") if when else ""
    within = f" lw-in{min(indent, 3)}" if indent else ""
    inner = Markup(time + _element("span", what, style="lw-what"))
    return _element("div", inner, style=f"lw-event{within}")


def tiles(shown: Iterable[tuple[str, Any, Kind]]) -> Markup:
    """Return numbers to see at a glance: the name, value and kind of each."""
    boxes = (
        _element(
            "div",
            Markup(
                _element("div", value, style="lw-value") + _element("div", name, style="lw-label")
            ),
            style=f"lw-tile lw-edge-{kind}",
        )
        for name, value, kind in shown
    )
    return _element("div", Markup("".join(boxes)), style="lw-tiles")


def table(headings: Sequence[Any], rows: Iterable[Sequence[Any]]) -> Markup:
    """Return a table, which scrolls in a box of its own; columns of numbers are right-aligned.

    Args:
        headings: The headings.
        rows: Values, markup or :class:`TableCell`, one for each heading.
    """
    given = [list(row) for row in rows]
    right = [
        bool(given) and all(_is_number(row[at]) for row in given) for at in range(len(headings))
    ]
    head = "".join(_cell("th", name, flush) for name, flush in zip(headings, right, strict=True))
    body = "".join(
        f"<tr>{''.join(_cell('td', each, flush) for each, flush in zip(row, right, strict=True))}"
        "</tr>"
        for row in given
    )
    inner = f'<table class="lw-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return scrolling(Markup(inner))


def heat(content: Any, share: float, *, marked: bool = False, title: str = "") -> TableCell:
    """Return a cell of a heat map.

    Args:
        content: What it says.
        share: How hot it is, from 0 to 1; all that is above 0 has a shade.
        marked: Whether it has a frame.
        title: What hovering over it says.
    """
    shade = 0 if share <= 0 else 1 + min(HEATS - 2, int(share * (HEATS - 1)))
    return TableCell(content, f"lw-heat{shade}{' lw-marked' if marked else ''}", title)


def details(summary: str, *content: Markup) -> Markup:
    """Return content that is folded until its summary is clicked."""
    head = _element("summary", summary, style="lw-summary")
    return _element("details", Markup(head + "".join(content)), style="lw-details")


def scrolling(content: Markup) -> Markup:
    """Return content that scrolls sideways if it is wider than the page."""
    return _element("div", content, style="lw-scroll")


def _element(tag: str, content: Any, *, style: str) -> Markup:
    return Markup(f'<{tag} class="{style}">{_inner(content)}</{tag}>')


def _cell(tag: str, given: Any, flush: bool) -> str:
    cell = given if isinstance(given, TableCell) else TableCell(given)
    styles = " ".join(filter(None, (cell.style, "lw-right" if flush else "")))
    style = f' class="{styles}"' if styles else ""
    title = f' title="{escaped(cell.title)}"' if cell.title else ""
    return f"<{tag}{style}{title}><div>{_inner(cell.content)}</div></{tag}>"


def _inner(content: Any) -> str:
    return content if isinstance(content, Markup) else escaped(plain(content))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _allowed(sign: str) -> bool:
    code = ord(sign)
    return sign in "\t\n\r" or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code > 0xFFFF


def _colours(colours: Mapping[str, str]) -> dict[str, str]:
    """Return the colours of a theme with their tints, which text can stand on."""
    paper = colours["paper"]
    tints = {f"{kind}-tint": tinted(colours[kind], paper, _TINT) for kind in KINDS}
    heats = {
        f"heat{at}": tinted(colours["dropped"], paper, _HOTTEST * at / (HEATS - 1))
        for at in range(HEATS)
    }
    return {**colours, **tints, **heats, "stripe": tinted(colours["ink"], paper, 0.03)}


_DASHED = ("early", "retract")  # what is not final, also in pictures
_KIND_RULES = {
    **{
        f".lw-badge.lw-{kind}": (
            f"background:var(--lw-{kind}-tint);border-color:var(--lw-{kind})"
            + (";border-style:dashed" if kind in _DASHED else "")
        )
        for kind in KINDS
    },
    **{f".lw-tile.lw-edge-{kind}": f"border-left-color:var(--lw-{kind})" for kind in KINDS},
}
_HEAT_RULES = {
    f".lw-table td.lw-heat{at}": (
        f"background:var(--lw-heat{at});padding:5px 12px;border:2px solid var(--lw-paper)"
    )
    for at in range(HEATS)
}
_RULES: dict[str, str] = {
    "": (
        "box-sizing:border-box;max-width:100%;margin:2px 0 8px;padding:12px 14px;font-size:13px;"
        "line-height:1.45;color:var(--lw-ink);background:var(--lw-paper);"
        "border:1px solid var(--lw-faint);border-radius:8px;overflow-wrap:anywhere"
    ),
    ".lw-name": "font-weight:600;font-size:14px;margin:0 0 8px",
    ".lw-head": "font-weight:600;margin:10px 0 4px",
    ".lw-code": (
        "font-family:ui-monospace,SFMono-Regular,'DejaVu Sans Mono',monospace;font-size:.93em;"
        "padding:0;background:none;color:inherit"
    ),
    ".lw-line": "display:flex;flex-wrap:wrap;gap:4px 6px;align-items:baseline;margin:6px 0",
    ".lw-rule": "border-top:1px solid var(--lw-faint);margin:10px 0",
    ".lw-note": "margin:4px 0 0;color:var(--lw-quiet);font-size:12px",
    ".lw-badge": (
        "display:inline-block;padding:0 7px;border-radius:9px;font-size:11.5px;line-height:18px;"
        "white-space:nowrap;color:var(--lw-ink);border:1px solid"
    ),
    ".lw-tiles": "display:flex;flex-wrap:wrap;gap:8px;margin:6px 0",
    ".lw-tile": (
        "box-sizing:border-box;min-width:104px;padding:6px 12px 7px 10px;border-radius:5px;"
        "border:1px solid var(--lw-faint);border-left:4px solid"
    ),
    **_KIND_RULES,
    ".lw-value": "font-size:18px;line-height:1.25;font-variant-numeric:tabular-nums",
    ".lw-label": "font-size:12px;color:var(--lw-quiet)",
    ".lw-scroll": "overflow-x:auto;max-width:100%;margin:6px 0",
    ".lw-scroll svg": "display:block;max-width:none!important",
    ".lw-table": (
        "border-collapse:collapse;border:0;margin:0;width:max-content;font-size:12.5px;"
        "table-layout:auto;color:var(--lw-ink)"
    ),
    ".lw-table thead": "border:0",
    ".lw-table tr": "background:none;border:0",
    ".lw-table td": (
        "padding:3px 12px 3px 0;border:0;border-bottom:1px solid var(--lw-faint);max-width:none;"
        "background:none;color:var(--lw-ink);text-align:left;vertical-align:baseline;"
        "font-variant-numeric:tabular-nums"
    ),
    ".lw-table th": (
        "padding:3px 12px 3px 0;border:0;border-bottom:1px solid var(--lw-faint);"
        "background:none;color:var(--lw-quiet);text-align:left;vertical-align:bottom;"
        "font-weight:600;white-space:nowrap"
    ),
    ".lw-table td div": "max-width:30em;overflow-wrap:break-word",
    ".lw-table .lw-right": "text-align:right",
    **_HEAT_RULES,
    ".lw-table th.lw-over": "padding-left:14px",
    ".lw-table td.lw-marked": "outline:2px solid var(--lw-ink);outline-offset:-3px",
    ".lw-details": "margin:6px 0 0",
    ".lw-summary": "cursor:pointer;display:list-item;font-style:normal",
    ".lw-event": ("display:flex;flex-wrap:wrap;column-gap:10px;align-items:baseline;margin:2px 0"),
    **{f".lw-in{at}": f"margin-left:{at * 16}px" for at in range(1, 4)},
    ".lw-when": "flex:none;color:var(--lw-quiet);font-variant-numeric:tabular-nums",
    ".lw-what": "flex:1 1 18em;min-width:0",
}
# The class twice: notebooks style tables too, by longer selectors than one class.
_CSS = "".join(f".{SCOPE}.{SCOPE} {at}{{{rules}}}" for at, rules in _RULES.items())
