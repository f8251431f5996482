"""A guard against event times that are too far in the future to be true."""

from __future__ import annotations

import numpy as np

from lowwater.time import START_OF_TIME, Int64Array, saturating_add, saturating_add_array
from lowwater.watermark.observed import Mask

TOO_FAR_AHEAD = "too_far_ahead"
"""The reason of such dead letters."""


def too_far_ahead(times: Int64Array, clock: int | Int64Array, max_ahead_us: int) -> Mask:
    """Return which event times lie more than ``max_ahead_us`` beyond the clock. O(n).

    One such element would move the watermark to where it is, and all that came after it would be
    late. While the clock stands at the start of time it says nothing, and no element is too far.

    Args:
        times: Event times, int64 microseconds, shape (n,).
        clock: The clock when they came, int microseconds; or int64, shape (n,), for each.
        max_ahead_us: How far ahead of it they may be, microseconds, zero or more; inclusive.
    """
    if isinstance(clock, int):
        if clock == START_OF_TIME:
            return np.zeros(times.shape, dtype=np.bool_)
        return times > saturating_add(clock, max_ahead_us)
    far: Mask = times > saturating_add_array(clock, max_ahead_us)
    return far & (clock != START_OF_TIME)
