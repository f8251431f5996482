"""Cumulative windows: a day so far, hour by hour (S-W8)."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import final

import numpy as np

from lowwater.errors import InvalidArgument, constructor, describe
from lowwater.kernels.positions import repeated
from lowwater.time import (
    DAY_US,
    END_OF_TIME,
    START_OF_TIME,
    DurationLike,
    Int64Array,
    as_micros,
    duration,
    format_duration,
    meant,
)
from lowwater.windows._base import (
    MOST_PAIRS,
    MOST_WINDOWS,
    Assignment,
    Columns,
    MergeScope,
    positive_duration,
)
from lowwater.windows.calendar import day_spans, outside_calendars, require_zone
from lowwater.windows.fixed import grid_start

_SECOND_US = 1_000_000
_LONGER = 2 * 3_600 * _SECOND_US  # than its length a day of a time zone may be, about


@constructor(
    length="size", duration="size", max_size="size", every="step", period="step", slide="step",
    tz="timezone", zone="timezone", start="offset",
)  # fmt: skip
@final
@dataclass(frozen=True, slots=True, repr=False)
class CumulativeWindows:
    """Windows that share their start and end step by step: ``[day, day + k * step)`` (S-W8).

    An element belongs to the windows of its day that end after it. Each of them is a window of its
    own, with panes and a lateness of its own. The last one ends with the day, even if the step does
    not divide it.

    With a time zone, ``size`` is a number of days of its calendar, which start at local midnight
    plus ``offset`` on the clock there, and may have 23 or 25 hours. Steps are elapsed time, so such
    a day has 23 or 25 windows of full hours.

    Args:
        size: Length of the longest window, above zero; with a time zone whole days.
        step: Time from one end to the next, above zero, at most ``size``: an element is in at most
            10,000 windows.
        offset: Where the longest windows start, relative to 1970-01-01T00:00:00 (UTC, or on the
            clock of the time zone).
        timezone: IANA name of a time zone, such as ``"Europe/Berlin"``; ``None`` for windows that
            are all equally long.

    Raises:
        InvalidArgument: ``size`` or ``step`` is not a duration above zero, the step is longer than
            the size, there would be too many windows, or the time zone is not known or the size not
            whole days.

    >>> CumulativeWindows("1d", step="1h")
    CumulativeWindows('1d', '1h')
    """

    size: DurationLike
    step: DurationLike
    offset: DurationLike = field(default=0, kw_only=True)
    timezone: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        size = positive_duration(self.size, "size")
        step = positive_duration(self.step, "step")
        if step > size:
            raise InvalidArgument(
                f"{describe('step', self.step)} is longer than {describe('size', self.size)}",
                where="CumulativeWindows",
                hint="The size comes first: "
                f"CumulativeWindows({format_duration(step)!r}, step={format_duration(size)!r})",
            )
        longest = size
        if self.timezone is not None:
            require_zone(self.timezone)
            longest += _LONGER
            if size % DAY_US:
                raise InvalidArgument(
                    f"{describe('size', self.size)} is not a number of whole days, which windows "
                    "of a time zone are",
                    where="CumulativeWindows",
                    hint='Use "1d", or leave out timezone=',
                )
        windows = -(-longest // step)
        if windows > MOST_WINDOWS:
            shortest = format_duration(-(-longest // MOST_WINDOWS))
            raise InvalidArgument(
                f"{describe('size', self.size)} and {describe('step', self.step)} put an element "
                f"into up to {windows:,} windows, each with panes of its own, and at most "
                f"{MOST_WINDOWS:,} are supported",
                where="CumulativeWindows",
                hint=f"Use a shorter size, or a step of at least {shortest!r}",
            )
        object.__setattr__(self, "size", meant(size))
        object.__setattr__(self, "step", meant(step))
        object.__setattr__(self, "offset", meant(duration(self.offset, name="offset") % size))

    @property
    def columns(self) -> tuple[str, ...]:
        """None: only the event time is read."""
        return ()

    @property
    def merge_scope(self) -> MergeScope:
        """``"none"``: these windows never merge."""
        return "none"

    @property
    def size_us(self) -> int:
        """Length of the longest window in microseconds, in a time zone that of a usual one."""
        return as_micros(self.size)

    @property
    def step_us(self) -> int:
        """Microseconds from one end to the next."""
        return as_micros(self.step)

    @property
    def offset_us(self) -> int:
        """Where the longest windows start, in microseconds: at least 0, below the size."""
        return as_micros(self.offset)

    @property
    def slice_us(self) -> int:
        """Microseconds that divide the distance between the starts of any two slices."""
        if self.timezone is None:
            return gcd(self.step_us, self.size_us)
        return gcd(self.step_us, self.offset_us, _SECOND_US)

    def slice_starts(self, times: Int64Array) -> Int64Array | None:
        """Return the first instant of each element's step; ``None`` where windows are cut off."""
        if outside_calendars(times).any() if self.timezone else not self._is_far_inside(times):
            return None
        start, _ = self._spans(times)
        return start + (times - start) // self.step_us * self.step_us

    def ends(self, start: int) -> Int64Array:
        """Return the ends of the windows that start at an instant, rising, int64. O(windows)."""
        if self.timezone is None and not self._is_far_inside(np.array([start], dtype=np.int64)):
            low = start - (start - self.offset_us) % self.size_us  # a window may be cut off
            high = low + self.size_us
        else:
            (low,), (high,) = (
                side.tolist() for side in self._spans(np.array([start], dtype=np.int64))
            )
        ends = {min(at, high, END_OF_TIME) for at in range(low, high + self.step_us, self.step_us)}
        return np.array(sorted(end for end in ends if end > start), dtype=np.int64)

    def shortest(self, times: Int64Array) -> Assignment:
        """Return the shortest window of each element. O(n)."""
        return self._assigned(times, all_windows=False)

    def assign(self, times: Int64Array, columns: Columns) -> Assignment:
        """Return each element's windows, shortest first. O(n * size / step).

        An element outside the years that calendars cover (1 to 9999, less a few days) belongs to
        no window of a time zone: it goes to the late output with reason ``unwindowed``.

        Raises:
            InvalidArgument: The bundle has so many elements that memory may not hold the pairs.
        """
        return self._assigned(times, all_windows=True)

    def _assigned(self, times: Int64Array, *, all_windows: bool) -> Assignment:
        if self.timezone is None:
            if not self._is_far_inside(times):
                return self._cut_off(times, all_windows=all_windows)
            return self._between(times, *self._spans(times), all_windows=all_windows)
        outside = outside_calendars(times)
        if not outside.any():
            return self._between(times, *self._spans(times), all_windows=all_windows)
        inside, without = np.flatnonzero(~outside), np.flatnonzero(outside)
        times = times[inside]
        found = self._between(times, *self._spans(times), all_windows=all_windows)
        element = inside if found.element is None else inside[found.element]
        return Assignment(found.start, found.end, element, without)

    def _between(
        self, times: Int64Array, low: Int64Array, high: Int64Array, *, all_windows: bool
    ) -> Assignment:
        """Return windows within the spans that are the longest ones."""
        step = self.step_us
        steps = (times - low) // step
        if not all_windows:
            return Assignment(low, np.minimum(low + (steps + 1) * step, high))
        copies = -((low - high) // step) - steps
        pairs = int(copies.sum())
        if pairs > MOST_PAIRS:
            raise InvalidArgument(
                f"a bundle of {len(times):,} elements in {pairs:,} windows may not fit memory",
                where=repr(self),
                hint=f"Use a bundle_size of at most {MOST_PAIRS * len(times) // pairs:,}, or a "
                "longer step",
            )
        element = repeated(np.arange(len(times), dtype=np.int64), copies)
        number = np.arange(1, pairs + 1) + repeated(steps - np.cumsum(copies) + copies, copies)
        start = low[element]
        return Assignment(start, np.minimum(start + number * step, high[element]), element)

    def _spans(self, times: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the start and the end of the longest window of each element."""
        if self.timezone is None:
            low = grid_start(times, self.size_us, self.offset_us)
            return low, low + self.size_us
        return day_spans(times, self.timezone, self.size_us // DAY_US, self.offset_us)

    def _is_far_inside(self, times: Int64Array) -> bool:
        """Whether the windows of elements are all far from the start and the end of time."""
        reach = 2 * (self.size_us + self.step_us)
        if not times.size or reach >= END_OF_TIME:
            return not times.size
        return int(times.min()) >= START_OF_TIME + reach and int(times.max()) <= END_OF_TIME - reach

    def _cut_off(self, times: Int64Array, *, all_windows: bool) -> Assignment:
        """Return windows near the start and the end of time, which end there."""
        found: list[tuple[int, int, int]] = []
        for number, time in enumerate(times.tolist()):
            start = max(START_OF_TIME, time - (time - self.offset_us) % self.size_us)
            ends = self.ends(start)
            ends = ends[ends > time]
            chosen = ends if all_windows else ends[:1]
            found += [(start, end, number) for end in chosen.tolist()]
        start, end, element = np.array(found, dtype=np.int64).reshape(-1, 3).T
        return Assignment(start, end, element)

    def __repr__(self) -> str:
        body = f"{format_duration(self.size_us)!r}, {format_duration(self.step_us)!r}"
        if self.offset_us:
            body += f", offset={format_duration(self.offset_us)!r}"
        if self.timezone is not None:
            body += f", timezone={self.timezone!r}"
        return f"CumulativeWindows({body})"
