"""The stored form of rows, one for all uses: a value holds one row, or thousands.

::

    chunk   number of the layout u16 | rows u32 | packed rows | side columns

Fixed-width columns are packed row by row: a stretch of packed rows is a stretch of bytes, so rows
that were packed together are cut into values without another pass over them, and thousands of
values are read as one array. What is not of fixed width follows, column by column: see
:mod:`lowwater.state.side_columns`.

Columns come and widen while a pipeline runs. Each chunk names the layout it was packed in, so
older chunks stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from lowwater.errors import StateError
from lowwater.state.arrays import distinct
from lowwater.state.bag import Bag
from lowwater.state.codec import Encoded
from lowwater.state.formats import damaged, decoding
from lowwater.state.side_columns import Nested, SideColumns
from lowwater.state.side_format import Side
from lowwater.state.table import Field, RowTable
from lowwater.time import Int64Array

Layout: TypeAlias = list[tuple[str, str, Any]]
"""(name, dtype, fill) of each packed column."""
Derived: TypeAlias = Mapping[str, Callable[[Int64Array], Int64Array]]

_HEAD = Struct("<HI")
_HEAD_TYPE = np.dtype([("layout", "<u2"), ("count", "<u4")])
_WHAT = "a stored row"
_WIDEST = 16
_NO_LAYOUTS = Encoded([])


@final
@dataclass(frozen=True, slots=True)
class PackedRows:
    """Rows in their stored form, to be cut into values.

    Args:
        layout: Number of the layout.
        records: The packed rows, uint8, shape (n, width).
        side: The side columns, if there are any.
    """

    layout: int
    records: NDArray[np.uint8]
    side: Side | None

    def chunk(self, low: int, high: int) -> bytes:
        """Return the rows ``[low, high)`` as one value."""
        head = _HEAD.pack(self.layout, high - low)
        side = b"" if self.side is None else self.side.cut(np.array([low, high]))[0]
        return b"".join((head, self.records[low:high].tobytes(), side))

    def cut(
        self, begin: Int64Array, end: int, before: NDArray[np.void] | None = None
    ) -> list[bytes]:
        """Return values of consecutive rows.

        Args:
            begin: The first row of each value, rising; at least one.
            end: Behind the last row of the last value.
            before: What each value begins with, if anything; a structured array.
        """
        first, width = int(begin[0]), self.records.shape[1]
        heads = np.empty(len(begin), dtype=_HEAD_TYPE)
        heads["layout"], heads["count"] = self.layout, np.diff(begin, append=end)
        parts = [heads] if before is None else [before, heads]
        head = np.hstack([part.view(np.uint8).reshape(-1, part.itemsize) for part in parts])
        records = self.records[first:end]
        if len(begin) == len(records):  # a row each
            fronts = rows_as_bytes(np.hstack([head, records]))
        else:
            data, bounds = records.tobytes(), ((np.append(begin, end) - first) * width).tolist()
            pairs = zip(rows_as_bytes(head), pairwise(bounds), strict=True)
            fronts = [front + data[low:high] for front, (low, high) in pairs]
        if self.side is None:
            return fronts
        sides = self.side.cut(np.append(begin, end))
        return [front + side for front, side in zip(fronts, sides, strict=True)]


@final
@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows that were read.

    Args:
        layout: Number of the layout.
        records: The packed columns, a structured array of shape (n,).
        side: The encoded side columns.
    """

    layout: int
    records: NDArray[np.void]
    side: bytes

    def __len__(self) -> int:
        return len(self.records)


