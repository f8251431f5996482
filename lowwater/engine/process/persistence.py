"""The durable form of a process: its facts, and the rows of a per-record one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np

from lowwater.engine.process.cell import RecordCell, refused
from lowwater.engine.process.definition import Definition
from lowwater.engine.process.state_keys import StateKeys
from lowwater.engine.process.timers import Setting, Slot, Timers
from lowwater.engine.process.waiting_records import StoredWaiting, WaitingRecords
from lowwater.engine.records.steps import key_values
from lowwater.engine.records.stored_keys import StoredKeys
from lowwater.engine.window.placement import Placement
from lowwater.errors import StateError
from lowwater.state.codec import decode, encode
from lowwater.state.formats import FORMATS, check_format, damaged, decoding
from lowwater.state.key_layout import StoredPlace, decode_int64, prefix_range
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

FORMAT = "process state"
FACTS, ROWS, ROWS_GONE, KEYS, KEYS_GONE, SCOPES, CELLS, TIMERS, WAITING, WAITING_GONE = range(10)
"""Tags of the tables of a process: a vectorised one has rows, another one scopes, cells and timers.

One in event-time order has waiting records.
"""
_WHAT = "the stored state of a process"
_WIDTH = 8
_BIAS = 1 << 63
_EVERY = ("watermark", "clock", "output watermark", "births", "lateness", "gone until")


def stored_parts(store: StateStore, place: StoredPlace) -> list[StoredPlace]:
    """Return where the parts of a stage are stored, each a process of its own; or the one place.

    Raises:
        StateError: What is stored is damaged.
    """
    (data,) = store.get([place.prefix(FACTS)])
    if data is None:
        return [place]
    with decoding(_WHAT):
        count = decode(data).get("groups", place.count)
        if type(count) is not int or count < 1 or place.count % count:
            raise damaged(_WHAT, f"a part has {count!r} of {place.count} key groups")
    return [replace(place, first=first, count=count) for first in place.groups[::count]]


@final
class StoredFacts:
    """What is stored of a process beside its rows: its times, its keys, and what it declares.

    Args:
        definition: What the process declares.
        placement: Its windows; ``None`` for none.
        place: Where it is stored.
        waiting: The records that wait; ``None`` in order of arrival.
    """

    def __init__(
        self,
        definition: Definition,
        placement: Placement | None,
        place: StoredPlace,
        waiting: WaitingRecords | None,
    ) -> None:
        self._definition = definition
        self._placement = placement
        self._place = place
        self._waiting = None if waiting is None else StoredWaiting(waiting, place, WAITING)
        self.keys = StoredKeys(place, KEYS)

    def write(self, batch: Batch, facts: dict[str, int], **beside: Any) -> None:
        """Add the facts to a batch, and what the kind of process stores beside them."""
        placement = self._placement
        record = {
            "layout": FORMATS[FORMAT],
            "facts": {
                **facts,
                "lateness": 0 if placement is None else placement.windowing.lateness_us,
                "gone until": START_OF_TIME if placement is None else placement.gone_until,
            },
            "declared": self._declared(),
            "windows": None if placement is None else repr(placement.windowing.windows),
            "keys": self.keys.record(),
            "groups": self._place.count,
            **beside,
        }
        if self._waiting is not None:
            record["waiting"] = self._waiting.write(batch, facts["watermark"])
        batch.put([self._place.prefix(FACTS)], [encode(record)])

    def load(
        self, store: StateStore, fill: Callable[[StateStore, dict[str, Any]], None]
    ) -> dict[str, int] | None:
        """Return the facts, after ``fill`` has read the rest; ``None`` if nothing is stored.

        Raises:
            StateError: What is stored is damaged, or another process's.
        """
        (data,) = store.get([self._place.prefix(FACTS)])
        if data is None:
            return None
        with decoding(_WHAT):
            record = decode(data)
            check_facts(record)
            self._check_same(record)
            fill(store, record)
            facts: dict[str, int] = record["facts"]
            if self._waiting is not None:
                self._waiting.load(store, record["waiting"], facts["watermark"])
            if self._placement is not None:
                lateness, gone_until = facts["lateness"], facts["gone until"]
                self._placement.resume(lateness, facts["watermark"], gone_until)
            return facts

    def load_keys(self, store: StateStore, record: dict[str, Any]) -> Int64Array:
        """Fill the key dictionary, and return the ids."""
        if record["groups"] != self._place.count:
            groups = f"{record['groups']} key groups, not {self._place.count}"
            raise damaged(_WHAT, f"it is in {groups}")
        return self.keys.load(store, record["keys"])

    def _declared(self) -> list[list[Any]]:
        cells, timers = self._definition.cells, self._definition.timers
        return [["cell", name, each.kind, each.dtype] for name, each in cells.items()] + [
            ["timer", name, each.domain] for name, each in timers.items()
        ]

    def _check_same(self, record: Any) -> None:
        """Raise ``StateError`` unless stored facts go with the process's declarations."""
        definition, placement = self._definition, self._placement
        now = self._declared()
        for each in record["declared"]:
            if each not in now:
                raise StateError(
                    f"the stored state has the {each[0]} {each[1]!r} ({each[2]}), and the process "
                    "no longer does",
                    where=definition.name,
                    hint="Declare it as it was, or reset the state",
                )
        windows = None if placement is None else repr(placement.windowing.windows)
        if record["windows"] != windows:
            raise StateError(
                f"the stored state is of windows={record['windows']}, the process has {windows}",
                where=definition.name,
                hint="Use the windows as they were, or reset the state",
            )
        if ("waiting" in record) != (self._waiting is not None):
            was, now_is = ("arrival", "event_time")[:: -1 if "waiting" in record else 1]
            raise StateError(
                f"the stored state is of order={was!r}, the process has order={now_is!r}",
                where=definition.name,
                hint="Use the order as it was, or reset the state",
            )


