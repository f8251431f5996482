"""What joins of two inputs have in common: the records of both sides, their keys, late ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from lowwater.engine.join.joining import LEFT, RIGHT, Side
from lowwater.engine.join.keyed_records import KeyedRecords
from lowwater.engine.join.pairs import Pairs
from lowwater.engine.join.persistence import StoredJoin
from lowwater.engine.process.output import MAIN, NOTHING, Emitted, ProcessOutput
from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import hash_keys
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.records.steps import TOO_LATE, Bundle, LateBatch
from lowwater.errors import DataError, InternalError
from lowwater.state.arrays import mixed
from lowwater.state.deadlines import Deadlines
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.time import (
    END_OF_TIME,
    Int64Array,
    format_instant,
    saturating_add,
)

_GARBAGE = 1 << 16


@final
@dataclass(frozen=True, slots=True)
class SideBundle:
    """A bundle of one side of a join.

    Args:
        side: The side.
        bundle: Its elements; ``values`` are their columns, without the key's.
    """

    side: Side
    bundle: Bundle


class TwoSided(ABC):
    """The state of an operator with two inputs. All of it is in memory.

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

    is_advancing = False
    is_over = False
    next_deadline = END_OF_TIME
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
        self.watermark = self.output_watermark = watermark
        self.clock = clock
        self.retracts = retracts
        self.keys: KeyDictionary | None = None
        self.sides = (left, right)
        self._pairs = pairs
        self._lateness = lateness_us
        self._signed = signed
        self._stored: StoredJoin | None = None

    @property
    def open_windows(self) -> int:
        """How many records of both sides there are."""
        return len(self.sides[LEFT]) + len(self.sides[RIGHT])

    @property
    def state_rows(self) -> int:
        """The same."""
        return self.open_windows

    @abstractmethod
    def _insert(
        self, side: Side, bundle: Bundle, keys: Int64Array, hashes: Int64Array | None
    ) -> None:
        """Add records, at least one, and emit what that changes."""

    @abstractmethod
    def _retract_rows(self, side: Side, rows: Int64Array) -> None:
        """Emit what changes as some rows, at least one, are taken back: they are met no more."""

    def _facts(self) -> dict[str, int]:
        """Return what is stored beside the records."""
        return {
            "watermark": self.watermark,
            "clock": self.clock,
            "output watermark": self.output_watermark,
        }

    def save(self, batch: Batch) -> None:
        """Add what changed since the last save to a batch of a store. O(changed)."""
        if self._stored is None:
            raise InternalError("keep_in_store was not called")
        self._stored.write(batch, self.keys, self._facts())

    def _keep(self, place: StoredPlace, dues: Sequence[int | None]) -> None:
        self._stored = StoredJoin(self.sides, dues, place, frozenset(self._facts()))

    def _restored(self, store: StateStore) -> dict[str, int] | None:
        """Load the records; return what was stored beside them, ``None`` if nothing was.

        Raises:
            StateError: What is stored is damaged, or of another layout.
        """
        if self._stored is None:
            raise InternalError("keep_in_store was not called")
        facts = self._stored.load(store)
        if facts is None:
            return None
        self.keys = self._stored.keys.keys
        self.watermark, self.clock = facts["watermark"], facts["clock"]
        self.output_watermark = facts["output watermark"]
        return facts

    def _take(self, side: Side, bundle: Bundle) -> LateBatch | None:
        """Take a bundle; return what of it is late.

        Raises:
            DataError: A retraction came of a record that never did.
        """
        late, bundle = self._without_late(bundle)
        if not len(bundle):
            return late
        if self.keys is None:
            self.keys = KeyDictionary(len(bundle.keys))
        keys = self.keys.encode(bundle.keys)
        hashes = _hashes(bundle) if self._signed else None
        signs = bundle.signs
        if hashes is None or signs is None or (signs > 0).all():
            self._insert(side, bundle, keys, hashes)
            return late
        # First what retracts records that are here, so that what replaces them comes after; then
        # what retracts records of this bundle.
        back, new = np.flatnonzero(signs < 0), np.flatnonzero(signs > 0)
        back = self._retract(side, bundle, keys, hashes, back)
        if new.size:
            self._insert(side, bundle.take(new), keys[new], hashes[new])
        back = self._retract(side, bundle, keys, hashes, back)
        if back.size:
            raise _unknown(bundle, back)
        return late

    def _without_late(self, bundle: Bundle) -> tuple[LateBatch | None, Bundle]:
        late = bundle.times < saturating_add(self.watermark, -self._lateness)
        if not late.any():
            return None, bundle
        element = np.flatnonzero(late)
        none = np.zeros(len(element), dtype=np.int64)
        reason = np.full(len(element), TOO_LATE, dtype=np.uint8)
        dropped = LateBatch(element, none, none, reason, self.watermark)
        return dropped, bundle.take(np.flatnonzero(~late))

    def _retract(
        self,
        side: Side,
        bundle: Bundle,
        keys: Int64Array,
        hashes: Int64Array,
        chosen: Int64Array,
    ) -> Int64Array:
        """Take records back; return the places of those that are not here."""
        own = self.sides[side]
        found = own.equal_rows(keys[chosen], bundle.times[chosen], hashes[chosen])
        rows = found[found >= 0]
        if rows.size:
            own.remove(rows)
            self._retract_rows(side, rows)
        return chosen[found < 0]

    def _emitted(
        self, late: LateBatch | None, *queues: tuple[Deadlines, Deadlines]
    ) -> ProcessOutput:
        """Collect what was emitted, and free what is removed.

        Args:
            late: What of the bundle is late.
            queues: Further queues of the rows of both sides.
        """
        outputs: dict[str, Emitted] = {}
        if self._pairs and self.keys is not None:
            outputs[MAIN] = self._pairs.take(
                self.keys, signed=self.retracts, at_left=self.pairs_at_left
            )
        for number, side in enumerate(self.sides):
            side.release_removed()
            side.tidy(*(both[number] for both in queues))
        self._forget_keys()
        return ProcessOutput(outputs, late) if outputs or late is not None else NOTHING

    def _forget_keys(self) -> None:
        """Recycle the ids of keys without records, once most have none. Amortised."""
        if self.keys is None or len(self.keys) <= 2 * self.state_rows + _GARBAGE:
            return
        every = np.arange(self.keys.capacity)
        kept = self.sides[LEFT].has_rows(every) | self.sides[RIGHT].has_rows(every)
        if self._stored is not None:
            self._stored.keys.forget(kept)
        self.keys.retain(kept)

    def _check(self) -> None:
        """Assert what must hold between the sides. O(records)."""
        for side in self.sides:
            side._check()