@final
class Layouts:
    """The layouts that chunks of one kind were packed in, by number.

    ``stored`` is what to write down beside the chunks, for :meth:`expect`.
    """

    def __init__(self) -> None:
        self.known: list[Layout] = []
        self.stored = _NO_LAYOUTS
        self._dtypes: list[np.dtype[Any]] = []

    def expect(self, stored: Sequence[Any]) -> None:
        """Restore the layouts that were stored beside the chunks.

        Raises:
            StateError: A column cannot be of its type.
        """
        self.known = [[(name, kind, fill) for name, kind, fill in layout] for layout in stored]
        self.stored = Encoded(self.known)
        self._dtypes = [_row_type(layout) for layout in self.known]

    def number(self, layout: Layout) -> int:
        """Return the number of a layout, a new one if it is new."""
        if not self.known or self.known[-1] != layout:
            self.known.append(layout)
            self.stored = Encoded(self.known)
            self._dtypes.append(_row_type(layout))
        return len(self.known) - 1

    def dtype(self, number: int) -> np.dtype[Any]:
        """Return the dtype of packed rows; raise ``StateError`` if there is no such layout."""
        if not 0 <= number < len(self._dtypes):
            raise damaged(_WHAT, f"it has layout {number} of {len(self._dtypes)}")
        return self._dtypes[number]

    def read(self, data: bytes) -> Chunk:
        """Return the rows of one value.

        Raises:
            StateError: It is damaged.
        """
        with decoding(_WHAT):
            number, count = _HEAD.unpack_from(data)
            dtype = self.dtype(number)
            end = _HEAD.size + count * dtype.itemsize
            if end > len(data):
                raise damaged(_WHAT, f"it has {len(data)} bytes, not {end}")
            if dtype.itemsize:
                records = np.frombuffer(data, dtype, count, _HEAD.size)
            else:
                records = np.zeros(count, dtype)
            _check_records(records)
            return Chunk(number, records, data[end:])

    def read_many(
        self, values: Sequence[bytes]
    ) -> list[tuple[Int64Array, Int64Array, Chunk, list[bytes]]]:
        """Return the rows of many values that hold a few each, those of a layout together.

        Returns:
            (places in ``values``, how many rows each has, the rows without side columns, the side
            columns of each).

        Raises:
            StateError: One of them is damaged.
        """
        with decoding(_WHAT):
            size = _HEAD.size
            heads = joined([value[:size] for value in values], size).reshape(-1).view(_HEAD_TYPE)
            if not heads["count"].all():
                raise damaged(_WHAT, "it is no row")
            found = []
            layouts = heads["layout"].astype(np.int64)
            for number in distinct(layouts).tolist():
                dtype = self.dtype(number)
                at = np.flatnonzero(layouts == number)
                counts = heads["count"][at].astype(np.int64)
                ends = (size + counts * dtype.itemsize).tolist()
                some = [(values[place], end) for place, end in zip(at.tolist(), ends, strict=True)]
                data = b"".join([value[size:end] for value, end in some])
                if len(data) != int(counts.sum()) * dtype.itemsize:
                    raise damaged(_WHAT, "it has fewer bytes than rows")
                records = (
                    np.frombuffer(data, dtype)
                    if dtype.itemsize
                    else np.zeros(int(counts.sum()), dtype)
                )
                _check_records(records)
                sides = [value[end:] for value, end in some]
                found.append((at, counts, Chunk(number, records, b""), sides))
            return found


