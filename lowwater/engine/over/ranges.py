"""The range of each row whose result is computed: the rows of its key that count for it (O-1)."""

from __future__ import annotations

from typing import final

import numpy as np

from lowwater.engine.match.key_rows import KeyRows
from lowwater.engine.over.rules import Over
from lowwater.kernels import kernels
from lowwater.time import Int64Array, saturating_add_array


@final
class Ranges:
    """Ranges of places among the rows of some keys.

    Args:
        rules: The rules.
        rows: The rows: all that count for the results.
        places: The places of the rows whose results are computed, int64, shape (n,), rising.
    """

    def __init__(self, rules: Over, rows: KeyRows, places: Int64Array) -> None:
        self.rows = rows
        self.places = places
        """The place of each row."""
        reach = rules.reach_us
        if reach is not None and rules.length_us is None:
            rows.reach = self._first_after(np.arange(len(rows)), -reach)
        if rules.length_us is None:
            assert rules.rows is not None
            self.low: Int64Array = np.maximum(places - (rules.rows - 1), rows.reach[places])
            """The first place of each range, int64, shape (n,)."""
            self.high: Int64Array = places + 1
            """The place behind each range, int64, shape (n,)."""
        else:
            self.low = self._first_after(places, -rules.length_us)
            self.high = self._first_after(places, 0)

    def __len__(self) -> int:
        return len(self.places)

    def _first_after(self, places: Int64Array, apart: int) -> Int64Array:
        """Return the first place of each row's key later than so many microseconds from it."""
        rows = self.rows
        key = rows.key_of[places]
        bound = rows.times[places]
        bound = saturating_add_array(bound, apart) if apart else bound
        every = np.arange(len(rows), dtype=np.int64)
        begin = rows.begin[key]
        return begin + kernels().count_below(
            every, begin, rows.counts[key], rows.times, bound, True
        )
