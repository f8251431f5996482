"""Arithmetic of times, durations and lists in expressions: which results leave 64 bits (S-B1).

Arrow computes with the integers of times, and wraps as it does with others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lowwater.engine.records.columns import Mask
from lowwater.time import Int64Array

_HIGH = 2**63 - 1
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_TOTALS = {
    "dt.total_milliseconds": "ms", "dt.total_microseconds": "us", "dt.total_nanoseconds": "ns",
}  # fmt: skip
_CHECKED = {"add": pc.add_checked, "sub": pc.subtract_checked, "mul": pc.multiply_checked}

CHECKED = frozenset({"dt.timestamp", "dt.offset_by", "dt.truncate", "list.sum", *_TOTALS})
"""Operations on one column that may leave 64 bits."""


def is_time(kind: pa.DataType) -> bool:
    """Return whether values of a type are times, dates or durations."""
    return bool(pa.types.is_temporal(kind))


def times_leave(operation: str, left: pa.ChunkedArray, right: pa.ChunkedArray) -> Mask:
    """Return the rows for which an operation on times leaves 64 bits.

    O(n) where none does, and O(log n) more for each row that does.
    """
    function = _CHECKED.get(operation)
    bad = np.zeros(len(left), dtype=np.bool_)
    pending = [(0, len(left))] if function is not None else []
    while pending:
        low, high = pending.pop()
        try:
            _tried(function, left.slice(low, high - low), right.slice(low, high - low))
        except pa.ArrowInvalid:
            if high - low == 1:
                bad[low] = True
            else:
                middle = (low + high) // 2
                pending += [(low, middle), (middle, high)]
    valid: Mask = pc.and_(left.is_valid(), right.is_valid()).to_numpy()
    return bad & valid  # of nulls Arrow may compute with what is in their place


def _tried(function: Any, left: pa.ChunkedArray, right: pa.ChunkedArray) -> None:
    try:
        function(left, right)
    except pa.ArrowNotImplementedError:  # nor can the operation itself be computed
        return


def column_leaves(
    node: Any, given: pa.ChunkedArray, made: Callable[[], pa.ChunkedArray]
) -> Mask | None:
    """Return the rows for which an operation on one column leaves 64 bits; ``None`` for none.

    Args:
        node: The operation, one of :data:`CHECKED`.
        given: The column.
        made: Returns the results.
    """
    if node.name == "list.sum":
        return _lists_leave(given)
    if node.name in ("dt.offset_by", "dt.truncate"):
        own, moved = _integers(given), _integers(made())
        is_back = node.name == "dt.truncate" or str(node.kwargs.get("by")).startswith("-")
        found: Mask = (moved > own) if is_back else (moved < own)
        return found & given.is_valid().to_numpy()
    wanted = _TOTALS.get(node.name) or node.kwargs.get("time_unit", "us")
    times = _UNITS[wanted] // _per_second(given.type)
    if times <= 1:
        return None
    if pa.types.is_date(given.type):
        times = _UNITS[wanted] * 86_400
    own = _integers(given)
    return (own > _HIGH // times) | (own < -(_HIGH // times))


def _per_second(kind: pa.DataType) -> int:
    return 1 if pa.types.is_date(kind) else _UNITS[kind.unit]


def _integers(array: pa.ChunkedArray) -> Int64Array:
    """Return the integers of times, 0 for nulls."""
    if pa.types.is_date(array.type):
        array = array.cast(pa.date32()).cast(pa.int32())
    found: NDArray[Any] = array.cast(pa.int64()).fill_null(0).to_numpy()
    return found


def _lists_leave(lists: pa.ChunkedArray) -> Mask | None:
    kind = lists.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not is_list or not pa.types.is_integer(kind.value_type):
        return None
    span = pc.min_max(pc.list_flatten(lists)).as_py()
    longest = pc.max(pc.list_value_length(lists)).as_py() or 0
    most = max(abs(span["min"] or 0), abs(span["max"] or 0))
    if most * longest <= _HIGH:
        return None
    sums = [sum(one or 0 for one in each or ()) for each in lists.to_pylist()]
    return np.array([not -_HIGH - 1 <= one <= _HIGH for one in sums], dtype=np.bool_)
