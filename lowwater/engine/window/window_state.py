"""The open windows of an operator: their rows, and how those are found, ordered and released."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import final

import numpy as np

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.records.columns import Column, Mask
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.records.steps import MergedWindows
from lowwater.engine.window.aggregation import Aggregation
from lowwater.engine.window.placement import Placement, nested_windows
from lowwater.engine.window.retractions import ShownPanes
from lowwater.engine.window.windowing import Windowing
from lowwater.kernels import count_records, kernels
from lowwater.state.arrays import Scratch, distinct, sort_by_key_and_time, widened
from lowwater.state.journal import Journal
from lowwater.state.row_codec import RowCodec
from lowwater.state.segments import Segments
from lowwater.state.table import Field, Index, RowTable
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array
from lowwater.triggers._machine import Machine

_GARBAGE = 1 << 16
_WINDOW = ("key", "start", "end")
PLACE = "derived:place"
"""A stored column: the place of a window's key in the order of first-seen keys."""
# Made again from the rest; "shown" are panes, which are stored with their window.
_NOT_STORED = frozenset({"due", "clock_due", "hold", "turn", "shown"})


@final
class WindowState:
    """A row per window that has state: open, or closed and not yet expired.

    Columns of ``table``: ``key`` (id), ``start``, ``end``; ``new`` (number of elements that no pane
    has emitted yet), ``on_time_new`` (whether one of them came before completion), ``index`` and
    ``on_time_index`` (of the next and the last pane), ``finished``, ``timestamp`` (S-H1, if not
    ``"end"``), the valid entries in the queues of the schedule (``due``, ``clock_due``, ``hold``),
    and the columns of the trigger machine and the aggregates. ``queued`` names those of the queues.

    ``nested``: the windows, if they contain each other and elements are kept in the shortest one.
    """

    def __init__(self, windowing: Windowing, aggregates: Mapping[str, AggregateSpec]) -> None:
        self.windowing = windowing
        self.mode = windowing.mode
        self.nested = nested_windows(windowing, aggregates)
        self.placement = Placement(windowing, self.nested)
        self.merging = windowing.merging
        self.machine = Machine(windowing.trigger, merging=self.merging is not None)
        self.rule = windowing.timestamps
        self.no_timestamp = START_OF_TIME if self.rule == "latest" else END_OF_TIME
        fields = [
            Field("key", np.int64),
            Field("start", np.int64),
            Field("end", np.int64),
            Field("new", np.int64),
            Field("on_time_new", np.bool_, False),
            Field("index", np.int32),
            Field("on_time_index", np.int32, -1),
            Field("finished", np.bool_, False),
            Field("due", np.int64, END_OF_TIME),
        ]
        if self.rule != "end":
            fields.append(Field("timestamp", np.int64, self.no_timestamp))
        if self.machine.has_deadlines:
            fields.append(Field("clock_due", np.int64, END_OF_TIME))
        fields.append(Field("hold", np.int64, END_OF_TIME))
        fields += [Field(c.name, c.dtype, c.fill) for c in self.machine.columns]
        self.queued = ("due", "hold", *(("clock_due",) if self.machine.has_deadlines else ()))
        self.table = RowTable(fields)
        # All windows that do not merge are found by value; of those that do, only finished ones:
        # an element has to find the window it merges with, whatever that one's bounds.
        self.index = Index(self.table, _WINDOW)
        self.segments = (
            None
            if self.merging is None
            else Segments(self.table, disjoint=self.merging.merge_scope == "overlapping")
        )
        self.aggregation = Aggregation(aggregates, self.table)
        self.shown: ShownPanes | None = None
        if self.mode == "retracting":
            self.shown = ShownPanes(self.table, self.aggregation.lists)
        self.replaced: list[MergedWindows] | None = None
        self.codec = RowCodec(
            self.table,
            left_out=_NOT_STORED,
            derived={PLACE: self.places},
            bags=self.aggregation.bags,
            nested=self.shown,
        )
        self.keys: KeyDictionary | None = None
        # The key columns that were encoded last, and their ids: windows are loaded for a bundle
        # before it is taken. Until keys are forgotten, whose ids others may get.
        self._encoded: tuple[tuple[Column, ...], Int64Array] | None = None
        self._journal: Journal | None = None
        self._on_forgetting: Callable[[Mask], None] | None = None
        self.turn: int | None = None
        self.scratch = Scratch()
        self.finished_rows = 0
        self._key_rows: Int64Array = np.zeros(64, dtype=np.int64)
        self._key_place: Int64Array = np.zeros(64, dtype=np.int64)
        self._live_keys = 0
        self.places_given = 0

    @property
    def open_windows(self) -> int:
        """How many windows are open."""
        return len(self.table) - self.finished_rows

    def note_changes(self, windows: Journal, on_forgetting: Callable[[Mask], None]) -> None:
        """Record changed rows, and report keys that are about to be forgotten."""
        self._journal = windows
        self._on_forgetting = on_forgetting

    def note_replaced(self) -> None:
        """Note which windows with panes merged into others; a stage that retracts says so itself.

        Call it before the first step, and not with a store: this is not stored.
        """
        if self.merging is not None and self.shown is None:
            self.shown = ShownPanes(self.table)
            self.replaced = []

    def touch(self, rows: Int64Array) -> None:
        """Record that rows change in this step."""
        if self._journal is not None:
            self._journal.touch(rows)
        if self.turn is not None:
            self.table["turn"][rows] = self.turn

    def note_turns(self) -> None:
        """Record in which turn each row was touched last: the value of ``turn`` then."""
        self.table.add_field(Field("turn", np.int32))
        self.turn = 1  # what was there before has been touched in no turn

    @property
    def nbytes(self) -> int:
        """Bytes of memory that live rows and their keys take, about."""
        rows = len(self.table) * self.table.row_bytes
        rows += self.aggregation.nbytes
        if self.shown is not None:
            rows += len(self.shown) * self.shown.table.row_bytes
            rows += sum(bag.nbytes for bag in self.shown.bags.values())
        return rows + self.key_bytes

    @property
    def key_bytes(self) -> int:
        """How many of these bytes keys take."""
        return 0 if self.keys is None else self.keys.nbytes + 2 * self._key_rows.nbytes

    def rebuild(self, rows: Int64Array, places: Int64Array, places_given: int) -> None:
        """Rebuild what is not stored: how rows are found, and what is counted per key.

        Args:
            rows: The live rows.
            places: The place of each one's key in the order of first-seen keys.
            places_given: How many places have been given.
        """
        count_records(len(rows))
        table = self.table
        keys = table["key"][rows]
        self._cover_keys()
        kernels().add_at(self._key_rows, keys, 1)
        self._key_place[keys] = places
        self._live_keys = int(np.count_nonzero(self._key_rows))
        self.places_given = places_given
        finished = rows[table["finished"][rows]]
        self.finished_rows = len(finished)
        if self.segments is None:
            self.index.insert(rows)
        else:
            self.index.insert(finished)
            self.segments.insert(rows[~table["finished"][rows]])

    def held_keys(self) -> Int64Array:
        """Return the ids of the keys that have windows, rising. O(ids given)."""
        return np.flatnonzero(self._key_rows)

    def encode_keys(self, columns: tuple[Column, ...]) -> Int64Array:
        """Return the key ids of a bundle's elements; they are kept until the bundle is taken."""
        encoded = self._encoded
        if encoded is None or encoded[0] is not columns:
            encoded = self._encoded = columns, self.ids_of(columns)
        return encoded[1]

    def ids_of(self, columns: tuple[Column, ...]) -> Int64Array:
        """Return the ids of keys."""
        if self.keys is None:
            self.keys = KeyDictionary(len(columns))
        return self.keys.encode(columns)

    def decode_keys(self, rows: Int64Array) -> tuple[Column, ...]:
        """Return the key columns of rows."""
        return () if self.keys is None else self.keys.decode(self.table["key"][rows])

    def hold_keys(self, rows: Int64Array, seen: Int64Array) -> None:
        """Count new rows for their keys.

        Args:
            rows: The new rows.
            seen: Key ids of the elements admitted, in order: keys that hold no state yet take
                their places in the order of first-seen keys by it.
        """
        self._cover_keys()
        keys = self.table["key"][rows]
        if (self._key_rows[keys] == 0).any():  # of few rows; most keys have windows already
            fresh = seen[self._key_rows[seen] == 0]
            newcomers, _ = self.scratch.unique(fresh, len(self._key_rows))
            self._key_place[newcomers] = self.places_given + np.arange(len(newcomers))
            self.places_given += len(newcomers)
            self._live_keys += len(newcomers)
        kernels().add_at(self._key_rows, keys, 1)

    def order(self, rows: Int64Array, due: Int64Array | None = None) -> Int64Array:
        """Return the order that sorts rows by (due, end, start, first-seen key)."""
        table = self.table
        if len(rows) == 1:
            return np.zeros(1, dtype=np.int64)
        by = [self._key_place[table["key"][rows]]]
        start, end = table["start"][rows], table["end"][rows]
        if _varies(end - start):
            by.append(start)
        by.append(end)
        if due is not None and _varies(due - end):
            by.append(due)
        by = [column for column in by if _varies(column)]
        if len(by) > 2:
            return np.lexsort(by)
        if len(by) == 2:
            return sort_by_key_and_time(by[1], by[0])
        return kernels().argsort(by[0] if by else end)

    def places(self, rows: Int64Array) -> Int64Array:
        """Return the rank of each row's key in the order of first-seen keys."""
        return self._key_place[self.table["key"][rows]]

    def finish(self, rows: Int64Array) -> None:
        """Close windows whose trigger has finished: only that fact is kept (S-O7)."""
        if not rows.size:
            return
        self.aggregation.reset(rows)
        if self.shown is not None:
            self.shown.drop(rows)
        table = self.table
        table["new"][rows] = 0
        table["on_time_new"][rows] = False
        table["finished"][rows] = True
        self.finished_rows += len(rows)
        if self.segments is not None:
            self.segments.remove(rows)
            self.index.insert(rows)

    def drop(self, rows: Int64Array) -> None:
        """Release all state of windows that have expired or been merged away."""
        if not rows.size:
            return
        keys = self.table["key"][rows]
        if self.shown is not None:
            self.shown.drop(rows)
        self.evict(rows)
        kernels().add_at(self._key_rows, keys, -1)
        gone = keys[self._key_rows[keys] == 0]
        if gone.size:
            self._live_keys -= len(distinct(gone))

    def evict(self, rows: Int64Array) -> None:
        """Release the rows of windows that have no panes to retract; their keys stay known."""
        finished = self.table["finished"][rows]
        self.finished_rows -= int(finished.sum())
        if self.segments is None:
            self.index.remove(rows)
        else:
            self.segments.remove(rows[~finished])
            self.index.remove(rows[finished])
        self.touch(rows)
        self.aggregation.release(rows)
        # Queues are lazy: a stale entry must not look valid once another window has this row.
        for name in self.queued:
            self.table[name][rows] = START_OF_TIME
        self.table.release(rows)

    def readmit(self, rows: Int64Array) -> None:
        """Index rows again whose windows were evicted and have been filled since."""
        finished = self.table["finished"][rows]
        self.finished_rows += int(finished.sum())
        if self.segments is None:
            self.index.insert(rows)
        else:
            self.segments.insert(rows[~finished])
            self.index.insert(rows[finished])
        self.touch(rows)

    def count_keys(
        self, keys: Int64Array, windows: Int64Array, places: Int64Array | None = None
    ) -> None:
        """Count windows that are not in memory for their keys.

        Args:
            keys: Distinct key ids.
            windows: How many more, or fewer, each has.
            places: Their places in the order of first-seen keys.
        """
        self._cover_keys()
        before = self._key_rows[keys] > 0
        self._key_rows[keys] += windows
        after = self._key_rows[keys] > 0
        self._live_keys += int(after.sum()) - int(before.sum())
        if places is not None:
            self._key_place[keys] = places

    def rows_of(self, keys: Int64Array) -> Int64Array:
        """Return how many windows keys have, here and elsewhere."""
        self._cover_keys()
        return self._key_rows[keys]

    def place_of(self, keys: Int64Array) -> Int64Array:
        """Return the places of keys in the order of first-seen keys."""
        self._cover_keys()
        return self._key_place[keys]

    def forget_keys(self) -> None:
        """Recycle the ids of keys without rows, once they are many: amortised O(1) per key."""
        self._encoded = None
        if self.keys is None or len(self.keys) <= 2 * self._live_keys + _GARBAGE:
            return
        self._cover_keys()
        live = self._key_rows > 0
        if self._on_forgetting is not None:
            self._on_forgetting(live)
        self.keys.retain(live)

    def _check(self) -> None:
        """Assert every invariant; print the structure if one does not hold. O(windows)."""
        table = self.table
        rows = table.live()
        key, start, end, finished = (table[name][rows] for name in (*_WINDOW, "finished"))
        ended, still_open = rows[finished], rows[~finished]
        try:
            table._check()
            self.index._check()
            assert self.finished_rows == len(ended)
            assert (start < end).all()
            assert (table["new"][rows] >= 0).all()
            assert (table["new"][rows] > 0)[table["on_time_new"][rows]].all()
            assert (table["new"][ended] == 0).all()  # S-O7
            assert (table["on_time_index"][rows] < table["index"][rows]).all()
            if self.segments is None:
                assert (self.index.find(key, start, end) == rows).all()
                assert len(self.index) == len(rows)
            else:
                self.segments._check()
                assert len(self.index) == len(ended)
                found = self.index.find(key[finished], start[finished], end[finished])
                assert (found == ended).all()
                held = self.segments.of_keys(distinct(key[~finished]))
                assert set(held.tolist()) == set(still_open.tolist())
                assert len(self.segments) == len(still_open)
            for bag in self.aggregation.bags().values():
                bag._check()
                assert set(bag.filled_rows().tolist()) <= set(still_open.tolist())
            if self.shown is not None:
                self.shown._check(rows)
        except AssertionError:
            print(f"rows={rows.tolist()} finished={ended.tolist()}")
            print({name: column[rows].tolist() for name, column in table.columns.items()})
            raise

    def _check_keys(self, away: Int64Array) -> None:
        """Assert that keys are counted, known, and each in a place of its own.

        Args:
            away: How many windows of each key are not in memory.
        """
        counts = np.bincount(
            self.table["key"][self.table.live()], minlength=max(len(self._key_rows), len(away))
        )
        counts[: len(away)] += away
        assert np.array_equal(counts[: len(self._key_rows)], self._key_rows)
        assert not counts[len(self._key_rows) :].any()
        live = np.flatnonzero(self._key_rows)
        assert self._live_keys == len(live)
        places = self._key_place[live]
        assert len(np.unique(places)) == len(places)
        assert ((places >= 0) & (places < self.places_given)).all()
        if self.keys is not None:
            assert (live < self.keys.capacity).all()
            decoded = list(
                zip(*(each.to_list(exact=True) for each in self.keys.decode(live)), strict=True)
            )
            assert len(set(decoded)) == len(decoded) == len(live)

    def _cover_keys(self) -> None:
        need = 0 if self.keys is None else self.keys.capacity
        if need > len(self._key_rows):
            room = max(need, 2 * len(self._key_rows))
            self._key_rows = widened(self._key_rows, room)
            self._key_place = widened(self._key_place, room)


def _varies(column: Int64Array) -> bool:
    return bool((column != column[0]).any())
