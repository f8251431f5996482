"""Axes: positions of events on the vertical axis, ticks, and the format of their labels."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import final

import numpy as np

from lowwater.engine.graph.trace import StageTrace
from lowwater.engine.local.traced_columns import TraceColumns
from lowwater.errors import InvalidArgument
from lowwater.kernels.positions import repeated
from lowwater.time import DAY_US, START_OF_TIME, Instant, Int64Array, format_instant
from lowwater.viz.scene import Span, WatermarkStep

_SECOND, _MINUTE, _HOUR = 1_000_000, 60_000_000, 3_600_000_000
_PERIODS = (
    *(n * 10**power for power in range(6) for n in (1, 2, 5)),
    *(n * _SECOND for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * DAY_US for n in (1, 2, 7, 14, 28, 91, 182, 365, 730, 1825, 3650, 36500, 365000)),
)


@final
@dataclass(frozen=True, slots=True)
class Tick:
    """A position on an axis, and its label."""

    at: int
    text: str


def ticks(span: Span, most: int) -> tuple[Tick, ...]:
    """Return ticks at round times, at most ``most`` of them (but at least two)."""
    period = round_period(span.size, most)
    first = -(-span.low // period) * period
    places = range(first, span.high + 1, period)
    return tuple(Tick(at, moment_text(at, period)) for at in places)


def count_ticks(span: Span, most: int) -> tuple[Tick, ...]:
    """Return ticks at round whole numbers."""
    period = next(p for p in _counts() if span.size // p < max(2, most))
    first = -(-span.low // period) * period
    return tuple(Tick(at, f"{at:,}") for at in range(first, span.high + 1, period))


def round_period(size: int, most: int) -> int:
    """Return the shortest round period of which at most so many fit into a size."""
    wanted = size / max(2, most)
    at = bisect_left(_PERIODS, wanted)
    return _PERIODS[at] if at < len(_PERIODS) else -(-size // 2)


def moment_text(at: int, period: int) -> str:
    """Return an instant as a tick shows it: as exact as the period asks for.

    >>> moment_text(946728026_000_000, 1_000_000), moment_text(946728000_000_000, 60_000_000)
    ('12:00:26', '12:00')
    """
    try:
        when = Instant(at).to_datetime()
    except InvalidArgument:
        return f"{at}us"
    if period >= DAY_US:
        return when.strftime("%Y-%m-%d") if period < 365 * DAY_US else f"{when.year:04}"
    if period >= _MINUTE:
        return when.strftime("%H:%M")
    text = when.strftime("%H:%M:%S")
    if period >= _SECOND:
        return text
    return f"{text}.{when.microsecond:06}"[: 9 + _decimals(period)]


def short_text(at: int, span: Span, *, seconds: bool = False) -> str:
    """Return an instant as short as a span that holds it allows: the time of day, or the date.

    Seconds are left out where they are none, unless they are asked for.

    >>> short_text(946728026_000_000, Span(946728000_000_000, 946729000_000_000))
    '12:00:26'
    """
    full = format_instant(at).removesuffix("Z")
    date, _, time = full.partition("T")
    if not time:
        return full
    if span.low // DAY_US == span.high // DAY_US == at // DAY_US:
        return time if seconds else time.removesuffix(":00")
    return date if time == "00:00:00" and not seconds else f"{date[5:]} {time}"


def day_text(span: Span) -> str:
    """Return the day that a span lies in, or the first and the last."""
    days = [format_instant(at).partition("T")[0] for at in (span.low, span.high)]
    return days[0] if days[0] == days[1] else f"{days[0]} to {days[1]}"


def _decimals(period: int) -> int:
    return 6 - (len(str(period)) - len(str(period).rstrip("0")))


def _counts() -> tuple[int, ...]:
    return tuple(n * 10**power for power in range(18) for n in (1, 2, 5))


def visible_steps(
    steps: Sequence[WatermarkStep], x: Span, y: Span, most: int
) -> tuple[WatermarkStep, ...]:
    """Return the steps of a watermark without some that are too small to see, if there are many.

    The line stays within one part in ``most // 2`` of the axes.

    Args:
        steps: The steps, in order.
        x: The range of event times.
        y: The range of moments.
        most: About how many steps to return.
    """
    if len(steps) <= most:
        return tuple(steps)
    half = max(1, most // 2)
    wide, high = max(1, x.size // half), max(1, y.size // half)
    found = [steps[0]]
    for step, later in pairwise(steps[1:]):
        last = found[-1]
        is_far = abs(x.clip(step.x) - x.clip(last.x)) >= wide or step.y - last.y >= high
        if is_far and (step.y, step.x) != (later.y, later.x):
            found.append(step)
    return (*found, steps[-1])


MOST_STEPS = 300
"""With more steps of a watermark in all panels, those that are too small to see are left out."""
_FEW = 3
"""With fewer distinct clock readings than this, the order of a run is drawn in steps instead."""


@final
@dataclass(frozen=True, slots=True)
class TraceOrdinates:
    """The ``y`` of everything in a trace, int64, in the order of the trace's own lists."""

    elements: Int64Array
    moves: Int64Array
    merges: Int64Array
    panes: Int64Array
    steps: bool
    pairs: Int64Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @classmethod
    def of(cls, trace: StageTrace, columns: TraceColumns) -> TraceOrdinates:
        """Return the clock's readings or, if it hardly moved, numbers of steps. O(n log n).

        Args:
            trace: The trace.
            columns: Its elements and panes, or some of them.
        """
        elements, panes = columns.elements, columns.panes
        readings = np.concatenate([elements.clock, panes.emitted_at])
        if trace.pairs:
            readings = np.concatenate([readings, _ints(pair.clock for pair in trace.pairs)])
        if len(np.unique(readings)) >= min(_FEW, len(elements)):
            return cls(
                elements.clock,
                _ints(move.clock for move in trace.moves),
                _ints(merge.clock for merge in trace.merges),
                panes.emitted_at,
                steps=False,
                pairs=_ints(pair.clock for pair in trace.pairs),
            )
        return cls(*_in_steps(trace, columns))

    @classmethod
    def by_arrival(cls, trace: StageTrace, columns: TraceColumns) -> TraceOrdinates:
        """Return how many elements had arrived, which is the same for runs that differ otherwise.

        Args:
            trace: The trace, of all elements.
            columns: Its elements and panes.
        """
        orders = columns.elements.order

        def arrived(order: Int64Array) -> Int64Array:
            return np.searchsorted(orders, order, side="right").astype(np.int64)

        return cls(
            np.arange(1, len(orders) + 1),
            arrived(_ints(move.order for move in trace.moves)),
            arrived(_ints(merge.order for merge in trace.merges)),
            arrived(columns.panes.order),
            steps=True,
        )


