"""The aggregates that users write: ``lw.sum("delay")``, ``lw.count()``, ``lw.combine(...)``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from numpy.typing import DTypeLike

from lowwater.engine.aggregates._after_integers import (
    mean_of_both,
    sum_of_both,
    variance_of_both,
)
from lowwater.engine.aggregates._base import Aggregate, Needs
from lowwater.engine.aggregates._combine import Combine, Combiner, checked_combiner
from lowwater.engine.aggregates._conditions import Condition, condition_of
from lowwater.engine.aggregates._decimals import DecimalMean, DecimalSum
from lowwater.engine.aggregates._integers import (
    IntegerMean,
    IntegerSum,
    IntegerVariance,
    is_integer,
)
from lowwater.engine.aggregates._lists import Collect, Shape
from lowwater.engine.aggregates._numeric import Count, Extreme, Mean, Sum, Variance
from lowwater.engine.aggregates._picks import Endmost, Test
from lowwater.engine.aggregates._subtracting import (
    SignedMean,
    SignedSum,
    SignedTest,
    SignedVariance,
)
from lowwater.engine.aggregates.built_in import VALUE as VALUE
from lowwater.engine.aggregates.built_in import BuiltIn as BuiltIn
from lowwater.engine.aggregates.built_in import Make, column_name, variable_of
from lowwater.errors import InvalidArgument, describe, explained

if TYPE_CHECKING:
    import narwhals as nw


@explained(col="column", field="column")
def count(
    column: str | None = None, *, where: nw.Expr | None = None, of: str | None = None
) -> BuiltIn:
    """Count elements, or the non-null values of a column; int64, 0 for no elements.

    Args:
        column: The column; ``None`` counts elements.
        where: Counts only the elements for which this expression is true: ``lw.count(
            where=lw.col("price") < 10)``. Each aggregate takes one. A null is not true, and a
            record for which the expression fails is a dead letter (``bad_expression``), whatever
            the other aggregates read.
        of: In the measures of ``match``, the variable of the pattern whose rows count:
            ``lw.count(of="up")``; ``None``: all rows of the match. Each aggregate takes one, and it
            is refused everywhere else.

    >>> count(), count("delay"), count(of="up")
    (count(), count('delay'), count(of='up'))
    """
    needs: Needs = "nothing" if column is None else "presence"
    return BuiltIn(
        "count", column, needs, _count, make_signed=_count, differs=True, rejoins=sum,
        orderless=True,
        where=condition_of(where), of=variable_of(of),
    )  # fmt: skip


@explained(col="column", field="column")
def sum(column: str = VALUE, *, where: nw.Expr | None = None, of: str | None = None) -> BuiltIn:
    """Sum numbers: exact int64 for ints and bools, float64 for floats; 0 for no values.

    Decimals are summed exactly, too: ``decimal128(38, s)``, with the largest scale of the values. A
    sum that does not fit when it is emitted raises a ``DataError`` (S-B1). Floats are added in
    order of arrival; over a table or a stage that retracts they are summed exactly, and rounded
    once.
    """
    return BuiltIn(
        "sum", column_name(column), "numbers", _sum, make_signed=_signed_sum, differs=True,
        rejoins=sum,
        together=sum_of_both, orderless=True, where=condition_of(where), of=variable_of(of),
    )  # fmt: skip


@explained(col="column", field="column")
def mean(column: str = VALUE, *, where: nw.Expr | None = None, of: str | None = None) -> BuiltIn:
    """Average numbers; float64, null for no values.

    That of ints and bools is exact and rounded once. Of decimals it is one with four digits more,
    rounded half up. The sum of floats is rounded with each value that arrives, so the mean resolves
    some ``n * 1e-16`` of the largest.
    """
    return BuiltIn(
        "mean", column_name(column), "numbers",
        lambda type, dtype: _mean_of(type, dtype) or Mean(),
        make_signed=lambda type, dtype: _mean_of(type, dtype) or SignedMean(),
        together=mean_of_both, orderless=True, where=condition_of(where), of=variable_of(of),
    )  # fmt: skip


@explained(col="column", field="column")
def min(column: str = VALUE, *, where: nw.Expr | None = None, of: str | None = None) -> BuiltIn:
    """Keep the smallest value of any ordered type; null for no values."""
    return BuiltIn(
        "min", column_name(column), "ordered",
        lambda type, dtype: Extreme(type, dtype, largest=False),
        rejoins=min, orderless=True, where=condition_of(where), of=variable_of(of),
    )  # fmt: skip


@explained(col="column", field="column")
def max(column: str = VALUE, *, where: nw.Expr | None = None, of: str | None = None) -> BuiltIn:
    """Keep the largest value of any ordered type; null for no values."""
    return BuiltIn(
        "max", column_name(column), "ordered",
        lambda type, dtype: Extreme(type, dtype, largest=True),
        rejoins=max, orderless=True, where=condition_of(where), of=variable_of(of),
    )  # fmt: skip


@explained(col="column", field="column")
def var(
    column: str = VALUE, *, ddof: int = 1, where: nw.Expr | None = None, of: str | None = None
) -> BuiltIn:
    """Compute the variance of numbers; float64, null for ``ddof`` values or fewer.

    That of ints and bools is exact and rounded once. For floats it resolves a spread of some 1e-12
    of the mean.

    Args:
        column: The column.
        ddof: Delta degrees of freedom: the divisor is ``n - ddof``; 0 for a population variance.
        where: Counts only the elements for which this expression is true, as for :func:`count`.
        of: The variable of a match whose rows count, as for :func:`count`.
    """
    return _spread("var", column, ddof, condition_of(where), variable_of(of), root=False)


@explained(col="column", field="column")
def std(
    column: str = VALUE, *, ddof: int = 1, where: nw.Expr | None = None, of: str | None = None
) -> BuiltIn:
    """Compute the standard deviation of numbers, the square root of :func:`var`."""
    return _spread("std", column, ddof, condition_of(where), variable_of(of), root=True)


@explained(col="column", field="column", order_by="by", version="by")
def first(
    column: str = VALUE,
    *,
    by: str | None = None,
    where: nw.Expr | None = None,
    of: str | None = None,
) -> BuiltIn:
    """Keep the value with the earliest event time (ties: first to arrive); null for no values.

    Args:
        column: The column.
        by: The column that decides which value is first, before the event time does: the value
            with the smallest ``by`` wins, at equal ``by`` the one with the earliest event time. As
            for :func:`last`.
        where: Counts only the elements for which this expression is true, as for :func:`count`.
        of: The variable of a match whose rows count, as for :func:`count`.
    """
    return _endmost("first", column, by, condition_of(where), variable_of(of), last=False)


@explained(col="column", field="column", order_by="by", version="by")
def last(
    column: str = VALUE,
    *,
    by: str | None = None,
    where: nw.Expr | None = None,
    of: str | None = None,
) -> BuiltIn:
    """Keep the value with the latest event time (ties: last to arrive); null for no values.

    Args:
        column: The column.
        by: The column that decides which value is last, before the event time does: the value with
            the largest ``by`` wins, at equal ``by`` the one with the latest event time. It may have
            any ordered type, and a NaN is invalid, as for :func:`max`. Records in which ``column``
            or ``by`` is null are ignored.
        where: Counts only the elements for which this expression is true, as for :func:`count`.
        of: The variable of a match whose rows count, as for :func:`count`.

    >>> last("status"), last("status", by="version")
    (last('status'), last('status', by='version'))
    """
    return _endmost("last", column, by, condition_of(where), variable_of(of), last=True)


@explained(col="column", field="column")
def max_by(column: str, by: str, *, where: nw.Expr | None = None, of: str | None = None) -> BuiltIn:
    """Keep the value of ``column`` in the record with the largest ``by``; null for no records.

    At equal ``by`` the record with the latest event time wins (ties: last to arrive), whatever
    bundles or merging sessions records come in.

    A record whose ``by`` is null is ignored. If ``column`` is null in the record that wins, so is
    the result. Hence several columns picked by the same ``by`` come from one record. This is how it
    differs from ``last(column, by=by)``, which ignores null values of ``column`` too.

    Args:
        column: The column of the result, of any type.
        by: The column that decides, of any ordered type; a NaN is invalid, as for :func:`max`.
        where: Counts only the elements for which this expression is true, as for :func:`count`.
        of: The variable of a match whose rows count, as for :func:`count`.

    >>> max_by("player", "points")
    max_by('player', by='points')
    """
    by = column_name(by, "by")
    return _endmost(
        "max_by", column, by, condition_of(where), variable_of(of), last=True, nulls=True
    )


@explained(col="column", field="column")
def min_by(column: str, by: str, *, where: nw.Expr | None = None, of: str | None = None) -> BuiltIn:
    """Keep the value of ``column`` in the record with the smallest ``by``; null for no records.

    At equal ``by`` the record with the earliest event time wins (ties: first to arrive). Otherwise
    as :func:`max_by`.

    Args:
        column: The column of the result, of any type.
        by: The column that decides, of any ordered type; a NaN is invalid, as for :func:`min`.
        where: Counts only the elements for which this expression is true, as for :func:`count`.
        of: The variable of a match whose rows count, as for :func:`count`.
    """
    by = column_name(by, "by")
    return _endmost(
        "min_by", column, by, condition_of(where), variable_of(of), last=False, nulls=True
    )


@explained(col="column", field="column")
def any(column: str = VALUE, *, where: nw.Expr | None = None, of: str | None = None) -> BuiltIn:
    """Return whether any value is true; false for no values."""
    return _test("any", column, condition_of(where), variable_of(of), every=False)


@explained(col="column", field="column")
def all(column: str = VALUE, *, where: nw.Expr | None = None, of: str | None = None) -> BuiltIn:
    """Return whether every value is true; true for no values."""
    return _test("all", column, condition_of(where), variable_of(of), every=True)


@explained(col="column", field="column")
def collect(column: str = VALUE, *, where: nw.Expr | None = None, of: str | None = None) -> BuiltIn:
    """Collect all values in a list, in order of arrival; state grows with every value."""
    return _kept("collect", column, "list", condition_of(where), variable_of(of), rejoins=collect)


@explained(col="column", field="column")
def collect_set(
    column: str = VALUE, *, where: nw.Expr | None = None, of: str | None = None
) -> BuiltIn:
    """Collect the distinct values in a list, in order of first arrival."""
    return _kept(
        "collect_set", column, "set", condition_of(where), variable_of(of), rejoins=collect_set
    )


@explained(col="column", field="column")
def count_distinct(
    column: str = VALUE, *, where: nw.Expr | None = None, of: str | None = None
) -> BuiltIn:
    """Count distinct values exactly; int64, 0 for no values; state grows with distinct values."""
    return _kept("count_distinct", column, "count", condition_of(where), variable_of(of))


@explained(col="column", field="column", combine_fn="combiner", function="combiner")
def combine(
    combiner: Combiner,
    column: str = VALUE,
    *,
    name: str = "combine",
    where: nw.Expr | None = None,
    of: str | None = None,
) -> BuiltIn:
    """Combine values with a user-defined ``combiner``; runs Python code per element.

    Args:
        combiner: An object with ``create_accumulator``, ``add_input``, ``merge_accumulators`` and
            ``extract_output``, and optionally ``remove_input``.
        column: The column it reads.
        name: The output's default name.
        where: Counts only the elements for which this expression is true, as for :func:`count`.
        of: The variable of a match whose rows count, as for :func:`count`.

    Raises:
        InvalidArgument: The object lacks one of the four, or one has other parameters.
    """
    checked_combiner(combiner, "combine")
    removes = callable(getattr(combiner, "remove_input", None))
    return BuiltIn(
        name, column_name(column), "anything", lambda _type, _dtype: Combine(combiner),
        (("combiner", combiner),),
        make_signed=(lambda _type, _dtype: Combine(combiner)) if removes else None,
        where=condition_of(where), of=variable_of(of),
    )  # fmt: skip


def combiner_of(spec: object) -> Combiner | None:
    """Return the user's combiner that an aggregate runs, if it is such a one."""
    found: Combiner | None = dict(getattr(spec, "options", ())).get("combiner")
    return found


