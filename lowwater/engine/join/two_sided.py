"""What joins of two inputs have in common: late records, retractions, and the pairs they emit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from lowwater.engine.join.pairs import BornPairs, Pairs
from lowwater.engine.keyed.operator import KeyedOperator, record_hashes, unknown_record
from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.keyed.sides import Side
from lowwater.engine.records.stage_output import StageOutput
from lowwater.engine.records.steps import Bundle, LateBatch, without_late
from lowwater.state.deadlines import Deadlines
from lowwater.time import END_OF_TIME, Int64Array, saturating_add


class TwoSided(KeyedOperator):
    """An operator with two inputs that emits pairs of their records.

    Args:
        left: The records of the left side.
        right: Those of the right side.
        pairs: Collects what is emitted.
        lateness_us: How far below the watermark a record may be, in microseconds.
        signed: Whether an input may contain retractions (S-C1).
        retracts: Whether the output may.
        watermark: Input watermark to begin with, int microseconds.
        clock: Clock to begin with, int microseconds.
    """

    pairs_at_left = False

    def __init__(
        self,
        left: KeyedRecords,
        right: KeyedRecords,
        pairs: Pairs,
        *,
        lateness_us: int,
        signed: bool,
        retracts: bool,
        watermark: int,
        clock: int,
    ) -> None:
        super().__init__(
            (left, right), signed=signed, retracts=retracts, watermark=watermark, clock=clock
        )
        self._pairs = pairs
        self._lateness = lateness_us

    def report_pairs(self) -> None:
        """Record which records pairs consist of, for :meth:`reported_pairs` and traces."""
        self._pairs.report()

    def reported_pairs(self) -> list[BornPairs]:
        """Return which records the pairs consist of that were emitted since the last time."""
        return self._pairs.reported()

    @abstractmethod
    def _insert(
        self, side: Side, bundle: Bundle, keys: Int64Array, hashes: Int64Array | None
    ) -> None:
        """Add records, at least one, and emit what that changes."""

    @abstractmethod
    def _retract_rows(self, side: Side, rows: Int64Array) -> None:
        """Emit what changes as some rows, at least one, are taken back: they are met no more."""

    def _take_timely(self, side: Side, bundle: Bundle) -> LateBatch | None:
        """Process a bundle; return its late elements.

        Raises:
            DataError: A retraction came of a record that never did.
        """
        lowest = saturating_add(self.watermark, -self._lateness)
        late, timely = without_late(bundle, lowest, self.watermark)
        if timely is not None:
            bundle = bundle.take(timely)
        if not len(bundle):
            return late
        _, keys = self._encode(bundle)
        hashes = record_hashes(bundle) if self._signed else None
        signs, born = bundle.signs, self.sides[side].births
        if hashes is None or signs is None or (signs > 0).all():
            self._insert(side, bundle, keys, hashes)
            self._kept(side, self.sides[side].births - born)
            return late
        # First what retracts records that are here, so that what replaces them comes after; then
        # what retracts records of this bundle.
        back, new = np.flatnonzero(signs < 0), np.flatnonzero(signs > 0)
        back = self._retract(side, bundle, keys, hashes, back)
        if new.size:
            self._insert(side, bundle.take(new), keys[new], hashes[new])
        back = self._retract(side, bundle, keys, hashes, back)
        if back.size:
            raise unknown_record(bundle, back, "join")
        self._kept(side, self.sides[side].births - born)
        return late

    def _kept(self, side: Side, count: int) -> None:
        """Count records that a side keeps from now on (S-B2)."""
        self.admitted += count

    def _retract(
        self,
        side: Side,
        bundle: Bundle,
        keys: Int64Array,
        hashes: Int64Array,
        chosen: Int64Array,
    ) -> Int64Array:
        """Retract records; return the places of those that are not here."""
        own = self.sides[side]
        found = own.equal_rows(keys[chosen], bundle.times[chosen], hashes[chosen])
        rows = found[found >= 0]
        if rows.size:
            own.remove(rows)
            self.admitted += len(rows)
            self._retract_rows(side, rows)
        return chosen[found < 0]

    def _emitted(self, late: LateBatch | None, *queues: Sequence[Deadlines]) -> StageOutput:
        """Collect what was emitted, and free what is removed.

        Args:
            late: What of the bundle is late.
            queues: Further queues of the rows of both sides.
        """
        emitted = None
        if self._pairs and self.keys is not None:
            emitted = self._pairs.take(self.keys, signed=self.retracts, at_left=self.pairs_at_left)
        return self._finish(emitted, late, queues)


def before(watermark: int, horizon: int) -> int:
    """Return the last time whose horizon a watermark has passed."""
    if watermark == END_OF_TIME:
        return END_OF_TIME
    return saturating_add(saturating_add(watermark, -horizon), -1)
