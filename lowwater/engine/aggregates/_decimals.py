"""Sums and means of decimals: exact, of 38 digits as in Arrow and Spark.

A value is given as three words of int64: the two of its integer of 128 bits, lower first, and its
scale. A total is kept in limbs of 32 bits for each scale that values have had.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any, ClassVar, final

import numpy as np
import pyarrow as pa

from lowwater.engine.aggregates._base import AggregateInput, State, StateColumn
from lowwater.engine.records.columns import Column
from lowwater.errors import DataError
from lowwater.kernels import kernels
from lowwater.state.arrays import object_array
from lowwater.time import Int64Array

_LIMBS = 5
_DIGITS = 38
_MORE = 4
"""How many digits a mean has more than the values, as Spark's."""
_EXACTLY = Context(prec=2 * _DIGITS)


class _Totals:
    """Exact totals of decimals, and how many there are."""

    _what: ClassVar[str]
    adds_up = True

    def __init__(self) -> None:
        self.notes: dict[str, Any] = {"scales": []}

    @property
    def columns(self) -> tuple[StateColumn, ...]:
        """The columns of the state: limbs for each scale so far."""
        return (
            StateColumn("decimals", np.int64),
            *(
                StateColumn(f"scale {scale}, limb {limb}", np.int64)
                for scale in self.notes["scales"]
                for limb in range(_LIMBS)
            ),
        )

    def grow(self, batch: AggregateInput) -> bool:
        """Create columns for the values of a batch; return whether any is new."""
        if batch.values is None or not len(batch.values):
            return False
        fresh = set(np.unique(batch.values[:, 2]).tolist()).difference(self.notes["scales"])
        self.notes["scales"] = sorted([*self.notes["scales"], *fresh])
        return bool(fresh)

    def add(self, state: State, batch: AggregateInput) -> None:
        if batch.values is None or not len(batch.values):
            return
        lower, upper, scales = batch.values.T
        kernels().add_at(state["decimals"], batch.rows, 1 if batch.signs is None else batch.signs)
        mask = np.int64(0xFFFFFFFF)
        words = (lower & mask, (lower >> 32) & mask, upper & mask, upper >> 32)
        for scale in np.unique(scales).tolist():
            which = np.flatnonzero(scales == scale)
            for limb, word in enumerate(words):
                part = word[which] if batch.signs is None else word[which] * batch.signs[which]
                kernels().add_at(state[f"scale {scale}, limb {limb}"], batch.rows[which], part)

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        for column in self.columns:
            kernels().add_at(state[column.name], into, state[column.name][rows])

    def _totals(self, state: State, rows: Int64Array) -> tuple[list[int], int]:
        """Return the totals of rows as integers of one scale, and the scale."""
        scales: list[int] = self.notes["scales"]
        most = max(scales, default=0)
        totals = [0] * len(rows)
        for scale in scales:
            limbs = [state[f"scale {scale}, limb {limb}"][rows].tolist() for limb in range(_LIMBS)]
            for at, words in enumerate(zip(*limbs, strict=True)):
                whole = sum(word << (32 * limb) for limb, word in enumerate(words))
                totals[at] += whole * 10 ** (most - scale)
        return totals, most

    def _column(self, values: list[int | None], scale: int) -> Column:
        """Return integers as decimals of a scale.

        Raises:
            DataError: One has more digits than there is room for.
        """
        for value in values:
            if value is not None and abs(value) >= 10**_DIGITS:
                raise DataError(
                    f"a {self._what} of decimals reached {_decimal(value, scale)}, which has more "
                    f"than {_DIGITS} digits",
                    where=f"aggregate({self._what})",
                    hint="Round the values first, or convert them to floats",
                )
        made = [None if value is None else _decimal(value, scale) for value in values]
        valid = np.array([value is not None for value in values], dtype=np.bool_)
        filled = object_array([Decimal(0) if one is None else one for one in made])
        return Column(filled, None if valid.all() else valid, pa.decimal128(_DIGITS, scale))


@final
class DecimalSum(_Totals):
    """The sum, ``decimal128(38, s)``; 0 for no values."""

    _what = "sum"

    def result(self, state: State, rows: Int64Array) -> Column:
        totals, scale = self._totals(state, rows)
        return self._column([*totals], scale)


@final
class DecimalMean(_Totals):
    """The arithmetic mean, ``decimal128(38, s + 4)``, rounded half up; null for no values."""

    _what = "mean"

    def result(self, state: State, rows: Int64Array) -> Column:
        totals, scale = self._totals(state, rows)
        counts = state["decimals"][rows].tolist()
        means = [
            _half_up(total * 10**_MORE, count) if count > 0 else None
            for total, count in zip(totals, counts, strict=True)
        ]
        return self._column(means, scale + _MORE)


def words_of(column: Column) -> Int64Array:
    """Return decimals as words of int64, shape (n, 3); nulls are arbitrary. O(n).

    Those of Python have a scale each, and at most 38 digits.
    """
    if column.type is None:
        found = np.zeros((len(column), 3), dtype=np.int64)
        for row, value in enumerate(column.data.tolist()):
            if isinstance(value, Decimal) and value.is_finite():
                found[row] = _words(value)
        return found
    array = column.to_arrow()
    scale = array.type.scale
    if array.type != pa.decimal128(_DIGITS, scale):
        array = array.cast(pa.decimal128(_DIGITS, scale))
    data = array.buffers()[1]
    found = np.empty((len(array), 3), dtype=np.int64)
    if data is not None:
        words = np.frombuffer(data, dtype="<i8")
        start = 2 * array.offset
        found[:, :2] = words[start : start + 2 * len(array)].reshape(-1, 2)
    found[:, 2] = scale
    return found


def _words(value: Decimal) -> tuple[int, int, int]:
    scale = max(0, -int(value.as_tuple().exponent))
    whole = int(value.scaleb(scale, _EXACTLY))
    lower = whole & (2**64 - 1)
    return lower - 2**64 * (lower >= 2**63), whole >> 64, scale


def _half_up(total: int, count: int) -> int:
    """Return a quotient, rounded to the nearest integer; halves go away from 0."""
    found = (2 * abs(total) + count) // (2 * count)
    return -found if total < 0 else found


def _decimal(value: int, scale: int) -> Decimal:
    return Decimal(value).scaleb(-scale, _EXACTLY)
