"""The values of columns as they came, nulls included: columns of the records of a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, final

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from lowwater.engine.aggregates._base import (
    Aggregate,
    AggregateInput,
    AggregateSpec,
    Further,
    Needs,
    Read,
    State,
    StateColumn,
)
from lowwater.engine.records.columns import Column, Mask
from lowwater.time import Int64Array


@final
class Values:
    """Keeps all values in order of arrival, nulls included.

    The lists of several columns of the same records have the same lengths: element i of each is of
    one record.
    """

    def __init__(self, type: pa.DataType | None, dtype: DTypeLike) -> None:
        self._type = type
        self.columns = (
            StateColumn("values", dtype, None, bag=True),
            StateColumn("valid", np.bool_, None, bag=True),
        )

    def add(self, state: State, batch: AggregateInput) -> None:
        if batch.values is None:
            return
        valid = np.ones(len(batch.rows), dtype=np.bool_) if batch.valid is None else batch.valid
        state["values"].append(batch.rows, batch.values, batch.arrival)
        state["valid"].append(batch.rows, valid, batch.arrival)

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        state["values"].merge(into, rows)
        state["valid"].merge(into, rows)

    def result(self, state: State, rows: Int64Array) -> Column:
        values, counts = state["values"].gather(rows)
        valid, _ = state["valid"].gather(rows)
        return lists_of(values, valid, counts, self._type)


@final
@dataclass(frozen=True, slots=True)
class ColumnValues:
    """Collects the values of a column in a list, nulls included, for a join within windows (J-7).

    Args:
        column: The column.
        by: A column that a retraction must be equal in, too (S-C1).
    """

    column: str
    by: str | None = None

    name: ClassVar[str] = "values"
    needs: ClassVar[Needs] = "anything"
    nulls: ClassVar[bool] = True

    def bind(
        self, type: pa.DataType | None, dtype: DTypeLike, by: DTypeLike | None = None
    ) -> Aggregate:
        """Return the aggregate for a column of this Arrow type and dtype."""
        return Values(type, dtype)


def keeps_values(spec: AggregateSpec) -> bool:
    """Whether the results of an aggregate are such lists, also if inputs are retracted."""
    return isinstance(getattr(spec, "plain", spec), ColumnValues)


def lists_of(
    values: NDArray[Any], valid: Mask, counts: Int64Array, type: pa.DataType | None
) -> Column:
    """Return lists, in which nulls may be, as a column.

    Args:
        values: The values of all lists, one list after another, dtype as in :class:`Column`.
        valid: Which are not null, bool, of the same shape.
        counts: The length of each list, int64, shape (n,).
        type: The Arrow type of the values, if known.
    """
    items = Column(values, None if valid.all() else valid, type)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    if type is not None or values.dtype != object:
        lists = pa.LargeListArray.from_arrays(pa.array(offsets), items.to_arrow())
        return Column(arrow=lists)
    plain = items.to_list()
    found = np.empty(len(counts), dtype=object)
    for at, (low, high) in enumerate(pairwise(offsets.tolist())):
        found[at] = plain[low:high]
    return Column(found)


def list_column(fields: Mapping[str, Column], counts: Int64Array) -> Column:
    """Return lists of records as a column.

    Args:
        fields: The fields of all records, one list after another.
        counts: The length of each list, int64, shape (n,).
    """
    offsets = np.concatenate(([0], np.cumsum(counts)))
    if all(field.type is not None or field.data.dtype != object for field in fields.values()):
        arrays = [field.to_arrow() for field in fields.values()]
        records = pa.StructArray.from_arrays(arrays, names=list(fields))
        return Column(arrow=pa.LargeListArray.from_arrays(pa.array(offsets), records))
    columns = [field.to_list() for field in fields.values()]
    plain = [dict(zip(fields, values, strict=True)) for values in zip(*columns, strict=True)]
    lists = np.empty(len(counts), dtype=object)
    for at, (low, high) in enumerate(pairwise(offsets.tolist())):
        lists[at] = plain[low:high]
    return Column(lists)


def no_lists(count: int) -> Column:
    """Return empty lists of values whose type is not known, as none came yet."""
    offsets = pa.array(np.zeros(count + 1, dtype=np.int64))
    return Column(arrow=pa.LargeListArray.from_arrays(offsets, pa.nulls(0)))


def flattened(lists: Column) -> tuple[Column, Int64Array]:
    """Return the values of all lists, one list after another, and the length of each."""
    array = lists.arrow
    if array is None or not pa.types.is_large_list(array.type):
        counts = np.fromiter(map(len, lists.data), dtype=np.int64, count=len(lists))
        return Column.of_objects([value for each in lists.data for value in each]), counts
    counts = np.diff(array.offsets.to_numpy())
    return Column.from_arrow(array.flatten()), counts


def further_columns(also: Sequence[Read]) -> tuple[StateColumn, ...]:
    """Return the bags for further columns of these types: for each its values and validity."""
    return tuple(
        column
        for number, (_, dtype) in enumerate(also)
        for column in (
            StateColumn(_name(number), dtype, None, bag=True),
            StateColumn(valid_name(_name(number)), np.bool_, None, bag=True),
        )
    )


def further_values(batch: AggregateInput) -> dict[str, NDArray[Any]]:
    """Return what a batch adds to these bags, by their names."""
    added: dict[str, NDArray[Any]] = {}
    for number, (values, valid) in enumerate(batch.also):
        added[_name(number)] = values
        added[valid_name(_name(number))] = (
            np.ones(len(values), dtype=np.bool_) if valid is None else valid
        )
    return added


def further_of(values: Mapping[str, NDArray[Any]]) -> tuple[Further, ...]:
    """Return the further columns among values by the names of their bags."""
    columns: list[Further] = []
    while (name := _name(len(columns))) in values:
        valid = values[valid_name(name)]
        columns.append((values[name], None if valid.all() else valid))
    return tuple(columns)


def valid_name(name: str) -> str:
    """Return the name of the bag with the validity of a further column."""
    return f"{name} valid"


def _name(number: int) -> str:
    return f"also {number}"
