"""Numbers of several types in expressions, computed with as Python does (S-B1).

Arrow refuses to compare an integer beyond 2^53 with a float, or to compute with the two, since it
would make a float of the integer. Python compares the two exactly, and computes in floats. So where
Arrow refuses, or has no type for an integer, expressions are evaluated once more, with operations
of this module in the places of Arrow's. Decimals are compared with floats exactly, too; to compute
with the two is refused, since it would silently leave the exactness for which decimals are used.

Arrow also computes in the narrower type of what it is given, and wraps. So narrower integers inside
of an expression become int64 first.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lowwater.engine.records.columns import Mask
from lowwater.engine.records.elementwise import operations

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "__eq__": operator.eq, "__ne__": operator.ne, "__lt__": operator.lt,
    "__le__": operator.le, "__gt__": operator.gt, "__ge__": operator.ge,
}  # fmt: skip
_BETWEEN = {"both": ("__ge__", "__le__"), "left": ("__ge__", "__lt__"),
            "right": ("__gt__", "__le__"), "neither": ("__gt__", "__lt__")}  # fmt: skip
_COMPARED = frozenset({*_COMPARISONS, "is_between", "is_in"})
_MIRRORED = {"__lt__": "__gt__", "__le__": "__ge__", "__gt__": "__lt__", "__ge__": "__le__"}
_ARITHMETIC = frozenset(
    f"__{side}{name}__"
    for name in ("add", "sub", "mul", "pow", "truediv", "floordiv", "mod")
    for side in ("", "r")
)
_COMPUTED = _ARITHMETIC | {"abs", "__neg__", "sum_horizontal", "mean_horizontal"}
_NARROW_LENGTHS = frozenset({"str.len_chars"})
_NARROW_TYPES = frozenset({"Int8", "Int16", "Int32"})
_IN_FLOATS = frozenset({"cast", "sqrt", "log", "exp"})
_UINT64, _INT64 = 2.0**64, 2.0**63

Sign: TypeAlias = NDArray[np.int8]
"""-1, 0 or 1 in each row: the left value is less, equal or greater."""


def is_refusal(error: BaseException) -> bool:
    """Return whether Arrow has refused to make a float of an integer, or has no type for one."""
    if isinstance(error, OverflowError):
        return True
    return isinstance(error, pa.ArrowInvalid) and "in range" in str(error)


def is_for_python(expressions: Iterable[Any], table: pa.Table) -> bool:
    """Return whether Arrow would compare or compute something that is not what Python has.

    That is said of uint64 beyond int64, which it compares with no other integers, and of decimals
    beside floats, of which it makes floats.
    """
    odd = any(
        pa.types.is_decimal(field.type)
        or (pa.types.is_uint64(field.type) and (pc.max(table.column(at)).as_py() or 0) >= 2**63)
        for at, field in enumerate(table.schema)
    )
    for one in expressions:
        for node, _ in operations(one):
            is_of_numbers = node.name in _COMPARED or node.name in _ARITHMETIC
            if is_of_numbers and (odd or any(isinstance(one, Decimal) for one in node.exprs)):
                return True
    return False


def widened(expression: Any) -> Any:
    """Return an expression in which narrower integers become int64 before they are computed with.

    Columns are int64 already: these are the lengths of texts, and what is cast to a narrower type.
    """
    import narwhals as nw

    if not any(_is_narrow(node) for node, _ in operations(expression)):
        return expression
    return nw.Expr(*_widened(tuple(expression._nodes), is_result=True))


def _widened(nodes: tuple[Any, ...], *, is_result: bool) -> list[Any]:
    """Return operations with casts to int64 among them.

    Args:
        nodes: The operations.
        is_result: Whether what they come to is a result, whose type stays what it is.
    """
    import narwhals as nw

    found: list[Any] = []
    last = max((at for at, node in enumerate(nodes) if _is_arithmetic(node)), default=-1)
    for at, node in enumerate(nodes):
        keeps = is_result and at >= last and not _is_arithmetic(node)
        exprs = tuple(
            nw.Expr(*_widened(tuple(one._nodes), is_result=keeps)) if _is_expression(one) else one
            for one in node.exprs
        )
        if any(new is not old for new, old in zip(exprs, node.exprs, strict=True)):
            node = type(node)(  # noqa: PLW2901  # with other arguments it is the same operation
                node.kind, node.name, exprs=exprs, str_as_lit=node.str_as_lit,
                allow_multi_output=node.allow_multi_output, **node.kwargs,
            )  # fmt: skip
        found.append(node)
        if _is_narrow(node) and (at < last or not is_result):
            found.append(nw.col("_").cast(nw.Int64)._nodes[-1])
    return found


def _is_expression(value: Any) -> bool:
    return getattr(value, "_nodes", None) is not None


def _is_arithmetic(node: Any) -> bool:
    return node.name in _COMPUTED


def _is_narrow(node: Any) -> bool:
    """Whether an operation comes to integers of fewer than 64 bits."""
    return node.name in _NARROW_LENGTHS or (
        node.name == "cast" and str(node.kwargs.get("dtype")).lstrip("U") in _NARROW_TYPES
    )


def rewritten(expression: Any, table: pa.Table) -> Any:
    """Return an expression for one table that compares and computes as Python does.

    Args:
        expression: The expression of narwhals.
        table: The columns that it reads. The expression that is returned is for these alone.
    """
    import narwhals as nw

    nodes = getattr(expression, "_nodes", None)
    if nodes is None:
        return expression
    return nw.Expr(*(_replaced(node, table) for node in _from_column(tuple(nodes), table)))


def _from_column(nodes: tuple[Any, ...], table: pa.Table) -> tuple[Any, ...]:
    """Return the operations of an expression with a column first, where a literal came first.

    Narwhals takes what is made of a literal to be one value for all rows.
    """
    import narwhals as nw

    if nodes[0].kind.name != "LITERAL":
        return nodes
    for at, node in enumerate(nodes[1:], 1):
        if not any(getattr(one, "_nodes", None) for one in node.exprs):
            continue
        if node.name not in _COMPARISONS and node.name not in _ARITHMETIC:
            return nodes
        frame = nw.from_native(table.slice(0, 1), eager_only=True)
        name, value = next(
            iter(frame.select(nw.Expr(*nodes[:at])).to_dict(as_series=False).items())
        )
        turned = type(node)(node.kind, _turned(node.name), exprs=(value[0],), str_as_lit=True)
        named = nw.col("_").alias(name)._nodes[-1]
        return (*node.exprs[0]._nodes, turned, named, *nodes[at + 1 :])
    return nodes


def _turned(name: str) -> str:
    """Return the operation that has its operands the other way round."""
    if name in _COMPARISONS:
        return _MIRRORED.get(name, name)
    return f"__{name[3:]}" if name.startswith("__r") else f"__r{name[2:]}"


def _replaced(node: Any, table: pa.Table) -> Any:
    exprs = tuple(rewritten(one, table) for one in node.exprs)
    if node.name in _COMPARISONS or node.name in _ARITHMETIC:
        apply = partial(_applied, node.name, [_Argument(exprs[0], node, table)])
    elif node.name == "is_between":
        apply = partial(_between, node.kwargs["closed"], [_Argument(e, node, table) for e in exprs])
    elif node.name == "is_in" and not node.exprs:
        apply = partial(_is_in, list(node.kwargs["other"]))
    elif node.name in _IN_FLOATS:
        apply = partial(_in_floats, node)
    else:
        return type(node)(
            node.kind, node.name, exprs=exprs, str_as_lit=node.str_as_lit,
            allow_multi_output=node.allow_multi_output, **node.kwargs,
        )  # fmt: skip
    return type(node)(
        node.kind, "map_batches", function=apply, return_dtype=None, returns_scalar=False
    )


@final
class _Argument:
    """The other operand of an operation: a value, or a column of the table's length."""

    def __init__(self, given: Any, node: Any, table: pa.Table) -> None:
        self._given = given
        self._is_name = isinstance(given, str) and not node.str_as_lit
        self._table = table

    def value(self) -> Any:
        """Return a Python value as it is, and else the column, as Arrow has it."""
        if self._is_name:
            return self._table.column(self._given)
        if getattr(self._given, "_nodes", None) is None:
            return self._given
        import narwhals as nw

        frame = nw.from_native(self._table, eager_only=True)
        (column,) = frame.select(self._given).to_native().columns
        return column if len(column) == len(self._table) else column[0].as_py()


