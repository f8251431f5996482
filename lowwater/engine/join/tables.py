"""The operators of tables: rows by primary key from upserts, and groups of rows (T-1 to T-5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.aggregates import AggregateSpec, count, signed_specs
from lowwater.engine.join.two_sided import before
from lowwater.engine.join.upserting import DELETED, Upserting
from lowwater.engine.keyed.operator import KeyedOperator
from lowwater.engine.keyed.ranks import ranks
from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.keyed.sides import Side
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.columns import Column, Types
from lowwater.engine.records.stage_output import NOTHING, Emitted, StageOutput
from lowwater.engine.records.steps import Bundle
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import NONE, run_starts
from lowwater.state.deadlines import Deadlines
from lowwater.state.table import Field
from lowwater.time import (
    END_OF_TIME,
    START_OF_TIME,
    Int64Array,
    saturating_add,
    saturating_add_array,
)
from lowwater.watermark import Hold

_ROWS = HIDDEN + "rows"


@final
class UpsertOperator(KeyedOperator):
    """Keeps the newest row of each key, and emits what changes: old rows retracted, new inserted.

    A step does no I/O, reads no clock and starts no thread.

    Args:
        rules: The rules.
        types: The columns, as far as they are known before any record has come.
        watermark: Input watermark to begin with, int microseconds.
        clock: Clock to begin with, int microseconds.
    """

    def __init__(
        self,
        rules: Upserting,
        types: Types,
        *,
        watermark: int = START_OF_TIME,
        clock: int = START_OF_TIME,
    ) -> None:
        self.rules = rules
        self._rows = KeyedRecords(types, (Field("deleted", np.bool_, False),))
        # The rows that live, if they do not live without end, and those that are deleted.
        self._living, self._deleted = Deadlines(), Deadlines()
        super().__init__(
            (self._rows,), signed=False, retracts=True, watermark=watermark, clock=clock
        )

    def hold(self) -> Hold | None:
        """Return ``None``: the watermark passes through (T-2)."""
        return None

    def waits(self, side: int, rows: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        table, rules = self._rows.table, self.rules
        times, never = table["start"][rows], np.full(len(rows), END_OF_TIME)
        deleted = saturating_add_array(times, saturating_add(rules.keep_deleted_us, 1))
        living = never
        if rules.ttl_us is not None:
            living = saturating_add_array(times, saturating_add(rules.ttl_us, 1))
        return np.where(table["deleted"][rows], deleted, living), never, never

    def readmitted(self, side: int, rows: Int64Array) -> None:
        self._enqueue(rows, self._rows.table["deleted"][rows])

    def _enqueue(self, rows: Int64Array, deleted: NDArray[np.bool_]) -> None:
        times = self._rows.table["start"][rows]
        self._deleted.push(times[deleted], rows[deleted])
        if self.rules.ttl_us is not None:
            self._living.push(times[~deleted], rows[~deleted])

    def _take(self, side: Side, bundle: Bundle) -> StageOutput:
        if not len(bundle):
            return NOTHING
        _, keys = self._encode(bundle)
        deletes = _truths(bundle.values.get(DELETED), len(bundle))
        values = {name: column for name, column in bundle.values.items() if name != DELETED}
        touched, place = np.unique(keys, return_inverse=True)
        old = self._rows.segments.latest(touched, np.full(len(touched), END_OF_TIME))
        chosen, applied, superseded = self._winners(values, place, old)
        self.admitted += applied
        touched, old = touched[chosen >= 0], old[chosen >= 0]
        chosen = chosen[chosen >= 0]
        order = np.argsort(chosen)  # by arrival, whatever the ids of keys
        touched, old, chosen = touched[order], old[order], chosen[order]
        taken = {name: column.take(chosen) for name, column in values.items()}
        new = self._rows.insert(touched, bundle.times[chosen], taken, None)
        self._rows.table["deleted"][new] = deletes[chosen]
        self._enqueue(new, deletes[chosen])
        replaced = old >= 0
        self._rows.remove(old[replaced])
        gone = old[replaced][~self._rows.table["deleted"][old[replaced]]]
        output = self._finish(self._emitted(gone, new[~deletes[chosen]]))
        if not superseded:
            return output
        return replace(output, superseded=superseded)

    def _winners(
        self, values: Mapping[str, Column], place: Int64Array, old: Int64Array
    ) -> tuple[Int64Array, int, int]:
        """Return the upsert that stands of each key, -1 for none, and how many apply or do not.

        An upsert that a later one of the bundle replaces has been applied all the same.
        """
        count_ = len(old)
        arrival = np.arange(len(place), dtype=np.int64)
        chosen = np.full(count_, -1, dtype=np.int64)
        name = self.rules.order
        if name is None:
            chosen[place] = arrival  # the last to be written stays
            return chosen, len(arrival), 0
        held = np.flatnonzero(old >= 0)
        given = values.get(name, Column.of_objects([None] * len(place)))
        if held.size:
            (stored,) = self._rows.kept.take(old[held], [name]).values()
            of_old, of_new = ranks((stored, given), name, "table")
        else:
            of_old, (of_new,) = NONE, ranks((given,), name, "table")
        least = np.full(count_, -2, dtype=np.int64)
        least[held] = of_old
        by_key = np.lexsort((arrival, place))
        key, rank = place[by_key], of_new[by_key]
        # The newest so far of each key, its row included: runs of keys are told apart by an offset.
        span = len(rank) + len(of_old) + 3
        newest = np.maximum.accumulate(key * span + np.maximum(rank, least[key]) + 2)
        newest -= key * span + 2
        so_far = np.where(run_starts(key), least[key], np.append(-2, newest[:-1]))
        stands = rank >= so_far
        chosen[key[stands]] = by_key[stands]
        return chosen, int(np.count_nonzero(stands)), int(np.count_nonzero(~stands))

    def _advance(self, to: int, right: int) -> StageOutput:
        if to <= self.watermark:
            return NOTHING
        self.watermark = self.output_watermark = to
        rows, table = self._rows, self._rows.table
        if to == END_OF_TIME:
            rows.remove(table.live())
            return self._finish(None)
        ttl = self.rules.ttl_us
        over = rows.take_due(self._deleted, before(to, self.rules.keep_deleted_us))
        expired = NONE if ttl is None else rows.take_due(self._living, before(to, ttl))
        # An entry may be of a record whose row, since freed, now holds another one of that time.
        over, expired = over[table["deleted"][over]], expired[~table["deleted"][expired]]
        rows.remove(over)
        rows.remove(expired)
        return self._finish(self._emitted(expired, NONE), None, ((self._living,), (self._deleted,)))

    def _emitted(self, gone: Int64Array, new: Int64Array) -> Emitted | None:
        if not gone.size and not new.size:
            return None
        table = self._rows.table
        rows = np.concatenate((gone, new))
        assert self.keys is not None
        return Emitted(
            table["start"][rows],
            self.keys.decode(table["key"][rows]),
            self._rows.kept.take(rows),
            signs=repeated(np.array([-1, 1], dtype=np.int8), [len(gone), len(new)]),
        )


@final
class GroupOperator(KeyedOperator):
    """Aggregates the rows of a table by key, and emits what changes (T-3).

    A group without rows is deleted, as in SQL. A step does no I/O, reads no clock and starts no
    thread.

    Args:
        aggregates: The aggregates by name; of a signed input, whatever they are.
        watermark: Input watermark to begin with, int microseconds.
        clock: Clock to begin with, int microseconds.
    """

    def __init__(
        self,
        aggregates: Mapping[str, AggregateSpec],
        *,
        watermark: int = START_OF_TIME,
        clock: int = START_OF_TIME,
    ) -> None:
        specs = signed_specs({**aggregates, _ROWS: count()}, differences=False)
        self._groups = KeyedRecords({}, aggregates=specs)
        self._arrivals = 0
        super().__init__(
            (self._groups,), signed=True, retracts=True, watermark=watermark, clock=clock
        )

    def hold(self) -> Hold | None:
        """Return ``None``: the watermark passes through (T-2)."""
        return None

    def _take_up(self, facts: Mapping[str, int]) -> None:
        self._arrivals = facts["arrivals"]

    def waits(self, side: int, rows: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        never = np.full(len(rows), END_OF_TIME)
        return never, never, never

    def readmitted(self, side: int, rows: Int64Array) -> None:
        """Groups wait for nothing."""

    def _facts(self) -> dict[str, int]:
        return {**super()._facts(), "arrivals": self._arrivals}

    def _take(self, side: Side, bundle: Bundle) -> StageOutput:
        if not len(bundle):
            return NOTHING
        keys, ids = self._encode(bundle)
        groups, table = self._groups, self._groups.table
        first = np.flatnonzero(_first_of_each(ids))
        touched = ids[first]
        rows = groups.segments.latest(touched, np.full(len(touched), END_OF_TIME))
        known = rows >= 0
        held = rows[known]
        gone = Emitted(table["start"][held], keys.decode(touched[known]), self._results(held))
        times = np.full(len(touched), START_OF_TIME, dtype=np.int64)
        place = _places(ids, touched)
        np.maximum.at(times, place, bundle.times)
        # A group's time is that of the latest change: a row of its own for it, found by key.
        fresh = groups.insert(touched[~known], times[~known], {}, None)
        rows[~known] = fresh
        arrival = self._arrivals + np.arange(len(bundle), dtype=np.int64)
        self._arrivals += len(bundle)
        groups.aggregation.add(bundle, None, rows[place], arrival)
        self.admitted += len(place)
        groups.retime(held, times[known])
        groups.touch(rows)
        left = groups.aggregation.results(rows, [_ROWS])[_ROWS].data > 0
        stand = rows[left]
        now = Emitted(table["start"][stand], keys.decode(touched[left]), self._results(stand))
        emitted = _changed(gone, now)
        groups.remove(rows[~left])
        return self._finish(emitted)

    def _results(self, rows: Int64Array) -> dict[str, Column]:
        if not rows.size:
            return {}
        aggregation = self._groups.aggregation
        return aggregation.results(rows, [name for name in aggregation.names if name != _ROWS])

    def _advance(self, to: int, right: int) -> StageOutput:
        if to <= self.watermark:
            return NOTHING
        self.watermark = self.output_watermark = to
        if to == END_OF_TIME:
            self._groups.remove(self._groups.table.live())
        return self._finish(None)


def _changed(gone: Emitted, now: Emitted) -> Emitted | None:
    """Return old rows as retractions and new ones as inserts."""
    parts = [(part, sign) for part, sign in ((gone, -1), (now, 1)) if len(part)]
    if not parts:
        return None
    signs = np.concatenate([np.full(len(part), sign, dtype=np.int8) for part, sign in parts])
    every = [part for part, _ in parts]
    first = every[0]
    columns = [part.columns() for part in every]
    return Emitted(
        np.concatenate([part.times for part in every]),
        tuple(Column.concat(keys) for keys in zip(*(part.keys for part in every), strict=True)),
        {name: Column.concat([each[name] for each in columns]) for name in first.columns()},
        signs=signs,
    )


def _truths(column: Column | None, length: int) -> NDArray[np.bool_]:
    """Return where a column is true; null is not."""
    if column is None:
        return np.zeros(length, dtype=np.bool_)
    truths = column.data.astype(np.bool_)
    return truths if column.valid is None else truths & column.valid


def _first_of_each(ids: Int64Array) -> NDArray[np.bool_]:
    """Return where each id comes for the first time."""
    found = np.zeros(len(ids), dtype=np.bool_)
    found[np.unique(ids, return_index=True)[1]] = True
    return found


def _places(ids: Int64Array, touched: Int64Array) -> Int64Array:
    """Return the place of each id among distinct ones."""
    order = np.argsort(touched)
    return order[np.searchsorted(touched, ids, sorter=order)]
