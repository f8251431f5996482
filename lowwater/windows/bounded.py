"""Windows that records bring along, as two of their columns (S-W9)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np

from lowwater.errors import DataError, InvalidArgument, constructor, describe
from lowwater.time import (
    DurationLike,
    Instant,
    Int64Array,
    as_micros,
    format_duration,
    meant,
    saturating_add_array,
)
from lowwater.windows._base import Assignment, Columns, MergeScope, positive_duration


@constructor(
    opens="start", begins="start", closes="end", expires="end", max_length="longest",
    at_most="longest",
)  # fmt: skip
@final
@dataclass(frozen=True, slots=True, repr=False)
class ColumnWindows:
    """The window of each record is ``[start, end)``, by two columns of the record (S-W9).

    Records of a key with the same bounds share a window. A record whose event time is not inside,
    as with an end that is not after the start, goes to the late output with reason ``unwindowed``.
    A record whose window is longer than ``longest``, or has a null as a bound, is a dead letter.

    Args:
        start: Name of the column of starts, written as event times are.
        end: Name of the column of ends.
        longest: How long a window may be. State is released once the watermark has passed a
            window's end, so this bounds how long a record may keep some.

    Raises:
        InvalidArgument: ``start`` and ``end`` are not the names of two columns, or ``longest`` is
            not a duration above zero.

    >>> ColumnWindows("opened", "expires", longest="30d")
    ColumnWindows('opened', 'expires', longest='30d')
    """

    start: str
    end: str
    longest: DurationLike = field(kw_only=True)

    def __post_init__(self) -> None:
        for name, column in (("start", self.start), ("end", self.end)):
            if not isinstance(column, str) or not column:
                raise InvalidArgument(
                    f"{describe(name, column)} is not the name of a column",
                    where="ColumnWindows",
                    hint='Write, say, ColumnWindows(start="opened", end="expires", longest="30d")',
                )
        if self.start == self.end:
            raise InvalidArgument(
                f"start and end are one column, {self.start!r}, so every window would be empty",
                where="ColumnWindows",
                hint="Name the column of ends as end=",
            )
        object.__setattr__(self, "longest", meant(positive_duration(self.longest, "longest")))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of starts and of ends."""
        return self.start, self.end

    @property
    def merge_scope(self) -> MergeScope:
        """``"none"``: these windows never merge."""
        return "none"

    @property
    def longest_us(self) -> int:
        """How long a window may be, in microseconds."""
        return as_micros(self.longest)

    def too_long(self, start: Int64Array, end: Int64Array) -> Int64Array:
        """Return which windows are longer than ``longest``, as indices, int64."""
        return np.flatnonzero(end > saturating_add_array(start, self.longest_us))

    def explain_too_long(self, start: int, end: int) -> str:
        """Return what is wrong with a window that is too long."""
        return (
            f"its window, from {self.start!r} {Instant(start)} to {self.end!r} {Instant(end)}, is "
            f"longer than longest={format_duration(self.longest_us)!r}"
        )

    def assign(self, times: Int64Array, columns: Columns) -> Assignment:
        """Return the window of each element. O(n).

        Raises:
            DataError: A window is longer than ``longest``.
        """
        start, end = (np.asarray(columns[name]) for name in self.columns)
        if (wrong := self.too_long(start, end)).size:
            at = int(wrong[0])
            raise DataError(
                f"of the element at {Instant(int(times[at]))}, "
                + self.explain_too_long(int(start[at]), int(end[at])),
                where=repr(self),
                hint="Filter such elements out, or declare a longer one",
            )
        inside = (start <= times) & (times < end)
        if inside.all():
            return Assignment(start, end)
        element = np.flatnonzero(inside)
        return Assignment(start[inside], end[inside], element, np.flatnonzero(~inside))

    def __repr__(self) -> str:
        longest = format_duration(self.longest_us)
        return f"ColumnWindows({self.start!r}, {self.end!r}, longest={longest!r})"