def _applied(name: str, arguments: Sequence[_Argument], series: Any) -> Any:
    other = arguments[0].value()
    if name in _COMPARISONS and (made := _compared(name, series.native, other)) is not None:
        return series._with_native(made)
    if name in _ARITHMETIC:
        if type(other) is int and not -(2**63) <= other < 2**63:
            raise OverflowError(f"the integer {other} does not fit 64 bits")
        series, other = _in_one_kind(series, other)
    return getattr(series, name)(_series_like(series, other))


def _between(closed: str, arguments: Sequence[_Argument], series: Any) -> Any:
    found = [
        _applied(name, [one], series) for name, one in zip(_BETWEEN[closed], arguments, strict=True)
    ]
    return found[0] & found[1]


def _is_in(values: list[Any], series: Any) -> Any:
    found = pa.chunked_array([pa.repeat(pa.scalar(False), len(series.native))])
    for value in values:
        equal = None if value is None else _compared("__eq__", series.native, value)
        if equal is not None:
            found = pc.or_(found, equal.fill_null(False))
        elif value is not None:  # of no numbers
            return series.is_in(values)
    if None in values:
        found = pc.or_(found, series.native.is_null())
    return series._with_native(found)


def _in_floats(node: Any, series: Any) -> Any:
    if node.name != "cast":
        return getattr(_floating(series), node.name)(**node.kwargs)
    is_float = node.kwargs["dtype"] in _float_types()
    return (_floating(series) if is_float else series).cast(**node.kwargs)


