"""Calls into the user's own trigger logic: the one place where triggers run Python per window.

Decisions where the rules are silent: each custom trigger of a tree has wake-up calls of its own,
the earliest of those that lie ahead; one for a moment that has come already is ignored. They are
forgotten when the trigger fires, before ``on_fire``, or is reset; the earliest that lies ahead
of any window that merges stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from lowwater.errors import InvalidArgument, user_code
from lowwater.kernels.positions import as_positions
from lowwater.time import END_OF_TIME, Instant, Int64Array, instant
from lowwater.triggers._values import CustomTrigger
from lowwater.windows import Window

Columns: TypeAlias = Mapping[str, NDArray[Any]]

CLOCK_WAKE = ":clock_wake"
WATERMARK_WAKE = ":watermark_wake"


@final
class RowContext:
    """One window as the user's logic sees it: a :class:`lowwater.triggers.TriggerContext`."""

    __slots__ = ("_columns", "_name", "_row", "clock", "state", "watermark", "window")

    def __init__(
        self, name: str, columns: Columns, row: int, state: Any, clock: int, watermark: int
    ) -> None:
        self._name = name
        self._columns = columns
        self._row = row
        self.state = state
        self.clock = clock
        self.watermark = watermark
        self.window = Window(Instant(columns["start"][row]), Instant(columns["end"][row]))

    def wake_at_clock(self, at: int) -> None:
        """Request a call of ``ready`` when the clock reaches ``at``."""
        self._wake(CLOCK_WAKE, instant(at), self.clock)

    def wake_at_watermark(self, at: int) -> None:
        """Request a call of ``ready`` when the watermark reaches ``at``."""
        self._wake(WATERMARK_WAKE, instant(at), self.watermark)

    def _wake(self, call: str, at: int, now: int) -> None:
        if at <= now:
            return
        column = self._columns[self._name + call]
        asked = int(column[self._row])
        column[self._row] = at if asked <= now else min(asked, at)


def feed(
    trigger: CustomTrigger,
    name: str,
    columns: Columns,
    rows: Int64Array,
    times: Int64Array,
    clock: int,
    watermark: int,
) -> None:
    """Call the logic for each new element, in order of arrival."""
    states = columns[name]
    for row, at in zip(rows.tolist(), times.tolist(), strict=True):
        context = RowContext(name, columns, row, states[row], clock, watermark)
        with user_code(f"on_element of {trigger.logic!r}"):
            trigger.logic.on_element(context, at)
        states[row] = context.state


def ready(
    trigger: CustomTrigger,
    name: str,
    columns: Columns,
    rows: Int64Array,
    clock: int | Int64Array,
    watermark: int,
) -> NDArray[np.bool_]:
    """Return which windows the logic wants to fire."""
    contexts = _contexts(name, columns, rows, clock, watermark)
    with user_code(f"ready of {trigger.logic!r}"):
        truths = [bool(trigger.logic.ready(context)) for context in contexts]
    return np.array(truths, dtype=np.bool_)


def fire(
    trigger: CustomTrigger,
    name: str,
    columns: Columns,
    rows: Int64Array,
    clock: int | Int64Array,
    watermark: int,
) -> NDArray[np.bool_]:
    """Reset the logic after a firing; return which windows it has finished.

    Raises:
        InvalidArgument: It finished at a time that ``finishes`` rules out.
    """
    forget_wakes(name, columns, rows)
    finished = np.zeros(len(rows), dtype=np.bool_)
    contexts = _contexts(name, columns, rows, clock, watermark)
    for at, (row, context) in enumerate(zip(rows.tolist(), contexts, strict=True)):
        with user_code(f"on_fire of {trigger.logic!r}"):
            finished[at] = bool(trigger.logic.on_fire(context))
        columns[name][row] = context.state
        if finished[at] and (
            trigger.finishes == "never"
            or (trigger.finishes == "at_completion" and watermark < context.window.end)
        ):
            raise InvalidArgument(
                f"{trigger.logic!r} finished in {context.window}, though it was said to finish "
                f"{trigger.finishes.replace('_', ' ')}",
                where="CustomTrigger(finishes=)",
                hint='Let on_fire return False, or say finishes="anytime"',
            )
    return finished


def merge(
    trigger: CustomTrigger,
    name: str,
    columns: Columns,
    members: Int64Array,
    first: Int64Array,
    into: Int64Array,
    clock: int,
    watermark: int,
) -> None:
    """Have the logic set the state of each merged window from those of the windows merged."""
    for call, now in ((CLOCK_WAKE, clock), (WATERMARK_WAKE, watermark)):
        column = columns[name + call]
        column[into] = np.minimum.reduceat(later_than(column[members], now), as_positions(first))
    states = columns[name]
    bounds = [*first.tolist(), len(members)]
    for at, row in enumerate(into.tolist()):
        merging = [states[member] for member in members[bounds[at] : bounds[at + 1]].tolist()]
        context = RowContext(name, columns, row, None, clock, watermark)
        with user_code(f"on_merge of {trigger.logic!r}"):
            trigger.logic.on_merge(context, merging)
        states[row] = context.state


def forget_wakes(name: str, columns: Columns, rows: Int64Array) -> None:
    """Forget what the trigger asked to be woken for."""
    for call in (CLOCK_WAKE, WATERMARK_WAKE):
        columns[name + call][rows] = END_OF_TIME


def later_than(column: Int64Array, after: int | Int64Array) -> Int64Array:
    """Return the instants that lie after ``after``, the end of time for the others."""
    return np.where(column > after, column, END_OF_TIME)


def _contexts(
    name: str, columns: Columns, rows: Int64Array, clock: int | Int64Array, watermark: int
) -> list[RowContext]:
    clocks = np.broadcast_to(np.asarray(clock), rows.shape).tolist()
    return [
        RowContext(name, columns, row, columns[name][row], now, watermark)
        for row, now in zip(rows.tolist(), clocks, strict=True)
    ]
