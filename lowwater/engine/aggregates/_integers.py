"""Sums, means and variances of integers: exact, and rounded once, in the result.

A total is kept in limbs: ``l0 + l1 * 2**32 + ...``, int64 each. Values are added to the lowest limb
as long as a running bound on all of them shows that it cannot wrap; from then on their halves are
added to two limbs, and what is above 32 bits moves up first. So what a total comes to on the way
does not matter, nor does the order, and a value that is taken back leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from lowwater.engine.aggregates._base import AggregateInput, Condensed, State, StateColumn, or_null
from lowwater.engine.records.columns import EXACT, Column
from lowwater.errors import DataError
from lowwater.kernels import kernels
from lowwater.time import Int64Array

_LIMIT = 2**63
_MASK = 0xFFFFFFFF
_SQUARES = ("square", "square 1", "square 2", "square 3")


@final
class IntegerSum:
    """The sum: exact, and an error if a result does not fit 64 bits (S-B1)."""

    columns = (StateColumn("sum", np.int64), StateColumn("sum high", np.int64))
    condenses = True
    adds_up = True

    def __init__(self) -> None:
        self.notes = {"bound": 0}

    def add(self, state: State, batch: AggregateInput) -> None:
        add_integers(state, "sum", batch.rows, integers(batch), batch.signs, self.notes)

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        merge_totals(state, "sum", into, rows, self.notes)

    def condense(self, batch: AggregateInput, groups: int) -> Condensed | None:
        values = integers(batch)
        if largest(values) * len(values) >= _LIMIT:
            return None
        sums = np.zeros(groups, dtype=np.int64)
        kernels().add_at(sums, batch.rows, values if batch.signs is None else values * batch.signs)
        return Condensed(None, sums)

    def result(self, state: State, rows: Int64Array) -> Column:
        values, fits = totals(state, "sum", rows)
        if not fits.all():
            total = exact_totals(state, "sum", rows[~fits][:1])[0]
            raise DataError(
                f"an integer sum reached {total}, which does not fit 64 bits",
                where="aggregate(sum)",
                hint="Sum a float column, or divide the values first",
            )
        return Column(values)

    def floats(self, state: State, rows: Int64Array) -> NDArray[np.float64]:
        """Return the sums as floats, each rounded once."""
        return as_floats(state, "sum", rows)


@final
class IntegerMean:
    """The arithmetic mean, a float, rounded once; null for no values."""

    columns = (
        StateColumn("integers", np.int64),
        StateColumn("total", np.int64),
        StateColumn("total high", np.int64),
    )
    adds_up = True

    def __init__(self) -> None:
        self.notes = {"bound": 0}

    def add(self, state: State, batch: AggregateInput) -> None:
        signs = 1 if batch.signs is None else batch.signs
        kernels().add_at(state["integers"], batch.rows, signs)
        add_integers(state, "total", batch.rows, integers(batch), batch.signs, self.notes)

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        kernels().add_at(state["integers"], into, state["integers"][rows])
        merge_totals(state, "total", into, rows, self.notes)

    def result(self, state: State, rows: Int64Array) -> Column:
        count = state["integers"][rows]
        values, fits = totals(state, "total", rows)
        means = values / np.maximum(count, 1)
        # Both are floats exactly, so that only the division rounds; or Python divides.
        hard = np.flatnonzero((~fits | (np.abs(values) > EXACT)) & (count > 0))
        sums = exact_totals(state, "total", rows[hard])
        for at, total, n in zip(hard.tolist(), sums, count[hard].tolist(), strict=True):
            means[at] = total / n
        return or_null(means, count > 0)

    def sums(self, state: State, rows: Int64Array) -> tuple[NDArray[np.float64], Int64Array]:
        """Return the sums as floats, each rounded once, and how many values there are."""
        return as_floats(state, "total", rows), state["integers"][rows]


@final
class IntegerVariance:
    """Variance or standard deviation, a float, rounded once before the root."""

    columns = (*IntegerMean.columns, *(StateColumn(name, np.int64) for name in _SQUARES))
    adds_up = True

    def __init__(self, *, ddof: int, root: bool) -> None:
        self._ddof = ddof
        self._root = root
        self.notes = {"bound": 0, "squares": 0}

    def add(self, state: State, batch: AggregateInput) -> None:
        signs = 1 if batch.signs is None else batch.signs
        kernels().add_at(state["integers"], batch.rows, signs)
        values = integers(batch)
        add_integers(state, "total", batch.rows, values, batch.signs, self.notes)
        self._add_squares(state, batch.rows, values, batch.signs)

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        kernels().add_at(state["integers"], into, state["integers"][rows])
        merge_totals(state, "total", into, rows, self.notes)
        if self.notes["squares"] >= _LIMIT:
            _carry(state, _SQUARES, into)
            _carry(state, _SQUARES, rows)
        for name in _SQUARES:
            kernels().add_at(state[name], into, state[name][rows])

    def result(self, state: State, rows: Int64Array) -> Column:
        count, variance = self._variance(state, rows)
        # Where more was taken back than was there, nothing is valid yet.
        made = np.sqrt(np.maximum(variance, 0.0)) if self._root else variance
        return or_null(made, count > self._ddof)

    def moments(
        self, state: State, rows: Int64Array
    ) -> tuple[Int64Array, NDArray[np.float64], NDArray[np.float64]]:
        """Return how many values there are, their mean, and their squared distances from it."""
        count = state["integers"][rows]
        sums, squares = exact_totals(state, "total", rows), self._squares(state, rows)
        both = list(zip(count.tolist(), sums, squares, strict=True))
        mean = np.array([s / n if n > 0 else 0.0 for n, s, _ in both], dtype=np.float64)
        apart = np.array([(n * q - s * s) / n if n > 0 else 0.0 for n, s, q in both], np.float64)
        return count, mean, apart

    def _variance(self, state: State, rows: Int64Array) -> tuple[Int64Array, NDArray[np.float64]]:
        count, ddof = state["integers"][rows], self._ddof
        values, fits = totals(state, "total", rows)
        lowest = state["square"][rows]
        high = np.logical_or.reduce([state[name][rows] != 0 for name in _SQUARES[1:]])
        about = np.abs(values.astype(np.float64)) ** 2 + np.abs(lowest * count.astype(np.float64))
        spread = count.astype(np.float64) * np.maximum(count - ddof, 1)
        easy = fits & ~high & (about < EXACT) & (spread < EXACT)
        apart = np.where(easy, count * lowest - values * values, 0)
        variance = apart / np.maximum(spread, 1)
        hard = np.flatnonzero(~easy & (count > ddof))
        sums, squares = exact_totals(state, "total", rows[hard]), self._squares(state, rows[hard])
        for at, n, s, q in zip(hard.tolist(), count[hard].tolist(), sums, squares, strict=True):
            variance[at] = (n * q - s * s) / (n * (n - ddof))
        return count, variance

    def _add_squares(
        self, state: State, rows: Int64Array, values: Int64Array, signs: NDArray[Any] | None
    ) -> None:
        most = largest(values)
        if _has_room(self.notes, "squares", most * most * len(values) * _often(signs)):
            square = values * values
            kernels().add_at(state["square"], rows, square if signs is None else square * signs)
            return
        _carry(state, _SQUARES, rows)
        size = np.where(values < 0, -(values + 1), values).astype(np.uint64)
        size += (values < 0).astype(np.uint64)  # -2**63 has no positive counterpart in int64
        upper, lower = size >> np.uint64(32), size & np.uint64(_MASK)
        for at, part in ((0, lower * lower), (1, upper * lower), (2, upper * upper)):
            times = 2 if at == 1 else 1
            low = (part & np.uint64(_MASK)).astype(np.int64) * times
            high = (part >> np.uint64(32)).astype(np.int64) * times
            for name, limb in ((_SQUARES[at], low), (_SQUARES[at + 1], high)):
                kernels().add_at(state[name], rows, limb if signs is None else limb * signs)

    @staticmethod
    def _squares(state: State, rows: Int64Array) -> list[int]:
        limbs = zip(*(state[name][rows].tolist() for name in _SQUARES), strict=True)
        return [sum(one << (32 * at) for at, one in enumerate(each)) for each in limbs]


def is_integer(dtype: DTypeLike) -> bool:
    """Return whether values of a dtype are integers or bools, which count as 0 and 1."""
    return np.dtype(dtype).kind in "iub"


def integers(batch: AggregateInput) -> Int64Array:
    """Return the values of a batch, int64."""
    if batch.values is None:
        return np.empty(0, dtype=np.int64)
    return batch.values.astype(np.int64, copy=False)


def largest(values: NDArray[Any]) -> int:
    """Return the largest absolute value of integers, 0 for none."""
    if not values.size:
        return 0
    if len(values) == 1:
        return abs(int(values.item()))
    return max(int(values.max()), -int(values.min()))


def add_integers(
    state: State,
    name: str,
    rows: Int64Array,
    values: Int64Array,
    signs: NDArray[Any] | None,
    notes: dict[str, int],
) -> None:
    """Add integers to the totals of rows, or take them away.

    Args:
        state: The state; a total is in the columns ``name`` and ``name`` + `` high``.
        name: Which total.
        rows: The row of each value.
        values: The values, int64.
        signs: How often each counts; ``None``: once.
        notes: ``bound``: what the lowest limbs of all rows cannot exceed together; changed.
    """
    names = (name, f"{name} high")
    if _has_room(notes, "bound", largest(values) * len(values) * _often(signs)):
        kernels().add_at(state[name], rows, values if signs is None else values * signs)
        return
    _carry(state, names, rows)
    for limb, part in zip(names, (values & _MASK, values >> 32), strict=True):
        kernels().add_at(state[limb], rows, part if signs is None else part * signs)


def merge_totals(
    state: State, name: str, into: Int64Array, rows: Int64Array, notes: dict[str, int]
) -> None:
    """Add the totals of rows to those of others, which may repeat."""
    names = (name, f"{name} high")
    if notes["bound"] >= _LIMIT:
        _carry(state, names, into)
        _carry(state, names, rows)
    for limb in names:
        kernels().add_at(state[limb], into, state[limb][rows])


def totals(state: State, name: str, rows: Int64Array) -> tuple[Int64Array, NDArray[np.bool_]]:
    """Return the totals of rows as int64, and which of them fit."""
    low = state[name][rows]
    high = state[f"{name} high"][rows] + (low >> 32)
    fits = (high >= -(2**31)) & (high < 2**31)
    return (high << 32) | (low & _MASK), fits


def exact_totals(state: State, name: str, rows: Int64Array) -> list[int]:
    """Return the totals of rows as Python integers."""
    low, high = state[name][rows].tolist(), state[f"{name} high"][rows].tolist()
    return [one + (other << 32) for one, other in zip(low, high, strict=True)]


def as_floats(state: State, name: str, rows: Int64Array) -> NDArray[np.float64]:
    """Return the totals of rows as floats, each rounded once."""
    values, fits = totals(state, name, rows)
    made = values.astype(np.float64)
    hard = np.flatnonzero(~fits)
    for at, total in zip(hard.tolist(), exact_totals(state, name, rows[hard]), strict=True):
        made[at] = float(total)
    return made


def _has_room(notes: dict[str, int], name: str, step: int) -> bool:
    """Whether the lowest limb can take so much more; once it cannot, it is not asked again."""
    notes[name] = min(notes[name] + step, _LIMIT)
    return notes[name] < _LIMIT


def _often(signs: NDArray[Any] | None) -> int:
    return 1 if signs is None else largest(signs)


def _carry(state: State, names: Sequence[str], rows: Int64Array) -> None:
    """Move what is above 32 bits of the limbs of rows to their next ones. Rows may repeat."""
    for low, high in pairwise(state[name] for name in names):
        limb = low[rows]
        high[rows] += limb >> 32
        low[rows] = limb & _MASK
