"""The rows of some keys in order, with the values that conditions and measures read (P-1)."""

from __future__ import annotations

from typing import final

import numpy as np
import pyarrow as pa

from lowwater.engine.keyed.ranks import ranks
from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.records.columns import Column, Mask
from lowwater.engine.records.other_rows import Prev
from lowwater.engine.records.value_kinds import one_kind
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import run_starts
from lowwater.time import Int64Array


@final
class KeyRows:
    """All rows of some keys, key by key, each in the order of the rules.

    What a place is: an index into these rows. Columns are taken out of the table on first use.

    Args:
        records: The records.
        keys: Ids of distinct keys, int64, shape (k,).
        order: The column that orders rows of one time; ``None``: as they arrive.
        chosen: Only these rows, key by key, and how many each key has; ``None``: all.
    """

    def __init__(
        self,
        records: KeyedRecords,
        keys: Int64Array,
        order: str | None,
        chosen: tuple[Int64Array, Int64Array] | None = None,
    ) -> None:
        self._records = records
        self._columns: dict[str, Column] = {}
        self._typed: dict[str, Column] = {}
        self._before: dict[tuple[str, int], Column] = {}
        self.keys = keys
        if chosen is None:
            chosen = records.segments.of_keys(keys), records.segments.counts(keys)
        self.rows, self.counts = chosen
        """The rows in the table, int64, shape (n,), and how many each key has, shape (k,)."""
        self.begin: Int64Array = np.zeros(len(keys) + 1, dtype=np.int64)
        """Where the rows of each key begin, and behind the last key how many there are."""
        np.cumsum(self.counts, out=self.begin[1:])
        self.key_of: Int64Array = repeated(np.arange(len(keys)), self.counts)
        """The place of each row's key in ``keys``, int64, shape (n,)."""
        self.times: Int64Array = records.table["start"][self.rows]
        """Their event times, int64, shape (n,)."""
        self.reach: Int64Array = self.begin[self.key_of]
        """The first place that counts as a row before each, int64, shape (n,)."""
        if order is not None:
            self._sort_ties(order)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the records."""
        return self._records.kept.names

    def _sort_ties(self, order: str) -> None:
        """Order the rows of one key and time by a column, in which a null comes first."""
        first = run_starts(self.key_of, self.times)
        run = np.cumsum(first) - 1
        tied = np.flatnonzero(np.bincount(run, minlength=len(first))[run] > 1)
        if not tied.size:
            return
        (values,) = self._records.kept.take(self.rows[tied], [order]).values()
        rank = ranks((values,), order, "match")[0]
        self.rows[tied] = self.rows[tied[np.lexsort((rank, run[tied]))]]

    def column(self, name: str) -> Column:
        """Return a column of the records, of length n."""
        if name not in self._columns:
            (self._columns[name],) = self._records.kept.take(self.rows, [name]).values()
        return self._columns[name]

    def typed(self, name: str) -> Column:
        """Return a column whose Python values, if they are all of one type, are of that type."""
        if name not in self._typed:
            self._typed[name] = of_one_type(self.column(name))
        return self._typed[name]

    def before(self, reference: Prev) -> Column:
        """Return the values of a column some rows before, null where the key has no such row."""
        key = (reference.column, reference.k)
        if key not in self._before:
            places = np.arange(len(self), dtype=np.int64) - reference.k
            inside = places >= self.reach
            found = self.typed(reference.column).take(np.where(inside, places, 0))
            self._before[key] = masked(found, inside)
        return self._before[key]

    def behind(self, rows: Mask, k: int) -> Int64Array:
        """Return the places of some rows, and of the k rows behind each, rising.

        Args:
            rows: Which rows, bool, shape (n,).
            k: How many rows behind.
        """
        chosen = rows.copy()
        for distance in range(1, k + 1):
            if distance >= len(rows):
                break
            same = self.key_of[distance:] == self.key_of[:-distance]
            chosen[distance:] |= rows[:-distance] & same
        return np.flatnonzero(chosen)


def masked(column: Column, inside: Mask) -> Column:
    """Return a column that is null where a mask is false."""
    if inside.all():
        return column
    data, valid = column.data, column.valid
    valid = inside if valid is None else valid & inside
    if data.dtype == object:
        data = data.copy()
        data[~valid] = None
    return Column(data, valid, column.type)


def of_one_type(column: Column) -> Column:
    """Return Python values of one type as a column of that type, and any others as they are."""
    if column.type is not None or column.data.dtype != object:
        return column
    values = column.to_list(exact=True)
    try:
        array = pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return column
    return Column.from_arrow(array) if one_kind(values, array) else column
