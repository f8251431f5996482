"""Encodes the values of a column as integers that are equal where the values are."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.errors import DataError
from lowwater.time import Int64Array

_TEXT = {str, type(None)}
_NAN = object()  # NaN differs from itself; this stands for every NaN, so that they count as equal


def equality_codes(values: NDArray[Any], *, where: str) -> Int64Array:
    """Return integers that are equal where the values are, int64, shape (n,). O(n).

    Args:
        values: The values, dtype as in :class:`Column`; NaN equals NaN.
        where: The step of the pipeline, for an error.

    Raises:
        DataError: The values are objects that cannot be hashed.
    """
    if values.dtype == object:
        return _codes_of_objects(values, where)
    if values.dtype == np.float64:
        return np.where(np.isnan(values), np.nan, values + 0.0).view(np.int64)
    return values.astype(np.int64, copy=False)


def _codes_of_objects(values: NDArray[Any], where: str) -> Int64Array:
    # Only if all are text: Arrow would coerce several types to one, and "a" would equal b"a".
    if {str} <= set(map(type, values)) <= _TEXT:
        try:
            encoded = pa.array(values).dictionary_encode(null_encoding="encode")
            return np.asarray(encoded.indices, dtype=np.int64)
        except UnicodeEncodeError:  # a lone surrogate
            pass
    known: dict[Any, int] = {}
    try:
        codes = [known.setdefault(_hashable(value), len(known)) for value in values]
    except TypeError as error:
        raise DataError(
            f"values cannot be compared for equality: {error}",
            where=where,
            hint="Convert them to hashable values in an earlier step",
        ) from error
    return np.array(codes, dtype=np.int64)


def _hashable(value: Any) -> Any:
    """Return a hashable value that is equal where nested values are equal."""
    if isinstance(value, dict):
        return dict, frozenset((name, _hashable(item)) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return type(value), tuple(map(_hashable, value))
    if isinstance(value, (set, bytearray)):
        return type(value), frozenset(value) if isinstance(value, set) else bytes(value)
    if isinstance(value, Decimal):
        return _NAN if value.is_nan() else value
    return _NAN if isinstance(value, float) and value != value else value
