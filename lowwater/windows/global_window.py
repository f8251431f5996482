"""The global window (S-W4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from lowwater.time import LAST_EVENT_TIME, START_OF_TIME, Int64Array
from lowwater.windows._base import Assignment, Columns, MergeScope


@final
@dataclass(frozen=True, slots=True)
class GlobalWindow:
    """One window for all of time (S-W4).

    It ends one day before the end of time, so that allowed lateness of up to a day still fits.

    >>> GlobalWindow()
    GlobalWindow()
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """None: only the event time is read."""
        return ()

    @property
    def merge_scope(self) -> MergeScope:
        """``"none"``: these windows never merge."""
        return "none"

    def assign(self, times: Int64Array, columns: Columns) -> Assignment:
        """Return the one window of each element. O(n)."""
        return Assignment(
            np.full(len(times), START_OF_TIME, dtype=np.int64),
            np.full(len(times), LAST_EVENT_TIME + 1, dtype=np.int64),
        )
