"""Collects what the diagram of a stage of ``match`` shows of each key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import final

import numpy as np

from lowwater.engine.graph.trace import StageTrace, TracedElement
from lowwater.engine.local.traced_columns import TraceColumns
from lowwater.engine.match.replay import Change, FoundMatch
from lowwater.engine.records.followed import Event
from lowwater.explain.match_history import KeyHistory
from lowwater.explain.matches import runs_text
from lowwater.time import START_OF_TIME, format_duration, format_instant
from lowwater.viz._panel import evenly, fair_share
from lowwater.viz.axes import MOST_STEPS, TraceOrdinates, span_of, visible_steps
from lowwater.viz.match_scene import Arc, MatchPanel, MatchScene, RowMark
from lowwater.viz.scene import Mark, Span, WatermarkStep
from lowwater.viz.words import (
    element_title,
    key_text,
    move_title,
    reason_text,
    value_text,
    watermark_text,
)

MOST_ROWS = 300
"""How many rows are drawn, of all keys together."""
MOST_ARCS = 200
"""How many matches are drawn, of all keys together."""
_LONGEST_VARIABLE = 10


def match_scene(
    trace: StageTrace,
    columns: TraceColumns,
    chosen: Sequence[int],
    *,
    stretch: Span | None,
    headed: bool,
    notes: Sequence[str],
) -> MatchScene:
    """Return the scene of a stage of ``match``.

    Args:
        trace: The trace of the stage.
        columns: Its elements.
        chosen: The numbers of the keys to draw.
        stretch: The event times to draw; ``None`` for all.
        headed: Whether there are several keys.
        notes: What is left out, in words.
    """
    ordinates = TraceOrdinates.of(trace, columns)
    x = stretch or span_of(columns.elements.time, 25)
    y = span_of(np.concatenate([ordinates.elements, ordinates.moves]), 8)
    watermark = tuple(_steps(trace, ordinates))
    rows = fair_share(MOST_ROWS, columns.elements.of_keys(len(columns.keys))[chosen].tolist())
    arcs = MOST_ARCS // max(1, len(chosen))
    panels = [_PanelOf(trace, columns, ordinates, key, stretch).build(rows, arcs) for key in chosen]
    if trace.sample is not None:
        notes = [*notes, "matches are not drawn: the trace has only a sample of the rows"]
    if trace.is_resumed:
        notes = [*notes, "rows that came before the run resumed are not in the trace"]
    return MatchScene(
        title=_title(trace),
        x=x,
        y=y,
        steps=ordinates.steps,
        watermark=visible_steps(watermark, x, y, MOST_STEPS),
        panels=tuple(panels),
        headed=headed,
        notes=tuple(notes),
    )


@final
class _PanelOf:
    """Collects the rows and matches of one key."""

    def __init__(
        self,
        trace: StageTrace,
        columns: TraceColumns,
        ordinates: TraceOrdinates,
        key: int,
        stretch: Span | None,
    ) -> None:
        self._trace, self._ordinates, self._stretch = trace, ordinates, stretch
        self._columns, self._key = columns, columns.keys[key]
        orders = columns.elements.order.tolist()
        self._moments = dict(zip(orders, ordinates.elements.tolist(), strict=True)) | dict(
            zip((move.order for move in trace.moves), ordinates.moves.tolist(), strict=True)
        )
        self._mine: list[int] = np.flatnonzero(columns.elements.key == key).tolist()
        self._history: KeyHistory | None = None
        if trace.sample is None and self._mine:
            self._history = KeyHistory(trace, trace.elements[self._mine[0]].key)

    def build(self, most_rows: int, most_arcs: int) -> MatchPanel:
        """Return the panel, with rows and matches from the whole of the run."""
        variables, corrects = self._variables(), self._corrections()
        times = self._columns.elements.time
        mine = [at for at in self._mine if self._is_drawn(int(times[at]))]
        arcs = [arc for arc in self._arcs() if self._is_drawn(arc.left)]
        notes = []
        if len(mine) > most_rows:
            more = len(mine) - most_rows
            notes.append(f"{more:,} more rows are not shown: narrow between=")
        if len(arcs) > most_arcs:
            notes.append(f"{len(arcs) - most_arcs:,} of {len(arcs):,} matches are not shown")
        arcs = list(levelled(arcs))
        shown = [arcs[at] for at in evenly(len(arcs), most_arcs).tolist()]
        rows = (
            RowMark(self._mark(mine[at], variables.get(mine[at], "")), mine[at] in corrects)
            for at in evenly(len(mine), most_rows).tolist()
        )
        return MatchPanel(key_text(self._key), tuple(rows), tuple(shown), tuple(notes))

    def _is_drawn(self, time: int) -> bool:
        return self._stretch is None or self._stretch.low <= time < self._stretch.high

    def _variables(self) -> dict[int, str]:
        """Return the variable that each element stands for in a match that stands."""
        history, found = self._history, dict[int, str]()
        for match in () if history is None else history.standing:
            for row, variable in match.parts:
                assert history is not None
                found.setdefault(history.place(row), variable or "..")
        return found

    def _corrections(self) -> set[int]:
        """Return the elements whose arrival changed what had been emitted."""
        history = self._history
        if history is None:
            return set()
        return {
            history.place(row)
            for change in history.changes
            if change.retracted or change.regrouped
            for row in change.event.rows
        }

    def _mark(self, at: int, variable: str) -> Mark:
        element: TracedElement = self._trace.elements[at]
        title = element_title(element, None)
        if variable:
            title = f"{variable}: {title}"
        text = value_text(variable, _LONGEST_VARIABLE) if variable else ""
        return Mark(
            element.time, int(self._ordinates.elements[at]), text, element.outcome, title,
            element.retract, reason_text(element), at,
        )  # fmt: skip

    def _arcs(self) -> Iterator[Arc]:
        """Yield each match that was emitted, in order; all at level 0."""
        history = self._history
        standing: dict[tuple[tuple[int, ...], tuple[str | None, ...]], int] = {}
        found: list[Arc] = []
        for change in () if history is None else history.changes:
            y = self._moments[change.event.order]
            for gone in (*change.retracted, *(before for before, _ in change.regrouped)):
                at = standing.pop((gone.rows, gone.variables), None)
                if at is not None:
                    title = f"{found[at].title}\nchanged at {format_instant(change.event.clock)}"
                    found[at] = replace(found[at], retracted=y, title=title)
            for match in (*change.emitted, *(now for _, now in change.regrouped)):
                standing[match.rows, match.variables] = len(found)
                found.append(_arc(match, change, y))
        yield from found


def levelled(arcs: Sequence[Arc]) -> Iterator[Arc]:
    """Yield arcs with the lowest level at which each overlaps none before it. O(n²) at worst."""
    taken: list[list[tuple[int, int]]] = []
    for arc in arcs:
        level = 0
        while level < len(taken) and any(
            left <= arc.right and arc.left <= right for left, right in taken[level]
        ):
            level += 1
        if level == len(taken):
            taken.append([])
        taken[level].append((arc.left, arc.right))
        yield replace(arc, level=level)


def _arc(match: FoundMatch, change: Change, y: int) -> Arc:
    event: Event = change.event
    variables = runs_text(match.variables)
    lines = [
        f"match {variables}",
        f"from {format_instant(match.start)} to {format_instant(match.end)}",
        *(
            f"{value_text(name, 60)} = {value_text(value, 60)}"
            for name, value in match.measures.items()
        ),
        f"emitted at {format_instant(event.clock)}",
        f"watermark at emission {watermark_text(event.watermark)}",
    ]
    return Arc(match.start, match.end, y, None, 0, variables, "\n".join(lines))


def _title(trace: StageTrace) -> str:
    rules = trace.matching
    assert rules is not None
    parts = [f"match({rules.text!r})"]
    if rules.within_us is not None:
        parts.append(f"within {format_duration(rules.within_us)}")
    if rules.emit != "on_time":
        parts.append(f"emit {rules.emit}")
    if rules.lateness_us:
        parts.append(f"allowed lateness {format_duration(rules.lateness_us)}")
    return f"{trace.name}: {', '.join(parts)}"


def _steps(trace: StageTrace, ordinates: TraceOrdinates) -> Iterator[WatermarkStep]:
    """Yield the steps of the watermark."""
    at = START_OF_TIME
    for move, y in zip(trace.moves, ordinates.moves.tolist(), strict=True):
        if move.input_watermark > at:
            at = move.input_watermark
            yield WatermarkStep(y, at, move_title(move))