def _float_types() -> tuple[Any, ...]:
    import narwhals as nw

    return (nw.Float64, nw.Float32, nw.Float64(), nw.Float32())


def _floating(series: Any) -> Any:
    """Return integers as floats, rounded to the nearest."""
    if not pa.types.is_integer(series.native.type):
        return series
    return series._with_native(series.native.cast(pa.float64(), safe=False))


def _in_one_kind(series: Any, other: Any) -> tuple[Any, Any]:
    """Return two operands of arithmetic as floats if one of them is a float.

    Raises:
        TypeError: One is a decimal and the other a float.
    """
    own, given = _kind(series.native), _kind(other)
    refuse_decimals(own, given)
    if "float" not in (own, given) or not {own, given} <= {"float", "int"}:
        return series, other
    if isinstance(other, pa.ChunkedArray):
        other = other.cast(pa.float64(), safe=False)
    elif type(other) is int:
        other = float(other)
    return _floating(series), other


def refuse_decimals(own: str | None, given: str | None) -> None:
    """Raise ``TypeError`` if one operand of arithmetic is a decimal and the other a float."""
    if {own, given} == {"decimal", "float"}:
        raise TypeError(
            "a decimal and a float: the result would not be exact. Cast one of them, as in "
            '.cast(nw.Float64), or write the number as Decimal("0.5")'
        )


def _kind(value: Any) -> str | None:
    if isinstance(value, (pa.ChunkedArray, pa.Array)):
        kind = value.type
        if pa.types.is_integer(kind):
            return "int"
        if pa.types.is_floating(kind):
            return "float"
        return "decimal" if pa.types.is_decimal(kind) else None
    names = {int: "int", float: "float", Decimal: "decimal"}
    return names.get(type(value))


def _series_like(series: Any, other: Any) -> Any:
    return series._with_native(other) if isinstance(other, pa.ChunkedArray) else other


def _compared(name: str, own: pa.ChunkedArray, other: Any) -> pa.ChunkedArray | None:
    """Return what a comparison comes to, if it is of numbers; else ``None``."""
    kinds = (_kind(own), _kind(other))
    is_far = type(other) is int and not -(2**63) <= other < 2**64
    if None in kinds or ("decimal" in kinds and "float" not in kinds and not is_far):
        return None  # Arrow compares decimals with decimals and integers exactly
    if len(own) == 0:
        return pa.chunked_array([pa.array([], pa.bool_())])
    left = _flat(own)
    if not isinstance(other, pa.ChunkedArray):
        right: Any = other
        valid = left.is_valid()
    else:
        if len(own) == 1 < len(other):  # a literal on the left
            left = pa.repeat(left[0], len(other))
        right = _flat(other)
        valid = pc.and_(left.is_valid(), right.is_valid())
    sign, ordered = _signs(left, right)
    found = _COMPARISONS[name](sign, 0)
    found = np.where(ordered, found, name == "__ne__")
    return pa.chunked_array([pc.if_else(valid, pa.array(found, pa.bool_()), None)])


