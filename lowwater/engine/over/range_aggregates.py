"""Aggregates over ranges of rows that overlap: each row is added once wherever that is exact.

There are four ways. Where states add up, as counts and exact sums do, the state of a range is the
difference of two running totals. Floats of short ranges are added one by one, as long as the result
is surely the exact sum, rounded once; so both ways give the same. Where a row may be merged twice,
as for a maximum, a range is covered by two blocks of the largest power of two that fits, as in the
sparse tables of Bender and Farach-Colton, "The LCA Problem Revisited" (2000). For all others each
range adds its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, final

import numpy as np

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._base import (
    columns_read,
    condition_read,
    or_null,
    strictest_needs,
)
from lowwater.engine.aggregates._retractable import Signed
from lowwater.engine.aggregates._subtracting import SignedMean, SignedSum
from lowwater.engine.match.key_rows import of_one_type
from lowwater.engine.over.ranges import Ranges
from lowwater.engine.records.admit_values import ValueAdmission
from lowwater.engine.records.columns import Column
from lowwater.engine.records.problems import Problems
from lowwater.engine.records.steps import Bundle
from lowwater.engine.window.aggregation import Aggregation
from lowwater.engine.window.column_read import true_rows
from lowwater.kernels import kernels
from lowwater.state.arrays import expand_ranges
from lowwater.state.table import RowTable
from lowwater.time import Int64Array

_AT_ONCE = 1 << 20  # pairs of a range and a row

_MOST_ADDED = 64  # rows of a range, on average, that are added one by one

Way: TypeAlias = Literal["totals", "floats", "blocks", "pairs"]


@final
class RangeAggregates:
    """Computes aggregates over ranges.

    Args:
        specs: The aggregates by name.
    """

    def __init__(self, specs: Mapping[str, AggregateSpec]) -> None:
        self._specs = dict(specs)
        # Floats must be summed exactly: in a running total, rows outside of a range would leave
        # rounding errors in its sum.
        self._exact = {name: _exact(spec) for name, spec in specs.items()}
        self._needs = strictest_needs(specs)
        self._ways: dict[str, Way] = {}

    def over(self, ranges: Ranges) -> dict[str, Column]:
        """Return each aggregate of each range."""
        if not self._specs:
            return {}
        bundle = self._bundle(ranges)
        ways = self._way_of_each(bundle)
        results: dict[str, Column] = {}
        for way, compute in _COMPUTE.items():
            specs = self._specs if way == "pairs" else self._exact
            some = {name: spec for name, spec in specs.items() if ways[name] == way}
            if some:
                results |= compute(some, bundle, ranges.low, ranges.high)
        for name in ways:
            if ways[name] in ("totals", "floats"):
                results[name] = self._with_integers(name, results[name], bundle, ranges)
        return {name: results[name] for name in self._specs}

    def _with_integers(self, name: str, result: Column, bundle: Bundle, ranges: Ranges) -> Column:
        """Return a result that is of integers where a range has no others.

        Floats make floats of the integers beside them. Only those of the range itself may do so,
        or the result would depend on which ranges are computed together.
        """
        spec = self._exact[name]
        if spec.column is None or spec.needs != "numbers":
            return result
        column = ranges.rows.column(spec.column)  # as it came: in the bundle they are floats
        if column.type is not None or column.data.dtype != object:
            return result
        values = column.to_list(exact=True)
        fractions = np.fromiter((isinstance(v, float) for v in values), np.bool_, len(values))
        if not fractions.any() or fractions.all():
            return result
        total = np.zeros(len(values) + 1, dtype=np.int64)
        np.cumsum(fractions, out=total[1:])
        whole = np.flatnonzero(total[ranges.high] == total[ranges.low])
        if not whole.size:
            return result
        others = [None if fraction else v for v, fraction in zip(values, fractions, strict=True)]
        integers = of_one_type(Column.of_objects(others))
        some = Bundle(bundle.times, (), {**bundle.values, spec.column: integers})
        low, high = ranges.low[whole], ranges.high[whole]
        exact = _by_totals({name: spec}, some, low, high)[name].to_list(exact=True)
        mixed = result.to_list(exact=True)
        for place, value in zip(whole.tolist(), exact, strict=True):
            mixed[place] = value
        return Column.of_objects(mixed)

    def _bundle(self, ranges: Ranges) -> Bundle:
        """Return what the aggregates read of all rows; the time of a row is its place."""
        rows = ranges.rows
        values: dict[str, Column] = {}
        for spec in self._specs.values():
            for name, _ in columns_read(spec):
                if name not in values:
                    values[name] = _admitted(name, rows.column(name), self._needs[name])
            condition = condition_read(spec)
            if condition is not None:
                values[condition] = rows.column(condition)
        return Bundle(np.arange(len(rows), dtype=np.int64), (), values)

    def _way_of_each(self, bundle: Bundle) -> dict[str, Way]:
        missing = {name: spec for name, spec in self._exact.items() if name not in self._ways}
        if missing:  # the first row tells, since only then an aggregate knows its columns
            aggregation = Aggregation(missing, table := RowTable([]))
            first = np.zeros(1, dtype=np.int64)
            aggregation.add(bundle.take(first), None, table.allocate(1), first)
            for name, aggregate in aggregation.aggregates().items():
                self._ways[name] = _way(aggregate)
        return self._ways


def _exact(spec: AggregateSpec) -> AggregateSpec:
    return spec if getattr(spec, "make_signed", None) is None else Signed(spec)


def _way(aggregate: Any) -> Way:
    if isinstance(aggregate, (SignedSum, SignedMean)):
        return "floats"
    if getattr(aggregate, "adds_up", False):
        return "totals"
    return "blocks" if getattr(aggregate, "merges_twice", False) else "pairs"


def _admitted(name: str, column: Column, need: Any) -> Column:
    if column.data.dtype == object and column.type is None:
        return ValueAdmission(name, need).admit(column, Problems())
    return column


def _of_each_row(
    specs: Mapping[str, AggregateSpec], bundle: Bundle, ranges: int
) -> tuple[Aggregation, RowTable, Int64Array, Int64Array]:
    """Return aggregates whose state rows have an element each, and rows for ranges."""
    table = RowTable([])
    aggregation = Aggregation(specs, table)
    rows = table.allocate(len(bundle) + ranges)
    rows, into = rows[: len(bundle)], rows[len(bundle) :]
    aggregation.add(bundle, None, rows, bundle.times)
    return aggregation, table, rows, into


def _by_totals(
    specs: Mapping[str, AggregateSpec], bundle: Bundle, low: Int64Array, high: Int64Array
) -> dict[str, Column]:
    aggregation, table, rows, into = _of_each_row(specs, bundle, len(low))
    total = np.zeros(len(rows) + 1, dtype=np.int64)
    for name, aggregate in aggregation.aggregates().items():
        for column in aggregate.columns:
            state = table[f"{name}:{column.name}"]
            np.cumsum(state[: len(rows)], out=total[1:])  # it may wrap, and a difference undoes it
            state[into] = total[high] - total[low]
    return aggregation.results(into)


def _by_floats(
    specs: Mapping[str, AggregateSpec], bundle: Bundle, low: Int64Array, high: Int64Array
) -> dict[str, Column]:
    """Return sums and means of floats: exact ones, found without limbs where that is sure."""
    results: dict[str, Column] = {}
    pairs = int((high - low).sum())
    for name, spec in specs.items():
        (column_name, _), *_rest = columns_read(spec)
        column = bundle.values[column_name]
        condition = condition_read(spec)
        if column.data.dtype != np.float64 or pairs > _MOST_ADDED * len(low):
            results |= _by_totals({name: spec}, bundle, low, high)
            continue
        counted = np.ones(len(column), dtype=np.bool_) if column.valid is None else column.valid
        if condition is not None:
            counted = counted & true_rows(bundle.values[condition], None)
        values = column.data if counted.all() else np.where(counted, column.data, 0.0)
        sums, sure = kernels().range_sums(values, low, high)
        total = np.zeros(len(counted) + 1, dtype=np.int64)
        np.cumsum(counted, out=total[1:])
        counts = total[high] - total[low]
        with np.errstate(over="ignore"):
            result = (
                or_null(sums / np.maximum(counts, 1), counts > 0)
                if spec.name == "mean"
                else Column(sums)
            )
        left = np.flatnonzero(~sure)
        if left.size:
            exact = _by_totals({name: spec}, bundle, low[left], high[left])[name]
            result.data[left] = exact.data
        results[name] = result
    return results


def _by_blocks(
    specs: Mapping[str, AggregateSpec], bundle: Bundle, low: Int64Array, high: Int64Array
) -> dict[str, Column]:
    aggregation, _, rows, into = _of_each_row(specs, bundle, len(low))
    level = np.frexp((high - low).astype(np.float64))[1] - 1  # 2**level is the largest that fits
    width = 1
    for step in range(int(level.max(initial=0)) + 1):
        chosen = np.flatnonzero(level == step)
        for begin in (low[chosen], high[chosen] - width):
            aggregation.merge(into[chosen], rows[begin])
        left = len(rows) - width
        if left <= 0:
            break
        # Blocks reach into the next key at a key's end; no range does.
        aggregation.merge(rows[:left], rows[width:])
        width *= 2
    return aggregation.results(into)


def _by_pairs(
    specs: Mapping[str, AggregateSpec], bundle: Bundle, low: Int64Array, high: Int64Array
) -> dict[str, Column]:
    parts = []
    for first, last in pieces(high - low):
        places, owner = expand_ranges(low[first:last], (high - low)[first:last])
        table = RowTable([])
        aggregation = Aggregation(specs, table)
        into = table.allocate(last - first)
        aggregation.add(
            bundle.take(places), None, into[owner], np.arange(len(places), dtype=np.int64)
        )
        parts.append(aggregation.results(into))
    return {name: Column.concat_as_is([part[name] for part in parts]) for name in specs}


_COMPUTE: Mapping[Way, Callable[..., dict[str, Column]]] = {
    "totals": _by_totals,
    "floats": _by_floats,
    "blocks": _by_blocks,
    "pairs": _by_pairs,
}


def pieces(length: Int64Array) -> Iterator[tuple[int, int]]:
    """Yield the first and the last range but one of portions that can be expanded at once.

    Args:
        length: How many rows each range has, int64, shape (n,), n > 0.
    """
    total = np.cumsum(length)
    low = 0
    while low < len(length):
        before = int(total[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(total, before + _AT_ONCE, side="right")))
        yield low, high
        low = high
