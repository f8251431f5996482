"""Aggregates that pick or test: first, last, any, all."""

from __future__ import annotations

from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike

from lowwater.engine.aggregates._base import AggregateInput, State, StateColumn
from lowwater.engine.records.columns import Column
from lowwater.state.arrays import run_starts, sort_by_key_and_time
from lowwater.time import Int64Array


@final
class Endmost:
    """The value with the earliest or latest event time; null for no values.

    Order of arrival matters only between equal event times, where the first or last to arrive wins
    (S-W7).
    """

    def __init__(self, type: pa.DataType | None, dtype: DTypeLike, *, last: bool) -> None:
        self._type = type
        self._last = last
        kind = np.dtype(dtype)
        self.columns = (
            StateColumn("value", kind, None if kind.kind == "O" else 0),
            StateColumn("time", np.int64),
            StateColumn("arrival", np.int64),
            StateColumn("seen", np.bool_, False),
        )

    def add(self, state: State, batch: AggregateInput) -> None:
        if batch.values is None or not len(batch.rows):
            return
        order = sort_by_key_and_time(batch.rows, batch.times)
        begins = run_starts(batch.rows[order])
        ends = np.append(begins[1:], True)
        chosen = order[ends if self._last else begins]
        self._offer(
            state, batch.rows[chosen], batch.values[chosen], batch.times[chosen],
            batch.arrival[chosen],
        )  # fmt: skip

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        seen = state["seen"][rows]
        into, rows = into[seen], rows[seen]
        order = np.argsort(into, kind="stable")
        into, rows = into[order], rows[order]
        while into.size:
            first = run_starts(into)
            now = rows[first]
            self._offer(
                state, into[first], *(state[name][now] for name in ("value", "time", "arrival"))
            )
            into, rows = into[~first], rows[~first]

    def result(self, state: State, rows: Int64Array) -> Column:
        seen = state["seen"][rows]
        return Column(state["value"][rows], None if seen.all() else seen, self._type)

    def _offer(
        self,
        state: State,
        rows: Int64Array,
        values: np.ndarray[tuple[int, ...], np.dtype[np.generic]],
        times: Int64Array,
        arrival: Int64Array,
    ) -> None:
        held, came = state["time"][rows], state["arrival"][rows]
        if self._last:
            better = (times > held) | ((times == held) & (arrival > came))
        else:
            better = (times < held) | ((times == held) & (arrival < came))
        better |= ~state["seen"][rows]
        rows = rows[better]
        state["value"][rows] = values[better]
        state["time"][rows] = times[better]
        state["arrival"][rows] = arrival[better]
        state["seen"][rows] = True


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
