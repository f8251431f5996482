"""Orders of values as integers: one by value, and one that tells all values apart.

An order must not depend on which bundle, process or machine computes it. So equal values that are
written differently (``1``, ``1.0`` and ``True``, or ``0.0`` and ``-0.0``) have an order too, where
it is seen which of them is kept.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lowwater.errors import DataError, StateError
from lowwater.state.arrays import run_starts, sort_by_key_and_time
from lowwater.state.codec import encode
from lowwater.time import Int64Array

_MAGNITUDE = np.int64(0x7FFFFFFFFFFFFFFF)
_TEXT = {str}
_DEEPEST = 50


def ranks_of(values: NDArray[Any]) -> Int64Array:
    """Return integers in the order of ordered values, equal where these are. O(n log n).

    Numbers have the same rank in every array, other values only within one.

    Args:
        values: Values of one kind, dtype as in :class:`Column`, shape (n,), without nulls.
    """
    if values.dtype != object:
        return number_ranks(values)
    ranks = _ranks_of_text(values)
    return np.unique(values, return_inverse=True)[1] if ranks is None else ranks


def number_ranks(values: NDArray[Any]) -> Int64Array:
    """Return int64 integers in the order of numbers or bools; ``-0.0`` and ``0.0`` are equal."""
    if values.dtype != np.float64:
        return values.astype(np.int64, copy=False)
    values = np.where(np.isnan(values), np.nan, values + 0.0)  # one NaN, the largest of all
    bits = values.view(np.int64)
    return np.where(bits < 0, bits ^ _MAGNITUDE, bits)


def ranks_of_any(values: NDArray[Any], *, where: str) -> Int64Array:
    """Return integers in an order of any values, equal where these are. O(n log n).

    Numbers are in order among each other, and so are texts, bytes, times and lists of such. Values
    of other kinds are in the order of the names of their types, then of their stored bytes.

    Args:
        values: The values, dtype as in :class:`Column`, shape (n,), without nulls.
        where: The step of the pipeline, for an error.

    Raises:
        DataError: A value has no stored form.
    """
    if values.dtype != object:
        return number_ranks(values)
    if (ranks := _ranks_of_text(values)) is not None:
        return ranks
    try:
        keys = [_key(value, _DEEPEST) for value in values.tolist()]
    except StateError as error:
        raise DataError(
            f"values have no order that every run agrees on: {error}",
            where=where,
            hint="Convert them to numbers, text, times or lists of such in an earlier step",
        ) from error
    distinct = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return np.fromiter((distinct[key] for key in keys), dtype=np.int64, count=len(keys))


def codes_of(
    values: NDArray[Any], valid: NDArray[np.bool_] | None, *, where: str
) -> tuple[Int64Array, ...]:
    """Return integers in the order of any values, the first ones first; nulls come first.

    Args:
        values: The values, dtype as in :class:`Column`, shape (n,).
        valid: Which are not null; ``None`` for all.
        where: The step of the pipeline, for an error.
    """
    if valid is None:
        return (ranks_of_any(values, where=where),)
    codes = np.zeros(len(values), dtype=np.int64)
    codes[valid] = ranks_of_any(values[valid], where=where)
    return valid.astype(np.int64), codes


def spellings(values: NDArray[Any]) -> Int64Array | None:
    """Return integers that order equal values which are written differently; ``None`` for none.

    Args:
        values: The values, dtype as in :class:`Column`, shape (n,).
    """
    if values.dtype == np.float64:
        return np.signbit(values).astype(np.int64) if (values == 0.0).any() else None
    if values.dtype != object or set(map(type, values)) <= _TEXT:
        return None
    texts = [_spelling(value) for value in values.tolist()]
    return np.unique(np.array(texts, dtype=object), return_inverse=True)[1]


def _spelling(value: Any) -> str:
    """Return a text that orders equal values; of zeros the negative one comes last, as above."""
    if isinstance(value, float) and value == 0:
        return f"float {math.copysign(1, value) < 0:d}"
    return f"{type(value).__name__} {value!r}"


def grouped_order(owner: Int64Array, ranks: Int64Array) -> Int64Array:
    """Return an order by owner, then rank; where both are equal, any. O(n log n).

    A sort of one column that fits 64 bits takes a fraction of one of two columns.
    """
    if len(owner) > 1 and not _fits(owner, ranks):
        order = np.argsort(ranks)
        rising = ranks[order]
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.cumsum(run_starts(rising))
    return sort_by_key_and_time(owner, ranks)


def _fits(owner: Int64Array, ranks: Int64Array) -> bool:
    spans = (int(each.max()) - int(each.min()) for each in (owner, ranks))
    return sum(span.bit_length() for span in spans) + len(owner).bit_length() <= 63


def _ranks_of_text(values: NDArray[Any]) -> Int64Array | None:
    """Return the ranks of texts by code point, as Python compares them; ``None`` if some is none.

    Only the distinct ones are sorted.
    """
    if not set(map(type, values)) <= _TEXT:
        return None
    try:
        encoded = pa.array(values, pa.large_string()).dictionary_encode()
    except (pa.ArrowException, UnicodeEncodeError):  # half of a surrogate pair
        return np.unique(values, return_inverse=True)[1]
    ranks = pc.rank(encoded.dictionary, tiebreaker="dense")
    found: Int64Array = np.asarray(ranks)[np.asarray(encoded.indices)].astype(np.int64)
    return found


def _key(value: Any, depth: int) -> tuple[Any, ...]:
    """Return a key that can be compared with that of any other value."""
    if value is None:
        return ("",)
    if isinstance(value, str):
        return ("text", str(value))
    if isinstance(value, (bytes, bytearray)):
        return ("bytes", bytes(value))
    if isinstance(value, (bool, int, float, Decimal, np.bool_, np.number)):
        is_nan = value.is_nan() if isinstance(value, Decimal) else value != value
        return ("number~",) if is_nan else ("number", value)  # NaN comes after all numbers
    if isinstance(value, dt.datetime):
        return ("instant" if value.tzinfo else "local time", value)
    if isinstance(value, dt.time):
        return ("time with a zone" if value.tzinfo else "time", value)
    if isinstance(value, (dt.date, dt.timedelta)):
        return (type(value).__name__, value)
    if depth and isinstance(value, (list, tuple)):
        return (type(value).__name__, tuple(_key(item, depth - 1) for item in value))
    if depth and isinstance(value, (set, frozenset)):
        return ("set", tuple(sorted(_key(item, depth - 1) for item in value)))
    if depth and isinstance(value, dict):
        items = ((_key(name, 0), _key(item, depth - 1)) for name, item in value.items())
        return ("dict", tuple(sorted(items)))
    return (f"~{type(value).__qualname__}", encode(value))
