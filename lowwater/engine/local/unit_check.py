"""Checks whether event times that are plain numbers look like another unit."""

from __future__ import annotations

from typing import final

import numpy as np

from lowwater.engine.local.stage_input import StageBundle
from lowwater.engine.records.admit_times import TimeUnit, are_numbers
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.problems import JUDGED
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
    and those after the year 9999 are not.

    Args:
        column: The column of event times.
        where: The name of the source.
        unit: The unit that the user named, if any.
    """

    def __init__(self, column: str, where: str, unit: TimeUnit | None) -> None:
        self._column = column
        self._where = where
        self._unit = unit
        self._is_open = unit not in ("us", "ns")  # these are never beyond the year 9999 by mistake

    def look_at(self, bundle: StageBundle) -> None:
        """Look at the first event times of a bundle, after the steps. O(1): at most 1,000."""
        times = bundle.bundle.times[:JUDGED]
        if not self._is_open or not len(times):
            return
        low, high = int(times.min()), int(times.max())
        if low == high == 0:
            return  # says nothing about the unit
        self._is_open = False
        column = bundle.records.columns.get(self._column)
        if column is not None and are_numbers(column):
            self._judge(times, low, high)

    def _judge(self, times: Int64Array, low: int, high: int) -> None:
        given = self._unit or "us"
        at = int(times[int(np.argmax(times))])
        number = at * 1_000 // _NANOS[given]
        if low > _YEAR_9999_US:
            unit = _coarsest(number)
        elif self._unit is None and low > -_EARLY_US and high < _EARLY_US:
            unit = "s" if high < 10_000_000_000 else "ms"
        else:
            return
        named = "" if self._column.startswith(HIDDEN) else f" {self._column!r}"
        if self._unit is None:
            what = f"{format_instant(at)}: plain numbers are microseconds"
            otherwise = ', or unit="us" if this is meant'
        else:
            what, otherwise = f'after the year 9999 with unit="{given}"', ""
        warn(
            UnitWarning,
            f"the event time{named} is {number}, which is {what}",
            where=self._where,
            hint=f'Write unit="{unit}" if they are {_NAMES[unit]} since 1970{otherwise}',
        )


def _coarsest(number: int) -> str:
    """Return the coarsest unit in which a number is a time before the year 9999."""
    units = (unit for unit in _NANOS if number * _NANOS[unit] <= _YEAR_9999_US * 1_000)
    return next(units, "ns")
