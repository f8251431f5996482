"""Keeps a table in a store: only the rows that changed and still exist are written.

A row is stored under (expiry, row number), so that what has expired is one range. Its fixed-width
columns are one packed record, written from columns; what is not fixed-width (bags, objects) is a
second record beside it. Row numbers survive, so whatever refers to a row by number does too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from lowwater.errors import StateError
from lowwater.state.arrays import NONE
from lowwater.state.bag import Bag
from lowwater.state.codec import decode, encode
from lowwater.state.damage import damaged, decoding
from lowwater.state.key_layout import below, decode_int64, encode_int64, prefix_range
from lowwater.state.side_columns import Loose, check_parts
from lowwater.state.store import Batch, StateStore
from lowwater.state.table import Table
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

Due: TypeAlias = Callable[[Int64Array], Int64Array]
Derived: TypeAlias = Mapping[str, Callable[[Int64Array], Int64Array]]

_ABSENT = START_OF_TIME
_KEY_BYTES = 16
_WIDEST = 16


@final
class Journal:
    """The stored form of one table.

    Args:
        table: The table.
        prefixes: What the keys of its fixed-width and of its other records begin with in the
            store; no other keys may.
        due: Returns when rows expire, int64; at or before the watermark they are gone.
        bags: Bags whose rows are the table's.
        volatile: Columns that are made anew when the table is loaded.
        derived: Further int64 columns to store, computed from rows; :meth:`load` returns them.
    """

    def __init__(
        self,
        table: Table,
        prefixes: tuple[bytes, bytes],
        *,
        due: Due,
        bags: Callable[[], Mapping[str, Bag]] = dict,
        volatile: Sequence[str] = (),
        derived: Derived | None = None,
    ) -> None:
        self._table = table
        self._fixed, self._loose = prefixes
        self._due = due
        self.loose = Loose(table, bags)
        self._volatile = frozenset(volatile)
        self._derived = derived or {}
        self._touched: list[Int64Array] = []
        self._dirty = np.zeros(0, dtype=np.bool_)
        self._stored_due: Int64Array = np.empty(0, dtype=np.int64)
        self._layout: list[tuple[str, str]] | None = None

    def touch(self, rows: Int64Array) -> None:
        """Note that rows (distinct ones) changed, or were allocated or released."""
        if not rows.size:
            return
        self._cover()
        fresh = rows[~self._dirty[rows]]
        if fresh.size:
            self._dirty[fresh] = True
            self._touched.append(fresh)

    def layout(self) -> list[tuple[str, str]]:
        """Return the (name, dtype) of the fixed-width columns, as :meth:`load` wants it back."""
        fields = [
            (field.name, np.dtype(field.dtype).str)
            for field in self._table.fields
            if np.dtype(field.dtype).kind != "O"
            and field.name not in self._volatile
            and not field.name.startswith("slot:")
        ]
        return fields + [(f"derived:{name}", "<i8") for name in self._derived]

    def write(self, batch: Batch, watermark: int) -> Int64Array:
        """Add what changed since the last time to a batch. O(changed rows).

        Args:
            batch: The batch.
            watermark: All rows that expired at it are gone.

        Returns:
            The rows written.
        """
        layout = self.layout()
        if layout != self._layout:
            self.touch(self._table.live())
            self._layout = layout
        touched, self._touched = self._touched, []
        for prefix in (self._fixed, self._loose):
            batch.delete_range(*below(prefix, min(watermark + 1, END_OF_TIME)))
        if not touched:
            return NONE
        rows = np.concatenate(touched)
        rows.sort()
        self._dirty[rows] = False
        alive = self._table.alive(rows)
        self._forget(batch, rows[~alive], watermark)
        rows = rows[alive]
        if not rows.size:
            return NONE
        due = self._due(rows)
        moved = rows[self._stored_due[rows] != due]
        self._forget(batch, moved, watermark)
        self._stored_due[rows] = due
        keys = np.hstack((encode_int64(due), encode_int64(rows)))
        batch.put_columns(self._fixed, keys, self._packed(rows, layout))
        self._write_loose(batch, rows, keys)
        return rows

    def load(
        self, store: StateStore, layout: Sequence[tuple[str, str]], limit: int
    ) -> dict[str, Int64Array]:
        """Fill an empty table from a store.

        Rows that expire at another time than the one they are stored under are written again by
        the next :meth:`write`, so that they do not go with the range of the expired.

        Args:
            store: The store.
            layout: What :meth:`layout` was when it was written.
            limit: Above every row number.

        Returns:
            The live rows as ``"rows"``, and the derived columns.

        Raises:
            StateError: The stored rows do not have that layout, or are damaged.
        """
        with decoding("stored rows"):
            rows, due, packed = read_rows(store, self._fixed, layout, limit)
            table = self._table
            table.restore(rows)
            derived = {}
            for name in packed.dtype.names or ():
                if name.startswith("derived:"):
                    derived[name.removeprefix("derived:")] = packed[name].astype(np.int64)
                elif name in table.columns:
                    table[name][rows] = packed[name]
                else:
                    raise StateError(
                        f"the stored rows have a column {name!r} that the pipeline does not",
                        hint="Run the pipeline that wrote them, or reset the state",
                    )
            self._cover()
            self._stored_due[rows] = due
            self._layout = [(name, kind) for name, kind in layout]
            self._load_loose(store)
            self.touch(rows[self._due(rows) != due])
            return {"rows": rows, **derived}

    def _packed(self, rows: Int64Array, layout: list[tuple[str, str]]) -> NDArray[np.uint8]:
        packed = np.empty(len(rows), dtype=np.dtype(layout))
        for name, _ in layout:
            if name.startswith("derived:"):
                packed[name] = self._derived[name.removeprefix("derived:")](rows)
            else:
                packed[name] = self._table[name][rows]
        return packed.view(np.uint8).reshape(len(rows), -1)

    def _forget(self, batch: Batch, rows: Int64Array, watermark: int) -> None:
        """Delete what is stored of rows; what has expired goes with its range."""
        due = self._stored_due[rows]
        self._stored_due[rows] = _ABSENT
        left = (due > watermark) | (due == END_OF_TIME)
        if not left.any():
            return
        keys = np.hstack((encode_int64(due[left]), encode_int64(rows[left])))
        batch.delete_columns(self._fixed, keys)
        if self.loose.is_any():
            batch.delete_columns(self._loose, keys)

    def _write_loose(self, batch: Batch, rows: Int64Array, keys: NDArray[np.uint8]) -> None:
        if self.loose.is_any():
            batch.put(
                [self._loose + key.tobytes() for key in keys],
                [encode(parts) for parts in self.loose.of(rows)],
            )

    def _load_loose(self, store: StateStore) -> None:
        if not self.loose.is_any():
            return
        rows, each = [], []
        for row, due, parts in read_loose(store, self._loose):
            at = np.array([row])
            if not 0 <= row < self._table.capacity or not self._table.alive(at).all():
                raise damaged("a stored row", f"there are values for row {row}, but no such row")
            if due != self._stored_due[row]:
                raise damaged("a stored row", f"row {row} is stored twice")
            rows.append(row)
            each.append(parts)
        self.loose.put(rows, each)

    def _cover(self) -> None:
        room = self._table.capacity
        if room > len(self._stored_due):
            wider = np.full(room, _ABSENT, dtype=np.int64)
            wider[: len(self._stored_due)] = self._stored_due
            self._stored_due = wider
            dirty = np.zeros(room, dtype=np.bool_)
            dirty[: len(self._dirty)] = self._dirty
            self._dirty = dirty


def read_rows(
    store: StateStore, prefix: bytes, layout: Sequence[tuple[str, str]], limit: int
) -> tuple[Int64Array, Int64Array, NDArray[np.void]]:
    """Return the fixed-width part of stored rows.

    Args:
        store: The store.
        prefix: What their keys begin with.
        layout: Name and dtype of each column.
        limit: Above every row number.

    Returns:
        (row numbers, rising; when each expires, int64; the columns, a structured array).

    Raises:
        StateError: They are damaged.
    """
    with decoding("stored rows"):
        dtype = row_type(layout)
        tails, values = scanned(store, prefix)
        keys = joined(tails, _KEY_BYTES)
        due, rows = decode_int64(keys[:, :8]), decode_int64(keys[:, 8:])
        packed = joined(values, dtype.itemsize).reshape(-1).view(dtype)
        order = np.argsort(rows)
        rows, due, packed = rows[order], due[order], packed[order]
        if len(rows) and not 0 <= rows[0] <= rows[-1] < limit:
            raise damaged("a stored row", f"numbers go from 0 to {limit - 1}, not {rows[-1]}")
        if (rows[1:] == rows[:-1]).any():
            raise damaged("a stored row", "it is stored twice")
        check_packed(packed)
        return rows, due, packed


def read_loose(store: StateStore, prefix: bytes) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield what is stored of rows beside their fixed-width part: (row, expiry, parts by name).

    Raises:
        StateError: It is damaged.
    """
    for key, value in store.scan(*prefix_range(prefix)):
        with decoding("a stored row"):
            due, row = decode_int64(joined([key[len(prefix) :]], _KEY_BYTES).reshape(2, 8))
            parts = check_parts(decode(value))
        yield int(row), int(due), parts


