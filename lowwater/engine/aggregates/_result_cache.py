"""A cache of results, so that one need not be computed from all inputs again (S-C4)."""

from __future__ import annotations

from typing import Any, Protocol, final, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.aggregates._base import Aggregate, AggregateInput, State, StateColumn
from lowwater.engine.records.columns import Column, Mask
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import distinct
from lowwater.state.bag import Bag
from lowwater.time import Int64Array

_LEAST = 256


@runtime_checkable
class Outlasting(Protocol):
    """An aggregate whose state is that of few of its inputs, and outlasts the loss of others."""

    def outlasts(self, state: State, lost: AggregateInput) -> Mask:
        """Return for which lost inputs the state of their rows is the same without them.

        It must be the same, too, if an equal input, come before or after, were lost instead.
        """
        ...


@final
class ResultCache:
    """Caches the state, or only the result, of rows whose inputs are kept.

    It is derived from the inputs and never stored: the result of a row that is not cached is
    computed from its inputs, and is the same. The state of an :class:`Outlasting` aggregate is
    updated with later inserts, and cached until a retraction may concern it. Of other aggregates
    the result is cached until the row changes, if it has a fixed width.

    Args:
        aggregate: The aggregate, bound to its column.
    """

    def __init__(self, aggregate: Aggregate) -> None:
        self._aggregate = aggregate
        self._outlasting = aggregate if isinstance(aggregate, Outlasting) else None
        self._columns: dict[str, NDArray[Any]] = {}
        self._fills: dict[str, Any] = {}
        self._bags: dict[str, Bag] = {}
        self._type: pa.DataType | None = None
        self._cached = np.zeros(0, dtype=np.bool_)
        if self._outlasting is not None:
            for column in aggregate.columns:
                self._add(column)

    def __getitem__(self, name: str) -> Any:
        bag = self._bags.get(name)
        return self._columns[name] if bag is None else bag

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the cached rows take, about."""
        each = 1 + sum(column.itemsize for column in self._columns.values())
        return each * int(self._cached.sum()) + sum(b.nbytes for b in self._bags.values())

    def cached(self, rows: Int64Array) -> Mask:
        """Return which rows are cached."""
        self._cover(rows)
        return self._cached[rows]

    def forget(self, rows: Int64Array) -> None:
        """Forget rows, which have changed."""
        rows = rows[rows < len(self._cached)]
        rows = rows[self._cached[rows]]
        if not rows.size:
            return
        self._cached[rows] = False
        for name, column in self._columns.items():
            if column.dtype == object:  # it would keep the values alive
                column[rows] = self._fills[name]
        if self._bags:
            rows = distinct(rows)
        for bag in self._bags.values():
            bag.clear(rows)

    def update(self, batch: AggregateInput) -> None:
        """Update the cached rows with inputs that are added to them, retractions among them.

        A retraction without its insert waits for one that is equal (S-C6). The state outlasts both.
        """
        if self._outlasting is None:
            self.forget(batch.rows)
            return
        cached = self.cached(batch.rows)
        if not cached.any():
            return
        if batch.signs is not None and (lost := cached & (batch.signs < 0)).any():
            lost_now = batch.where(lost)
            self.forget(lost_now.rows[~self._outlasting.outlasts(self, lost_now)])
            cached = self._cached[batch.rows] & (batch.signs > 0)
        self._aggregate.add(self, batch if cached.all() else batch.where(cached))

    def take(self, rows: Int64Array, state: State, result: Column, settled: Mask) -> None:
        """Cache rows.

        Args:
            rows: The rows, distinct.
            state: The state of the aggregate, whose rows are the places of these.
            result: Their results.
            settled: Which rows hold no retraction that waits for its insert.
        """
        if self._outlasting is None and not self._fits(result):
            return
        self._cover(rows)
        if self._outlasting is not None:
            found = {name: state[name] for name in self._columns}
        else:
            valid = np.ones(len(rows), np.bool_) if result.valid is None else result.valid
            found = {"value": result.data, "valid": valid}
        into = rows[settled]
        for name, column in found.items():
            self._columns[name][into] = column[settled]
        for name, bag in self._bags.items():
            bag.clear(into)
            values, arrivals, counts = state[name].gather_with_arrivals(np.flatnonzero(settled))
            bag.append(repeated(into, counts), values, arrivals)
        self._cached[rows] = settled

    def results(self, rows: Int64Array) -> Column:
        """Return the results of rows that are cached."""
        if self._outlasting is not None:
            return self._aggregate.result(self, rows)
        valid = self["valid"][rows]
        return Column(self["value"][rows], None if valid.all() else valid, self._type)

    def _fits(self, result: Column) -> bool:
        """Return whether results can be kept, and make room for results of their type."""
        if result.arrow is not None or result.data.dtype == object:
            return False
        held = self._columns.get("value")
        if held is None or held.dtype != result.data.dtype or self._type != result.type:
            self._cached[:] = False
            self._type = result.type
            self._add(StateColumn("value", result.data.dtype))
            self._add(StateColumn("valid", np.bool_))
        return True

    def _add(self, column: StateColumn) -> None:
        if column.bag:
            self._bags[column.name] = Bag(column.dtype)
            return
        held = np.empty(len(self._cached), dtype=column.dtype)
        held[:] = column.fill
        self._columns[column.name], self._fills[column.name] = held, column.fill

    def _cover(self, rows: Int64Array) -> None:
        """Make room for rows."""
        before = len(self._cached)
        need = int(rows.max(initial=-1)) + 1
        if need <= before:
            return
        room = max(need, 2 * before, _LEAST)
        self._cached = np.concatenate((self._cached, np.zeros(room - before, dtype=np.bool_)))
        for name, column in self._columns.items():
            grown = np.empty(room, dtype=column.dtype)
            grown[:before] = column
            grown[before:] = self._fills[name]
            self._columns[name] = grown
