"""The operator that finds row patterns, over bundles of columns (P-1 to P-14)."""

from __future__ import annotations

from typing import final

import numpy as np

from lowwater.engine.keyed.applying import apply_changes, seen_by_users
from lowwater.engine.keyed.operator import KeyedOperator, record_hashes
from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.keyed.sides import Side
from lowwater.engine.keyed.spilled import SpilledKeys
from lowwater.engine.match.conditions import Conditions
from lowwater.engine.match.key_rows import KeyRows
from lowwater.engine.match.outcome import Decided, Output
from lowwater.engine.match.rules import Matching
from lowwater.engine.match.search import PatternSearch
from lowwater.engine.match.shown import Shown
from lowwater.engine.match.taken import Values
from lowwater.engine.records.columns import Mask, Types
from lowwater.engine.records.stage_output import NOTHING, Emitted, StageOutput
from lowwater.engine.records.steps import Bundle, LateBatch, without_late
from lowwater.state.arrays import distinct
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

_STALE = 1 << 16
_AT_THE_END = END_OF_TIME - 1
"""When what only the end of the input decides is due: the last instant of a queue."""


@final
class MatchOperator(KeyedOperator):
    """Finds row patterns by key, and corrects what it found as rows come late or are taken back.

    It keeps rows that may still be part of a match, on the left side, and what it emitted and may
    still take back, on the right. A row's ``due`` is the watermark at which something about its key
    is decided next; ``holds`` marks the first undecided start of a key, which holds the output
    watermark (P-10); ``context`` marks rows that only ``prev`` reaches (P-8).

    Args:
        rules: The rules.
        types: The columns that are kept, as far as they are known, with their types.
        signed: Whether the input may contain retractions (S-C1).
        watermark: Input watermark to begin with, int microseconds.
        clock: Clock to begin with, int microseconds.
    """

    def __init__(
        self,
        rules: Matching,
        types: Types,
        *,
        signed: bool = False,
        watermark: int = START_OF_TIME,
        clock: int = START_OF_TIME,
    ) -> None:
        self.rules = rules
        self._conditions = Conditions(rules)
        self._search = PatternSearch(rules, self._conditions)
        self._output = Output(rules, self._conditions.labels)
        fields = (
            Field("bits", np.int64),
            Field("judged", np.bool_, not self._conditions.reads_before),
            Field("context", np.bool_, False),
            Field("due", np.int64, END_OF_TIME),
            Field("holds", np.bool_, False),
        )
        self._rows = KeyedRecords(types, fields, signed=signed)
        self._shown = Shown()
        super().__init__(
            (self._rows, self._shown.records),
            signed=signed,
            retracts=signed or rules.corrects,
            watermark=watermark,
            clock=clock,
        )
        self._dues, self._holds = Deadlines(), Deadlines()
        # Only an advance raises the output watermark. A late row may settle one start and the next
        # row begin another, so after a bundle it would depend on how rows were bundled.
        self._has_advanced = False

    def hold(self) -> Hold | None:
        """Return what holds the output watermark below the input's, if anything."""
        at = self._lowest_hold()
        if at >= self.watermark or self.keys is None:
            return None
        table = self._rows.table
        rows = table.live()
        row = rows[table["holds"][rows] & (table["start"][rows] == at)][:1]
        parts = self.keys.decode(table["key"][row])
        key = tuple(column.to_list(exact=True)[0] for column in parts)
        rules, last = self.rules, None
        shown = key[0] if len(key) == 1 else key
        what = f"whether {rules.text!r} matches from {format_instant(at)} on is undecided"
        if rules.within_us is not None:
            last = saturating_add(at, rules.within_us)
            if rules.absence is not None:
                last = saturating_add(last, rules.absence.within_us)
            if rules.emit == "final":
                last = saturating_add(last, rules.lateness_us)
        until = "" if last is None else f", until {format_instant(last)} at the latest"
        return Hold(at, f"key {shown!r}, {what}{until}")

    def waits(self, side: int, rows: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        never = np.full(len(rows), END_OF_TIME)
        if side:
            return never, never, never
        table = self._rows.table
        hold = np.where(table["holds"][rows], table["start"][rows], END_OF_TIME)
        return table["due"][rows], never, hold

    def readmitted(self, side: int, rows: Int64Array) -> None:
        if side:
            return
        table = self._rows.table
        due, holds = table["due"][rows], table["holds"][rows]
        some = due < END_OF_TIME
        self._dues.push(due[some], rows[some])
        self._holds.push(table["start"][rows[holds]], rows[holds])

    def load_holder(self, store: StateStore) -> None:
        super().load_holder(store)
        if self._has_advanced:
            self.output_watermark = max(self.output_watermark, self._lowest_hold())

    def _lowest_hold(self) -> int:
        return self._holds.first_that(self._is_holding, self.watermark)

    def _is_holding(self, times: Int64Array, rows: Int64Array) -> Mask:
        return self._rows.is_row(times, rows) & self._rows.table["holds"][rows]

    def _is_due(self, times: Int64Array, rows: Int64Array) -> Mask:
        table = self._rows.table
        return table.alive(rows) & (table["due"][rows] == times)

    def _load_last(self, store: StateStore, spilled: SpilledKeys) -> int | None:
        return spilled.load_last(store, spilled.dues, 0)

    # -- rows that come ------------------------------------------------------------------------

    def _take(self, side: Side, bundle: Bundle) -> StageOutput:
        lowest = saturating_add(self.watermark, -self.rules.lateness_us)
        late, timely = without_late(bundle, lowest, self.watermark)
        if timely is not None:
            bundle = bundle.take(timely)
        self.admitted += len(bundle)
        self._has_advanced = False
        return self._done(self._changed(bundle) if len(bundle) else None, late)

    def _changed(self, bundle: Bundle) -> Emitted | None:
        """Add and take back rows; return what that changes.

        Rows that the watermark has not passed decide nothing yet: their keys are searched when it
        passes them.
        """
        bits = self._conditions.of_bundle(bundle)
        if self._search.skips_idle_rows:
            some = np.flatnonzero(bits)
            bundle, bits = bundle.take(some), bits[some]
            if not some.size:
                return None
        _, keys = self._encode(bundle)
        signs = bundle.signs
        if signs is not None and (signs < 0).any():
            self._apply(bundle, keys, bits)
            return self._settled(_in_order_of_arrival(keys), every=True, in_turn=False)
        hashes = record_hashes(seen_by_users(bundle)) if self._signed else None
        rows = self._insert(bundle, keys, bits, hashes)
        if self.rules.emit == "early":
            late = np.ones(len(rows), dtype=np.bool_)
        else:
            late = bundle.times < self._horizon
        if not late.all():
            due = saturating_add_array(bundle.times, self._passes_after)
            self._rows.table["due"][rows] = due  # the queue of rows by time tells when
            if self._passes_after > 1:  # the watermark may pass it long before
                self._rows.table["holds"][rows] = True
                self._holds.push(bundle.times, rows)
        if not late.any():
            return None
        return self._settled(_in_order_of_arrival(keys[late]), every=False, in_turn=False)

    @property
    def _horizon(self) -> int:
        """The instant below which rows count for what comes out (P-6)."""
        lateness = self.rules.lateness_us if self.rules.emit == "final" else 0
        return saturating_add(self.watermark, -lateness)

    @property
    def _passes_after(self) -> int:
        """How long after its time the watermark has passed a row, in microseconds."""
        return saturating_add(self.rules.lateness_us if self.rules.emit == "final" else 0, 1)

    def _insert(
        self, bundle: Bundle, keys: Int64Array, bits: Int64Array, hashes: Int64Array | None
    ) -> Int64Array:
        columns = {
            name: column for name, column in bundle.values.items() if self._search.keeps(name)
        }
        rows = self._rows.insert(keys, bundle.times, columns, hashes)
        self._rows.table["bits"][rows] = bits
        return rows

    def _apply(self, bundle: Bundle, keys: Int64Array, bits: Int64Array) -> None:
        """Insert rows and take rows back (P-13).

        Raises:
            DataError: A row is taken back that never came.
        """

        def insert(places: Int64Array, hashes: Int64Array) -> None:
            self._insert(bundle.take(places), keys[places], bits[places], hashes)

        apply_changes(self._rows, bundle, keys, insert, "match")

    # -- the watermark -------------------------------------------------------------------------

    def _advance(self, to: int, right: int) -> StageOutput:
        if to <= self.watermark:
            return NOTHING
        self.watermark, self._has_advanced = to, True
        table = self._rows.table
        if to == END_OF_TIME:
            rows = table.live()
        else:
            times, rows = self._dues.pop(to)
            rows = rows[self._is_due(times, rows)]
            times, passed = self._rows.by_time.pop(saturating_add(to, -self._passes_after))
            due = saturating_add_array(times, self._passes_after)
            rows = np.concatenate((rows, passed[self._is_due(due, passed)]))
        emitted = None
        if rows.size:
            emitted = self._settled(distinct(table["key"][rows]), every=False, in_turn=True)
        if to == END_OF_TIME:
            for side in self.sides:
                side.clear()
        return self._done(emitted, None)

    # -- what follows from rows and the watermark ------------------------------------------------

    def _settled(self, keys: Int64Array, *, every: bool, in_turn: bool) -> Emitted | None:
        """Search the rows of keys anew; release what can never change; return what changes.

        Args:
            keys: Ids of distinct keys, in the order in which their output comes.
            every: Whether rows were taken out.
            in_turn: Whether output comes in the order in which it is decided, over all keys.
        """
        rows = KeyRows(self._rows, keys, self.rules.order)
        values = Values(rows, self._conditions.labels)
        if self._conditions.reads_before:
            self._conditions.judge(self._rows, rows, values, every=every)
        decided = self._search.decided(self._rows.table, rows, values, self.watermark)
        self._note(rows, decided)
        assert self.keys is not None
        emitted = self._output.changed(
            rows, values, decided, self._rows, self._shown, self.keys, in_turn=in_turn,
            signed=self.retracts,
        )  # fmt: skip
        self._release(rows, decided)
        return emitted

    def _note(self, rows: KeyRows, decided: Decided) -> None:
        """Note when something about the keys is decided next, and what holds the watermark."""
        table = self._rows.table
        due = np.full(len(rows), END_OF_TIME)
        some = np.flatnonzero(decided.settled < rows.begin[1:])
        due[decided.settled[some]] = np.minimum(decided.due[some], _AT_THE_END)
        holds = np.zeros(len(rows), dtype=np.bool_)
        holds[decided.open_[decided.open_ >= 0]] = True
        changed = np.flatnonzero(table["due"][rows.rows] != due)
        which = rows.rows[changed]
        table["due"][which] = due[changed]
        queued = changed[due[changed] < END_OF_TIME]
        self._dues.push(due[queued], rows.rows[queued])
        turned = np.flatnonzero(table["holds"][rows.rows] != holds)
        table["holds"][rows.rows[turned]] = holds[turned]
        new = turned[holds[turned]]
        self._holds.push(rows.times[new], rows.rows[new])
        self._rows.touch(distinct(np.concatenate((which, rows.rows[turned]))))

    def _release(self, rows: KeyRows, decided: Decided) -> None:
        """Remove rows that no search begins at any more, but for those that ``prev`` reaches."""
        places = np.arange(len(rows), dtype=np.int64)
        over = decided.settled[rows.key_of] - places
        gone = over > self._conditions.depth
        self._rows.remove(rows.rows[gone])
        table = self._rows.table
        kept = rows.rows[(over > 0) & ~gone]
        kept = kept[~table["context"][kept]]
        table["context"][kept] = True
        self._rows.touch(kept)

    def _done(self, emitted: Emitted | None, late: LateBatch | None) -> StageOutput:
        """Free what is removed, and after an advance raise the output watermark."""
        output = self._finish(emitted, late)
        for queue, holds in ((self._dues, self._is_due), (self._holds, self._is_holding)):
            if len(queue) > 2 * len(self._rows) + _STALE:
                queue.retain(holds)
        if self._has_advanced:
            held = self._lowest_hold()
            if self._spilled:  # until load_holder has had it loaded
                held = min(held, self._spilled.holds.first)
            self.output_watermark = max(self.output_watermark, held)
        return output


def _in_order_of_arrival(keys: Int64Array) -> Int64Array:
    """Return the distinct keys, in order of the first place of each."""
    return keys[np.sort(np.unique(keys, return_index=True)[1])]
