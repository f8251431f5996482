"""Colours and lines: Okabe and Ito's palette, safe for colour-blind eyes, on light and dark paper.

No meaning hangs on colour alone: timings differ in outline and are written out, outcomes differ in
shape. A *style* is a name that shapes carry; painters look it up here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

Theme: TypeAlias = Literal["auto", "light", "dark"]
THEMES: tuple[Theme, ...] = ("auto", "light", "dark")

# Okabe and Ito, "Color universal design", 2008; the dark theme's are the same hues, lighter.
LIGHT: Mapping[str, str] = {
    "paper": "#ffffff",
    "ink": "#1a1a1a",
    "quiet": "#5c5c5c",
    "faint": "#dcdcdc",
    "early": "#56b4e9",
    "ontime": "#0072b2",
    "late": "#e69f00",
    "open": "#8c8c8c",
    "mark": "#009e73",
    "dropped": "#d55e00",
    "retract": "#a8467e",
    "band": "#f0e442",
    "dense": "#5c5c5c",
}
DARK: Mapping[str, str] = {
    "paper": "#16181c",
    "ink": "#ececec",
    "quiet": "#a8a8a8",
    "faint": "#34373d",
    "early": "#56b4e9",
    "ontime": "#4aa3df",
    "late": "#e69f00",
    "open": "#8c8c8c",
    "mark": "#1fc296",
    "dropped": "#f0803c",
    "retract": "#e08fbc",
    "band": "#f0e442",
    "dense": "#a8a8a8",
}


@final
@dataclass(frozen=True, slots=True)
class Style:
    """How a shape is drawn.

    Args:
        fill: Name of a colour, or ``None``.
        stroke: Name of a colour, or ``None``.
        width: Of the stroke, in pixels.
        dash: Lengths of strokes and gaps, in pixels.
        fill_opacity: From 0 to 1.
        bold: For text.
    """

    fill: str | None = None
    stroke: str | None = None
    width: float = 1.0
    dash: tuple[float, ...] = ()
    fill_opacity: float = 1.0
    bold: bool = False


STYLES: Mapping[str, Style] = {
    "paper": Style("paper"),
    "frame": Style(None, "quiet"),
    "grid": Style(None, "faint"),
    "text": Style("ink"),
    "quiet": Style("quiet"),
    "head": Style("ink", bold=True),
    "ideal": Style(None, "quiet", 1.2, (1.5, 4)),
    "watermark": Style(None, "mark", 2.5),
    "watermark-name": Style("mark", bold=True),
    "band": Style("band", fill_opacity=0.16),
    "early": Style("early", "early", 1.2, (5, 3), 0.18),
    "ontime": Style("ontime", "ontime", 1.8, (), 0.2),
    "late": Style("late", "late", 1.4, (6, 2, 1.5, 2), 0.22),
    "open": Style("open", "open", 1, (2, 3), 0.08),
    "value": Style("ink", bold=True),
    "timing": Style("ink"),
    "plate": Style("paper", fill_opacity=0.75),
    "retract": Style(None, "retract", 2, (3, 2)),
    "retract-text": Style("retract", bold=True),
    "bracket": Style(None, "ink", 1.2),
    "merged": Style(None, "quiet", 1.2),
    "pair": Style(None, "ontime", 1.8),
    "erased": Style(None, "paper", 4),
    "alone": Style(None, "late", 1.6, (2, 3)),
    "alone-shape": Style("paper", "late", 2),
    "retracted-sign": Style(None, "retract", 2),
    "frontier": Style(None, "open", 1.6, (6, 4)),
    "side-watermark": Style(None, "mark", 1.5, (2, 3)),
    "kept": Style("paper", "ink", 1.3),
    "kept-dot": Style("ink"),
    "dropped": Style("dropped", "dropped", 1.5),
    "dropped-shape": Style("paper", "dropped", 1.8),
    "dropped-text": Style("dropped", bold=True),
    "duplicate-shape": Style("paper", "retract", 1.8),
    "duplicate-text": Style("retract", bold=True),
    "taken-back": Style("paper", "retract", 1.5, (3, 2)),
    "duplicate": Style("retract", "retract", 1.5),
    "dense": Style("dense"),
    "dense-dropped": Style("dropped"),
    "dense-early": Style("early"),
    "dense-ontime": Style("ontime"),
    "dense-late": Style("late"),
    "cover": Style("paper", "quiet", 1, (4, 3)),
    "stage": Style("ontime", "ontime", 1.4, (), 0.12),
    "table": Style("early", "early", 1.4, (), 0.16),
    "lid": Style(None, "early", 1.4),
    "source": Style("mark", "mark", 1.4, (), 0.12),
    "arrow": Style(None, "quiet", 1.6),
    "arrow-head": Style("quiet"),
}
_RARE = frozenset(
    (
        "pair", "erased", "alone", "alone-shape", "retracted-sign", "frontier", "side-watermark",
        "table", "lid", "dense-dropped", "dense-early", "dense-ontime", "dense-late",
    )
)  # fmt: skip
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif"


def css(scope: str, theme: Theme, used: Collection[str]) -> str:
    """Return the style sheet of a picture: variables for colours, a class for each style.

    Args:
        scope: A class name that the picture's root has, so that styles stay inside it.
        theme: See :func:`colours_css`.
        used: The styles that the picture uses: those of joins and tables are left out otherwise.
    """
    rules = (
        f".{scope} .{name}{{{_rules(style)}}}"
        for name, style in STYLES.items()
        if name in used or name not in _RARE
    )
    return "".join((colours_css(scope, theme), *rules))


def colours_css(
    scope: str,
    theme: Theme,
    light: Mapping[str, str] = LIGHT,
    dark: Mapping[str, str] = DARK,
) -> str:
    """Return the style sheet that defines the font, and a variable for each colour.

    Args:
        scope: A class name that the root has, so that styles stay inside it.
        theme: ``auto`` follows the reader's system, and the notebook where it says.
        light: The colours on light paper, by name.
        dark: The colours on dark paper.
    """
    on_light, on_dark = _variables(light), _variables(dark)
    parts = [f".{scope}{{{on_dark if theme == 'dark' else on_light};font-family:{FONT}}}"]
    if theme == "auto":
        parts.append(f"@media (prefers-color-scheme:dark){{.{scope}{{{on_dark}}}}}")
        parts.append(f"[data-jp-theme-light=true] .{scope},.light .{scope}{{{on_light}}}")
        parts.append(f"[data-jp-theme-light=false] .{scope},.dark .{scope}{{{on_dark}}}")
    return "".join(parts)


def tinted(colour: str, paper: str, share: float) -> str:
    """Mix a colour into the paper.

    >>> tinted("#ff0000", "#ffffff", 0.2)
    '#ffcccc'
    """
    pairs = [(int(colour[at : at + 2], 16), int(paper[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(share * own + (1 - share) * under):02x}" for own, under in pairs)


def _variables(colours: Mapping[str, str]) -> str:
    return ";".join(f"--lw-{name}:{value}" for name, value in colours.items())


def _rules(style: Style) -> str:
    rules = [f"fill:var(--lw-{style.fill})" if style.fill else "fill:none"]
    if style.fill_opacity < 1:
        rules.append(f"fill-opacity:{style.fill_opacity}")
    if style.stroke:
        rules.append(f"stroke:var(--lw-{style.stroke});stroke-width:{style.width}")
    if style.dash:
        rules.append(f"stroke-dasharray:{' '.join(map(str, style.dash))}")
    if style.bold:
        rules.append("font-weight:600")
    return ";".join(rules)
