"""Session windows: periods of activity that a long enough gap ends (S-W3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from lowwater.errors import DataError, InvalidArgument, constructor
from lowwater.kernels import kernels
from lowwater.time import (
    DurationLike,
    Instant,
    Int64Array,
    as_micros,
    format_duration,
    meant,
    saturating_add_array,
)
from lowwater.windows._base import Assignment, Columns, Merged, MergeScope, positive_duration


@constructor(
    gap_duration="gap", gap_size="gap", inactivity="gap", inactivity_gap="gap", timeout="gap"
)
@final
@dataclass(frozen=True, slots=True, repr=False)
class Sessions:
    """Windows that grow while elements keep arriving (S-W3).

    Each element opens a proto-window ``[t, t + gap)``; those that overlap merge into their span.
    Two windows that only touch stay separate, as half-open intervals, unless ``merge_touching``.

    Args:
        gap: A silence of this length ends a session; above zero. Leave it out to use
            ``gap_column``.
        gap_column: Name of a column with each element's own gap: int64 microseconds or durations,
            above zero.
        merge_touching: Also merge windows that touch, as Spark, Flink and Kafka Streams do.

    Raises:
        InvalidArgument: Not exactly one of ``gap`` and ``gap_column`` was given, or the gap is
            not above zero.

    >>> Sessions("30m")
    Sessions('30m')
    """

    gap: DurationLike | None = None
    gap_column: str | None = None
    merge_touching: bool = False

    def __post_init__(self) -> None:
        if (self.gap is None) == (self.gap_column is None):
            raise InvalidArgument(
                "Sessions takes either a gap or a gap_column",
                hint='Write Sessions("30m"), or Sessions(gap_column="gap")',
            )
        if self.gap is not None:
            object.__setattr__(self, "gap", meant(positive_duration(self.gap, "gap")))

    @property
    def merge_scope(self) -> MergeScope:
        """``"overlapping"``: sessions of a key that overlap merge."""
        return "overlapping"

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of gaps, if each element has its own."""
        return () if self.gap_column is None else (self.gap_column,)

    @property
    def gap_us(self) -> int | None:
        """The gap in microseconds, or ``None`` when each element has its own."""
        return None if self.gap is None else as_micros(self.gap)

    def assign(self, times: Int64Array, columns: Columns) -> Assignment:
        """Return each element's proto-window. O(n).

        Raises:
            DataError: An element's own gap is not above zero.
        """
        gap = self.gap_us
        if gap is not None:
            return Assignment(times, saturating_add_array(times, gap))
        if self.gap_column is None:
            raise InvalidArgument("Sessions has neither a gap nor a gap_column")
        gaps = np.asarray(columns[self.gap_column])
        if gaps.dtype.kind == "m":
            gaps = gaps.astype("timedelta64[us]")
        gaps = gaps.astype(np.int64, copy=False)
        if gaps.size and int(gaps.min()) <= 0:
            at = int(np.argmax(gaps <= 0))
            raise DataError(
                f"the element at {Instant(int(times[at]))} has a gap of {int(gaps[at])} us, which "
                "is not above zero",
                where=repr(self),
                hint=f"Filter such elements out: col({self.gap_column!r}) > 0",
            )
        return Assignment(times, saturating_add_array(times, gaps))

    def merge(self, keys: Int64Array, start: Int64Array, end: Int64Array) -> Merged:
        """Merge overlapping windows of each key into the window that spans them. O(n)."""
        return merge_overlapping(keys, start, end, touching=self.merge_touching)

    def __repr__(self) -> str:
        gap = self.gap_us
        head = f"gap_column={self.gap_column!r}" if gap is None else repr(format_duration(gap))
        return f"Sessions({head}{', merge_touching=True' if self.merge_touching else ''})"


def merge_overlapping(
    keys: Int64Array, start: Int64Array, end: Int64Array, *, touching: bool
) -> Merged:
    """Merge overlapping intervals of each key.

    Args:
        keys: Key of each interval, int64, shape (n,), sorted.
        start: First instant of each, int64, sorted within a key.
        end: First instant after each, int64.
        touching: Also merge two intervals if one ends exactly where the next starts.
    """
    count = len(keys)
    if count < 2:
        return Merged(np.zeros(count, dtype=np.int64), start, end)
    return Merged(*kernels().merge_overlapping(keys, start, end, touching))
