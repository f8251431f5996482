"""The aggregates of a window operator over the columns of its table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.aggregates import (
    Aggregate,
    AggregateInput,
    AggregateSpec,
    Condensing,
    combiner_of,
)
from lowwater.engine.aggregates._after_integers import AfterIntegers
from lowwater.engine.aggregates._base import (
    Further,
    bound,
    columns_read,
    condition_read,
    strictest_needs,
)
from lowwater.engine.aggregates._column_values import keeps_values, no_lists
from lowwater.engine.records.admit_values import ValueAdmission
from lowwater.engine.records.columns import Column, Mask
from lowwater.engine.records.problems import Problems
from lowwater.engine.records.steps import Bundle
from lowwater.engine.window.column_read import ColumnRead, true_rows, valid_rows
from lowwater.engine.window.slices import Slices
from lowwater.errors import InternalError
from lowwater.kernels.positions import repeated
from lowwater.state.bag import Bag
from lowwater.state.table import Field, RowTable
from lowwater.time import Int64Array

_ONCE_FLOATS = frozenset({"mean", "var", "std"})
"""Aggregates whose state for integers was that for floats."""
_NO_VALUES: Int64Array = np.empty(0, dtype=np.int64)


@final
class Aggregation:
    """Several named aggregates, bound to their columns' types when the first bundle comes."""

    def __init__(self, specs: Mapping[str, AggregateSpec], table: RowTable) -> None:
        self._parts = [_Part(name, spec, table) for name, spec in specs.items()]

    @property
    def names(self) -> list[str]:
        """The names of the outputs."""
        return [part.name for part in self._parts]

    @property
    def lists(self) -> frozenset[str]:
        """The names of the outputs that are lists of all values of a column (J-7)."""
        return frozenset(part.name for part in self._parts if part.keeps_values)

    def add(
        self, bundle: Bundle, element: Int64Array | None, rows: Int64Array, arrival: Int64Array
    ) -> None:
        """Add elements to their windows' rows.

        Args:
            bundle: The bundle. An aggregate whose columns it lacks gets nothing: each side of a
                join brings its own (J-7).
            element: Which element of the bundle each row is for; ``None`` for one each, in order.
            rows: State rows, int64, shape (n,).
            arrival: Position of each of the bundle's elements in the whole input, int64.
        """
        for part in self._parts:
            part.add(bundle, element, rows, arrival)

    def add_slices(
        self, bundle: Bundle, slices: Slices, of: Int64Array, rows: Int64Array, arrival: Int64Array
    ) -> None:
        """Add the elements of slices to their windows' rows: a slice's at once, if that is exact.

        Args:
            bundle: The bundle.
            slices: Its slices.
            of: The slice of each row, int64, shape (n,), rising.
            rows: State rows, int64, shape (n,).
            arrival: Position of each of the bundle's elements in the whole input, int64.
        """
        each = None
        for part in self._parts:
            if not part.add_slices(bundle, slices, of, rows, arrival):
                if each is None:
                    element, pair = slices.of_each(of)
                    each = element, rows[pair]
                part.add(bundle, *each, arrival)

    def aggregates(self) -> dict[str, Aggregate]:
        """Return the aggregates that have been bound, by the names of the outputs."""
        return {part.name: part.bound for part in self._parts if part.is_bound}

    def merge(self, into: Int64Array, rows: Int64Array) -> None:
        """Merge ``rows[i]`` into ``into[i]``."""
        for part in self._parts:
            if part.is_bound:
                part.bound.merge(part, into, rows)

    def copy(self, into: Int64Array, rows: Int64Array) -> None:
        """Copy what ``rows[i]`` holds to ``into[i]``, which holds nothing; all distinct."""
        for part in self._parts:
            part.copy(into, rows)

    def results(self, rows: Int64Array, names: Iterable[str] | None = None) -> dict[str, Column]:
        """Return each aggregate's result for rows.

        Args:
            rows: State rows, int64.
            names: Which aggregates; by default all.
        """
        wanted = None if names is None else set(names)
        parts = (part for part in self._parts if wanted is None or part.name in wanted)
        return {part.name: part.result(rows) for part in parts}

    def reset(self, rows: Int64Array) -> None:
        """Reset rows to the state of no elements."""
        for part in self._parts:
            part.reset(rows)

    def bags(self) -> dict[str, Bag]:
        """Return all bags, by aggregate and column."""
        return {
            f"{part.name}:{name}": bag for part in self._parts for name, bag in part.bags.items()
        }

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the rows take outside of the table, about."""
        beside = sum(getattr(each, "nbytes", 0) for each in self.aggregates().values())
        return beside + sum(bag.nbytes for bag in self.bags().values())

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
            part.release(rows)


@final
class _Part:
    """One aggregate and its state: arrays and bags by the aggregate's own column names."""

    def __init__(self, name: str, spec: AggregateSpec, table: RowTable) -> None:
        self.name = name
        self.columns = tuple(column for column, _ in columns_read(spec))
        self._condition = condition_read(spec)
        self._has_by = getattr(spec, "by", None) is not None
        self._spec = spec
        self.keeps_values = keeps_values(spec)
        self._takes_nulls: bool = getattr(spec, "nulls", False)
        self._table = table
        self._aggregate: Aggregate | None = None
        self.bags: dict[str, Bag] = {}
        self._fields: list[str] = []
        if self.columns:
            # Numbers that are only added up are floats once one is.
            self._reads = [ColumnRead(exact=need != "numbers") for _, need in columns_read(spec)]
        else:
            self._reads = [ColumnRead(np.dtype(np.int64))]
            self._bind()

    @property
    def is_bound(self) -> bool:
        """Whether an element has come, so that the type of the values is known."""
        return self._aggregate is not None

    def result(self, rows: Int64Array) -> Column:
        """Return the result of each row; of a side of a join that has no element, empty lists."""
        if self._aggregate is None and self.keeps_values:
            return no_lists(len(rows))
        return self.bound.result(self, rows)

    @property
    def bound(self) -> Aggregate:
        if self._aggregate is None:
            raise InternalError(f"the aggregate {self.name!r} was used before any element came")
        return self._aggregate

    def __getitem__(self, name: str) -> Any:
        bag = self.bags.get(name)
        return self._table[f"{self.name}:{name}"] if bag is None else bag

    def add(
        self, bundle: Bundle, element: Int64Array | None, rows: Int64Array, arrival: Int64Array
    ) -> None:
        columns = self._columns_in(bundle)
        if columns is not None:
            self._fit(columns)
            taken = self._taken(columns, bundle, element, rows, arrival)
            grow = getattr(self.bound, "grow", None)
            if grow is not None and grow(taken):
                self._add_fields(self.bound)
            self.bound.add(self, taken)

    def add_slices(
        self, bundle: Bundle, slices: Slices, of: Int64Array, rows: Int64Array, arrival: Int64Array
    ) -> bool:
        """Add one value for the elements of each slice; return ``False`` if each is needed."""
        columns = self._columns_in(bundle)
        if columns is None:
            return True  # it gets nothing
        self._fit(columns)
        if not isinstance(self.bound, Condensing) or not self.bound.condenses:
            return False
        groups = len(slices.one)
        taken = self._taken(columns, bundle, None, slices.of, arrival)
        condensed = self.bound.condense(taken, groups)
        if condensed is None:
            return False
        group, values, signs = condensed.group, condensed.values, condensed.signs
        at = of
        if group is not None and len(group) < groups:
            place = np.full(groups, -1, dtype=np.int64)
            place[group] = np.arange(len(group))
            at = place[of]
            rows, at = rows[at >= 0], at[at >= 0]
        values = None if values is None else values[at]
        signs = None if signs is None else signs[at]
        self.bound.add(self, AggregateInput(rows, values, _NO_VALUES, _NO_VALUES, signs))
        return True

    def _columns_in(self, bundle: Bundle) -> list[Column] | None:
        """Return what the aggregate reads of a bundle; ``None`` if a column is not there."""
        columns = [bundle.values[name] for name in self.columns if name in bundle.values]
        return columns if len(columns) == len(self.columns) else None

    def _taken(
        self,
        columns: Sequence[Column],
        bundle: Bundle,
        element: Int64Array | None,
        rows: Int64Array,
        arrival: Int64Array,
    ) -> AggregateInput:
        """Return what the aggregate, bound to its columns, gets of them."""
        signs = bundle.signs if bundle.signs is None or element is None else bundle.signs[element]
        values, by, also, valid, kept = self._read(columns, element)
        if self._condition is not None:
            counted = true_rows(bundle.values[self._condition], element)
            kept = counted if kept is None else kept & counted
        taken = AggregateInput(rows, values, bundle.times, arrival, signs, by, valid, element, also)
        return taken if kept is None else taken.where(kept)

    def _read(
        self, columns: Sequence[Column], element: Int64Array | None
    ) -> tuple[
        NDArray[Any] | None, NDArray[Any] | None, tuple[Further, ...], Mask | None, Mask | None
    ]:
        """Return what elements have in the columns.

        Returns:
            (values, ``by``, further columns, which values are not null, which of the elements
            count; ``None`` for all).
        """
        if not columns:
            return None, None, (), None, None
        if self._spec.needs == "presence":
            values, rest = None, []
        else:
            values, *rest = [
                read.values(column, element)
                for read, column in zip(self._reads, columns, strict=True)
            ]
        valid, *of_rest = [valid_rows(column, element) for column in columns]
        by, of_by = (rest[0], of_rest[:1]) if self._has_by else (None, [])
        also = tuple(zip(rest[len(of_by) :], of_rest[len(of_by) :], strict=True))
        required = of_by if self._takes_nulls else (valid, *of_by)
        masks = [mask for mask in required if mask is not None]
        kept: Mask | None = np.logical_and.reduce(masks) if masks else None
        return values, by, also, valid if self._takes_nulls else None, kept

    def copy(self, into: Int64Array, rows: Int64Array) -> None:
        self._release_elsewhere(into)
        for name in self._fields:
            column = self._table[name]
            column[into] = column[rows]
        for bag in self.bags.values():
            values, arrivals, counts = bag.gather_with_arrivals(rows)
            bag.append(repeated(into, counts), values, arrivals)

    def reset(self, rows: Int64Array) -> None:
        if getattr(self._aggregate, "stays", False):
            return
        self.release(rows)
        self._table.reset(rows, self._fields)

    def release(self, rows: Int64Array) -> None:
        for bag in self.bags.values():
            bag.clear(rows)
        # Before the table is reset: it says what the aggregate has in worker processes.
        self._release_elsewhere(rows)

    def _release_elsewhere(self, rows: Int64Array) -> None:
        """Release what an aggregate has of rows in other processes, or in a cache."""
        if (elsewhere := getattr(self._aggregate, "release_elsewhere", None)) is not None:
            elsewhere(self, rows)

    def binding(self, written: Callable[[pa.DataType | None], Any]) -> Any:
        if self._aggregate is None:
            return None
        notes = getattr(self._aggregate, "notes", {})
        (kind, dtype, guessed), *by = [
            (written(read.type), read.dtype.str, read.notes)
            for read in self._reads
            if read.dtype is not None
        ]
        return (kind, dtype, dict(notes), guessed, *by)

    def rebind(self, binding: Any, read: Callable[[Any], pa.DataType | None]) -> None:
        if binding is None:
            return
        kind, dtype, notes, guessed, *by = binding
        for column, stored in zip(self._reads, [(kind, dtype, guessed), *by], strict=True):
            column.resume(read(stored[0]), stored[1], stored[2])
            if column.is_old and self._spec.name in _ONCE_FLOATS and column.dtype is not None:
                column.dtype = np.dtype(np.float64) if column.dtype.kind in "iub" else column.dtype
        self._bind()
        if self._reads[0].is_old and (take := getattr(self.bound, "take_pairs", None)) is not None:
            take()
        _take_notes(self.bound, notes)
        self._add_fields(self.bound)

    def _fit(self, columns: Sequence[Column]) -> None:
        """Bind the aggregate, or widen it, so that it takes the values of its columns."""
        if not columns:  # it has been bound from the start
            return
        if self._spec.needs == "presence":
            columns = [Column(_NO_VALUES)]
        changed = [read.fit(column) for read, column in zip(self._reads, columns, strict=True)]
        if any(changed):
            self._bind()

    def _bind(self) -> None:
        types = [(read.type, read.dtype) for read in self._reads if read.dtype is not None]
        (_, dtype), *also = types
        by = also.pop(0)[1] if self._has_by else None
        before = getattr(self._aggregate, "notes", {})
        self._aggregate = bound(self._spec, self._reads[0].type, dtype, by, also)
        together = getattr(getattr(self._spec, "plain", self._spec), "together", None)
        if together is not None and self._reads[0].had_integers:
            integers = bound(self._spec, None, np.dtype(np.int64))
            self._aggregate = AfterIntegers(integers, self._aggregate, together)
            before = before if "integers" in before else {"integers": before}
        _take_notes(self._aggregate, before)
        self._add_fields(self._aggregate)

    def _add_fields(self, aggregate: Aggregate) -> None:
        """Create the columns of an aggregate, with its types."""
        for column in aggregate.columns:
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
                    with np.errstate(invalid="ignore"):  # rows that are not live hold anything
                        self._table[name][seen] = before[seen]


