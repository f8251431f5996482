"""Numeric aggregates: count, sum, mean, variance, minimum and maximum."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from lowwater.engine.aggregates._base import AggregateInput, Condensed, State, StateColumn, or_null
from lowwater.engine.records.columns import Column, Mask
from lowwater.kernels import kernels
from lowwater.time import Int64Array

_INT64_LIMIT = 2**63
# Overflowing floats become inf, and inf - inf is nan. These are results, not reasons to warn.
_AS_FLOATS_DO = np.errstate(over="ignore", invalid="ignore")


@final
class Count:
    """The number of inserts minus the number of retractions."""

    columns = (StateColumn("count", np.int64),)
    condenses = True
    adds_up = True

    def add(self, state: State, batch: AggregateInput) -> None:
        kernels().add_at(state["count"], batch.rows, 1 if batch.signs is None else batch.signs)

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        kernels().add_at(state["count"], into, state["count"][rows])

    def condense(self, batch: AggregateInput, groups: int) -> Condensed:
        counts = np.zeros(groups, dtype=np.int64)
        kernels().add_at(counts, batch.rows, 1 if batch.signs is None else batch.signs)
        return Condensed(None, None, counts)

    def result(self, state: State, rows: Int64Array) -> Column:
        return Column(state["count"][rows])


@final
class Sum:
    """The sum of floats, in order of arrival.

    Subtracting floats would leave rounding errors behind, so operators with retractions sum them
    with ``SignedSum``.
    """

    columns = (StateColumn("sum", np.float64),)

    def add(self, state: State, batch: AggregateInput) -> None:
        values = _values(batch)
        _add_floats(
            state["sum"], batch.rows, values if batch.signs is None else values * batch.signs
        )

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        _add_floats(state["sum"], into, state["sum"][rows])

    def result(self, state: State, rows: Int64Array) -> Column:
        return Column(state["sum"][rows])


@_AS_FLOATS_DO
def _add_floats(sums: NDArray[Any], rows: Int64Array, values: NDArray[Any]) -> None:
    kernels().add_at(sums, rows, values)


@final
class Mean:
    """The arithmetic mean, a float; null for no values."""

    columns = (StateColumn("sum", np.float64), StateColumn("count", np.int64))

    @_AS_FLOATS_DO
    def add(self, state: State, batch: AggregateInput) -> None:
        kernels().add_at(state["sum"], batch.rows, _values(batch).astype(np.float64, copy=False))
        kernels().add_at(state["count"], batch.rows, 1)

    @_AS_FLOATS_DO
    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        for name in ("sum", "count"):
            kernels().add_at(state[name], into, state[name][rows])

    def result(self, state: State, rows: Int64Array) -> Column:
        sums, count = self.sums_and_counts(state, rows)
        return or_null(sums / np.maximum(count, 1), count > 0)

    def sums_and_counts(
        self, state: State, rows: Int64Array
    ) -> tuple[NDArray[np.float64], Int64Array]:
        """Return the sum of each row, and how many values it has."""
        return state["sum"][rows], state["count"][rows]


@final
class Variance:
    """Variance or standard deviation, from means and sums of squared deviations.

    Partial results are merged as in Chan, Golub and LeVeque, "Updating Formulae and a Pairwise
    Algorithm for Computing Sample Variances" (1979), which stays accurate for a small spread
    around a large mean.
    """

    columns = (
        StateColumn("count", np.float64),
        StateColumn("mean", np.float64),
        StateColumn("squares", np.float64),
    )

    def __init__(self, *, ddof: int, root: bool) -> None:
        self._ddof = ddof
        self._root = root

    @_AS_FLOATS_DO
    def add(self, state: State, batch: AggregateInput) -> None:
        values = _values(batch).astype(np.float64, copy=False)
        rows, place = np.unique(batch.rows, return_inverse=True)
        count = np.bincount(place).astype(np.float64)
        mean = np.bincount(place, weights=values) / count
        apart = values - mean[place]
        squares = np.bincount(place, weights=apart * apart).astype(np.float64)
        self._join(state, rows, count, mean, squares)

    @_AS_FLOATS_DO
    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        order = kernels().argsort(into)
        into, rows = into[order], rows[order]
        while into.size:  # each pass merges one source into each target, as targets may repeat
            first = np.append(True, into[1:] != into[:-1])
            now = rows[first]
            self._join(
                state, into[first], *(state[name][now] for name in ("count", "mean", "squares"))
            )
            into, rows = into[~first], rows[~first]

    def result(self, state: State, rows: Int64Array) -> Column:
        count = state["count"][rows] - self._ddof
        variance = state["squares"][rows] / np.maximum(count, 1)
        return or_null(np.sqrt(variance) if self._root else variance, count > 0)

    def moments(
        self, state: State, rows: Int64Array
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return how many values there are, their mean, and their squared distances from it."""
        return state["count"][rows], state["mean"][rows], state["squares"][rows]

    @staticmethod
    def _join(
        state: State,
        rows: Int64Array,
        count: NDArray[np.float64],
        mean: NDArray[np.float64],
        squares: NDArray[np.float64],
    ) -> None:
        had = state["count"][rows]
        total = had + count
        share = np.divide(count, total, out=np.zeros_like(total), where=total > 0)
        apart = mean - state["mean"][rows]
        state["squares"][rows] += squares + apart * apart * had * share
        state["mean"][rows] += apart * share
        state["count"][rows] = total


