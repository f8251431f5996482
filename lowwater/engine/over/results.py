"""What is computed of rows: aggregates over ranges, row numbers, ranks, expressions."""

from __future__ import annotations

from typing import final

import numpy as np

from lowwater.engine.keyed.ranks import ranks
from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.match.key_rows import KeyRows
from lowwater.engine.match.taken import Values
from lowwater.engine.over.range_aggregates import RangeAggregates, pieces
from lowwater.engine.over.ranges import Ranges
from lowwater.engine.over.row_numbers import Rank, RowNumber
from lowwater.engine.over.rules import Over
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.columns import Column
from lowwater.state.arrays import NONE, expand_ranges
from lowwater.time import Int64Array, saturating_add_array

RELEASED = "released"
"""The column of the table with the count of a key's rows that were released before a row."""


@final
class Results:
    """Computes the output of rows.

    Args:
        rules: The rules.
    """

    def __init__(self, rules: Over) -> None:
        self._rules = rules
        self._aggregates = RangeAggregates(rules.aggregates)

    def of_keys(
        self, records: KeyedRecords, keys: Int64Array, low: Int64Array, high: Int64Array
    ) -> tuple[Int64Array, dict[str, Column]]:
        """Return the rows of keys between two instants, and their results.

        Args:
            records: The records.
            keys: Ids of distinct keys, int64, shape (k,).
            low: The first instant for each key.
            high: The last instant for each key.

        Returns:
            The rows in the table, key by key in order, and the results by name.
        """
        rules = self._rules
        reach = rules.length_us
        begin = low if reach is None else saturating_add_array(low, 1 - reach)
        chosen, counts, skipped = records.segments.between(keys, begin, high, rules.rows_before)
        rows = KeyRows(records, keys, rules.order, (chosen, counts))
        places = np.flatnonzero(rows.times >= low[rows.key_of])
        if not places.size:
            return NONE, {}
        ranges = Ranges(rules, rows, places)
        results = self._aggregates.over(ranges)
        for name, number in rules.numbers.items():
            if isinstance(number, RowNumber):
                results[name] = _row_numbers(records, ranges, skipped)
            else:
                results[name] = _ranks(ranges, number)
        if rules.expressions:
            values = Values(rows, {})
            for name, expression in rules.expressions.items():
                results[name] = values.computed(expression, places, None, "over")
        return rows.rows[places], {name: results[name] for name in rules.names}

    def visible(self, records: KeyedRecords) -> list[str]:
        """Return the columns of the records that come out beside the results."""
        return [name for name in records.kept.names if not name.startswith(HIDDEN)]


def _row_numbers(records: KeyedRecords, ranges: Ranges, skipped: Int64Array) -> Column:
    rows = ranges.rows
    first = records.segments.first(rows.keys)
    released = records.table[RELEASED][np.maximum(first, 0)]  # a key without rows has no places
    key = rows.key_of[ranges.places]
    before = released[key] + skipped[key]
    return Column(before + ranges.places - rows.begin[key] + 1)


def _ranks(ranges: Ranges, rank: Rank) -> Column:
    """Return the rank of each row in its range; compares a row with all rows of its range."""
    (order,) = ranks((ranges.rows.typed(rank.by),), rank.by, "over(rank)")
    own = order[ranges.places]
    found = np.empty(len(own), dtype=np.int64)
    length = ranges.high - ranges.low
    for low, high in pieces(length):
        places, owner = expand_ranges(ranges.low[low:high], length[low:high])
        other, mine = order[places], own[low:high][owner]
        before = other > mine if rank.descending else other < mine
        found[low:high] = 1 + np.bincount(owner[before & (other >= 0)], minlength=high - low)
    valid = own >= 0
    return Column(found, None if valid.all() else valid)
