"""The durable form of a per-record process: its scopes, each with its key, its cells and timers.

The file is long because what is written, and what is read of older formats, have to agree byte for
byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple, final

import numpy as np

from lowwater.engine.process.cell import RecordCell, refused
from lowwater.engine.process.definition import Definition
from lowwater.engine.process.key_parts import BELOW, SHIFT
from lowwater.engine.process.state_keys import StateKeys
from lowwater.engine.process.stored_facts import (
    CELLS,
    PARTS,
    SCOPES,
    TIMERS,
    WAITING,
    WHAT,
    StoredFacts,
    check_times,
)
from lowwater.engine.process.timers import Setting, Slot, Timers
from lowwater.engine.process.waiting_records import StoredWaiting, WaitingRecords
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import key_values
from lowwater.engine.records.stored_keys import (
    Kinds,
    StoredKey,
    columns_of_keys,
    kinds_of,
    plain_keys,
)
from lowwater.errors import StateError
from lowwater.state.codec import decode, encode
from lowwater.state.formats import damaged, decoding
from lowwater.state.key_layout import StoredPlace, decode_int64, prefix_range
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

_WIDTH = 8
_BIAS = 1 << 63
_BEFORE_KEY = 4
"""What is stored of a scope before its key: start, end, birth, and as which types the key is."""


@final
class StoredProcess:
    """Writes what changed, and reads it all.

    Each part of the keys is stored for itself: what is stored of it depends on no other. The facts
    are those of all parts; what has the first of them writes them.

    Args:
        definition: What the process declares.
        state_keys, cells, timers: Its state, with nothing in it yet.
        facts: Its facts.
        places: Where each part is stored, by its number; all have as many key groups.
        waiting: The records of each part that wait; ``None`` in order of arrival.
    """

    def __init__(
        self,
        definition: Definition,
        state_keys: StateKeys,
        cells: Sequence[RecordCell],
        timers: Timers,
        facts: StoredFacts,
        places: Mapping[int, StoredPlace],
        waiting: Mapping[int, WaitingRecords] | None = None,
    ) -> None:
        self._definition = definition
        self._state_keys = state_keys
        self._cells = cells
        self._timers = timers
        self._names = list(definition.timers)
        self._facts = facts
        self._parts = {
            part: _Part(part, place, None if waiting is None else waiting[part], [0] * len(cells))
            for part, place in places.items()
        }
        self._groups_here = [group for place in places.values() for group in place.groups]
        self.refused_at = (0, 0)  # which cell of a key of which part could not be stored
        # Of each stored scope: its key group, and a bit for each cell that it holds.
        self._stored: dict[int, int] = {}
        # Without windows: the number that each key is stored under, while it has state.
        self._numbers: dict[int, int] = {}

    def write(self, batch: Batch, facts: dict[str, int]) -> None:
        """Add what changed since the last time to a batch, and the facts.

        Raises:
            StateError: A cell holds what cannot be stored.
        """
        before = self._write_scopes(batch)
        self._write_cells(batch)
        self._write_timers(batch, before)
        if 0 in self._parts:
            self._facts.write(batch, facts)
        state_keys, timers = self._state_keys, self._timers
        for number, part in self._parts.items():
            record = {
                "facts": {
                    "turn": timers.turns[number] & BELOW,
                    "births": state_keys.births[number] & BELOW,
                    "top": state_keys.top[number] & BELOW,
                },
                "keys": state_keys.keys_of(number),
                "kinds": list(part.kinds),
                "now": part.now,
                "counts": [state_keys.live.get(number, 0), *part.counts],
                "timers": timers.counts.get(number, 0),
            }
            if part.waiting is not None:
                record["waiting"] = part.waiting.write(batch, facts["watermark"])
            if record != part.written:
                batch.put([part.place.prefix(PARTS)], [encode(record)])
                part.written = record

    def load(self, store: StateStore) -> dict[str, int] | None:
        """Fill the state from a store, and return the facts; ``None`` if there is nothing.

        Raises:
            StateError: What is stored is damaged, or another process's.
        """
        facts = self._facts.load(store, self.fill)
        if facts is None:
            parts = store.get([part.place.prefix(PARTS) for part in self._parts.values()])
            if any(part is not None for part in parts):
                raise damaged(WHAT, "its facts are missing")
        return facts

    def fill(self, store: StateStore, record: dict[str, Any]) -> None:
        """Fill the state from a store, and see that all of it is there.

        Args:
            store: The store.
            record: The facts, checked.

        Raises:
            StateError: What is stored is damaged.
        """
        self._facts.place.check_groups(record["groups"], WHAT)
        for number, part in self._parts.items():
            self._fill(store, record, number, part)

    @property
    def kinds(self) -> Kinds | None:
        """The types of the keys; ``None`` before any key."""
        every = (part.kinds[part.now] for part in self._parts.values() if part.kinds)
        return next(every, None)

    def _fill(self, store: StateStore, record: dict[str, Any], number: int, part: _Part) -> None:
        own = read_part(store, part.place)
        facts, state_keys, timers = own["facts"], self._state_keys, self._timers
        timers.turns[number] = facts["turn"] | part.base
        state_keys.births[number] = facts["births"] | part.base
        state_keys.top[number] = facts["top"] | part.base
        part.resume_kinds(own["kinds"], own["now"])
        scopes = self._load_scopes(store, facts, part)
        self._load_cells(store, part, scopes)
        self._load_timers(store, facts["turn"], part, scopes)
        known = {name for kind, name, *_ in record["declared"] if kind == "cell"}
        cells = zip(part.counts, self._cells, strict=True)
        found = [len(scopes), *(count for count, cell in cells if cell.name in known)]
        if found != own["counts"] or timers.counts.get(number, 0) != own["timers"]:
            raise damaged(WHAT, "parts of it are missing")
        if state_keys.keys_of(number) != own["keys"]:
            raise damaged(WHAT, f"there are {own['keys']} keys, or {state_keys.keys_of(number)}")
        if part.waiting is not None:
            part.waiting.load(store, own["waiting"], record["facts"]["watermark"])

    def _write_scopes(self, batch: Batch) -> dict[int, _Place]:
        """Write what keys changed; return where those were stored that are there no longer."""
        state_keys, stored, bits = self._state_keys, self._stored, len(self._cells)
        changed, state_keys.changed = state_keys.changed, set()
        if state_keys.keys is not None:
            kinds = kinds_of(state_keys.keys)
            for part in self._parts.values():
                part.take_kinds(kinds)
        was = {
            scope: _Place(stored[scope] >> bits, self._number(scope))
            for scope in sorted(changed)
            if scope in stored
        }
        born = state_keys.born
        live = sorted((scope for scope in changed if scope in born), key=born.__getitem__)
        self._number_keys(live)
        groups, rows = self._described(live)
        before: dict[int, _Place] = {}
        for scope, place in was.items():
            if groups.get(scope) != place.group or self._number(scope) != place.number:
                before[scope] = place
                held, counts = stored.pop(scope), self._parts[scope >> SHIFT].counts
                gone = [nth for nth in range(bits) if held >> nth & 1]
                for nth in gone:
                    counts[nth] -= 1
                names = [self._cells[nth].name for nth in gone]
                batch.delete([self._row(CELLS, *place, name) for name in names])
        batch.delete([self._row(SCOPES, *place) for place in before.values()])
        batch.put([self._row(SCOPES, groups[scope], self._number(scope)) for scope in live], rows)
        for scope in live:
            if scope not in stored:
                stored[scope] = groups[scope] << bits
        return before

    def _number_keys(self, live: Sequence[int]) -> None:
        """Reuse the numbers of keys that had no state for a while; number the others.

        Args:
            live: The scopes that have come, in their order.
        """
        state_keys, numbers = self._state_keys, self._numbers
        if state_keys.windowed:
            return
        gone, state_keys.left = state_keys.left, set()
        for key in gone:
            if key in numbers:
                self._parts[key >> SHIFT].take_back(numbers.pop(key))
        for key in live:
            if key not in numbers:
                numbers[key] = self._parts[key >> SHIFT].next_number()

    def _described(self, live: Sequence[int]) -> tuple[dict[int, int], list[bytes]]:
        """Return the key group of each live scope, and what is stored of it: its place, its key."""
        if not live:
            return {}, []
        state_keys, born = self._state_keys, self._state_keys.born
        places = [state_keys.place(scope) for scope in live]
        ids = np.array([key for key, _, _ in places], dtype=np.int64)
        columns = state_keys.columns(ids)
        parts = [self._parts[scope >> SHIFT] for scope in live]
        first = np.array([part.place.first for part in parts], dtype=np.int64)
        groups = self._groups_of(ids, columns) + first
        keys = zip(*map(plain_keys, columns), strict=True)
        rows = [
            encode([start, end, born[scope] & BELOW, part.now, *key])
            for scope, part, (_, start, end), key in zip(live, parts, places, keys, strict=True)
        ]
        return dict(zip(live, groups.tolist(), strict=True)), rows

    def _groups_of(self, ids: Int64Array, columns: tuple[Column, ...]) -> Int64Array:
        """Return which of the key groups of its part each key is in, int64."""
        count = self._facts.place.count
        if count == 1:
            return np.zeros(len(ids), dtype=np.int64)
        return (self._state_keys.hashes(ids, columns) % np.uint64(count)).astype(np.int64)

    def _number(self, scope: int) -> int:
        """Return the number that a scope is stored under; -1 for none."""
        if self._state_keys.windowed:
            return scope & BELOW
        return self._numbers.get(scope, -1)

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
        return self._facts.place.prefix(table, group) + named

    def _load_scopes(
        self, store: StateStore, facts: Mapping[str, int], part: _Part
    ) -> dict[int, int]:
        """Load the scopes of a part; return them by the numbers they are stored under."""
        state_keys, base = self._state_keys, part.base
        found = [
            (group, _scope(tail), *_read_scope(decode(data), part.kinds))
            for group in part.place.groups
            for tail, data in _rows(store, self._prefix(SCOPES, group))
        ]
        if not found:
            return {}
        columns = columns_of_keys([key for *_, key in found], part.kinds, part.now)
        ids = state_keys.encode(columns)
        groups = (
            self._groups_of(np.array(ids, dtype=np.int64), columns) + part.place.first
        ).tolist()
        values = key_values(columns)
        scopes: dict[int, int] = {}
        seen: set[int] = set()
        every = zip(found, ids, groups, values, strict=True)
        for (stored_in, number, start, end, birth, _), key, group, value in every:
            scope = base | number if state_keys.windowed else key
            sound = (
                stored_in == group
                and key >> SHIFT == base >> SHIFT
                and number not in scopes
                and 0 <= birth < facts["births"]
                and birth not in seen
                and (
                    0 <= number < facts["top"]
                    and START_OF_TIME <= start < end <= END_OF_TIME
                    and state_keys.find(key, start, end) is None
                    if state_keys.windowed
                    else number >= 0 == start == end and scope not in state_keys.born
                )
            )
            if not sound:
                where = f" from {start} to {end}" if state_keys.windowed else ""
                raise damaged(WHAT, f"the key {value!r}{where} cannot be there")
            seen.add(birth)
            state_keys.restore(scope, (key, start, end), base | birth, value)
            self._stored[scope] = group << len(self._cells)
            scopes[number] = scope
        if not state_keys.windowed:
            self._numbers.update((scope, number) for number, scope in scopes.items())
            part.resume(scopes)
        return scopes

    def _load_cells(self, store: StateStore, part: _Part, scopes: Mapping[int, int]) -> None:
        stored, bits = self._stored, len(self._cells)
        for nth, cell in enumerate(self._cells):
            for group in part.place.groups:
                for tail, data in _rows(store, self._prefix(CELLS, group, cell.name)):
                    scope = scopes.get(_scope(tail))
                    if scope is None or stored[scope] >> bits != group:
                        raise damaged(WHAT, f"the cell {cell.name!r} has a value of no key")
                    cell.load(scope, decode(data))
                    stored[scope] |= 1 << nth
                    part.counts[nth] += 1

    def _load_timers(
        self, store: StateStore, turns: int, part: _Part, scopes: Mapping[int, int]
    ) -> None:
        seen: set[int] = set()
        for at, name in enumerate(self._names):
            for group in part.place.groups:
                for tail, data in _rows(store, self._prefix(TIMERS, group, name)):
                    scope, tag = scopes.get(_scope(tail[:_WIDTH])), decode(tail[_WIDTH:])
                    time, turn, output_time = _setting(decode(data), turns)
                    there = scope is not None and self._stored[scope] >> len(self._cells) == group
                    if scope is None or not there or turn in seen:
                        raise damaged(WHAT, f"the timer {name!r} is set for no key")
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
        place: Where it is stored.
        waiting: Its records that wait; ``None`` in order of arrival.
        counts: How many scopes hold something in each cell.
    """

    def __init__(
        self, number: int, place: StoredPlace, waiting: WaitingRecords | None, counts: list[int]
    ) -> None:
        self.base = number << SHIFT
        self.place = place
        self.waiting = None if waiting is None else StoredWaiting(waiting, place, WAITING)
        self.counts = counts
        self.written: dict[str, Any] | None = None
        # All types that keys are stored as: each key says as which. New ones are as ``now`` says.
        self.kinds: list[Kinds] = []
        self.now = 0
        # The numbers below the top that no key is stored under, as ranges.
        self._free: list[tuple[int, int]] = []
        self._top = 0

    def take_kinds(self, kinds: Kinds) -> None:
        """Store keys as being of these types from now on."""
        if self.kinds and self.kinds[self.now] == kinds:
            return
        if kinds not in self.kinds:
            self.kinds.append(kinds)
        self.now = self.kinds.index(kinds)

    def resume_kinds(self, kinds: Sequence[Any], now: int) -> None:
        """Go on from the types that keys were stored as."""
        self.kinds = [[(kind, dtype) for kind, dtype in each] for each in kinds]
        self.now = now
        if not 0 <= now < max(1, len(self.kinds)):
            raise damaged(WHAT, f"its keys are of types {now} of {len(self.kinds)}")

    def next_number(self) -> int:
        """Return the lowest number that no key is stored under."""
        if self._free:
            start, stop = heappop(self._free)
            if start + 1 < stop:
                heappush(self._free, (start + 1, stop))
            return start
        self._top += 1
        return self._top - 1

    def take_back(self, number: int) -> None:
        """Free a number."""
        heappush(self._free, (number, number + 1))

    def resume(self, numbers: Iterable[int]) -> None:
        """Record the numbers that keys are stored under."""
        for number in sorted(numbers):
            if number > self._top:
                self._free.append((self._top, number))  # rising, which is a heap
            self._top = number + 1


