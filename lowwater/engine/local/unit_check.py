"""Checks whether event times that are plain numbers look like another unit."""

from __future__ import annotations

from typing import final

import numpy as np

from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.problems import JUDGED
from lowwater.errors import UnitWarning, warn
from lowwater.time import DAY_US, Int64Array, format_instant

_EARLY_US = 31 * DAY_US  # milliseconds of the present, taken as microseconds, are on the 20th
_YEAR_9999_US = 253_402_300_800_000_000  # nanoseconds of the present are far beyond
_NAMES = {"s": "seconds", "ms": "milliseconds", "ns": "nanoseconds"}


@final
class UnitCheck:
    """Warns of a source whose event times are plain numbers that look like another unit; once.

    Args:
        column: The column of event times.
        where: The name of the source.
        is_open: Whether to check: not if the user named the unit.
    """

    def __init__(self, column: str, where: str, *, is_open: bool) -> None:
        self._column = column
        self._where = where
        self._is_open = is_open

    def look_at(self, times: Int64Array, *, are_numbers: bool) -> None:
        """Look at the first event times of a bundle. O(1): at most 1,000, and once.

        Args:
            times: The event times as they were understood, int64 microseconds.
            are_numbers: Whether they are plain numbers, which have no unit of their own.
        """
        if not self._is_open or not len(times):
            return
        first = times[:JUDGED]
        low, high = int(first.min()), int(first.max())
        if low == high == 0:
            return  # says nothing about the unit
        self._is_open = False
        if not are_numbers:
            return
        if low > -_EARLY_US and high < _EARLY_US:
            unit = "s" if high < 10_000_000_000 else "ms"
        elif low > _YEAR_9999_US:
            unit = "ns"
        else:
            return
        at = int(first[int(np.argmax(first))])
        named = "" if self._column.startswith(HIDDEN) else f" {self._column!r}"
        warn(
            UnitWarning,
            f"the event time{named} is {at}, which is {format_instant(at)}: plain numbers are "
            "microseconds",
            where=self._where,
            hint=f'Write unit="{unit}" if they are {_NAMES[unit]} since 1970, or unit="us" if this '
            "is meant",
        )
