"""Hashes that stand for values, where records, ids or words are compared by nothing else.

The hash that places keys takes numbers as Python's does, modulo a prime: ``-1`` and ``-2`` have one
hash, and so have 0 and ``2**61 - 1``, or infinity and 314159. That does where keys of one hash are
compared afterwards. Here what the prime took away is mixed in.

It changes no hash but those of -2, of infinities and of numbers from ``2**61 - 1`` on, because
stored rows have these hashes. So one fraction and one whole number may still be alike, as 0.5 and
``2**60`` are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import hash_keys
from lowwater.state.arrays import mixed
from lowwater.state.xxh64 import UInt64Array
from lowwater.time import Int64Array

_MODULUS = 2**61 - 1
_MINUS_TWO, _INFINITE = 1 << 40, 1 << 41
"""What stands for what these are beyond their hash; no number has so many times the modulus."""
_PLAIN = frozenset({str, bytes, bool, type(None)})
_NUMBERS = (int, float, Decimal, np.integer, np.floating)


def hash_values(columns: Sequence[Column]) -> UInt64Array:
    """Return a hash of each row, uint64, shape (n,): as good as never that of another one. O(n).

    Rows are equal as keys are: 1, 1.0 and ``Decimal("1.00")`` have one hash.

    Args:
        columns: The columns of the rows, at least one.

    Raises:
        StateError: A value is of a type that cannot be a key.
        TypeError: It has no hash.
    """
    hashes = hash_keys(columns)
    for nth, column in enumerate(columns):
        rows, beyond = _beyond_hash(column)
        if rows.size:
            parts = [hashes[rows].view(np.int64), beyond, np.full(len(rows), nth)]
            hashes[rows] = mixed(parts)
    return hashes


def _beyond_hash(column: Column) -> tuple[Int64Array, Int64Array]:
    """Return the rows whose value is more than its hash says, and a number for what it is more."""
    kind = column.type
    if kind is not None and pa.types.is_dictionary(kind):
        kind = kind.value_type
    if kind is not None and not _may_be_number(kind):
        return _NOTHING
    if column.type is not kind or column.data.dtype == object:
        return _of_objects(column.to_list(exact=True))
    return _of_numbers(column.data, column.valid)


def _may_be_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _of_numbers(
    data: NDArray[Any], valid: NDArray[np.bool_] | None
) -> tuple[Int64Array, Int64Array]:
    if data.dtype.kind not in "if":
        return _NOTHING
    few = (data == -2) | (data >= _MODULUS) | (data <= -_MODULUS)
    if valid is not None:
        few &= valid
    rows = np.flatnonzero(few)
    beyond = [_of_number(value) for value in data[rows].tolist()]
    return rows, np.array(beyond, dtype=np.int64)


def _of_objects(values: list[Any]) -> tuple[Int64Array, Int64Array]:
    kinds = set(map(type, values))
    if kinds <= _PLAIN:
        return _NOTHING
    if kinds == {int}:
        try:
            return _of_numbers(np.array(values, dtype=np.int64), None)
        except OverflowError:
            pass
    beyond = np.fromiter(map(_of_value, values), np.int64, len(values))
    rows = np.flatnonzero(beyond)
    return rows, beyond[rows]


def _of_value(value: Any) -> int:
    """Return what a value is beyond its hash; 0 for nothing."""
    if isinstance(value, _NUMBERS):
        return _of_number(value)
    total = 0
    if isinstance(value, tuple):
        for item in value:
            total = (31 * total + _of_value(item)) % _MODULUS
    elif isinstance(value, frozenset):
        total = sum(map(_of_value, value)) % _MODULUS
    return total


def _of_number(value: Any) -> int:
    if value != value or -_MODULUS < value < _MODULUS:
        return _MINUS_TWO if value == -2 else 0
    if value in (math.inf, -math.inf):
        return _INFINITE
    times = 1 + (int(abs(value)) // _MODULUS - 1) % (_MINUS_TWO - 1)
    return times if value > 0 else -times


_NONE: Int64Array = np.zeros(0, dtype=np.int64)
_NOTHING = _NONE, _NONE
