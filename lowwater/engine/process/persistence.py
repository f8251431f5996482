"""The durable form of a per-record process: rows by key, window, cell and timer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np

from lowwater.engine.process.cell import HeldCell, refused
from lowwater.engine.process.definition import Definition
from lowwater.engine.process.key_persistence import StoredKeys, declared, kinds_of, number
from lowwater.engine.process.state_keys import StateKeys
from lowwater.engine.process.timers import Setting, Slot, Timers
from lowwater.engine.records.steps import key_values
from lowwater.engine.window.placement import Placement
from lowwater.errors import StateError
from lowwater.state.codec import decode, encode
from lowwater.state.damage import damaged, decoding
from lowwater.state.key_layout import decode_int64, prefix_range, table_prefix
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME

LAYOUT = 1
FACTS, KEYS, SCOPES, CELLS, TIMERS, LOOSE = range(6)
PROCESS_TABLES = {
    FACTS: "facts",
    KEYS: "keys",
    SCOPES: "keys in windows",
    CELLS: "cells",
    TIMERS: "timers",
    LOOSE: "lists and objects of cells",
}
_WHAT = "the stored state of a process"
_WIDTH = 8
_EVERY = ("watermark", "clock", "output watermark", "births", "lateness", "gone until", "keys")


@final
class StoredProcess:
    """Writes what changed, and reads it all.

    Args:
        definition: What the process declares.
        scopes, cells, timers: Its state, with nothing in it yet.
        operator: Number of the operator in its pipeline.
        group: Number of the key group.
    """

    def __init__(
        self,
        definition: Definition,
        scopes: StateKeys,
        cells: Sequence[HeldCell],
        timers: Timers,
        operator: int,
        group: int,
    ) -> None:
        self._definition = definition
        self._scopes = scopes
        self._cells = cells
        self._timers = timers
        self._names = list(definition.timers)
        self._facts, key_rows, self._places, cell_rows, self._settings = (
            table_prefix(operator, group, table) for table in range(5)
        )
        # By name, so that others may be declared before and after it.
        self._cell_rows = [cell_rows + cell.name.encode() + b"\0" for cell in cells]
        self._keys = StoredKeys(key_rows)
        scopes.on_forgetting = self._keys.forget

    def write(self, batch: Batch, facts: dict[str, int], placing: Placement | None) -> None:
        """Add what changed since the last time to a batch, and the facts.

        Raises:
            StateError: A cell holds what cannot be stored.
        """
        self._write_keys(batch)
        self._write_cells(batch)
        self._write_timers(batch)
        keys = self._scopes.keys
        record = {
            "layout": LAYOUT,
            "facts": {
                **facts,
                "turn": self._timers.turn,
                "births": self._scopes.births,
                "lateness": 0 if placing is None else placing.windowing.lateness_us,
                "gone until": START_OF_TIME if placing is None else placing.gone_until,
                "keys": 0 if keys is None else keys.capacity,
                "top": self._scopes.top,
            },
            "declared": declared(self._definition.cells, self._definition.timers),
            "windows": None if placing is None else repr(placing.windowing.windows),
            "keys": kinds_of(keys),
            "counts": [len(self._scopes), *(len(cell.held) for cell in self._cells)],
            "timers": self._timers.count,
        }
        batch.put([self._facts], [encode(record)])

    def load(self, store: StateStore, placing: Placement | None) -> dict[str, int] | None:
        """Fill the state from a store, and return the facts; ``None`` if there is nothing.

        Raises:
            StateError: What is stored is damaged, or another process's.
        """
        (data,) = store.get([self._facts])
        if data is None:
            return None
        with decoding(_WHAT):
            record = decode(data)
            check_record(record, self._definition, placing)
            facts: dict[str, int] = record["facts"]
            self.fill(store, record)
            if placing is not None:
                placing.resume(facts["lateness"], facts["watermark"], facts["gone until"])
                for scope, born in self._scopes.born.items():
                    end = self._scopes.place(scope)[2]
                    self._timers.expire_at(placing.expires(end), born, scope)
            return facts

    def fill(self, store: StateStore, record: dict[str, Any]) -> None:
        """Fill the state from a store, and see that all of it is there.

        Args:
            store: The store.
            record: The facts, checked.

        Raises:
            StateError: What is stored is damaged.
        """
        facts = record["facts"]
        self._timers.turn, self._scopes.births = facts["turn"], facts["births"]
        self._load_scopes(store, record)
        self._load_cells(store, record)
        self._load_timers(store, facts["turn"])
        found = [len(self._scopes), *(len(cell.held) for cell in self._cells)]
        known = {name for kind, name, *_ in record["declared"] if kind == "cell"}
        was = [n for n, cell in zip(found[1:], self._cells, strict=True) if cell.name in known]
        if [found[0], *was] != record["counts"] or self._timers.count != record["timers"]:
            raise damaged(_WHAT, "parts of it are missing")

    def _write_keys(self, batch: Batch) -> None:
        scopes = self._scopes
        changed = sorted(scopes.changed)
        live = [scope for scope in changed if scope in scopes.born]
        gone = [key for key in scopes.left if not scopes.has_key(key)]
        self._keys.write(batch, scopes.keys, map(scopes.key_id, live), gone)
        batch.delete([self._places + number(s) for s in changed if s not in scopes.born])
        batch.put(
            [self._places + number(scope) for scope in live],
            [encode([*scopes.place(scope), scopes.born[scope]]) for scope in live],
        )
        scopes.changed, scopes.left = set(), set()

    def _write_cells(self, batch: Batch) -> None:
        for cell, prefix in zip(self._cells, self._cell_rows, strict=True):
            keys: list[bytes] = []
            values: list[bytes] = []
            gone: list[bytes] = []
            for scope in sorted(cell.changed):
                try:
                    value = cell.encoded(scope)
                except StateError as error:
                    key = self._scopes.key(scope)
                    raise refused(error, cell.name, key, self._definition.name) from error
                if value is None:
                    gone.append(prefix + number(scope))
                else:
                    keys.append(prefix + number(scope))
                    values.append(value)
            batch.delete(gone)
            batch.put(keys, values)
            cell.changed.clear()

    def _write_timers(self, batch: Batch) -> None:
        rows: dict[bytes, bytes] = {}
        gone: list[bytes] = []
        for scope, slot in self._timers.changed:
            setting = self._timers.held.get(scope, {}).get(slot)
            name = self._names[slot[0]]
            try:
                row = self._settings + name.encode() + b"\0" + number(scope) + encode(slot[1])
            except StateError as error:
                raise StateError(
                    f"a tag of the timer {name!r} cannot be stored: {error.what}",
                    where=self._definition.name,
                    hint=error.hint,
                ) from error
            if setting is None:
                gone.append(row)
            else:
                rows[row] = encode([setting.time, setting.turn, setting.output_time])
        batch.delete(sorted(gone))
        batch.put(sorted(rows), [rows[row] for row in sorted(rows)])
        self._timers.changed = set()

    def _load_scopes(self, store: StateStore, record: dict[str, Any]) -> None:
        scopes, facts = self._scopes, record["facts"]
        scopes.keys, ids, columns = self._keys.load(store, record["keys"], facts["keys"])
        values = dict(zip(ids.tolist(), key_values(columns), strict=True)) if len(ids) else {}
        seen: set[int] = set()
        for tail, data in _rows(store, self._places):
            scope, place = _scope(tail), decode(data)
            if not (isinstance(place, list) and [type(each) for each in place] == [int] * 4):
                raise damaged(_WHAT, f"a key has the place {place!r}")
            key, start, end, born = place
            if key not in values or not 0 <= born < facts["births"] or born in seen:
                raise damaged(_WHAT, f"there is a place of no key: {place!r}")
            sound = (
                0 <= scope < facts["top"]
                and START_OF_TIME <= start < end <= END_OF_TIME
                and scopes.find(key, start, end) is None
                if scopes.windowed
                else (key, start, end) == (scope, 0, 0)
            )
            if not sound:
                raise damaged(_WHAT, f"there is no such window: {place!r}")
            seen.add(born)
            scopes.restore(scope, (key, start, end), born, values[key])
        if any(not scopes.has_key(key) for key in values):
            raise damaged(_WHAT, "there is a key without state")
        scopes.top = max(scopes.top, facts["top"])

    def _load_cells(self, store: StateStore, record: dict[str, Any]) -> None:
        for cell, prefix in zip(self._cells, self._cell_rows, strict=True):
            for tail, data in _rows(store, prefix):
                scope = _scope(tail)
                if scope not in self._scopes.born:
                    raise damaged(_WHAT, f"the cell {cell.name!r} has a value of no key")
                cell.load(scope, decode(data))

    def _load_timers(self, store: StateStore, turns: int) -> None:
        seen: set[int] = set()
        for at, name in enumerate(self._names):
            for tail, data in _rows(store, self._settings + name.encode() + b"\0"):
                scope, tag = _scope(tail[:_WIDTH]), decode(tail[_WIDTH:])
                setting = _setting(decode(data), turns)
                if scope not in self._scopes.born or setting.turn in seen:
                    raise damaged(_WHAT, f"the timer {name!r} is set for no key")
                seen.add(setting.turn)
                slot: Slot = (at, tag)
                self._timers.put(scope, slot, setting)


def check_facts(record: Any) -> None:
    """Check the stored facts of a process, whatever the process.

    Raises:
        StateError: They are damaged, or of another layout.
    """
    if record["layout"] != LAYOUT:
        raise StateError(
            f"{_WHAT} has layout {record['layout']}, this lowwater writes {LAYOUT}",
            hint="Use the lowwater that wrote it, or reset the state",
        )
    facts = record["facts"]
    for name, fact in {**{name: facts.get(name) for name in _EVERY}, **facts}.items():
        if type(fact) is not int or not START_OF_TIME <= fact <= END_OF_TIME:
            raise damaged(_WHAT, f"{name} is {fact!r}")


def check_record(record: Any, definition: Definition, placing: Placement | None) -> None:
    """Check the stored facts of a process against the process that is to go on.

    Raises:
        StateError: They are damaged, of another layout, or of a process with other cells, timers
            or windows.
    """
    check_facts(record)
    now = declared(definition.cells, definition.timers)
    for each in record["declared"]:
        if each not in now:
            raise StateError(
                f"the stored state has the {each[0]} {each[1]!r} ({each[2]}), and the process no "
                "longer does",
                where=definition.name,
                hint="Declare it as it was, or reset the state",
            )
    windows = None if placing is None else repr(placing.windowing.windows)
    if record["windows"] != windows:
        raise StateError(
            f"the stored state is of windows={record['windows']}, the process has {windows}",
            where=definition.name,
            hint="Use the windows as they were, or reset the state",
        )


def _rows(store: StateStore, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    for key, value in store.scan(*prefix_range(prefix)):
        yield key[len(prefix) :], value


def _scope(tail: bytes) -> int:
    if len(tail) != _WIDTH:
        raise damaged(_WHAT, "a number is not of the right width")
    return int(decode_int64(np.frombuffer(tail, dtype=np.uint8))[0])


def _setting(parts: Any, turns: int) -> Setting:
    if not (
        isinstance(parts, list)
        and len(parts) == 3
        and type(parts[0]) is type(parts[1]) is int
        and (parts[2] is None or type(parts[2]) is int)
        and all(START_OF_TIME <= each <= END_OF_TIME for each in parts if each is not None)
        and 0 <= parts[1] < turns
    ):
        raise damaged(_WHAT, f"a timer is set to {parts!r}")
    return Setting(*parts)
