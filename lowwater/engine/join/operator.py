"""The operator of a join of two streams by time, over bundles of columns (J-1 to J-6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, assert_never, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.join.joining import LEFT, RIGHT, Joining, Side
from lowwater.engine.join.persistence import StoredJoin
from lowwater.engine.join.side import JoinSide
from lowwater.engine.process.output import MAIN, NOTHING, Emitted, ProcessOutput
from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import hash_keys
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.records.steps import (
    Bundle,
    ClockAdvance,
    EndOfInput,
    LateBatch,
    WatermarkAdvance,
    without_late,
)
from lowwater.errors import DataError, InternalError
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.time import (
    END_OF_TIME,
    START_OF_TIME,
    Int64Array,
    format_instant,
    saturating_add,
    saturating_add_array,
)
from lowwater.watermark import Hold

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


JoinInput: TypeAlias = SideBundle | WatermarkAdvance | ClockAdvance | EndOfInput
Types: TypeAlias = Mapping[str, pa.DataType | None]


@final
@dataclass(frozen=True, slots=True)
class JoinedColumns:
    """The columns of both sides, and what they are called in the output.

    Args:
        left, right: The columns of each side without the keys, as far as they are known before any
            record has come, with their types if these are.
        keys: The names of the keys in the output.
        suffixes: What is appended to a name that both sides have, on the left and on the right.
    """

    left: Types
    right: Types
    keys: tuple[str, ...]
    suffixes: tuple[str, str] = ("", "_right")

    def names(
        self, left: Sequence[str], right: Sequence[str]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return the name in the output of each column of the left and of the right side."""
        both = {*left} & {*right}
        before, behind = self.suffixes
        of_left = {name: name + before if name in both else name for name in left}
        clash = both | {*self.keys}
        of_right = {name: name + behind if name in clash else name for name in right}
        return of_left, of_right


