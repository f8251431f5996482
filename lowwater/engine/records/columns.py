"""One column of a bundle: Arrow at the edge, numpy inside, converted lazily and at most once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import repeat
from operator import is_
from typing import Any, TypeAlias, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.records.python_values import python_values
from lowwater.errors import InternalError, StateError
from lowwater.state.arrays import object_array

Mask = NDArray[np.bool_]
Types: TypeAlias = Mapping[str, pa.DataType | None]
"""Columns by name, with their types; ``None`` where the type is not known."""


@final
class Column:
    """A column of values, their validity and, if known, their Arrow type.

    ``data`` is a 1-D array of dtype bool, int64, float64 or object. Temporal values are int64 in
    the unit of ``type``, which converts them back. Integers of other widths become int64 (uint64
    beyond int64 becomes object); float32 and float16 become float64. Strings, bytes, decimals and
    nested values are object arrays of Python values. Rows where ``valid`` is false hold arbitrary
    values.

    Args:
        data: The values; ``None`` to convert them from ``arrow`` on first use.
        valid: Which rows are not null; ``None`` for all.
        type: The Arrow type of the values, if known.
        arrow: The Arrow array, if there is one.

    >>> column = Column.from_arrow(pa.array([1, None, 3]))
    >>> column.data.dtype, column.valid.tolist(), column.to_list()
    (dtype('int64'), [True, False, True], [1, None, 3])
    """

    __slots__ = ("_data", "_valid", "arrow", "type")

    def __init__(
        self,
        data: NDArray[Any] | None = None,
        valid: Mask | None = None,
        type: pa.DataType | None = None,
        arrow: pa.Array | None = None,
    ) -> None:
        if data is None and arrow is None:
            raise InternalError("a Column needs data or an Arrow array")
        self._data = data
        self._valid = valid
        self.arrow = arrow
        self.type = arrow.type if arrow is not None else type

    @classmethod
    def from_arrow(cls, array: pa.Array | pa.ChunkedArray) -> Column:
        """Wrap an Arrow array; a chunked array is combined first."""
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # combine_chunks keeps some types chunked
            array = pa.concat_arrays(array.chunks)
        return cls(arrow=array)

    @classmethod
    def of_objects(cls, values: Sequence[Any]) -> Column:
        """Return an object column of Python values; ``None`` is null, and pandas' NaT and NA.

        Numbers, truth values and text of numpy are Python's: Arrow takes them for the type of what
        is beside them.
        """
        kinds = set(map(type, values))
        if any(issubclass(kind, np.generic) for kind in kinds):
            values = [of_numpy(value) for value in values]
            kinds = set(map(type, values))
        missing = {kind for kind in kinds if is_missing_kind(kind)}
        if missing:
            values = [None if type(value) in missing else value for value in values]
        data = object_array(values)
        if not missing and type(None) not in kinds:
            return cls(data)
        return cls(data, np.fromiter((v is not None for v in values), np.bool_, len(values)))

    @classmethod
    def concat(cls, columns: Sequence[Column]) -> Column:
        """Concatenate one or more columns; values stay what they are where types differ.

        Numbers of several types become int64 or float64, if that rounds none. Of other types, and
        of numbers beside them, come Python values. What is null alone takes the type of the others.
        """
        if len(columns) == 1:
            return columns[0]
        if len({column.type for column in columns}) > 1:
            columns = _of_one_type(columns)
        arrays = [column.arrow for column in columns if column._data is None]
        if len(arrays) == len(columns) and len({array.type for array in arrays if array}) == 1:
            return cls(arrow=pa.concat_arrays(arrays))
        parts = [column.data for column in columns]
        if len({part.dtype for part in parts}) > 1 and any(p.dtype == object for p in parts):
            parts = [part.astype(object) for part in parts]
        valid = None
        if any(column.valid is not None for column in columns):
            valid = np.concatenate(
                [np.ones(len(c), np.bool_) if c.valid is None else c.valid for c in columns]
            )
        return cls(np.concatenate(parts), valid, columns[0].type)

    @classmethod
    def concat_as_is(cls, columns: Sequence[Column]) -> Column:
        """Concatenate one or more columns; of several types, numbers too, come Python values."""
        kinds = {(each.data.dtype, each.type) for each in columns if not each.is_null()}
        if len(kinds) <= 1:
            return cls.concat(columns)
        return cls.of_objects([v for column in columns for v in column.to_list(exact=True)])

    @property
    def data(self) -> NDArray[Any]:
        """The values (see the class)."""
        if self._data is None:
            self._load()
        return self._data  # type: ignore[return-value]  # _load has set it

    @property
    def valid(self) -> Mask | None:
        """Which rows are not null; ``None`` for all."""
        if self._data is None:
            self._load()
        return self._valid

    def __len__(self) -> int:
        return len(self.arrow) if self.arrow is not None else len(self.data)

    def holds(self, data: NDArray[Any]) -> bool:
        """Whether ``data`` is this array, without a null: converts nothing to find out."""
        return self._data is data and self._valid is None

    def nulls(self) -> Mask | None:
        """Return which rows are null, ``None`` for none of them; text stays in Arrow. O(n)."""
        array = self.arrow
        if array is not None and self._data is None:
            if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
                array = array.dictionary_decode()
            found = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        elif self.data.dtype == object:
            values = self.data.tolist()
            found = np.fromiter(map(is_, values, repeat(None)), np.bool_, len(values))
            found = found if self._valid is None else found | ~self._valid
        else:
            found = None if self._valid is None else ~self._valid
        return found if found is not None and found.any() else None

    def is_null(self) -> bool:
        """Whether there are rows, and all are null. O(1) where the first row shows it."""
        if self.arrow is not None:
            return 0 < self.arrow.null_count == len(self.arrow)
        if self._valid is not None:
            return len(self._valid) > 0 and not self._valid.any()
        data = self.data
        return data.dtype == object and len(data) > 0 and all(value is None for value in data)

    def take(self, indices: NDArray[np.int64]) -> Column:
        """Select the rows at ``indices`` (int64, shape (m,)), in that order."""
        if self._data is None and self.arrow is not None:
            return Column(arrow=self.arrow.take(pa.array(indices)))
        valid = None if self._valid is None else self._valid[indices]
        return Column(self.data[indices], valid, self.type)

    def slice(self, start: int, stop: int) -> Column:
        """Return rows ``start`` to ``stop`` (exclusive) without copying."""
        if self._data is None and self.arrow is not None:
            return Column(arrow=self.arrow.slice(start, stop - start))
        valid = None if self._valid is None else self._valid[start:stop]
        return Column(self.data[start:stop], valid, self.type)

    def to_arrow(self) -> pa.Array:
        """Convert to an Arrow array of the column's type, or of an inferred type."""
        if self.arrow is not None:
            return self.arrow
        mask = None if self._valid is None else ~self._valid
        data = self.data
        if data.dtype == object:
            values = data.tolist()
            if mask is not None:
                values = [
                    None if null else v for v, null in zip(values, mask.tolist(), strict=True)
                ]
            return pa.array(values, type=self.type)
        if self.type is None or data.dtype != np.int64 or pa.types.is_integer(self.type):
            array = pa.array(data, mask=mask)
            return array if self.type is None else array.cast(self.type)
        width = pa.int32() if self.type.bit_width == 32 else pa.int64()
        return pa.array(data, mask=mask).cast(width).view(self.type)

    def to_list(self, *, exact: bool = False) -> list[Any]:
        """Convert to Python values, ``None`` for nulls.

        Args:
            exact: Whether a time that Python's types cannot hold becomes an ``Instant``, not the
                nearest time that they can hold.
        """
        if self.arrow is not None or (self.type is not None and self.data.dtype == np.int64):
            return python_values(self.to_arrow(), exact=exact)
        values = self.data.tolist()
        if self._valid is not None:
            values = [v if ok else None for v, ok in zip(values, self._valid.tolist(), strict=True)]
        return values

    def _load(self) -> None:
        array = self.arrow
        if array is None:
            raise InternalError("a Column has neither data nor an Arrow array")
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        kind = array.type
        if array.null_count:
            self._valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
        if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
            array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
            kind = array.type
        if pa.types.is_uint64(kind):
            self._data = _from_uint64(array)
        elif pa.types.is_integer(kind):
            filled = array.fill_null(0) if array.null_count else array
            self._data = filled.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        elif pa.types.is_floating(kind):
            filled = array.fill_null(0) if array.null_count else array
            self._data = filled.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        elif pa.types.is_boolean(kind):
            filled = array.fill_null(False) if array.null_count else array
            self._data = filled.to_numpy(zero_copy_only=False)
        else:
            self._data = object_array(python_values(array))


