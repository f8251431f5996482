"""Aggregates that keep the values: collect, collect_set, count_distinct."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, final

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from lowwater.engine.aggregates._base import AggregateInput, State, StateColumn
from lowwater.engine.aggregates._equality import equality_codes
from lowwater.engine.records.columns import Column
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import run_starts
from lowwater.state.bag import Bag
from lowwater.time import Int64Array

Shape: TypeAlias = Literal["list", "set", "count"]
_SPARE = 1024
_WHERE = "aggregate(collect_set or count_distinct)"
_INT64 = 2**63


@final
class Collect:
    """Keeps the values in order of arrival: all, the distinct ones, or the distinct count.

    Repeats are dropped lazily: when a row is read, and when the stored values have doubled since
    the last pass. State therefore stays within twice the distinct values (plus a constant), and a
    pass costs amortised O(log n) per value.
    """

    def __init__(self, type: pa.DataType | None, dtype: DTypeLike, *, shape: Shape) -> None:
        self._type = type
        self._shape = shape
        self.notes = {"distinct": 0}
        self.columns = (StateColumn("values", dtype, None, bag=True),)

    def add(self, state: State, batch: AggregateInput) -> None:
        bag: Bag = state["values"]
        if batch.values is not None:
            bag.append(batch.rows, batch.values, batch.arrival)
        if self._shape != "list" and len(bag) > 2 * self.notes["distinct"] + _SPARE:
            self._drop_repeats(bag)

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        state["values"].merge(into, rows)

    def result(self, state: State, rows: Int64Array) -> Column:
        values, counts = state["values"].gather(rows)
        if self._shape == "count":
            owner = repeated(np.arange(len(rows)), counts)
            return Column(_distinct_counts(owner, values, len(rows)))
        if self._shape != "list":
            kept = _first_of_each(repeated(np.arange(len(rows)), counts), values)
            owner = repeated(np.arange(len(rows)), counts)[kept]
            values, counts = values[kept], np.bincount(owner, minlength=len(rows))
        offsets = np.concatenate(([0], np.cumsum(counts)))
        if self._type is not None or values.dtype != object:
            items = Column(values, type=self._type).to_arrow()
            return Column(arrow=pa.LargeListArray.from_arrays(pa.array(offsets), items))
        plain = values.tolist()
        lists = np.empty(len(rows), dtype=object)
        bounds = offsets.tolist()
        for at in range(len(rows)):
            lists[at] = plain[bounds[at] : bounds[at + 1]]
        return Column(lists)

    def _drop_repeats(self, bag: Bag) -> None:
        rows = bag.filled_rows()
        values, _, counts = held = bag.gather_with_arrivals(rows)
        bag.keep(rows, held, _first_of_each(repeated(rows, counts), values))
        self.notes["distinct"] = len(bag)


def _first_of_each(owner: Int64Array, values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which (owner, value) pairs are the first of their kind."""
    kept = np.zeros(len(values), dtype=np.bool_)
    if not len(values):
        return kept
    codes = equality_codes(values, where=_WHERE)
    pairs = _as_one(owner, codes)
    if pairs is None:
        order = np.lexsort((codes, owner))
        begins = run_starts(owner[order], codes[order])
        kept[order[begins]] = True
        return kept
    order = np.argsort(pairs)  # not stable, which takes longer than to look for the first
    begin = np.flatnonzero(run_starts(pairs[order]))
    kept[np.minimum.reduceat(order, begin)] = True
    return kept


def _distinct_counts(owner: Int64Array, values: NDArray[Any], rows: int) -> Int64Array:
    """Return how many distinct values each owner has, int64, shape (rows,). O(n log n)."""
    if len(values):
        codes = equality_codes(values, where=_WHERE)
        pairs = _as_one(owner, codes)
        if pairs is None:
            owner = owner[_first_of_each(owner, values)]
        else:
            pairs.sort()
            owner = pairs[run_starts(pairs)] // _spread(codes)
    return np.bincount(owner, minlength=rows).astype(np.int64)


def _as_one(owner: Int64Array, codes: Int64Array) -> Int64Array | None:
    """Return pairs as one integer each, which sort much faster; ``None`` if they do not fit."""
    spread = _spread(codes)
    if (int(owner.max()) + 1) * spread >= _INT64:
        return None
    return owner * spread + (codes - codes.min())


def _spread(codes: Int64Array) -> int:
    """Return how many integers there are from the lowest code to the highest."""
    return int(codes.max()) - int(codes.min()) + 1
