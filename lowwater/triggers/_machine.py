"""Triggers compiled to columns: one machine for the whole algebra, no Python per window.

A trigger tree becomes a few columns of a table with a row per open window (counts, deadlines,
positions, phases) and a handful of vector functions over rows. What the table's other columns mean
is the operator's business.

Decisions where the rules are silent:

- A trigger that finishes forgets its state, its parts' included.
- In windows that merge, a firing of ``AfterEach`` or of ``AfterWatermark``'s late part also
  clears the parts that were fed beside it, so that every part counts from the last pane on.
- After a merge ``AfterEach`` stands at the first part that is not finished in all windows, or
  that waits for a completion the merged window has not reached; the parts after it are reset.

The file is long because all triggers are columns of one table, and each function goes through the
whole algebra.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, assert_never, final

import numpy as np
from numpy.typing import NDArray

from lowwater.kernels.positions import as_positions
from lowwater.time import END_OF_TIME, Int64Array, saturating_add_array
from lowwater.triggers import _custom
from lowwater.triggers._custom import CLOCK_WAKE, WATERMARK_WAKE, later_than
from lowwater.triggers._values import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    CustomTrigger,
    Default,
    Moment,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
    outlook,
)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A trigger and the column of its state: a tree like the trigger's own.

    Args:
        trigger: The trigger.
        column: The name of its column; empty if only its parts have state.
        dtype: The column's dtype.
        fill: The column's value in a window that is new.
        parts: The nodes of its parts.
        fed: Whether it, or one of its parts, counts or times elements.
    """

    trigger: Trigger
    column: str = ""
    dtype: Any = None
    fill: Any = None
    parts: tuple[Node, ...] = ()
    fed: bool = True

    @property
    def waits_for_completion(self) -> bool:
        """Whether it can only have finished at the completion of its window."""
        match self.trigger:
            case AfterWatermark():
                return True
            case AfterEach() | AfterAll():
                return any(part.waits_for_completion for part in self.parts)
            case AfterAny() | OrFinally():
                return all(part.waits_for_completion for part in self.parts)
            case (
                AfterCount() | AfterProcessingTime() | Repeatedly() | Never() | Always()
                | Default() | CustomTrigger()
            ):  # fmt: skip
                return False
            case _:
                assert_never(self.trigger)


def compile_trigger(trigger: Trigger, name: str) -> Node:
    match trigger:
        case Default():
            return compile_trigger(trigger.expand(), name)
        case AfterCount():
            return Node(trigger, f"{name}:count", np.int64, 0)
        case AfterProcessingTime():
            return Node(trigger, f"{name}:deadline", np.int64, END_OF_TIME)
        case CustomTrigger():
            return Node(trigger, f"{name}:custom", object)
        case AfterWatermark():
            early = compile_trigger(trigger.early or Never(), f"{name}.early")
            late = compile_trigger(trigger.late or Never(), f"{name}.late")
            fed = early.fed or late.fed
            return Node(trigger, f"{name}:past_end", np.bool_, False, (early, late), fed)
        case AfterEach():
            parts = _compile_all(trigger.parts, name)
            fed = any(part.fed for part in parts)
            return Node(trigger, f"{name}:part", np.int16, 0, parts, fed)
        case AfterAny() | AfterAll():
            return _composite(trigger, trigger.parts, name)
        case OrFinally():
            return _composite(trigger, (trigger.main, trigger.until), name)
        case Repeatedly():
            return _composite(trigger, (trigger.trigger,), name)
        case Never() | Always():
            return _composite(trigger, (), name)
        case _:
            assert_never(trigger)


def _composite(trigger: Trigger, of: tuple[Trigger, ...], name: str) -> Node:
    """Return the node of a trigger that has no state but that of its parts."""
    parts = _compile_all(of, name)
    return Node(trigger, parts=parts, fed=any(part.fed for part in parts))