def _take_notes(aggregate: Aggregate, notes: Mapping[str, Any]) -> None:
    """Restore what an aggregate, or its predecessor, has learned about its state."""
    known: dict[str, Any] = getattr(aggregate, "notes", {})
    for name, value in notes.items():
        if isinstance(value, Mapping):
            known[name].update(value)
        elif name in known:
            known[name] = value


def result_type(spec: AggregateSpec, columns: Mapping[str, pa.DataType]) -> pa.DataType | None:
    """Return the type of an aggregate's results, found by adding up one made-up record.

    Args:
        spec: The aggregate.
        columns: The types of the columns there are, by name.

    Returns:
        The type; ``None`` if only running can tell, as for what users combine themselves.

    Raises:
        InvalidArgument: No value of a column's type is one that the aggregate takes.
    """
    if not hasattr(spec, "make") or combiner_of(spec) is not None:
        return None
    table = RowTable([])
    aggregation = Aggregation({spec.name: spec}, table)
    values = {}
    for column, need in strictest_needs({spec.name: spec}).items():
        if column not in columns or pa.types.is_null(columns[column]):
            return None
        sample = Column.from_arrow(pa.array([_sample(columns[column])], columns[column]))
        values[column] = ValueAdmission(column, need).admit(sample, Problems())
    rows = table.allocate(1)
    zeros = np.zeros(1, dtype=np.int64)
    aggregation.add(Bundle(zeros, (), values), None, rows, zeros)
    found: pa.DataType = aggregation.results(rows)[spec.name].to_arrow().type
    return found


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
