"""Where on the vertical axis everything stands: the clock, or the number of the step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

from lowwater.viz._trace import StageTrace

_FEW = 3
"""A clock with fewer readings than this tells too little of the order of a run."""


@final
@dataclass(frozen=True, slots=True)
class Moments:
    """The ``y`` of everything in a trace, in the order of the trace's own lists."""

    elements: Sequence[int]
    moves: Sequence[int]
    merges: Sequence[int]
    panes: Sequence[int]
    steps: bool

    @classmethod
    def of(cls, trace: StageTrace) -> Moments:
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
        for clock, watermark, rank, at in sorted(_order(trace)):
            # What one turn fires comes out at once; elements and moves are a step each.
            turn = (clock, watermark, rank)
            step += rank <= 1 or turn != before
            before = turn
            found[(1, 0, 2, 3)[rank]][at] = step
        return cls(*found, steps=True)


def _order(trace: StageTrace) -> Iterator[tuple[int, int, int, int]]:
    """Yield (clock, watermark, kind, place) of all; at one clock watermarks tell the order."""
    for at, move in enumerate(trace.moves):
        yield move.clock, move.input_watermark, 0, at
    for at, element in enumerate(trace.elements):
        yield element.clock, element.watermark, 1, at
    for at, pane in enumerate(trace.panes):
        yield pane.emitted_at, pane.watermark, 3, at
    last = {element.clock: element.watermark for element in trace.elements}
    for at, merge in enumerate(trace.merges):
        yield merge.clock, last.get(merge.clock, 0), 2, at
