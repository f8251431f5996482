"""Elements that were dropped from their windows, gathered over a step."""

from __future__ import annotations

from typing import final

import numpy as np

from lowwater.engine.records.steps import UNWINDOWED, LateBatch
from lowwater.engine.window.window_state import Mask
from lowwater.time import Int64Array


@final
class Dropped:
    """The elements of one bundle that were dropped.

    Args:
        watermark: The watermark that they met.
    """

    def __init__(self, watermark: int) -> None:
        self._watermark = watermark
        self._parts: list[tuple[Int64Array, Int64Array, Int64Array, int]] = []

    def add(
        self,
        dropped: Mask,
        reason: int,
        element: Int64Array | None,
        start: Int64Array,
        end: Int64Array,
    ) -> None:
        """Add the (element, window) pairs that a mask marks; ``None`` for elements in order."""
        which = np.flatnonzero(dropped)
        if which.size:
            of = which if element is None else element[which]
            self._parts.append((of, start[which], end[which], reason))

    def add_unwindowed(self, element: Int64Array) -> None:
        """Add elements that no window takes."""
        nothing = np.zeros(len(element), dtype=np.int64)
        self._parts.append((element, nothing, nothing, UNWINDOWED))

    def batch(self) -> LateBatch | None:
        """Return them in order of element, then window."""
        if not self._parts:
            return None
        element, start, end = (
            np.concatenate([part[at] for part in self._parts]) for at in range(3)
        )
        reason = np.concatenate(
            [np.full(len(part[0]), part[3], dtype=np.uint8) for part in self._parts]
        )
        order = np.lexsort((end, start, element))
        return LateBatch(element[order], start[order], end[order], reason[order], self._watermark)