def row_type(layout: Sequence[tuple[str, str]]) -> np.dtype[Any]:
    """Return the dtype of packed rows; raise ``StateError`` if a column cannot be of its type."""
    fields = [(str(name), np.dtype(kind)) for name, kind in layout]
    for name, kind in fields:
        if kind.kind not in "biufmM" or kind.itemsize > _WIDEST:
            raise damaged("stored rows", f"the column {name!r} cannot be of type {kind}")
    return np.dtype(fields)


def check_packed(packed: NDArray[np.void]) -> None:
    """Raise ``StateError`` if packed rows hold what no row can."""
    for name in packed.dtype.names or ():
        if packed.dtype[name].kind == "b" and (packed[name].view(np.uint8) > 1).any():
            raise damaged("a stored row", f"{name!r} is neither true nor false")


def scanned(store: StateStore, prefix: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return all rows under a prefix: (what follows it in their keys, their values)."""
    tails: list[bytes] = []
    values: list[bytes] = []
    skip = len(prefix)
    for key, value in store.scan(*prefix_range(prefix)):
        tails.append(key[skip:])
        values.append(value)
    return tails, values  # not pairs: the garbage collector would look at each, again and again


def joined(parts: list[bytes], width: int) -> NDArray[np.uint8]:
    """Return stored bytes, each of some width, as rows; raise ``StateError`` if one is not."""
    data = np.frombuffer(b"".join(parts), dtype=np.uint8)
    if not set(map(len, parts)) <= {width}:
        raise StateError(
            f"stored rows are not {width} bytes wide",
            hint="The state is damaged or of another version: restore a copy, or reset it",
        )
    return data.reshape(len(parts), width)
