"""Records which elements of a trace make the pairs that a join emits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import numpy as np

from lowwater.engine.graph.trace import TracedPair, TracedSide
from lowwater.engine.join.joining import Side
from lowwater.engine.join.pairs import BornPairs
from lowwater.engine.join.two_sided import TwoSided
from lowwater.engine.local.recorder import StageRecorder, TakenBundle
from lowwater.time import Instant

_NAMES: dict[Side, TracedSide] = {0: "left", 1: "right"}
_NONE = -1


@final
class PairRecorder:
    """Follows the records of both sides of a join, by their rank of arrival.

    Args:
        operator: The join.
        recorder: Records the stage.
    """

    def __init__(self, operator: TwoSided, recorder: StageRecorder) -> None:
        self._operator = operator
        self._recorder = recorder
        self._elements: tuple[dict[int, int], dict[int, int]] = ({}, {})
        operator.report_pairs()

    def side_name(self, side: Side) -> TracedSide:
        """Return what a trace calls a side."""
        return _NAMES[side]

    def took(self, taken: TakenBundle, side: Side, born: int) -> None:
        """Record a bundle that the join has taken, and what it emitted.

        Args:
            taken: The bundle.
            side: The side that it came to.
            born: How many records had arrived at that side before it.
        """
        first = self._recorder.took(taken)
        is_new = np.ones(len(taken.bundle), dtype=np.bool_)
        if taken.bundle.signs is not None:
            is_new = taken.bundle.signs > 0
        if taken.late is not None:
            is_new[taken.late.element] = False
        elements = (first + np.flatnonzero(is_new)).tolist()
        self._elements[side].update(enumerate(elements, born))
        self.emitted()

    def emitted(self) -> None:
        """Record what the join emitted since the last call."""
        for pairs in self._operator.reported_pairs():
            self._recorder.paired(self._traced(pairs))

    def _traced(self, pairs: BornPairs) -> Iterator[TracedPair]:
        left, right = self._elements
        clock, watermark = Instant(self._operator.clock), Instant(self._operator.watermark)
        for one, other, sign, time in zip(
            pairs.left.tolist(),
            pairs.right.tolist(),
            pairs.signs.tolist(),
            pairs.times.tolist(),
            strict=True,
        ):
            known = (one == _NONE or one in left) and (other == _NONE or other in right)
            if known:  # a restored record is not among the elements of this trace
                yield TracedPair(
                    left.get(one), right.get(other), Instant(time), clock, watermark, sign < 0
                )
