"""The operator that computes values over the rows before each row, in bundles of columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from lowwater.engine.keyed.applying import apply_changes, seen_by_users
from lowwater.engine.keyed.operator import KeyedOperator, record_hashes
from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.keyed.sides import Side
from lowwater.engine.keyed.spilled import SpilledKeys
from lowwater.engine.over.results import RELEASED, Results
from lowwater.engine.over.rules import Over
from lowwater.engine.records.columns import Column, Mask, Types
from lowwater.engine.records.stage_output import NOTHING, Emitted, StageOutput
from lowwater.engine.records.steps import Bundle, LateBatch, without_late
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import NONE, Scratch, distinct, sort_by_key_and_time
from lowwater.state.deadlines import Deadlines
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

_STALE = 1 << 16


@final
@dataclass(frozen=True, slots=True)
class _Computed:
    """Rows in the table, and their results by name; both of length n."""

    rows: Int64Array
    results: dict[str, Column]

    def take(self, places: Int64Array) -> _Computed:
        results = {name: column.take(places) for name, column in self.results.items()}
        return _Computed(self.rows[places], results)


@final
class OverOperator(KeyedOperator):
    """Emits each row with values over the rows before it, once the watermark has passed the row.

    A row below the watermark is out: nothing marks it. Where rows may come late or be retracted,
    the results that were emitted are computed again from the rows as they were before, so that they
    need not be kept.

    Args:
        rules: The rules.
        types: The columns of the records, as far as they are known, with their types.
        signed: Whether the input may contain retractions (S-C1).
        watermark: Input watermark to begin with, int microseconds.
        clock: Clock to begin with, int microseconds.
    """

    def __init__(
        self,
        rules: Over,
        types: Types,
        *,
        signed: bool = False,
        watermark: int = START_OF_TIME,
        clock: int = START_OF_TIME,
    ) -> None:
        self.rules = rules
        self._results = Results(rules)
        fields = (Field(RELEASED, np.int64),) if rules.numbers_rows else ()
        self._rows = KeyedRecords(types, fields, signed=signed)
        super().__init__(
            (self._rows,),
            signed=signed,
            retracts=signed or rules.corrects,
            watermark=watermark,
            clock=clock,
        )
        self._leaving = Deadlines()
        self._scratch = Scratch()

    def hold(self) -> Hold | None:
        """Return nothing: a row comes out with the advance that passes it."""
        return None

    def waits(self, side: int, rows: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        never = np.full(len(rows), END_OF_TIME)
        times = self._rows.table["start"][rows]
        due = np.where(
            times < self.watermark,
            self._leaves(times, self.watermark),
            saturating_add_array(times, 1),
        )
        return np.minimum(due, END_OF_TIME), never, never

    def readmitted(self, side: int, rows: Int64Array) -> None:
        times = self._rows.table["start"][rows]
        self._queue(rows[times < self.watermark], self.watermark)

    # -- rows that come ------------------------------------------------------------------------

    def _take(self, side: Side, bundle: Bundle) -> StageOutput:
        lowest = saturating_add(self.watermark, -self.rules.lateness_us)
        late, timely = without_late(bundle, lowest, self.watermark)
        if timely is not None:
            bundle = bundle.take(timely)
        self.admitted += len(bundle)
        return self._done(self._changed(bundle) if len(bundle) else None, late)

    def _changed(self, bundle: Bundle) -> Emitted | None:
        """Insert and retract rows; return what that changes of the results that are out."""
        _, keys = self._encode(bundle)
        passed = np.flatnonzero(bundle.times < self.watermark)
        if not passed.size:
            self._apply(bundle, keys)
            return None
        touched, of = np.unique(keys[passed], return_inverse=True)
        low = np.full(len(touched), END_OF_TIME, dtype=np.int64)
        np.minimum.at(low, of, bundle.times[passed])
        last = np.full(len(touched), START_OF_TIME, dtype=np.int64)
        np.maximum.at(last, of, bundle.times[passed])
        high = np.minimum(self._last_changed(touched, last), self.watermark - 1)
        before = _Computed(*self._results.of_keys(self._rows, touched, low, high))
        self._apply(bundle, keys)
        after = _Computed(*self._results.of_keys(self._rows, touched, low, high))
        self._queue(np.setdiff1d(after.rows, before.rows), self.watermark)
        return self._differences(before, after)

    def _last_changed(self, keys: Int64Array, last: Int64Array) -> Int64Array:
        """Return the last instant of each key whose results a change may touch.

        Args:
            keys: The keys.
            last: The last instant of each at which rows come or go.
        """
        rules = self.rules
        high = np.full(len(keys), END_OF_TIME, dtype=np.int64)
        if rules.numbers_rows:
            return high
        if rules.reach_us is not None:
            high = saturating_add_array(last, rules.reach_us)
        if rules.rows is not None:
            # Behind `last` the rows are the same before and after the change.
            behind = max(rules.rows_before, 1)
            high = np.minimum(high, self._rows.segments.start_after(keys, last, behind))
        return high

    def _apply(self, bundle: Bundle, keys: Int64Array) -> None:
        """Insert rows and retract rows.

        Raises:
            DataError: A row is retracted that never came.
        """

        def insert(places: Int64Array, hashes: Int64Array | None) -> None:
            columns = {name: column.take(places) for name, column in bundle.values.items()}
            self._rows.insert(keys[places], bundle.times[places], columns, hashes)

        if bundle.signs is not None and (bundle.signs < 0).any():
            apply_changes(self._rows, bundle, keys, insert, "over")
            return
        hashes = record_hashes(seen_by_users(bundle)) if self._signed else None
        self._rows.insert(keys, bundle.times, bundle.values, hashes)

    def _differences(self, before: _Computed, after: _Computed) -> Emitted | None:
        """Return the results that are no longer right, and those that are; by time and arrival."""
        _, old, new = np.intersect1d(
            before.rows, after.rows, assume_unique=True, return_indices=True
        )
        same = _content(before.take(old)) == _content(after.take(new))
        retracted = before.take(np.setdiff1d(np.arange(len(before.rows)), old[same]))
        inserted = after.take(np.setdiff1d(np.arange(len(after.rows)), new[same]))
        if not len(retracted.rows) and not len(inserted.rows):
            return None
        return self._emitted(retracted, inserted)

    def _emitted(self, retracted: _Computed | None, inserted: _Computed) -> Emitted:
        """Return results as records in order of time, then arrival."""
        assert self.keys is not None
        parts = [part for part in (retracted, inserted) if part is not None]
        rows = np.concatenate([part.rows for part in parts])
        table = self._rows.table
        counts = [0 if retracted is None else len(retracted.rows), len(inserted.rows)]
        signs = repeated(np.array([-1, 1], dtype=np.int8), counts)
        order = sort_by_key_and_time(table["start"][rows], table["born"][rows])
        rows = rows[order]
        columns = self._rows.kept.take(rows, self._results.visible(self._rows))
        some = [part for part in parts if len(part.rows)]
        for name in self.rules.names:
            columns[name] = Column.concat([part.results[name] for part in some]).take(order)
        return Emitted(
            table["start"][rows],
            self.keys.decode(table["key"][rows]),
            columns,
            signs=signs[order] if self.retracts else None,
        )

    # -- the watermark -------------------------------------------------------------------------

    def _advance(self, to: int, right: int) -> StageOutput:
        if to <= self.watermark:
            return NOTHING
        low, self.watermark = self.watermark, to
        times, rows = self._rows.by_time.pop(to - 1)
        rows = rows[self._rows.is_row(times, rows) & (times >= low)]
        emitted = None
        if rows.size:
            keys = self._distinct_keys(rows)
            bounds = np.full(len(keys), low), np.full(len(keys), to - 1)
            emitted = self._emitted(
                None, _Computed(*self._results.of_keys(self._rows, keys, *bounds))
            )
        if to == END_OF_TIME:
            self._rows.clear()
        else:
            self._queue(rows, low)
            self._release()
        return self._done(emitted, None)

    def _leaves(self, times: Int64Array, since: int) -> Int64Array:
        """Return the watermark at which rows that are out, or older ones of their keys, may go.

        Args:
            times: The times of the rows.
            since: Watermarks up to this one have been dealt with.
        """
        rules = self.rules
        leaves = np.full(len(times), END_OF_TIME, dtype=np.int64)
        if rules.stays_us is not None:
            leaves = saturating_add_array(times, rules.stays_us)
        if rules.rows is not None:
            # Then a row is below all rows to come, which need only the last rows before them.
            below = saturating_add_array(times, saturating_add(rules.lateness_us, 1))
            leaves = np.where(below > since, np.minimum(leaves, below), leaves)
        return leaves

    def _queue(self, rows: Int64Array, since: int) -> None:
        """Queue rows that are out for the watermark at which something of their keys may go."""
        leaves = self._leaves(self._rows.table["start"][rows], since)
        some = np.flatnonzero(leaves < END_OF_TIME)
        self._leaving.push(leaves[some], rows[some])

    def _release(self) -> None:
        """Remove rows that no row to come depends on."""
        rules, table = self.rules, self._rows.table
        _, rows = self._leaving.pop(self.watermark)
        rows = rows[table.alive(rows)]
        if not rows.size:
            return
        rows = distinct(rows)
        if (stays := rules.stays_us) is not None:
            gone = saturating_add_array(table["start"][rows], stays) <= self.watermark
            self._rows.remove(rows[gone])
            rows = rows[~gone]
        if rules.rows is None or not rows.size:
            return
        lowest = saturating_add(self.watermark, -rules.lateness_us)
        self._queue(rows, self.watermark)  # of those that are kept for a time, too
        keys = self._distinct_keys(rows)
        old, counts, behind = self._rows.segments.oldest(keys, lowest, rules.rows_before)
        if not old.size:
            return
        if rules.numbers_rows:
            some = np.flatnonzero((counts > 0) & (behind >= 0))
            first = self._rows.segments.first(keys[some])
            table[RELEASED][behind[some]] = table[RELEASED][first] + counts[some]
            self._rows.touch(distinct(behind[some]))
        self._rows.remove(old)

    def _distinct_keys(self, rows: Int64Array) -> Int64Array:
        assert self.keys is not None
        return self._scratch.unique(self._rows.table["key"][rows], self.keys.capacity)[0]

    def _load_last(self, store: StateStore, spilled: SpilledKeys) -> int | None:
        return spilled.load_last(store, spilled.dues, 0)

    def _done(self, emitted: Emitted | None, late: LateBatch | None) -> StageOutput:
        """Free what is removed, and raise the output watermark."""
        output = self._finish(emitted, late)
        if len(self._leaving) > 2 * len(self._rows) + _STALE:
            self._leaving.retain(self._still_leaves)
        self.output_watermark = max(self.output_watermark, self.watermark)
        return output

    def _still_leaves(self, leaves: Int64Array, rows: Int64Array) -> Mask:
        table, rules = self._rows.table, self.rules
        times = table["start"][rows]
        holds = np.zeros(len(rows), dtype=np.bool_)
        if rules.stays_us is not None:
            holds |= saturating_add_array(times, rules.stays_us) == leaves
        if rules.rows is not None:
            below = saturating_add_array(times, saturating_add(rules.lateness_us, 1))
            holds |= below == leaves
        found: Mask = table.alive(rows) & holds
        return found


def _content(computed: _Computed) -> Int64Array:
    """Return a hash of the results of each row, int64."""
    if not len(computed.rows):
        return NONE
    times = np.zeros(len(computed.rows), dtype=np.int64)
    return record_hashes(Bundle(times, (), computed.results))
