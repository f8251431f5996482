"""Builds the scene of a stage from its trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from lowwater.engine.graph.outline import spec_text
from lowwater.engine.graph.trace import StageTrace
from lowwater.engine.graph.traced_parts import keys_of
from lowwater.errors import InvalidArgument, describe, nearest
from lowwater.time import (
    START_OF_TIME,
    Instant,
    InstantLike,
    format_duration,
    format_instant,
    instant,
)
from lowwater.viz._panel import PanelLimits, PanelOf, hashable
from lowwater.viz.axes import MOST_STEPS, TraceOrdinates, visible_steps
from lowwater.viz.join_scene import AnyScene, join_scene
from lowwater.viz.scene import Panel, Scene, Span, WatermarkStep
from lowwater.viz.words import endless, move_title, watermark_text
from lowwater.windows import Window

Between: TypeAlias = tuple[InstantLike, InstantLike]

MOST_KEYS = 6
"""How many keys are drawn by default."""
_FAR = 1
"""Dropped elements extend the axis on either side by at most this factor of the rest."""
_AIR = 30
"""One part in this many of an axis stays free at either end."""


def compose(
    trace: StageTrace,
    *,
    keys: Sequence[Any] | None = None,
    column: str | None = None,
    between: Between | None = None,
) -> AnyScene:
    """Return the scene of a stage. O(n log n) in elements and panes.

    Args:
        trace: The trace of the stage.
        keys: The keys to draw, in order; by default those with the most events, in order of
            appearance.
        column: The aggregate to draw, the first by default; of a join the column of its records.
        between: The first event time to draw, and the end (exclusive); all by default.

    Raises:
        InvalidArgument: There is no such column or key, or ``between`` is not an interval.
    """
    stretch = None if between is None else _stretch(between)
    whole, trace = trace, trace if stretch is None else _within(trace, stretch)
    if whole.joining is not None:
        chosen, left_out = _keys(trace, keys, whole, stretch)
        return join_scene(
            whole, chosen, column=column, stretch=stretch, headed=len(_busy(whole)) > 1,
            notes=[
                *_left_out(left_out, stretch, is_empty=not trace.elements), *sample_notes(whole)
            ],
        )  # fmt: skip
    if whole.matching is not None:
        if column is not None:
            raise InvalidArgument(
                f"rows of the stage {whole.name!r} are drawn with the variables they stand for",
                where="diagram(column=)",
                hint="Leave column= out",
            )
        # Imported on use: it loads the searches.
        from lowwater.viz.match_panel import match_scene

        chosen, left_out = _keys(trace, keys, whole, stretch)
        return match_scene(
            whole, chosen, stretch=stretch, headed=len(_busy(whole)) > 1,
            notes=[
                *_left_out(left_out, stretch, is_empty=not trace.elements), *sample_notes(whole)
            ],
        )  # fmt: skip
    shown = _aggregate(trace, column)
    spec = trace.aggregates.get(shown) if shown is not None else None
    chosen, left_out = _keys(trace, keys, whole, stretch)
    ordinates = TraceOrdinates.of(trace)
    x = _x_span(trace) if stretch is None else Span.airy(stretch.low, stretch.high, _AIR)
    y = _y_span(ordinates)
    watermark = tuple(_watermark(trace, ordinates))
    limits = PanelLimits.of(trace, chosen)
    panels: list[Panel] = []
    for key in chosen:
        panel = PanelOf(trace, key, ordinates, x, y, watermark, limits)
        panels.append(panel.build(shown, getattr(spec, "column", None)))
    notes = _left_out(left_out, stretch, is_empty=not (trace.elements or trace.panes))
    notes += sample_notes(whole)
    return Scene(
        title=_title(trace, shown),
        x=x,
        y=y,
        steps=ordinates.steps,
        watermark=visible_steps(watermark, x, y, MOST_STEPS // max(1, len(panels))),
        panels=tuple(panels),
        headed=len(_busy(whole)) > 1,
        notes=tuple(notes),
    )


def _left_out(keys: int, stretch: Span | None, *, is_empty: bool) -> list[str]:
    """Return what is not drawn, in words."""
    notes = [f"{keys:,} more keys are not shown: select keys with key="] if keys else []
    if is_empty:
        notes.append(f"no elements and no panes{_where(stretch)}")
    return notes


def sample_notes(trace: StageTrace) -> list[str]:
    """Return that the elements are a sample, if they are."""
    if trace.sample is None:
        return []
    many = f"{len(trace.elements):,} of {trace.arrived:,} elements"
    rest = "all that were dropped or merged windows, and a sample of others"
    return [f"{many} are in the trace: {rest}; trace=Tracing(limit=None) keeps all"]


def _aggregate(trace: StageTrace, column: str | None) -> str | None:
    if column is None:
        return next(iter(trace.aggregates), None)
    if column not in trace.aggregates:
        raise InvalidArgument(
            f"the stage {trace.name!r} has no aggregate {column!r}",
            where="diagram(column=)",
            hint=nearest(column, trace.aggregates),
        )
    return column


def _keys(
    trace: StageTrace, keys: Sequence[Any] | None, whole: StageTrace, stretch: Span | None
) -> tuple[list[Hashable], int]:
    count = _busy(trace)
    if keys is None:
        busiest = {key for key, _ in count.most_common(MOST_KEYS)}
        return [key for key in count if key in busiest], len(count) - len(busiest)
    for key in keys:
        if hashable(key) not in count:
            elsewhere = stretch is not None and hashable(key) in _busy(whole)
            known = ", ".join(repr(name) for name in list(count)[:MOST_KEYS])
            raise InvalidArgument(
                f"{describe('key', key)} occurs in this run, but not{_where(stretch)}"
                if elsewhere
                else f"{describe('key', key)} does not occur in this run",
                where="diagram(key=)",
                hint=f"Keys{_where(stretch)}: {known}"
                if known
                else f"There are no keys{_where(stretch)}",
            )
    return list(dict.fromkeys(map(hashable, keys))), 0


def _busy(trace: StageTrace) -> Counter[Hashable]:
    """Return the number of events of each key."""
    count = Counter(map(hashable, keys_of(trace.elements)))
    count.update(map(hashable, keys_of(trace.panes)))
    return count


def _where(stretch: Span | None) -> str:
    if stretch is None:
        return " in this run"
    return f" from {format_instant(stretch.low)} to {format_instant(stretch.high)}"


def _stretch(between: Between) -> Span:
    if not isinstance(between, (tuple, list)) or len(between) != 2:
        raise InvalidArgument(
            f"{describe('between', between)} is not a pair of instants",
            where="diagram(between=)",
            hint='Write, say, between=("2000-01-01T12:00:00Z", "2000-01-01T12:10:00Z")',
        )
    low, high = (instant(at, name="between") for at in between)
    if low >= high:
        raise InvalidArgument(
            f"between= ends at {high}, which is not after its start {low}",
            where="diagram(between=)",
            hint="Give the earlier instant first",
        )
    return Span(low, high)


def _within(trace: StageTrace, stretch: Span) -> StageTrace:
    """Return the part of a trace in a range of event time: its elements, windows that touch it."""

    def touches(window: Window) -> bool:
        return window.start < stretch.high and window.end > stretch.low

    shown = [at for at, pane in enumerate(trace.panes) if touches(pane.window)]
    return replace(
        trace,
        elements=tuple(e for e in trace.elements if stretch.low <= e.time < stretch.high),
        merges=tuple(merge for merge in trace.merges if touches(merge.into)),
        panes=tuple(trace.panes[at] for at in shown),
        pane_orders=tuple(trace.pane_orders[at] for at in shown),
    )


def _x_span(trace: StageTrace) -> Span:
    """Return the range of event times: all kept elements, and dropped ones within limits."""
    kept = [e.time for e in trace.elements if e.outcome != "late" and e.reason != "unwindowed"]
    edges = [edge for pane in trace.panes for edge in (pane.window.start, pane.window.end)]
    edges += [edge for e in trace.elements for w in e.windows for edge in (w.start, w.end)]
    edges = [edge for edge in edges if not endless(edge)]
    core = [*kept, *edges]
    dropped = [element.time for element in trace.elements]
    if not core:
        core = dropped or [m.input_watermark for m in trace.moves if not endless(m.input_watermark)]
    if not core:
        return Span(0, 1)
    low, high = int(min(core)), int(max(core))
    reach = max(1, high - low) * _FAR
    low = max(min(low, *dropped, low), low - reach)
    high = min(max(high, *dropped, high), high + reach)
    return Span.airy(low, high, _AIR)


def _y_span(ordinates: TraceOrdinates) -> Span:
    """Return the range of processing times of arrivals and firings."""
    found = [*ordinates.elements, *ordinates.panes] or list(ordinates.moves)
    if not found:
        return Span(0, 1)
    return Span.airy(min(found), max(found), _AIR)


def _watermark(trace: StageTrace, ordinates: TraceOrdinates) -> Iterator[WatermarkStep]:
    """Yield the steps of the watermark, from its advances and from elements and panes between."""
    titles = {move.input_watermark: move_title(move) for move in reversed(trace.moves)}
    reached = [
        *((int(m.input_watermark), y) for m, y in zip(trace.moves, ordinates.moves, strict=True)),
        *((int(p.watermark), y) for p, y in zip(trace.panes, ordinates.panes, strict=True)),
        *((int(e.watermark), y) for e, y in zip(trace.elements, ordinates.elements, strict=True)),
    ]
    at = START_OF_TIME
    for watermark, moment in sorted(reached):
        if watermark != at:
            at = watermark
            title = titles.get(Instant(at)) or f"watermark {watermark_text(at)}"
            yield WatermarkStep(moment, at, title)


def _title(trace: StageTrace, shown: str | None) -> str:
    windowing = trace.windowing
    if windowing is None:
        what = "a process without windows" if trace.ranging is None else "values over rows"
        if trace.counting is not None:
            what = repr(trace.counting)
        return f"{trace.name}: {what}"
    value = "" if shown is None else f"{shown} = {spec_text(trace.aggregates[shown])}: "
    lateness = windowing.lateness_us
    parts = [repr(windowing.windows), repr(windowing.trigger), windowing.mode]
    if lateness:
        parts.append(f"allowed lateness {format_duration(lateness)}")
    return f"{trace.name}: {value}{', '.join(parts)}"
