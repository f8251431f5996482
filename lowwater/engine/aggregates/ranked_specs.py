"""Aggregates that order or sketch values: top, most_frequent, quantiles, approximate counts."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike

from lowwater.engine.aggregates._base import Aggregate
from lowwater.engine.aggregates._conditions import condition_of
from lowwater.engine.aggregates._hyperloglog import ApproxDistinct, DistinctCoupons, coupons
from lowwater.engine.aggregates._order import number_ranks, ranks_of, ranks_of_any
from lowwater.engine.aggregates._quantiles import QuantilesOf, fractions_of, log_bins
from lowwater.engine.aggregates._tally import MostFrequent, Tally
from lowwater.engine.aggregates._top import Top
from lowwater.engine.aggregates.built_in import VALUE, BuiltIn, column_name, variable_of
from lowwater.errors import InvalidArgument, describe, explained

if TYPE_CHECKING:
    import narwhals as nw

_LEAST_PRECISION, _MOST_PRECISION = 4, 21


@explained(col="by", column="by", k="n", columns="keep", fields="keep")
def top(
    n: int,
    *,
    by: str,
    keep: str | Sequence[str] = (),
    ties: str | Sequence[str] = (),
    with_ties: bool = False,
    reverse: bool = False,
    where: nw.Expr | None = None,
    of: str | None = None,
) -> BuiltIn:
    """List the records with the largest values of a column: dicts of ``by`` and ``keep``, in order.

    Of records with equal ``by``, the ones with smaller ``ties`` come first, then the ones with
    smaller other fields (numbers and times by value, text by code point, nulls first). So which
    records are listed depends on the records alone, not on how they came. An empty list for none.

    Args:
        n: How many records.
        by: The column that decides, of any ordered type. Records in which it is null are ignored,
            and a NaN is invalid, as for :func:`max`.
        keep: The columns that a record in the list has, besides ``by``.
        ties: The columns that order records of equal ``by``, ascending. They are in the list only
            if ``keep`` names them.
        with_ties: Lists also the records that are equal to the n-th in ``by`` and ``ties``. Then
            the length of the list has no bound, and neither has the state.
        reverse: Lists the records with the smallest values, the smallest first.
        where: Counts only the elements for which this expression is true, as for :func:`count`.
        of: The variable of a match whose rows count, as for :func:`count`.

    Over a table or a stage that retracts, all records of a window are kept.

    Raises:
        InvalidArgument: ``n`` is not at least 1, or a column has no name.

    >>> top(3, by="price", keep=("bidder", "at"), ties="at")
    top(3, by='price', keep=('bidder', 'at'), ties=('at',))
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InvalidArgument(
            f"{describe('n', n)} must be an int of at least 1",
            where="top",
            hint='Write, say, lw.top(3, by="price")',
        )
    by = column_name(by, "by")
    kept, tied = _names(keep, "keep"), _names(ties, "ties")
    also = tuple(name for name in dict.fromkeys((*tied, *kept)) if name != by)
    # Ties are by columns that differ: by itself is equal.
    tying = len([name for name in dict.fromkeys(tied) if name != by])
    fields = [
        (name, None if name == by else also.index(name)) for name in dict.fromkeys((by, *kept))
    ]

    def make(type: pa.DataType | None, dtype: DTypeLike, **more: Any) -> Aggregate:
        return Top(
            type, dtype, **more,
            most=n, fields=fields, ties=tying, with_ties=with_ties, smallest=reverse,
        )  # fmt: skip

    advice = (
        "with_ties=True lists every record that is equal to the last one, however many there are",
        "Leave it out, with ties= to say which of them come first",
    )
    return BuiltIn(
        "top", by, "ordered", make, _top_options(n, by, kept, tied, with_ties, reverse), also=also,
        orderless=True, where=condition_of(where), of=variable_of(of),
        advice=advice if with_ties else None,
    )  # fmt: skip


def _top_options(
    n: int, by: str, keep: tuple[str, ...], ties: tuple[str, ...], with_ties: bool, reverse: bool
) -> tuple[tuple[str, object], ...]:
    options: list[tuple[str, object]] = [("", n), ("by", by)]
    options += [("keep", keep)] if keep else []
    options += [("ties", ties)] if ties else []
    options += [("with_ties", True)] if with_ties else []
    options += [("reverse", True)] if reverse else []
    return tuple(options)


