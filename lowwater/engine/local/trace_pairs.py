"""The pairs that a join emits, as columns of a trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from lowwater.engine.graph.trace import NOT_KEPT, TracedPair
from lowwater.engine.join.pairs import BornPairs
from lowwater.time import Instant, Int64Array

NO_PARTNER = -1


@final
@dataclass(frozen=True, slots=True)
class PairColumns:
    """What a join emitted in one step.

    Args:
        pairs: The pairs; a record is the number of its element among all that arrived at the stage,
            ``NO_PARTNER`` for none.
        clock: The clock when they were emitted.
        watermark: The stage's input watermark then.
    """

    pairs: BornPairs
    clock: int
    watermark: int


@final
class TracedPairs:
    """Collects pairs, and releases those of which a sample has no record.

    Args:
        limit: With more pairs than this it is worth to look for such ones; ``None``: never.
    """

    def __init__(self, limit: int | None) -> None:
        self._parts: list[tuple[int, PairColumns]] = []
        self._count = 0
        self._thin_at = limit or 0

    def add(self, order: int, pairs: PairColumns) -> None:
        """Add what a join emitted in one step."""
        self._parts.append((order, pairs))
        self._count += len(pairs.pairs.times)

    def thin(self, numbers: Callable[[], Int64Array]) -> None:
        """Release pairs without a kept record if there are many more than at the last time.

        Args:
            numbers: Returns the numbers of the kept elements, ascending.
        """
        if self._count <= self._thin_at:
            return
        kept = numbers()
        parts = ((order, _touching(part, kept)) for order, part in self._parts)
        self._parts = [(order, part) for order, part in parts if len(part.pairs.times)]
        self._count = sum(len(part.pairs.times) for _, part in self._parts)
        self._thin_at = max(self._thin_at, 2 * self._count)

    def of(self, numbers: Int64Array) -> tuple[TracedPair, ...]:
        """Return the pairs of kept elements. O(pairs log elements).

        Args:
            numbers: The numbers of the kept elements, ascending.
        """
        found: list[TracedPair] = []
        for order, part in self._parts:
            touching = _touching(part, numbers)
            pairs = touching.pairs
            clock, watermark = Instant(part.clock), Instant(part.watermark)
            found += [
                TracedPair(left, right, Instant(time), clock, watermark, sign < 0, order)
                for left, right, time, sign in zip(
                    _places(pairs.left, numbers),
                    _places(pairs.right, numbers),
                    pairs.times.tolist(),
                    pairs.signs.tolist(),
                    strict=True,
                )
            ]
        return tuple(found)


def _touching(part: PairColumns, numbers: Int64Array) -> PairColumns:
    """Return the pairs with at least one record among those with such numbers."""
    pairs = part.pairs
    rows = np.flatnonzero(np.isin(pairs.left, numbers) | np.isin(pairs.right, numbers))
    if len(rows) == len(pairs.times):
        return part
    left, right = pairs.left[rows], pairs.right[rows]
    chosen = BornPairs(left, right, pairs.signs[rows], pairs.times[rows])
    return PairColumns(chosen, part.clock, part.watermark)


def _places(records: Int64Array, numbers: Int64Array) -> list[int | None]:
    """Return the index of each record among the kept elements."""
    at = np.searchsorted(numbers, records)
    known = np.append(numbers, NO_PARTNER)[at] == records
    places = np.where(known, at, NOT_KEPT).tolist()
    return [
        None if record == NO_PARTNER else place
        for record, place in zip(records.tolist(), places, strict=True)
    ]
