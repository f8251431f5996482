"""Arithmetic in expressions: of integers in int64, and checked, as is that of times (S-B1).

Arrow computes in the narrower type of what it is given, and wraps. So columns of narrower integers
become int64 before an expression computes, and rows for which an operation leaves 64 bits are found
and set apart. To find out that there are none takes the least and the greatest value of each
column, as a rule: what an operation can come to follows from these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lowwater.engine.records.columns import Mask as Mask
from lowwater.engine.records.elementwise import operations
from lowwater.engine.records.integer_spans import (
    HIGH,
    LOW,
    OPERATIONS,
    Span,
    absolute,
    clipped,
    joined,
    negated,
    of_quotient,
    span_of,
    span_of_literal,
)
from lowwater.engine.records.mixed_numbers import (
    is_for_python,
    is_refusal,
    rewritten,
    widened,
)
from lowwater.engine.records.time_arithmetic import CHECKED, column_leaves, is_time, times_leave
from lowwater.errors import InternalError
from lowwater.time import Int64Array

if TYPE_CHECKING:
    import narwhals as nw

OUTSIDE = "the result of an operation on integers does not fit 64 bits"

_SUM, _MEAN = "sum_horizontal", "mean_horizontal"
_NEUTRAL = frozenset({"alias", "name.keep", "name.prefix", "name.suffix", "name.map"})
_SMALL = ("dt.year", "dt.month", "dt.day", "dt.hour", "dt.minute", "dt.second", "dt.ordinal_day",
          "dt.weekday", "dt.millisecond", "dt.microsecond", "dt.nanosecond", "str.len_chars",
          "list.len")  # fmt: skip
"""Operations whose results are far from the limits."""
_BINARY = {
    name: (operation, swapped)
    for operation in ("add", "sub", "mul", "pow")
    for name, swapped in ((f"__{operation}__", False), (f"__r{operation}__", True))
}
_UNARY = frozenset({"abs", "__neg__"})
_INTEGER_QUOTIENTS = frozenset({"__floordiv__", "__rfloordiv__", "__mod__", "__rmod__"})
_QUOTIENTS = _INTEGER_QUOTIENTS | {"__truediv__", "__rtruediv__"}


def computes(expressions: Iterable[Any]) -> bool:
    """Return whether an expression has an operation of arithmetic."""
    return any(
        node.name in _BINARY
        or node.name in _UNARY
        or node.name in _QUOTIENTS
        or node.name in (_SUM, _MEAN)
        or node.name in CHECKED
        for expression in expressions
        for node, _ in operations(expression)
    )


def with_wide_integers(table: pa.Table) -> pa.Table:
    """Return a table whose integers are int64, but for columns of uint64 that are not all of it."""
    fields = []
    for at, field in enumerate(table.schema):
        kind = field.type
        fits = pa.types.is_integer(kind) and not pa.types.is_int64(kind)
        if pa.types.is_uint64(kind):
            most = pc.max(table.column(at)).as_py() if len(table) else None
            fits = most is None or most <= HIGH
        fields.append(field.with_type(pa.int64()) if fits else field)
    schema = pa.schema(fields)
    return table if schema.equals(table.schema) else table.cast(schema)


def with_columns(
    table: pa.Table, unnamed: Sequence[Any], named: Mapping[str, Any]
) -> nw.DataFrame[Any]:
    """Return a table with the columns of expressions, as narwhals gives it.

    Raises:
        OutOfRangeError: An operation on integers leaves 64 bits.
    """
    import narwhals as nw

    every = [*unnamed, *named.values()]
    if not computes(every):
        return _with_columns(table, unnamed, named)
    wide = with_wide_integers(table)
    computed = [widened(one) for one in unnamed]
    computed_named = {name: widened(one) for name, one in named.items()}
    require_range([*computed, *computed_named.values()], wide)
    made = _with_columns(wide, computed, computed_named)
    if wide is table:
        return made
    frame = nw.from_native(table, eager_only=True)
    names = frame.head(0).select(*unnamed, **named).columns
    untouched = [one for one in table.column_names if one not in names]
    kept = frame.select(
        *untouched,
        *(one for one in unnamed if not computes([one])),
        **{name: one for name, one in named.items() if not computes([one])},
    )
    return made.with_columns(kept[name] for name in kept.columns)


def names_of(table: pa.Table, unnamed: Sequence[Any], named: Mapping[str, Any]) -> list[str]:
    """Return the names of the results of expressions.

    Raises:
        ColumnNotFoundError: A column is missing; and whatever else narwhals or Arrow raise.
    """
    import narwhals as nw

    if not unnamed:
        return list(named)
    none = nw.from_native(table.slice(0, 0), eager_only=True)
    try:
        return list(none.select(*unnamed, **named).columns)
    except (pa.ArrowInvalid, OverflowError) as error:
        if not is_refusal(error):
            raise
    every = [rewritten(one, table.slice(0, 0)) for one in unnamed]
    return [*none.select(*every).columns, *named]


def _with_columns(
    table: pa.Table, unnamed: Sequence[Any], named: Mapping[str, Any]
) -> nw.DataFrame[Any]:
    import narwhals as nw

    try:
        if not is_for_python([*unnamed, *named.values()], table):
            return nw.from_native(table, eager_only=True).with_columns(*unnamed, **named)
    except (pa.ArrowInvalid, OverflowError) as error:
        if not is_refusal(error):
            raise
    return _as_python_has_them(table, unnamed, named)


def _as_python_has_them(
    table: pa.Table, unnamed: Sequence[Any], named: Mapping[str, Any]
) -> nw.DataFrame[Any]:
    """Evaluate expressions in which integers are beside floats, or beyond int64."""
    import narwhals as nw

    return nw.from_native(table, eager_only=True).with_columns(
        *(rewritten(one, table) for one in unnamed),
        **{name: rewritten(one, table) for name, one in named.items()},
    )


def require_range(expressions: Iterable[Any], table: pa.Table) -> None:
    """Raise ``OutOfRangeError`` if an operation on integers leaves 64 bits for some row."""
    known: dict[str, Span | None] = {}
    if len(table) and any(_Check(table, known).finds(one) for one in expressions):
        raise OutOfRangeError(OUTSIDE)


def out_of_range(expression: Any, table: pa.Table) -> Mask | None:
    """Return the rows for which an operation on integers leaves 64 bits; ``None`` if none does.

    What is computed only where a condition does not hold (``when``) does not count there.

    Args:
        expression: An expression of narwhals.
        table: The columns that it reads, with wide integers.
    """
    found = _Check(table).bad_rows(expression)
    return found if found is not None and found.any() else None


class OutOfRangeError(ArithmeticError):
    """An operation on integers leaves 64 bits."""


@final
class _Check:
    """Checks one expression over one table."""

    def __init__(self, table: pa.Table, known: dict[str, Span | None] | None = None) -> None:
        self._table = table
        self._known = {} if known is None else known
        self._bad: Mask | None = None
        self._may_have_times = any(not _is_number(kind) for kind in table.schema.types)

    def finds(self, expression: Any) -> bool:
        """Return whether an operation leaves 64 bits for some row."""
        found = self.bad_rows(expression)
        return found is not None and bool(found.any())

    def bad_rows(self, expression: Any) -> Mask | None:
        """Return the rows for which an operation leaves 64 bits; ``None`` if there are none."""
        nodes = getattr(expression, "_nodes", None)
        if nodes is None:
            return None
        try:
            self._span(tuple(nodes), None)
        except MemoryError:
            raise
        except Exception as error:
            self._require_failure(expression, error)
        return self._bad

    def _require_failure(self, expression: Any, error: Exception) -> None:
        """Raise unless the expression fails, too, which then says why: else it went unchecked."""
        import narwhals as nw

        try:
            nw.from_native(self._table, eager_only=True).select(expression)
        except MemoryError:
            raise
        except Exception:  # as its own evaluation will say
            return
        raise InternalError(f"{expression!r} cannot be checked: {error!r}") from error

    def _span(self, nodes: tuple[Any, ...], where: Mask | None) -> Span | None:
        """Return what integers a chain of operations comes to; ``None`` if it may be no integers.

        Args:
            nodes: The operations.
            where: The rows that count; ``None`` for all.
        """
        if len(names := self._columns_of(nodes)) > 1:  # each column by itself
            return joined([self._span((*_column(name), *nodes[1:]), where) for name in names])
        span: Span | None = None
        is_known = False
        for number, node in enumerate(nodes):
            before = nodes[:number]
            if node.name == "when_then":
                span, is_known = self._chosen(node, where), True
                continue
            if node.kind.name == "COL":
                span, is_known = self._of_column(str(node.kwargs["names"][0])), True
                continue
            if node.kind.name == "LITERAL":
                span, is_known = span_of_literal(node.kwargs.get("value")), True
                continue
            no_integers = is_known and span is None
            arguments = [
                None if no_integers and _is_column(value) else self._argument(value, node, where)
                for value in node.exprs
            ]
            if node.name in _BINARY or node.name in _UNARY:
                if not is_known:
                    span = self._evaluated(before)
                if span is None or None in arguments:
                    self._check_times(node, before, where)
                    span = None
                else:
                    span = self._operation(node, before, span, arguments, where)
                is_known = True
            elif node.name in (_SUM, _MEAN):
                span = self._sum(node, arguments, where)
                is_known = node.name == _SUM
            elif node.name in _SMALL:
                span, is_known = Span(-(2**40), 2**40), True
            elif node.name in _INTEGER_QUOTIENTS:
                if not is_known:
                    span = self._evaluated(before)
                self._note_beyond(before, span, node.exprs, arguments, where)
                span, is_known = of_quotient(node.name, span, arguments), True
            elif node.name in CHECKED:
                bad = column_leaves(
                    node, self._array(before), partial(self._array, (*before, node))
                )
                if bad is not None:
                    self._note(bad, where)
                is_known = False
            elif node.name not in _NEUTRAL:
                is_known = False
        return span if is_known else self._evaluated(nodes)

    def _argument(self, value: Any, node: Any, where: Mask | None) -> Span | None:
        if (nodes := getattr(value, "_nodes", None)) is not None:
            return self._span(tuple(nodes), where)
        if isinstance(value, str) and not node.str_as_lit:
            return self._of_column(value)
        return span_of_literal(value)

    def _chosen(self, node: Any, where: Mask | None) -> Span | None:
        condition, *branches = node.exprs
        self._argument(condition, node, where)
        holds = self._truth(condition)
        spans = []
        for number, branch in enumerate(branches):
            counts = holds if number == 0 else ~holds
            spans.append(self._argument(branch, node, counts if where is None else counts & where))
        return joined(spans)

    def _operation(
        self,
        node: Any,
        before: tuple[Any, ...],
        span: Span,
        arguments: list[Span | None],
        where: Mask | None,
    ) -> Span | None:
        self._note_beyond(before, span, node.exprs, arguments, where)
        if node.name in _UNARY:
            turned = negated(span) if node.name == "__neg__" else absolute(span)
            if not turned.fits:
                self._note(_values(self._array(before)) == LOW, where)
            return clipped(turned)
        other = arguments[0] or Span(0, 0)
        operation, swapped = _BINARY[node.name]
        left, right = (other, span) if swapped else (span, other)
        made: Span | None = OPERATIONS[operation](left, right)
        if made is not None and not made.fits:
            own, given = self._array(before), self._array_of(node.exprs[0])
            pair = (given, own) if swapped else (own, given)
            self._note(_leaves(operation, *pair), where)
        return None if made is None else clipped(made)

    def _note_beyond(
        self,
        before: tuple[Any, ...],
        span: Span | None,
        values: Sequence[Any],
        arguments: Sequence[Span | None],
        where: Mask | None,
    ) -> None:
        """Note rows whose values are of uint64 beyond int64, with which nothing is computed."""
        if span is not None and not span.fits:
            self._note(_beyond(self._array(before)), where)
        for value, one in zip(values, arguments, strict=True):
            if one is not None and not one.fits:
                is_literal = type(value) is int
                every = np.ones(len(self._table), np.bool_)
                self._note(every if is_literal else _beyond(self._array_of(value)), where)

    def _sum(self, node: Any, arguments: list[Span | None], where: Mask | None) -> Span | None:
        if None in arguments or not arguments:
            return None
        spans = [one for one in arguments if one is not None]
        total = Span(sum(min(s.low, 0) for s in spans), sum(max(s.high, 0) for s in spans))
        if not total.fits:
            sums: Any = np.zeros(len(self._table), dtype=object)
            for value in node.exprs:
                given = self._array_of(value, node)
                sums = sums + np.array(given.fill_null(0).to_pylist(), dtype=object)
                self._note(np.array([not LOW <= one <= HIGH for one in sums], np.bool_), where)
        return clipped(total)

    def _note(self, bad: Mask, where: Mask | None) -> None:
        if where is not None:
            bad = bad & where
        self._bad = bad if self._bad is None else self._bad | bad

    def _check_times(self, node: Any, before: tuple[Any, ...], where: Mask | None) -> None:
        """Note rows for which an operation on times leaves 64 bits."""
        if not self._may_have_times or not before:
            return
        own = self._array(before)
        if node.name in _UNARY:
            if is_time(own.type):
                self._note(_values(own) == LOW, where)
            return
        operation, swapped = _BINARY[node.name]
        given = self._array_of(node.exprs[0], node)
        if is_time(own.type) or is_time(given.type):
            pair = (given, own) if swapped else (own, given)
            self._note(times_leave(operation, *pair), where)

    def _columns_of(self, nodes: tuple[Any, ...]) -> list[str]:
        """Return the columns that a chain of operations begins with, if it picks some."""
        first = nodes[0]
        if first.kind.name == "COL":
            return list(map(str, first.kwargs["names"]))
        if first.kind.name not in ("ALL", "EXCLUDE", "NTH", "SELECTOR"):
            return []
        import narwhals as nw

        frame = nw.from_native(self._table.slice(0, 0), eager_only=True)
        return list(frame.select(nw.Expr(first)).columns)

    def _of_column(self, name: str) -> Span | None:
        if name not in self._known:
            at = self._table.schema.get_field_index(name)
            self._known[name] = None if at < 0 else span_of(self._table.column(at))
        return self._known[name]

    def _evaluated(self, nodes: tuple[Any, ...]) -> Span | None:
        if not nodes:
            return None
        return span_of(self._array(nodes))

    def _array_of(self, value: Any, node: Any = None) -> pa.ChunkedArray:
        if (nodes := getattr(value, "_nodes", None)) is not None:
            return self._array(tuple(nodes))
        if isinstance(value, str) and node is not None and not node.str_as_lit:
            return self._table.column(value)
        return pa.chunked_array([pa.repeat(pa.scalar(value), len(self._table))])

    def _array(self, nodes: tuple[Any, ...]) -> pa.ChunkedArray:
        """Return the values of a chain of operations that comes to one column."""
        import narwhals as nw

        if len(nodes) == 1 and nodes[0].kind.name == "COL":
            return self._table.column(str(nodes[0].kwargs["names"][0]))
        frame = nw.from_native(self._table, eager_only=True)
        (column,) = frame.select(nw.Expr(*nodes)).to_native().columns
        if len(column) == len(self._table):
            return column
        return pa.chunked_array([pa.repeat(column[0], len(self._table))])

    def _truth(self, condition: Any) -> Mask:
        found: Mask = self._array_of(condition).cast(pa.bool_()).fill_null(False).to_numpy()
        return found


def _column(name: str) -> tuple[Any, ...]:
    import narwhals as nw

    return tuple(nw.col(name)._nodes)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_column(value: Any) -> bool:
    nodes = getattr(value, "_nodes", None)
    return nodes is not None and len(nodes) == 1 and nodes[0].kind.name == "COL"


_EXACT = {
    "add": lambda left, right: left + right,
    "sub": lambda left, right: left - right,
    "mul": lambda left, right: left * right,
    "pow": lambda left, right: left**right,
}
_ABOUT = 1e-9


def _leaves(operation: str, left: pa.ChunkedArray, right: pa.ChunkedArray) -> Mask:
    """Return the rows for which an operation leaves 64 bits. O(n), in floats but near the limit."""
    valid = pc.and_(left.is_valid(), right.is_valid()).to_numpy()
    own, given = _values(left), _values(right)
    size = _sizes(operation, own, given)
    bad: Mask = size > 1 + _ABOUT
    for row in np.flatnonzero((size >= 1 - _ABOUT) & ~bad).tolist():
        made = _EXACT[operation](int(own[row]), int(given[row]))
        bad[row] = not LOW <= made <= HIGH
    return bad & valid


def _sizes(operation: str, left: Int64Array, right: Int64Array) -> NDArray[np.float64]:
    """Return about how large results are, 1.0 for the limit of 64 bits."""
    own, given = left.astype(np.float64), right.astype(np.float64)
    if operation == "add":
        return np.abs(own + given) / 2.0**63
    if operation == "sub":
        return np.abs(own - given) / 2.0**63
    if operation == "mul":
        return np.abs(own * given) / 2.0**63
    bits: NDArray[np.float64] = np.log2(np.maximum(np.abs(own), 1)) * np.maximum(given, 0) / 63
    return bits


def _values(array: pa.ChunkedArray) -> Int64Array:
    """Return integers, 0 for nulls and for those beyond int64, which are noted by themselves."""
    filled = array.cast(pa.int64()).fill_null(0) if is_time(array.type) else array.fill_null(0)
    if pa.types.is_uint64(array.type):
        zero = pa.scalar(0, pa.uint64())
        filled = pc.if_else(pc.greater(filled, pa.scalar(HIGH, pa.uint64())), zero, filled)
    found: Int64Array = filled.cast(pa.int64()).to_numpy()
    return found


def _beyond(array: pa.ChunkedArray) -> Mask:
    """Return which integers of uint64 are not of int64."""
    if not pa.types.is_uint64(array.type):
        return np.zeros(len(array), dtype=np.bool_)
    found: Mask = pc.greater(array.fill_null(0), pa.scalar(HIGH, pa.uint64())).to_numpy()
    return found