def before(watermark: int, horizon: int) -> int:
    """Return the last time whose horizon a watermark has passed."""
    if watermark == END_OF_TIME:
        return END_OF_TIME
    return saturating_add(saturating_add(watermark, -horizon), -1)


def _unknown(bundle: Bundle, places: Int64Array) -> DataError:
    at = places[:1]
    record = {name: column.take(at).to_list()[0] for name, column in bundle.values.items()}
    key = tuple(column.take(at).to_list()[0] for column in bundle.keys)
    return DataError(
        f"a record is retracted that never came: key {key[0] if len(key) == 1 else key!r}, "
        f"time {format_instant(int(bundle.times[at[0]]))}, {record!r}",
        where="join",
        hint="Whatever retracts must have emitted the same record with the same time before",
    )


def _hashes(bundle: Bundle) -> Int64Array:
    """Return a hash of each record, int64: a null is like a column that is not there."""
    total = np.zeros(len(bundle), dtype=np.uint64)
    for name, column in bundle.values.items():
        salt = hash_keys([Column.of_objects([name])])
        hashes = hash_keys([column])
        hashes = mixed([hashes.view(np.int64), np.full(len(bundle), salt.view(np.int64)[0])])
        if column.valid is not None:
            hashes = np.where(column.valid, hashes, np.uint64(0))
        total += hashes
    return total.view(np.int64)