def combined_by(spec: BuiltIn, made: Aggregate) -> BuiltIn:
    """Return an aggregate that runs a combiner, with another one to run it."""

    def make(_type: pa.DataType | None, _dtype: DTypeLike) -> Aggregate:
        return made

    return replace(spec, make=make, make_signed=None if spec.make_signed is None else make)


def _count(_type: pa.DataType | None, _dtype: DTypeLike) -> Aggregate:
    return Count()


def _sum(type: pa.DataType | None, dtype: DTypeLike) -> Aggregate:
    if _is_decimal(type):
        return DecimalSum()
    return IntegerSum() if is_integer(dtype) else Sum()


def _signed_sum(type: pa.DataType | None, dtype: DTypeLike) -> Aggregate:
    if _is_decimal(type):
        return DecimalSum()
    return IntegerSum() if is_integer(dtype) else SignedSum()


def _mean_of(type: pa.DataType | None, dtype: DTypeLike) -> Aggregate | None:
    """Return the mean of integers or decimals; ``None`` for floats."""
    if _is_decimal(type):
        return DecimalMean()
    return IntegerMean() if is_integer(dtype) else None


def _is_decimal(type: pa.DataType | None) -> bool:
    return type is not None and pa.types.is_decimal(type)


def _test(
    name: str, column: str, where: Condition | None, of: str | None, *, every: bool
) -> BuiltIn:
    return BuiltIn(
        name, column_name(column), "booleans", lambda _type, _dtype: Test(every=every),
        make_signed=lambda _type, _dtype: SignedTest(every=every),
        rejoins=all if every else any, orderless=True, where=where, of=of,
    )  # fmt: skip


