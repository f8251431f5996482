"""Arithmetic in double-double precision: adding a value and subtracting it leaves no residue.

A number is the unevaluated sum of two floats, ``high + low``, with ``low`` at most half a unit in
the last place of ``high``: about 106 bits. The operations are those of Dekker, "A floating-point
technique for extending the available precision" (1971), and Knuth's sum of two without error.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lowwater.kernels import kernels
from lowwater.state.arrays import run_starts
from lowwater.time import Int64Array

Floats: TypeAlias = NDArray[np.float64]
Pair: TypeAlias = tuple[Floats, Floats]

_SPLITTER = 2.0**27 + 1


def add(one: Pair, other: Pair) -> Pair:
    """Add; a sum beyond the range of floats is infinite and stays infinite."""
    plain, error = _sum_of_two(one[0], other[0])
    low, rest = _sum_of_two(one[1], other[1])
    high, error = _renewed(plain, error + low)
    high, error = _renewed(high, error + rest)
    fits = np.isfinite(plain)
    return np.where(fits, high, plain), np.where(fits, error, 0.0)


def product(one: Floats, other: Floats) -> Pair:
    """Multiply plain floats; exact unless the product overflows or underflows."""
    high = one * other
    a, b = _split(one)
    c, d = _split(other)
    low = ((a * c - high) + a * d + b * c) + b * d
    return high, np.where(np.isfinite(low), low, 0.0)


def divide(one: Pair, by: Floats) -> Pair:
    """Divide by plain floats."""
    high = one[0] / by
    back = product(-high, by)
    rest = add(one, back)
    return _renewed(high, rest[0] / by)


def multiply(one: Pair, other: Pair) -> Pair:
    """Multiply."""
    high, low = product(one[0], other[0])
    return _renewed(high, low + (one[0] * other[1] + one[1] * other[0]))


def sums_by_row(rows: Int64Array, pair: Pair) -> tuple[Int64Array, Pair]:
    """Return the distinct rows and the sum of each, by pairwise summation. O(n log n).

    Args:
        rows: Row of each number, int64, shape (n,); rows may repeat.
        pair: The numbers, shape (n,).
    """
    order = kernels().argsort(rows)
    owner = rows[order]
    high, low = pair[0][order], pair[1][order]
    while len(owner) > 1:
        place = np.arange(len(owner), dtype=np.int64)
        begins = np.maximum.accumulate(np.where(run_starts(owner), place, 0))
        right = np.flatnonzero((place - begins) & 1)
        if not right.size:
            break
        left = right - 1
        high[left], low[left] = add((high[left], low[left]), (high[right], low[right]))
        kept = np.ones(len(owner), dtype=np.bool_)
        kept[right] = False
        owner, high, low = owner[kept], high[kept], low[kept]
    return owner, (high, low)


def _sum_of_two(a: Floats, b: Floats) -> Pair:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _renewed(high: Floats, low: Floats) -> Pair:
    """Renormalise a pair: ``low`` becomes at most half a unit in the last place of ``high``."""
    total = high + low
    return total, low - (total - high)


def _split(values: Floats) -> Pair:
    """Split the mantissa of each float into two halves (Dekker), so that products are exact."""
    scaled = _SPLITTER * values
    upper = scaled - (scaled - values)
    return upper, values - upper
