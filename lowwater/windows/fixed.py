"""Fixed windows (S-W1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from lowwater.errors import constructor
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
from lowwater.windows._base import Assignment, Columns, MergeScope, positive_duration


@constructor(
    length="size", duration="size", every="size", width="size", period="size", start="offset"
)
@final
@dataclass(frozen=True, slots=True, repr=False)
class FixedWindows:
    """Adjacent windows of one size (S-W1): ``start = t - floormod(t - offset, size)``.

    Args:
        size: Length of each window, above zero.
        offset: Where the windows start, relative to 1970-01-01T00:00:00Z.

    Raises:
        InvalidArgument: ``size`` is not a duration above zero.

    >>> FixedWindows("90s")
    FixedWindows('1m30s')
    """

    size: DurationLike
    offset: DurationLike = 0

    def __post_init__(self) -> None:
        size = positive_duration(self.size, "size")
        object.__setattr__(self, "size", meant(size))
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
        """Length of each window in microseconds."""
        return as_micros(self.size)

    @property
    def offset_us(self) -> int:
        """Where the windows start, in microseconds: at least 0, below the size."""
        return as_micros(self.offset)

    def assign(self, times: Int64Array, columns: Columns) -> Assignment:
        """Return the one window of each element. O(n)."""
        size = as_micros(self.size)
        start = grid_start(times, size, as_micros(self.offset))
        return Assignment(start, saturating_add_array(start, size))

    def __repr__(self) -> str:
        if not self.offset_us:
            return f"FixedWindows({format_duration(self.size_us)!r})"
        return (
            f"FixedWindows({format_duration(self.size_us)!r}, "
            f"offset={format_duration(self.offset_us)!r})"
        )


def grid_start(times: Int64Array, period: int, offset: int) -> Int64Array:
    """Return the latest instant at or before each time that is ``offset`` modulo ``period``.

    Saturates at the start of time. ``offset`` is at least 0 and below ``period``.
    """
    if times.size == 0:
        return times
    if int(times.min()) >= START_OF_TIME + 2 * period and period < END_OF_TIME // 2:
        start: Int64Array = times - offset
        start //= period
        start *= period
        start += offset
        return start
    return np.array(
        [max(START_OF_TIME, t - (t - offset) % period) for t in times.tolist()], dtype=np.int64
    )
