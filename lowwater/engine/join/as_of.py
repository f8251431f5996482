"""The operator of a join with a table's history, as of event time (J-8 to J-12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.join.history import ALONE, History
from lowwater.engine.join.joining import AsOf
from lowwater.engine.join.pairs import JoinedColumns, Pairs
from lowwater.engine.join.two_sided import TwoSided, before
from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.keyed.sides import LEFT, Side
from lowwater.engine.keyed.spilled import SpilledKeys
from lowwater.engine.records.stage_output import NOTHING, StageOutput
from lowwater.engine.records.steps import Bundle, LateBatch
from lowwater.state.arrays import run_starts, sort_by_key_and_time
from lowwater.state.deadlines import Deadlines
from lowwater.state.store import StateStore
from lowwater.state.table import Field
from lowwater.time import (
    END_OF_TIME,
    START_OF_TIME,
    Int64Array,
    format_instant,
    saturating_add_array,
)
from lowwater.watermark import Hold

_WAITS = -2
"""What a fact has met that is not joined yet; one without a version has met ``ALONE``."""
_NO_QUEUE = Deadlines()
VERSIONS_WATERMARK = "versions watermark"


@final
class AsOfOperator(TwoSided):
    """Joins each fact with the version of its key that is the one for the fact's time.

    A step does no I/O, reads no clock and starts no thread.

    A fact that looks back waits for the watermark of the versions to pass its time. For one that
    looks ahead, ``until`` is the instant that settles its version: that watermark has to pass it
    before the fact is joined, and afterwards ``W - keep`` before it is released.

    Args:
        as_of: The rules.
        columns: The columns and their names; facts are the left side.
        signed: Whether an input may contain retractions (S-C1); only where versions correct.
        watermark: Input watermark to begin with, int microseconds.
        clock: Clock to begin with, int microseconds.
    """

    pairs_at_left = True
    link = "met"

    def __init__(
        self,
        as_of: AsOf,
        columns: JoinedColumns,
        *,
        signed: bool = False,
        watermark: int = START_OF_TIME,
        clock: int = START_OF_TIME,
    ) -> None:
        fields = [Field("met", np.int64, _WAITS)]
        if as_of.looks_ahead:
            fields.append(Field("until", np.int64, END_OF_TIME))
        # Facts that no version and no retraction changes are only taken by time.
        changes = signed or as_of.retracts or as_of.looks_ahead
        facts = KeyedRecords(columns.left, fields, signed=signed, found_by_key=changes)
        versions = KeyedRecords(columns.right, signed=signed)
        super().__init__(
            facts,
            versions,
            Pairs(facts, versions, columns),
            lateness_us=as_of.keep_us,
            signed=signed,
            retracts=signed or as_of.retracts,
            watermark=watermark,
            clock=clock,
        )
        self.as_of = as_of
        self.versions_watermark = watermark
        self._history = History(as_of, versions)
        # Facts that wait, by `until`; those that look back are in the queue of facts by time.
        self._joins = Deadlines()
        self._releases = Deadlines()
        # Only an advance raises the output watermark: the retraction of a fact that holds it, and
        # a late fact behind that, would raise it or not as they come in one bundle or in two.
        self._has_advanced = False

    @property
    def waiting(self) -> int:
        """How many facts wait to be joined. With corrections, facts are kept, as versions are."""
        if self.as_of.retracts:
            return 0
        spilled = self._spilled
        return len(self.sides[LEFT]) + (0 if spilled is None else spilled.rows[LEFT])

    def _kept(self, side: Side, count: int) -> None:
        if side != LEFT or self.as_of.retracts:
            super()._kept(side, count)

    def hold(self) -> Hold | None:
        """Return the first fact that waits below the watermark, if one does (J-11)."""
        at = self._lowest_hold()
        if at >= self.watermark or self.keys is None:
            return None
        table = self.sides[LEFT].table
        rows = table.live()
        rows = rows[self._is_waiting(table["start"][rows], rows) & (table["start"][rows] == at)]
        row = rows[[int(table["until"][rows].argmax())]]
        parts = self.keys.decode(table["key"][row])
        key = tuple(column.to_list(exact=True)[0] for column in parts)
        shown = key[0] if len(key) == 1 else key
        until = format_instant(int(table["until"][row[0]]))
        what = f"a fact of {format_instant(at)} waits until the versions have passed {until}"
        return Hold(at, f"key {shown!r}, {what}")

    def _gone_by_time(self) -> Sequence[int | None]:
        facts = self.as_of.keep_us + self.as_of.ahead_us + 1
        dues = (facts, self._history.longest_us)
        # What stays longer than time lasts is not gone by time.
        return [None if due is None or due > END_OF_TIME else due for due in dues]

    def _take_up(self, facts: Mapping[str, int]) -> None:
        self.versions_watermark = facts[VERSIONS_WATERMARK]

    def waits(self, side: int, rows: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        never = np.full(len(rows), END_OF_TIME)
        if side != LEFT:
            return self._history.gone_at(rows, self.watermark), never, never
        table = self.sides[LEFT].table
        times, waiting = table["start"][rows], table["met"][rows] == _WAITS
        if self.as_of.looks_ahead:
            until = table["until"][rows]
            joins, hold = saturating_add_array(until, 1), np.where(waiting, times, never)
        else:
            until, hold = times, never
            joins = saturating_add_array(times, 1 if self.as_of.allow_equal else 0)
        gone = saturating_add_array(saturating_add_array(until, self.as_of.keep_us), 1)
        return np.where(waiting, never, gone), np.where(waiting, joins, never), hold

    def readmitted(self, side: int, rows: Int64Array) -> None:
        if side != LEFT:
            return
        table = self.sides[LEFT].table
        if not self.as_of.looks_ahead:
            self._releases.push(table["start"][rows], rows)
            return
        until, waiting = table["until"][rows], table["met"][rows] == _WAITS
        self._joins.push(until[waiting], rows[waiting])
        self._releases.push(until[~waiting], rows[~waiting])

    def load_holder(self, store: StateStore) -> None:
        super().load_holder(store)
        if self._has_advanced:
            self.output_watermark = max(self.output_watermark, self._lowest_hold())

    def _lowest_hold(self) -> int:
        if not self.as_of.looks_ahead:
            return self.watermark  # what waits is not below it (J-8)
        return self.sides[LEFT].by_time.first_that(self._is_waiting, self.watermark)

    def _is_waiting(self, times: Int64Array, rows: Int64Array) -> NDArray[np.bool_]:
        facts = self.sides[LEFT]
        return facts.is_row(times, rows) & (facts.table["met"][rows] == _WAITS)

    def _load_last(self, store: StateStore, spilled: SpilledKeys) -> int | None:
        return spilled.load_last(store, spilled.right_dues, 0)

    def _facts(self) -> dict[str, int]:
        return {**super()._facts(), VERSIONS_WATERMARK: self.versions_watermark}

    def _insert(
        self, side: Side, bundle: Bundle, keys: Int64Array, hashes: Int64Array | None
    ) -> None:
        rows = self.sides[side].insert(keys, bundle.times, bundle.values, hashes)
        if side != LEFT:
            self._correct(keys, bundle.times)
            return
        if not self.as_of.looks_ahead:
            if self.as_of.retracts:
                self._releases.push(bundle.times, rows)
            self._join(rows[bundle.times <= self._settled])
            return
        until = self._history.settled(keys, bundle.times)
        self.sides[LEFT].table["until"][rows] = until
        # A late fact whose version is settled only as others came waits for the next advance: so
        # when it is joined depends on watermarks alone, not on which side was read first.
        waits = saturating_add_array(bundle.times, self.as_of.ahead_us) > self._settled
        self._joins.push(until[waits], rows[waits])
        self._join(rows[~waits])

    @property
    def _settled(self) -> int:
        """The last ``until`` that is settled; where facts look back, the last time of one."""
        known = self.as_of.looks_ahead or self.as_of.allow_equal
        return before(self.versions_watermark, 0 if known else -1)

    def _retract_rows(self, side: Side, rows: Int64Array) -> None:
        own = self.sides[side]
        if side == LEFT:
            met = own.table["met"][rows]
            shown = met >= (ALONE if self.as_of.how == "left" else 0)
            self._pairs.add(rows[shown], met[shown], -1)
            return
        self._correct(own.table["key"][rows], own.table["start"][rows])

    def _take(self, side: Side, bundle: Bundle) -> StageOutput:
        self._has_advanced = False
        return self._done(self._take_timely(side, bundle))

    def _advance(self, to: int, right: int) -> StageOutput:
        if to <= self.watermark and right <= self.versions_watermark:
            return NOTHING
        self._has_advanced = True
        self.watermark = max(self.watermark, to)
        self.versions_watermark = max(self.versions_watermark, right)
        facts, ahead = self.sides[LEFT], self.as_of.looks_ahead
        by, queue = ("until", self._joins) if ahead else ("start", facts.by_time)
        # By what settles them, so that an advance in portions emits them in the same order.
        due = facts.take_due(queue, self._settled, by)
        # Without corrections, all facts that are here wait.
        self._join(due[facts.table["met"][due] == _WAITS] if self.as_of.retracts else due)
        old = facts.take_due(self._releases, before(self.watermark, self.as_of.keep_us), by)
        facts.remove(old[facts.table["met"][old] != _WAITS])
        self._history.forget(self.watermark)
        return self._done(None)

    def _join(self, rows: Int64Array) -> None:
        """Emit facts with the versions that they meet."""
        if not rows.size:
            return
        facts = self.sides[LEFT]
        met = self._met(rows)
        if self.as_of.how == "left":
            self._pairs.add(rows, met, 1)
        else:
            self._pairs.add(rows[met >= 0], met[met >= 0], 1)
        if not self.as_of.retracts:
            facts.remove(rows)
            self.admitted += len(met)
            return
        facts.table["met"][rows] = met
        if self.as_of.looks_ahead:
            # A fact is kept as long as it may be retracted itself.
            until = np.maximum(facts.table["until"][rows], facts.table["start"][rows])
            facts.table["until"][rows] = until
            self._releases.push(until, rows)
        facts.touch(rows)

    def _correct(self, keys: Int64Array, times: Int64Array) -> None:
        """Emit facts again that meet another version, now that versions came or went.

        Facts that wait for what lies ahead may be settled earlier, or later.
        """
        if not (self.as_of.retracts or self.as_of.looks_ahead):
            return
        facts = self.sides[LEFT]
        order = sort_by_key_and_time(keys, times)
        starts = run_starts(keys[order])
        first, last = order[starts], order[np.append(starts[1:], True)]
        arrival = np.argsort(np.minimum.reduceat(order, np.flatnonzero(starts)))
        first, last = first[arrival], last[arrival]  # by arrival, whatever the ids of keys
        own = keys[first]
        rows, _ = facts.find(own, *self._history.reach(own, times[first], times[last]))
        if self.as_of.looks_ahead and rows.size:
            self._settle_anew(rows)
        rows = rows[facts.table["met"][rows] != _WAITS]
        if not rows.size:
            return
        before_, now = facts.table["met"][rows], self._met(rows)
        changed = before_ != now
        rows, before_, now = rows[changed], before_[changed], now[changed]
        least = ALONE if self.as_of.how == "left" else 0
        self._pairs.add(rows[before_ >= least], before_[before_ >= least], -1)
        self._pairs.add(rows[now >= least], now[now >= least], 1)
        facts.table["met"][rows] = now
        facts.touch(rows)

    def _settle_anew(self, rows: Int64Array) -> None:
        """Update when the versions of facts are settled, of all that may have changed.

        A fact that a late version settles is joined with the next advance: otherwise which version
        it meets would depend on how late ones are bundled.
        """
        facts = self.sides[LEFT]
        times, waits = facts.table["start"][rows], facts.table["met"][rows] == _WAITS
        until = self._history.settled(facts.table["key"][rows], times)
        until = np.where(waits, until, np.maximum(until, times))
        changed = until != facts.table["until"][rows]
        rows, until, waits = rows[changed], until[changed], waits[changed]
        facts.table["until"][rows] = until
        self._joins.push(until[waits], rows[waits])
        self._releases.push(until[~waits], rows[~waits])
        facts.touch(rows)

    def _met(self, rows: Int64Array) -> Int64Array:
        """Return the version that each of some facts meets, ``ALONE`` for none."""
        table = self.sides[LEFT].table
        until = table["until"][rows] if self.as_of.looks_ahead else None
        return self._history.met(table["key"][rows], table["start"][rows], until)

    def _done(self, late: LateBatch | None) -> StageOutput:
        """Free what is removed, and after an advance raise the output watermark."""
        if self.as_of.looks_ahead:
            output = self._emitted(late, (_NO_QUEUE, self._history.expiries))
            self.sides[LEFT].tidy(self._joins, self._releases, column="until")
        else:
            output = self._emitted(late, (self._releases, _NO_QUEUE))
        if self._has_advanced:
            held = self._lowest_hold()
            if self._spilled:  # until load_holder has had it loaded
                held = min(held, self._spilled.holds.first)
            self.output_watermark = max(self.output_watermark, held)
        return output
