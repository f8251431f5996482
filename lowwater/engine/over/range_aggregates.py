"""Aggregates over ranges of rows that overlap: each row is added once wherever that is exact.

There are three ways. Where states add up, as counts and exact sums do, the state of a range is the
difference of two running totals. Where a row may be merged twice, as for a maximum, a range is
covered by two blocks of the largest power of two that fits, as in the sparse tables of Bender and
Farach-Colton, "The LCA Problem Revisited" (2000). For all others each range adds its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias, final

import numpy as np

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._base import columns_read, condition_read, strictest_needs
from lowwater.engine.aggregates._retractable import Signed
from lowwater.engine.over.ranges import Ranges
from lowwater.engine.records.admit_values import ValueAdmission
from lowwater.engine.records.columns import Column
from lowwater.engine.records.problems import Problems
from lowwater.engine.records.steps import Bundle
from lowwater.engine.window.aggregation import Aggregation
from lowwater.state.arrays import expand_ranges
from lowwater.state.table import RowTable
from lowwater.time import Int64Array

_AT_ONCE = 1 << 20  # pairs of a range and a row

Way: TypeAlias = Literal["totals", "blocks", "pairs"]


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
        for way, compute in (
            ("totals", _by_totals), ("blocks", _by_blocks), ("pairs", _by_pairs),
        ):  # fmt: skip
            specs = self._specs if way == "pairs" else self._exact
            some = {name: spec for name, spec in specs.items() if ways[name] == way}
            if some:
                results |= compute(some, bundle, ranges)
        return {name: results[name] for name in self._specs}

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
    if getattr(aggregate, "adds_up", False):
        return "totals"
    return "blocks" if getattr(aggregate, "merges_twice", False) else "pairs"


def _admitted(name: str, column: Column, need: Any) -> Column:
    if column.data.dtype == object and column.type is None:
        return ValueAdmission(name, need).admit(column, Problems())
    return column


def _of_each_row(
    specs: Mapping[str, AggregateSpec], bundle: Bundle
) -> tuple[Aggregation, RowTable, Int64Array]:
    """Return aggregates whose state rows have an element each."""
    table = RowTable([])
    aggregation = Aggregation(specs, table)
    rows = table.allocate(len(bundle))
    aggregation.add(bundle, None, rows, bundle.times)
    return aggregation, table, rows


def _by_totals(
    specs: Mapping[str, AggregateSpec], bundle: Bundle, ranges: Ranges
) -> dict[str, Column]:
    aggregation, table, rows = _of_each_row(specs, bundle)
    into = table.allocate(len(ranges))
    for name, aggregate in aggregation.aggregates().items():
        for column in aggregate.columns:
            state = table[f"{name}:{column.name}"]
            total = np.zeros(len(rows) + 1, dtype=np.int64)
            np.cumsum(state[rows], out=total[1:])  # it may wrap, and a difference undoes that
            state[into] = total[ranges.high] - total[ranges.low]
    return aggregation.results(into)


def _by_blocks(
    specs: Mapping[str, AggregateSpec], bundle: Bundle, ranges: Ranges
) -> dict[str, Column]:
    aggregation, table, rows = _of_each_row(specs, bundle)
    into = table.allocate(len(ranges))
    length = ranges.high - ranges.low
    level = np.frexp(length.astype(np.float64))[1] - 1  # 2**level is the largest that fits
    width = 1
    for step in range(int(level.max(initial=0)) + 1):
        chosen = np.flatnonzero(level == step)
        for begin in (ranges.low[chosen], ranges.high[chosen] - width):
            aggregation.merge(into[chosen], rows[begin])
        left = len(rows) - width
        if left <= 0:
            break
        # Blocks reach into the next key at a key's end; no range begins there.
        aggregation.merge(rows[:left], rows[width:])
        width *= 2
    return aggregation.results(into)


def _by_pairs(
    specs: Mapping[str, AggregateSpec], bundle: Bundle, ranges: Ranges
) -> dict[str, Column]:
    parts = []
    for low, high in pieces(ranges.high - ranges.low):
        begin, length = ranges.low[low:high], (ranges.high - ranges.low)[low:high]
        places, owner = expand_ranges(begin, length)
        table = RowTable([])
        aggregation = Aggregation(specs, table)
        into = table.allocate(high - low)
        aggregation.add(
            bundle.take(places), None, into[owner], np.arange(len(places), dtype=np.int64)
        )
        parts.append(aggregation.results(into))
    return {name: Column.concat_as_is([part[name] for part in parts]) for name in specs}


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
