"""The step that makes a record of each item of a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.engine.records.batch import Records
from lowwater.engine.records.calls import Failure, dead_letters, said
from lowwater.engine.records.columns import Column
from lowwater.engine.records.stepping import StepKind, Stepped
from lowwater.errors import InvalidArgument, describe, nearest_column
from lowwater.kernels.positions import repeated
from lowwater.time import Int64Array

NOT_A_LIST = "not_a_list"
"""The reason of a dead letter of which ``explode`` was to take the items."""

_PLAIN = frozenset({list, tuple, type(None)})


@final
@dataclass(frozen=True, slots=True)
class Explode(StepKind):
    """Replaces each record by one for each item of a list; none for null and an empty list.

    Args:
        column: The column of lists.
        position: The column with the place of the item in its list, int64, from 0; ``None`` for
            none.
    """

    column: str
    position: str | None = None

    method: ClassVar[str] = "explode"
    vectorised: ClassVar[bool] = True

    def text(self) -> str:
        position = "" if self.position is None else f", position={self.position!r}"
        return f"explode({self.column!r}{position})"

    def names_after(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names is None or self.position is None:
            return names
        return tuple(dict.fromkeys((*names, self.position)))

    def apply(self, records: Records) -> Stepped:
        lists = records.columns.get(self.column)
        if lists is None:
            absent = InvalidArgument(
                f"there is no column {self.column!r}",
                where=self.method,
                hint=nearest_column(self.column, records.names),
            )
            if not records.length or getattr(records.columns, "knows_names", False):
                raise absent
            nothing = np.zeros(0, dtype=np.int64)
            left = self._placed(records.take(nothing), nothing)  # the column is taken to be null
            missing = {self.column: absent}
            return Stepped(left, nothing, missing=missing, passed=records.length)
        if not records.length:
            self._require_lists(lists)
        items, counts, failed = self._items(lists)
        rows = repeated(np.arange(records.length, dtype=np.int64), counts)
        columns = {
            name: items if name == self.column else column.take(rows)
            for name, column in records.columns.items()
        }
        rejected, dropped = dead_letters(records, failed, self.method)
        places = np.arange(len(rows), dtype=np.int64) - repeated(np.cumsum(counts) - counts, counts)
        left = self._placed(records.derived(columns, rows), places)
        return Stepped(left, rows, rejected, dropped, passed=records.length - len(failed))

    def _placed(self, records: Records, places: Int64Array) -> Records:
        """Add the places of items in their lists, if they are wanted."""
        if self.position is None:
            return records
        return records.replaced({**records.columns, self.position: Column(places)})

    def _require_lists(self, column: Column) -> None:
        """Raise unless a column may hold lists, as far as its type says."""
        kind = column.type
        if kind is None or pa.types.is_null(kind) or is_list(kind):
            return
        raise InvalidArgument(
            f"the column {self.column!r} is {kind}, not a list",
            where=self.method,
            hint='Make lists of it first: text with lw.col("tags").str.split(","), other values '
            "in a function: .map(...)",
        )

    def _items(self, column: Column) -> tuple[Column, Int64Array, Sequence[Failure]]:
        """Return the items, how many each record has, and the records without a list."""
        if column.type is not None and is_list(column.type):
            arrays = column.to_arrow()
            lengths = pc.list_value_length(arrays).fill_null(0).to_numpy(zero_copy_only=False)
            return Column.from_arrow(pc.list_flatten(arrays)), lengths.astype(np.int64), ()
        values = column.to_list(exact=True)
        failed: list[Failure] = []
        if column.type is not None and pa.types.is_map(column.type):  # in Python: lists of pairs
            values = [None if value is None else dict(value) for value in values]
        if not _PLAIN.issuperset(map(type, values)):
            values = [self._list(row, value, failed) for row, value in enumerate(values)]
        lists = [value if value is not None else () for value in values]
        counts = np.fromiter(map(len, lists), np.int64, len(lists))
        return Column.of_objects(list(chain.from_iterable(lists))), counts, failed

    def _list(self, row: int, value: Any, failed: list[Failure]) -> Sequence[Any] | None:
        """Return the items of a value; ``None`` for one that has none, which may be a failure."""
        kind = type(value)
        if kind in _PLAIN:
            found: Sequence[Any] | None = value
            return found
        try:
            if is_items(kind) and getattr(value, "ndim", True):
                return list(value)
            what = f"{describe(self.column, value)} is not a list"
        except MemoryError:
            raise
        except Exception as error:  # a class of the user raises
            what = f"{self.column}= cannot be read: {said(error)}"
        failed.append(Failure(row, NOT_A_LIST, what))
        return None


def is_list(kind: pa.DataType) -> bool:
    """Return whether values of an Arrow type are lists."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def is_items(kind: type) -> bool:
    """Return whether values of a Python type are lists of items: no records, and no sets."""
    if issubclass(kind, tuple):
        return not hasattr(kind, "_fields")  # a named tuple is a record
    return issubclass(kind, (list, np.ndarray))
