"""Sliding windows (S-W2)."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import final

import numpy as np

from lowwater.errors import InvalidArgument, constructor, describe
from lowwater.kernels.positions import repeated
from lowwater.time import (
    END_OF_TIME,
    START_OF_TIME,
    DurationLike,
    Int64Array,
    as_micros,
    duration,
    format_duration,
    meant,
    saturating_add_array,
)
from lowwater.windows._base import (
    MOST_PAIRS,
    MOST_WINDOWS,
    Assignment,
    Columns,
    MergeScope,
    positive_duration,
)
from lowwater.windows.fixed import grid_start


@constructor(
    length="size",
    duration="size",
    width="size",
    every="period",
    hop="period",
    slide="period",
    step="period",
    advance="period",
)
@final
@dataclass(frozen=True, slots=True, repr=False)
class SlidingWindows:
    """Windows of one size that start once each period (S-W2).

    An element belongs to every window ``[s, s + size)`` with ``s = offset (mod period)`` that
    contains it. With ``period > size`` there may be none: the element then goes to the late output
    with reason ``unwindowed``. An element is in at most 10,000 windows.

    Args:
        size: Length of each window, above zero.
        period: Time from one start to the next, above zero: at least a ten-thousandth of the size.
        offset: Where the windows start, relative to 1970-01-01T00:00:00Z.

    Raises:
        InvalidArgument: ``size`` or ``period`` is not a duration above zero, or an element would be
            in too many windows.

    >>> SlidingWindows("1m", "10s")
    SlidingWindows('1m', '10s')
    """

    size: DurationLike
    period: DurationLike
    offset: DurationLike = 0

    def __post_init__(self) -> None:
        period = positive_duration(self.period, "period")
        size = positive_duration(self.size, "size")
        windows = -(-size // period)
        if windows > MOST_WINDOWS:
            shortest = format_duration(-(-size // MOST_WINDOWS))
            raise InvalidArgument(
                f"{describe('size', self.size)} and {describe('period', self.period)} put each "
                f"element into {windows:,} windows, each with state and panes of its own, and at "
                f"most {MOST_WINDOWS:,} are supported",
                where="SlidingWindows",
                hint=f"Use a shorter size, or a period of at least {shortest!r}",
            )
        object.__setattr__(self, "size", meant(size))
        object.__setattr__(self, "period", meant(period))
        object.__setattr__(self, "offset", meant(duration(self.offset, name="offset") % period))

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
        """Length of each window in microseconds."""
        return as_micros(self.size)

    @property
    def period_us(self) -> int:
        """Microseconds from one start to the next."""
        return as_micros(self.period)

    @property
    def offset_us(self) -> int:
        """Where the windows start, in microseconds: at least 0, below the period."""
        return as_micros(self.offset)

    @property
    def slice_us(self) -> int:
        """Microseconds that divide the distance between the starts of any two slices."""
        return gcd(self.period_us, self.size_us)

    def slice_starts(self, times: Int64Array) -> Int64Array | None:
        """Return the first instant of each element's slice. O(n).

        Elements of one slice are in the same windows, and so is its first instant. There are one
        or two slices in a period, as a window starts or ends (Krishnamurthy, Wu and Franklin,
        "On-the-Fly Sharing for Streamed Aggregation", 2006: paired windows). ``None`` near the
        start and the end of time, where windows are cut off.
        """
        if not times.size:
            return times
        reach = 2 * (self.size_us + self.period_us)
        if int(times.min()) < START_OF_TIME + reach or int(times.max()) > END_OF_TIME - reach:
            return None
        start = grid_start(times, self.period_us, self.offset_us)
        tail = self.size_us % self.period_us
        if tail:
            start[times - start >= tail] += tail
        return start

    def assign(self, times: Int64Array, columns: Columns) -> Assignment:
        """Return each element's windows, earliest first. O(n * size / period).

        Raises:
            InvalidArgument: The bundle has so many elements that memory may not hold the pairs.
        """
        copies = -(-self.size_us // self.period_us)
        if copies * len(times) > MOST_PAIRS:
            raise InvalidArgument(
                f"a bundle of {len(times):,} elements, each in {copies:,} windows, may not fit "
                "memory",
                where=repr(self),
                hint=f"Use a bundle_size of at most {MOST_PAIRS // copies:,}, or a longer period",
            )
        last = grid_start(times, self.period_us, self.offset_us)
        back = np.arange(copies - 1, -1, -1, dtype=np.int64) * self.period_us
        start = saturating_add_array(repeated(last, copies), np.tile(-back, len(times)))
        if times.size and int(last.min()) < START_OF_TIME + self.size_us:
            # Saturated starts are all equal. Derive the ends from the unsaturated grid instead,
            # so that the windows of one element stay distinct.
            end = saturating_add_array(
                repeated(last, copies), np.tile(self.size_us - back, len(times))
            )
        else:
            end = saturating_add_array(start, self.size_us)
        element = repeated(np.arange(len(times), dtype=np.int64), copies)
        if self.size_us % self.period_us == 0:
            return Assignment(start, end, element)
        inside = end > times[element]
        if inside.all():
            return Assignment(start, end, element)
        element = element[inside]
        unwindowed = None
        if self.period_us > self.size_us:
            found = np.zeros(len(times), dtype=np.bool_)
            found[element] = True
            unwindowed = np.flatnonzero(~found)
        return Assignment(start[inside], end[inside], element, unwindowed)

    def __repr__(self) -> str:
        body = f"{format_duration(self.size_us)!r}, {format_duration(self.period_us)!r}"
        if self.offset_us:
            body += f", offset={format_duration(self.offset_us)!r}"
        return f"SlidingWindows({body})"
