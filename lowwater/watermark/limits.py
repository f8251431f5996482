"""A guard against event times that are too far in the future to be true."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lowwater.time import (
    END_OF_TIME,
    START_OF_TIME,
    Int64Array,
    saturating_add,
    saturating_add_array,
)
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


def which_may_read(watermarks: Sequence[int | None], max_skew_us: int | None) -> list[int]:
    """Return which of several sources may be read now, by their place, in order. O(sources).

    A source may be read while its watermark is at most ``max_skew_us`` ahead of the one that is
    furthest behind; so one at least may, unless all have ended. One whose watermark is not known
    yet, at the start of time, makes all others wait until it is.

    Args:
        watermarks: Each source's own watermark, int microseconds. ``None``: it is idle, so it
            makes nobody wait and may be asked at any time. The end of time: it has ended, and is
            not read any more.
        max_skew_us: How far ahead one may be, microseconds, zero or more; ``None``: any distance.

    >>> which_may_read([100, 160, 130], 30)
    [0, 2]
    >>> which_may_read([None, 160, 130], 20)
    [0, 2]
    """
    alive = [at for at in watermarks if at is not None and at != END_OF_TIME]
    furthest = None if max_skew_us is None or not alive else min(alive) + max_skew_us
    return [
        place
        for place, at in enumerate(watermarks)
        if at is None or (at != END_OF_TIME and (furthest is None or at <= furthest))
    ]
