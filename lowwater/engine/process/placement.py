"""Windows for the elements of a bundle, and lateness: before any merging, as S-O3 has it."""

from __future__ import annotations

from typing import final

import numpy as np

from lowwater.engine.records.steps import EXPIRED, Bundle
from lowwater.engine.window.dropped import Dropped
from lowwater.engine.window.windowing import Windowing
from lowwater.time import START_OF_TIME, Int64Array, saturating_add, saturating_add_array


@final
class Placing:
    """Assigns windows and judges lateness.

    ``gone_until``: windows that end there or before had expired under a shorter lateness.

    Args:
        windowing: The windows and their lateness.
    """

    def __init__(self, windowing: Windowing) -> None:
        self.windowing = windowing
        self.gone_until = START_OF_TIME

    def assign(
        self, bundle: Bundle, watermark: int, late: Dropped
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return (element, start, end) of each element and window that is not expired."""
        windows = self.windowing.windows
        columns = {name: bundle.values[name].data for name in windows.columns}
        assigned = windows.assign(bundle.times, columns)
        element, start, end = assigned.element, assigned.start, assigned.end
        if assigned.unwindowed is not None:
            late.add_unwindowed(assigned.unwindowed)
        if element is None:
            element = np.arange(len(start), dtype=np.int64)
        if watermark == START_OF_TIME or not len(end):
            return element, start, end
        expired = (self.expiry(end) <= watermark) | (end <= self.gone_until)
        if not expired.any():
            return element, start, end
        late.add(expired, EXPIRED, element, start, end)
        kept = ~expired
        return element[kept], start[kept], end[kept]

    def expiry(self, end: Int64Array) -> Int64Array:
        """Return when windows with these ends expire (S-T3)."""
        return saturating_add_array(end, self.windowing.lateness_us)

    def expires(self, end: int) -> int:
        """Return when a window with this end expires (S-T3)."""
        return saturating_add(end, self.windowing.lateness_us)

    def resume(self, lateness: int, watermark: int, gone_until: int) -> None:
        """Go on where another lateness may have held: what is gone stays gone."""
        self.gone_until = gone_until
        if lateness != self.windowing.lateness_us:
            self.gone_until = max(gone_until, saturating_add(watermark, -lateness))
