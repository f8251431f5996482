"""What a store holds of a window operator, read without its pipeline."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import pyarrow as pa

from lowwater.engine.records.columns import type_from_bytes
from lowwater.engine.records.pane_table import instants_to_arrow
from lowwater.engine.window.persistence import (
    COLD,
    COLD_BY_KEY,
    COLD_LOOSE,
    FACTS,
    KEYS,
    SHOWN,
    SHOWN_LOOSE,
    WINDOWS,
    WINDOWS_LOOSE,
    read_facts,
    read_keys,
)
from lowwater.engine.window.spilled_rows import unpacked
from lowwater.engine.window.spilling import read_tails
from lowwater.errors import StateError
from lowwater.state.codec import decode
from lowwater.state.damage import damaged, decoding
from lowwater.state.journal import read_loose, read_rows
from lowwater.state.key_layout import prefix_range, table_prefix
from lowwater.state.side_columns import bag_values, check_parts
from lowwater.state.store import StateStore
from lowwater.time import Int64Array, saturating_add_array

TABLES = {
    WINDOWS: "windows",
    WINDOWS_LOOSE: "lists and objects of windows",
    SHOWN: "panes to take back",
    SHOWN_LOOSE: "objects of panes to take back",
    KEYS: "keys",
    FACTS: "facts",
    COLD: "windows not in memory",
    COLD_LOOSE: "lists and objects of windows not in memory",
    COLD_BY_KEY: "where the windows of a key are",
}

_PLACES = {"key", "start", "end", "finished", "derived:place", "layout", "shown"}


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
            names = [f"key {at}" for at in range(len(self._record["keys"] or ()))]
            self.windows(names, open_only=False)
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
            loose = self._loose(WINDOWS_LOOSE, rows)
            ids = packed["key"].astype(np.int64)
            times = packed["start"].astype(np.int64), packed["end"].astype(np.int64), due
            parts = [loose.get(row, {}) for row in rows.tolist()]
            tables = [self._table(names, ids, times, packed, parts, open_only)]
            tables += self._cold(names, open_only)
            if len(tables) == 1:  # names may repeat in it
                return tables[0]
            return pa.concat_tables(tables, promote_options="permissive")

    def _cold(self, names: list[str], open_only: bool) -> list[pa.Table]:
        """Return the windows that were not in memory, in a table for each layout."""
        found = list(self._store.scan(*prefix_range(self._prefix(COLD))))
        at = len(self._prefix(COLD))
        tails = [key[at:] for key, _ in found]
        if len(tails) != self._record["cold"]["windows"]:
            raise damaged("the stored state", f"it has {len(tails)} windows outside of memory")
        loose = {
            key[at:]: check_parts(decode(value))
            for key, value in self._store.scan(*prefix_range(self._prefix(COLD_LOOSE)))
        }
        if not loose.keys() <= set(tails):
            raise damaged("a stored window", "there are values for it, but no such window")
        if len(loose) != self._record["cold"]["loose"]:
            raise damaged("a stored window", "its values are missing")
        by_key = self._prefix(COLD_BY_KEY)
        indexed = {key[len(by_key) :] for key, _ in self._store.scan(*prefix_range(by_key))}
        wanted = {tail[8:16] + tail[:8] + tail[16:] for tail in tails}
        if indexed != (wanted if self._record["cold"]["by key"] else set()):
            raise damaged("a stored window", "the index of its key says something else")
        for each in loose.values():
            for packed, objects in each.get("shown", ()):
                unpacked([packed], self._record["cold"]["shown"])
                check_parts(objects)
        end, ids, start = read_tails(tails)
        expires = saturating_add_array(end, self.facts["lateness"])
        layouts = self._record["cold"]["layouts"]
        tables = []
        for places, packed, _ in unpacked([value for _, value in found], layouts):
            times = start[places], end[places], expires[places]
            parts = [loose.get(tails[place], {}) for place in places.tolist()]
            tables.append(self._table(names, ids[places], times, packed, parts, open_only))
        return tables

    def _table(
        self,
        names: list[str],
        ids: Int64Array,
        times: tuple[Int64Array, Int64Array, Int64Array],
        packed: Any,
        loose: list[dict[str, Any]],
        open_only: bool,
    ) -> pa.Table:
        columns = self._keys(names, ids)
        for name, column in zip(("window_start", "window_end", "expires"), times, strict=True):
            columns.append((name, instants_to_arrow(column)))
        for name in packed.dtype.names or ():
            if name not in _PLACES:
                columns.append((f"state.{name}", pa.array(np.ascontiguousarray(packed[name]))))
        for name in sorted({name for parts in loose for name in parts if name != "shown"}):
            shown, values = self._shown(name, [parts.get(name) for parts in loose])
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
