"""What a row of a table holds beside its fixed-width columns: objects, and values in bags."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from lowwater.state.arrays import object_array
from lowwater.state.bag import Bag
from lowwater.state.damage import damaged
from lowwater.state.table import Table
from lowwater.time import Int64Array

Parts: TypeAlias = dict[str, Any]
"""What one row holds, by column; ``bag:NAME`` for a bag."""

_BAG = "bag:"


@final
class Loose:
    """Takes the loose parts of rows out of a table and its bags, and puts them back.

    A bag's values are written with their dtype: a bag may hold another by the time they are read.

    Args:
        table: The table.
        bags: Returns the bags whose rows are the table's, by name.
    """

    def __init__(self, table: Table, bags: Callable[[], Mapping[str, Bag]]) -> None:
        self._table = table
        self._bags = bags

    def is_any(self) -> bool:
        """Whether rows can hold anything of the kind."""
        return bool(self._bags()) or bool(self._objects())

    def of(self, rows: Int64Array) -> list[Parts]:
        """Return the parts of each row."""
        parts: list[Parts] = [{} for _ in range(len(rows))]
        for name in self._objects():
            column = self._table[name]
            for part, row in zip(parts, rows.tolist(), strict=True):
                if column[row] is not None:
                    part[name] = column[row]
        for name, bag in self._bags().items():
            values, arrivals, counts = bag.gather_with_arrivals(rows)
            bounds = np.concatenate(([0], np.cumsum(counts))).tolist()
            kind = values.dtype.str
            for at, part in enumerate(parts):
                low, high = bounds[at], bounds[at + 1]
                if low < high:
                    held = _stretch(values[low:high])
                    part[_BAG + name] = (held, arrivals[low:high].tobytes(), kind)
        return parts

    def put(self, rows: Sequence[int], each: Sequence[Parts]) -> None:
        """Put parts back into distinct rows that hold none.

        Raises:
            StateError: They are of a column that the table does not have.
        """
        bags, objects = self._bags(), self._objects()
        held: dict[str, list[tuple[int, NDArray[Any], Int64Array]]] = {}
        for row, parts in zip(rows, each, strict=True):
            for name, value in parts.items():
                if name.startswith(_BAG) and name.removeprefix(_BAG) in bags:
                    values, arrivals = bag_values(value)
                    held.setdefault(name.removeprefix(_BAG), []).append((row, values, arrivals))
                elif name in objects:
                    self._table[name][row] = value
                else:
                    raise damaged("a stored row", f"the pipeline has no {name!r}")
        for name, stretches in held.items():
            bag = bags[name]
            owner = np.repeat([row for row, _, _ in stretches], [len(v) for _, v, _ in stretches])
            bag.append(
                owner.astype(np.int64),
                np.concatenate([values.astype(bag.dtype) for _, values, _ in stretches]),
                np.concatenate([arrivals for _, _, arrivals in stretches]),
            )

    def _objects(self) -> set[str]:
        return {f.name for f in self._table.fields if np.dtype(f.dtype).kind == "O"}


def check_parts(parts: Any) -> Parts:
    """Return parts that were read; raise ``StateError`` if they cannot be such."""
    if not isinstance(parts, dict) or not all(isinstance(name, str) for name in parts):
        raise damaged("a stored row", "its values have no names")
    for name, held in parts.items():
        if name.startswith(_BAG):
            bag_values(held)
    return parts


def bag_values(held: Any) -> tuple[NDArray[Any], Int64Array]:
    """Return what a bag held of a row: (values, arrival of each).

    Raises:
        StateError: It is damaged.
    """
    values, arrivals, kind = held
    if not isinstance(arrivals, bytes) or len(arrivals) % 8 or not arrivals:
        raise damaged("a stored row", "its values have no arrivals")
    when = np.frombuffer(arrivals, dtype=np.int64)
    dtype = np.dtype(kind)
    if dtype.kind == "O":
        if not isinstance(values, list):
            raise damaged("a stored row", "its values are no list")
        stretch: NDArray[Any] = object_array(values)
    elif dtype.kind in "biufmM":
        stretch = np.frombuffer(values, dtype=dtype)
    else:
        raise damaged("a stored row", f"its values cannot be of type {dtype}")
    if len(stretch) != len(when):
        raise damaged("a stored row", f"it has {len(stretch)} values and {len(when)} arrivals")
    return stretch, when


def _stretch(values: NDArray[Any]) -> Any:
    return values.tolist() if values.dtype.kind == "O" else values.tobytes()
