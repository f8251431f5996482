"""The operator of a join with a table's history, as of event time (J-8, J-9)."""

from __future__ import annotations

from typing import final

import numpy as np

from lowwater.engine.join.joining import AsOf
from lowwater.engine.join.pairs import JoinedColumns, Pairs
from lowwater.engine.join.two_sided import TwoSided, before
from lowwater.engine.keyed.ranks import ranks
from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.keyed.sides import LEFT, Side
from lowwater.engine.keyed.spilled import SpilledKeys
from lowwater.engine.records.stage_output import NOTHING, StageOutput
from lowwater.engine.records.steps import Bundle, LateBatch
from lowwater.state.arrays import distinct, run_starts
from lowwater.state.deadlines import Deadlines
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import StateStore
from lowwater.state.table import Field
from lowwater.time import (
    END_OF_TIME,
    START_OF_TIME,
    Int64Array,
    saturating_add,
    saturating_add_array,
)
from lowwater.watermark import Hold

_WAITS, _ALONE = -2, -1
"""What a fact has met: nothing yet; no version."""
VERSIONS_WATERMARK = "versions watermark"


@final
class AsOfOperator(TwoSided):
    """Joins each fact with the version of its key that was valid at the fact's time.

    A step does no I/O, reads no clock and starts no thread.

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
        facts = KeyedRecords(columns.left, (Field("met", np.int64, _WAITS),), signed=signed)
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
        self._releases = Deadlines()

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
        """Return ``None``: a fact that waits is not below the watermark (J-8)."""
        return None

    def keep_in_store(self, place: StoredPlace, memory: int | None = None) -> None:
        """Track changes, so that :meth:`save` can write them; call it before the first step.

        Args:
            place: Where the state is stored.
            memory: About how many bytes it may take in memory; ``None``: any number.
        """
        self._keep(place, (self.as_of.keep_us + 1, None), memory)

    def restore(self, store: StateStore) -> bool:
        """Load what was saved in a store, before the first step; return whether there was any.

        Raises:
            StateError: What is stored is damaged, or of another layout.
        """
        facts = self._restored(store)
        if facts is None:
            return False
        self.versions_watermark = facts[VERSIONS_WATERMARK]
        return True

    def waits(self, side: int, rows: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        table = self.sides[side].table
        times, never = table["start"][rows], np.full(len(rows), END_OF_TIME)
        gone = saturating_add_array(times, saturating_add(self.as_of.keep_us, 1))
        if side == LEFT:
            waiting = table["met"][rows] == _WAITS
            joins = np.where(waiting, saturating_add_array(times, 1), never)
            return np.where(waiting, never, gone), joins, never
        # The first version of a key only goes when the next one is as old.
        order = np.lexsort((table["born"][rows], times, table["key"][rows]))
        gone[order[run_starts(table["key"][rows][order])]] = END_OF_TIME
        return gone, never, never

    def readmitted(self, side: int, rows: Int64Array) -> None:
        if side == LEFT:
            self._releases.push(self.sides[side].table["start"][rows], rows)

    def _load_last(self, store: StateStore, spilled: SpilledKeys) -> int | None:
        return spilled.load_last(store, spilled.right_dues, 0)

    def _facts(self) -> dict[str, int]:
        return {**super()._facts(), VERSIONS_WATERMARK: self.versions_watermark}

    def _insert(
        self, side: Side, bundle: Bundle, keys: Int64Array, hashes: Int64Array | None
    ) -> None:
        rows = self.sides[side].insert(keys, bundle.times, bundle.values, hashes)
        if side == LEFT:
            if self.as_of.retracts:
                self._releases.push(bundle.times, rows)
            self._join(rows[bundle.times < self.versions_watermark])
        else:
            self._correct(keys, bundle.times)

    def _retract_rows(self, side: Side, rows: Int64Array) -> None:
        own = self.sides[side]
        if side == LEFT:
            met = own.table["met"][rows]
            shown = met >= (_ALONE if self.as_of.how == "left" else 0)
            self._pairs.add(rows[shown], met[shown], -1)
            return
        self._correct(own.table["key"][rows], own.table["start"][rows])

    def _take(self, side: Side, bundle: Bundle) -> StageOutput:
        return self._done(self._take_timely(side, bundle))

    def _advance(self, to: int, right: int) -> StageOutput:
        if to <= self.watermark and right <= self.versions_watermark:
            return NOTHING
        self.watermark = max(self.watermark, to)
        self.versions_watermark = max(self.versions_watermark, right)
        facts = self.sides[LEFT]
        due = facts.take_due(facts.by_time, before(self.versions_watermark, 0))
        self._join(due[facts.table["met"][due] == _WAITS])
        over = before(self.watermark, self.as_of.keep_us)
        old = facts.take_due(self._releases, over)
        facts.remove(old[facts.table["met"][old] != _WAITS])
        self._forget_versions(over)
        return self._done(None)

    def _join(self, rows: Int64Array) -> None:
        """Emit facts with the versions that were valid at their times."""
        if not rows.size:
            return
        facts = self.sides[LEFT]
        met = self._met(rows)
        shown = met >= (_ALONE if self.as_of.how == "left" else 0)
        self._pairs.add(rows[shown], met[shown], 1)
        if self.as_of.retracts:
            facts.table["met"][rows] = met
            facts.touch(rows)
        else:
            facts.remove(rows)
            self.admitted += len(met)

    def _correct(self, keys: Int64Array, times: Int64Array) -> None:
        """Emit facts again that meet another version, now that versions came or went."""
        if not self.as_of.retracts:
            return
        facts = self.sides[LEFT]
        order = np.lexsort((times, keys))
        starts = run_starts(keys[order])
        first, last = order[starts], order[np.append(starts[1:], True)]
        arrival = np.argsort(np.minimum.reduceat(order, np.flatnonzero(starts)))
        first, last = first[arrival], last[arrival]  # by arrival, whatever the ids of keys
        # Up to the version that follows the last of them; that one's facts are its own.
        end = self.sides[1].segments.next_start(keys[last], times[last])
        rows, _ = facts.find(keys[first], times[first], end)
        rows = rows[facts.table["met"][rows] != _WAITS]
        if not rows.size:
            return
        before_, now = facts.table["met"][rows], self._met(rows)
        changed = before_ != now
        rows, before_, now = rows[changed], before_[changed], now[changed]
        least = _ALONE if self.as_of.how == "left" else 0
        self._pairs.add(rows[before_ >= least], before_[before_ >= least], -1)
        self._pairs.add(rows[now >= least], now[now >= least], 1)
        facts.table["met"][rows] = now
        facts.touch(rows)

    def _met(self, rows: Int64Array) -> Int64Array:
        """Return the version that each of some facts meets, -1 for none."""
        facts, versions = self.sides
        keys, times = facts.table["key"][rows], facts.table["start"][rows]
        met = self._newest(keys, times)
        if self.as_of.tolerance_us is not None:
            oldest = saturating_add_array(times, -self.as_of.tolerance_us)
            found = met >= 0
            met[found & (versions.table["start"][met] < oldest)] = _ALONE
        return met

    def _newest(self, keys: Int64Array, at: Int64Array) -> Int64Array:
        """Return each key's newest version at or before an instant, -1 for none."""
        versions = self.sides[1]
        met = versions.segments.latest(keys, at)
        name = self.as_of.order
        found = np.flatnonzero(met >= 0)
        if name is None or not found.size:
            return met
        # Of those of one time the greatest in order counts.
        times = versions.table["start"][met[found]]
        rows, which = versions.find(keys[found], times, times)
        if len(rows) > len(found):
            (column,) = versions.kept.take(rows, [name]).values()
            order = np.lexsort(
                (versions.table["born"][rows], ranks((column,), name, "join_as_of")[0], which)
            )
            last = np.append(which[order][1:] != which[order][:-1], True)
            met[found] = rows[order[last]]
        return met

    def _forget_versions(self, over: int) -> None:
        """Remove the versions that no fact can meet any more: of each key all but the newest.

        Args:
            over: Only versions at or before this instant.
        """
        versions = self.sides[1]
        rows = versions.take_due(versions.by_time, over)
        if self.watermark == END_OF_TIME:
            versions.remove(versions.table.live())
            return
        if not rows.size:
            return
        keys = distinct(versions.table["key"][rows])
        start = np.full(len(keys), START_OF_TIME, dtype=np.int64)
        upto = np.full(len(keys), over, dtype=np.int64)
        old, which = versions.find(keys, start, upto)
        versions.remove(old[old != self._newest(keys, upto)[which]])

    def _done(self, late: LateBatch | None) -> StageOutput:
        output = self._emitted(late, (self._releases, Deadlines()))
        self.output_watermark = max(self.output_watermark, self.watermark)
        return output
