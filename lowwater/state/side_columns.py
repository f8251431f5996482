"""What rows hold beside their fixed-width columns: objects, values in bags, and nested rows.

Columnar like the rest: one dictionary for all rows of a stored value, not one per row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from lowwater.state.arrays import expand_ranges, object_array
from lowwater.state.bag import Bag
from lowwater.state.codec import decode, encode
from lowwater.state.formats import damaged
from lowwater.state.table import RowTable
from lowwater.time import Int64Array

Taken: TypeAlias = tuple[Int64Array, bytes, Int64Array]
"""Rows, the encoded side columns of a stored value, and the place of each row therein."""

_WHAT = "a stored row"
_COUNT = np.dtype("<u4")
_SECTIONS = {"objects", "bags", "nested"}


class Packed(Protocol):
    """Nested rows in their stored form."""

    def chunk(self, low: int, high: int) -> bytes: ...


class Nested(Protocol):
    """Rows of another table that belong to rows of this one, and are stored with them."""

    def gather(self, rows: Int64Array) -> tuple[Packed, Int64Array] | None:
        """Return the nested rows of some rows, row by row, and how many each has."""

    def attach(self, rows: Int64Array, data: bytes, counts: Int64Array, at: Int64Array) -> None:
        """Give rows that have none the nested rows of a chunk.

        Args:
            rows: The rows.
            data: The chunk.
            counts: How many nested rows each place of the stored value has.
            at: The place of each row.
        """

    def check(self, data: bytes, count: int) -> None:
        """Raise ``StateError`` unless a chunk holds so many rows."""


@final
@dataclass(frozen=True, slots=True)
class Side:
    """The side columns of some rows, gathered.

    Args:
        objects: By column, shape (n,).
        bags: By bag, (values, arrivals, where each row's begin; one more at the end).
        nested: (nested rows, where each row's begin; one more at the end).
    """

    objects: Mapping[str, NDArray[Any]]
    bags: Mapping[str, tuple[NDArray[Any], Int64Array, Int64Array]]
    nested: tuple[Packed, Int64Array] | None

    def encoded(self, low: int, high: int) -> bytes:
        """Return the side columns of the rows ``[low, high)``; no bytes where there is nothing."""
        parts: dict[str, Any] = {}
        objects = {name: column[low:high].tolist() for name, column in self.objects.items()}
        objects = {name: each for name, each in objects.items() if each.count(None) < len(each)}
        if objects:
            parts["objects"] = objects
        bags = {}
        for name, (values, arrivals, begin) in self.bags.items():
            first, last = int(begin[low]), int(begin[high])
            if first < last:
                held = values[first:last]
                bags[name] = [
                    values.dtype.str,
                    np.diff(begin[low : high + 1]).astype(_COUNT).tobytes(),
                    held.tolist() if values.dtype == object else held.tobytes(),
                    arrivals[first:last].tobytes(),
                ]
        if bags:
            parts["bags"] = bags
        if self.nested is not None:
            packed, begin = self.nested
            first, last = int(begin[low]), int(begin[high])
            if first < last:
                counts = np.diff(begin[low : high + 1]).astype(_COUNT).tobytes()
                parts["nested"] = [counts, packed.chunk(first, last)]
        return encode(parts) if parts else b""


@final
class SideColumns:
    """Takes the side columns of rows out of a table and its bags, and puts them back.

    A bag's values are stored with their dtype: the bag may have another when they are read.

    Args:
        table: The table.
        bags: Returns the bags whose rows are the table's, by name.
        nested: Rows that belong to the table's.
        left_out: Columns that are not stored.
    """

    def __init__(
        self,
        table: RowTable,
        bags: Callable[[], Mapping[str, Bag]] = dict,
        nested: Nested | None = None,
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        self._table = table
        self._bags = bags
        self._nested = nested
        self._left_out = left_out

    def gather(self, rows: Int64Array) -> Side | None:
        """Return the side columns of rows; ``None`` if the table has none. O(values)."""
        objects = {name: self._table[name][rows] for name in self._objects()}
        bags = {}
        for name, bag in self._bags().items():
            values, arrivals, counts = bag.gather_with_arrivals(rows)
            bags[name] = (values, arrivals, _begins(counts))
        nested = None if self._nested is None else self._nested.gather(rows)
        if not objects and not bags and nested is None:
            return None
        of_each = None if nested is None else (nested[0], _begins(nested[1]))
        return Side(objects, bags, of_each)

    def put(self, taken: Sequence[Taken], counts: Sequence[int]) -> None:
        """Put side columns back into rows that hold none.

        Args:
            taken: What to put back.
            counts: How many places each stored value has.

        Raises:
            StateError: They are damaged, or of a column that the table does not have.
        """
        bags, objects = self._bags(), self._objects()
        held: dict[str, list[tuple[Int64Array, NDArray[Any], Int64Array]]] = {}
        for (rows, data, at), count in zip(taken, counts, strict=True):
            parts = read_side(data, count)
            for name, values in parts["objects"].items():
                if name not in objects:
                    raise damaged(_WHAT, f"the pipeline has no {name!r}")
                self._table[name][rows] = object_array(values)[at]
            for name, (stretch, arrivals, of_each) in parts["bags"].items():
                if name not in bags:
                    raise damaged(_WHAT, f"the pipeline has no {name!r}")
                places, which = expand_ranges(_begins(of_each)[at], of_each[at])
                held.setdefault(name, []).append((rows[which], stretch[places], arrivals[places]))
            if parts["nested"] is not None:
                if self._nested is None:
                    raise damaged(_WHAT, "the pipeline takes no panes back")
                of_each, chunk = parts["nested"]
                self._nested.attach(rows, chunk, of_each, at)
        for name, stretches in held.items():
            bag = bags[name]
            bag.append(
                np.concatenate([rows for rows, _, _ in stretches]),
                np.concatenate([values.astype(bag.dtype) for _, values, _ in stretches]),
                np.concatenate([arrivals for _, _, arrivals in stretches]),
            )

    def check(self, data: bytes, count: int) -> dict[str, Any]:
        """Return decoded side columns, the nested rows in them checked too."""
        parts = read_side(data, count)
        if parts["nested"] is not None and self._nested is not None:
            of_each, chunk = parts["nested"]
            self._nested.check(chunk, int(of_each.sum()))
        return parts

    def _objects(self) -> list[str]:
        return [
            field.name
            for field in self._table.fields
            if np.dtype(field.dtype).kind == "O" and field.name not in self._left_out
        ]


def read_side(data: bytes, count: int) -> dict[str, Any]:
    """Return encoded side columns of so many rows, checked.

    Returns:
        ``objects`` (name: values), ``bags`` (name: (values, arrivals, count of each row)) and
        ``nested`` ((count of each row, chunk), or ``None``).

    Raises:
        StateError: They are damaged.
    """
    parts = decode(data) if data else {}
    if not isinstance(parts, dict) or not parts.keys() <= _SECTIONS:
        raise damaged(_WHAT, "what it holds has no names")
    objects = _named(parts.get("objects", {}))
    for name, values in objects.items():
        if not isinstance(values, list) or len(values) != count:
            raise damaged(_WHAT, f"{name!r} is of another length")
    bags = {name: _bag(held, count) for name, held in _named(parts.get("bags", {})).items()}
    nested = None
    if "nested" in parts:
        counts, chunk = parts["nested"]
        if not isinstance(chunk, bytes):
            raise damaged(_WHAT, "its panes are no bytes")
        nested = (_counts(counts, count), chunk)
    return {"objects": objects, "bags": bags, "nested": nested}


def _named(parts: Any) -> dict[str, Any]:
    if not isinstance(parts, dict) or not all(isinstance(name, str) for name in parts):
        raise damaged(_WHAT, "its values have no names")
    return parts


def _bag(held: Any, count: int) -> tuple[NDArray[Any], Int64Array, Int64Array]:
    kind, counts, values, arrivals = held
    of_each = _counts(counts, count)
    if not isinstance(arrivals, bytes) or len(arrivals) % 8:
        raise damaged(_WHAT, "its values have no arrivals")
    when = np.frombuffer(arrivals, dtype=np.int64)
    dtype = np.dtype(kind)
    if dtype.kind == "O":
        if not isinstance(values, list):
            raise damaged(_WHAT, "its values are no list")
        stretch: NDArray[Any] = object_array(values)
    elif dtype.kind in "biufmM":
        stretch = np.frombuffer(values, dtype=dtype)
    else:
        raise damaged(_WHAT, f"its values cannot be of type {dtype}")
    if not len(stretch) == len(when) == int(of_each.sum()):
        raise damaged(_WHAT, f"it has {len(stretch)} values and {len(when)} arrivals")
    return stretch, when, of_each


def _counts(data: Any, count: int) -> Int64Array:
    if not isinstance(data, bytes) or len(data) != count * _COUNT.itemsize:
        raise damaged(_WHAT, "how many values it has is of another length")
    return np.frombuffer(data, dtype=_COUNT).astype(np.int64)


def _begins(counts: Int64Array) -> Int64Array:
    begins = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=begins[1:])
    return begins