@final
class StoredProcess:
    """Writes what changed, and reads it all.

    Args:
        definition: What the process declares.
        state_keys, cells, timers: Its state, with nothing in it yet.
        placement: Its windows; ``None`` for none.
        place: Where it is stored.
        waiting: The records that wait; ``None`` in order of arrival.
    """

    def __init__(
        self,
        definition: Definition,
        state_keys: StateKeys,
        cells: Sequence[RecordCell],
        timers: Timers,
        placement: Placement | None,
        place: StoredPlace,
        waiting: WaitingRecords | None = None,
    ) -> None:
        self._definition = definition
        self._state_keys = state_keys
        self._cells = cells
        self._timers = timers
        self._names = list(definition.timers)
        self._place = place
        self._facts = StoredFacts(definition, placement, place, waiting)
        self._keys = self._facts.keys
        # The key groups of what is stored: when one is deleted, its key may be forgotten already.
        self._group: dict[int, int] = {}
        state_keys.on_forgetting = self._keys.forget

    def write(self, batch: Batch, facts: dict[str, int]) -> None:
        """Add what changed since the last time to a batch, and the facts.

        Raises:
            StateError: A cell holds what cannot be stored.
        """
        before = self._write_scopes(batch)
        self._write_cells(batch, before)
        self._write_timers(batch, before)
        self._facts.write(
            batch,
            {
                **facts,
                "turn": self._timers.turn,
                "births": self._state_keys.births,
                "top": self._state_keys.top,
            },
            counts=[len(self._state_keys), *(len(cell.held) for cell in self._cells)],
            timers=self._timers.count,
        )

    def load(self, store: StateStore) -> dict[str, int] | None:
        """Fill the state from a store, and return the facts; ``None`` if there is nothing.

        Raises:
            StateError: What is stored is damaged, or another process's.
        """
        return self._facts.load(store, self.fill)

    def fill(self, store: StateStore, record: dict[str, Any]) -> None:
        """Fill the state from a store, and see that all of it is there.

        Args:
            store: The store.
            record: The facts, checked.

        Raises:
            StateError: What is stored is damaged.
        """
        facts = record["facts"]
        self._timers.turn, self._state_keys.births = facts["turn"], facts["births"]
        self._load_scopes(store, record)
        self._load_cells(store)
        self._load_timers(store, facts["turn"])
        found = [len(self._state_keys), *(len(cell.held) for cell in self._cells)]
        known = {name for kind, name, *_ in record["declared"] if kind == "cell"}
        was = [n for n, cell in zip(found[1:], self._cells, strict=True) if cell.name in known]
        if [found[0], *was] != record["counts"] or self._timers.count != record["timers"]:
            raise damaged(_WHAT, "parts of it are missing")

    def _write_scopes(self, batch: Batch) -> dict[int, int]:
        """Write what keys changed; return the key groups of those that left theirs."""
        state_keys, group_of = self._state_keys, self._group
        changed = sorted(state_keys.changed)
        live = [scope for scope in changed if scope in state_keys.born]
        self._keys.use(state_keys.keys)
        self._keys.drop(_ids([key for key in state_keys.left if not state_keys.has_key(key)]))
        ids = _ids(map(state_keys.key_id, live))
        self._keys.want(ids)
        self._keys.write(batch)
        groups = dict(zip(live, self._keys.groups(ids).tolist() if live else (), strict=True))
        left = [s for s in changed if s in group_of and groups.get(s) != group_of[s]]
        batch.delete([self._row(SCOPES, group_of[scope], scope) for scope in left])
        batch.put(
            [self._row(SCOPES, group, scope) for scope, group in groups.items()],
            [encode([*state_keys.place(scope), state_keys.born[scope]]) for scope in live],
        )
        before = {scope: group_of.pop(scope) for scope in left}
        group_of.update(groups)
        state_keys.changed, state_keys.left = set(), set()
        return before

    def _write_cells(self, batch: Batch, before: dict[int, int]) -> None:
        for cell in self._cells:
            keys: list[bytes] = []
            values: list[bytes] = []
            gone: list[bytes] = []
            for scope in sorted(cell.changed):
                try:
                    value = cell.encoded(scope)
                except StateError as error:
                    key = self._state_keys.key(scope)
                    raise refused(error, cell.name, key, self._definition.name) from error
                if scope in before:
                    gone.append(self._row(CELLS, before[scope], scope, cell.name))
                if value is not None:
                    keys.append(self._row(CELLS, self._group[scope], scope, cell.name))
                    values.append(value)
                elif scope in self._group:
                    gone.append(self._row(CELLS, self._group[scope], scope, cell.name))
            batch.delete(gone)
            batch.put(keys, values)
            cell.changed.clear()

    def _write_timers(self, batch: Batch, before: dict[int, int]) -> None:
        rows: dict[bytes, bytes] = {}
        gone: list[bytes] = []
        for scope, slot in self._timers.changed:
            setting = self._timers.held.get(scope, {}).get(slot)
            name = self._names[slot[0]]
            try:
                tag = encode(slot[1])
            except StateError as error:
                raise StateError(
                    f"a tag of the timer {name!r} cannot be stored: {error.what}",
                    where=self._definition.name,
                    hint=error.hint,
                ) from error
            if scope in before:
                gone.append(self._row(TIMERS, before[scope], scope, name) + tag)
            if setting is not None:
                row = self._row(TIMERS, self._group[scope], scope, name) + tag
                rows[row] = encode([setting.time, setting.turn, setting.output_time])
            elif scope in self._group:
                gone.append(self._row(TIMERS, self._group[scope], scope, name) + tag)
        batch.delete(sorted(gone))
        batch.put(sorted(rows), [rows[row] for row in sorted(rows)])
        self._timers.changed = set()

    def _row(self, table: int, group: int, scope: int, name: str | None = None) -> bytes:
        """Return the key that something of a scope is stored under.

        Cells and timers are stored by name, so that others may be declared before and after them.
        """
        return self._prefix(table, group, name) + (scope + _BIAS).to_bytes(_WIDTH)

    def _prefix(self, table: int, group: int, name: str | None = None) -> bytes:
        named = b"" if name is None else name.encode() + b"\0"
        return self._place.prefix(table, group) + named

    def _load_scopes(self, store: StateStore, record: dict[str, Any]) -> None:
        state_keys, facts = self._state_keys, record["facts"]
        ids = self._facts.load_keys(store, record)
        state_keys.keys = self._keys.keys
        values: dict[int, Any] = {}
        groups_of: dict[int, int] = {}
        if state_keys.keys is not None:
            numbers = ids.tolist()
            values = dict(zip(numbers, key_values(state_keys.keys.decode(ids)), strict=True))
            groups_of = dict(zip(numbers, self._keys.groups(ids).tolist(), strict=True))
        seen: set[int] = set()
        for group in self._place.groups:
            for tail, data in _rows(store, self._prefix(SCOPES, group)):
                scope, place = _scope(tail), decode(data)
                if not (isinstance(place, list) and [type(each) for each in place] == [int] * 4):
                    raise damaged(_WHAT, f"a key has the place {place!r}")
                key, start, end, born = place
                if key not in values or not 0 <= born < facts["births"] or born in seen:
                    raise damaged(_WHAT, f"there is a place of no key: {place!r}")
                sound = (
                    groups_of[key] == group
                    and scope not in state_keys.born
                    and (
                        0 <= scope < facts["top"]
                        and START_OF_TIME <= start < end <= END_OF_TIME
                        and state_keys.find(key, start, end) is None
                        if state_keys.windowed
                        else (key, start, end) == (scope, 0, 0)
                    )
                )
                if not sound:
                    raise damaged(_WHAT, f"there is no such window: {place!r}")
                seen.add(born)
                state_keys.restore(scope, (key, start, end), born, values[key])
                self._group[scope] = group
        if any(not state_keys.has_key(key) for key in values):
            raise damaged(_WHAT, "there is a key without state")
        state_keys.top = max(state_keys.top, facts["top"])

    def _load_cells(self, store: StateStore) -> None:
        for cell in self._cells:
            for group in self._place.groups:
                for tail, data in _rows(store, self._prefix(CELLS, group, cell.name)):
                    scope = _scope(tail)
                    if self._group.get(scope) != group:
                        raise damaged(_WHAT, f"the cell {cell.name!r} has a value of no key")
                    cell.load(scope, decode(data))

    def _load_timers(self, store: StateStore, turns: int) -> None:
        seen: set[int] = set()
        for at, name in enumerate(self._names):
            for group in self._place.groups:
                for tail, data in _rows(store, self._prefix(TIMERS, group, name)):
                    scope, tag = _scope(tail[:_WIDTH]), decode(tail[_WIDTH:])
                    setting = _setting(decode(data), turns)
                    if self._group.get(scope) != group or setting.turn in seen:
                        raise damaged(_WHAT, f"the timer {name!r} is set for no key")
                    seen.add(setting.turn)
                    slot: Slot = (at, tag)
                    self._timers.put(scope, slot, setting)


def check_facts(record: Any) -> None:
    """Check the stored facts of a process, whatever the process.

    Raises:
        StateError: They are damaged, or of another layout.
    """
    check_format(FORMAT, record["layout"])
    facts = record["facts"]
    for name, fact in {**{name: facts.get(name) for name in _EVERY}, **facts}.items():
        if type(fact) is not int or not START_OF_TIME <= fact <= END_OF_TIME:
            raise damaged(_WHAT, f"{name} is {fact!r}")


def _ids(keys: Iterable[int]) -> Int64Array:
    return np.fromiter(keys, dtype=np.int64)


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
