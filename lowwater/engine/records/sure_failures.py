"""Rows for which an operation must fail, from its input alone: all of them are known at once.

Trying a row costs some fifty microseconds, which is too much for a batch in which every second
text is no number. The operations here are those that fail for values most often: conversions of
text, powers, lookups. What this module says is checked by trying a sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lowwater.engine.records.elementwise import operations

_SIGNED = r"^\s*[+-]?(0[xX][0-9a-fA-F]+|0*[0-9]{1,19})\s*$"
_UNSIGNED = r"^\s*[+-]?(0[xX][0-9a-fA-F]+|0*[0-9]{1,20})\s*$"
_NUMBER = (
    r"^\s*[+-]?((?i:inf|infinity|nan)(\(.*\))?|[0-9]+\.?[0-9]*([eE][+-]?[0-9]+)?"
    r"|\.[0-9]+([eE][+-]?[0-9]+)?)\s*$"
)
_TRUTH = r"^\s*(?i:true|false|0|1)\s*$"
_TIME = r"^\s*[+-]?[0-9]"


def sure_failures(
    expression: Any, table: pa.Table
) -> Iterator[tuple[NDArray[np.bool_], pa.ChunkedArray | None]]:
    """Yield rows for which an operation of an expression must fail.

    Args:
        expression: An expression of narwhals.
        table: The columns that it reads.

    Yields:
        Which rows, bool; and the texts that cannot be converted, for messages.
    """
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True)
    for node, before in operations(expression):
        predicate = _PREDICATES.get(node.name)
        if predicate is None or not before:
            continue
        try:
            given = frame.select(nw.Expr(*before)).to_native().column(0)
            found = predicate(node, given)
        except Exception:  # an earlier operation fails: rows are tried as if nothing was known
            return
        if found is not None and found[0].any():
            yield found


def _cast(node: Any, given: pa.ChunkedArray) -> Any:
    """Find texts that no number, truth or time is written like: more than Arrow accepts."""
    if not _is_text(given.type):
        return None
    wanted = node.kwargs["dtype"]
    wanted = wanted() if isinstance(wanted, type) else wanted
    if wanted.is_integer():
        grammar = _SIGNED if wanted.is_signed_integer() else _UNSIGNED
    elif wanted.is_float() or wanted.is_decimal():
        grammar = _NUMBER
    elif wanted.is_temporal():
        grammar = _TIME
    elif str(wanted) == "Boolean":
        grammar = _TRUTH
    else:
        return None
    return ~_truths(pc.match_substring_regex(given, grammar)), given


def _strptime(node: Any, given: pa.ChunkedArray) -> Any:
    """Find texts that do not have a format."""
    format = node.kwargs.get("format")
    if format is None or not _is_text(given.type):
        return None
    made = pc.strptime(given, format=format, unit="us", error_is_null=True)
    return ~_truths(pc.or_(made.is_valid(), given.is_null())), given


def _power(node: Any, given: pa.ChunkedArray) -> Any:
    """Find negative powers of integers."""
    (other,) = node.exprs
    base, exponent = (given, other) if node.name == "__pow__" else (other, given)
    number, column = (base, exponent) if isinstance(base, int) else (exponent, base)
    if type(number) is not int or not pa.types.is_integer(column.type):
        return None
    if column is base:
        return np.full(len(column), number < 0) & _truths(column.is_valid()), None
    return _truths(pc.less(column, 0)) & _truths(column.is_valid()), None


def _replaced(node: Any, given: pa.ChunkedArray) -> Any:
    """Find values that a mapping without a default lacks."""
    if getattr(node.kwargs.get("default"), "name", "") != "no_default":
        return None
    known = pc.is_in(given, pa.array(list(node.kwargs["old"]), given.type))
    return ~_truths(pc.or_(known, given.is_null())), None


def _item(node: Any, given: pa.ChunkedArray) -> Any:
    """Find lists that are too short."""
    length = pc.list_value_length(given)
    return ~_truths(pc.greater(length, node.kwargs["index"])), None


_PREDICATES = {
    "replace_strict": _replaced,
    "list.get": _item,
    "cast": _cast,
    "str.to_datetime": _strptime,
    "str.to_date": _strptime,
    "__pow__": _power,
    "__rpow__": _power,
}


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _truths(array: pa.ChunkedArray) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = array.fill_null(True).to_numpy()
    return found
