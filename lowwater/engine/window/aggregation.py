"""The aggregates of a window operator over the columns of its table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, final

import numpy as np
import pyarrow as pa

from lowwater.engine.aggregates import Aggregate, AggregateInput, AggregateSpec
from lowwater.engine.aggregates._base import strictest_needs
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle
from lowwater.errors import InternalError
from lowwater.state.bag import Bag
from lowwater.state.table import Field, Table
from lowwater.time import Int64Array

_NO_VALUES: Int64Array = np.empty(0, dtype=np.int64)


@final
class Aggregation:
    """Several named aggregates, bound to their columns' types when the first bundle comes."""

    def __init__(self, specs: Mapping[str, AggregateSpec], table: Table) -> None:
        self._parts = [_Part(name, spec, table) for name, spec in specs.items()]

    @property
    def names(self) -> list[str]:
        """The names of the outputs."""
        return [part.name for part in self._parts]

    def add(
        self, bundle: Bundle, element: Int64Array | None, rows: Int64Array, arrival: Int64Array
    ) -> None:
        """Add elements to their windows' rows.

        Args:
            bundle: The bundle.
            element: Which element of the bundle each row is for; ``None`` for one each, in order.
            rows: State rows, int64, shape (n,).
            arrival: Position of each of the bundle's elements in the whole input, int64.
        """
        times = bundle.times if element is None else bundle.times[element]
        arrival = arrival if element is None else arrival[element]
        signs = bundle.signs if bundle.signs is None or element is None else bundle.signs[element]
        plain = AggregateInput(rows, None, times, arrival, signs)
        for part in self._parts:
            column = None if part.column is None else bundle.values[part.column]
            part.add(plain, column, element)

    def merge(self, into: Int64Array, rows: Int64Array) -> None:
        """Merge ``rows[i]`` into ``into[i]``."""
        for part in self._parts:
            part.bound.merge(part, into, rows)

    def results(self, rows: Int64Array) -> dict[str, Column]:
        """Return each aggregate's result for rows."""
        return {part.name: part.bound.result(part, rows) for part in self._parts}

    def reset(self, rows: Int64Array) -> None:
        """Reset rows to the state of no elements."""
        for part in self._parts:
            part.reset(rows)

    def bags(self) -> dict[str, Bag]:
        """Return all bags, by aggregate and column."""
        return {
            f"{part.name}:{name}": bag for part in self._parts for name, bag in part.bags.items()
        }

    def bindings(self, written: Callable[[pa.DataType | None], Any]) -> dict[str, Any]:
        """Return what each aggregate is bound to, for :meth:`rebind`."""
        return {part.name: part.binding(written) for part in self._parts}

    def rebind(
        self, bindings: Mapping[str, Any], read: Callable[[Any], pa.DataType | None]
    ) -> None:
        """Bind each aggregate as it was bound when the bindings were taken."""
        for part in self._parts:
            part.rebind(bindings[part.name], read)

    def release(self, rows: Int64Array) -> None:
        """Release what rows hold outside of the table, before they are released."""
        for part in self._parts:
            part.empty_bags(rows)


