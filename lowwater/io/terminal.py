"""Formats panes and other rows as text tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TextIO, final

from lowwater.display.text import cut, printable, visible
from lowwater.engine.records.panes import Pane
from lowwater.time import END_OF_TIME, START_OF_TIME, Instant, format_duration

_WIDEST = 40
_NARROWEST = 4  # of a column that is made to fit
_GAP = "  "


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]], *, indent: str = "") -> str:
    """Format rows as a table with headings; numbers are right-aligned.

    >>> print(table(["origin", "flights"], [["JFK", 12], ["LGA", 7]]))
    origin  flights
    JFK          12
    LGA           7
    """
    headings = [printable(heading) for heading in headings]
    given = [list(row) for row in rows]
    texts = [[cell(value) for value in row] for row in given]
    widths = [
        max(len(line[at]) for line in [list(headings), *texts]) for at in range(len(headings))
    ]
    right = [
        bool(given) and all(isinstance(row[at], (int, float)) for row in given)
        for at in range(len(headings))
    ]
    lines = [
        indent
        + "  ".join(
            text.rjust(width) if flush else text.ljust(width)
            for text, width, flush in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in [list(headings), *texts]
    ]
    return "\n".join(lines)


def say(text: object, *, file: TextIO | None = None, end: str = "\n") -> None:
    """Print a text for people: what is not printable in it is escaped.

    Args:
        text: The text; other values as ``str`` has them.
        file: Where to; standard output by default.
        end: What follows the text.
    """
    print(visible(str(text)), file=file, end=end)


def cell(value: Any, *, widest: int | None = _WIDEST) -> str:
    """Format a value for a table cell.

    Args:
        value: The value.
        widest: The length at which text is cut off; ``None`` for no such length.
    """
    if value is None:
        return "-"
    if isinstance(value, Instant):
        return moment(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, int):
        return f"{value:,}"
    text = printable(str(value))
    return text if widest is None else cut(text, widest)


def moment(at: int) -> str:
    """Format an instant in UTC without the ``T`` and the ``Z``.

    >>> moment(0)
    '1970-01-01 00:00:00'
    """
    return str(Instant(at)).replace("T", " ").removesuffix("Z")


def span(start: int, end: int) -> str:
    """Format a window as its start and its length.

    >>> span(0, 60_000_000)
    '1970-01-01 00:00:00 +1m'
    """
    if start == START_OF_TIME or end >= END_OF_TIME - 2 * 86_400_000_000:
        return "always"
    return f"{moment(start)} +{format_duration(end - start)}"


@final
class PaneTable:
    """Writes panes as they are emitted, in columns of constant width.

    Args:
        stream: The stream to write to.
        width: How many characters fit on a line; longer cells are cut off. ``None``: all cells are
            written whole.
    """

    def __init__(self, stream: TextIO, *, width: int | None = None) -> None:
        self._stream = stream
        self._width = width
        self._widths: list[int] | None = None

    def write(self, pane: Pane) -> None:
        """Write one pane; the first is preceded by the headings."""
        values = dict(pane.values)
        headings = ["key", "window", *map(printable, values), "timing", "pane", "kind", "watermark"]
        row = [
            cell(pane.key, widest=None),
            span(pane.window.start, pane.window.end),
            *(cell(value, widest=None) for value in values.values()),
            pane.timing,
            str(pane.index),
            pane.kind,
            moment(pane.watermark),
        ]
        if self._widths is None:
            least = [12, 0, *([8] * len(values)), 7, 0, 7, 19]
            widths = [max(len(h), m, len(c)) for h, m, c in zip(headings, least, row)]  # noqa: B905  # of one length
            self._widths = fitting(widths, self._width)
            self._line(headings)
        self._line(row)

    def _line(self, cells: Sequence[str]) -> None:
        assert self._widths is not None
        padded = [
            (cut(text, width) if self._width is not None else text).ljust(width)
            for text, width in zip(cells, self._widths, strict=True)
        ]
        self._stream.write(_GAP.join(padded).rstrip() + "\n")


def fitting(widths: Sequence[int], total: int | None) -> list[int]:
    """Return the widths of columns, the widest ones reduced until a line fits.

    Args:
        widths: The widths that the cells need, in characters.
        total: The width of a line; ``None`` for one of any length.

    >>> fitting([12, 5, 40], 40)
    [12, 5, 19]
    """
    found = list(widths)
    if total is None:
        return found
    room = total - len(_GAP) * (len(found) - 1)
    while sum(found) > room and max(found) > _NARROWEST:
        widest = found.index(max(found))
        found[widest] -= 1
    return found
