"""What the conditions of a row pattern say of other rows: ``lw.prev``, ``lw.matched``.

Both return plain expressions over virtual columns (:mod:`lowwater.engine.records.other_rows`), so
they combine with all that expressions have. This module also reads them back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from lowwater.engine.records.elementwise import (
    check_single,
    check_within_row,
    columns_named,
    copied_column,
    reading_of,
)
from lowwater.engine.records.other_rows import Function, Reference
from lowwater.engine.records.other_rows import MatchedValue as MatchedValue
from lowwater.engine.records.other_rows import Prev as Prev
from lowwater.engine.records.other_rows import reference_of as reference_of
from lowwater.errors import InvalidArgument, describe, explained, explains

if TYPE_CHECKING:
    from lowwater.engine.records.column_expressions import Expr


@explained(col="column", field="column", n="k", offset="k", periods="k")
def prev(column: str, k: int = 1) -> Expr:
    """Return an expression for the value of a column in the row before the row under test.

    Rows are those of the key, in order of event time; whether a row belongs to the match makes no
    difference, so in the first row of a match it is a value from before the match. It is null where
    there is no such row, and a condition that is null is false. Only the conditions and measures of
    ``match`` take it, and the results of ``over`` with a number of rows.

    >>> prev("price"), prev("price", 2)
    (col(prev('price', 1)), col(prev('price', 2)))

    Args:
        column: The name of the column.
        k: How many rows before, from 1.

    Raises:
        InvalidArgument: The column is no name, or ``k`` is not an int of at least 1.
    """
    name = _column(column, "lw.prev")
    return _virtual(Prev(name, _rows(k, 1, "lw.prev")))


@explained(of="variable", name="variable")
def matched(variable: str | None = None) -> Matched:
    """Return the rows that a match has so far, for the conditions of ``match``.

    The row under test is one of them, as a row of the variable whose condition it is: in that
    condition, the last row of the variable is the row itself.

    >>> matched("down").last("price"), matched().count()
    (col(matched('down').last('price', 0)), col(matched(None).count()))

    Args:
        variable: The variable of the pattern whose rows they are; ``None``: all rows of the match.

    Raises:
        InvalidArgument: The variable is no name.
    """
    return Matched(variable)


@final
@explains
@dataclass(frozen=True, slots=True, repr=False)
class Matched:
    """The rows of a match so far; its methods return expressions. :func:`matched` makes it.

    Null values are ignored, as aggregates do; :meth:`first` and :meth:`last` take them.

    Args:
        variable: The variable whose rows they are; ``None``: all rows of the match.

    Raises:
        InvalidArgument: The variable is no name.
    """

    variable: str | None = None

    def __post_init__(self) -> None:
        given: object = self.variable
        if given is not None and (not isinstance(given, str) or not given):
            raise InvalidArgument(
                f"{describe('variable', given)} must be the name of a variable of the pattern",
                where="lw.matched",
                hint='Write, say, lw.matched("down").last("price")',
            )

    def first(self, column: str, k: int = 0) -> Expr:
        """Return the value in the first row; null if there is none.

        Args:
            column: The name of the column.
            k: How many rows after the first one, from 0.

        Raises:
            InvalidArgument: The column is no name, or ``k`` is not an int of at least 0.
        """
        return self._value("first", column, k)

    def last(self, column: str, k: int = 0) -> Expr:
        """Return the value in the last row; null if there is none.

        Args:
            column: The name of the column.
            k: How many rows before the last one, from 0.

        Raises:
            InvalidArgument: The column is no name, or ``k`` is not an int of at least 0.
        """
        return self._value("last", column, k)

    def min(self, column: str) -> Expr:
        """Return the smallest value; null for no values.

        Raises:
            InvalidArgument: The column is no name.
        """
        return self._value("min", column)

    def max(self, column: str) -> Expr:
        """Return the largest value; null for no values.

        Raises:
            InvalidArgument: The column is no name.
        """
        return self._value("max", column)

    def sum(self, column: str) -> Expr:
        """Return the sum of the values; 0 for no values.

        Raises:
            InvalidArgument: The column is no name.
        """
        return self._value("sum", column)

    def mean(self, column: str) -> Expr:
        """Return the mean of the values; null for no values.

        Raises:
            InvalidArgument: The column is no name.
        """
        return self._value("mean", column)

    def count(self, column: str | None = None) -> Expr:
        """Return the number of rows, or of the values of a column that are not null.

        Args:
            column: The name of the column; ``None`` counts rows.

        Raises:
            InvalidArgument: The column is no name.
        """
        if column is None:
            return _virtual(MatchedValue(self.variable, "count", None))
        return self._value("count", column)

    def __repr__(self) -> str:
        return f"matched({'' if self.variable is None else repr(self.variable)})"

    def _value(self, function: Function, column: str, k: int = 0) -> Expr:
        where = f"lw.matched(...).{function}"
        name = _column(column, where)
        return _virtual(MatchedValue(self.variable, function, name, _rows(k, 0, where)))


def check_expression(name: str, value: object, step: str) -> None:
    """Check an expression of a row pattern, which may refer to other rows.

    Args:
        name: What messages call it.
        value: What the user gave.
        step: The step that it is for.

    Raises:
        InvalidArgument: It is no expression, has several results, does not name its columns, or
            looks at other rows in another way.
    """
    import narwhals as nw  # a pipeline without expressions never loads it

    if not isinstance(value, nw.Expr):
        raise InvalidArgument(
            f"{describe(name, value)} is not an expression over columns",
            where=step,
            hint='Write, say, lw.col("price") < lw.prev("price")',
        )
    check_within_row(value, step, of_match=True)
    check_single(value, step)
    if plain_columns(value) is None:  # virtual columns would be counted among them
        raise InvalidArgument(
            f"{value!r} does not name the columns that it reads",
            where=step,
            hint='Name them: lw.col("price") > 5',
        )


def references_in(expression: Any) -> frozenset[Reference]:
    """Return the values of other rows that an expression reads.

    >>> references_in(prev("price") > 1)
    frozenset({Prev(column='price', k=1)})
    """
    found = map(reference_of, columns_named(expression))
    return frozenset(reference for reference in found if reference is not None)


def plain_columns(expression: Any) -> frozenset[str] | None:
    """Return the columns of the row itself that an expression reads; ``None``: any of them.

    >>> import lowwater as lw
    >>> plain_columns(lw.col("price") > lw.prev("price"))
    frozenset({'price'})
    """
    columns = reading_of([expression]).columns
    if columns is None:
        return None
    return frozenset(name for name in columns if reference_of(name) is None)


def _virtual(reference: Reference) -> Expr:
    from lowwater.engine.records.column_expressions import col  # it loads narwhals

    return col(reference.name)


def _column(column: object, where: str) -> str:
    if isinstance(column, str) and column:
        return column
    hint = f'Write, say, {where}("price")'
    if hasattr(column, "_nodes"):
        copied = copied_column(column)
        hint = (
            f'Compute with what it returns: {where}("price") * 2'
            if copied is None
            else f"Write {where}({copied!r})"
        )
    raise InvalidArgument(
        f"{describe('column', column)} must be the name of a column", where=where, hint=hint
    )


def _rows(k: object, least: int, where: str) -> int:
    if isinstance(k, bool) or not isinstance(k, int) or k < least:
        raise InvalidArgument(
            f"{describe('k', k)} must be an int of at least {least}",
            where=where,
            hint=f'{where}("price", k={least}) is the nearest one'
            + ("; the value of the row itself is lw.col(...)" if least else ""),
        )
    return k
