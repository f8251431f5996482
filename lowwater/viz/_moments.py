"""Where on the vertical axis everything stands: the clock, or the number of the step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

from lowwater.engine.graph.trace import StageTrace
from lowwater.time import START_OF_TIME

_FEW = 3
"""A clock with fewer readings than this tells too little of the order of a run."""


@final
@dataclass(frozen=True, slots=True)
class TraceOrdinates:
    """The ``y`` of everything in a trace, in the order of the trace's own lists."""

    elements: Sequence[int]
    moves: Sequence[int]
    merges: Sequence[int]
    panes: Sequence[int]
    steps: bool

    @classmethod
    def of(cls, trace: StageTrace) -> TraceOrdinates:
        """Return the clock's readings or, if it hardly moved, numbers of steps. O(n log n)."""
        readings = {element.clock for element in trace.elements}
        readings.update(pane.emitted_at for pane in trace.panes)
        if len(readings) >= min(_FEW, len(trace.elements)):
            return cls(
                [element.clock for element in trace.elements],
                [move.clock for move in trace.moves],
                [merge.clock for merge in trace.merges],
                [pane.emitted_at for pane in trace.panes],
                steps=False,
            )
        found: tuple[list[int], ...] = tuple(
            [0] * len(part) for part in (trace.elements, trace.moves, trace.merges, trace.panes)
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
        elements, moves, merges, panes = found
        return cls(elements, moves, merges, panes, steps=True)


_ELEMENT, _MOVE, _MERGE, _PANE = range(4)


def _watermark(trace: StageTrace, kind: int, at: int) -> int:
    """Return the watermark at what happened; of merges nothing is known."""
    if kind == _ELEMENT:
        return trace.elements[at].watermark
    if kind == _MOVE:
        return trace.moves[at].input_watermark
    return trace.panes[at].watermark if kind == _PANE else START_OF_TIME


def _order(trace: StageTrace) -> Iterator[tuple[int, int, int]]:
    """Yield (order, kind, place) of all that happened."""
    yield from ((element.order, _ELEMENT, at) for at, element in enumerate(trace.elements))
    yield from ((move.order, _MOVE, at) for at, move in enumerate(trace.moves))
    yield from ((merge.order, _MERGE, at) for at, merge in enumerate(trace.merges))
    yield from ((order, _PANE, at) for at, order in enumerate(trace.pane_orders))