@final
class Extreme:
    """The minimum or maximum; null for no values."""

    merges_twice = True

    def __init__(self, type: pa.DataType | None, dtype: DTypeLike, *, largest: bool) -> None:
        self._type = type
        self._bool = np.dtype(dtype) == np.bool_
        kind = np.dtype(np.int64) if self._bool else np.dtype(dtype)
        self._largest = largest
        self._object = kind.kind == "O"
        fill: Any = None
        if kind == np.int64:
            fill = np.iinfo(np.int64).min if largest else np.iinfo(np.int64).max
        elif kind == np.float64:
            fill = -np.inf if largest else np.inf
        self.columns = (StateColumn("value", kind, fill), StateColumn("seen", np.bool_, False))

    def add(self, state: State, batch: AggregateInput) -> None:
        self._take(state, batch.rows, _values(batch))

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        seen = state["seen"][rows]
        self._take(state, into[seen], state["value"][rows[seen]])

    def outlasts(self, state: State, lost: AggregateInput) -> Mask:
        """Return which lost values are not as far out as what their rows hold."""
        seen = state["seen"][lost.rows]
        held, values = state["value"][lost.rows[seen]], _values(lost)[seen]
        found = np.zeros(len(seen), dtype=np.bool_)
        found[seen] = values < held if self._largest else values > held
        return found

    @property
    def condenses(self) -> bool:
        return self.columns[0].dtype == np.int64  # of equal floats it matters which comes first

    def condense(self, batch: AggregateInput, groups: int) -> Condensed:
        value, _ = self.columns
        extremes = np.full(groups, value.fill, dtype=np.int64)
        seen = np.zeros(groups, dtype=np.bool_)
        self._take({"value": extremes, "seen": seen}, batch.rows, _values(batch))
        group = np.flatnonzero(seen)
        return Condensed(group, extremes[group])

    def result(self, state: State, rows: Int64Array) -> Column:
        values = state["value"][rows]
        seen = state["seen"][rows]
        if self._bool:
            return or_null((values == 1), seen, self._type)
        return or_null(values, seen, self._type)

    def _take(self, state: State, rows: Int64Array, values: NDArray[Any]) -> None:
        if self._bool:
            values = values.astype(np.int64)
        if self._object:
            # The first of a row begins it, so that of equal values the first to arrive stays,
            # however many are given at once.
            fresh = np.flatnonzero(~state["seen"][rows])[::-1]
            state["value"][rows[fresh]] = values[fresh]
        pick = kernels().max_at if self._largest else kernels().min_at
        pick(state["value"], rows, values)
        state["seen"][rows] = True


def _values(batch: AggregateInput) -> NDArray[Any]:
    return np.empty(0) if batch.values is None else batch.values