def _flat(array: pa.ChunkedArray) -> pa.Array:
    whole = array.combine_chunks()
    return whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole


def _signs(left: pa.Array, right: Any) -> tuple[Sign, Mask]:
    """Return how values compare, and which of them do: a NaN compares with nothing. O(n).

    Values of which one is a decimal, or an integer that no type of Arrow holds, are compared as
    Python's where their floats are too close to tell.
    """
    if type(right) is int and not -(2**63) <= right < 2**64:
        return _signs_of_far(left, right)
    if not isinstance(right, pa.Array):
        wide = type(right) is int and right >= 2**63
        right = pa.repeat(pa.scalar(right, pa.uint64() if wide else None), len(left))
    if pa.types.is_integer(left.type) and pa.types.is_integer(right.type):
        return _signs_of_integers(_integers(left), _integers(right)), np.ones(len(left), np.bool_)
    if pa.types.is_decimal(left.type) or pa.types.is_decimal(right.type):
        return _signs_of_decimals(left, right)
    if pa.types.is_floating(left.type) and pa.types.is_floating(right.type):
        own, given = _floats(left), _floats(right)
        return _sign(own, given), ~(np.isnan(own) | np.isnan(given))
    if pa.types.is_floating(left.type):
        sign, ordered = _signs_beside_floats(_integers(right), _floats(left))
        return -sign, ordered
    return _signs_beside_floats(_integers(left), _floats(right))


def _sign(own: NDArray[Any], given: NDArray[Any]) -> Sign:
    return (own > given).astype(np.int8) - (own < given).astype(np.int8)


def _signs_of_integers(own: NDArray[Any], given: NDArray[Any]) -> Sign:
    if own.dtype == given.dtype:
        return _sign(own, given)
    if own.dtype == np.int64:
        return -_signs_of_integers(given, own)
    made = _sign(own, given.astype(np.uint64))
    made[given < 0] = 1
    return made


def _signs_beside_floats(integers: NDArray[Any], floats: NDArray[np.float64]) -> tuple[Sign, Mask]:
    """Compare integers with floats: rounded to floats, and exactly where these are equal."""
    sign = _sign(integers.astype(np.float64), floats)
    ordered = ~np.isnan(floats)
    tied = np.flatnonzero(ordered & (sign == 0))
    beyond = floats[tied] == (_UINT64 if integers.dtype == np.uint64 else _INT64)
    sign[tied[beyond]] = -1
    near = tied[~beyond]
    sign[near] = _sign(integers[near], floats[near].astype(integers.dtype))
    return sign, ordered


def _signs_of_decimals(left: pa.Array, right: pa.Array) -> tuple[Sign, Mask]:
    own, given = _floats(left), _floats(right)
    sign = _sign(own, given)
    ordered = ~(np.isnan(own) | np.isnan(given))
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.abs(own - given) <= 1e-12 * np.maximum(np.abs(own), np.abs(given))
    rows = np.flatnonzero(ordered & close)
    pairs = zip(*(one.take(pa.array(rows)).to_pylist() for one in (left, right)), strict=True)
    for row, (one, other) in zip(rows.tolist(), pairs, strict=True):
        if one is not None and other is not None:
            sign[row] = (one > other) - (one < other)
    return sign, ordered


def _signs_of_far(left: pa.Array, right: int) -> tuple[Sign, Mask]:
    """Compare with an integer that no type of Arrow holds."""
    if pa.types.is_integer(left.type):
        sign = np.full(len(left), -1 if right > 0 else 1, dtype=np.int8)
        return sign, np.ones(len(left), np.bool_)
    values = left.to_pylist()
    sign = np.array([0 if v is None else (v > right) - (v < right) for v in values], np.int8)
    return sign, ~np.array([v is not None and v != v for v in values], np.bool_)


def _integers(array: pa.Array) -> NDArray[Any]:
    kind = pa.uint64() if pa.types.is_uint64(array.type) else pa.int64()
    found: NDArray[Any] = array.cast(kind).fill_null(0).to_numpy(zero_copy_only=False)
    return found


def _floats(array: pa.Array) -> NDArray[np.float64]:
    made = array.cast(pa.float64(), safe=False).fill_null(0.0)
    found: NDArray[np.float64] = made.to_numpy(zero_copy_only=False)
    return found