def _compile_all(triggers: tuple[Trigger, ...], name: str) -> tuple[Node, ...]:
    return tuple(compile_trigger(part, f"{name}.{at}") for at, part in enumerate(triggers))


def walk(node: Node) -> Iterator[Node]:
    yield node
    for part in node.parts:
        yield from walk(part)


Mask: TypeAlias = NDArray[np.bool_]
Columns: TypeAlias = Mapping[str, NDArray[Any]]


@final
@dataclass(frozen=True, slots=True)
class TriggerColumn:
    """A column that a machine keeps per window."""

    name: str
    dtype: Any
    fill: Any


@final
@dataclass(frozen=True, slots=True)
class Moments:
    """What a trigger is judged by, for some rows: the same for all of them or one per row.

    Args:
        complete: Whether the watermark has passed each window's end, bool, shape (n,).
        touched: Whether they are judged because a bundle touched them.
        clock: The clock: an int, or int64 of shape (n,).
        watermark: The watermark.
    """

    complete: Mask
    touched: bool
    clock: int | Int64Array
    watermark: int

    def at(self, chosen: Mask) -> Moments:
        """Return the same for some of the rows."""
        clock = self.clock if isinstance(self.clock, int) else self.clock[chosen]
        return Moments(self.complete[chosen], self.touched, clock, self.watermark)


@final
@dataclass(frozen=True, slots=True)
class Merge:
    """Windows that merge, as columns: ``members`` sorted by group.

    Args:
        members: Rows of the windows that merge, int64, shape (n,); the merged ones among them.
        first: Where each group begins in ``members``, int64, shape (g,).
        into: The row that each group continues in, int64, shape (g,).
        complete: Whether the watermark has passed each merged window's end, bool, shape (g,).
        clock: The clock.
        watermark: The watermark.
    """

    members: Int64Array
    first: Int64Array
    into: Int64Array
    complete: Mask
    clock: int
    watermark: int

    def reduce(self, by: np.ufunc, column: NDArray[Any]) -> NDArray[Any]:
        """Return what the values of each group's members come to."""
        values = column[self.members]
        if len(self.first) == len(values):  # windows that only changed their bounds
            return values
        reduced: NDArray[Any] = by.reduceat(values, as_positions(self.first))
        return reduced


@final
@dataclass(frozen=True, slots=True)
class FedElements:
    """New elements, as columns, and when they came.

    Args:
        rows: Row of each one's window, int64, shape (n,), in order of arrival.
        every_time: Event times of the elements of the bundle, int64.
        element: Which of those each one is, int64, shape (n,); ``None`` for one each.
        clock: The clock.
        watermark: The watermark.
    """

    rows: Int64Array
    every_time: Int64Array
    element: Int64Array | None
    clock: int
    watermark: int

    @property
    def times(self) -> Int64Array:
        """Event times, int64, shape (n,). O(n) each time: only custom triggers ask for them."""
        return self.every_time if self.element is None else self.every_time[self.element]


class _WindowState(Protocol):
    """Where the machine's columns live."""

    @property
    def columns(self) -> dict[str, NDArray[Any]]: ...


