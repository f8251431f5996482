"""Sums up the records that a run dropped as late: how many, why, and how late they were."""

from __future__ import annotations

from collections import Counter
from typing import final

import numpy as np

from lowwater.engine.local.outcomes import LateElements
from lowwater.engine.records.steps import REASONS
from lowwater.time import START_OF_TIME, Int64Array, rounded_up

_BY_TIME = np.array([reason in ("expired", "too_late") for reason in REASONS])
"""Which reasons a longer lateness answers."""
_BINS_A_DOUBLING = 8
_SHARE = 0.99


@final
class LateTally:
    """Counts late records, and keeps a histogram of how late they were.

    The histogram has eight bins for each doubling, so that it stays small however many there are,
    and tells a lateness to within nine per cent.
    """

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self._bins: Counter[int] = Counter()
        self._options: set[str] = set()

    def add(self, late: LateElements, option: str = "allowed_lateness") -> None:
        """Count late elements, once each, from however many windows it was dropped. O(n log n).

        Args:
            late: Those that a stage dropped.
            option: The argument that says how late its elements may be.
        """
        batch = late.batch
        first = _first_of_each(batch.element)
        reasons = batch.reason[first]
        for reason, count in zip(REASONS, np.bincount(reasons).tolist(), strict=False):
            if count:
                self.reasons[reason] += count
        first = first[_BY_TIME[reasons]]
        if not first.size or batch.watermark <= START_OF_TIME:
            return
        self._options.add(option)
        # Dropped from its window once the watermark has passed the end; without one, the time.
        passed = np.where(batch.windowed, batch.end, late.times)[first]
        needed = np.maximum(float(batch.watermark) - passed.astype(np.float64), 0.0) + 1.0
        bins = np.ceil(np.log2(needed) * _BINS_A_DOUBLING).astype(np.int64)
        for number, count in enumerate(np.bincount(bins).tolist()):
            if count:
                self._bins[number] += count

    def histogram(self) -> list[tuple[int, int]]:
        """Return how many of those that came too late which lateness would have admitted.

        Pairs of a lateness in microseconds, rising, and of how many need no longer one, but longer
        than the pair before.
        """
        return [
            (int(2 ** (number / _BINS_A_DOUBLING)) + 1, self._bins[number])
            for number in sorted(self._bins)
        ]

    def lateness_us(self) -> int | None:
        """Return the lateness that would have admitted 99 % of what came too late, microseconds.

        ``None`` if nothing came too late.
        """
        wanted = _SHARE * self._bins.total()
        so_far = 0
        for number in sorted(self._bins):
            so_far += self._bins[number]
            if so_far >= wanted:
                return int(2 ** (number / _BINS_A_DOUBLING)) + 1
        return None

    def text(self, read_in: str) -> str | None:
        """Return a sentence for the end of a run; ``None`` if nothing was late.

        Args:
            read_in: Where the user reads the records, as a sentence.
        """
        if not self.reasons:
            return None
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in self.reasons.most_common())
        total, lateness, fix = self.reasons.total(), self.lateness_us(), ""
        if lateness is not None:
            which = "these" if total == self._bins.total() else "those that came too late"
            fixes = [f'{option}="{rounded_up(lateness)}"' for option in sorted(self._options)]
            fix = f"; {' and '.join(fixes)} would have admitted 99 % of {which}"
        what = "1 record was" if total == 1 else f"{total:,} records were"
        return f"{what} dropped as late ({reasons}){fix}. {read_in}"


def _first_of_each(element: Int64Array) -> Int64Array:
    """Return the places at which each element is first named; most are named once, in order."""
    if (element[1:] > element[:-1]).all():
        return np.arange(len(element), dtype=np.int64)
    return np.unique(element, return_index=True)[1]
