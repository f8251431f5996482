"""What rows hold beside their fixed-width columns: objects, values in bags, and nested rows.

How they are stored: :mod:`lowwater.state.side_format`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from lowwater.state.arrays import expand_ranges
from lowwater.state.bag import Bag
from lowwater.state.formats import damaged
from lowwater.state.side_format import WHAT, Packed, Side, read_sides
from lowwater.state.table import RowTable
from lowwater.time import Int64Array


class Nested(Protocol):
    """Rows of another table that belong to rows of this one, and are stored with them."""

    def gather(self, rows: Int64Array) -> tuple[Packed, Int64Array] | None:
        """Return the nested rows of some rows, row by row, and how many each has."""

    def attach(
        self, rows: Int64Array, values: Sequence[bytes], counts: Int64Array, at: Int64Array
    ) -> None:
        """Give rows that have none the nested rows of stored values.

        Args:
            rows: The rows.
            values: The stored values, one after the other.
            counts: How many nested rows each place has, int64.
            at: The place of each row.
        """


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

    def put(
        self, rows: Int64Array, values: Sequence[bytes], counts: Int64Array, at: Int64Array
    ) -> None:
        """Put side columns back into rows that hold none.

        Args:
            rows: The rows.
            values: The side columns of stored values, one after the other.
            counts: How many places each value has, int64.
            at: The place of each row among those of all values.

        Raises:
            StateError: They are damaged, or of a column that the table does not have.
        """
        bags, columns = self._bags(), self._objects()
        held: dict[str, list[tuple[Int64Array, NDArray[Any], Int64Array]]] = {}
        total = int(counts.sum())
        for side in read_sides(values, counts):
            some, places = rows, at
            if len(side.rows) < total:  # others have another header, or nothing
                place_of = np.full(total, -1)
                place_of[side.rows] = np.arange(len(side.rows))
                places = place_of[at]
                some, places = rows[places >= 0], places[places >= 0]
            for name, objects in side.objects.items():
                if name not in columns:
                    raise damaged(WHAT, f"the pipeline has no {name!r}")
                self._table[name][some] = objects[places]
            for name, (stretch, arrivals, of_each) in side.bags.items():
                if name not in bags:
                    raise damaged(WHAT, f"the pipeline has no {name!r}")
                found, which = expand_ranges(_begins(of_each)[places], of_each[places])
                held.setdefault(name, []).append((some[which], stretch[found], arrivals[found]))
            if side.nested is not None:
                if self._nested is None:
                    raise damaged(WHAT, "the pipeline takes no panes back")
                of_each, nested = side.nested
                self._nested.attach(some, nested, of_each, places)
        for name, stretches in held.items():
            bag = bags[name]
            bag.append(
                np.concatenate([rows for rows, _, _ in stretches]),
                np.concatenate([values.astype(bag.dtype) for _, values, _ in stretches]),
                np.concatenate([arrivals for _, _, arrivals in stretches]),
            )

    def _objects(self) -> list[str]:
        return [
            field.name
            for field in self._table.fields
            if np.dtype(field.dtype).kind == "O" and field.name not in self._left_out
        ]


def _begins(counts: Int64Array) -> Int64Array:
    begins = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=begins[1:])
    return begins
