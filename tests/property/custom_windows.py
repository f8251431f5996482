"""Window functions and trigger logic of a user's own making, for the strategies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowwater.time import Int64Array
from lowwater.triggers import TriggerContext
from lowwater.windows import Window

SECOND = 1_000_000
MergeSets = Iterable[tuple[Sequence[Window], tuple[int, int]]]


def assign_many(at: int) -> list[tuple[int, int]]:
    """No window, one, or two of one end or of one start, by the second."""
    start = at - at % (6 * SECOND)
    windows = [
        (start, start + 6 * SECOND),
        (start + 2 * SECOND, start + 6 * SECOND),
        (start, start + 9 * SECOND),
    ]
    return windows[: at // SECOND % 4]


def assign_column(times: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Even seconds: two windows; every seventh second: none; others: one."""
    second = times // SECOND
    copies = np.where(second % 7 == 0, 0, np.where(second % 2 == 0, 2, 1))
    element = np.repeat(np.arange(len(times)), copies)
    offset = np.arange(len(element)) - np.repeat(np.cumsum(copies) - copies, copies)
    start = (times - times % (8 * SECOND))[element] - offset * 4 * SECOND
    return start, start + 12 * SECOND, element


def assign_growing(at: int) -> list[tuple[int, int]]:
    """One window of three to seven seconds, by the second."""
    return [(at, at + (3 + at // SECOND % 5) * SECOND)]


def _runs(active: Sequence[Window]) -> list[list[Window]]:
    """Return the runs of windows that overlap."""
    runs: list[list[Window]] = []
    reach = None
    for window in sorted(active):
        if reach is not None and window.start < reach:
            runs[-1].append(window)
            reach = max(reach, window.end)
        else:
            runs.append([window])
            reach = window.end
    return runs


def merge_bounded(active: Sequence[Window]) -> MergeSets:
    """Sessions that stop growing at twelve seconds: later windows stay apart."""
    for run in _runs(active):
        members = [window for window in run if window.end <= run[0].start + 12 * SECOND]
        if len(members) > 1:
            yield members, (members[0].start, max(window.end for window in members))


def merge_shrinking(active: Sequence[Window]) -> MergeSets:
    """Windows that overlap become one that ends with the first of them, six seconds at most."""
    for run in _runs(active):
        end = min(*(window.end for window in run), run[0].start + 6 * SECOND)
        if len(run) > 1 or end < run[0].end:
            yield run, (run[0].start, end)


def merge_blocks(active: Sequence[Window]) -> MergeSets:
    """Two or more windows that start in one block of ten seconds become the block."""
    blocks: dict[int, list[Window]] = {}
    for window in active:
        blocks.setdefault(window.start // (10 * SECOND), []).append(window)
    for block, members in blocks.items():
        if len(members) > 1:
            yield members, (block * 10 * SECOND, (block + 1) * 10 * SECOND)


def merge_crowded(active: Sequence[Window]) -> MergeSets:
    """While there are three or more, the first two become one: they need no new element."""
    if len(active) > 2:
        first, second = active[:2]
        yield [first, second], (first.start, max(first.end, second.end) - SECOND)


@dataclass(frozen=True)
class ParitySum:
    """Fires once so many elements of odd seconds have come; may finish then."""

    threshold: int
    finishes: bool

    def on_element(self, context: TriggerContext, at: int) -> None:
        context.state = (context.state or 0) + at // SECOND % 2

    def ready(self, context: TriggerContext) -> bool:
        return (context.state or 0) >= self.threshold

    def on_fire(self, context: TriggerContext) -> bool:
        context.state = 0
        return self.finishes

    def on_merge(self, context: TriggerContext, states: list[Any]) -> None:
        context.state = sum(state or 0 for state in states)


@dataclass(frozen=True)
class ClockAlarm:
    """Fires so long after the first element since the last firing, as its own clock alarm."""

    delay: int

    def on_element(self, context: TriggerContext, at: int) -> None:
        if context.state is None:
            context.state = context.clock + self.delay
            context.wake_at_clock(context.state)

    def ready(self, context: TriggerContext) -> bool:
        return context.state is not None and context.clock >= context.state

    def on_fire(self, context: TriggerContext) -> bool:
        context.state = None
        return False

    def on_merge(self, context: TriggerContext, states: list[Any]) -> None:
        context.state = min((state for state in states if state is not None), default=None)


@dataclass(frozen=True)
class WatermarkAlarm:
    """Fires once the watermark is so far past the earliest element since the last firing."""

    offset: int

    def on_element(self, context: TriggerContext, at: int) -> None:
        due = at + self.offset
        context.state = due if context.state is None else min(due, context.state)
        context.wake_at_watermark(due)

    def ready(self, context: TriggerContext) -> bool:
        return context.state is not None and context.watermark >= context.state

    def on_fire(self, context: TriggerContext) -> bool:
        context.state = None
        return False

    def on_merge(self, context: TriggerContext, states: list[Any]) -> None:
        context.state = min((state for state in states if state is not None), default=None)
