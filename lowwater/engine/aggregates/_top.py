"""The records with the largest or smallest values of a column: ``lw.top(3, by="price")``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from lowwater.engine.aggregates._base import AggregateInput, Further, Read, State, StateColumn
from lowwater.engine.aggregates._column_values import (
    further_columns,
    further_of,
    further_values,
    list_column,
)
from lowwater.engine.aggregates._order import codes_of, grouped_order, ranks_of, spellings
from lowwater.engine.records.columns import Column, Mask
from lowwater.kernels import kernels
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import run_starts
from lowwater.state.bag import Bag
from lowwater.time import Int64Array

_SPARE = 1024
_LOWEST = np.iinfo(np.int64).min
_WHERE = "aggregate(top)"


@final
class Top:
    """Lists the records that come first in an order; an empty list for none.

    The order is by value, then by the first further columns, then by all other fields, so that it
    never depends on how records came. Parallel bags hold the fields of records that may still be
    among the first; the others are dropped lazily, when the bags have doubled since the last pass.
    A row remembers the last value that was among its first n: records beyond it are not kept.

    Args:
        type: The Arrow type of the values, if known.
        dtype: Their dtype.
        also: The types of the further columns.
        most: How many records.
        fields: The fields of a record: its name, and the number of its further column; ``None``
            for the values themselves.
        ties: How many further columns order records of equal values.
        with_ties: Whether records that are equal to the last one in the order are listed, too.
        smallest: Whether small values come first.
    """

    def __init__(
        self,
        type: pa.DataType | None,
        dtype: DTypeLike,
        also: Sequence[Read] = (),
        *,
        most: int,
        fields: Sequence[tuple[str, int | None]],
        ties: int,
        with_ties: bool,
        smallest: bool,
    ) -> None:
        self._type = type
        self._also = tuple(also)
        self._most = most
        self._fields = tuple(fields)
        self._ties = ties
        self._with_ties = with_ties
        self._smallest = smallest
        self._is_number = np.dtype(dtype) != object
        self.notes = {"kept": 0}
        # Ranks of other values mean nothing beyond one array, and those of ints none for floats.
        self._floor = f"floor {np.dtype(dtype).str}"
        self._bags = (StateColumn("value", dtype, None, bag=True), *further_columns(also))
        floor = (StateColumn(self._floor, np.int64, _LOWEST),) if self._is_number else ()
        self.columns = (*self._bags, *floor)

    def add(self, state: State, batch: AggregateInput) -> None:
        if batch.values is None or not len(batch.rows):
            return
        if self._is_number:
            reaches = self._ranks(batch.values) >= state[self._floor][batch.rows]
            if not reaches.all():
                batch = batch.where(reaches)
        bag: Bag = state["value"]
        self.notes["kept"] = min(self.notes["kept"], len(bag))  # windows may have closed since
        arrival = batch.arrival
        given = {"value": batch.values, **further_values(batch)}
        for column in self._bags:
            state[column.name].append(batch.rows, given[column.name], arrival)
        if len(bag) > 2 * self.notes["kept"] + _SPARE:
            self._drop_others(state)

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        for column in self._bags:
            state[column.name].merge(into, rows)
        if self._is_number:
            floors = state[self._floor]
            kernels().max_at(floors, into, floors[rows])

    def outlasts(self, state: State, lost: AggregateInput) -> Mask:
        """Return which lost records come after the first of their rows, as far as that is known."""
        if lost.values is None or not self._is_number:
            return np.zeros(len(lost.rows), dtype=np.bool_)
        found: Mask = self._ranks(lost.values) < state[self._floor][lost.rows]
        return found

    def result(self, state: State, rows: Int64Array) -> Column:
        held, owner = self._held(state, rows, np.arange(len(rows), dtype=np.int64))
        first, _ = self._first(owner, held)
        lengths = np.bincount(owner[first], minlength=len(rows)).astype(np.int64)
        also = further_of(held)
        fields = {}
        for name, number in self._fields:
            if number is None:
                fields[name] = Column(held["value"][first], type=self._type)
                continue
            values, valid = also[number]
            kept = None if valid is None else valid[first]
            fields[name] = Column(values[first], kept, self._also[number][0])
        return list_column(fields, lengths)

    def _drop_others(self, state: State) -> None:
        """Drop records that are not among the first of their row, and raise the floors."""
        bag: Bag = state["value"]
        rows = bag.filled_rows()
        held, owner = self._held(state, rows, rows)
        first, ends = self._first(owner, held)
        kept = np.zeros(len(owner), dtype=np.bool_)
        kept[first] = True
        _, arrivals, counts = bag.gather_with_arrivals(rows)
        for column in self._bags:
            state[column.name].keep(rows, (held[column.name], arrivals, counts), kept)
        if self._is_number:
            floors = state[self._floor]
            kernels().max_at(floors, owner[ends], self._ranks(held["value"][ends]))
        self.notes["kept"] = len(bag)

    def _held(
        self, state: State, rows: Int64Array, names: Int64Array
    ) -> tuple[dict[str, NDArray[Any]], Int64Array]:
        held = {column.name: state[column.name].gather(rows)[0] for column in self._bags}
        return held, repeated(names, state["value"].counts(rows))

    def _ranks(self, values: NDArray[Any]) -> Int64Array:
        """Return integers that are larger the earlier values come."""
        ranks = ranks_of(values)
        return ~ranks if self._smallest else ranks

    def _first(
        self, owner: Int64Array, held: dict[str, NDArray[Any]]
    ) -> tuple[Int64Array, Int64Array]:
        """Return where the first records of each owner are, in order, and each n-th of them."""
        if not len(owner):
            return owner, owner
        ranks = ~self._ranks(held["value"])
        order = grouped_order(owner, ranks)
        also = further_of(held)
        tied = self._sort_ties(order, owner, ranks, held["value"], also)
        rising = owner[order]
        begins = run_starts(rising)
        place = np.arange(len(order)) - np.maximum.accumulate(
            np.where(begins, np.arange(len(order)), 0)
        )
        ends = order[place == self._most - 1]
        if not self._with_ties:
            return order[place < self._most], ends
        # Records equal to the one before in the order belong together.
        starts = run_starts(rising, ranks[order])
        if len(tied):
            columns = (owner, ranks, *self._tie_ranks(also))
            starts[tied] |= run_starts(*(codes[order[tied]] for codes in columns))
        first_of_run = np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
        return order[place[first_of_run] < self._most], ends

    def _tie_ranks(self, also: Sequence[Further]) -> list[Int64Array]:
        return [code for column in also[: self._ties] for code in codes_of(*column, where=_WHERE)]

    def _sort_ties(
        self,
        order: Int64Array,
        owner: Int64Array,
        ranks: Int64Array,
        values: NDArray[Any],
        also: Sequence[Further],
    ) -> Int64Array:
        """Sort records with equal values by the other fields, in place; return their places."""
        equal = ~run_starts(owner[order], ranks[order])
        places = np.flatnonzero(equal | np.append(equal[1:], False))
        if not len(places) or not (also or spellings(values) is not None):
            return places
        rows = order[places]
        some = [(data[rows], None if valid is None else valid[rows]) for data, valid in also]
        codes = (code for each in some for code in codes_of(*each, where=_WHERE))
        columns = [owner[rows], ranks[rows], *codes]
        for data, _ in (*some, (values[rows], None)):
            if (texts := spellings(data)) is not None:
                columns.append(texts)
        order[places] = rows[np.lexsort(columns[::-1])]
        return places