@final
class JoinOperator:
    """Joins two streams by key and by their distance in event time.

    A step does no I/O, reads no clock and starts no thread. All state is in memory; with
    :meth:`keep_in_store` its changes can be saved.

    Args:
        joining: The rules.
        columns: The columns and their names.
        signed: Whether an input may contain retractions (S-C1).
        watermark: Input watermark to begin with, int microseconds.
        clock: Clock to begin with, int microseconds.
    """

    is_advancing = False
    is_over = False
    next_deadline = END_OF_TIME

    def __init__(
        self,
        joining: Joining,
        columns: JoinedColumns,
        *,
        signed: bool = False,
        watermark: int = START_OF_TIME,
        clock: int = START_OF_TIME,
    ) -> None:
        self.joining = joining
        self.watermark = self.output_watermark = watermark
        self.clock = clock
        self._columns = columns
        self._signed = signed
        self.retracts = signed or joining.retracts
        self.keys: KeyDictionary | None = None
        self.sides = (
            JoinSide(columns.left, counted=joining.waits(LEFT), signed=signed),
            JoinSide(columns.right, counted=joining.waits(RIGHT), signed=signed),
        )
        self._pairs: list[tuple[Int64Array, Int64Array, int]] = []
        self._stored: StoredJoin | None = None

    @property
    def open_windows(self) -> int:
        """How many records of both sides there are."""
        return len(self.sides[LEFT]) + len(self.sides[RIGHT])

    @property
    def state_rows(self) -> int:
        """The same."""
        return self.open_windows

    def hold(self) -> Hold | None:
        """Return what holds the output watermark below the input's, if anything."""
        at, owner = self._held()
        if owner is None:
            return None
        rows = owner.table.live()
        rows = rows[self._is_waiting(owner, owner.table["start"][rows], rows)]
        row = rows[[int(owner.table["start"][rows].argmin())]]
        key = tuple(column.to_list(exact=True)[0] for column in self._keys_of(row, owner))
        shown = key[0] if len(key) == 1 else key
        side = "left" if owner is self.sides[LEFT] else "right"
        return Hold(at, f"key {shown!r}, a {side} record of {format_instant(at)} without a partner")

    def step(self, step: JoinInput) -> ProcessOutput:
        """Process one input and return its output (S-O1).

        Costs O(records log records of a key + pairs).

        Raises:
            DataError: A retraction came of a record that never did.
        """
        match step:
            case SideBundle(side=side, bundle=bundle):
                return self._take(side, bundle)
            case WatermarkAdvance(to=to):
                return self._advance(int(to))
            case EndOfInput():
                return self._advance(END_OF_TIME)
            case ClockAdvance(to=to):
                self.clock = max(self.clock, int(to))
                return NOTHING
            case _:
                assert_never(step)

    def keep_in_store(self, place: StoredPlace) -> None:
        """Track changes, so that :meth:`save` can write them; call it before the first step."""
        self._stored = StoredJoin(self.joining, self.sides, place)

    def save(self, batch: Batch) -> None:
        """Add what changed since the last save to a batch of a store. O(changed)."""
        if self._stored is None:
            raise InternalError("keep_in_store was not called")
        facts = {
            "watermark": self.watermark,
            "clock": self.clock,
            "output watermark": self.output_watermark,
        }
        self._stored.write(batch, self.keys, facts)

    def restore(self, store: StateStore) -> bool:
        """Load what was saved in a store, before the first step; return whether there was any.

        Raises:
            StateError: What is stored is damaged, or of another layout.
        """
        if self._stored is None:
            raise InternalError("keep_in_store was not called")
        facts = self._stored.load(store)
        if facts is None:
            return False
        self.keys = self._stored.keys.keys
        self.watermark, self.clock = facts["watermark"], facts["clock"]
        self.output_watermark = facts["output watermark"]
        for side in self.sides:
            side.rebuild()
        return True

    def _take(self, side: Side, bundle: Bundle) -> ProcessOutput:
        lowest = saturating_add(self.watermark, -self.joining.lateness_us)
        late, timely = without_late(bundle, lowest, self.watermark)
        if timely is not None:
            bundle = bundle.take(timely)
        if len(bundle):
            if self.keys is None:
                self.keys = KeyDictionary(len(bundle.keys))
            keys = self.keys.encode(bundle.keys)
            hashes = _hashes(bundle) if self._signed else None
            signs = bundle.signs
            every = np.arange(len(bundle), dtype=np.int64)
            if signs is None or (signs > 0).all():
                self._insert(side, bundle, keys, hashes, every)
            else:
                assert hashes is not None
                back = every[signs < 0]
                # First what retracts records that are here, so that what replaces them comes
                # after; then what retracts records of this bundle.
                back = self._retract(side, bundle, keys, hashes, back)
                self._insert(side, bundle, keys, hashes, every[signs > 0])
                back = self._retract(side, bundle, keys, hashes, back)
                if back.size:
                    raise self._unknown(bundle, back)
        return self._done(late)

    def _insert(
        self,
        side: Side,
        bundle: Bundle,
        keys: Int64Array,
        hashes: Int64Array | None,
        chosen: Int64Array,
    ) -> None:
        """Add records, and join them with those of the other side that are here."""
        if len(chosen) < len(bundle):
            bundle, keys = bundle.take(chosen), keys[chosen]
            hashes = None if hashes is None else hashes[chosen]
        if not len(bundle):
            return
        own = self.sides[side]
        rows = own.insert(keys, bundle.times, bundle.values, hashes)
        self._pair(side, rows, keys, bundle.times, 1)
        if own.counted:
            if self.joining.unmatched != "final" or self.joining.how == "semi":
                own.dues.push(bundle.times, rows)
                self._settle(side, rows)
            waits = rows if self.retracts else rows[own.table["matches"][rows] == 0]
            own.waiting.push(own.table["start"][waits], waits)

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
            here = chosen[found >= 0]
            if own.counted:
                self._emit_alone(side, rows[own.table["shown"][rows]], -1)
                own.table["shown"][rows] = False
            self._pair(side, rows, keys[here], bundle.times[here], -1)
            own.remove(rows)
        return chosen[found < 0]

    def _pair(
        self, side: Side, rows: Int64Array, keys: Int64Array, times: Int64Array, sign: int
    ) -> None:
        """Emit or retract the pairs of some rows, and count them on either side."""
        joining = self.joining
        own, other = self.sides[side], self.sides[1 - side]
        low, high = joining.low_us, joining.high_us
        if side == RIGHT:
            low, high = -high, -low
        found, which = other.find(
            keys, saturating_add_array(times, low), saturating_add_array(times, high)
        )
        if not found.size:
            return
        mine = rows[which]
        if joining.emits_pairs:
            self._emit(side, mine, found, sign)
        if own.counted:
            own.count(mine, sign)
        if other.counted:
            self._settle(RIGHT if side == LEFT else LEFT, other.count(found, sign))

    def _settle(self, side: Side, rows: Int64Array) -> None:
        """Have rows stand in the output by themselves, or no longer, as their partners demand."""
        joining = self.joining
        if joining.how != "semi" and joining.unmatched == "final":
            return
        table = self.sides[side].table
        matched = table["matches"][rows] > 0
        if joining.how == "semi":
            wanted = matched
        elif joining.unmatched == "early":
            wanted = ~matched
        else:
            passed = saturating_add(self.watermark, -joining.horizon_us(side))
            wanted = ~matched & (table["start"][rows] < passed)
        shown = table["shown"][rows]
        changed = shown != wanted
        if changed.any():
            self._emit_alone(side, rows[shown & ~wanted], -1)
            self._emit_alone(side, rows[wanted & ~shown], 1)
            table["shown"][rows] = wanted
            self.sides[side].touch(rows[changed])

    def _advance(self, to: int) -> ProcessOutput:
        if to <= self.watermark:
            return NOTHING
        self.watermark = to
        joining = self.joining
        released: list[Int64Array] = []
        for side in (LEFT, RIGHT):
            own = self.sides[side]
            horizon = joining.horizon_us(side)
            if joining.is_alone(side) and joining.unmatched == "on_time":
                due = own.take_due(own.dues, _before(to, horizon))
                self._settle(side, due)
            rows = own.take_due(own.releases, _before(to, joining.lateness_us + horizon))
            if joining.is_alone(side) and joining.unmatched == "final":
                self._emit_alone(side, rows[own.table["matches"][rows] == 0], 1)
            released.append(rows)
        for one, rows in zip(self.sides, released, strict=True):
            one.remove(rows)
        return self._done(None)

    def _emit(self, side: Side, own: Int64Array, other: Int64Array, sign: int) -> None:
        left, right = (own, other) if side == LEFT else (other, own)
        self._pairs.append((left, right, sign))

    def _emit_alone(self, side: Side, rows: Int64Array, sign: int) -> None:
        if rows.size:
            self._emit(side, rows, np.full(len(rows), -1, dtype=np.int64), sign)

    def _done(self, late: LateBatch | None) -> ProcessOutput:
        """Collect what was emitted, free what is removed, and advance the output watermark."""
        outputs: dict[str, Emitted] = {}
        if self._pairs:
            outputs[MAIN] = self._emitted()
        for side in self.sides:
            side.release_removed()
            side.tidy()
        self.output_watermark = max(self.output_watermark, self._held()[0])
        self._forget_keys()
        return ProcessOutput(outputs, late) if outputs or late is not None else NOTHING

    def _emitted(self) -> Emitted:
        parts, self._pairs = self._pairs, []
        left = np.concatenate([part[0] for part in parts])
        right = np.concatenate([part[1] for part in parts])
        signs = np.repeat(
            np.array([part[2] for part in parts], dtype=np.int8), [len(part[0]) for part in parts]
        )
        by_left, by_right = self.sides
        no_left, no_right = left < 0, right < 0
        left_times = np.where(no_left, START_OF_TIME, by_left.table["start"][left])
        right_times = np.where(no_right, START_OF_TIME, by_right.table["start"][right])
        keys = np.where(no_left, by_right.table["key"][right], by_left.table["key"][left])
        if self.keys is None:
            raise InternalError("a pair was found before any key was seen")
        values = self._values(left, right)
        return Emitted(
            np.maximum(left_times, right_times),
            self.keys.decode(keys),
            values,
            signs=signs if self.retracts else None,
        )

    def _values(self, left: Int64Array, right: Int64Array) -> dict[str, Column]:
        by_left, by_right = (side.kept for side in self.sides)
        if not self.joining.emits_pairs:
            return by_left.take(left)
        of_left, of_right = self._columns.names(by_left.names, by_right.names)
        values = {of_left[name]: column for name, column in by_left.take(left).items()}
        values |= {of_right[name]: column for name, column in by_right.take(right).items()}
        return values

    def _held(self) -> tuple[int, JoinSide | None]:
        """Return the lowest time that is held, and the side that holds it, if one does."""
        low, owner = self.watermark, None
        for side in self.sides:
            if side.counted:
                at = side.waiting.first_that(partial(self._is_waiting, side), low)
                if at < low:
                    low, owner = at, side
        return low, owner

    def _is_waiting(self, side: JoinSide, times: Int64Array, rows: Int64Array) -> NDArray[np.bool_]:
        """Return which rows may still come out by themselves (J-4)."""
        waiting = side.is_row(times, rows)
        if not self.retracts:
            waiting &= side.table["matches"][rows] == 0
        return waiting

    def _keys_of(self, rows: Int64Array, side: JoinSide) -> tuple[Column, ...]:
        if self.keys is None:
            raise InternalError("a key was asked for before any was seen")
        return self.keys.decode(side.table["key"][rows])

    def _forget_keys(self) -> None:
        """Recycle the ids of keys without records, once most have none. Amortised."""
        if self.keys is None or len(self.keys) <= 2 * self.state_rows + _GARBAGE:
            return
        every = np.arange(self.keys.capacity)
        kept = self.sides[LEFT].has_rows(every) | self.sides[RIGHT].has_rows(every)
        if self._stored is not None:
            self._stored.keys.forget(kept)
        self.keys.retain(kept)

    def _unknown(self, bundle: Bundle, places: Int64Array) -> DataError:
        at = places[:1]
        record = {name: column.take(at).to_list()[0] for name, column in bundle.values.items()}
        key = tuple(column.take(at).to_list()[0] for column in bundle.keys)
        return DataError(
            f"a record is retracted that never came: key {key[0] if len(key) == 1 else key!r}, "
            f"time {format_instant(int(bundle.times[at[0]]))}, {record!r}",
            where="join",
            hint="Whatever retracts must have emitted the same record with the same time before",
        )

    def _check(self) -> None:
        """Assert what must hold between the sides. O(records)."""
        for side in self.sides:
            side._check()


def _before(watermark: int, horizon: int) -> int:
    """Return the last time whose horizon a watermark has passed."""
    if watermark == END_OF_TIME:
        return END_OF_TIME
    return saturating_add(saturating_add(watermark, -horizon), -1)


def _hashes(bundle: Bundle) -> Int64Array:
    """Return a hash of each record, whatever order its columns come in, int64."""
    columns = [bundle.values[name] for name in sorted(bundle.values)]
    if not columns:
        return np.zeros(len(bundle), dtype=np.int64)
    return hash_keys(columns).view(np.int64)
