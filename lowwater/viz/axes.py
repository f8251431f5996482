"""Axes: positions of events on the vertical axis, ticks, and the format of their labels."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import final

from lowwater.engine.graph.trace import StageTrace
from lowwater.errors import InvalidArgument
from lowwater.time import DAY_US, START_OF_TIME, Instant, format_instant
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
    """The ``y`` of everything in a trace, in the order of the trace's own lists."""

    elements: Sequence[int]
    moves: Sequence[int]
    merges: Sequence[int]
    panes: Sequence[int]
    steps: bool
    pairs: Sequence[int] = ()

    @classmethod
    def of(cls, trace: StageTrace) -> TraceOrdinates:
        """Return the clock's readings or, if it hardly moved, numbers of steps. O(n log n)."""
        readings = {element.clock for element in trace.elements}
        readings.update(pane.emitted_at for pane in trace.panes)
        readings.update(pair.clock for pair in trace.pairs)
        if len(readings) >= min(_FEW, len(trace.elements)):
            return cls(
                [element.clock for element in trace.elements],
                [move.clock for move in trace.moves],
                [merge.clock for merge in trace.merges],
                [pane.emitted_at for pane in trace.panes],
                steps=False,
                pairs=[pair.clock for pair in trace.pairs],
            )
        found: tuple[list[int], ...] = tuple(
            [0] * len(part)
            for part in (trace.elements, trace.moves, trace.merges, trace.panes, trace.pairs)
        )
        step, before = 0, None
        known, since = START_OF_TIME, 0  # the highest watermark that something stood at already
        for order, kind, at in sorted(_order(trace)):
            watermark = _watermark(trace, kind, at)
            if kind == _MOVE and since and watermark == known:
                # A move is recorded behind what it fired: both are one step.
                found[kind][at], since = since, 0
                continue
            # What one turn fires or merges comes out at once; elements and moves are a step each.
            step += kind <= _MOVE or (order, kind) != before
            before = (order, kind)
            found[kind][at] = step
            if watermark > known:
                known, since = watermark, 0 if kind == _MOVE else step
        elements, moves, merges, panes, pairs = found
        return cls(elements, moves, merges, panes, steps=True, pairs=pairs)


_ELEMENT, _MOVE, _MERGE, _PANE, _PAIR = range(5)


def _watermark(trace: StageTrace, kind: int, at: int) -> int:
    """Return the watermark at an event; merges do not record one."""
    if kind == _ELEMENT:
        return trace.elements[at].watermark
    if kind == _MOVE:
        return trace.moves[at].input_watermark
    if kind == _PAIR:
        return trace.pairs[at].watermark
    return trace.panes[at].watermark if kind == _PANE else START_OF_TIME


def _order(trace: StageTrace) -> Iterator[tuple[int, int, int]]:
    """Yield (order, kind, index) of every event."""
    yield from ((element.order, _ELEMENT, at) for at, element in enumerate(trace.elements))
    yield from ((move.order, _MOVE, at) for at, move in enumerate(trace.moves))
    yield from ((merge.order, _MERGE, at) for at, merge in enumerate(trace.merges))
    yield from ((order, _PANE, at) for at, order in enumerate(trace.pane_orders))
    yield from ((pair.order, _PAIR, at) for at, pair in enumerate(trace.pairs))
