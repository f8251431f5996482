"""The protocols between the window operator and its aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, final, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from lowwater.engine.records.admit_values import Needs as Needs
from lowwater.engine.records.columns import Column
from lowwater.errors import InternalError
from lowwater.time import Int64Array

Read: TypeAlias = tuple[pa.DataType | None, DTypeLike]
"""The Arrow type, if known, and the dtype of a column that an aggregate reads."""
Further: TypeAlias = tuple[NDArray[Any], NDArray[np.bool_] | None]
"""The values of a further column, and which of them are not null; ``None`` for all."""


@final
@dataclass(frozen=True, slots=True)
class StateColumn:
    """One column of an aggregate's state: a fixed-width array, or a bag of values per row.

    Args:
        name: Unique within the aggregate.
        dtype: numpy dtype of the array (or of the bag's values).
        fill: The value that stands for "nothing yet" (not for bags).
        bag: Whether a row holds any number of values, in order of arrival.
    """

    name: str
    dtype: DTypeLike
    fill: Any = 0
    bag: bool = False


@final
@dataclass(frozen=True, slots=True)
class AggregateInput:
    """The input of an aggregate for one bundle: one row per (element, window) pair.

    Args:
        rows: State row of each pair, int64, shape (n,); rows may repeat.
        values: The values, dtype as in :class:`Column`, shape (n,), without nulls. ``None`` for an
            aggregate that needs no values.
        every_time: Event times of the elements, int64.
        every_arrival: Position of each element in the whole input, int64, ascending.
        signs: +1 (insert) or -1 (retraction) for each (S-C1), int8, shape (n,); ``None`` if all
            are +1, as in any operator without retractions in its input. Where elements were
            condensed, how often each value counts, int64.
        by: The values that decide which element is picked, without nulls, dtype as in
            :class:`Column`, shape (n,); ``None`` for an aggregate that reads one column.
        valid: Which values are not null, bool, shape (n,), for an aggregate that takes nulls, whose
            ``values`` hold arbitrary values there; ``None`` if there are none.
        element: The element of each pair, int64, shape (n,), ascending; ``None`` for one each.
        also: The values of further columns and which of them are not null (``None``: all), for an
            aggregate that reads some.
    """

    rows: Int64Array
    values: NDArray[Any] | None
    every_time: Int64Array
    every_arrival: Int64Array
    signs: NDArray[np.int8] | Int64Array | None = None
    by: NDArray[Any] | None = None
    valid: NDArray[np.bool_] | None = None
    element: Int64Array | None = None
    also: tuple[Further, ...] = ()

    # Few aggregates ask for these two, and an element may be in many windows.

    @property
    def times(self) -> Int64Array:
        """Event times, int64, shape (n,). O(n) each time."""
        return self.every_time if self.element is None else self.every_time[self.element]

    @property
    def arrival(self) -> Int64Array:
        """Position of each element in the whole input, int64, shape (n,). O(n) each time."""
        return self.every_arrival if self.element is None else self.every_arrival[self.element]

    def where(self, kept: NDArray[np.bool_]) -> AggregateInput:
        """Return the pairs that a mask, bool, shape (n,), keeps."""
        left = np.flatnonzero(kept)  # one pass over the mask, and not one for each array
        return AggregateInput(
            rows=self.rows[left],
            values=None if self.values is None else self.values[left],
            every_time=self.every_time,
            every_arrival=self.every_arrival,
            signs=None if self.signs is None else self.signs[left],
            by=None if self.by is None else self.by[left],
            valid=None if self.valid is None else self.valid[left],
            element=left if self.element is None else self.element[left],
            also=tuple(
                (data[left], None if valid is None else valid[left]) for data, valid in self.also
            ),
        )


class State(Protocol):
    """The arrays and bags of an aggregate's :class:`StateColumn` by name, indexed by state row."""

    def __getitem__(self, name: str) -> Any: ...


class Aggregate(Protocol):
    """A vectorised aggregate, bound to the type of its column.

    The operator resets a row by writing each state column's ``fill`` (emptying bags). An aggregate
    may be :class:`Condensing`, too. Three further facts may be stated by class attributes. With
    ``adds_up``, all state columns are int64, and the state of some elements is the sum of the
    states of their parts, modulo 2**64, so that a difference of two is the state of what only one
    has. With ``merges_twice``, the result is the same if an element is merged more than once. With
    ``stays``, its state is not reset where a pane discards what it has shown.
    """

    @property
    def columns(self) -> tuple[StateColumn, ...]: ...

    def add(self, state: State, batch: AggregateInput) -> None:
        """Add a batch's values to their rows. O(n) or O(n log n)."""
        ...

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        """Merge state rows: ``rows[i]`` into ``into[i]``, which may repeat (S-W3)."""
        ...

    def result(self, state: State, rows: Int64Array) -> Column:
        """Return the result of each row; for an empty row, the identity (S-P5)."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Condensed:
    """One value for each group of elements.

    Args:
        group: The numbers of the groups, rising, int64, shape (n,); ``None`` for all from 0. A
            group that adds nothing may be left out.
        values: The value of each, shape (n,); ``None`` for an aggregate that needs no values.
        signs: How often each counts, int64, shape (n,); ``None`` for once.
    """

    group: Int64Array | None
    values: NDArray[Any] | None
    signs: Int64Array | None = None


@runtime_checkable
class Condensing(Protocol):
    """An aggregate that may take one value for a group of elements, with exactly the same result.

    Elements that are in the same windows, as those of a slice of sliding windows are, are then
    added up once, and not once for each window.
    """

    @property
    def condenses(self) -> bool:
        """Whether it may, for values of the type that it is bound to."""
        ...

    def condense(self, batch: AggregateInput, groups: int) -> Condensed | None:
        """Return one value per group, or ``None`` if adding these would give another result.

        Args:
            batch: The elements; its rows are the numbers of their groups.
            groups: How many groups there are.
        """
        ...


class AggregateSpec(Protocol):
    """An aggregate as users write it (``lw.sum("delay")``): a hashable value, bound to a type."""

    @property
    def column(self) -> str | None: ...

    @property
    def needs(self) -> Needs: ...

    @property
    def name(self) -> str: ...

    def bind(self, type: pa.DataType | None, dtype: DTypeLike) -> Aggregate:
        """Return the aggregate for a column of this Arrow type (``None``: Python objects)."""
        ...


def bound(
    spec: AggregateSpec,
    type: pa.DataType | None,
    dtype: DTypeLike,
    by: DTypeLike | None = None,
    also: Sequence[Read] = (),
) -> Aggregate:
    """Bind a spec to the types of the columns that it reads.

    Args:
        spec: The spec.
        type: The Arrow type of its values; ``None``: Python objects.
        dtype: Their dtype.
        by: The dtype of the values that decide which one is picked, if it has such a column.
        also: The types of the further columns that it reads.
    """
    more: dict[str, Any] = {}
    if by is not None:
        more["by"] = by
    if also:
        more["also"] = tuple(also)
    return spec.bind(type, dtype, **more)  # only built-in aggregates have more columns


_STRICTEST: tuple[Needs, ...] = (
    "nothing", "presence", "anything", "ordered", "numbers", "exact numbers", "booleans",
)  # fmt: skip
_EXACT: frozenset[Needs] = frozenset({"anything", "ordered"})


def columns_read(spec: AggregateSpec) -> tuple[tuple[str, Needs], ...]:
    """Return the columns whose values an aggregate takes, each with what it accepts there.

    The first is that of its values. Only some built-in aggregates have more: one that decides which
    of the values is picked, then those that they read as they are.
    """
    if spec.column is None:
        return ()
    by, also = getattr(spec, "by", None), getattr(spec, "also", ())
    read: list[tuple[str, Needs]] = [(spec.column, spec.needs)]
    read += [] if by is None else [(by, "ordered")]
    return (*read, *((name, "anything") for name in also))


def condition_read(spec: AggregateSpec) -> str | None:
    """Return the column that says which elements an aggregate counts; ``None``: all of them."""
    condition = getattr(spec, "where", None)
    if condition is not None and condition.column is None:
        raise InternalError(f"nothing evaluates the condition of {spec!r}")
    return None if condition is None else condition.column


def strictest_needs(aggregates: Mapping[str, AggregateSpec]) -> dict[str, Needs]:
    """Return, for each column that aggregates read, the strictest of their needs."""
    needs: dict[str, Needs] = {}
    for spec in aggregates.values():
        for column, need in columns_read(spec):
            before = needs.get(column, "nothing")
            strictest = max(before, need, key=_STRICTEST.index)
            if strictest == "numbers" and {before, need} & _EXACT:
                strictest = "exact numbers"
            needs[column] = strictest
        if (condition := condition_read(spec)) is not None:
            needs[condition] = "booleans"
    return needs


def or_null(
    values: NDArray[Any], valid: NDArray[np.bool_], type: pa.DataType | None = None
) -> Column:
    """Return a column of values, null where they are not valid."""
    return Column(values, None if valid.all() else valid, type)