@final
class RowCodec:
    """Packs rows of a table, and fills rows from chunks.

    Args:
        table: The table.
        left_out: Columns that are not stored: they are made again, or are not of the row itself.
        derived: Further int64 columns to store, computed from rows.
        bags: Returns the bags whose rows are the table's, by name.
        nested: Rows of another table that are stored with the table's.
    """

    def __init__(
        self,
        table: RowTable,
        *,
        left_out: frozenset[str] = frozenset(),
        derived: Derived | None = None,
        bags: Callable[[], Mapping[str, Bag]] = dict,
        nested: Nested | None = None,
    ) -> None:
        self._table = table
        self._left_out = left_out
        self._derived = derived or {}
        # The layout of the table's columns, as they were then.
        self._fields: tuple[Field, ...] | None = None
        self._layout: Layout = []
        self.layouts = Layouts()
        self.side = SideColumns(table, bags, nested, left_out)

    @property
    def capacity(self) -> int:
        """Above every row."""
        return self._table.capacity

    def alive(self, rows: Int64Array) -> NDArray[np.bool_]:
        """Return which rows are live."""
        return self._table.alive(rows)

    def pack(self, rows: Int64Array) -> PackedRows:
        """Return the stored form of rows. O(rows and the values they hold)."""
        layout = self.layout()
        number = self.layouts.number(layout)
        packed = np.empty(len(rows), dtype=self.layouts.dtype(number))
        for name, _, _ in layout:
            made = self._derived.get(name)
            packed[name] = self._table[name][rows] if made is None else made(rows)
        records = packed.view(np.uint8).reshape(len(rows), packed.dtype.itemsize)
        return PackedRows(number, records, self.side.gather(rows))

    def filled(self) -> frozenset[str]:
        """Return the columns that :meth:`fill` writes, whatever layout a chunk is in."""
        stored = [{name for name, _, _ in layout} for layout in self.layouts.known]
        return frozenset(set.intersection(*stored) - self._derived.keys() if stored else ())

    def fill(self, rows: Int64Array, chunk: Chunk, at: Int64Array) -> None:
        """Write the fixed-width columns of a chunk into rows.

        They are as they would be had the rows never left: a column that has widened since is
        widened.

        Args:
            rows: The rows, filled with their columns' fills.
            chunk: The chunk.
            at: The place of each row in the chunk.

        Raises:
            StateError: The chunk has a column that the table does not have.
        """
        records = chunk.records if len(at) == len(chunk) else chunk.records[at]
        for name, _, fill in self.layouts.known[chunk.layout]:
            if name in self._derived:
                continue
            if name not in self._table.columns or name in self._left_out:
                raise StateError(
                    f"the stored rows have a column {name!r} that the pipeline does not",
                    hint="Run the pipeline that wrote them, or reset the state",
                )
            self._table[name][rows] = self._widened(name, records, fill)

    def _widened(self, name: str, records: NDArray[np.void], fill: Any) -> NDArray[Any]:
        values, column = records[name], self._table[name]
        if values.dtype == column.dtype:
            return values
        field = next(field for field in self._table.fields if field.name == name)
        with np.errstate(invalid="ignore"):  # what stands for nothing may not fit
            wider = values.astype(column.dtype)
        if object not in (values.dtype, column.dtype) and field.fill != fill:
            nothing = values == fill
            seen = f"{name.rsplit(':', 1)[0]}:seen"
            if seen in (records.dtype.names or ()):
                nothing &= ~records[seen]
            wider[nothing] = field.fill
        return wider

    def layout(self) -> Layout:
        """Return the layout that rows would be packed in now. O(1) while the columns stay."""
        fields = self._table.fields
        if fields is not self._fields:
            self._fields = fields
            self._layout = [
                (field.name, np.dtype(field.dtype).str, _plain(field.fill))
                for field in fields
                if np.dtype(field.dtype).kind != "O"
                and field.name not in self._left_out
                and not field.name.startswith("slot:")
            ] + [(name, "<i8", 0) for name in self._derived]
        return self._layout


def rows_as_bytes(rows: NDArray[np.uint8]) -> list[bytes]:
    """Return each row of bytes, of a shape (n, at least 1)."""
    rows = np.ascontiguousarray(rows)
    whole: list[bytes] = rows.view(f"V{rows.shape[1]}").reshape(-1).tolist()
    return whole


def joined(parts: Sequence[bytes], width: int) -> NDArray[np.uint8]:
    """Return stored bytes, each of some width, as rows; raise ``StateError`` if one is not."""
    if not set(map(len, parts)) <= {width}:
        raise damaged(_WHAT, f"it is not {width} bytes wide")
    return np.frombuffer(b"".join(parts), dtype=np.uint8).reshape(len(parts), width)


def _row_type(layout: Layout) -> np.dtype[Any]:
    fields = [(str(name), np.dtype(kind)) for name, kind, _ in layout]
    for name, kind in fields:
        if kind.kind not in "biufmM" or kind.itemsize > _WIDEST:
            raise damaged("stored rows", f"the column {name!r} cannot be of type {kind}")
    return np.dtype(fields)


def _check_records(records: NDArray[np.void]) -> None:
    for name in records.dtype.names or ():
        if records.dtype[name].kind == "b" and (records[name].view(np.uint8) > 1).any():
            raise damaged(_WHAT, f"{name!r} is neither true nor false")


def _plain(fill: Any) -> Any:
    return fill.item() if isinstance(fill, np.generic) else fill
