"""The range of each row whose result is computed: the rows of its key that count for it (O-1)."""

from __future__ import annotations

from typing import final

import numpy as np

from lowwater.engine.match.key_rows import KeyRows
from lowwater.engine.over.rules import Over
from lowwater.kernels import kernels
from lowwater.time import Int64Array


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
        self.low: Int64Array
        self.high: Int64Array
        reach = rules.reach_us
        key = rows.key_of[places]
        if rules.length_us is not None:
            self.low, self.high = kernels().time_ranges(
                rows.times, rows.begin[key], rows.begin[key + 1], places, rules.length_us
            )
            """The first place of each range, and the place behind it, int64, shape (n,)."""
            return
        if reach is not None:
            every = np.arange(len(rows), dtype=np.int64)
            rows.reach, _ = kernels().time_ranges(
                rows.times, rows.begin[rows.key_of], rows.begin[rows.key_of + 1], every, reach
            )
        assert rules.rows is not None
        self.low = np.maximum(places - (rules.rows - 1), rows.reach[places])
        self.high = places + 1

    def __len__(self) -> int:
        return len(self.places)
