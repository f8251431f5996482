"""The operator of a join of two streams by time, over bundles of columns (J-1 to J-6)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.join.joining import Joining
from lowwater.engine.join.pairs import JoinedColumns, Pairs
from lowwater.engine.join.two_sided import TwoSided, before
from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.keyed.sides import LEFT, RIGHT, Side
from lowwater.engine.keyed.spilled import SpilledKeys
from lowwater.engine.records.admit_bounds import HIGH, LOW
from lowwater.engine.records.stage_output import NOTHING, StageOutput
from lowwater.engine.records.steps import Bundle, LateBatch
from lowwater.kernels import kernels
from lowwater.state.arrays import NONE
from lowwater.state.deadlines import Deadlines
from lowwater.state.store import StateStore
from lowwater.state.table import Field
from lowwater.time import (
    END_OF_TIME,
    START_OF_TIME,
    Int64Array,
    format_instant,
    saturating_add,
    saturating_add_array,
)
from lowwater.watermark import Hold

_FIRST_PORTION = 1_024
_MANY_NEAR = 1 << 22
"""How many candidates of a portion of rows are looked at together, about."""


@final
class JoinOperator(TwoSided):
    """Joins two streams by key and by their distance in event time.

    A step does no I/O, reads no clock and starts no thread.

    Args:
        joining: The rules.
        columns: The columns and their names.
        signed: Whether an input may contain retractions (S-C1).
        watermark: Input watermark to begin with, int microseconds.
        clock: Clock to begin with, int microseconds.
    """

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
        counts = (Field("matches", np.int64), Field("shown", np.bool_, False))
        self._counted = (joining.waits(LEFT), joining.waits(RIGHT))
        self._bounded = joining.within is not None and joining.within.bounds is not None
        bounds = (Field(LOW, np.int64), Field(HIGH, np.int64)) if self._bounded else ()
        of_left = (*bounds, *(counts if self._counted[LEFT] else ()))
        left = KeyedRecords(columns.left, of_left, signed=signed)
        right = KeyedRecords(columns.right, counts if self._counted[RIGHT] else (), signed=signed)
        super().__init__(
            left,
            right,
            Pairs(left, right, columns, with_right=joining.emits_pairs),
            lateness_us=joining.lateness_us,
            signed=signed,
            retracts=signed or joining.retracts,
            watermark=watermark,
            clock=clock,
        )
        # Of each side the rows that may hold the watermark, and those with a horizon before them.
        self._waiting = (Deadlines(), Deadlines())
        self._dues = (Deadlines(), Deadlines())

    def hold(self) -> Hold | None:
        """Return what holds the output watermark below the input's, if anything."""
        at, side = self._held()
        if side is None or self.keys is None:
            return None
        table = self.sides[side].table
        rows = table.live()
        rows = rows[self._is_waiting(side, table["start"][rows], rows)]
        row = rows[[int(table["start"][rows].argmin())]]
        parts = self.keys.decode(table["key"][row])
        key = tuple(column.to_list(exact=True)[0] for column in parts)
        shown = key[0] if len(key) == 1 else key
        which = "left" if side == LEFT else "right"
        what = f"a {which} record of {format_instant(at)} without a partner"
        return Hold(at, f"key {shown!r}, {what}")

    def _gone_by_time(self) -> Sequence[int | None]:
        if not self.joining.holds:
            return (None, None)
        return [self._gone_after(side) for side in (LEFT, RIGHT)]

    def waits(self, side: int, rows: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        which = RIGHT if side else LEFT
        joining, times = self.joining, self.sides[side].table["start"][rows]
        never = np.full(len(rows), END_OF_TIME)
        due = saturating_add_array(times, self._gone_after(which))
        if joining.is_alone(which) and joining.unmatched == "on_time":
            on_time = saturating_add_array(times, joining.horizon_us(which) + 1)
            due = np.where(on_time > self.watermark, np.minimum(due, on_time), due)
        hold = never
        if self._counted[side] and joining.holds:
            hold = np.where(self._is_waiting(which, times, rows), times, never)
        return due, never, hold

    def readmitted(self, side: int, rows: Int64Array) -> None:
        times = self.sides[side].table["start"][rows]
        if self._counted[side] and self.joining.holds:
            self._waiting[side].push(times, rows)
        if self._counted[side] and self.joining.unmatched == "on_time":
            self._dues[side].push(times, rows)

    def load_holder(self, store: StateStore) -> None:
        super().load_holder(store)
        self.output_watermark = max(self.output_watermark, self._lowest_hold())

    def _lowest_hold(self) -> int:
        return self._held()[0]

    def _load_last(self, store: StateStore, spilled: SpilledKeys) -> int | None:
        joining = self.joining
        lateness = joining.lateness_us if joining.unmatched == "final" else 0
        alone = [joining.horizon_us(side) for side in (LEFT, RIGHT) if joining.is_alone(side)]
        if not alone or joining.unmatched == "early":
            return super()._load_last(store, spilled)
        # What may come out holds the watermark. It comes out when it has been here for so long.
        after = saturating_add(saturating_add(min(alone), lateness), 1)
        return spilled.load_last(store, spilled.holds, after)

    def _gone_after(self, side: Side) -> int:
        """How long after its time a row is gone, in microseconds of the watermark."""
        joining = self.joining
        return saturating_add(saturating_add(joining.horizon_us(side), joining.lateness_us), 1)

    def _insert(
        self, side: Side, bundle: Bundle, keys: Int64Array, hashes: Int64Array | None
    ) -> None:
        own = self.sides[side]
        values = dict(bundle.values)
        bounds = {name: values.pop(name).data for name in (LOW, HIGH) if name in values}
        rows = own.insert(keys, bundle.times, values, hashes)
        for name, instants in bounds.items():
            own.table[name][rows] = instants
        self._pair(side, rows, 1)
        if self._counted[side]:
            if self.joining.unmatched == "on_time":
                self._dues[side].push(bundle.times, rows)
            self._settle(side, rows)
            if self.joining.holds:
                waits = rows if self.retracts else rows[own.table["matches"][rows] == 0]
                self._waiting[side].push(own.table["start"][waits], waits)

    def _retract_rows(self, side: Side, rows: Int64Array) -> None:
        if self._counted[side]:
            table = self.sides[side].table
            self._emit_alone(side, rows[table["shown"][rows]], -1)
            table["shown"][rows] = False
        self._pair(side, rows, -1)

    def _pair(self, side: Side, rows: Int64Array, sign: int) -> None:
        """Emit or retract the pairs of some rows, and count them on either side."""
        joining = self.joining
        own, other = self.sides[side], self.sides[1 - side]
        assert self.keys is not None
        # A null equals nothing, not even a null (T-3). Rows with one have no pairs from this side,
        # nor from the other: what finds them there has the same key.
        null = self.keys.with_nulls(own.table["key"][rows])
        if null is not None:
            rows = rows[~null]
        times = own.table["start"][rows]
        bounds = self.sides[LEFT].table if self._bounded else None
        if bounds is not None and side == LEFT:
            rows = rows[bounds[LOW][rows] <= bounds[HIGH][rows]]
            first, last = bounds[LOW][rows], bounds[HIGH][rows]
        elif joining.within is None:
            first = np.full(len(rows), START_OF_TIME, dtype=np.int64)
            last = np.full(len(rows), END_OF_TIME, dtype=np.int64)
        else:
            low, high = joining.low_us, joining.high_us
            if side == RIGHT:
                low, high = -high, min(-low, END_OF_TIME)
            first, last = saturating_add_array(times, low), saturating_add_array(times, high)
        if bounds is not None and side == RIGHT:
            found, which = self._find_bounding(rows, first, last)
        else:
            found, which = other.find(own.table["key"][rows], first, last)
        if not found.size:
            return
        mine = rows[which]
        opposite = RIGHT if side == LEFT else LEFT
        if self._counted[side]:
            own.count(mine, "matches", sign)
        if self._counted[opposite] and sign > 0:  # what stood alone goes before the pair comes
            self._settle(opposite, other.count(found, "matches", sign))
        if joining.emits_pairs:
            self._emit(side, mine, found, sign)
        if self._counted[opposite] and sign < 0:
            self._settle(opposite, other.count(found, "matches", sign))

    def _find_bounding(
        self, rows: Int64Array, first: Int64Array, last: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """Return the left rows within whose bounds right rows are, and which of those (J-14).

        Args:
            rows: The right rows.
            first: From when left rows may have such bounds.
            last: Until when.
        """
        left, right = self.sides[LEFT], self.sides[RIGHT].table
        found, which = [NONE], [NONE]
        at, portion = 0, _FIRST_PORTION
        while at < len(rows):
            some = slice(at, at + portion)
            near, of = left.find(right["key"][rows[some]], first[some], last[some])
            times = right["start"][rows[some][of]]
            meets = (left.table[LOW][near] <= times) & (times <= left.table[HIGH][near])
            found.append(near[meets])
            which.append(of[meets] + at)
            at += portion
            # How many are near depends on `longest` and on the keys: so that they fit memory.
            portion = portion * 4 if len(near) < _MANY_NEAR // 8 else portion
            portion = max(1, portion // 4) if len(near) > _MANY_NEAR else portion
        return np.concatenate(found), np.concatenate(which)

    def _settle(self, side: Side, rows: Int64Array) -> None:
        """Emit or retract rows by themselves, as the number of their partners requires."""
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
            due = before(self.watermark, joining.horizon_us(side))
            wanted = ~matched & (table["start"][rows] <= due)
        shown = table["shown"][rows]
        changed = shown != wanted
        if changed.any():
            self._emit_alone(side, rows[shown & ~wanted], -1)
            self._emit_alone(side, rows[wanted & ~shown], 1)
            table["shown"][rows] = wanted
            self.sides[side].touch(rows[changed])

    def _take(self, side: Side, bundle: Bundle) -> StageOutput:
        return self._done(self._take_timely(side, bundle))

    def _advance(self, to: int, right: int) -> StageOutput:
        if to <= self.watermark:
            return NOTHING
        self.watermark = to
        joining = self.joining
        released: list[Int64Array] = []
        alone: list[tuple[Side, Int64Array]] = []
        for side in (LEFT, RIGHT):
            own = self.sides[side]
            horizon = joining.horizon_us(side)
            if joining.is_alone(side) and joining.unmatched == "on_time":
                due = own.take_due(self._dues[side], before(to, horizon))
                unmet = due[(own.table["matches"][due] == 0) & ~own.table["shown"][due]]
                own.table["shown"][unmet] = True
                own.touch(unmet)
                alone.append((side, unmet))
            rows = own.take_due(own.by_time, before(to, joining.lateness_us + horizon))
            if joining.is_alone(side) and joining.unmatched == "final":
                unmet = rows[own.table["matches"][rows] == 0]
                alone.append((side, unmet))
            released.append(rows)
        self._emit_in_turn(alone)
        for one, rows in zip(self.sides, released, strict=True):
            one.remove(rows)
        return self._done(None)

    def _emit_in_turn(self, alone: list[tuple[Side, Int64Array]]) -> None:
        """Emit rows of both sides by themselves, by when they are due: as if each came alone.

        So it makes no difference to the order whether a watermark advances at once or in portions.

        Args:
            alone: (The side, its rows by time and arrival.)
        """
        if not alone:
            return
        due = [
            saturating_add_array(
                self.sides[side].table["start"][rows], self.joining.horizon_us(side)
            )
            for side, rows in alone
        ]
        order = kernels().argsort(np.concatenate(due))
        left, right = (
            np.concatenate([rows if at == side else np.full(len(rows), -1) for at, rows in alone])[
                order
            ]
            for side in (LEFT, RIGHT)
        )
        self._pairs.add(left, right, 1)

    def _emit(self, side: Side, own: Int64Array, other: Int64Array, sign: int) -> None:
        left, right = (own, other) if side == LEFT else (other, own)
        self._pairs.add(left, right, sign)

    def _emit_alone(self, side: Side, rows: Int64Array, sign: int) -> None:
        self._emit(side, rows, np.full(len(rows), -1, dtype=np.int64), sign)

    def _done(self, late: LateBatch | None) -> StageOutput:
        """Return what was emitted, and advance the output watermark."""
        output = self._emitted(late, self._waiting, self._dues)
        held = self._lowest_hold()
        if self._spilled:  # until load_holder has had it loaded
            held = min(held, self._spilled.holds.first)
        self.output_watermark = max(self.output_watermark, held)
        return output

    def _held(self) -> tuple[int, Side | None]:
        """Return the lowest time that is held, and the side that holds it, if one does.

        What is in the store alone is known by :meth:`load_holder`.
        """
        low = self.watermark
        owner: Side | None = None
        for side in (LEFT, RIGHT):
            if self._counted[side] and self.joining.holds:
                at = self._waiting[side].first_that(partial(self._is_waiting, side), low)
                if at < low:
                    low, owner = at, side
        return low, owner

    def _is_waiting(self, side: Side, times: Int64Array, rows: Int64Array) -> NDArray[np.bool_]:
        """Return which rows may still come out by themselves (J-4)."""
        own = self.sides[side]
        waiting = own.is_row(times, rows)
        if not self.retracts:
            waiting &= own.table["matches"][rows] == 0
        return waiting