@explained(col="column", field="column", k="n")
def most_frequent(
    column: str = VALUE, n: int = 10, *, where: nw.Expr | None = None, of: str | None = None
) -> BuiltIn:
    """List the most frequent values, with exact counts: ``{"value": ..., "count": ...}``.

    The most frequent value comes first, and of values with equal counts the smaller one. Nulls are
    not counted. State holds each distinct value once, about. It subtracts retracted values.

    Args:
        column: The column, of any type.
        n: How many values at most.
        where: Counts only the elements for which this expression is true, as for :func:`count`.
        of: The variable of a match whose rows count, as for :func:`count`.

    Raises:
        InvalidArgument: ``n`` is not at least 1.

    >>> most_frequent("word", n=3)
    most_frequent('word', n=3)
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InvalidArgument(
            f"{describe('n', n)} must be an int of at least 1",
            where="most_frequent",
            hint='Write, say, lw.most_frequent("word", n=3)',
        )

    def make(type: pa.DataType | None, dtype: DTypeLike) -> Aggregate:
        def ranks(values: Any) -> Any:
            return ranks_of_any(values, where="aggregate(most_frequent)")

        return Tally(dtype, ranks, MostFrequent(n, type))

    return BuiltIn(
        "most_frequent", column_name(column), "anything", make, (("n", n),), make_signed=make,
        orderless=True, where=condition_of(where), of=variable_of(of),
    )  # fmt: skip


@explained(col="column", field="column", quantile="q", quantiles="q")
def quantile(
    column: str, q: float | Sequence[float], *, where: nw.Expr | None = None, of: str | None = None
) -> BuiltIn:
    """Pick the value at a fraction of the sorted values, exactly; null for no values.

    It is a value of the column, by nearest rank: number ``ceil(q * n)`` of n values, counted from
    1; the smallest for 0. State holds each distinct value once, about, as that of :func:`collect`
    holds each value; :func:`approx_quantile` takes bounded state. It subtracts retracted values.

    Args:
        column: The column, of any ordered type; a NaN is invalid, as for :func:`max`.
        q: The fraction, from 0 to 1: 0.99 for the 99th percentile. Several give a list.
        where: Counts only the elements for which this expression is true, as for :func:`count`.
        of: The variable of a match whose rows count, as for :func:`count`.

    Raises:
        InvalidArgument: ``q`` is not from 0 to 1.

    >>> quantile("ms", 0.99), quantile("ms", [0.5, 0.9])
    (quantile('ms', q=0.99), quantile('ms', q=(0.5, 0.9)))
    """
    return _quantile("quantile", column, q, where, of, (("q", _stored(q)),))


@explained(col="column", field="column")
def median(column: str = VALUE, *, where: nw.Expr | None = None, of: str | None = None) -> BuiltIn:
    """Pick the middle value, the lower of two: :func:`quantile` at 0.5; null for no values."""
    return _quantile("median", column, 0.5, where, of, ())


def _quantile(
    name: str,
    column: str,
    q: float | Sequence[float],
    where: nw.Expr | None,
    of: str | None,
    options: tuple[tuple[str, object], ...],
) -> BuiltIn:
    fractions, listed = fractions_of(_checked_fractions(q, name)), not isinstance(q, Real)

    def make(type: pa.DataType | None, dtype: DTypeLike) -> Aggregate:
        return Tally(dtype, ranks_of, QuantilesOf(fractions, listed, type))

    return BuiltIn(
        name, column_name(column), "ordered", make, options, make_signed=make,
        orderless=True, where=condition_of(where), of=variable_of(of),
        advice=(
            "it keeps every distinct value of a window",
            "lw.approx_quantile(...) takes bounded state, within a relative error that you choose",
        ),
    )  # fmt: skip


@explained(col="column", field="column", quantile="q", quantiles="q", relative_error="error")
def approx_quantile(
    column: str,
    q: float | Sequence[float],
    *,
    error: float = 0.01,
    between: tuple[float, float] = (1e-9, 1e9),
    where: nw.Expr | None = None,
    of: str | None = None,
) -> BuiltIn:
    """Estimate the value at a fraction of the sorted values; float64, null for no values.

    The estimate is within a relative ``error`` of the exact :func:`quantile`: 0.01 means that 100
    ms may be reported as 99 to 101 ms. That is an error of the value, not of the rank: the estimate
    of a sketch with a rank error of 1 % may be any value between the 98th and the 100th percentile.

    Values are counted in bins of a log histogram, as in DDSketch (Masson, Rim and Lee, 2019): 2,073
    bins with the defaults, of which state holds those with values. It adds, merges and subtracts,
    and the estimate depends on the values alone.

    Args:
        column: The column, of numbers but decimals; a NaN is invalid.
        q: The fraction, from 0 to 1. Several give a list.
        error: The relative error, above 0 and below 1.
        between: The smallest and the largest magnitude that the error holds for; zero is exact.
            Values beyond, infinities too, count as these.
        where: Counts only the elements for which this expression is true, as for :func:`count`.
        of: The variable of a match whose rows count, as for :func:`count`.

    Raises:
        InvalidArgument: An option is out of range, or there would be more than 65,536 bins.

    >>> approx_quantile("ms", 0.99, error=0.02)
    approx_quantile('ms', q=0.99, error=0.02)
    """
    fractions = fractions_of(_checked_fractions(q, "approx_quantile"))
    listed = not isinstance(q, Real)
    bins = log_bins(*_checked_bins(error, between))

    def make(type: pa.DataType | None, _dtype: DTypeLike) -> Aggregate:
        if type is not None and pa.types.is_decimal(type):
            raise InvalidArgument(
                "approx_quantile of decimals is not exact, so it is not computed from them",
                where="aggregate(approx_quantile)",
                hint="Make floats of them in front: with_columns(...), with .cast(...)",
            )
        summary = QuantilesOf(fractions, listed, pa.float64(), bins)
        return Tally(np.int32, number_ranks, summary, bins.of)

    options: list[tuple[str, object]] = [("q", _stored(q))]
    options += [("error", error)] if error != 0.01 else []
    options += [("between", _stored(between))] if tuple(between) != (1e-9, 1e9) else []
    return BuiltIn(
        "approx_quantile", column_name(column), "numbers", make, tuple(options), make_signed=make,
        orderless=True, where=condition_of(where), of=variable_of(of),
    )  # fmt: skip


@explained(col="column", field="column", p="precision")
def approx_count_distinct(
    column: str = VALUE,
    *,
    precision: int = 11,
    where: nw.Expr | None = None,
    of: str | None = None,
) -> BuiltIn:
    """Estimate the number of distinct values; int64, 0 for no values.

    HyperLogLog: the standard error is ``1.04 / sqrt(2**precision)``, 2.3 % for 11. A window with
    many values takes ``2**precision`` bytes; with at most an eighth as many values it holds a
    number for each. The estimate depends on the set of values alone, whatever order, bundles and
    merges they came by; integral floats count as integers. The registers equal those of an HLL_8
    sketch of Apache DataSketches of the same integers, or of the same texts that are not empty.
    Over a table or a stage that retracts, state holds a count for each distinct slot and rank, some
    19,000 for a million values: a register cannot subtract.

    Args:
        column: The column, of any type that can be a key.
        precision: The logarithm of the number of registers, 4 to 21.
        where: Counts only the elements for which this expression is true, as for :func:`count`.
        of: The variable of a match whose rows count, as for :func:`count`.

    Raises:
        InvalidArgument: ``precision`` is out of range.

    >>> approx_count_distinct("user")
    approx_count_distinct('user')
    """
    least, most = _LEAST_PRECISION, _MOST_PRECISION
    if (
        isinstance(precision, bool)
        or not isinstance(precision, int)
        or not (least <= precision <= most)
    ):
        raise InvalidArgument(
            f"{describe('precision', precision)} must be an int from {least} to {most}",
            where="approx_count_distinct",
            hint="Leave it out for a standard error of 2.3 %; 14 has one of 0.8 %",
        )

    def make(_type: pa.DataType | None, _dtype: DTypeLike) -> Aggregate:
        return ApproxDistinct(precision)

    def make_signed(_type: pa.DataType | None, _dtype: DTypeLike) -> Aggregate:
        def coded(values: Any) -> Any:
            return coupons(values, precision)

        return Tally(np.int32, number_ranks, DistinctCoupons(precision), coded)

    options = (("precision", precision),) if precision != 11 else ()
    return BuiltIn(
        "approx_count_distinct", column_name(column), "anything", make, options,
        make_signed=make_signed, orderless=True, where=condition_of(where), of=variable_of(of),
    )  # fmt: skip


def _names(columns: str | Sequence[str], what: str) -> tuple[str, ...]:
    given = (columns,) if isinstance(columns, str) else tuple(columns)
    return tuple(column_name(name, what) for name in given)


def _checked_fractions(q: Any, where: str) -> tuple[float, ...]:
    given: Any = (q,) if isinstance(q, Real) else q
    is_listed = isinstance(given, (Sequence, np.ndarray)) and not isinstance(given, (str, bytes))
    if not is_listed or not len(given) or not all(map(_is_fraction, given)):
        raise InvalidArgument(
            f"{describe('q', q)} must be a number from 0 to 1, or a list of such",
            where=where,
            hint=f'Write, say, lw.{where}("ms", 0.99)',
        )
    return tuple(given)


def _stored(values: Any) -> Any:
    """Return what an aggregate holds of an argument: a number, or a tuple of such."""
    return values if isinstance(values, Real) else tuple(values)


def _is_fraction(q: Any) -> bool:
    return isinstance(q, Real) and not isinstance(q, bool) and 0 <= float(q) <= 1


def _checked_bins(error: Any, between: Any) -> tuple[float, float, float]:
    if not isinstance(error, float) or not 0 < error < 1:
        raise InvalidArgument(
            f"{describe('error', error)} must be a float above 0 and below 1",
            where="approx_quantile",
            hint="Write error=0.01 for 1 %",
        )
    try:
        given = tuple(between)
    except TypeError:
        given = ()
    are_numbers = all(isinstance(one, Real) and not isinstance(one, bool) for one in given)
    low, high = map(float, given) if len(given) == 2 and are_numbers else (0.0, 0.0)
    if not 0 < low < high < float("inf"):
        raise InvalidArgument(
            f"{describe('between', between)} must be two numbers, 0 < smallest < largest",
            where="approx_quantile",
            hint="Give the magnitudes that matter, as in between=(0.001, 1e6); zero and negative "
            "numbers have bins of their own",
        )
    return error, low, high