@final
class Machine:
    """A compiled trigger.

    ``wakes``: whether it may ask to be woken by the watermark, as custom triggers may.
    ``has_deadlines``: whether it waits for the clock.
    ``is_custom``: whether a part of it is a custom trigger.

    Args:
        trigger: What to compile.
        merging: Whether windows merge, so that parts are fed side by side (S-R2).
    """

    def __init__(self, trigger: Trigger, *, merging: bool) -> None:
        self._merging = merging
        self._root = compile_trigger(trigger, "t")
        nodes = list(walk(self._root))
        custom = [n.column for n in nodes if isinstance(n.trigger, CustomTrigger)]
        self._wakes = tuple(name + WATERMARK_WAKE for name in custom)
        self._deadlines = tuple(
            n.column for n in nodes if isinstance(n.trigger, AfterProcessingTime)
        ) + tuple(name + CLOCK_WAKE for name in custom)
        self.wakes, self.has_deadlines = bool(self._wakes), bool(self._deadlines)
        self.is_custom = bool(custom)
        self.fires_before_completion = outlook(trigger, late_possible=True).fires is Moment.ANYTIME
        self.watches_completion = bool(custom) or any(
            isinstance(n.trigger, AfterWatermark) for n in nodes
        )
        self.columns: tuple[TriggerColumn, ...] = tuple(
            TriggerColumn(n.column, n.dtype, n.fill) for n in nodes if n.column
        )
        self.columns += tuple(
            TriggerColumn(name + wake, np.int64, END_OF_TIME)
            for name in custom
            for wake in (CLOCK_WAKE, WATERMARK_WAKE)
        )

    def feed(
        self,
        state: _WindowState,
        rows: Int64Array,
        counts: Int64Array,
        elements: FedElements,
    ) -> None:
        """Feed new elements to the triggers.

        Args:
            state: The table.
            rows: Distinct rows, int64, shape (n,).
            counts: New elements of each, int64, shape (n,).
            elements: The elements themselves, and the clock at their arrival.
        """
        if self._root.fed:
            self._feed(self._root, state.columns, rows, counts, elements)

    def ready(self, state: _WindowState, rows: Int64Array, moments: Moments) -> Mask:
        """Return which of the windows are to fire now."""
        return self._ready(self._root, state.columns, rows, moments)

    def fire(self, state: _WindowState, rows: Int64Array, moments: Moments) -> Mask:
        """Reset triggers that were ready after their firing; return which have finished."""
        return self._fire(self._root, state.columns, rows, moments)

    def merge(self, state: _WindowState, merge: Merge) -> None:
        """Merge the state of windows into one row per group."""
        self._merge(self._root, state.columns, merge)

    def next_deadline(
        self, state: _WindowState, rows: Int64Array, after: int | Int64Array
    ) -> Int64Array:
        """Return the first moment after ``after`` at which the clock may make each row ready."""
        return self._soonest(self._deadlines, state, rows, after)

    def next_wake(self, state: _WindowState, rows: Int64Array, after: int) -> Int64Array:
        """Return the first watermark after ``after`` that custom triggers asked to be woken at."""
        return self._soonest(self._wakes, state, rows, after)

    def _soonest(
        self,
        names: tuple[str, ...],
        state: _WindowState,
        rows: Int64Array,
        after: int | Int64Array,
    ) -> Int64Array:
        soonest = np.full(len(rows), END_OF_TIME, dtype=np.int64)
        for name in names:
            np.minimum(soonest, later_than(state.columns[name][rows], after), out=soonest)
        return soonest

    def _feed(
        self,
        node: Node,
        columns: Columns,
        rows: Int64Array,
        counts: Int64Array,
        elements: FedElements,
    ) -> None:
        if not node.fed or not rows.size:
            return
        match node.trigger:
            case AfterWatermark():
                late = columns[node.column][rows]
                early_rows = rows if self._merging else rows[~late]
                early_counts = counts if self._merging else counts[~late]
                self._feed(node.parts[0], columns, early_rows, early_counts, elements)
                self._feed(node.parts[1], columns, rows[late], counts[late], elements)
            case AfterCount():
                columns[node.column][rows] += counts
            case AfterProcessingTime() as trigger:
                deadlines = columns[node.column]
                unset = deadlines[rows] == END_OF_TIME
                deadlines[rows[unset]] = _deadline(trigger, elements.clock)
            case CustomTrigger() as trigger:
                inside = np.isin(elements.rows, rows)
                _custom.feed(
                    trigger, node.column, columns, elements.rows[inside], elements.times[inside],
                    elements.clock, elements.watermark,
                )  # fmt: skip
            case AfterEach() if not self._merging:
                position = columns[node.column][rows]
                for at, part in enumerate(node.parts):
                    here = position == at
                    self._feed(part, columns, rows[here], counts[here], elements)
            case (
                AfterAny() | AfterAll() | AfterEach() | Repeatedly() | OrFinally()
                | Never() | Always() | Default()
            ):  # fmt: skip
                for part in node.parts:
                    self._feed(part, columns, rows, counts, elements)
            case _:
                assert_never(node.trigger)

    def _ready(self, node: Node, columns: Columns, rows: Int64Array, moments: Moments) -> Mask:
        match node.trigger:
            case AfterWatermark():
                return self._ready_watermark(node, columns, rows, moments)
            case AfterCount() as trigger:
                return columns[node.column][rows] >= trigger.count
            case AfterProcessingTime():
                deadline = columns[node.column][rows]
                return (deadline <= moments.clock) & (deadline != END_OF_TIME)
            case Always():
                return np.full(len(rows), moments.touched)
            case CustomTrigger() as trigger:
                return _custom.ready(
                    trigger, node.column, columns, rows, moments.clock, moments.watermark
                )
            case AfterAny():
                return np.logical_or.reduce(
                    [self._ready(part, columns, rows, moments) for part in node.parts]
                )
            case AfterAll():
                return np.logical_and.reduce(
                    [self._ready(part, columns, rows, moments) for part in node.parts]
                )
            case OrFinally():
                main, until = node.parts
                return self._ready(main, columns, rows, moments) | self._ready(
                    until, columns, rows, moments
                )
            case Repeatedly():
                return self._ready(node.parts[0], columns, rows, moments)
            case AfterEach():
                return self._ready_each(node, columns, rows, moments)
            case Never() | Default():  # compile_trigger expands Default
                return np.zeros(len(rows), dtype=np.bool_)
            case _:
                assert_never(node.trigger)

    def _ready_each(self, node: Node, columns: Columns, rows: Int64Array, moments: Moments) -> Mask:
        ready = np.zeros(len(rows), dtype=np.bool_)
        position = columns[node.column][rows]
        for at, part in enumerate(node.parts):
            here = position == at
            if here.any():
                ready[here] = self._ready(part, columns, rows[here], moments.at(here))
        return ready

    def _ready_watermark(
        self, node: Node, columns: Columns, rows: Int64Array, moments: Moments
    ) -> Mask:
        early, late = node.parts
        in_late = columns[node.column][rows]
        ready = moments.complete
        if not isinstance(early.trigger, Never):
            ready = ready | self._ready(early, columns, rows, moments)
        ready = ready & ~in_late
        if np.count_nonzero(in_late):
            ready[in_late] = self._ready(late, columns, rows[in_late], moments.at(in_late))
        return ready

    def _fire(self, node: Node, columns: Columns, rows: Int64Array, moments: Moments) -> Mask:
        if not rows.size:
            return np.zeros(0, dtype=np.bool_)
        match node.trigger:
            case AfterWatermark():
                return self._fire_watermark(node, columns, rows, moments)
            case AfterCount() | AfterProcessingTime() | AfterAny() | AfterAll():
                self._clear(node, columns, rows)
                return np.ones(len(rows), dtype=np.bool_)
            case CustomTrigger() as trigger:
                finished = _custom.fire(
                    trigger, node.column, columns, rows, moments.clock, moments.watermark
                )
                self._clear(node, columns, rows[finished])
                return finished
            case Repeatedly():
                self._fire(node.parts[0], columns, rows, moments)
                return np.zeros(len(rows), dtype=np.bool_)
            case OrFinally():
                return self._fire_or_finally(node, columns, rows, moments)
            case AfterEach():
                return self._fire_each(node, columns, rows, moments)
            case Never() | Always() | Default():
                return np.zeros(len(rows), dtype=np.bool_)
            case _:
                assert_never(node.trigger)

    def _fire_or_finally(
        self, node: Node, columns: Columns, rows: Int64Array, moments: Moments
    ) -> Mask:
        main, until = node.parts
        finished = self._ready(until, columns, rows, moments)
        others = ~finished
        finished[others] = self._fire(main, columns, rows[others], moments.at(others))
        self._clear(node, columns, rows[finished])
        return finished

    def _fire_each(self, node: Node, columns: Columns, rows: Int64Array, moments: Moments) -> Mask:
        positions = columns[node.column]
        position = positions[rows]
        for at, part in enumerate(node.parts):
            here = position == at
            if not here.any():
                continue
            fired = rows[here]
            over = self._fire(part, columns, fired, moments.at(here))
            positions[fired[over]] = at + 1
            if self._merging:
                for other in node.parts:
                    if other is not part:
                        self._clear(other, columns, fired)
        finished: Mask = positions[rows] == len(node.parts)
        self._clear(node, columns, rows[finished])
        return finished

    def _fire_watermark(
        self, node: Node, columns: Columns, rows: Int64Array, moments: Moments
    ) -> Mask:
        early, late = node.parts
        phase = columns[node.column]
        was_late = phase[rows]
        on_time = ~was_late & moments.complete
        before = ~was_late & ~moments.complete
        self._fire(early, columns, rows[before], moments.at(before))
        self._clear(early, columns, rows[on_time])
        self._clear(late, columns, rows[on_time])
        self._fire(late, columns, rows[was_late], moments.at(was_late))
        if self._merging:
            self._clear(early, columns, rows[was_late])
        trigger = node.trigger
        if isinstance(trigger, AfterWatermark) and trigger.late is None:
            return on_time
        phase[rows[on_time]] = True
        return np.zeros(len(rows), dtype=np.bool_)

    def _clear(self, node: Node, columns: Columns, rows: Int64Array) -> None:
        if not rows.size:
            return
        if node.column:
            columns[node.column][rows] = node.fill
        if isinstance(node.trigger, CustomTrigger):
            _custom.forget_wakes(node.column, columns, rows)
        for part in node.parts:
            self._clear(part, columns, rows)

    def _merge(self, node: Node, columns: Columns, merge: Merge) -> None:
        match node.trigger:
            case AfterWatermark():
                column = columns[node.column]
                late = merge.reduce(np.logical_and, column) & merge.complete
                for part in node.parts:
                    self._merge(part, columns, merge)
                column[merge.into] = late
                self._clear(node.parts[1], columns, merge.into[~late])
            case AfterCount():
                column = columns[node.column]
                column[merge.into] = merge.reduce(np.add, column)
            case AfterProcessingTime():
                column = columns[node.column]
                column[merge.into] = merge.reduce(np.minimum, column)
            case CustomTrigger() as trigger:
                _custom.merge(
                    trigger, node.column, columns, merge.members, merge.first, merge.into,
                    merge.clock, merge.watermark,
                )  # fmt: skip
            case AfterEach():
                self._merge_each(node, columns, merge)
            case (
                AfterAny() | AfterAll() | Repeatedly() | OrFinally()
                | Never() | Always() | Default()
            ):  # fmt: skip
                for part in node.parts:
                    self._merge(part, columns, merge)
            case _:
                assert_never(node.trigger)

    def _merge_each(self, node: Node, columns: Columns, merge: Merge) -> None:
        column = columns[node.column]
        position = merge.reduce(np.minimum, column)
        for at, part in enumerate(node.parts):
            if part.waits_for_completion:
                position = np.where((position > at) & ~merge.complete, at, position)
        for part in node.parts:
            self._merge(part, columns, merge)
        column[merge.into] = position
        for at, part in enumerate(node.parts):
            self._clear(part, columns, merge.into[position < at])


def _deadline(trigger: AfterProcessingTime, clock: int) -> int:
    at = int(saturating_add_array(np.array([clock], dtype=np.int64), trigger.delay_us)[0])
    align = trigger.align_us
    if align is not None:
        at += -at % align
    return min(at, END_OF_TIME - 1)
