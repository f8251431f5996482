"""The durable form of a process: its facts, and the rows of a per-record one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, final

import numpy as np

from lowwater.engine.process.cell import RecordCell, refused
from lowwater.engine.process.definition import Definition
from lowwater.engine.process.key_numbers import KeyNumbers
from lowwater.engine.process.key_parts import BELOW, SHIFT
from lowwater.engine.process.state_keys import StateKeys
from lowwater.engine.process.timers import Setting, Slot, Timers
from lowwater.engine.process.waiting_records import StoredWaiting, WaitingRecords
from lowwater.engine.records.steps import key_values
from lowwater.engine.records.stored_keys import Kinds, StoredKeys
from lowwater.engine.window.placement import Placement
from lowwater.errors import StateError
from lowwater.state.codec import Encoded, decode, encode
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
_TIMES = ("watermark", "clock", "output watermark")
_EVERY = (*_TIMES, "births", "lateness", "gone until")


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
        self.place = place
        self._waiting = None if waiting is None else StoredWaiting(waiting, place, WAITING)
        self.keys = StoredKeys(place, KEYS)
        self._windows = None if placement is None else repr(placement.windowing.windows)
        self._encoded = Encoded(self._declared())
        self._keys_encoded = Encoded(None)
        self._keys_were: dict[str, Any] | None = None

    def write(self, batch: Batch, facts: dict[str, int], **beside: Any) -> None:
        """Add the facts to a batch, and what the kind of process stores beside them."""
        placement, keys = self._placement, self.keys.record()
        if keys != self._keys_were:
            self._keys_encoded, self._keys_were = Encoded(keys), keys
        record = {
            "layout": FORMATS[FORMAT],
            "facts": {
                **facts,
                "lateness": 0 if placement is None else placement.windowing.lateness_us,
                "gone until": START_OF_TIME if placement is None else placement.gone_until,
            },
            "declared": self._encoded,
            "windows": self._windows,
            "keys": self._keys_encoded,
            "groups": self.place.count,
            **beside,
        }
        if self._waiting is not None:
            record["waiting"] = self._waiting.write(batch, facts["watermark"])
        batch.put([self.place.prefix(FACTS)], [encode(record)])

    def load(
        self, store: StateStore, fill: Callable[[StateStore, dict[str, Any]], None]
    ) -> dict[str, int] | None:
        """Return the facts, after ``fill`` has read the rest; ``None`` if nothing is stored.

        Raises:
            StateError: What is stored is damaged, or another process's.
        """
        (data,) = store.get([self.place.prefix(FACTS)])
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
        self.check_groups(record)
        return self.keys.load(store, record["keys"])

    def check_groups(self, record: dict[str, Any]) -> None:
        """Raise ``StateError`` unless what is stored is in as many key groups as the place."""
        if record["groups"] != self.place.count:
            groups = f"{record['groups']} key groups, not {self.place.count}"
            raise damaged(_WHAT, f"it is in {groups}")

    def _declared(self) -> list[list[Any]]:
        cells, timers = self._definition.cells, self._definition.timers
        return [["cell", name, each.kind, each.dtype] for name, each in cells.items()] + [
            ["timer", name, each.domain] for name, each in timers.items()
        ]

    def _check_same(self, record: Any) -> None:
        """Raise ``StateError`` unless stored facts go with the process's declarations."""
        definition = self._definition
        now = self._declared()
        for each in record["declared"]:
            if each not in now:
                raise StateError(
                    f"the stored state has the {each[0]} {each[1]!r} ({each[2]}), and the process "
                    "no longer does",
                    where=definition.name,
                    hint="Declare it as it was, or reset the state",
                )
        if record["windows"] != self._windows:
            raise StateError(
                f"the stored state is of windows={record['windows']}, the process has "
                f"{self._windows}",
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

    Each part of the keys is stored for itself: what is stored of it depends on no other.

    Args:
        definition: What the process declares.
        state_keys, cells, timers: Its state, with nothing in it yet.
        placement: Its windows; ``None`` for none.
        places: Where each part is stored, by its number.
        waiting: The records of each part that wait; ``None`` in order of arrival.
    """

    def __init__(
        self,
        definition: Definition,
        state_keys: StateKeys,
        cells: Sequence[RecordCell],
        timers: Timers,
        placement: Placement | None,
        places: Mapping[int, StoredPlace],
        waiting: Mapping[int, WaitingRecords] | None = None,
    ) -> None:
        self._definition = definition
        self._state_keys = state_keys
        self._cells = cells
        self._timers = timers
        self._names = list(definition.timers)
        self._parts = {
            part: _Part(
                part,
                state_keys,
                StoredFacts(
                    definition, placement, place, None if waiting is None else waiting[part]
                ),
                [0] * len(cells),
            )
            for part, place in places.items()
        }
        self._place = next(iter(places.values()))
        self._groups_here = [group for place in places.values() for group in place.groups]
        self.refused_at = (0, 0)  # which cell of a key of which part could not be stored
        # Of each stored scope: its key group, and a bit for each cell that it holds.
        self._stored: dict[int, int] = {}
        # The number that each key is stored under, while it has a scope.
        self._numbers: dict[int, int] = {}

    def write(self, batch: Batch, facts: dict[str, int]) -> None:
        """Add what changed since the last time to a batch, and the facts.

        Raises:
            StateError: A cell holds what cannot be stored.
        """
        before = self._write_scopes(batch)
        self._write_cells(batch)
        self._write_timers(batch, before)
        state_keys, timers = self._state_keys, self._timers
        for number, part in self._parts.items():
            part.facts.write(
                batch,
                {
                    **facts,
                    "turn": timers.turns[number] & BELOW,
                    "births": state_keys.births[number] & BELOW,
                    "top": state_keys.top[number] & BELOW,
                },
                counts=[state_keys.live.get(number, 0), *part.counts],
                timers=timers.counts.get(number, 0),
            )

    def load(self, store: StateStore) -> dict[str, int] | None:
        """Fill the state from a store, and return the facts; ``None`` if there is nothing.

        Raises:
            StateError: What is stored is damaged, or another process's.
        """
        every = [
            part.facts.load(store, partial(self.fill, part=number))
            for number, part in self._parts.items()
        ]
        found = [facts for facts in every if facts is not None]
        if not found:
            return None
        for name in _TIMES:
            if len(found) < len(every) or len({facts[name] for facts in found}) > 1:
                raise damaged(_WHAT, f"its parts differ in their {name}")
        return found[0]

    def fill(self, store: StateStore, record: dict[str, Any], part: int = 0) -> None:
        """Fill the state of a part from a store, and see that all of it is there.

        Args:
            store: The store.
            record: The facts, checked.
            part: Its number.

        Raises:
            StateError: What is stored is damaged.
        """
        facts, state_keys, timers = record["facts"], self._state_keys, self._timers
        of_part = self._parts[part]
        timers.turns[part] = facts["turn"] | of_part.base
        state_keys.births[part] = facts["births"] | of_part.base
        state_keys.top[part] = facts["top"] | of_part.base
        scopes = self._load_scopes(store, record, of_part)
        self._load_cells(store, of_part, scopes)
        self._load_timers(store, facts["turn"], of_part, scopes)
        known = {name for kind, name, *_ in record["declared"] if kind == "cell"}
        cells = zip(of_part.counts, self._cells, strict=True)
        found = [len(scopes), *(count for count, cell in cells if cell.name in known)]
        if found != record["counts"] or timers.counts.get(part, 0) != record["timers"]:
            raise damaged(_WHAT, "parts of it are missing")

    @property
    def kinds(self) -> Kinds | None:
        """The types of the keys; ``None`` before any key."""
        every = (part.facts.keys.kinds for part in self._parts.values())
        return next((kinds for kinds in every if kinds is not None), None)

    def _write_scopes(self, batch: Batch) -> dict[int, _Place]:
        """Write what keys changed; return where those were stored that are there no longer."""
        state_keys, stored, bits = self._state_keys, self._stored, len(self._cells)
        changed, state_keys.changed = sorted(state_keys.changed), set()
        was = {
            scope: (stored[scope] >> bits, self._number(scope))
            for scope in changed
            if scope in stored
        }
        born = state_keys.born
        live = sorted((scope for scope in changed if scope in born), key=born.__getitem__)
        self._number_keys(live)
        for part in self._parts.values():
            part.keys.use()
            part.facts.keys.write(batch)
        groups = self._groups(live)
        before: dict[int, _Place] = {}
        for scope, (group, number) in was.items():
            if groups.get(scope) != group or self._number(scope) != number:
                before[scope] = _Place(group, number)
                held, counts = stored.pop(scope), self._parts[scope >> SHIFT].counts
                gone = [nth for nth in range(bits) if held >> nth & 1]
                for nth in gone:
                    counts[nth] -= 1
                names = [self._cells[nth].name for nth in gone]
                batch.delete([self._row(CELLS, group, number, name) for name in names])
        batch.delete([self._row(SCOPES, *place) for place in before.values()])
        batch.put(
            [self._row(SCOPES, groups[scope], self._number(scope)) for scope in live],
            [encode(self._facts_of(scope)) for scope in live],
        )
        for scope in live:
            if scope not in stored:
                stored[scope] = groups[scope] << bits
        return before

    def _number_keys(self, live: Sequence[int]) -> None:
        """Take back the numbers of keys that had no scope for a while; give some to those without.

        Args:
            live: The scopes that have come, in their order.
        """
        numbers, state_keys = self._numbers, self._state_keys
        gone, state_keys.left = state_keys.left, set()
        freed = [(key >> SHIFT, numbers.pop(key)) for key in gone if key in numbers]
        for part, some in groupby(sorted(freed), itemgetter(0)):
            self._parts[part].keys.take_back([number for _, number in some])
        new = dict.fromkeys(key for key in map(state_keys.key_id, live) if key not in numbers)
        for part, some_keys in groupby(new, lambda key: key >> SHIFT):
            keys = list(some_keys)
            numbers.update(zip(keys, self._parts[part].keys.give(keys), strict=True))

    def _groups(self, live: Sequence[int]) -> dict[int, int]:
        """Return the key group of each scope."""
        found: dict[int, int] = {}
        for part, some in groupby(live, lambda scope: scope >> SHIFT):
            scopes = list(some)
            numbers = [self._numbers[self._state_keys.key_id(scope)] for scope in scopes]
            found.update(zip(scopes, self._parts[part].keys.groups(numbers), strict=True))
        return found

    def _number(self, scope: int) -> int:
        """Return the number that a scope is stored under; -1 for none."""
        if self._state_keys.windowed:
            return scope & BELOW
        return self._numbers.get(scope, -1)

    def _facts_of(self, scope: int) -> list[int]:
        """Return what is stored of a live scope: key, window, birth."""
        key, start, end = self._state_keys.place(scope)
        return [self._numbers[key], start, end, self._state_keys.born[scope] & BELOW]

    def _write_cells(self, batch: Batch) -> None:
        stored, bits = self._stored, len(self._cells)
        # Of a scope in windows, its own number is that of its row; else that of its key.
        numbers = None if self._state_keys.windowed else self._numbers
        for nth, cell in enumerate(self._cells):
            keys: list[bytes] = []
            values: list[bytes] = []
            gone: list[bytes] = []
            prefix = {group: self._prefix(CELLS, group, cell.name) for group in self._groups_here}
            for scope in cell.changed:  # in any order: each has a row of its own
                try:
                    value = cell.encoded(scope)
                except StateError:
                    self._refuse(nth)
                    raise
                known = stored.get(scope)
                if known is None:
                    continue
                number = scope & BELOW if numbers is None else numbers[scope]
                row = prefix[known >> bits] + (number + _BIAS).to_bytes(_WIDTH)
                held = known >> nth & 1
                if value is not None:
                    keys.append(row)
                    values.append(value)
                elif held:
                    gone.append(row)
                if held != (value is not None):
                    stored[scope] = known ^ (1 << nth)
                    self._parts[scope >> SHIFT].counts[nth] += 1 - 2 * held
            batch.delete(gone)
            batch.put(keys, values)
            cell.changed.clear()

    def _refuse(self, nth: int) -> None:
        """Raise the error for the key that came first, of those whose cell cannot be stored."""
        state_keys, cell = self._state_keys, self._cells[nth]
        changed = [scope for scope in cell.changed if scope in state_keys.born]
        for scope in sorted(changed, key=state_keys.born.__getitem__):
            try:
                cell.encoded(scope)
            except StateError as error:
                self.refused_at = (nth, scope >> SHIFT)
                key = state_keys.key(scope)
                raise refused(error, cell.name, key, self._definition.name) from error

    def _write_timers(self, batch: Batch, before: Mapping[int, _Place]) -> None:
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
                gone.append(self._row(TIMERS, *before[scope], name) + tag)
            if scope not in self._stored:
                continue
            group = self._stored[scope] >> len(self._cells)
            row = self._row(TIMERS, group, self._number(scope), name) + tag
            if setting is not None:
                rows[row] = encode([setting.time, setting.turn & BELOW, setting.output_time])
            else:
                gone.append(row)
        batch.delete(sorted(gone))
        batch.put(sorted(rows), [rows[row] for row in sorted(rows)])
        self._timers.changed = set()

    def _row(self, table: int, group: int, number: int, name: str | None = None) -> bytes:
        """Return the key that something of a scope is stored under.

        Cells and timers are stored by name, so that others may be declared before and after them.
        """
        return self._prefix(table, group, name) + (number + _BIAS).to_bytes(_WIDTH)

    def _prefix(self, table: int, group: int, name: str | None = None) -> bytes:
        named = b"" if name is None else name.encode() + b"\0"
        return self._place.prefix(table, group) + named

    def _load_scopes(
        self, store: StateStore, record: dict[str, Any], part: _Part
    ) -> dict[int, int]:
        """Load the scopes of a part; return them by the numbers they are stored under."""
        state_keys, facts, base = self._state_keys, record["facts"], part.base
        part.facts.check_groups(record)
        numbers, ids = part.keys.load(store, record["keys"])
        keys: dict[int, int] = dict(zip(numbers.tolist(), ids.tolist(), strict=True))
        if len(set(keys.values())) != len(keys):
            raise damaged(_WHAT, "a key is stored twice")
        if any(key >> SHIFT != base >> SHIFT for key in keys.values()):
            raise damaged(_WHAT, "a key is in a part that is not its own")
        values: dict[int, Any] = {}
        groups_of: dict[int, int] = {}
        if keys:
            plain = key_values(part.keys.decode(numbers))
            values = dict(zip(keys, plain, strict=True))
            groups_of = dict(zip(keys, part.keys.groups(list(keys)), strict=True))
        self._numbers.update((key, number) for number, key in keys.items())
        scopes: dict[int, int] = {}
        seen: set[int] = set()
        for group in part.facts.place.groups:
            for tail, data in _rows(store, self._prefix(SCOPES, group)):
                number, place = _scope(tail), decode(data)
                if not (isinstance(place, list) and [type(each) for each in place] == [int] * 4):
                    raise damaged(_WHAT, f"a key has the place {place!r}")
                key, start, end, born = place
                if key not in keys or not 0 <= born < facts["births"] or born in seen:
                    raise damaged(_WHAT, f"there is a place of no key: {place!r}")
                scope = base | number if state_keys.windowed else keys[key]
                sound = (
                    groups_of[key] == group
                    and number not in scopes
                    and (
                        0 <= number < facts["top"]
                        and START_OF_TIME <= start < end <= END_OF_TIME
                        and state_keys.find(keys[key], start, end) is None
                        if state_keys.windowed
                        else (key, start, end) == (number, 0, 0)
                    )
                )
                if not sound:
                    raise damaged(_WHAT, f"there is no such window: {place!r}")
                seen.add(born)
                state_keys.restore(scope, (keys[key], start, end), base | born, values[key])
                self._stored[scope] = group << len(self._cells)
                scopes[number] = scope
        if any(not state_keys.has_key(key) for key in keys.values()):
            raise damaged(_WHAT, "there is a key without state")
        return scopes

    def _load_cells(self, store: StateStore, part: _Part, scopes: Mapping[int, int]) -> None:
        stored, bits = self._stored, len(self._cells)
        for nth, cell in enumerate(self._cells):
            for group in part.facts.place.groups:
                for tail, data in _rows(store, self._prefix(CELLS, group, cell.name)):
                    scope = scopes.get(_scope(tail))
                    if scope is None or stored[scope] >> bits != group:
                        raise damaged(_WHAT, f"the cell {cell.name!r} has a value of no key")
                    cell.load(scope, decode(data))
                    stored[scope] |= 1 << nth
                    part.counts[nth] += 1

    def _load_timers(
        self, store: StateStore, turns: int, part: _Part, scopes: Mapping[int, int]
    ) -> None:
        seen: set[int] = set()
        for at, name in enumerate(self._names):
            for group in part.facts.place.groups:
                for tail, data in _rows(store, self._prefix(TIMERS, group, name)):
                    scope, tag = scopes.get(_scope(tail[:_WIDTH])), decode(tail[_WIDTH:])
                    time, turn, output_time = _setting(decode(data), turns)
                    there = scope is not None and self._stored[scope] >> len(self._cells) == group
                    if scope is None or not there or turn in seen:
                        raise damaged(_WHAT, f"the timer {name!r} is set for no key")
                    seen.add(turn)
                    slot: Slot = (at, tag)
                    self._timers.put(scope, slot, Setting(time, part.base | turn, output_time))


class _Place(NamedTuple):
    """Where a scope is stored."""

    group: int
    number: int


@final
class _Part:
    """What is stored of one part beside its scopes.

    Args:
        number: Its number.
        state_keys: Has its keys.
        facts: Its facts.
        counts: How many scopes hold something in each cell.
    """

    def __init__(
        self, number: int, state_keys: StateKeys, facts: StoredFacts, counts: list[int]
    ) -> None:
        self.base = number << SHIFT
        self.facts = facts
        self.keys = KeyNumbers(state_keys, facts.keys)
        self.counts = counts


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


def _rows(store: StateStore, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    for key, value in store.scan(*prefix_range(prefix)):
        yield key[len(prefix) :], value


def _scope(tail: bytes) -> int:
    if len(tail) != _WIDTH:
        raise damaged(_WHAT, "a number is not of the right width")
    return int(decode_int64(np.frombuffer(tail, dtype=np.uint8))[0])


def _setting(parts: Any, turns: int) -> tuple[int, int, int | None]:
    """Return the time, the turn and the output time of a stored timer."""
    if not (
        isinstance(parts, list)
        and len(parts) == 3
        and type(parts[0]) is type(parts[1]) is int
        and (parts[2] is None or type(parts[2]) is int)
        and all(START_OF_TIME <= each <= END_OF_TIME for each in parts if each is not None)
        and 0 <= parts[1] < turns
    ):
        raise damaged(_WHAT, f"a timer is set to {parts!r}")
    time, turn, output_time = parts
    return time, turn, output_time
