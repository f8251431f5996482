"""A built-in aggregate over a column, as a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

import pyarrow as pa
from numpy.typing import DTypeLike

from lowwater.display.text import shown
from lowwater.engine.aggregates._after_integers import Together
from lowwater.engine.aggregates._base import Aggregate, Needs
from lowwater.engine.aggregates._conditions import Condition
from lowwater.errors import InvalidArgument, describe

Make: TypeAlias = Callable[..., Aggregate]
"""Takes the Arrow type and the dtype of the values, and ``by`` and ``also`` as ``bind`` does."""

VALUE = "value"
"""The column that holds plain elements of element-wise sources."""

IS_FILLED = "is_filled"
"""The result that says whether a window has had no elements: see :mod:`.filled`."""


@final
@dataclass(frozen=True, slots=True, repr=False)
class BuiltIn:
    """A built-in aggregate over a column, as a value.

    Args:
        name: The name of the function that made it; the output's default name.
        column: The column it reads; ``None`` for none.
        needs: The kind of values it accepts.
        options: Its other options, as keyword text for the repr.
        make: Binds the aggregate to the type of its column.
        make_signed: Binds a form that subtracts retractions (S-C4); ``None`` if there is none and
            the inputs must be kept.
        differs: Whether the result over the changed elements can be added to the previous result
            to give the new one (S-C5).
        rejoins: Returns the aggregate that combines this one's results over disjoint elements, in
            the column of that name; ``None`` if results do not tell.
        lists: Whether a result is a list of values, which ``rejoins`` takes one by one.
        by: The column that decides which value is picked; ``None`` for none.
        nulls: Whether it takes null values; otherwise they are ignored.
        together: Combines the results of integers and of floats that came after them; ``None``: it
            has one form for both.
        also: Further columns that it reads as they are, nulls included.
        where: Which elements count; ``None`` for all.
        of: The variable of a match whose rows count; ``None`` for all, and outside of matches.
        orderless: Whether the result is the same in whatever order elements come, but for the
            rounding of floats.
        advice: A note for whoever checks a pipeline with it, and what to do; ``None`` for none.
    """

    name: str
    column: str | None
    needs: Needs
    make: Make = field(compare=False)
    options: tuple[tuple[str, object], ...] = ()
    make_signed: Make | None = field(default=None, compare=False)
    differs: bool = field(default=False, compare=False)
    rejoins: Callable[[str], BuiltIn] | None = field(default=None, compare=False)
    lists: bool = field(default=False, compare=False)
    by: str | None = None
    nulls: bool = False
    together: Together | None = field(default=None, compare=False)
    also: tuple[str, ...] = ()
    where: Condition | None = None
    of: str | None = None
    orderless: bool = field(default=False, compare=False)
    advice: tuple[str, str] | None = field(default=None, compare=False)

    def bind(self, type: pa.DataType | None, dtype: DTypeLike, **more: Any) -> Aggregate:
        """Return the aggregate for a column of this Arrow type and dtype.

        Args:
            type: The Arrow type.
            dtype: The dtype.
            **more: ``by``: the dtype of the values that pick one; ``also``: the type and dtype of
                each further column.
        """
        return self.make(type, dtype, **more)

    def __repr__(self) -> str:
        named = dict(self.options).get("by") == self.column  # as the option says
        implied = self.column is None or (self.column == VALUE and self.by is None) or named
        parts = [] if implied else [repr(self.column)]
        parts += [] if self.by is None else [f"by={self.by!r}"]
        parts += [
            f"{name}={shown(value, exact=True)}" if name else shown(value, exact=True)
            for name, value in self.options
        ]
        parts += [] if self.where is None else [f"where={self.where!r}"]
        parts += [] if self.of is None else [f"of={self.of!r}"]
        return f"{self.name}({', '.join(parts)})"


def column_name(column: str, what: str = "column") -> str:
    """Return a name of a column that a user has given, or raise."""
    if not isinstance(column, str) or not column:
        raise InvalidArgument(
            f"{describe(what, column)} must be the name of a column", hint='Write, say, "delay"'
        )
    return column


def variable_of(of: object) -> str | None:
    """Return the variable of a match that a user gave as ``of=``; ``None`` for none.

    Raises:
        InvalidArgument: It is no name.
    """
    if of is not None and (not isinstance(of, str) or not of):
        raise InvalidArgument(
            f"{describe('of', of)} must be the name of a variable of the pattern",
            hint='Write, say, lw.min("price", of="down")',
        )
    return of


def check_no_variable(spec: object, where: str) -> None:
    """Raise for an aggregate over the rows of a variable where there is no match.

    Raises:
        InvalidArgument: It has ``of=``.
    """
    if getattr(spec, "of", None) is not None:
        raise InvalidArgument(
            f"{spec!r} counts the rows of a variable of a match, which only the measures of "
            ".match(...) have",
            where=where,
            hint="Leave of= out; where= counts only the elements that meet a condition",
        )
