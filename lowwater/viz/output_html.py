"""Displays of outputs in notebooks: tables of panes, elements, late elements and dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias, final

from lowwater.display import html
from lowwater.display.text import counted
from lowwater.engine.records.panes import ErrorRecord, LateRecord, Pane
from lowwater.explain.text import Times
from lowwater.io.terminal import moment, span
from lowwater.time import Instant, format_duration
from lowwater.viz.graph_diagram import GraphDiagram
from lowwater.viz.words import endless
from lowwater.windows import Window

MOST = 20
"""The most panes or elements in a table."""
_NAMES = {"retract": "retractions"}
FEW = 5
"""The most late elements and dead letters."""

Emission: TypeAlias = tuple[Any, Any, Instant]
"""What a process emitted: key, value and event time."""


@final
@dataclass(frozen=True, slots=True)
class Rejected:
    """What an output lacks: late elements and dead letters, and the first few of each.

    Args:
        late: Late elements by reason.
        errors: Dead letters by reason.
        first_late: The first late elements.
        first_errors: The first dead letters.
    """

    late: Mapping[str, int]
    errors: Mapping[str, int]
    first_late: Iterable[LateRecord] = ()
    first_errors: Iterable[ErrorRecord] = ()

    @classmethod
    def of(cls, late: Sequence[LateRecord], errors: Sequence[ErrorRecord]) -> Rejected:
        """Return those of lists of all of them."""
        reasons = Counter(str(one.reason) for one in late), Counter(one.reason for one in errors)
        return cls(*reasons, late, errors)

    def badges(self) -> list[html.Markup]:
        """Return the counts by reason."""
        late = [html.badge(f"{n:,} late: {why}", "late") for why, n in self.late.items() if n]
        named = ((counted(n, "dead letter"), why) for why, n in self.errors.items() if n)
        return late + [html.badge(f"{text}: {why}", "dropped") for text, why in named]

    def tables(self) -> list[html.Markup]:
        """Return the first few of each, folded."""
        late = [
            [one.reason, moment(one.time), one.key, _window(one.window), one.value]
            for one in islice(self.first_late, FEW)
        ]
        errors = [
            [one.reason, one.detail, one.record, one.where]
            for one in islice(self.first_errors, FEW)
        ]
        return [
            *_folded("late", ["reason", "event time", "key", "window", "element"], late, self.late),
            *_folded("dead letters", ["reason", "detail", "record", "where"], errors, self.errors),
        ]


def panes_html(
    name: str,
    panes: Iterable[Pane],
    counts: Mapping[str, int],
    rejected: Rejected,
    *,
    keys: Sequence[str] = ("key",),
) -> str:
    """Return the display of a windowed output. Reads no more panes than it shows.

    Args:
        name: The heading.
        panes: The panes, retractions included, in the order of emission.
        counts: How many of them there are, by timing, and of retractions as ``retract``.
        rejected: Late elements and dead letters.
        keys: The names of the key columns.
    """
    shown = list(islice(panes, MOST))
    total = sum(counts.values())
    kinds: dict[str, html.Kind] = {**html.TIMINGS, "retract": "retract"}
    badges = [
        html.badge(f"{counts[kind]:,} {_NAMES.get(kind, kind)}", of)
        for kind, of in kinds.items()
        if counts.get(kind)
    ]
    times = _common_day(shown)
    values = list(dict.fromkeys(column for pane in shown for column in pane.values))
    rows = (
        [
            *_key(pane.key, keys), _window(pane.window, times), _badges(pane),
            *(pane.values.get(column) for column in values),
        ]
        for pane in shown
    )  # fmt: skip
    table = html.table([*keys, "window", "pane", *values], rows)
    day = html.Markup() if times is None else html.note(f"windows start on {times.day}, in UTC")
    return html.display(
        f"{name}: {counted(total, 'pane')}",
        _counts(badges + rejected.badges()),
        *([day, table] if shown else [html.note("no panes")]),
        html.more(total - len(shown), "pane"),
        *rejected.tables(),
    )


def elements_html(
    name: str,
    outputs: Mapping[str, tuple[Iterable[Emission], int]],
    rejected: Rejected,
    *,
    keys: Sequence[str],
) -> str:
    """Return the display of what a process emitted. Reads no more elements than it shows.

    Args:
        name: The heading.
        outputs: The elements of each output and how many there are, by its tag.
        rejected: Late elements and dead letters.
        keys: The names of the key columns.
    """
    parts: list[html.Markup] = []
    for tag, (elements, total) in outputs.items():
        shown = list(islice(elements, MOST))
        names, values = _fields([value for _, value, _ in shown])
        rows = (
            [*_key(key, keys), *row, moment(at)]
            for (key, _, at), row in zip(shown, values, strict=True)
        )
        parts.append(html.line(html.badge(f"output {tag}", "ontime"), counted(total, "element")))
        if shown:
            parts.append(html.table([*keys, *names, "event time"], rows))
        parts.append(html.more(total - len(shown), "element"))
    total = sum(number for _, number in outputs.values())
    counts = _counts(rejected.badges())
    return html.display(f"{name}: {counted(total, 'element')}", counts, *parts, *rejected.tables())


def graph_html(name: str, graph: GraphDiagram) -> str:
    """Return the display of a pipeline: its graph, under a heading."""
    return html.display(name, html.scrolling(html.Markup(graph.to_svg())))


def _fields(values: Sequence[Any]) -> tuple[list[str], list[list[Any]]]:
    """Return the fields of records as columns; plain values are one column."""
    if not all(isinstance(value, Mapping) for value in values):
        return ["value"], [[value] for value in values]
    names = list(dict.fromkeys(name for value in values for name in value))
    return names, [[value.get(name) for name in names] for value in values]


def _key(key: Any, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(key) if len(names) > 1 else (key,)


def _common_day(panes: Sequence[Pane]) -> Times | None:
    """Return a formatter without dates if all windows start on one day."""
    if any(endless(pane.window.start) or endless(pane.window.end) for pane in panes):
        return None
    days = [Times.of(pane.window.start) for pane in panes]
    return days[0] if days and len(set(days)) == 1 else None


def _window(window: Window | None, times: Times | None = None) -> str | None:
    if window is None:
        return None
    if times is None:
        return span(window.start, window.end)
    return f"{times.at(window.start)} +{format_duration(window.end - window.start)}"


def _badges(pane: Pane) -> html.Markup:
    timing = html.badge(f"{pane.timing} #{pane.index}", html.TIMINGS[pane.timing])
    if pane.kind == "insert":
        return timing
    return html.joined(timing, html.badge("retract", "retract"))


def _counts(badges: Sequence[html.Markup]) -> html.Markup:
    return html.line(*badges) if badges else html.Markup()


def _folded(
    name: str, headings: Sequence[str], rows: Sequence[Sequence[Any]], counts: Mapping[str, int]
) -> list[html.Markup]:
    total = sum(counts.values())
    if not total:
        return []
    parts = [html.table(headings, rows)] if rows else []
    left = html.more(total - len(rows), "element")
    return [html.details(f"{name}: {total:,}", *parts, left)]
