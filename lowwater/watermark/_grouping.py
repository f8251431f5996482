"""Groups the elements of a bundle by partition, vectorised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from lowwater.errors import DataError
from lowwater.kernels import kernels
from lowwater.kernels.positions import repeated
from lowwater.time import START_OF_TIME, Int64Array
from lowwater.watermark.observed import ColumnLike, EncodableColumn, Mask, Observed, TimeColumn

_LONG_RUNS = 4
"""From this average run length on, it is faster to process runs than single elements."""


@final
class Grouping:
    """Which partition each element of a bundle belongs to.

    Args:
        column: The column of partitions, of length ``n``; null is a partition too.
        n: How many elements there are, at least one.

    Complexity: O(n) for dense integers and for dictionaries, O(n log n) otherwise. Text is
    dictionary-encoded once per source batch.
    """

    __slots__ = ("_codes", "_starts", "partitions")

    partitions: list[Any]
    """The partitions that occur, each once."""
    _codes: Int64Array
    """Index into ``partitions`` of each run; where ``_starts`` is ``None``, of each element."""
    _starts: Int64Array | None

    def __init__(self, column: ColumnLike, n: int) -> None:
        self._starts = None
        encoded = column.encoded() if isinstance(column, EncodableColumn) else None
        if encoded is not None:
            codes, values = encoded
            codes, values = _only_used(self._runs(codes), values)
        else:
            data, valid = column.data, column.valid
            if data.dtype == np.float64:  # NaN differs from itself: treat it as null
                number = ~np.isnan(data)
                valid = number if valid is None else valid & number
            if data.dtype == object:
                codes, values = _of_objects(column.to_list())
            elif valid is None or valid.all():
                codes, values = _of_numbers(self._runs(data))
            else:
                codes = np.zeros(n, dtype=np.int64)
                codes[valid], values = _of_numbers(data[valid])
                codes[~valid] = len(values)
                values.append(None)
        self._codes, self.partitions = codes, values

    def latest(self, times: Int64Array) -> Int64Array:
        """Return the latest time of each partition, int64, shape (len(partitions),)."""
        result = np.full(len(self.partitions), START_OF_TIME, dtype=np.int64)
        if self._starts is not None:
            times = np.maximum.reduceat(times, self._starts)
        np.maximum.at(result, self._codes, times)
        return result

    def rows(self, times: Int64Array) -> Int64Array:
        """Return the row of each partition's latest time, int64, ascending. O(n log n)."""
        codes = self._by_row(len(times))
        order = np.lexsort((times, codes))
        ends = np.flatnonzero(np.diff(codes[order], append=-1))
        return np.sort(order[ends])

    def parts(self, observed: Observed) -> Iterator[Observed]:
        """Yield each partition's elements, in order of arrival. O(n log n)."""
        codes = self._by_row(len(observed.times))
        order = kernels().argsort(codes)
        counts = np.bincount(codes, minlength=len(self.partitions))
        lists: dict[str, list[Any]] = {}
        for rows in np.split(order, np.cumsum(counts)[:-1]):
            yield Observed(
                observed.times[rows], _SomeRows(observed.columns, rows, lists), observed.clock
            )

    def _by_row(self, n: int) -> Int64Array:
        if self._starts is None:
            return self._codes
        return repeated(self._codes, np.diff(self._starts, append=n))

    def _runs(self, data: NDArray[Any]) -> NDArray[Any]:
        """Return one value per run of equal values if runs are long; otherwise all values."""
        changes = np.flatnonzero(data[1:] != data[:-1])
        if len(changes) * _LONG_RUNS >= len(data):
            return data
        self._starts = np.concatenate(([0], changes + 1))
        return data[self._starts]


@final
class _SomeRows(Mapping[str, ColumnLike]):
    """A subset of the rows of every column of a bundle."""

    __slots__ = ("_columns", "_lists", "_rows")

    def __init__(
        self, columns: Mapping[str, ColumnLike], rows: Int64Array, lists: dict[str, list[Any]]
    ) -> None:
        self._columns = columns
        self._rows = rows
        self._lists = lists  # whole columns as Python values, shared by all partitions

    def __getitem__(self, name: str) -> ColumnLike:
        column = self._columns[name]
        if isinstance(column, TimeColumn):
            return _SomeTimes(column, self._rows, self._lists, name)
        return _SomeValues(column, self._rows, self._lists, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class _SomeValues:
    __slots__ = ("_column", "_lists", "_name", "_rows", "type")

    def __init__(
        self, column: ColumnLike, rows: Int64Array, lists: dict[str, list[Any]], name: str
    ) -> None:
        self._column = column
        self._rows = rows
        self._lists = lists
        self._name = name
        self.type = getattr(column, "type", None)

    @property
    def data(self) -> NDArray[Any]:
        return self._column.data[self._rows]

    @property
    def valid(self) -> Mask | None:
        valid = self._column.valid
        return None if valid is None else valid[self._rows]

    def to_list(self) -> list[Any]:
        whole = self._lists.get(self._name)
        if whole is None:
            whole = self._lists[self._name] = self._column.to_list()
        return [whole[row] for row in self._rows.tolist()]


@final
class _SomeTimes(_SomeValues):
    __slots__ = ()

    def instants(self) -> tuple[Int64Array, Mask]:
        assert isinstance(self._column, TimeColumn)
        times, found = self._column.instants()
        return times[self._rows], found[self._rows]


def _of_numbers(data: NDArray[Any]) -> tuple[Int64Array, list[Any]]:
    if data.dtype == np.int64 and data.size:
        low, high = int(data.min()), int(data.max())
        if high - low <= 4 * data.size + 1024:
            offsets = data - low
            present = np.zeros(high - low + 1, dtype=np.bool_)
            present[offsets] = True
            distinct = np.flatnonzero(present)
            rank = np.zeros(present.size, dtype=np.int64)
            rank[distinct] = np.arange(distinct.size)
            return rank[offsets], (distinct.astype(np.int64) + low).tolist()
    values, codes = np.unique(data, return_inverse=True)
    return codes.astype(np.int64), values.tolist()


def _of_objects(values: list[Any]) -> tuple[Int64Array, list[Any]]:
    """Encode arbitrary values one at a time, for columns without an encoding of their own."""
    known: dict[Any, int] = {}
    try:
        codes = [known.setdefault(value, len(known)) for value in values]
    except TypeError:
        raise DataError(
            "partitions must be plain values such as numbers or text",
            where="watermark=PerPartition(...)",
            hint="Name a column of such values as by=",
        ) from None
    return np.array(codes, dtype=np.int64), list(known)


def _only_used(codes: Int64Array, values: list[Any]) -> tuple[Int64Array, list[Any]]:
    """Drop values that no element has, because an Arrow dictionary may hold unused entries."""
    used = np.bincount(codes, minlength=len(values)) > 0
    if used.all():
        return codes, values
    rank = np.cumsum(used) - 1
    return rank[codes], [value for value, has in zip(values, used.tolist(), strict=True) if has]
