"""What watermark estimators observe: the admitted elements of each bundle, with all columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, final

import numpy as np
import pyarrow as pa

from lowwater.engine.records.admit_times import PLAIN, TimeFormat, event_times
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column, Mask
from lowwater.engine.records.problems import Problems
from lowwater.errors import DataError
from lowwater.time import Int64Array
from lowwater.watermark import Observed
from lowwater.watermark.observed import ORIGIN


@final
class ObservedBatch:
    """A batch of admitted records that an estimator observes bundle by bundle.

    Columns are built lazily, once per batch, because most estimators read event times alone and
    then pay nothing for the columns.

    Args:
        records: The batch, after the stateless steps.
        kept: Index of each admitted element among them, int64; ``None`` for all.
        format: How watermarks in a column are written that do not say it themselves.
    """

    __slots__ = ("_format", "_kept", "_made", "_records")

    def __init__(
        self,
        records: Records,
        kept: Int64Array | None,
        format: TimeFormat = PLAIN,
    ) -> None:
        self._records = records
        self._kept = kept
        self._format = format
        self._made: dict[str, Column] = {}

    def bundle(self, times: Int64Array, start: int, clock: int) -> Observed:
        """Return one bundle of the batch as estimators observe it. O(1).

        Args:
            times: The bundle's event times, int64 microseconds, shape (n,).
            start: Index of its first element among the admitted ones.
            clock: The clock at arrival, int microseconds.
        """
        return Observed(times, _Columns(self, start, start + len(times)), clock)

    def names(self) -> list[str]:
        """Return the names of all columns, hidden ones included."""
        names = list(self._records.columns)
        if self._records.origin is not None:
            names.append(ORIGIN)
        return names

    def column(self, name: str, start: int, stop: int) -> Column:
        """Return rows ``start`` to ``stop`` of a column that is there."""
        found = self._slice(name, start, stop)
        if found is None:
            raise KeyError(name)
        return found

    def part(self, name: str, start: int, stop: int) -> ObservedColumn | None:
        """Return rows ``start`` to ``stop`` of a column; ``None`` if there is no such column."""
        found = self._slice(name, start, stop)
        return None if found is None else ObservedColumn(found, name, self._format)

    def _slice(self, name: str, start: int, stop: int) -> Column | None:
        if name == ORIGIN and ORIGIN not in self._records.columns:
            origin = self._records.origin
            if origin is None:
                return None
            codes = pa.array(np.zeros(stop - start, dtype=np.int32))
            return Column(arrow=pa.DictionaryArray.from_arrays(codes, pa.array([origin])))
        column = self._made.get(name)
        if column is None:
            column = self._records.columns.get(name)
            if column is None:
                return None
            if self._kept is not None:
                column = column.take(self._kept)
            self._made[name] = column = _with_codes(column)
        return column.slice(start, stop)


@final
class ObservedColumn:
    """A column that can convert its values to instants and to dictionary codes.

    Args:
        column: The values.
        name: Its name, for messages.
        format: How times are written that do not say it themselves.
    """

    __slots__ = ("_column", "_format", "_name")

    def __init__(self, column: Column, name: str, format: TimeFormat = PLAIN) -> None:
        self._column = column
        self._name = name
        self._format = format

    @property
    def data(self) -> np.ndarray[Any, np.dtype[Any]]:
        return self._column.data

    @property
    def valid(self) -> Mask | None:
        return self._column.valid

    def to_list(self) -> list[Any]:
        return self._column.to_list()

    def instants(self) -> tuple[Int64Array, Mask]:
        """Convert the values as event times are converted (S-T1, S-B1).

        Returns:
            Instants, int64 microseconds, shape (n,), and which rows have one, bool, shape (n,).

        Raises:
            InvalidArgument: The column's type cannot hold instants.
            DataError: A value that is not null is not an instant.
        """
        column, array = self._column, self._column.arrow
        valid = column.valid if array is None else None
        if array is not None and array.null_count:
            valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
        found = np.ones(len(column), dtype=np.bool_) if valid is None else valid
        times = np.zeros(len(column), dtype=np.int64)
        if found.any():
            given = column if valid is None else column.take(np.flatnonzero(found))
            problems = Problems()
            times[found] = event_times(given, self._name, problems, self._format)
            if problems.found:
                raise DataError(
                    f"a watermark in the column {self._name!r} cannot be read: "
                    f"{next(iter(problems.found.values()))[1]}",
                    hint="Leave it null where there is no watermark",
                )
        return times, found

    def encoded(self) -> tuple[Int64Array, list[Any]] | None:
        """Return each row's code and the value of each code; ``None`` for plain numbers."""
        array = self._column.arrow
        if array is None:
            return None
        if not pa.types.is_dictionary(array.type):
            if _is_plain(array.type):
                return None
            array = array.dictionary_encode()
        values = array.dictionary.to_pylist()
        codes = array.indices
        if codes.null_count:
            codes = codes.fill_null(len(values))
            values.append(None)
        return codes.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), values


@final
class _Columns(Mapping[str, ObservedColumn]):
    """The columns of one bundle, each sliced out of its batch on first use."""

    __slots__ = ("_batch", "_start", "_stop")

    def __init__(self, batch: ObservedBatch, start: int, stop: int) -> None:
        self._batch = batch
        self._start = start
        self._stop = stop

    def __getitem__(self, name: str) -> ObservedColumn:
        part = self._batch.part(name, self._start, self._stop)
        if part is None:
            raise KeyError(name)
        return part

    def __iter__(self) -> Iterator[str]:
        return iter(self._batch.names())

    def __len__(self) -> int:
        return len(self._batch.names())


def _with_codes(column: Column) -> Column:
    """Dictionary-encode text once, so that all bundles of the batch share the dictionary."""
    array = column.arrow
    if array is None or not any(is_text(array.type) for is_text in _TEXTS):
        return column
    return Column.from_arrow(array.dictionary_encode())


def _is_plain(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


_TEXTS: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
