"""Timers that set timers: a guard against those that would never come to an end."""

from __future__ import annotations

from typing import NamedTuple, final

from lowwater.engine.process.timers import Due
from lowwater.errors import DataError
from lowwater.time import format_instant

AT_ONE_INSTANT = 1_000
AFTER_THE_END = 100_000


class Depth(NamedTuple):
    """How long a chain of timers that set each other in one step is.

    ``still`` counts those since time last moved on.
    """

    time: int
    still: int
    whole: int


@final
class Chains:
    """Follows which timer was set by which, within a step.

    Args:
        place: The process, in words.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._set_by: dict[int, Depth] = {}

    def enter(self, due: Due, name: str, ended: bool) -> Depth:
        """Return how deep in a chain a timer is that is about to fire.

        Raises:
            DataError: Too deep: time stands still, or the input has ended (S-K4).
        """
        before = self._set_by.pop(due.turn, None)
        if before is None:
            return Depth(due.time, 0, 0)
        still = before.still + 1 if due.time <= before.time else 0
        depth = Depth(max(due.time, before.time), still, before.whole + 1)
        if still >= AT_ONE_INSTANT:
            raise DataError(
                f"timers set each other {still:,} times at {format_instant(depth.time)}, the last "
                f"of them {name!r}, and time does not move on",
                where=self._place,
                hint="Set it for later than ctx.due",
            )
        if ended and depth.whole >= AFTER_THE_END:
            raise DataError(
                f"the input has ended, and timers have set each other {depth.whole:,} times since, "
                f"the last of them {name!r} at {format_instant(due.time)}",
                where=self._place,
                hint="Do not set it again once ctx.ended is true",
            )
        return depth

    def leave(self, due: Due, depth: Depth, turns: range) -> None:
        """Note which timers were set while one fired."""
        for turn in turns:
            self._set_by[turn] = depth

    def clear(self) -> None:
        """Begin a new step."""
        if self._set_by:
            self._set_by = {}