def read_part(store: StateStore, place: StoredPlace) -> dict[str, Any]:
    """Return the facts of a part.

    Raises:
        StateError: They are damaged.
    """
    (data,) = store.get([place.prefix(PARTS)])
    if data is None:
        raise damaged(WHAT, "the facts of a part of it are missing")
    with decoding(WHAT):
        record: dict[str, Any] = decode(data)
        check_times(record["facts"])
        return record


def _read_scope(stored: Any, kinds: Sequence[Kinds]) -> tuple[int, int, int, StoredKey]:
    """Return start, end, birth and key of a stored scope."""
    if not (
        isinstance(stored, list)
        and len(stored) > _BEFORE_KEY
        and all(type(each) is int for each in stored[:_BEFORE_KEY])
        and 0 <= stored[_BEFORE_KEY - 1] < len(kinds)
        and len(stored) == _BEFORE_KEY + len(kinds[stored[_BEFORE_KEY - 1]])
    ):
        raise damaged(WHAT, f"a key has the place {stored!r}")
    start, end, birth, nth, *key = stored
    return start, end, birth, StoredKey(nth, key)


def _rows(store: StateStore, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    for key, value in store.scan(*prefix_range(prefix)):
        yield key[len(prefix) :], value


def _scope(tail: bytes) -> int:
    if len(tail) != _WIDTH:
        raise damaged(WHAT, "a number is not of the right width")
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
        raise damaged(WHAT, f"a timer is set to {parts!r}")
    time, turn, output_time = parts
    return time, turn, output_time
