"""The text of explanations, and the format of instants in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, final

from lowwater.display import html
from lowwater.display.text import counted, printable, shown
from lowwater.engine.graph.trace import StageTrace, TracedElement
from lowwater.engine.records.panes import Pane
from lowwater.io.terminal import moment
from lowwater.time import END_OF_TIME, START_OF_TIME
from lowwater.windows import Window

_DAY = len("2000-01-01 ")
_PANE = re.compile(r"\b((?:EARLY|ON_TIME|LATE) #\d+)")
_NEARLY = END_OF_TIME - 2 * 86_400_000_000
"""The global window ends a day before the end of time."""
_MILLISECOND = 1_000


@final
@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """Lines of text that explain what happened, with the elements and panes they are about.

    Args:
        lines: The lines.
        elements: The elements.
        panes: The panes.
    """

    lines: tuple[str, ...]
    elements: tuple[TracedElement, ...] = ()
    panes: tuple[Pane, ...] = ()

    def __str__(self) -> str:
        return "\n".join(map(printable, self.lines))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        name = self.lines[0] if self.lines else "nothing to explain"
        return html.display(html.marked(name), *map(_line_markup, self.lines[1:]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)

    def __contains__(self, text: str) -> bool:
        return text in str(self)


@final
@dataclass(frozen=True, slots=True)
class Times:
    """Formats instants: on one day only the time, on other days with the date.

    Args:
        day: The day, as ``2000-01-01``.

    >>> from lowwater.time import instant
    >>> Times("2000-01-01").at(instant("2000-01-01T12:00:26Z"))
    '12:00:26'
    """

    day: str

    @classmethod
    def of(cls, at: int) -> Times:
        """Return the formatter for the day of an instant."""
        return cls(moment(at)[: _DAY - 1])

    def at(self, at: int) -> str:
        """Format an instant."""
        if at == START_OF_TIME:
            return "-inf"
        if at >= _NEARLY:
            return "the end of time"
        text = moment(at)
        return text[_DAY:] if text.startswith(f"{self.day} ") else text

    def clock(self, at: int) -> str:
        """Format the clock of an event, to the millisecond: the order of events says the rest."""
        text = self.at(at if at == START_OF_TIME or at >= _NEARLY else at - at % _MILLISECOND)
        return text[:-3] if text.endswith("000") and "." in text else text

    def window(self, window: Window) -> str:
        """Format a window."""
        if window.start == START_OF_TIME and window.end >= _NEARLY:
            return "always"
        return f"[{self.at(window.start)}, {self.at(window.end)})"


def _line_markup(line: str) -> html.Markup:
    """Return a line of an explanation as markup: its time apart, timings as badges."""
    text = line.lstrip(" ")
    depth = max(0, (len(line) - len(text)) // 2 - 1)
    if not text:  # between two windows
        return html.rule()
    when, gap, what = text.partition("  ")
    if not gap:
        when, what = "", text
    if text == line:
        return html.heading(html.marked(line))
    parts = [  # the split has a pane at each odd place
        html.badge(part, html.TIMINGS[part.partition(" ")[0]]) if at % 2 else html.marked(part)
        for at, part in enumerate(_PANE.split(what))
    ]
    return html.event(when, html.sentence(parts), indent=depth)


def values_text(values: Any) -> str:
    """Format the values of an element or a pane; one alone without its name.

    >>> values_text({"points": 5}), values_text({"points": 5, "share": 0.1 + 0.2})
    ('5', 'points=5, share=0.3')
    """
    if not isinstance(values, dict):
        return shown(values)
    if len(values) == 1:
        return values_text(next(iter(values.values())))
    return ", ".join(f"{name}={shown(value)}" for name, value in values.items())


def element_text(values: Any) -> str:
    """Return a name for an element: by its values, if an aggregate reads any.

    >>> element_text({"points": 5}), element_text({})
    ('element 5', 'element')
    """
    return f"element {values_text(values)}" if values != {} else "element"


def sample_lines(stages: Iterable[StageTrace]) -> Iterator[str]:
    """Yield a line for each stage of which the trace has a sample, and how to get all elements."""
    sampled = [stage for stage in stages if stage.sample is not None]
    for stage in sampled:
        yield (
            f"the trace keeps {len(stage.elements):,} of {counted(stage.arrived, 'element')} of "
            f"stage `{stage.name}`: all that were dropped or merged windows, and a sample of others"
        )
    if sampled:
        yield "run it with trace=lw.Tracing(limit=None) to keep all of them"
