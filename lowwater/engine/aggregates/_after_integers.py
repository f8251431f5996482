"""Sums, means and variances of columns in which fractions come after integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias, final

import numpy as np

from lowwater.engine.aggregates._base import Aggregate, AggregateInput, State, StateColumn, or_null
from lowwater.engine.records.columns import Column
from lowwater.time import Int64Array

Together: TypeAlias = Callable[[Any, Any, State, State, Int64Array], Column]
"""Returns the result of both parts, given them, their states, and the rows."""

_OF_FLOATS = "floats: "


@final
class AfterIntegers:
    """What was added as integers stays exact; what came since is added to a part of its own.

    Args:
        integers: The aggregate of the integers.
        floats: That of the others.
        together: Returns the result of both.
    """

    def __init__(self, integers: Aggregate, floats: Aggregate, together: Together) -> None:
        self._integers = integers
        self._floats = floats
        self._together = together
        self.notes: dict[str, Any] = {"integers": integers.notes}  # type: ignore[attr-defined]
        if hasattr(floats, "notes"):
            self.notes["floats"] = floats.notes

    @property
    def columns(self) -> tuple[StateColumn, ...]:
        """The columns of both."""
        own = [replace(one, name=_OF_FLOATS + one.name) for one in self._floats.columns]
        return (*self._integers.columns, *own)

    def grow(self, batch: AggregateInput) -> bool:
        """Create columns for the values of a batch; return whether any is new."""
        grow = getattr(self._floats, "grow", None)
        return grow is not None and bool(grow(batch))

    def add(self, state: State, batch: AggregateInput) -> None:
        self._floats.add(_OfFloats(state), batch)

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        self._integers.merge(state, into, rows)
        self._floats.merge(_OfFloats(state), into, rows)

    def result(self, state: State, rows: Int64Array) -> Column:
        return self._together(self._integers, self._floats, state, _OfFloats(state), rows)


@final
class _OfFloats:
    """The columns of the part of the floats, by the names that they have there."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __getitem__(self, name: str) -> Any:
        return self._state[_OF_FLOATS + name]


def sum_of_both(
    integers: Any, floats: Any, whole: State, fractions: State, rows: Int64Array
) -> Column:
    """Return the sums."""
    return Column(integers.floats(whole, rows) + floats.result(fractions, rows).data)


def mean_of_both(
    integers: Any, floats: Any, whole: State, fractions: State, rows: Int64Array
) -> Column:
    """Return the means."""
    sums, count = integers.sums(whole, rows)
    others, more = floats.sums_and_counts(fractions, rows)
    total = count + more
    with np.errstate(over="ignore", invalid="ignore"):
        return or_null((sums + others) / np.maximum(total, 1), total > 0)


def variance_of_both(*, ddof: int, root: bool) -> Together:
    """Return what combines the moments of both, as Chan, Golub and LeVeque do (1979)."""

    def combine(
        integers: Any, floats: Any, whole: State, fractions: State, rows: Int64Array
    ) -> Column:
        count, mean, squares = integers.moments(whole, rows)
        more, other, apart = floats.moments(fractions, rows)
        total = count + more
        with np.errstate(over="ignore", invalid="ignore"):
            between = np.where((count > 0) & (more > 0), (other - mean) ** 2, 0.0)
            weight = count * (more / np.maximum(total, 1))
            variance = (squares + apart + between * weight) / np.maximum(total - ddof, 1)
            return or_null(np.sqrt(variance) if root else variance, total > ddof)

    return combine
