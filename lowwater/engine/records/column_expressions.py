"""The expressions that users write: those of narwhals, with this library's words for a mistake.

A file of its own because it imports narwhals, which a pipeline without expressions never loads. It
derives a class because an expression's methods make expressions of its own class, so that every
expression that begins with ``lw.col``, ``lw.lit`` or ``lw.when`` is one of these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import narwhals as nw
from narwhals.expr_str import ExprStringNamespace

from lowwater.engine.records.elementwise import check_single
from lowwater.engine.records.regex_groups import extraction_of
from lowwater.errors import InvalidArgument, describe, explained


class TextOperations(ExprStringNamespace["Expr"]):
    """The operations on text, ``lw.col("url").str``: those of narwhals, and :meth:`extract`."""

    def extract(self, regex: str, group: int | str = 1) -> Expr:
        r"""Return the text of a group in the first match of a regular expression.

        It is null where the text is null, where nothing matches, and where the group takes no part
        in the match, as that of ``(a)|b`` in ``"b"``. A group that matches nothing is an empty
        text. The expression has to read one column.

        >>> import lowwater as lw
        >>> urls = [{"at": "2000-01-01T12:00Z", "url": url} for url in ("https://a.example/x", "b")]
        >>> host = lw.col("url").str.extract(r"^https?://([^/]+)")
        >>> rows = lw.from_iterable(urls, time="at").with_columns(host=host)
        >>> [one.value["host"] for one in rows.run()]
        ['a.example', None]

        Args:
            regex: The regular expression, in the
                `syntax of RE2 <https://github.com/google/re2/wiki/Syntax>`_: without look-around
                and references back. ``$`` is the end of the text, also if it ends with a newline.
            group: The number of the group, or its name; 0 for the whole match.

        Returns:
            Text of the type of the column: Arrow ``string`` or ``large_string``.

        Raises:
            InvalidArgument: RE2 does not take the regular expression, or it has no such group. Or
                whether the group takes part in a match cannot be told, as for ``(a*)|b``: it may be
                empty, and so may all that takes part with it.
        """
        found = extraction_of(regex, group)
        takes_part = self.contains(regex)
        if found.part is not None:
            takes_part = takes_part & (self.replace_all(found.part, r"\1") != "")
        return when(takes_part, self.replace_all(found.text, r"\1"))


class Expr(nw.Expr):
    """An expression over columns, as narwhals defines it.

    It comes from ``lw.col(...)``, ``lw.lit(...)`` or ``lw.when(...)``.

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

    @property
    def str(self) -> TextOperations:
        """The operations on text."""
        return TextOperations(self)


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


@explained(cond="condition", predicate="condition", then="value", else_="otherwise")
def when(condition: nw.Expr, value: Any, otherwise: Any = None) -> Expr:
    """Return an expression with one of two values, depending on a condition.

    What is computed for the value that is not chosen does no harm: an integer that leaves 64 bits
    there makes no dead letter.

    >>> import lowwater as lw
    >>> flights = [{"at": "2000-01-01T12:00Z", "delay": delay} for delay in (7, -2, None)]
    >>> late = lw.when(lw.col("delay") > 0, lw.col("delay"), 0)
    >>> rows = lw.from_iterable(flights, time="at").with_columns(late=late)
    >>> [one.value["late"] for one in rows.run()]
    [7, 0, 0]

    Args:
        condition: An expression that is true, false or null; null is false.
        value: What the result is where it is true: an expression, or a plain value, which stands
            for itself as in :func:`lit`. So ``"a"`` is a text, and ``lw.col("a")`` a column.
        otherwise: What it is elsewhere, likewise; ``None``: null. The two values have one type, or
            two numbers of which Arrow makes one type: of ``int64`` and ``double`` it makes
            ``double``, and a record with an integer that this would round is a dead letter
            (``bad_expression``).

    Raises:
        InvalidArgument: The condition is not an expression.
    """
    if not isinstance(condition, nw.Expr):
        column = f'lw.col("{condition}")' if isinstance(condition, str) else 'lw.col("delay") > 5'
        raise InvalidArgument(
            f"{describe('condition', condition)} is not an expression over columns",
            where="lw.when",
            hint=f"Write, say, lw.when({column}, 1, 0)",
        )
    check_single(condition, "lw.when")
    is_true = condition == nw.lit(True)  # nulls alone have no type, and so become truths
    chosen = nw.when(is_true).then(_valued(value))
    return _ours(chosen.otherwise(None if otherwise is None else _valued(otherwise)))


def _valued(value: Any) -> nw.Expr:
    return value if isinstance(value, nw.Expr) else nw.lit(value)


def _ours(expression: nw.Expr) -> Expr:
    """Return a new expression as one of this library's class, which adds no data to it."""
    expression.__class__ = Expr
    assert isinstance(expression, Expr)
    return expression