def _endmost(
    name: str,
    column: str,
    by: str | None,
    where: Condition | None,
    of: str | None,
    *,
    last: bool,
    nulls: bool = False,
) -> BuiltIn:
    return BuiltIn(
        name, column_name(column), "anything", partial(Endmost, last=last, nulls=nulls),
        by=None if by is None else column_name(by, "by"), nulls=nulls, where=where, of=of,
    )  # fmt: skip


def _spread(
    name: str, column: str, ddof: int, where: Condition | None, of: str | None, *, root: bool
) -> BuiltIn:
    if isinstance(ddof, bool) or not isinstance(ddof, int) or ddof < 0:
        raise InvalidArgument(
            f"{describe('ddof', ddof)} must be an int of at least 0", hint="Use 0 or 1"
        )
    options = (("ddof", ddof),) if ddof != 1 else ()

    def make(floats: Callable[..., Aggregate]) -> Make:
        def made(type: pa.DataType | None, dtype: DTypeLike) -> Aggregate:
            if _is_decimal(type):
                raise InvalidArgument(
                    f"{name} of decimals is not exact, so it is not computed from them",
                    where=f"aggregate({name})",
                    hint="Make floats of them in front: with_columns(...), with .cast(...)",
                )
            return (IntegerVariance if is_integer(dtype) else floats)(ddof=ddof, root=root)

        return made

    return BuiltIn(
        name, column_name(column), "numbers", make(Variance), options,
        make_signed=make(SignedVariance),
        together=variance_of_both(ddof=ddof, root=root), orderless=True, where=where, of=of,
    )  # fmt: skip


def _kept(
    name: str,
    column: str,
    shape: Shape,
    where: Condition | None,
    of: str | None,
    rejoins: Callable[[str], BuiltIn] | None = None,
) -> BuiltIn:
    return BuiltIn(
        name, column_name(column), "anything",
        lambda type, dtype: Collect(type, dtype, shape=shape),
        rejoins=rejoins, lists=rejoins is not None, orderless=shape == "count",
        where=where, of=of,
    )  # fmt: skip