_ELEMENT, _MOVE, _MERGE, _PANE, _PAIR = range(5)


def _in_steps(
    trace: StageTrace, columns: TraceColumns
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array, bool, Int64Array]:
    """Return the step of every element, move, merge, pane and pair."""
    orders = (
        columns.elements.order,
        _ints(move.order for move in trace.moves),
        _ints(merge.order for merge in trace.merges),
        columns.panes.order,
        _ints(pair.order for pair in trace.pairs),
    )
    watermarks = (
        columns.elements.watermark,
        _ints(move.input_watermark for move in trace.moves),
        np.full(len(trace.merges), START_OF_TIME),  # merges do not record one
        columns.panes.watermark,
        _ints(pair.watermark for pair in trace.pairs),
    )
    sizes = [len(part) for part in orders]
    kind = repeated(np.arange(len(sizes)), sizes)
    order, watermark = np.concatenate(orders), np.concatenate(watermarks)
    sequence = np.lexsort((kind, order))
    kind, order, watermark = kind[sequence], order[sequence], watermark[sequence]
    # What one turn fires or merges comes out at once; elements and moves are a step each.
    begins = np.ones(len(order), dtype=np.int64)
    begins[1:] = (kind[1:] <= _MOVE) | (order[1:] != order[:-1]) | (kind[1:] != kind[:-1])
    highest = np.full(len(order) + 1, START_OF_TIME)
    np.maximum.accumulate(watermark, out=highest[1:])
    rises = watermark > highest[:-1]
    # A move is recorded behind what it fired: both are one step.
    since, joins = -1, dict[int, int]()
    for at in np.flatnonzero(rises | (kind == _MOVE)).tolist():
        if rises[at]:
            since = -1 if kind[at] == _MOVE else at
        elif since >= 0 and watermark[at] == highest[at]:
            joins[at], since = since, -1
    moved = np.array(list(joins), dtype=np.int64)
    begins[moved] = 0
    step = np.cumsum(begins)
    step[moved] = step[np.array(list(joins.values()), dtype=np.int64)]
    found = np.empty(len(order), dtype=np.int64)
    found[sequence] = step
    elements, moves, merges, panes, pairs = np.split(found, np.cumsum(sizes)[:-1])
    return elements, moves, merges, panes, True, pairs


def span_of(values: Int64Array, parts: int) -> Span:
    """Return the range of values, with one part in ``parts`` free at either end."""
    if not len(values):
        return Span.airy(0, 1, parts)
    return Span.airy(int(values.min()), int(values.max()), parts)


def _ints(values: Iterable[int]) -> Int64Array:
    return np.array(list(values), dtype=np.int64)
