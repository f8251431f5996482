"""The expressions that users write: those of narwhals, with this library's words for a mistake.

A file of its own because it imports narwhals, which a pipeline without expressions never loads. It
derives a class because an expression's methods make expressions of its own class, so that every
expression that begins with ``lw.col`` or ``lw.lit`` is one of these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import narwhals as nw

from lowwater.errors import InvalidArgument


class Expr(nw.Expr):
    """An expression over columns, as narwhals defines it: from ``lw.col(...)`` or ``lw.lit(...)``.

    >>> (col("price") > 1) & (col("shop") == "a")
    col(price).__gt__(1).__and__(col(shop).__eq__(a))
    """

    def __bool__(self) -> NoReturn:
        raise InvalidArgument(
            "an expression over columns is neither true nor false by itself, so `and`, `or`, "
            "`not`, `if`, `in`, `min` and comparisons in a row cannot be used with it",
            hint='Write (lw.col("a") > 1) & (lw.col("b") == 2), with | for or and ~ for not; '
            'lw.col("a").is_in([1, 2]) for in; lw.col("a").is_between(1, 5) for 1 <= a <= 5',
        )


def col(*names: str | Iterable[str]) -> Expr:
    """Return an expression that reads columns.

    Args:
        *names: The names of the columns; usually one.
    """
    return _ours(nw.col(*names))


def lit(value: Any) -> Expr:
    """Return an expression with the same value for every record.

    Args:
        value: The value.
    """
    return _ours(nw.lit(value))


def _ours(expression: nw.Expr) -> Expr:
    """Return a new expression as one of this library's class, which adds no data to it."""
    expression.__class__ = Expr
    assert isinstance(expression, Expr)
    return expression