EXACT = 2**53
"""Up to here all integers are floats, too."""
_OF_NUMPY = (np.datetime64, np.timedelta64, np.void)


def of_numpy(value: Any) -> Any:
    """Return a scalar of numpy as Python's; times, and what Python has no form for, as they are."""
    kind = type(value)  # what a proxy says of its class is not asked
    if not issubclass(kind, np.generic) or issubclass(kind, _OF_NUMPY):
        return value
    item = value.item()
    return value if isinstance(item, np.generic) else item


def is_missing_kind(kind: type) -> bool:
    """Return whether a type is that of pandas' NaT or NA; pandas need not be loaded."""
    return kind.__name__ in ("NaTType", "NAType") and kind.__module__.startswith("pandas.")


def _of_one_type(columns: Sequence[Column]) -> list[Column]:
    """Return columns whose data are of one sort, and whose type is the same, or not known."""
    filled = [column for column in columns if not column.is_null()]
    kinds = {column.type for column in filled}
    if len(kinds) == 1:
        (kind,) = kinds
        return [
            Column(arrow=pa.nulls(len(column), kind)) if kind and column.is_null() else column
            for column in columns
        ]
    if all(_is_number(column) for column in filled) and not _would_round(filled):
        return [Column(column.data, column.valid) for column in columns]
    return [Column.of_objects(column.to_list(exact=True)) for column in columns]


