"""What a store holds of a window operator, read without its pipeline."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import pyarrow as pa

from lowwater.engine._stored import (
    FACTS,
    KEYS,
    SHOWN,
    SHOWN_LOOSE,
    WINDOWS,
    WINDOWS_LOOSE,
    read_facts,
    read_keys,
)
from lowwater.engine._types import type_from_bytes
from lowwater.engine.pane_table import instants_to_arrow
from lowwater.errors import StateError
from lowwater.state.damage import damaged, decoding
from lowwater.state.journal import read_loose, read_rows
from lowwater.state.key_layout import table_prefix
from lowwater.state.loose import bag_values
from lowwater.state.store import StateStore
from lowwater.time import Int64Array

TABLES = {
    WINDOWS: "windows",
    WINDOWS_LOOSE: "lists and objects of windows",
    SHOWN: "panes to take back",
    SHOWN_LOOSE: "objects of panes to take back",
    KEYS: "keys",
    FACTS: "facts",
}

_PLACES = {"key", "start", "end", "finished", "derived:place"}


@final
class StoredView:
    """Reads what an operator (of one key group) has saved.

    Args:
        store: The store.
        operator: Number of the operator.
        group: Number of the key group.

    Raises:
        StateError: There is nothing of it, or what there is is damaged.
    """

    def __init__(self, store: StateStore, operator: int, group: int = 0) -> None:
        self._store = store
        self._place = (operator, group)
        record = read_facts(store, self._prefix(FACTS))
        if record is None:
            raise StateError(f"there is nothing of operator {operator}, group {group}")
        self._record = record
        self.facts: dict[str, int] = record["facts"]

    def verify(self) -> None:
        """Read and decode everything, and see that it fits together.

        Raises:
            StateError: Something is damaged.
        """
        with decoding("the stored state"):
            self.windows(["key"] * len(self._record["keys"] or ()), open_only=False)
            rows, _, packed = self._rows(WINDOWS, "windows")
            self._loose(WINDOWS_LOOSE, rows)
            if self._record["shown"] is None:
                return
            for kind in self._record["shown types"].values():
                _type_of(kind)
            shown, _, panes = self._rows(SHOWN, "shown")
            self._loose(SHOWN_LOOSE, shown)
            heads = packed["shown"] if "shown" in (packed.dtype.names or ()) else []
            follows = np.concatenate((heads, panes["next"])).astype(np.int64)
            follows = follows[follows >= 0]
            if not np.array_equal(np.sort(follows), shown):
                raise damaged("the stored state", "panes that were shown belong to no window")

    def windows(self, names: list[str], *, open_only: bool = True) -> pa.Table:
        """Return a row per window: its key, its times, and what it has taken in.

        Columns of the operator's own are named ``state.NAME``.

        Args:
            names: What to call the key columns.
            open_only: Whether to leave out windows that have closed and not expired yet.
        """
        rows, due, packed = self._rows(WINDOWS, "windows")
        with decoding("the stored state"):
            columns = self._keys(names, packed["key"].astype(np.int64))
            columns.append(("window_start", instants_to_arrow(packed["start"])))
            columns.append(("window_end", instants_to_arrow(packed["end"])))
            columns.append(("expires", instants_to_arrow(due)))
            for name in packed.dtype.names or ():
                if name not in _PLACES:
                    values = np.ascontiguousarray(packed[name])
                    columns.append((f"state.{name}", pa.array(values)))
            loose = self._loose(WINDOWS_LOOSE, rows)
            for name in sorted({name for parts in loose.values() for name in parts}):
                held = [loose.get(row, {}).get(name) for row in rows.tolist()]
                shown, values = self._shown(name, held)
                columns.append((f"state.{shown}", values))
            table = pa.Table.from_arrays(
                [column for _, column in columns], names=[name for name, _ in columns]
            )
            return table.filter(pa.array(~packed["finished"])) if open_only else table

    def _keys(self, names: list[str], ids: Int64Array) -> list[tuple[str, pa.Array]]:
        kinds = self._record["keys"]
        if kinds is None:
            if len(ids):
                raise damaged("the stored state", "there are windows, but no keys")
            return [(name, pa.array([], pa.null())) for name in names]
        limit = self._record["limits"]["keys"]
        known, columns = read_keys(self._store, self._prefix(KEYS), kinds, limit)
        at = np.searchsorted(known, ids)
        if len(ids) and (at.max() >= len(known) or (known[at] != ids).any()):
            raise damaged("the stored state", "there is a window of an unknown key")
        return [
            (name, _to_arrow(column.take(at).to_list()))
            for name, column in zip(names, columns, strict=True)
        ]

    def _rows(self, table: int, name: str) -> tuple[Int64Array, Int64Array, Any]:
        with decoding("stored rows"):
            limit = self._record["limits"][name]
            return read_rows(self._store, self._prefix(table), self._record[name], limit)

    def _loose(self, table: int, rows: Int64Array) -> dict[int, dict[str, Any]]:
        known = set(rows.tolist())
        found = {}
        for row, _, parts in read_loose(self._store, self._prefix(table)):
            if row not in known:
                raise damaged("a stored row", f"there are values for row {row}, but no such row")
            found[row] = parts
        return found

    def _shown(self, name: str, held: list[Any]) -> tuple[str, pa.Array]:
        """Return what to call a column of lists or objects, and its values."""
        if not name.startswith("bag:"):
            return name, _to_arrow(held)
        values = [[] if each is None else bag_values(each)[0].tolist() for each in held]
        return name.removeprefix("bag:"), _to_arrow(values)

    def _prefix(self, table: int) -> bytes:
        return table_prefix(*self._place, table)


def _to_arrow(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return pa.array([None if value is None else repr(value) for value in values])


def _type_of(data: bytes | None) -> pa.DataType | None:
    return None if data is None else type_from_bytes(data)
