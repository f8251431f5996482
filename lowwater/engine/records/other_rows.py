"""Virtual columns: what expressions call values of other rows, and how such a name is read back.

``lw.prev("price")`` is the column ``prev('price', 1)``, whose values the search for row patterns
fills in before it evaluates the expression. So all that reads expressions works on them, too.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal, TypeAlias, final, get_args

Function: TypeAlias = Literal["first", "last", "min", "max", "sum", "mean", "count"]
"""What is computed of the rows that a match has so far."""

_FUNCTIONS: tuple[Function, ...] = get_args(Function)


@final
@dataclass(frozen=True, slots=True)
class Prev:
    """The value of a column some rows before the row under test.

    >>> Prev("price", 2).name
    "prev('price', 2)"

    Args:
        column: The column.
        k: How many rows before, from 1.
    """

    column: str
    k: int

    @property
    def name(self) -> str:
        """The name of the virtual column."""
        return f"prev({self.column!r}, {self.k})"


@final
@dataclass(frozen=True, slots=True)
class MatchedValue:
    """A value of the rows that a match has so far.

    >>> MatchedValue("down", "last", "price").name
    "matched('down').last('price', 0)"
    >>> MatchedValue(None, "count", None).name
    'matched(None).count()'

    Args:
        variable: The variable whose rows they are; ``None``: all rows of the match.
        function: What is computed of them.
        column: The column; ``None``: of ``count``, the rows themselves.
        k: Of ``first`` and ``last``, how many rows after the first, or before the last; of the
            others 0.
    """

    variable: str | None
    function: Function
    column: str | None
    k: int = 0

    @property
    def name(self) -> str:
        """The name of the virtual column."""
        arguments = [] if self.column is None else [repr(self.column)]
        arguments += [str(self.k)] if self.function in ("first", "last") else []
        return f"matched({self.variable!r}).{self.function}({', '.join(arguments)})"


Reference: TypeAlias = Prev | MatchedValue


def reference_of(name: str) -> Reference | None:
    """Return what a column refers to, if it is a virtual one; ``None`` for any other.

    >>> reference_of("prev('price', 1)")
    Prev(column='price', k=1)
    >>> reference_of("price")
    """
    # Most columns end here, so that parsing costs nothing where there are no patterns.
    if not name.startswith(("prev('", 'prev("', "matched(")) or not name.endswith(")"):
        return None
    try:
        call = ast.parse(name, mode="eval").body
        found = _read(call) if isinstance(call, ast.Call) else None
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    # A name that differs in its spaces or quotes is a column of the user's.
    return found if found is not None and found.name == name else None


def _read(call: ast.Call) -> Reference | None:
    arguments = [ast.literal_eval(value) for value in call.args]
    function = call.func
    if isinstance(function, ast.Name) and function.id == "prev":
        column, k = arguments
        is_one = isinstance(column, str) and type(k) is int and k >= 1
        return Prev(column, k) if is_one else None
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Call):
        return None
    (variable,) = map(ast.literal_eval, function.value.args)
    column = arguments[0] if arguments else None
    k = arguments[1] if len(arguments) > 1 else 0
    if (
        function.attr not in _FUNCTIONS
        or not (variable is None or isinstance(variable, str))
        or not (isinstance(column, str) or (column is None and function.attr == "count"))
        or type(k) is not int
        or k < 0
    ):
        return None
    return MatchedValue(variable, function.attr, column, k)
