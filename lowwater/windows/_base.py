"""The window value, and the protocols that every window function implements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lowwater.errors import InvalidArgument, describe
from lowwater.time import DurationLike, Instant, Int64Array, duration, format_instant

MergeScope: TypeAlias = Literal["none", "overlapping", "key"]
"""Which active windows of a key a new window may merge with: none, overlapping ones, or any."""

MOST_WINDOWS = 10_000
"""How many windows an element may be in (S-W2, S-W6).

Each (element, window) pair takes some hundred bytes while its bundle is processed, so an element in
10,000 windows costs a megabyte. A day that slides by ten seconds (8,640) is within.
"""
MOST_PAIRS = 1 << 27
"""How many (element, window) pairs a bundle may have: more take tens of gigabytes at once."""


@final
@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A half-open interval of event time, ``[start, end)`` (S-T2).

    Args:
        start: First instant inside.
        end: First instant outside; later than ``start``.
    """

    start: Instant
    end: Instant

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise InvalidArgument(
                f"a window must end after it starts: {describe('start', self.start)}, "
                f"{describe('end', self.end)}",
                hint="Give an end later than the start",
            )
        object.__setattr__(self, "start", Instant(self.start))
        object.__setattr__(self, "end", Instant(self.end))

    @property
    def max_timestamp(self) -> Instant:
        """The last instant inside (S-T2)."""
        return Instant(self.end - 1)

    def __contains__(self, at: int) -> bool:
        return self.start <= at < self.end

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the value: Hypothesis would print the expression that a strategy evaluated."""
        printer.text(repr(self))

    def __str__(self) -> str:
        return f"[{format_instant(self.start)}, {format_instant(self.end)})"


@final
@dataclass(frozen=True, slots=True)
class Assignment:
    """The windows assigned to a bundle's elements, as columns (AssignWindows).

    Args:
        start: Start of each window, int64, shape (m,).
        end: End of each window, int64, shape (m,).
        element: Which element each window is for, int64 non-decreasing, shape (m,); ``None`` when
            every element has exactly one window, in order.
        unwindowed: Indices of the elements that fall in no window, int64; ``None`` for none.
    """

    start: Int64Array
    end: Int64Array
    element: Int64Array | None = None
    unwindowed: Int64Array | None = None


@final
@dataclass(frozen=True, slots=True)
class Merged:
    """The result of MergeWindows over the windows of several keys, as columns.

    Args:
        group: For each window given, the group it merges into, int64, shape (n,): groups are
            numbered from 0.
        start: Start of each group's window, int64, shape (groups,).
        end: End of each group's window, int64, shape (groups,).
    """

    group: Int64Array
    start: Int64Array
    end: Int64Array


Columns: TypeAlias = Mapping[str, NDArray[Any]]
Mask: TypeAlias = NDArray[np.bool_]


@runtime_checkable
class WindowFunction(Protocol):
    """AssignWindows: a hashable value that assigns elements to windows.

    ``columns`` names the columns that :meth:`assign` reads in addition to the event time. A
    function whose ``merge_scope`` is not ``"none"`` is also a :class:`MergingWindowFunction`.
    """

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def merge_scope(self) -> MergeScope: ...

    def assign(self, times: Int64Array, columns: Columns, /) -> Assignment:
        """Return the windows of elements at ``times`` (int64, shape (n,))."""
        ...


@runtime_checkable
class SlicedWindowFunction(WindowFunction, Protocol):
    """AssignWindows by event time alone, where stretches of time, *slices*, share their windows."""

    @property
    def slice_us(self) -> int: ...

    def slice_starts(self, times: Int64Array, /) -> Int64Array | None:
        """Return the first instant of each element's slice, int64, shape (n,); or ``None``."""
        ...


@runtime_checkable
class NestedWindowFunction(WindowFunction, Protocol):
    """AssignWindows by event time alone, where windows with one start contain each other.

    An element of one of them is in all longer ones. Those of different starts do not overlap.
    """

    def shortest(self, times: Int64Array, /) -> Assignment:
        """Return the shortest window of each element: the first of those of ``assign``."""
        ...

    def ends(self, start: int, /) -> Int64Array:
        """Return the ends of all windows with a start, rising, int64."""
        ...


@runtime_checkable
class MergingWindowFunction(WindowFunction, Protocol):
    """AssignWindows with MergeWindows: merges the windows of a key into fewer, larger ones."""

    def merge(self, keys: Int64Array, start: Int64Array, end: Int64Array, /) -> Merged:
        """Return how the windows of each key merge.

        Args:
            keys: Key of each window, int64, shape (n,), sorted.
            start: Start of each window, int64, sorted within a key (ties by end).
            end: End of each window, int64.
        """
        ...


def positive_duration(value: DurationLike, name: str) -> int:
    """Convert a duration to microseconds; raise ``InvalidArgument`` unless it is above zero."""
    micros = duration(value, name=name)
    if micros <= 0:
        raise InvalidArgument(
            f"{describe(name, value)} must be longer than zero", hint='Use, say, "1m"'
        )
    return micros