@final
class _Part:
    """One aggregate and its state: arrays and bags by the aggregate's own column names."""

    def __init__(self, name: str, spec: AggregateSpec, table: Table) -> None:
        self.name = name
        self.column = spec.column
        self._spec = spec
        self._table = table
        self._dtype: np.dtype[Any] | None = None
        self._type: pa.DataType | None = None
        self._guessed = False
        self._aggregate: Aggregate | None = None
        self.bags: dict[str, Bag] = {}
        self._fields: list[str] = []
        if spec.column is None:
            self._bind(None, np.dtype(np.int64))

    @property
    def bound(self) -> Aggregate:
        if self._aggregate is None:
            raise InternalError(f"the aggregate {self.name!r} was used before any element came")
        return self._aggregate

    def __getitem__(self, name: str) -> Any:
        bag = self.bags.get(name)
        return self._table[f"{self.name}:{name}"] if bag is None else bag

    def add(self, batch: AggregateInput, column: Column | None, element: Int64Array | None) -> None:
        if column is None:
            self.bound.add(self, batch)
            return
        values, valid = None, column.valid
        if self._spec.needs == "presence":
            self._fit(Column(_NO_VALUES))
        else:
            values = column.data
            self._fit(column)
            if values.dtype != self._dtype:
                values = values.astype(self._dtype)
        if element is not None:
            values = None if values is None else values[element]
            valid = None if valid is None else valid[element]
        rows, times, arrival, signs = batch.rows, batch.times, batch.arrival, batch.signs
        if valid is not None:
            values = None if values is None else values[valid]
            rows, times, arrival = rows[valid], times[valid], arrival[valid]
            signs = None if signs is None else signs[valid]
        self.bound.add(self, AggregateInput(rows, values, times, arrival, signs))

    def reset(self, rows: Int64Array) -> None:
        self._table.reset(rows, self._fields)
        self.empty_bags(rows)

    def empty_bags(self, rows: Int64Array) -> None:
        for bag in self.bags.values():
            bag.clear(rows)

    def binding(self, written: Callable[[pa.DataType | None], Any]) -> Any:
        if self._dtype is None or self._aggregate is None:
            return None
        notes = getattr(self._aggregate, "notes", {})
        return (written(self._type), self._dtype.str, dict(notes), self._guessed)

    def rebind(self, binding: Any, read: Callable[[Any], pa.DataType | None]) -> None:
        if binding is None:
            return
        kind, dtype, notes, self._guessed = binding
        self._bind(read(kind), np.dtype(dtype))
        if notes:
            self.bound.notes.update(notes)  # type: ignore[attr-defined]  # it had them before

    def _fit(self, column: Column) -> None:
        """Bind the aggregate, or widen it, so that it takes a column's values."""
        dtype = column.data.dtype
        if self._aggregate is None or self._guessed:
            # Of nulls alone the type is a guess, and no row holds a value of it yet.
            if self._dtype is None or self._dtype.kind != "O":
                self._bind(_plain(column.type), dtype)
            self._guessed = column.valid is not None and not column.valid.any()
        elif dtype != self._dtype and self._dtype is not None:
            numbers = object not in (dtype, self._dtype)
            wider = np.result_type(dtype, self._dtype) if numbers else np.dtype(object)
            if wider != self._dtype:
                self._bind(None, wider)

    def _bind(self, type: pa.DataType | None, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._type = type
        self._aggregate = self._spec.bind(type, dtype)
        for column in self._aggregate.columns:
            name = f"{self.name}:{column.name}"
            if column.bag:
                bag = self.bags.setdefault(column.name, Bag(column.dtype))
                if bag.dtype != np.dtype(column.dtype):
                    bag.retype(column.dtype)
            elif name not in self._table.columns:
                self._fields.append(name)
                self._table.add_field(Field(name, column.dtype, column.fill))
            elif self._table[name].dtype != np.dtype(column.dtype):
                before = self._table[name]
                self._table.retype(name, column.dtype, column.fill)
                seen = self._table.columns.get(f"{self.name}:seen")
                if seen is not None:  # what was the fill may also have been a value
                    self._table[name][seen] = before[seen]


def _plain(type: pa.DataType | None) -> pa.DataType | None:
    """Return the type of the values themselves."""
    if type is not None and pa.types.is_dictionary(type):
        return type.value_type
    return type


def result_type(spec: AggregateSpec, columns: Mapping[str, pa.DataType]) -> pa.DataType | None:
    """Return the type of an aggregate's results, found by adding up one made-up record.

    Args:
        spec: The aggregate.
        columns: The types of the columns there are, by name.

    Returns:
        The type; ``None`` if only running can tell, as for what users combine themselves.
    """
    if not hasattr(spec, "make") or spec.name == "combine" or _is_combiner(spec):
        return None
    table = Table([])
    aggregation = Aggregation({spec.name: spec}, table)
    values = {}
    for column in strictest_needs({spec.name: spec}):
        if column not in columns or pa.types.is_null(columns[column]):
            return None
        values[column] = Column.from_arrow(pa.array([_sample(columns[column])], columns[column]))
    rows = table.allocate(1)
    zeros = np.zeros(1, dtype=np.int64)
    aggregation.add(Bundle(zeros, (), values), None, rows, zeros)
    found: pa.DataType = aggregation.results(rows)[spec.name].to_arrow().type
    return found


def _is_combiner(spec: Any) -> bool:
    return any(option == "combiner" for option, _ in getattr(spec, "options", ()))


def _sample(kind: pa.DataType) -> Any:
    """Return some value of a type."""
    if pa.types.is_dictionary(kind):
        return _sample(kind.value_type)
    if pa.types.is_boolean(kind):
        return False
    if pa.types.is_integer(kind):
        return 0
    if pa.types.is_floating(kind):
        return 0.0
    if pa.types.is_decimal(kind):
        return Decimal(0)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ""
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return b""
    if pa.types.is_date(kind):
        return dt.date(1970, 1, 1)
    if pa.types.is_time(kind):
        return dt.time()
    if pa.types.is_duration(kind):
        return dt.timedelta()
    if pa.types.is_timestamp(kind):
        return dt.datetime(1970, 1, 1, tzinfo=None if kind.tz is None else dt.UTC)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return []
    if pa.types.is_struct(kind):
        return {field.name: _sample(field.type) for field in kind}
    return None
