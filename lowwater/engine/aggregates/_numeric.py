"""Numeric aggregates: count, sum, mean, variance, minimum and maximum."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from lowwater.engine.aggregates._base import AggregateInput, Condensed, State, StateColumn
from lowwater.engine.records.columns import Column
from lowwater.errors import DataError
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
    """The sum: exact for integers, which raise an error instead of wrapping (S-B1).

    Retracted integers are subtracted. Subtracting floats would leave rounding errors behind, so
    operators with retractions sum them with ``SignedSum``.
    """

    def __init__(self, type: pa.DataType | None, dtype: DTypeLike) -> None:
        self._exact = np.dtype(dtype) != np.float64
        self.columns = (StateColumn("sum", np.int64 if self._exact else np.float64),)
        self.notes = {"bound": 0}

    def add(self, state: State, batch: AggregateInput) -> None:
        self._add(state["sum"], batch.rows, _values(batch), batch.signs)

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        self._add(state["sum"], into, state["sum"][rows])

    @property
    def condenses(self) -> bool:
        return self._exact  # the result of floats depends on the order of addition

    def condense(self, batch: AggregateInput, groups: int) -> Condensed | None:
        values = _values(batch)
        if _largest(values) * len(values) >= _INT64_LIMIT:
            return None
        sums = np.zeros(groups, dtype=np.int64)
        signed = values if batch.signs is None else values.astype(np.int64) * batch.signs
        kernels().add_at(sums, batch.rows, signed.astype(np.int64, copy=False))
        return Condensed(None, sums)

    def result(self, state: State, rows: Int64Array) -> Column:
        return Column(state["sum"][rows])

    def _add(
        self,
        sums: NDArray[Any],
        rows: Int64Array,
        values: NDArray[Any],
        signs: NDArray[Any] | None = None,
    ) -> None:
        if not self._exact:
            _add_floats(sums, rows, values if signs is None else values * signs)
            return
        values = values.astype(np.int64, copy=False)
        self._check(sums, rows, values, signs)
        if signs is not None:
            values = values * signs  # only -2**63 wraps, and modulo 2**64 the sum is right
        kernels().add_at(sums, rows, values)

    def _check(
        self,
        sums: Int64Array,
        rows: Int64Array,
        values: Int64Array,
        signs: NDArray[Any] | None = None,
    ) -> None:
        """Raise if the sum of a row leaves 64 bits.

        A running bound on the absolute value of every sum makes the check nearly free: rows are
        examined only once the bound exceeds 64 bits, and only rows near the limit are summed
        exactly.
        """
        if not values.size:
            return
        bound = self.notes["bound"] + _largest(values) * len(values)
        self.notes["bound"] = min(bound, _INT64_LIMIT)
        if self.notes["bound"] < _INT64_LIMIT:
            return
        distinct, place = np.unique(rows, return_inverse=True)
        reach = np.abs(sums[distinct].astype(np.float64))
        reach += np.bincount(place, weights=np.abs(values.astype(np.float64)))
        high, low = np.zeros(
            (2, len(distinct)), dtype=np.int64
        )  # sums of 32-bit halves cannot wrap
        sign = 1 if signs is None else signs
        kernels().add_at(high, place, (values >> 32) * sign)
        kernels().add_at(low, place, (values & 0xFFFFFFFF) * sign)
        for at in np.flatnonzero(reach >= _INT64_LIMIT / 2).tolist():
            total = int(sums[distinct[at]]) + (int(high[at]) << 32) + int(low[at])
            if not -_INT64_LIMIT <= total < _INT64_LIMIT:
                raise DataError(
                    f"an integer sum reached {total}, which does not fit 64 bits",
                    where="aggregate(sum)",
                    hint="Sum a float column, or divide the values first",
                )


def _largest(values: NDArray[Any]) -> int:
    """Return the largest absolute value of integers, 0 for none."""
    if not values.size:
        return 0
    if len(values) == 1:
        return abs(int(values.item()))
    return max(int(values.max()), -int(values.min()))


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
        count = state["count"][rows]
        return _or_null(state["sum"][rows] / np.maximum(count, 1), count > 0)


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
        return _or_null(np.sqrt(variance) if self._root else variance, count > 0)

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
            return _or_null((values == 1), seen, self._type)
        return _or_null(values, seen, self._type)

    def _take(self, state: State, rows: Int64Array, values: NDArray[Any]) -> None:
        if self._bool:
            values = values.astype(np.int64)
        if self._object:
            fresh = ~state["seen"][rows]
            state["value"][rows[fresh]] = values[fresh]
        pick = kernels().max_at if self._largest else kernels().min_at
        pick(state["value"], rows, values)
        state["seen"][rows] = True


def _values(batch: AggregateInput) -> NDArray[Any]:
    return np.empty(0) if batch.values is None else batch.values


def _or_null(
    values: NDArray[Any], valid: NDArray[np.bool_], type: pa.DataType | None = None
) -> Column:
    return Column(values, None if valid.all() else valid, type)
