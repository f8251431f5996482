"""Exact sums of floats and of their squares: adding a value and taking it back leaves nothing.

A finite float is an integer times a power of two. A total is kept in limbs of 32 bits, int64 each,
from the smallest float up, as in Kulisch's accumulator; only the limbs that some value has reached
are there. A limb takes two thousand million values before it can wrap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.aggregates import _doubles as doubles
from lowwater.kernels import kernels
from lowwater.time import Int64Array

Floats = NDArray[np.float64]
Limbs = Iterator[tuple[int, Int64Array, Int64Array]]
"""Limbs with parts of some values: its number, which of the values, and their parts."""

_BITS = 32
_MASK = np.int64(0xFFFFFFFF)
_MANTISSA = 53
_BASE = {"sum": 1152, "squares": 2304}
"""What is added to exponents, so that all are positive."""


def limbs_reached(values: Floats, power: str) -> set[int]:
    """Return the numbers of the limbs that finite values, or their squares, have parts in."""
    _, exponent = np.frexp(values[values != 0])
    lowest = _places(exponent, power) >> 5
    width = 3 if power == "sum" else 5
    return {int(one) + at for one in np.unique(lowest) for at in range(width)}


def parts(values: Floats, power: str) -> Limbs:
    """Yield the parts of finite values, or of their squares, limb by limb."""
    mantissa, exponent = np.frexp(values)
    whole = (mantissa * 2.0**_MANTISSA).astype(np.int64)
    place = _places(exponent, power)
    lowest, shift = place >> 5, place & 31
    pieces = _of_integers(whole) if power == "sum" else _of_squares(whole)
    shifted = _shifted(pieces, shift)
    if power == "sum":
        shifted = [np.where(whole < 0, -one, one) for one in shifted]
    for first in np.unique(lowest).tolist():
        which = np.flatnonzero(lowest == first)
        for at, piece in enumerate(shifted):
            yield first + at, which, piece[which]


def add_parts(
    state: Any, power: str, rows: Int64Array, values: Floats, signs: NDArray[Any] | None
) -> None:
    """Add finite values, or their squares, to the totals of rows; those of 0 have no limbs."""
    some = np.flatnonzero(values)
    rows, values = rows[some], values[some]
    signs = None if signs is None else signs[some]
    for limb, which, piece in parts(values, power):
        part = piece if signs is None else piece * signs[which]
        kernels().add_at(state[f"{power} {limb}"], rows[which], part)


def total(limbs: Mapping[int, Int64Array], power: str, length: int) -> doubles.Pair:
    """Return totals to about 106 bits, of their own size: what has cancelled does not matter."""
    high, low = np.zeros(length), np.zeros(length)
    if not limbs:
        return high, low
    digits, sign = _digits(limbs, length)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for limb in sorted(digits, reverse=True):
            part = _scaled(digits[limb], limb, power)
            high, low = doubles.add((high, low), (part, np.zeros(length)))
    return high * sign, low * sign


def rounded_total(limbs: Mapping[int, Int64Array], power: str, length: int) -> Floats:
    """Return totals as floats, each rounded once, to the nearest float and half to even.

    The first three digits that are not zero have 65 bits or more, and fit a pair of floats. That
    any of the others is not zero is all that can still matter, and is noted in the last bit.
    """
    high, low = np.zeros(length), np.zeros(length)
    if not limbs:
        return high
    digits, sign = _digits(limbs, length)
    seen = np.zeros(length, dtype=np.int64)
    descending = sorted(digits, reverse=True)
    rest = np.zeros(length, dtype=np.bool_)
    below: dict[int, NDArray[np.bool_]] = {}
    for limb in reversed(descending):
        below[limb] = rest
        rest = rest | (digits[limb] != 0)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for limb in descending:
            digit = digits[limb]
            seen += (seen > 0) | (digit != 0)
            digit = np.where((seen == 3) & below[limb], digit | 1, digit)
            part = _scaled(np.where(seen <= 3, digit, 0), limb, power)
            high, low = doubles.add((high, low), (part, np.zeros(length)))
    return high * sign


def _digits(
    limbs: Mapping[int, Int64Array], length: int
) -> tuple[dict[int, Int64Array], NDArray[np.float64]]:
    """Return the digits of the absolute values of totals by limb, and the signs of totals."""
    carry = np.zeros(length, dtype=np.int64)
    digits: dict[int, Int64Array] = {}
    for limb in range(min(limbs), max(limbs) + 1):
        at = limbs.get(limb)
        carry = carry if at is None else carry + at
        digits[limb] = carry & _MASK
        carry = carry >> _BITS
    negative = carry < 0
    if negative.any():  # the digits of the negated total, so that none cancels another
        again = negative.astype(np.int64)
        for limb, digit in digits.items():
            flipped = np.where(negative, ~digit & _MASK, digit) + again
            digits[limb], again = flipped & _MASK, flipped >> _BITS
        carry = np.where(negative, ~carry, carry) + again
    digits[max(limbs) + 1] = carry
    return digits, np.where(negative, -1.0, 1.0)


def _scaled(digits: Int64Array, limb: int, power: str) -> Floats:
    return np.ldexp(digits.astype(np.float64), _BITS * limb - _shift_of(power))


def _shift_of(power: str) -> int:
    return _BASE[power] + (_MANTISSA if power == "sum" else 2 * _MANTISSA)


def _places(exponent: NDArray[Any], power: str) -> Int64Array:
    """Return how far up the lowest bits of the integers lie."""
    times = 1 if power == "sum" else 2
    found: Int64Array = times * exponent.astype(np.int64) + _BASE[power]
    return found


def _of_integers(whole: Int64Array) -> list[Int64Array]:
    size = np.abs(whole)
    return [size & _MASK, size >> _BITS]


def _of_squares(whole: Int64Array) -> list[Int64Array]:
    """Return the digits of squares of integers of 53 bits."""
    size = np.abs(whole).astype(np.uint64)
    mask, bits = np.uint64(_MASK), np.uint64(_BITS)
    upper, lower = size >> bits, size & mask
    least, middle, most = lower * lower, 2 * upper * lower, upper * upper
    digits = [least & mask, (least >> bits) + (middle & mask), (middle >> bits) + (most & mask)]
    digits.append(most >> bits)
    for at in range(3):
        digits[at + 1] = digits[at + 1] + (digits[at] >> bits)
        digits[at] = digits[at] & mask
    return [digit.astype(np.int64) for digit in digits]


def _shifted(pieces: list[Int64Array], shift: Int64Array) -> list[Int64Array]:
    """Return digits moved up by fewer than 32 bits, with one digit more."""
    bits, mask = np.uint64(_BITS), np.uint64(_MASK)
    found = [np.zeros(len(shift), dtype=np.uint64) for _ in range(len(pieces) + 1)]
    by = shift.astype(np.uint64)
    for at, piece in enumerate(pieces):
        moved = piece.astype(np.uint64) << by
        found[at] += moved & mask
        found[at + 1] += moved >> bits
    return [one.astype(np.int64) for one in found]
