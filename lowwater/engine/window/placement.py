"""Assigns windows to the elements of a bundle and judges lateness, for windows and processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, final

import numpy as np

from lowwater.engine.aggregates import AggregateSpec, combiner_of
from lowwater.engine.records.columns import Mask
from lowwater.engine.records.steps import EXPIRED, REFUSED, UNWINDOWED, Bundle, LateBatch
from lowwater.engine.window.slices import SharedWindows, Slices, find_slices, sliced
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument
from lowwater.state.arrays import Scratch
from lowwater.time import (
    START_OF_TIME,
    Int64Array,
    earliest,
    saturating_add,
    saturating_add_array,
)
from lowwater.triggers import AfterWatermark, CustomTrigger, Default
from lowwater.triggers._machine import compile_trigger, walk
from lowwater.windows import NestedWindowFunction, SlidingWindows

Assigned: TypeAlias = tuple[Int64Array | None, Int64Array, Int64Array]
"""(element, start, end) of (element, window) pairs; ``None`` for one window each, in order."""


def nested_windows(
    windowing: Windowing, aggregates: Mapping[str, AggregateSpec]
) -> NestedWindowFunction | None:
    """Return windows whose elements are kept once; ``None`` where each window needs its own.

    That is so if a trigger may fire before completion, or is a user's own, which is given each
    element. It is also so for a combiner, as the accumulators of two windows may not be one object.
    """
    windows, trigger = windowing.windows, windowing.trigger
    if not isinstance(windows, NestedWindowFunction) or windowing.merging is not None:
        return None
    waits = isinstance(trigger, Default) or (
        isinstance(trigger, AfterWatermark) and trigger.early is None
    )
    if not waits or any(
        isinstance(node.trigger, CustomTrigger) for node in walk(compile_trigger(trigger, ""))
    ):
        return None
    if any(combiner_of(spec) is not None for spec in aggregates.values()):
        return None
    return windows


def require_int64(
    function: object, method: str, *instants: Int64Array, positions: Int64Array | None = None
) -> None:
    """Raise unless what a window function returned is int64: others would round, or not hash.

    Args:
        function: The window function, a user's own perhaps.
        method: Which method returned the arrays.
        instants: Arrays of instants.
        positions: An array of positions, which may also be what numpy makes of them: 32 bits in a
            browser; ``None`` for none.

    Raises:
        InvalidArgument: An array is of another dtype.
    """
    for array in (*instants, positions):
        kinds = (np.int64, np.intp) if array is positions else (np.int64,)
        if array is not None and np.asarray(array).dtype not in kinds:
            raise InvalidArgument(
                f"{type(function).__name__}.{method} returned an array of dtype "
                f"{np.asarray(array).dtype}, which is not int64",
                where="window",
                hint="Convert it with .astype(np.int64): instants are microseconds",
            )


@final
class DroppedElements:
    """The elements that one bundle's step dropped from their windows: the late output.

    Args:
        watermark: The watermark that they met.
        slices: The slices of the bundle, if what is added names those instead of elements.
    """

    def __init__(self, watermark: int, slices: Slices | None = None) -> None:
        self._watermark = watermark
        self._slices = slices
        self._parts: list[tuple[Int64Array, Int64Array, Int64Array, int]] = []
        self._details: list[str] = []

    def add(
        self,
        dropped: Mask,
        reason: int,
        element: Int64Array | None,
        start: Int64Array,
        end: Int64Array,
    ) -> None:
        """Add the (element, window) pairs that a mask marks; ``None`` for elements in order.

        Where there are slices, ``element`` is the slice of each pair: all its elements are added.
        """
        which = np.flatnonzero(dropped)
        if which.size:
            of = which if element is None else element[which]
            if self._slices is not None:
                of, each = self._slices.elements(of)
                which = which[each]
            self._parts.append((of, start[which], end[which], reason))

    def add_unwindowed(self, element: Int64Array) -> None:
        """Add elements that fall in no window (S-W2)."""
        if self._slices is not None:
            element, _ = self._slices.elements(element)
        nothing = np.zeros(len(element), dtype=np.int64)
        self._parts.append((element, nothing, nothing, UNWINDOWED))

    def refuse(
        self, element: Int64Array, start: Int64Array, end: Int64Array, details: Sequence[str]
    ) -> None:
        """Add elements that a process refuses, each with what it said (S-K11)."""
        self._parts.append((element, start, end, REFUSED))
        self._details.extend(details)

    @property
    def parts(self) -> int:
        """How often elements have been added."""
        return len(self._parts)

    def among(self, elements: Int64Array, since: int = 0) -> int:
        """Count the elements that are here too: dropped from another of their windows.

        Args:
            elements: The elements, distinct ones.
            since: What :attr:`parts` was before any of them was added.
        """
        parts = self._parts[since:]
        if not parts:
            return 0
        dropped = np.concatenate([part[0] for part in parts])
        return int(np.count_nonzero(np.isin(elements, dropped)))

    def batch(self) -> LateBatch | None:
        """Return them in order of element, then window."""
        if not self._parts:
            return None
        element, start, end = (
            np.concatenate([part[at] for part in self._parts]) for at in range(3)
        )
        reason = np.concatenate(
            [np.full(len(part[0]), part[3], dtype=np.uint8) for part in self._parts]
        )
        order = np.lexsort((end, start, element))
        details = None
        if self._details:
            said = np.full(len(reason), None, dtype=object)
            said[reason == REFUSED] = self._details
            details = said[order].tolist()
        return LateBatch(
            element[order], start[order], end[order], reason[order], self._watermark, details
        )


@final
class Placement:
    """Assigns windows, and judges lateness per (element, window) before any merging (S-O3).

    ``gone_until``: windows that end there or before had expired under a former, shorter lateness.
    Their state was released, so they stay expired when a restart allows more (S-O7).
    ``has_slices``: whether elements may share their windows.

    Args:
        windowing: The windows and their allowed lateness.
        nested: The windows, if an element is kept in the shortest one that is not complete, instead
            of in all those.
    """

    def __init__(self, windowing: Windowing, nested: NestedWindowFunction | None = None) -> None:
        self.windowing = windowing
        self._nested = nested
        self._windows, self._columns = windowing.windows, windowing.windows.columns
        self.lateness_us = windowing.lateness_us
        self.gone_until = START_OF_TIME
        self._sliced = sliced(windowing.windows) if nested is None else None
        self.has_slices = self._sliced is not None
        if self._sliced is not None and self._sliced.slice_us <= 0:
            raise InvalidArgument(
                f"slice_us of {type(self._windows).__name__} is {self._sliced.slice_us}",
                where="window",
                hint="It divides the distance between any two slices: give one microsecond or more",
            )

    def slices(
        self, times: Int64Array, keys: Int64Array, capacity: int, scratch: Scratch
    ) -> Slices | None:
        """Return the slices of a bundle, if its windows are looked up sooner for those.

        Args:
            times: Event times, int64, shape (n,).
            keys: Key ids, int64, shape (n,).
            capacity: More than the largest key id.
            scratch: Space.
        """
        if self._sliced is None:
            return None
        start = self._sliced.slice_starts(times)
        if start is None:
            return None
        require_int64(self._sliced, "slice_starts", start)
        return find_slices(start, self._sliced.slice_us, keys, capacity, scratch)

    def shared(self, slices: Slices, watermark: int) -> SharedWindows | None:
        """Return the windows of slices; ``None`` if they must be assigned, or some have expired."""
        if not isinstance(self._windows, SlidingWindows):
            return None
        first = earliest(slices.bundle.times) + self._windows.period_us  # the first to end
        if watermark > START_OF_TIME and (
            self.expires(first) <= watermark or first <= self.gone_until
        ):
            return None
        return slices.on_grid(self._windows)

    def assign(
        self, bundle: Bundle, watermark: int, late: DroppedElements, first: int = 0
    ) -> Assigned:
        """Return the windows of a bundle's elements, without those that have expired.

        Args:
            bundle: The bundle.
            watermark: The watermark that it meets.
            late: Takes the elements that fall in no window or an expired one.
            first: Where the bundle begins in the one whose elements ``late`` names; with it, no
                window may have expired.
        """
        if self._nested is not None:
            return self._assign_nested(self._nested, bundle.times, watermark, late)
        windows, names = self._windows, self._columns
        columns = {name: bundle.values[name].data for name in names} if names else {}
        assigned = windows.assign(bundle.times, columns)
        element, start, end = assigned.element, assigned.start, assigned.end
        require_int64(windows, "assign", start, end, positions=element)
        if assigned.unwindowed is not None:
            late.add_unwindowed(assigned.unwindowed + first)
        if watermark == START_OF_TIME or not len(end):
            return element, start, end
        # Expiry rises with the end: where the earliest window has not expired, none has.
        first = earliest(end)
        if self.expires(first) > watermark and first > self.gone_until:
            return element, start, end
        expired = (self.expiry(end) <= watermark) | (end <= self.gone_until)
        late.add(expired, EXPIRED, element, start, end)
        kept = ~expired
        element = np.flatnonzero(kept) if element is None else element[kept]
        return element, start[kept], end[kept]

    def _assign_nested(
        self,
        windows: NestedWindowFunction,
        times: Int64Array,
        watermark: int,
        late: DroppedElements,
    ) -> Assigned:
        """Return the windows that keep elements: complete ones, and the shortest other one."""
        assigned = windows.shortest(times)
        element, start, end = assigned.element, assigned.start, assigned.end
        if assigned.unwindowed is not None:
            late.add_unwindowed(assigned.unwindowed)
        complete = end <= watermark
        if not complete.any():
            return element, start, end
        if element is None:
            element = np.arange(len(times), dtype=np.int64)
        timely, behind = ~complete, element[complete]
        every = windows.assign(times[behind], {})
        of = behind if every.element is None else behind[every.element]
        expired = (self.expiry(every.end) <= watermark) | (every.end <= self.gone_until)
        late.add(expired, EXPIRED, of, every.start, every.end)
        is_complete = every.end <= watermark
        follows = np.zeros(len(of), dtype=np.bool_)
        follows[1:] = (of[1:] == of[:-1]) & ~is_complete[:-1]
        kept = np.where(is_complete, ~expired, ~follows)
        element = np.concatenate((element[timely], of[kept]))
        order = np.argsort(element, kind="stable")
        start = np.concatenate((start[timely], every.start[kept]))
        end = np.concatenate((end[timely], every.end[kept]))
        return element[order], start[order], end[order]

    def expiry(self, end: Int64Array) -> Int64Array:
        """Return when windows with these ends expire (S-T3)."""
        return saturating_add_array(end, self.lateness_us)

    def expires(self, end: int) -> int:
        """Return when a window with this end expires (S-T3)."""
        return saturating_add(end, self.lateness_us)

    def resume(self, lateness_us: int, watermark: int, gone_until: int) -> None:
        """Continue from a state that was saved, perhaps under another allowed lateness.

        Args:
            lateness_us: The allowed lateness it was saved under.
            watermark: The watermark it was saved at.
            gone_until: What ``gone_until`` was then.
        """
        self.gone_until = gone_until
        if lateness_us != self.lateness_us:
            self.gone_until = max(gone_until, saturating_add(watermark, -lateness_us))
