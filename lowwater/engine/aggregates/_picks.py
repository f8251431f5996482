"""Aggregates that pick or test: first, last, any, all."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike, NDArray

from lowwater.engine.aggregates._base import AggregateInput, State, StateColumn
from lowwater.engine.records.columns import Column, Mask
from lowwater.kernels import kernels
from lowwater.state.arrays import run_starts, sort_by_key_and_time
from lowwater.time import Int64Array


@final
class Endmost:
    """The value of the element that comes first or last in an order; null for no values.

    Elements are in the order of ``by``, if they have it, then of their event times. Order of
    arrival matters only where these are equal: there the first or last to arrive wins (S-W7).

    Args:
        type: The Arrow type of the values, if known.
        dtype: Their dtype.
        by: The dtype of the values that order the elements; ``None`` if event time alone does.
        last: Whether the last element wins, and not the first.
        nulls: Whether an element whose value is null can win; the result is null then.
    """

    merges_twice = True

    def __init__(
        self,
        type: pa.DataType | None,
        dtype: DTypeLike,
        by: DTypeLike | None = None,
        *,
        last: bool,
        nulls: bool = False,
    ) -> None:
        self._type = type
        self._last = last
        self._nulls = nulls
        self._order = ("time", "arrival") if by is None else ("by", "time", "arrival")
        self._kept = ("value", *self._order, *(("valid",) if nulls else ()))
        self.columns = (
            StateColumn("value", dtype, _fill(dtype)),
            StateColumn("time", np.int64),
            StateColumn("arrival", np.int64),
            StateColumn("seen", np.bool_, False),
            *(() if by is None else (StateColumn("by", by, _fill(by)),)),
            *((StateColumn("valid", np.bool_, False),) if nulls else ()),
        )

    def add(self, state: State, batch: AggregateInput) -> None:
        if batch.values is None or not len(batch.rows):
            return
        if batch.by is None:
            order = sort_by_key_and_time(batch.rows, batch.times)
        else:
            order = np.lexsort((batch.times, _ranks(batch.by), batch.rows))
        begins = run_starts(batch.rows[order])
        ends = np.append(begins[1:], True)
        chosen = order[ends if self._last else begins]
        given = {"value": batch.values, "time": batch.times, "arrival": batch.arrival}
        if batch.by is not None:
            given["by"] = batch.by
        offered = {name: column[chosen] for name, column in given.items()}
        if self._nulls:
            offered["valid"] = (
                np.ones(len(chosen), np.bool_) if batch.valid is None else batch.valid[chosen]
            )
        self._offer(state, batch.rows[chosen], offered)

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        seen = state["seen"][rows]
        into, rows = into[seen], rows[seen]
        order = kernels().argsort(into)
        into, rows = into[order], rows[order]
        while into.size:
            first = run_starts(into)
            now = rows[first]
            self._offer(state, into[first], {name: state[name][now] for name in self._kept})
            into, rows = into[~first], rows[~first]

    def result(self, state: State, rows: Int64Array) -> Column:
        valid = state["valid" if self._nulls else "seen"][rows]
        return Column(state["value"][rows], None if valid.all() else valid, self._type)

    def outlasts(self, state: State, lost: AggregateInput) -> Mask:
        """Return which lost elements come after, or before, the one that their rows hold."""
        found = np.zeros(len(lost.rows), dtype=np.bool_)
        tied = np.flatnonzero(state["seen"][lost.rows])
        for name in self._order[:-1]:
            given = lost.times if lost.by is None or name == "time" else lost.by
            gone, held = given[tied], state[name][lost.rows[tied]]
            found[tied[gone < held if self._last else gone > held]] = True
            tied = tied[gone == held]
        return found

    def _offer(self, state: State, rows: Int64Array, offered: dict[str, NDArray[Any]]) -> None:
        """Offer rows, each given once, another element; they keep the one that wins."""
        seen = state["seen"][rows]
        better = ~seen
        tied = np.flatnonzero(seen)
        for name in self._order:
            new, held = offered[name][tied], state[name][rows[tied]]
            better[tied[new > held if self._last else new < held]] = True
            tied = tied[new == held]
        rows = rows[better]
        for name in self._kept:
            state[name][rows] = offered[name][better]
        state["seen"][rows] = True


def _fill(dtype: DTypeLike) -> Any:
    return None if np.dtype(dtype).kind == "O" else 0


def _ranks(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers or bools that are in the order of the values. O(n log n)."""
    if values.dtype != object:
        return values
    try:  # only the distinct texts are sorted; Arrow compares them by code point, as Python does
        encoded = pa.array(values, pa.string()).dictionary_encode()
    except (pa.ArrowException, UnicodeEncodeError):  # no text, or half of a surrogate pair
        return np.unique(values, return_inverse=True)[1]
    ranks = pc.rank(encoded.dictionary, tiebreaker="dense")
    return np.asarray(ranks)[np.asarray(encoded.indices)]


@final
class Test:
    """Whether any, or every, value is true; for no values ``any`` is false and ``all`` is true."""

    def __init__(self, *, every: bool) -> None:
        self._every = every
        self.columns = (StateColumn("holds", np.bool_, every),)

    def add(self, state: State, batch: AggregateInput) -> None:
        if batch.values is None:
            return
        values = batch.values.astype(np.bool_, copy=False)
        decisive = ~values if self._every else values
        state["holds"][batch.rows[decisive]] = not self._every

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        decisive = state["holds"][rows] != self._every
        state["holds"][into[decisive]] = not self._every

    def result(self, state: State, rows: Int64Array) -> Column:
        return Column(state["holds"][rows])
