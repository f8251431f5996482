"""What a store holds of a window operator, read without its pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.records.columns import type_from_bytes
from lowwater.engine.records.pane_table import instants_to_arrow
from lowwater.engine.records.stored_keys import read_keys
from lowwater.engine.window.persistence import (
    DUES,
    FACTS,
    HOLDS,
    KEYS,
    KEYS_GONE,
    SPILLED,
    SPILLED_KEYS,
    TIMERS,
    WINDOWS,
    WINDOWS_GONE,
    read_facts,
)
from lowwater.engine.window.retractions import read_nested
from lowwater.engine.window.spilled_format import (
    is_queued,
    places_of,
    read_parts,
    read_values,
    read_waits,
)
from lowwater.engine.window.window_state import PLACE
from lowwater.errors import StateError
from lowwater.state.formats import damaged, decoding
from lowwater.state.hashed_places import Places, hashes_of
from lowwater.state.journal import GroupReader
from lowwater.state.key_layout import StoredPlace, encode_int64, prefix_range
from lowwater.state.row_codec import Layouts
from lowwater.state.side_format import read_sides
from lowwater.state.store import StateStore
from lowwater.time import END_OF_TIME, Int64Array, saturating_add_array

TABLES = {
    FACTS: "facts",
    WINDOWS: "windows",
    WINDOWS_GONE: "windows that are gone",
    KEYS: "keys",
    KEYS_GONE: "keys that are gone",
    SPILLED_KEYS: "keys of windows not in memory",
    SPILLED: "windows not in memory",
    DUES: "when they are due",
    TIMERS: "when their timers are due",
    HOLDS: "how they hold the output watermark",
}

_Keys: TypeAlias = tuple[Int64Array, list[pa.Array]]
"""Ids of keys, rising, and a column for each part."""
_Windows: TypeAlias = tuple[NDArray[np.void], dict[str, list[Any]], _Keys]
"""Packed columns of windows, the lists and objects they hold by column, and their keys."""

_TIMES = {"key", "start", "end", "finished", PLACE}


@final
class InspectedWindows:
    """Reads what an operator has saved.

    Args:
        store: The store.
        place: Where it is stored.

    Raises:
        StateError: There is nothing of it, or what there is is damaged.
    """

    def __init__(self, store: StateStore, place: StoredPlace) -> None:
        self._store = store
        self._place = place
        record = read_facts(store, place.prefix(FACTS))
        if record is None:
            raise StateError(f"there is nothing of the stage {place.stage!r}")
        self._record = record
        self.facts: dict[str, int] = record["facts"]

    def verify(self) -> None:
        """Read and decode everything, and see that it fits together.

        Raises:
            StateError: Something is damaged.
        """
        with decoding("the stored state"):
            keys = self._record["keys"]
            parts = len(self._record["spilled"]["kinds"] or (keys or {"kinds": []})["kinds"])
            self.windows([f"key {at}" for at in range(parts)], open_only=False)
            if self._record["panes"] is not None:
                for kind in self._record["panes"]["types"].values():
                    type_from_bytes(kind)

    def windows(self, names: list[str], *, open_only: bool = True) -> pa.Table:
        """Return a row per window: its key, its times, and what it has taken in.

        Columns of the operator's own are named ``state.NAME``.

        Args:
            names: What to call the key columns.
            open_only: Whether to leave out windows that have closed and not expired yet.
        """
        with decoding("the stored state"):
            layouts, panes = Layouts(), Layouts()
            layouts.expect(self._record["windows"]["layouts"])
            if self._record["panes"] is not None:
                panes.expect(self._record["panes"]["layouts"])
            tables = [
                self._table(names, known, records, held, open_only)
                for records, held, known in (
                    *self._in_memory(layouts, panes),
                    *self._spilled(layouts, panes),
                )
            ]
            if not tables:  # nothing was ever stored
                times = ("window_start", "window_end", "expires")
                none = instants_to_arrow(np.empty(0, dtype=np.int64))
                columns = [*(pa.array([], pa.null()) for _ in names), *(none for _ in times)]
                return pa.Table.from_arrays(columns, names=[*names, *times])
            if len(tables) == 1:  # names may repeat in it
                return tables[0]
            return _concat(tables)

    def _in_memory(self, layouts: Layouts, panes: Layouts) -> list[_Windows]:
        """Return the windows that were in memory, in a table for each block."""
        stored = self._record["windows"]
        known = self._keys()
        found: list[_Windows] = []
        reader = GroupReader(
            self._store, self._place, WINDOWS, stored["limit"], self._record["expired"]
        )
        for _, blocks in reader:
            for piece in blocks.pieces:
                chunk = layouts.read(piece.chunk)
                held = _held([chunk.side], np.array([len(chunk)]), panes)
                live = piece.at.tolist()
                found.append(
                    (
                        chunk.records[piece.at],
                        {name: [values[at] for at in live] for name, values in held.items()},
                        known,
                    )
                )
        count = sum(len(records) for records, _, _ in found)
        if count != stored["count"]:
            raise damaged("the stored state", f"{count} of {stored['count']} windows are there")
        if not found and layouts.known:
            found.append((np.empty(0, layouts.dtype(0)), {}, known))
        return found

    def _spilled(self, layouts: Layouts, panes: Layouts) -> list[_Windows]:
        """Return the windows that were not in memory, in a table for each layout of a key group."""
        spilled = self._record["spilled"]
        key_layouts = Layouts()
        key_layouts.expect(spilled["layouts"])
        counted = 0
        found: list[_Windows] = []
        scans = zip(
            Places(self._place, SPILLED_KEYS).scans(self._store),
            Places(self._place, SPILLED).scans(self._store),
            strict=True,
        )
        for group, (of_hash, of_part) in zip(self._place.groups, scans, strict=True):
            keys, parts = dict(of_hash), dict(of_part)
            if not parts and not keys:
                continue
            self._require_queued(group, list(parts), read_waits(list(parts.values())))
            read = read_values(list(keys), list(keys.values()), key_layouts, spilled["kinds"])
            order = np.argsort(np.concatenate([at for at, _ in read.columns]))
            known = [
                _to_arrow([value for column in part for value in column.to_list()])
                for part in zip(*(columns for _, columns in read.columns), strict=True)
            ]
            columns = np.arange(len(order)), [part.take(pa.array(order)) for part in known]
            of_key = {
                pair: at
                for at, pair in enumerate(
                    zip(read.hashes.tolist(), read.place.tolist(), strict=True)
                )
            }
            count = np.zeros(len(order), dtype=np.int64)
            names = list(parts)
            pairs = zip(hashes_of(names).tolist(), places_of(names).tolist(), strict=True)
            key_of = np.array([of_key[pair] for pair in pairs], dtype=np.int64)
            for part in read_parts(list(parts.values()), layouts):
                records = part.chunk.records.copy()
                records["key"] = key_of[part.part]
                np.add.at(count, records["key"], 1)
                held = _held(part.sides, part.counts, panes)
                found.append((records, held, columns))
            if (count != read.windows).any():
                raise damaged("a stored key", "it has another number of windows")
            counted += int(count.sum())
        if counted != spilled["windows"]:
            raise damaged("the stored state", f"it has {counted} windows outside of memory")
        return found

    def _require_queued(self, group: int, names: list[bytes], waits: NDArray[np.void]) -> None:
        """Raise unless the windows that were not in memory are queued for all they wait for."""
        for table, column in ((DUES, "due"), (TIMERS, "timer"), (HOLDS, "hold")):
            prefix = self._place.prefix(table, group)
            times = np.ascontiguousarray(waits[column])
            never = (times == END_OF_TIME) & (table != DUES)
            if table == DUES:
                never |= ~np.array([is_queued(name) for name in names], dtype=np.bool_)
            encoded = [bytes(one) for one in encode_int64(times)]
            wanted = {
                prefix + at + name
                for at, name, none in zip(encoded, names, never.tolist(), strict=True)
                if not none
            }
            if {key for key, _ in self._store.scan(*prefix_range(prefix))} != wanted:
                raise damaged("a stored window", "what it waits for is not what is written down")

    def _keys(self) -> _Keys:
        """Return the ids of the keys, rising, and a column for each part."""
        record = self._record["keys"]
        if record is None:
            return np.empty(0, dtype=np.int64), []
        ids, columns = read_keys(self._store, self._place, KEYS, record)
        return ids, [_to_arrow(column.to_list()) for column in columns]

    def _table(
        self,
        names: list[str],
        known: _Keys,
        records: NDArray[np.void],
        held: dict[str, list[Any]],
        open_only: bool,
    ) -> pa.Table:
        ids = records["key"].astype(np.int64)
        places = np.searchsorted(known[0], ids)
        if len(ids) and (places.max() >= len(known[0]) or (known[0][places] != ids).any()):
            raise damaged("the stored state", "there is a window of an unknown key")
        taken = [part.take(pa.array(places)) for part in known[1]]
        columns = list(zip(names, taken or [pa.array([], pa.null())] * len(names), strict=True))
        end = records["end"].astype(np.int64)
        expires = saturating_add_array(end, self.facts["lateness"])
        times = (("window_start", records["start"]), ("window_end", end), ("expires", expires))
        columns += [(name, instants_to_arrow(np.ascontiguousarray(t))) for name, t in times]
        for name in records.dtype.names or ():
            if name not in _TIMES:
                columns.append((f"state.{name}", pa.array(np.ascontiguousarray(records[name]))))
        columns += [(f"state.{name}", _to_arrow(held[name])) for name in sorted(held)]
        table = pa.Table.from_arrays(
            [column for _, column in columns], names=[name for name, _ in columns]
        )
        return table.filter(pa.array(~records["finished"])) if open_only else table


def _held(sides: Sequence[bytes], counts: Int64Array, panes: Layouts) -> dict[str, list[Any]]:
    """Return the lists and objects of windows, by column; see that their panes can be read."""
    held: dict[str, list[Any]] = {}
    total = int(counts.sum())
    for side in read_sides(sides, counts):
        places = side.rows.tolist()
        found: dict[str, list[Any]] = {name: each.tolist() for name, each in side.objects.items()}
        for name, (values, _, of_each) in side.bags.items():
            bounds = np.concatenate(([0], np.cumsum(of_each))).tolist()
            found[name] = [values[low:high].tolist() for low, high in pairwise(bounds)]
        for name, each in found.items():
            column = held.setdefault(name, [None] * total)
            for place, value in zip(places, each, strict=True):
                column[place] = value
        if side.nested is not None:
            of_each, data = side.nested
            for read in read_nested(data, panes, int(of_each.sum())):
                read_sides(read.sides, read.counts)
    return held


def _concat(tables: list[pa.Table]) -> pa.Table:
    """Concatenate tables; a column whose types cannot be merged becomes one of texts.

    Of nulls alone an aggregate guesses the type of its column, so one layout may hold numbers, all
    of them meaningless, where the next one holds text.
    """
    names = dict.fromkeys(name for table in tables for name in table.column_names)
    for name in names:
        schemas = [table.select([name]).schema for table in tables if name in table.column_names]
        try:
            pa.unify_schemas(schemas, promote_options="permissive")
        except pa.ArrowTypeError:
            tables = [_with_text(table, name) for table in tables]
    return pa.concat_tables(tables, promote_options="permissive")


def _with_text(table: pa.Table, name: str) -> pa.Table:
    at = table.schema.get_field_index(name)
    if at < 0:
        return table
    values = table.column(at).to_pylist()
    texts = [value if value is None or isinstance(value, str) else repr(value) for value in values]
    return table.set_column(at, name, pa.array(texts, pa.string()))


def _to_arrow(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return pa.array([None if value is None else repr(value) for value in values])
