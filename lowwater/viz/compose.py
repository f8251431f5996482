"""Builds the scene of a stage from its trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.graph.outline import spec_text
from lowwater.engine.graph.trace import StageTrace
from lowwater.engine.local.traced_columns import OUTCOMES, TraceColumns, hashable
from lowwater.errors import InvalidArgument, describe, nearest
from lowwater.time import (
    START_OF_TIME,
    InstantLike,
    Int64Array,
    format_duration,
    format_instant,
    instant,
)
from lowwater.viz._panel import PanelLimits, PanelOf
from lowwater.viz.axes import MOST_STEPS, TraceOrdinates, visible_steps
from lowwater.viz.join_scene import AnyScene, join_scene
from lowwater.viz.scene import Scene, Span, WatermarkStep
from lowwater.viz.words import endless, move_title, watermark_text
from lowwater.windows import Window

Between: TypeAlias = tuple[InstantLike, InstantLike]

MOST_KEYS = 6
"""How many keys are drawn by default."""
_FAR = 1
"""Dropped elements extend the axis on either side by at most this factor of the rest."""
_AIR = 30
"""One part in this many of an axis stays free at either end."""


@final
@dataclass(frozen=True, slots=True)
class Axes:
    """The axes of the diagram of a windowed stage or a process.

    Args:
        x: The range of event times.
        y: The range of processing times.
        by_arrival: Whether ``y`` is how many elements had arrived.
    """

    x: Span
    y: Span
    by_arrival: bool = False

    @classmethod
    def of(
        cls,
        trace: StageTrace,
        columns: TraceColumns,
        *,
        stretch: Span | None = None,
        by_arrival: bool = False,
    ) -> Axes:
        """Return the axes that a trace fills, or a stretch of it."""
        ordinates = cls(Span(0, 1), Span(0, 1), by_arrival).ordinates(trace, columns)
        if stretch is None:
            return cls(_x_span(trace, columns), _y_span(ordinates), by_arrival)
        x = Span.airy(stretch.low, stretch.high, _AIR)
        return cls(x, _y_span(ordinates), by_arrival)

    def ordinates(self, trace: StageTrace, columns: TraceColumns) -> TraceOrdinates:
        """Return the ``y`` of everything in a trace."""
        if self.by_arrival:
            return TraceOrdinates.by_arrival(trace, columns)
        return TraceOrdinates.of(trace, columns)

    def with_x_of(self, other: Axes) -> Axes:
        """Return axes whose event times are also those of others."""
        x = Span(min(self.x.low, other.x.low), max(self.x.high, other.x.high))
        return replace(self, x=x)


def compose(
    trace: StageTrace,
    *,
    keys: Sequence[Any] | None = None,
    column: str | None = None,
    between: Between | None = None,
    axes: Axes | None = None,
    limits: PanelLimits | None = None,
) -> AnyScene:
    """Return the scene of a stage. O(n log n) in elements and panes.

    Args:
        trace: The trace of the stage.
        keys: The keys to draw, in order; by default those with the most events, in order of
            appearance.
        column: The aggregate to draw, the first by default; of a join the column of its records.
        between: The first event time to draw, and the end (exclusive); all by default.
        axes: Those of several runs, to compare these; by default what the trace fills.
        limits: How much to show of a single key; by default as much as fits into a picture.

    Raises:
        InvalidArgument: There is no such column or key, or ``between`` is not an interval.
    """
    stretch = None if between is None else _stretch(between)
    whole = TraceColumns.of(trace)
    columns = whole if stretch is None else whole.within(stretch.low, stretch.high)
    chosen, left_out = _keys(columns, keys, whole, stretch)
    is_headed = bool(np.count_nonzero(whole.events()) > 1)
    is_empty = not (len(columns.elements) or len(columns.panes))
    notes = [*_left_out(left_out, stretch, is_empty=is_empty), *sample_notes(trace)]
    if trace.joining is not None:
        return join_scene(
            trace, whole, chosen, column=column, stretch=stretch, headed=is_headed, notes=notes
        )
    if trace.matching is not None:
        if column is not None:
            raise InvalidArgument(
                f"rows of the stage {trace.name!r} are drawn with the variables they stand for",
                where="diagram(column=)",
                hint="Leave column= out",
            )
        # Imported on use: it loads the searches.
        from lowwater.viz.match_panel import match_scene

        return match_scene(trace, whole, chosen, stretch=stretch, headed=is_headed, notes=notes)
    shown = _aggregate(trace, column)
    spec = trace.aggregates.get(shown) if shown is not None else None
    if stretch is not None:
        merges = tuple(merge for merge in trace.merges if _touches(merge.into, stretch))
        trace = replace(trace, merges=merges)
    if axes is None:
        axes = Axes.of(trace, columns, stretch=stretch)
    ordinates, x, y = axes.ordinates(trace, columns), axes.x, axes.y
    watermark = list(_watermark(trace, columns, ordinates))
    if limits is None:
        limits = PanelLimits.of(columns, trace.merges, chosen)
    panels = [
        PanelOf(trace, columns, key, ordinates, x, y, watermark, limits).build(
            shown, getattr(spec, "column", None)
        )
        for key in chosen
    ]
    return Scene(
        title=_title(trace, shown),
        x=x,
        y=y,
        steps=ordinates.steps,
        watermark=_titled(
            trace,
            visible_steps(watermark, x, y, MOST_STEPS // max(1, len(panels))),
            not axes.by_arrival,
        ),
        panels=tuple(panels),
        headed=is_headed,
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
    columns: TraceColumns, keys: Sequence[Any] | None, whole: TraceColumns, stretch: Span | None
) -> tuple[list[int], int]:
    """Return the numbers of the keys to draw, and how many more there are."""
    events = columns.events()
    appeared = np.concatenate([columns.elements.key, columns.panes.key])
    number, first = np.unique(appeared, return_index=True)
    present = number[np.argsort(first)]
    if keys is None:
        busiest = np.sort(np.argsort(-events[present], kind="stable")[:MOST_KEYS])
        return present[busiest].tolist(), len(present) - len(busiest)
    numbers = {columns.keys[at]: at for at in present.tolist()}
    for key in keys:
        if hashable(key) not in numbers:
            elsewhere = stretch is not None and hashable(key) in whole.keys
            known = ", ".join(repr(name) for name in list(numbers)[:MOST_KEYS])
            raise InvalidArgument(
                f"{describe('key', key)} occurs in this run, but not{_where(stretch)}"
                if elsewhere
                else f"{describe('key', key)} does not occur in this run",
                where="diagram(key=)",
                hint=f"Keys{_where(stretch)}: {known}"
                if known
                else f"There are no keys{_where(stretch)}",
            )
    return list(dict.fromkeys(numbers[hashable(key)] for key in keys)), 0


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


def _touches(window: Window, stretch: Span) -> bool:
    return window.start < stretch.high and window.end > stretch.low


def _x_span(trace: StageTrace, columns: TraceColumns) -> Span:
    """Return the range of event times: all kept elements, and dropped ones within limits."""
    elements, panes, windows = columns.elements, columns.panes, columns.windows
    kept = elements.time[(elements.outcome != OUTCOMES.index("late")) & ~elements.is_unwindowed]
    edges = np.concatenate([panes.start, panes.end, windows.start, windows.end])
    core = np.concatenate([kept, edges[~_are_endless(edges)]])
    dropped = elements.time
    if not len(core):
        marks = np.array([move.input_watermark for move in trace.moves], dtype=np.int64)
        core = dropped if len(dropped) else marks[~_are_endless(marks)]
    if not len(core):
        return Span(0, 1)
    low, high = int(core.min()), int(core.max())
    reach = max(1, high - low) * _FAR
    low = max(int(dropped.min(initial=low)), low - reach)
    high = min(int(dropped.max(initial=high)), high + reach)
    return Span.airy(low, high, _AIR)


def _are_endless(instants: Int64Array) -> NDArray[np.bool_]:
    """Return which instants :func:`endless` is true of."""
    few, where = np.unique(instants, return_inverse=True)
    found = np.zeros(len(few), dtype=np.bool_)
    found[[at for at, instant in enumerate(few.tolist()) if endless(instant)]] = True
    return found[where]


def _y_span(ordinates: TraceOrdinates) -> Span:
    """Return the range of processing times of arrivals and firings."""
    moments = np.concatenate([ordinates.elements, ordinates.panes])
    if not len(moments):
        moments = ordinates.moves
    if not len(moments):
        return Span(0, 1)
    return Span.airy(int(moments.min()), int(moments.max()), _AIR)


def _watermark(
    trace: StageTrace, columns: TraceColumns, ordinates: TraceOrdinates
) -> Iterator[WatermarkStep]:
    """Yield the steps of the watermark, from its advances and from elements and panes between."""
    moved = np.array([move.input_watermark for move in trace.moves], dtype=np.int64)
    reached = np.concatenate([moved, columns.panes.watermark, columns.elements.watermark])
    moments = np.concatenate([ordinates.moves, ordinates.panes, ordinates.elements])
    sequence = np.lexsort((moments, reached))
    values, first = np.unique(reached[sequence], return_index=True)
    for at, moment in zip(values.tolist(), moments[sequence][first].tolist(), strict=True):
        if at != START_OF_TIME:
            yield WatermarkStep(moment, at, "")


def _titled(
    trace: StageTrace, steps: Sequence[WatermarkStep], has_clock: bool
) -> tuple[WatermarkStep, ...]:
    """Return steps of the watermark with since when it is, and what holds it."""
    moves = {int(move.input_watermark): move for move in reversed(trace.moves)}
    return tuple(
        replace(step, title=move_title(move, has_clock=has_clock))
        if (move := moves.get(step.x)) is not None
        else replace(step, title=f"watermark {watermark_text(step.x)}")
        for step in steps
    )


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