def _would_round(columns: Sequence[Column]) -> bool:
    """Return whether integers among columns of numbers are more than floats beside them hold."""
    arrays = [column.data for column in columns]
    if not any(array.dtype == np.float64 for array in arrays):
        return False
    return any(are_wide(array) for array in arrays if array.dtype != np.float64)


def are_wide(integers: NDArray[Any]) -> bool:
    """Return whether integers lie beyond those that all are floats, too. O(n)."""
    if not integers.size:
        return False
    return int(integers.max()) > EXACT or int(integers.min()) < -EXACT


def _is_number(column: Column) -> bool:
    """Return whether values are numbers, and not times, which are stored as such."""
    kind = column.type
    if kind is None:
        return column.data.dtype in (np.int64, np.float64)
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _from_uint64(array: pa.Array) -> NDArray[Any]:
    values = array.fill_null(0).to_numpy(zero_copy_only=False)
    if values.size == 0 or int(values.max()) < 2**63:
        return values.astype(np.int64)
    return values.astype(object)


@cache
def type_to_bytes(kind: pa.DataType | None) -> bytes | None:
    """Encode an Arrow type, if there is one, as a serialised schema: Arrow's own stable format."""
    if kind is None:
        return None
    data: bytes = pa.schema([pa.field("values", kind)]).serialize().to_pybytes()
    return data


@lru_cache(maxsize=1024)
def type_from_bytes(data: bytes | None) -> pa.DataType | None:
    """Decode a type that :func:`type_to_bytes` encoded.

    Raises:
        StateError: The bytes are not an encoded type.
    """
    if data is None:
        return None
    try:
        return pa.ipc.read_schema(pa.py_buffer(data)).field(0).type
    except (pa.ArrowException, OSError, IndexError, KeyError) as error:
        raise StateError(
            f"a stored column type cannot be read: {error}",
            hint="The state is damaged: restore a copy, or reset it",
        ) from None
