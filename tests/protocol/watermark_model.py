"""The watermark in band on Spark, as a model that is checked: no row comes behind it.

Within a micro-batch each group of a level gets the watermark and rows, and sends rows and its own
output watermark to every group of the next level. A group holds rows until their windows end, and
sends their panes at the times of the rows. No group knows another but by what it is told.
``docs/spark.md`` tells the same in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple, TypeAlias, final

from tests.protocol.checker import Model

Times: TypeAlias = frozenset[int]
UNKNOWN = -1
WINDOW = 2
"""How far the watermark has to be above the time of a row before its pane is sent, at that time."""


class State(NamedTuple):
    """All there is.

    Attributes:
        watermark: That of the source.
        rows: The times of rows that wait in each group of the first level.
        sent: What each group of the first level told last.
        told: What the group of the next level knows of each of these; ``UNKNOWN`` at first.
        output: The watermark of the next level.
        late: The time of a row that came behind it; ``UNKNOWN`` for none.
        batches: How many micro-batches there were.
    """

    watermark: int = 0
    rows: tuple[Times, ...] = (frozenset(), frozenset())
    sent: tuple[int, ...] = (UNKNOWN, UNKNOWN)
    told: tuple[int, ...] = (UNKNOWN, UNKNOWN)
    output: int = UNKNOWN
    late: int = UNKNOWN
    batches: int = 0


@final
@dataclass(frozen=True)
class WatermarkBounds:
    """How much is visited: micro-batches, and times from 0 on."""

    batches: int = 3
    times: int = 4


Told: TypeAlias = tuple[str, State]


@final
class InBand(Model[State]):
    """What can happen next, and what must never be.

    Args:
        bounds: How much is visited.
        without: The name of a rule that is left out.
    """

    def __init__(self, bounds: WatermarkBounds, without: str = "") -> None:
        super().__init__(without)
        self.bounds = bounds

    def first(self) -> State:
        """Return the state before anything has happened."""
        return State()

    def steps(self, state: State) -> Iterator[Told]:
        """Yield each micro-batch that can come next."""
        if state.batches == self.bounds.batches:
            return
        for to in range(state.watermark, self.bounds.times):
            later = range(state.watermark, self.bounds.times)
            for count in (0, 1, 2):
                for times in combinations(later, count):
                    for split in range(2 ** len(times)):
                        yield self._batch(state, to, times, split)

    def _batch(self, state: State, to: int, times: tuple[int, ...], split: int) -> Told:
        """Return what a micro-batch does: rows with times come, and the watermark moves."""
        came = [
            {time for nth, time in enumerate(times) if (split >> nth & 1) == group}
            for group in range(len(state.rows))
        ]
        sent, told = list(state.sent), list(state.told)
        rows, passed = [], []
        for group, waiting in enumerate(state.rows):
            every = waiting | came[group]
            due = {time for time in every if time + WINDOW <= to}
            left = frozenset(every - due)
            is_called = bool(every) or self.holds("every group is called in every micro-batch")
            own = min([to, *left]) if self.holds("a group tells what it holds") else to
            if is_called:
                sent[group] = max(sent[group], own)
                told[group] = sent[group]
            rows.append(left)
            passed += sorted(due)
        lowest = min if self.holds("the next level goes by the lowest of all groups") else max
        before, output = state.output, max(state.output, lowest(told))
        if not self.holds("rows of a micro-batch come before its watermark"):
            before = output
        late = min((time for time in passed if time < before), default=UNKNOWN)
        text = f"rows {list(times)} come, and the watermark moves to {to}"
        return text, State(
            to, tuple(rows), tuple(sent), tuple(told), output, late, state.batches + 1
        )

    def wrong(self, state: State) -> str | None:
        """Return what is wrong with a state, if anything is."""
        if state.late != UNKNOWN:
            return f"a row at {state.late} came behind the watermark of the next level"
        waiting = [time for rows in state.rows for time in rows]
        if any(time < state.output for time in waiting):
            return f"the next level is at {state.output}, and a row of before waits"
        if not waiting and state.batches and state.output < state.watermark:
            return f"nothing waits, and the next level stays at {state.output}"
        return None
