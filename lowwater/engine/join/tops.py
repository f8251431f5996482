"""The operator of the first rows of each group of a table (T-6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from lowwater.engine.aggregates._order import codes_of, grouped_order, ranks_of
from lowwater.engine.join.topping import Topping
from lowwater.engine.keyed.operator import KeyedOperator, record_hashes, unknown_record
from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.keyed.sides import Side
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.columns import Column, Mask, Types
from lowwater.engine.records.stage_output import NOTHING, Emitted, StageOutput
from lowwater.engine.records.steps import Bundle
from lowwater.kernels.positions import as_positions, repeated
from lowwater.state.arrays import NONE, mixed, run_starts
from lowwater.state.table import Field
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array
from lowwater.watermark import Hold

_HEAD = 1 << 62
"""The rows of a group's head have a ``start`` from here on, the others one below."""
_LAST = np.iinfo(np.int64).max
_WHERE = "top"


@final
class TopOperator(KeyedOperator):
    """Keeps the rows of each group, and emits what changes among its first ones.

    The rows of a group are its *head*, of which each comes before all others, and the others. The
    head has the first rows of the output, and some more: at least twice as many, or the square root
    of the group, when it is made. A row that comes behind the head, or goes from behind it, is not
    compared with anything but the head. Once rows that went have left too few in the head, the
    first of the others are found; so all others are looked at once in so many changes.

    Columns of the table: ``hash`` is that of a row with its time, ``time`` its event time, and
    ``copies`` how often it came: a change may insert a row again before it retracts it. ``start``
    says whether it belongs to the head, and is else a number that rises, so that rows are appended.

    Args:
        rules: The rules.
        types: The columns, as far as they are known before any row has come.
        watermark: Input watermark to begin with, int microseconds.
        clock: Clock to begin with, int microseconds.
    """

    def __init__(
        self,
        rules: Topping,
        types: Types,
        *,
        watermark: int = START_OF_TIME,
        clock: int = START_OF_TIME,
    ) -> None:
        self.rules = rules
        fields = (Field("time", np.int64), Field("copies", np.int64))
        self._rows = KeyedRecords(types, fields, unique=True)
        self._moves = 0
        super().__init__(
            (self._rows,), signed=True, retracts=True, watermark=watermark, clock=clock
        )

    def hold(self) -> Hold | None:
        """Return ``None``: the watermark passes through (T-2)."""
        return None

    def next_due(self) -> int:
        """Return the end of time: no watermark makes a row due."""
        return END_OF_TIME

    def _take_up(self, facts: Mapping[str, int]) -> None:
        self._moves = facts["moves"]

    def waits(self, side: int, rows: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        never = np.full(len(rows), END_OF_TIME)
        return never, never, never

    def readmitted(self, side: int, rows: Int64Array) -> None:
        """Rows wait for nothing."""

    def _facts(self) -> dict[str, int]:
        return {**super()._facts(), "moves": self._moves}

    def _advance(self, to: int, right: int) -> StageOutput:
        if to <= self.watermark:
            return NOTHING
        self.watermark = self.output_watermark = to
        if to == END_OF_TIME:
            self._rows.remove(self._rows.table.live())
        return self._finish(None)

    # -- changes that come ---------------------------------------------------------------------

    def _take(self, side: Side, bundle: Bundle) -> StageOutput:
        if not len(bundle):
            return NOTHING
        _, keys = self._encode(bundle)
        self.admitted += len(bundle)
        gone, come = self._counted(bundle, keys)
        if not gone.size and not len(come):
            return self._finish(None)
        table = self._rows.table
        owners = _in_order_of_arrival(np.concatenate((table["key"][gone], keys[come.places])))
        of_gone, of_come = owners.of[: len(gone)], owners.of[len(gone) :]
        low, high = (np.full(len(owners.keys), bound) for bound in (_HEAD, _LAST))
        heads, sizes, others = self._rows.segments.between(owners.keys, low, high)
        of_heads = repeated(np.arange(len(sizes)), sizes)
        ranks = self._ranks(heads, bundle.values.get(self.rules.by), come.places)
        last = np.full(len(sizes), _LAST)
        behind = others > 0
        last[behind] = _greatest(ranks[: len(heads)], sizes)[behind]
        leads = ranks[len(heads) :] <= last[of_come]
        new = self._inserted(bundle, keys, come, leads)
        of_head = table["start"][gone] >= _HEAD
        is_changed = np.zeros(len(sizes), dtype=np.bool_)
        is_changed[of_come[leads]] = True
        is_changed[of_gone[of_head]] = True
        looked = is_changed[of_heads]
        entries = _Entries(
            np.concatenate((heads[looked], new[leads])),
            np.concatenate((of_heads[looked], of_come[leads])),
            repeated([True, False], [int(looked.sum()), int(leads.sum())]),
        )
        ranks = np.concatenate((ranks[: len(heads)][looked], ranks[len(heads) :][leads]))
        entries = entries.take(self._order(entries.rows, entries.owner, ranks))
        return self._finish(self._changed(entries, owners.keys, gone, behind))

    def _counted(self, bundle: Bundle, keys: Int64Array) -> tuple[Int64Array, _Come]:
        """Count how often rows came; return those that are gone, and those that are new.

        Raises:
            DataError: A row is retracted that never came.
        """
        table = self._rows.table
        by = bundle.values.get(self.rules.by)
        nulls = None if by is None else by.nulls()
        if by is None:
            places = NONE
        else:
            places = np.arange(len(bundle)) if nulls is None else np.flatnonzero(~nulls)
        if not places.size:
            return NONE, _Come(NONE, NONE, NONE)
        hashes = mixed([record_hashes(bundle), bundle.times]).view(np.int64)
        signs = np.ones(len(bundle), dtype=np.int64)
        if bundle.signs is not None:
            signs = bundle.signs.astype(np.int64)
        places = places[np.lexsort((hashes[places], keys[places]))]  # stable: by arrival
        starts = np.flatnonzero(run_starts(keys[places], hashes[places]))
        net = np.add.reduceat(signs[places], starts)
        places = places[starts]
        order = np.flatnonzero(net)
        order = order[np.argsort(places[order])]
        places, net = places[order], net[order]
        rows = self._rows.equal_to(keys[places], hashes[places])
        held = rows >= 0
        copies = net + np.where(held, table["copies"][rows], 0)
        if (copies < 0).any():
            raise unknown_record(bundle, places[copies < 0], _WHERE)
        table["copies"][rows[held]] = copies[held]
        left = held & (copies == 0)
        self._rows.touch(rows[held & ~left])
        come = ~held & (copies > 0)
        return rows[left], _Come(places[come], hashes[places[come]], copies[come])

    def _ranks(self, rows: Int64Array, by: Column | None, places: Int64Array) -> Int64Array:
        """Return integers that are smaller the earlier rows come: of rows here, then of new ones.

        Args:
            rows: The rows that are here.
            by: The column of the bundle that decides.
            places: The places of new rows in the bundle.
        """
        parts: list[Column] = []
        if rows.size:
            parts += self._rows.kept.take(rows, [self.rules.by]).values()
        if by is not None and places.size:
            parts.append(by.take(places))
        if not parts:
            return NONE
        ranks = ranks_of(Column.concat(parts).data)
        return ranks if self.rules.reverse else ~ranks

    def _inserted(self, bundle: Bundle, keys: Int64Array, come: _Come, leads: Mask) -> Int64Array:
        """Insert new rows, in the head or not; return them."""
        if not len(come):
            return NONE
        starts = self._numbers(len(come)) + np.where(leads, _HEAD, 0)
        columns = {name: column.take(come.places) for name, column in bundle.values.items()}
        rows = self._rows.insert(keys[come.places], starts, columns, come.hashes)
        self._rows.table["time"][rows] = bundle.times[come.places]
        self._rows.table["copies"][rows] = come.copies
        return rows

    def _numbers(self, count: int) -> Int64Array:
        """Return the next numbers, which rise."""
        first, self._moves = self._moves, self._moves + count
        return np.arange(first, self._moves, dtype=np.int64)

    def _order(self, rows: Int64Array, owner: Int64Array, ranks: Int64Array) -> Int64Array:
        """Return the order of rows: by owner, then by rank, by ties, and by the primary key."""
        order = grouped_order(owner, ranks)
        if not len(order):
            return order
        equal = ~run_starts(owner[order], ranks[order])
        places = np.flatnonzero(equal | np.append(equal[1:], False))
        if places.size:
            some = order[places]
            names = (*self.rules.ties, *self.rules.key)
            columns = self._rows.kept.take(rows[some], names).values()
            codes = [
                code
                for column in columns
                for code in codes_of(column.data, column.valid, where=_WHERE)
            ]
            order[places] = some[np.lexsort((*codes[::-1], ranks[some], owner[some]))]
        return order

    # -- what changes --------------------------------------------------------------------------

    def _changed(
        self, entries: _Entries, keys: Int64Array, gone: Int64Array, behind: Mask
    ) -> Emitted | None:
        """Fit the heads to what came and went; return the changes of the first rows.

        Args:
            entries: Rows of the heads and new ones that may belong to them, in order.
            keys: The keys of their owners.
            gone: The rows that are gone, of the heads and others.
            behind: Which owners have rows that are not in the head.
        """
        rules, records, many = self.rules, self._rows, len(keys)
        before = entries.take(np.flatnonzero(entries.is_old)).first(rules.most)
        # A new row behind the last of a head belongs to the others: some may come before it.
        at = np.arange(len(entries.rows))
        last_old = np.full(many, -1)
        last_old[entries.owner[entries.is_old]] = at[entries.is_old]
        falls = ~entries.is_old & behind[entries.owner] & (at > last_old[entries.owner])
        falling = entries.rows[falls]
        records.move(falling, self._numbers(len(falling)))
        stays = ~falls & ~np.isin(entries.rows, gone)
        records.remove(gone)
        entries = entries.take(np.flatnonzero(stays))
        sizes = np.bincount(entries.owner, minlength=many)
        touched = np.zeros(many, dtype=np.bool_)
        touched[before.owner] = touched[entries.owner] = True
        totals = records.segments.counts(keys)
        aims = np.maximum(2 * rules.most, np.sqrt(totals).astype(np.int64))
        short = touched & (sizes < np.minimum(rules.most, totals))
        over = sizes > 2 * aims
        if over.any():
            behind_aim = over[entries.owner] & (entries.places() >= aims[entries.owner])
            records.move(entries.rows[behind_aim], self._numbers(int(behind_aim.sum())))
        after = entries.first(rules.most)
        if short.any():
            filled = self._refilled(keys, np.flatnonzero(short), aims - sizes)
            after = after.beside(filled, sizes, rules.most)
        return self._differences(before, after, keys)

    def _refilled(self, keys: Int64Array, short: Int64Array, wanted: Int64Array) -> _Entries:
        """Move the first of the other rows to the heads that have too few; return them in order.

        Args:
            keys: The keys of the owners.
            short: The owners whose heads have too few.
            wanted: How many rows the head of each owner lacks.
        """
        low, high = (np.full(len(short), bound) for bound in (START_OF_TIME, _HEAD - 1))
        rows, counts, _ = self._rows.segments.between(keys[short], low, high)
        owner = repeated(short, counts)
        ranks = self._ranks(rows, None, NONE)
        order = grouped_order(owner, ranks)
        owner, rows, ranks = owner[order], rows[order], ranks[order]
        # Only rows whose rank is that of the last one wanted, or earlier, are compared further.
        begins = np.cumsum(counts) - counts
        last = begins + np.minimum(wanted[short], counts) - 1
        bounds = repeated(ranks[last], counts)
        some = np.flatnonzero(ranks <= bounds)
        owner, rows, ranks = owner[some], rows[some], ranks[some]
        entries = _Entries(rows, owner, np.zeros(len(rows), dtype=np.bool_))
        entries = entries.take(self._order(rows, owner, ranks))
        entries = entries.take(np.flatnonzero(entries.places() < wanted[entries.owner]))
        self._rows.move(entries.rows, self._numbers(len(entries.rows)) + _HEAD)
        return entries

    def _differences(self, before: _Firsts, after: _Firsts, keys: Int64Array) -> Emitted | None:
        """Return first rows whose rank or content is no longer right, and those that are."""
        span = 1 + max(before.place.max(initial=0), after.place.max(initial=0))
        old, new = (first.owner * span + first.place for first in (before, after))
        _, same_old, same_new = np.intersect1d(old, new, assume_unique=True, return_indices=True)
        same = before.rows[same_old] == after.rows[same_new]
        retracted = before.without(same_old[same])
        inserted = after.without(same_new[same])
        counts = [len(retracted.rows), len(inserted.rows)]
        if not sum(counts):
            return None
        assert self.keys is not None
        rows = np.concatenate((retracted.rows, inserted.rows))
        rank = Column(np.concatenate((retracted.place, inserted.place)) + 1)
        visible = [name for name in self._rows.kept.names if not name.startswith(HIDDEN)]
        columns = self._rows.kept.take(rows, visible)
        times = self._rows.table["time"][rows]
        signs = repeated(np.array([-1, 1], dtype=np.int8), counts)
        if self.rules.is_whole:
            return Emitted(times, (rank,), columns, signs=signs)
        owners = np.concatenate((retracted.owner, inserted.owner))
        return Emitted(
            times, self.keys.decode(keys[owners]), {self.rules.rank: rank, **columns}, signs=signs
        )


@final
@dataclass(frozen=True, slots=True)
class _Come:
    """New rows: their places in the bundle, their hashes, and how often each came."""

    places: Int64Array
    hashes: Int64Array
    copies: Int64Array

    def __len__(self) -> int:
        return len(self.places)


@final
@dataclass(frozen=True, slots=True)
class _Owners:
    """Distinct keys in order of arrival, and for each of what they are of, its place there."""

    keys: Int64Array
    of: Int64Array


@final
@dataclass(frozen=True, slots=True)
class _Firsts:
    """The first rows of owners: their owners, rising, and their places from 0."""

    rows: Int64Array
    owner: Int64Array
    place: Int64Array

    def without(self, some: Int64Array) -> _Firsts:
        kept = np.ones(len(self.rows), dtype=np.bool_)
        kept[some] = False
        return _Firsts(self.rows[kept], self.owner[kept], self.place[kept])

    def beside(self, others: _Entries, sizes: Int64Array, most: int) -> _Firsts:
        """Return these and rows that follow them, in order.

        Args:
            others: The rows.
            sizes: How many rows of each owner are before its first one.
            most: How many there are at most of each owner.
        """
        place = others.places() + sizes[others.owner]
        kept = np.flatnonzero(place < most)
        rows = np.concatenate((self.rows, others.rows[kept]))
        owner = np.concatenate((self.owner, others.owner[kept]))
        place = np.concatenate((self.place, place[kept]))
        order = np.lexsort((place, owner))
        return _Firsts(rows[order], owner[order], place[order])


@final
@dataclass(frozen=True, slots=True)
class _Entries:
    """Rows in the order of their owners, then in that of the rows of each.

    Args:
        rows: The rows.
        owner: The number of the owner of each.
        is_old: Which were in the head before.
    """

    rows: Int64Array
    owner: Int64Array
    is_old: Mask

    def take(self, places: Int64Array) -> _Entries:
        return _Entries(self.rows[places], self.owner[places], self.is_old[places])

    def places(self) -> Int64Array:
        """Return the place of each among those of its owner, from 0."""
        at = np.arange(len(self.rows))
        if not at.size:
            return at
        return at - np.maximum.accumulate(np.where(run_starts(self.owner), at, 0))

    def first(self, most: int) -> _Firsts:
        """Return the first ones of each owner."""
        place = self.places()
        kept = np.flatnonzero(place < most)
        return _Firsts(self.rows[kept], self.owner[kept], place[kept])


def _in_order_of_arrival(keys: Int64Array) -> _Owners:
    distinct, first, of = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return _Owners(distinct[order], place[of])


def _greatest(values: Int64Array, lengths: Int64Array) -> Int64Array:
    """Return the greatest value of each stretch; the least of all for an empty one."""
    greatest = np.full(len(lengths), np.iinfo(np.int64).min)
    filled = np.flatnonzero(lengths)
    if filled.size:
        begins = (np.cumsum(lengths) - lengths)[filled]
        greatest[filled] = np.maximum.reduceat(values, as_positions(begins))
    return greatest
