"""Checks whether event times that are plain numbers look like another unit."""

from __future__ import annotations

from typing import final

import numpy as np

from lowwater.engine.records.admit_times import TimeUnit, are_numbers
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.problems import JUDGED
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.errors import UnitWarning, warn
from lowwater.time import DAY_US, Int64Array, format_instant

_EARLY_US = 31 * DAY_US  # milliseconds of the present, taken as microseconds, are on the 20th
_YEAR_9999_US = 253_402_300_800_000_000  # nanoseconds of the present are far beyond
_NANOS = {"s": 10**9, "ms": 10**6, "us": 1_000, "ns": 1}
_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


@final
class UnitCheck:
    """Warns of a source whose event times are plain numbers that look like another unit; once.

    Without ``unit=`` they are microseconds, so that times in January 1970 or after the year 9999
    are likely meant in another unit. If the user named the unit, early times are taken as meant,
    and those after the year 9999 are not. ``is_open`` says whether it is still to be found out.

    Args:
        column: The column of event times.
        where: The name of the source.
        unit: The unit that the user named, if any.
    """

    def __init__(self, column: str, where: str, unit: TimeUnit | None) -> None:
        self._column = column
        self._where = where
        self._unit = unit
        # Times in these units are never beyond the year 9999 by mistake.
        self.is_open = unit not in ("us", "ns")

    def look_at(self, bundle: StageBundle) -> None:
        """Look at the first event times of a bundle, after the steps. O(1): at most 1,000."""
        times = bundle.bundle.times[:JUDGED]
        if not self.is_open or not times.any():
            return  # zeros say nothing about the unit
        self.is_open = False
        column = bundle.records.columns.get(self._column)
        if column is not None and are_numbers(column):
            warn_of_unit(times, self._column, self._where, self._unit)


def warn_of_unit(times: Int64Array, column: str, where: str, given: TimeUnit | None = None) -> None:
    """Warn if event times that were plain numbers look like another unit.

    Args:
        times: A few of them, int64 microseconds; not empty.
        column: The column that they are from.
        where: The name of the source.
        given: The unit that the user named, if any.
    """
    low, high = int(times.min()), int(times.max())
    at = int(times[int(np.argmax(times))])
    number = at * 1_000 // _NANOS[given or "us"]
    if low > _YEAR_9999_US:
        unit: str | None = _coarsest(number)
    elif given is None and low > -_EARLY_US and high < _EARLY_US:
        unit = _seconds_or_millis(high)
    else:
        return
    if given is None:
        what = f"{format_instant(at)}: plain numbers are microseconds"
        otherwise = ', or unit="us" if this is meant'
    else:
        what, otherwise = f'after the year 9999 with unit="{given}"', ""
    named = "" if column.startswith(HIDDEN) else f" {column!r}"
    warn(
        UnitWarning,
        f"the event time{named} is {number}, which is {what}",
        where=where,
        hint='Write unit="us" if this is meant, or name the unit, as in unit="s" for seconds'
        if unit is None
        else f'Write unit="{unit}" if they are {_NAMES[unit]} since 1970{otherwise}',
    )


def _seconds_or_millis(latest: int) -> str | None:
    """Return the unit in which a number is a likely date; ``None`` between the two.

    Such a number is a year after 2286 in seconds and before 1973 in milliseconds, so it most likely
    counts microseconds from 0.
    """
    if latest < 10_000_000_000:
        return "s"
    return "ms" if latest >= 100_000_000_000 else None


def _coarsest(number: int) -> str:
    """Return the coarsest unit in which a number is a time before the year 9999."""
    units = (unit for unit in _NANOS if number * _NANOS[unit] <= _YEAR_9999_US * 1_000)
    return next(units, "ns")
