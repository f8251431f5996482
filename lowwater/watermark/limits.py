"""Limits on event time: elements too far in the future, and sources too far ahead of others."""

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
"""The reason in the dead letters of such elements."""


def too_far_ahead(times: Int64Array, clock: int | Int64Array, max_ahead_us: int) -> Mask:
    """Return which event times are more than ``max_ahead_us`` ahead of the clock. O(n).

    A single such element, say of a device with a wrong clock, would advance the watermark so far
    that all later elements are late. While the clock is at the start of time it is unknown, and no
    element is too far ahead.

    Args:
        times: Event times, int64 microseconds, shape (n,).
        clock: The clock at arrival, int microseconds; or int64, shape (n,), for each element.
        max_ahead_us: The allowed distance, microseconds, zero or more; inclusive.

    >>> too_far_ahead(np.array([90, 110, 111]), 100, 10).tolist()
    [False, False, True]
    """
    if isinstance(clock, int):
        if clock == START_OF_TIME:
            return np.zeros(times.shape, dtype=np.bool_)
        return times > saturating_add(clock, max_ahead_us)
    far: Mask = times > saturating_add_array(clock, max_ahead_us)
    return far & (clock != START_OF_TIME)


def which_may_read(watermarks: Sequence[int | None], max_skew_us: int | None) -> list[int]:
    """Return the indices of the sources that may be read now. O(sources).

    A source may be read while its watermark is at most ``max_skew_us`` ahead of the slowest one,
    which bounds what a join must buffer. At least one source may be read unless all have ended. A
    source without a watermark yet (at the start of time) makes all others wait.

    Args:
        watermarks: Each source's watermark, int microseconds. ``None``: the source is idle; it
            holds up nobody and may be polled at any time. The end of time: it has ended.
        max_skew_us: How far ahead a source may be, microseconds, zero or more; ``None``: any
            distance.

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
