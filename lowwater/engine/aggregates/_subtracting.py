"""Aggregates that subtract retracted values (S-C4).

They are separate from the plain aggregates because plain float subtraction leaves rounding errors
behind, and an infinity or a NaN would never go away.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.aggregates import _doubles as doubles
from lowwater.engine.aggregates._base import AggregateInput, State, StateColumn, or_null
from lowwater.engine.aggregates._limbs import add_parts, limbs_reached, rounded_total, total
from lowwater.engine.records.columns import Column
from lowwater.kernels import kernels
from lowwater.time import Int64Array

Power: TypeAlias = Literal["sum", "squares"]

_COUNTS = ("nan", "up", "down")
_PARTS = ("", " low")
_AS_FLOATS_DO = np.errstate(over="ignore", invalid="ignore")
# A difference of squares that is this small relative to its operands is rounding error only.
_NOISE = 2.0**-98


class _Totals:
    """Exact sums of powers of finite values; NaN and infinities are counted instead of summed.

    Args:
        powers: Which powers.
        counted: Whether to count the values too.
    """

    adds_up = True

    def __init__(self, powers: tuple[Power, ...], *, counted: bool = True) -> None:
        self._powers = powers
        self._counted = counted
        self.notes: dict[str, Any] = {"pair": 0, **{power: [] for power in powers}}

    @property
    def columns(self) -> tuple[StateColumn, ...]:
        """The columns of the state: of limbs those that values have reached so far."""
        counts = (*(("count",) if self._counted else ()), *_COUNTS)
        pairs = self._powers if self.notes["pair"] else ()
        return (
            *(StateColumn(name, np.int64) for name in counts),
            *(StateColumn(f"{p}{part}", np.float64) for p in pairs for part in _PARTS),
            *(StateColumn(f"{p} {at}", np.int64) for p in self._powers for at in self.notes[p]),
        )

    def take_pairs(self) -> None:
        """Go on with state in which totals are pairs of floats, as they once were."""
        self.notes["pair"] = 1

    def grow(self, batch: AggregateInput) -> bool:
        """Create columns for the values of a batch; return whether any is new."""
        if batch.values is None or not len(batch.values):
            return False
        values = batch.values.astype(np.float64, copy=False)
        values = values[np.isfinite(values)]
        grown = False
        for power in self._powers:
            known = self.notes[power]
            if fresh := limbs_reached(values, power).difference(known):
                self.notes[power] = sorted({*known, *fresh})
                grown = True
        return grown

    @_AS_FLOATS_DO
    def add(self, state: State, batch: AggregateInput) -> None:
        if self._counted:
            kernels().add_at(state["count"], batch.rows, _signs(batch))
        if batch.values is None:
            return
        values, signs = batch.values.astype(np.float64, copy=False), _signs(batch)
        finite = np.isfinite(values)
        rows, counts = batch.rows, batch.signs
        if not finite.all():
            for name, which in (
                ("nan", np.isnan(values)), ("up", values == np.inf), ("down", values == -np.inf),
            ):  # fmt: skip
                kernels().add_at(state[name], batch.rows[which], signs[which])
            rows, values = batch.rows[finite], values[finite]
            counts = None if counts is None else counts[finite]
        for power in self._powers:
            add_parts(state, power, rows, values, counts)

    @_AS_FLOATS_DO
    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        for name in (*_COUNTS, "count") if self._counted else _COUNTS:
            kernels().add_at(state[name], into, state[name][rows])
        for power in self._powers:
            for limb in self.notes[power]:
                name = f"{power} {limb}"
                kernels().add_at(state[name], into, state[name][rows])
            if self.notes["pair"]:
                self._merge_pairs(state, power, into, rows)

    def pair(self, state: State, power: Power, rows: Int64Array) -> doubles.Pair:
        """Return the sums of a power over the finite values."""
        limbs = {limb: state[f"{power} {limb}"][rows] for limb in self.notes[power]}
        found = total(limbs, power, len(rows))
        if self.notes["pair"]:
            found = doubles.add(found, (state[power][rows], state[f"{power} low"][rows]))
        return found

    def sums(self, state: State, rows: Int64Array) -> NDArray[np.float64]:
        """Return the sums of the values, with infinities and NaN as float addition gives them."""
        nan, up, down = (state[name][rows] for name in _COUNTS)
        if self.notes["pair"]:
            sums, _ = self.pair(state, "sum", rows)
        else:
            limbs = {limb: state[f"sum {limb}"][rows] for limb in self.notes["sum"]}
            sums = rounded_total(limbs, "sum", len(rows))
        rising, falling = (up > 0) | (down < 0), (down > 0) | (up < 0)
        sums[rising] = np.inf
        sums[falling] = -np.inf
        sums[(nan != 0) | (rising & falling)] = np.nan
        return sums

    def not_finite(self, state: State, rows: Int64Array) -> NDArray[np.bool_]:
        """Return which rows contain values that are not finite."""
        found: NDArray[np.bool_] = np.logical_or.reduce(
            [state[name][rows] != 0 for name in _COUNTS]
        )
        return found

    @staticmethod
    def _merge_pairs(state: State, power: Power, into: Int64Array, rows: Int64Array) -> None:
        high, low = state[power], state[f"{power} low"]
        into, sums = doubles.sums_by_row(into, (high[rows], low[rows]))
        high[into], low[into] = doubles.add((high[into], low[into]), sums)


@final
class SignedSum(_Totals):
    """The sum of floats; 0 for no values."""

    def __init__(self) -> None:
        super().__init__(("sum",), counted=False)

    def result(self, state: State, rows: Int64Array) -> Column:
        return Column(self.sums(state, rows))


@final
class SignedMean(_Totals):
    """The arithmetic mean; null unless there are more inserts than retractions."""

    def __init__(self) -> None:
        super().__init__(("sum",))

    def result(self, state: State, rows: Int64Array) -> Column:
        sums, count = self.sums_and_counts(state, rows)
        return or_null(sums / np.maximum(count, 1), count > 0)

    def sums_and_counts(
        self, state: State, rows: Int64Array
    ) -> tuple[NDArray[np.float64], Int64Array]:
        """Return the sum of each row, and how many values it has."""
        return self.sums(state, rows), state["count"][rows]


@final
class SignedVariance(_Totals):
    """Variance or standard deviation, from the sums of values and of their squares.

    The sums are exact, and taken to about 106 bits for the result, which resolve a spread of a
    millionth of a millionth of the mean. A retracted value, however large, leaves no trace.
    """

    def __init__(self, *, ddof: int, root: bool) -> None:
        super().__init__(("sum", "squares"))
        self._ddof = ddof
        self._root = root

    @_AS_FLOATS_DO
    def result(self, state: State, rows: Int64Array) -> Column:
        count, _, apart = self.moments(state, rows)
        free = count - self._ddof
        variance = apart / np.maximum(free, 1)
        return or_null(np.sqrt(variance) if self._root else variance, free > 0)

    @_AS_FLOATS_DO
    def moments(
        self, state: State, rows: Int64Array
    ) -> tuple[Int64Array, NDArray[np.float64], NDArray[np.float64]]:
        """Return how many values there are, their mean, and their squared distances from it."""
        count = state["count"][rows]
        some = np.maximum(count, 1).astype(np.float64)
        sums = self.pair(state, "sum", rows)
        squares = self.pair(state, "squares", rows)
        taken = doubles.multiply(doubles.divide(sums, some), sums)
        apart, _ = doubles.add(squares, (-taken[0], -taken[1]))
        apart = np.where(apart < _NOISE * squares[0], 0.0, apart)
        apart[self.not_finite(state, rows)] = np.nan
        return count, sums[0] / some, apart


@final
class SignedTest:
    """Whether any, or every, value is true, from the counts of true and false values."""

    columns = (StateColumn("true", np.int64), StateColumn("false", np.int64))
    adds_up = True

    def __init__(self, *, every: bool) -> None:
        self._every = every

    def add(self, state: State, batch: AggregateInput) -> None:
        if batch.values is None:
            return
        values, signs = batch.values.astype(np.bool_, copy=False), _signs(batch)
        kernels().add_at(state["true"], batch.rows[values], signs[values])
        kernels().add_at(state["false"], batch.rows[~values], signs[~values])

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        for name in ("true", "false"):
            kernels().add_at(state[name], into, state[name][rows])

    def result(self, state: State, rows: Int64Array) -> Column:
        return Column(state["false"][rows] <= 0 if self._every else state["true"][rows] > 0)


def _signs(batch: AggregateInput) -> NDArray[np.integer[Any]]:
    return np.ones(len(batch.rows), dtype=np.int8) if batch.signs is None else batch.signs
