"""What users write: ``lw.sum("delay")``, ``lw.count()``, ``lw.combine(MyCombiner())``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias, final

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike

from lowwater.engine.aggregates._base import Aggregate, Needs
from lowwater.engine.aggregates._combine import Combine, Combiner
from lowwater.engine.aggregates._lists import Collect, Shape
from lowwater.engine.aggregates._numeric import Count, Extreme, Mean, Sum, Variance
from lowwater.engine.aggregates._picks import Endmost, Test
from lowwater.engine.aggregates._subtracting import (
    SignedMean,
    SignedSum,
    SignedTest,
    SignedVariance,
)
from lowwater.errors import InvalidArgument, describe

Make: TypeAlias = Callable[[pa.DataType | None, DTypeLike], Aggregate]

VALUE = "value"
"""The column that element-wise sources put a plain element into."""


@final
@dataclass(frozen=True, slots=True, repr=False)
class BuiltIn:
    """One of lowwater's aggregates over a column: a value.

    Args:
        name: What the function that made it is called; the output's default name.
        column: The column it reads, ``None`` for none.
        needs: What values it takes.
        options: What else sets it apart, as keyword text in the repr.
        make: Binds it to the type of its column.
        make_signed: Binds what can take elements back too (S-C4); ``None``: the values have to be
            kept for that.
        differs: Whether its result over what changed is a difference: adding it to the result
            before gives the result after (S-C5).
    """

    name: str
    column: str | None
    needs: Needs
    make: Make = field(compare=False)
    options: tuple[tuple[str, object], ...] = ()
    make_signed: Make | None = field(default=None, compare=False)
    differs: bool = field(default=False, compare=False)

    def bind(self, type: pa.DataType | None, dtype: DTypeLike) -> Aggregate:
        """Return the aggregate for a column of this Arrow type and dtype."""
        return self.make(type, dtype)

    def __repr__(self) -> str:
        parts = [] if self.column in (None, VALUE) else [repr(self.column)]
        parts += [f"{name}={value!r}" for name, value in self.options]
        return f"{self.name}({', '.join(parts)})"


def count(column: str | None = None) -> BuiltIn:
    """Count elements, or the values of a column that are not null. int64; 0 over nothing."""
    needs: Needs = "nothing" if column is None else "presence"
    return BuiltIn("count", column, needs, _count, make_signed=_count, differs=True)


def sum(column: str = VALUE) -> BuiltIn:
    """Add up numbers: int64, exact, for ints and bools; float64 for floats; 0 over nothing.

    An int64 sum that does not fit raises ``DataError``: it never wraps (S-B1).
    """
    return BuiltIn("sum", _named(column), "numbers", Sum, make_signed=_signed_sum, differs=True)


def mean(column: str = VALUE) -> BuiltIn:
    """Average numbers: float64, null over nothing."""
    return BuiltIn(
        "mean", _named(column), "numbers", lambda _type, _dtype: Mean(),
        make_signed=lambda _type, _dtype: SignedMean(),
    )  # fmt: skip


def min(column: str = VALUE) -> BuiltIn:
    """Keep the smallest value of any ordered type, null over nothing."""
    return BuiltIn(
        "min", _named(column), "ordered", lambda type, dtype: Extreme(type, dtype, largest=False)
    )


def max(column: str = VALUE) -> BuiltIn:
    """Keep the largest value of any ordered type, null over nothing."""
    return BuiltIn(
        "max", _named(column), "ordered", lambda type, dtype: Extreme(type, dtype, largest=True)
    )


def var(column: str = VALUE, *, ddof: int = 1) -> BuiltIn:
    """Variance of numbers: float64, null over ``ddof`` values or fewer.

    Args:
        column: The column.
        ddof: What is taken off the count in the divisor; 0 for a population's variance.
    """
    return _spread("var", column, ddof, root=False)


def std(column: str = VALUE, *, ddof: int = 1) -> BuiltIn:
    """Standard deviation of numbers: the root of :func:`var`."""
    return _spread("std", column, ddof, root=True)


def first(column: str = VALUE) -> BuiltIn:
    """Keep the value with the earliest event time (of equals the first to come); else null."""
    return BuiltIn(
        "first", _named(column), "anything", lambda type, dtype: Endmost(type, dtype, last=False)
    )


def last(column: str = VALUE) -> BuiltIn:
    """Keep the value with the latest event time (of equals the last to come); else null."""
    return BuiltIn(
        "last", _named(column), "anything", lambda type, dtype: Endmost(type, dtype, last=True)
    )


def any(column: str = VALUE) -> BuiltIn:
    """Say whether any value is true; false over nothing."""
    return _test("any", column, every=False)


def all(column: str = VALUE) -> BuiltIn:
    """Say whether every value is true; true over nothing."""
    return _test("all", column, every=True)


def collect(column: str = VALUE) -> BuiltIn:
    """Keep all values as a list, in order of arrival; state grows with them."""
    return _kept("collect", column, "list")


def collect_set(column: str = VALUE) -> BuiltIn:
    """Keep the distinct values as a list, in order of first arrival."""
    return _kept("collect_set", column, "set")


def count_distinct(column: str = VALUE) -> BuiltIn:
    """Count the distinct values, exactly: int64, 0 over nothing; state grows with them."""
    return _kept("count_distinct", column, "count")


def combine(combiner: Combiner, column: str = VALUE, *, name: str = "combine") -> BuiltIn:
    """Combine values by the user's own ``combiner``: Python per element.

    Args:
        combiner: An object with ``create_accumulator``, ``add_input``, ``merge_accumulators`` and
            ``extract_output``, and perhaps ``remove_input``.
        column: The column it reads.
        name: The output's default name.

    Raises:
        InvalidArgument: The object lacks one of the four.
    """
    if isinstance(combiner, type) or not isinstance(combiner, Combiner):
        raise InvalidArgument(
            f"{describe('combiner', combiner)} is not a combiner",
            hint="Give it create_accumulator, add_input, merge_accumulators and extract_output",
        )
    removes = callable(getattr(combiner, "remove_input", None))
    return BuiltIn(
        name, _named(column), "anything", lambda _type, _dtype: Combine(combiner),
        (("combiner", combiner),),
        make_signed=(lambda _type, _dtype: Combine(combiner)) if removes else None,
    )  # fmt: skip


def _count(_type: pa.DataType | None, _dtype: DTypeLike) -> Aggregate:
    return Count()


def _signed_sum(type: pa.DataType | None, dtype: DTypeLike) -> Aggregate:
    return SignedSum() if np.dtype(dtype) == np.float64 else Sum(type, dtype)


def _test(name: str, column: str, *, every: bool) -> BuiltIn:
    return BuiltIn(
        name, _named(column), "booleans", lambda _type, _dtype: Test(every=every),
        make_signed=lambda _type, _dtype: SignedTest(every=every),
    )  # fmt: skip


def _spread(name: str, column: str, ddof: int, *, root: bool) -> BuiltIn:
    if isinstance(ddof, bool) or not isinstance(ddof, int) or ddof < 0:
        raise InvalidArgument(
            f"{describe('ddof', ddof)} must be an int of at least 0", hint="Use 0 or 1"
        )
    options = (("ddof", ddof),) if ddof != 1 else ()
    return BuiltIn(
        name, _named(column), "numbers", lambda _type, _dtype: Variance(ddof=ddof, root=root),
        options, make_signed=lambda _type, _dtype: SignedVariance(ddof=ddof, root=root),
    )  # fmt: skip


def _kept(name: str, column: str, shape: Shape) -> BuiltIn:
    return BuiltIn(
        name, _named(column), "anything", lambda type, dtype: Collect(type, dtype, shape=shape)
    )


def _named(column: str) -> str:
    if not isinstance(column, str) or not column:
        raise InvalidArgument(
            f"{describe('column', column)} must be the name of a column", hint='Write, say, "delay"'
        )
    return column
