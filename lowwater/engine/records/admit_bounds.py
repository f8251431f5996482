"""Validates instants in columns that bound a record's window, or which records it meets (S-B1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
import pyarrow as pa

from lowwater.engine.records.admit_times import TimeFormat, are_numbers, event_times
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.columns import Column
from lowwater.engine.records.problems import Problems
from lowwater.time import (
    Int64Array,
    format_duration,
    format_instant,
    saturating_add_array,
)
from lowwater.windows import ColumnWindows

LOW, HIGH = HIDDEN + "low", HIDDEN + "high"
"""The columns of instants between which partners are (J-14)."""
_INSTANT = pa.timestamp("us", "UTC")
_Checked: TypeAlias = Callable[[str, Callable[[Column, Problems], Column]], Column]


@final
@dataclass(frozen=True, slots=True)
class PartnerBounds:
    """Between which instants the partners of a record are (J-14).

    Args:
        low: Name of the column of the earliest one, or how much later than the record it is, in
            microseconds.
        high: The same for the latest one.
        longest_us: How far from the record an instant in a column may be, in microseconds.
    """

    low: str | int
    high: str | int
    longest_us: int

    def admit(
        self, times: Int64Array, checked: _Checked, problems: Problems, format: TimeFormat
    ) -> dict[str, Column]:
        """Return both as columns of instants; a bound that is none, or too far, is ``bad_bound``.

        Args:
            times: The event times.
            checked: Returns a column of the records, checked.
            problems: Where to record invalid rows.
            format: How times are written that do not say it themselves.
        """
        found = {}
        for name, bound in ((LOW, self.low), (HIGH, self.high)):
            if isinstance(bound, int):
                found[name] = Column(saturating_add_array(times, bound))
                continue

            def instants(column: Column, problems: Problems, bound: str = bound) -> Column:
                return Column(
                    _instants(column, problems, bound, format, "bad_bound", "it bounds partners")
                )

            found[name] = checked(bound, instants)
            self._note_far(found[name].data, times, bound, problems)
        return found

    def _note_far(
        self, instants: Int64Array, times: Int64Array, name: str, problems: Problems
    ) -> None:
        far = instants > saturating_add_array(times, self.longest_us)
        far |= instants < saturating_add_array(times, -self.longest_us)
        for row in np.flatnonzero(far).tolist():
            detail = (
                f"{name!r}, {format_instant(int(instants[row]))}, is more than "
                f"longest={format_duration(self.longest_us)!r} from the event time "
                f"{format_instant(int(times[row]))}"
            )
            problems.add(row, "bad_bound", detail)


def window_bounds(column: Column, problems: Problems, name: str, format: TimeFormat) -> Column:
    """Convert bounds of windows to int64 microseconds, as event times; others are a ``bad_window``.

    Integers stay integers for a process that reads them, and all others are timestamps.

    Raises:
        InvalidArgument: Values of the column's type cannot be event times.
    """
    times = _instants(
        column, problems, name, format, "bad_window", "it bounds the window of the record"
    )
    kind = column.type
    if kind is not None and pa.types.is_timestamp(kind):
        return Column(times, type=pa.timestamp("us", kind.tz or "UTC"))
    return Column(times, type=None if are_numbers(column) else _INSTANT)


def note_too_long(
    windows: ColumnWindows, start: Column, end: Column, problems: Problems
) -> tuple[Column, Column]:
    """Record the rows whose windows are longer than declared; return bounds that are not."""
    low, high = start.data, end.data
    rows = windows.too_long(low, high)
    if not rows.size:
        return start, end
    for row in rows.tolist():
        problems.add(row, "bad_window", windows.explain_too_long(int(low[row]), int(high[row])))
    high = high.copy()
    high[rows] = low[rows]
    return start, Column(high, type=end.type)


def _instants(
    column: Column, problems: Problems, name: str, format: TimeFormat, reason: str, why: str
) -> Int64Array:
    """Convert a column to int64 microseconds as event times are; others get a reason."""
    found = Problems()
    times = event_times(column, name, found, format)
    for row, (_, detail) in found.found.items():
        problems.add(row, reason, f"{detail}; {why}")
    return times
