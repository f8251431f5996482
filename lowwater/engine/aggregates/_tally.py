"""Counts of distinct values: the state of quantiles and of the most frequent values.

A value that is retracted is counted down, so these aggregates subtract (S-C4). Their results depend
on the counts alone, and so not on the order in which values came.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from lowwater.engine.aggregates._base import AggregateInput, State, StateColumn
from lowwater.engine.aggregates._column_values import list_column
from lowwater.engine.aggregates._order import grouped_order, spellings
from lowwater.engine.records.columns import Column, Mask
from lowwater.kernels import kernels
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import distinct, run_starts
from lowwater.state.bag import Bag
from lowwater.time import Int64Array

_SPARE = 64


@final
@dataclass(frozen=True, slots=True)
class Counts:
    """How often the distinct values of rows occur, by row, and in a row by value.

    Args:
        owner: The place of the row of each, int64, shape (n,), rising.
        values: The values, shape (n,); within a row they rise in the order of their ranks.
        counts: How often each occurs, int64, shape (n,), above 0.
    """

    owner: Int64Array
    values: NDArray[Any]
    counts: Int64Array


class Summary(Protocol):
    """What an aggregate makes of the counts of the values of each row."""

    def __call__(self, counts: Counts, rows: int) -> Column:
        """Return the result of each of so many rows."""
        ...


@final
@dataclass(frozen=True, slots=True)
class MostFrequent:
    """Lists the values with the largest counts: ``{"value": ..., "count": ...}``.

    Args:
        most: How many.
        type: The Arrow type of the values, if known.
    """

    most: int
    type: pa.DataType | None

    def __call__(self, counts: Counts, rows: int) -> Column:
        """Return the list of each row: the most frequent first, at equal counts the smaller."""
        order = np.lexsort((np.arange(len(counts.owner)), -counts.counts, counts.owner))
        owner = counts.owner[order]
        place = np.arange(len(order)) - np.searchsorted(owner, owner)
        order = order[place < self.most]
        lengths = np.bincount(counts.owner[order], minlength=rows).astype(np.int64)
        fields = {
            "value": Column(counts.values[order], type=self.type),
            "count": Column(counts.counts[order]),
        }
        return list_column(fields, lengths)


@final
class Tally:
    """Counts distinct values and summarises the counts.

    Two parallel bags hold values and how often they came. Equal values of a row are added up when
    the row is read, and when its values have doubled since the last pass. So a row holds at most
    twice its distinct values (plus a constant), and a pass costs amortised O(log n) per value.
    Equal values that are written differently are counted apart until a result is made, so that one
    that is retracted does not stand for another.

    Args:
        dtype: The dtype of what is counted.
        ranks: Returns integers in the order of values, equal where these are.
        summary: Makes the results.
        coded: Returns what is counted for values; ``None``: the values themselves.
    """

    def __init__(
        self,
        dtype: DTypeLike,
        ranks: Callable[[NDArray[Any]], Int64Array],
        summary: Summary,
        coded: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
    ) -> None:
        self._ranks = ranks
        self._summary = summary
        self._coded = coded
        self.columns = (
            StateColumn("values", dtype, None, bag=True),
            StateColumn("counts", np.int64, None, bag=True),
            StateColumn("distinct", np.int64),
        )

    def add(self, state: State, batch: AggregateInput) -> None:
        if batch.values is None or not len(batch.rows):
            return
        values = batch.values if self._coded is None else self._coded(batch.values)
        counts = np.ones(len(values), dtype=np.int64) if batch.signs is None else batch.signs
        arrival = batch.arrival
        state["values"].append(batch.rows, values, arrival)
        state["counts"].append(batch.rows, counts, arrival)
        grown = rows_grown(state["values"], batch.rows, state["distinct"])
        if len(grown):
            self._sum_up(state, grown)

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        state["values"].merge(into, rows)
        state["counts"].merge(into, rows)
        kernels().add_at(state["distinct"], into, state["distinct"][rows])

    def result(self, state: State, rows: Int64Array) -> Column:
        owner, values, counts, starts = self._summed(state, rows)
        first = np.flatnonzero(starts)
        if len(first):
            totals = np.add.reduceat(counts, first)
            if len(first) < len(counts):  # the first spelling that is there stands for the value
                places = np.where(counts > 0, np.arange(len(counts)), len(counts))
                first = np.minimum.reduceat(places, first)
            there = totals > 0  # a retraction that waits for its insert has no effect yet (S-C6)
            first, counts = first[there], totals[there]
        return self._summary(Counts(owner[first], values[first], counts), len(rows))

    def _sum_up(self, state: State, rows: Int64Array) -> None:
        owner, values, counts, _ = self._summed(state, rows)
        left = counts != 0
        if not left.all():
            owner, values, counts = owner[left], values[left], counts[left]
        state["values"].replace(rows, owner, values)
        state["counts"].replace(rows, owner, counts)
        state["distinct"][rows] = np.bincount(owner, minlength=len(rows))

    def _summed(
        self, state: State, rows: Int64Array
    ) -> tuple[Int64Array, NDArray[Any], Int64Array, Mask]:
        """Return the values of rows with the sums of their counts, by row, rank and spelling.

        Returns:
            (the place of the row of each, the values, the sums, where another value begins).
        """
        values, of_each = state["values"].gather(rows)
        counts, _ = state["counts"].gather(rows)
        owner = repeated(np.arange(len(rows), dtype=np.int64), of_each)
        if not len(owner):
            return owner, values, counts, np.zeros(0, dtype=np.bool_)
        ranks = self._ranks(values)
        if (texts := spellings(values)) is None:
            order = grouped_order(owner, ranks)
            columns = [owner[order], ranks[order]]
        else:
            order = np.lexsort((texts, ranks, owner))
            columns = [owner[order], ranks[order], texts[order]]
        begins = np.flatnonzero(run_starts(*columns))
        first = order[begins]
        starts = run_starts(owner[first], ranks[first])
        return owner[first], values[first], np.add.reduceat(counts[order], begins), starts


def rows_grown(bag: Bag, rows: Int64Array, before: Int64Array) -> Int64Array:
    """Return which rows hold more than twice what they held after their last pass, plus some.

    Args:
        bag: The bag.
        rows: Rows that have just grown; they may repeat.
        before: What each row of the table held after its last pass.
    """
    grown = rows[bag.counts(rows) > 2 * before[rows] + _SPARE]
    return distinct(grown) if len(grown) else grown
