"""Records which elements of a trace make the pairs that a join emits."""

from __future__ import annotations

from typing import final

import numpy as np

from lowwater.engine.graph.operator import Operator
from lowwater.engine.graph.trace import TracedSide
from lowwater.engine.join.pairs import BornPairs
from lowwater.engine.join.two_sided import TwoSided
from lowwater.engine.keyed.operator import SideBundle
from lowwater.engine.keyed.sides import Side
from lowwater.engine.local.recorder import StageRecorder
from lowwater.engine.local.taken_bundles import TakenBundle
from lowwater.engine.local.trace_pairs import NO_PARTNER, PairColumns
from lowwater.time import Int64Array

_NAMES: dict[Side, TracedSide] = {0: "left", 1: "right"}
_UNKNOWN = -2


@final
class PairRecorder:
    """Follows the records of both sides of a join, by their rank of arrival.

    Args:
        operator: The join.
        recorder: Records the stage.
    """

    def __init__(self, operator: Operator, recorder: StageRecorder) -> None:
        assert isinstance(operator, TwoSided), "only a join of streams has rules of pairs"
        self._operator = operator
        self._recorder = recorder
        self._sides = (_Ranks(), _Ranks())
        operator.report_pairs()

    def side_name(self, step: SideBundle) -> TracedSide:
        """Return what a trace calls the side that a bundle comes to."""
        return _NAMES[step.side]

    def births(self, step: SideBundle) -> int:
        """Return how many records have arrived at the side that a bundle comes to."""
        return self._operator.sides[step.side].births

    def took(self, taken: TakenBundle, step: SideBundle, born: int) -> None:
        """Record a bundle that the join has taken, and what it emitted.

        Args:
            taken: The bundle.
            step: The join's step.
            born: How many records had arrived at that side before it.
        """
        first = self._recorder.took(taken)
        is_new = np.ones(len(taken.bundle), dtype=np.bool_)
        if taken.bundle.signs is not None:
            is_new = taken.bundle.signs > 0
        if taken.late is not None:
            is_new[taken.late.element] = False
        self._sides[step.side].add(born, first + np.flatnonzero(is_new))
        self.emitted()

    def emitted(self) -> None:
        """Record what the join emitted since the last call."""
        operator = self._operator
        for pairs in operator.reported_pairs():
            left, right = self._sides[0].elements(pairs.left), self._sides[1].elements(pairs.right)
            # A restored record is not among the elements of this trace.
            known = np.flatnonzero((left != _UNKNOWN) & (right != _UNKNOWN))
            told = BornPairs(left[known], right[known], pairs.signs[known], pairs.times[known])
            self._recorder.paired(PairColumns(told, operator.clock, operator.watermark))


@final
class _Ranks:
    """The number of the element that each record of a side is."""

    def __init__(self) -> None:
        self._first = 0
        self._elements = np.zeros(0, dtype=np.int64)
        self._count = 0

    def add(self, born: int, elements: Int64Array) -> None:
        """Add records that follow each other in rank. Amortised O(records)."""
        if not self._count:
            self._first = born
        stop = born - self._first + len(elements)
        if stop > len(self._elements):
            larger = np.full(max(stop, 2 * len(self._elements)), _UNKNOWN, dtype=np.int64)
            larger[: self._count] = self._elements[: self._count]
            self._elements = larger
        self._elements[stop - len(elements) : stop] = elements
        self._count = stop

    def elements(self, ranks: Int64Array) -> Int64Array:
        """Return the number of each record, ``NO_PARTNER`` for none, ``_UNKNOWN`` if restored."""
        at = ranks - self._first
        known = (at >= 0) & (at < self._count)
        found = np.full(len(ranks), _UNKNOWN, dtype=np.int64)
        found[known] = self._elements[at[known]]
        found[ranks == NO_PARTNER] = NO_PARTNER
        return found
