"""The durable form of an operator's state: its windows, its keys, and a record of facts."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.records.columns import type_from_bytes, type_to_bytes
from lowwater.engine.records.stored_keys import StoredKeys
from lowwater.engine.window.spilling import SpilledWindows, Waits
from lowwater.engine.window.window_state import PLACE, WindowState
from lowwater.state.arrays import NONE, mixed, run_starts
from lowwater.state.codec import decode, encode
from lowwater.state.formats import FORMATS, check_format, damaged, decoding
from lowwater.state.journal import Journal, Piece, fill_pieces
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

FORMAT = "window state"
FACTS, WINDOWS, WINDOWS_GONE, KEYS, KEYS_GONE, SPILLED_KEYS, SPILLED, DUES, TIMERS, HOLDS = range(
    10
)
"""Tags of the tables of a stage with windows."""
_FEWER = 0.94  # the fewer leave at once, the less it takes to write them
_GROWN = 1.1


@final
class StoredState:
    """Keeps the state of one operator in a store.

    Args:
        state: The state, with nothing in it yet.
        place: Where it is stored.
        memory: How many bytes the state may take in memory, about: what is more stays in the store
            alone until it is wanted. ``None``: any number.
    """

    def __init__(self, state: WindowState, place: StoredPlace, memory: int | None = None) -> None:
        self._state = state
        self._place = place
        self._facts = place.prefix(FACTS)
        self._keys = StoredKeys(place, KEYS)
        self._windows = Journal(
            state.codec,
            place,
            WINDOWS,
            groups=lambda rows: self._keys.groups(state.table["key"][rows]),
            due=lambda rows: state.placement.expiry(state.table["end"][rows]),
        )
        tables = (SPILLED_KEYS, SPILLED, DUES, TIMERS, HOLDS)
        self.spilled = SpilledWindows(state, self._keys, place, tables, (memory or 0) // 2)
        state.note_changes(self._windows, self._forget)
        self._memory = memory
        self._spared = 0.0
        if memory is not None:
            state.note_turns()

    @property
    def is_over(self) -> bool:
        """Whether the state takes more memory than it may, and some can be spared."""
        if self._memory is None:
            return False
        taken = self._state.nbytes + self.spilled.loaded_bytes
        return taken > max(self._memory, self._spared)

    def write(self, batch: Batch, expired: int, facts: dict[str, Any], waits: Waits) -> bool:
        """Add what changed since the last time to a batch, and the facts, whole.

        Args:
            batch: The batch.
            expired: The watermark whose expired windows are gone.
            facts: The operator's own scalars.
            waits: Returns what rows wait for.

        Returns:
            Whether rows left memory for the store.
        """
        state = self._state
        self._keys.use(state.keys)
        leaving = NONE if self._memory is None else self._leaving(expired, self._memory)
        self.spilled.write(batch, leaving, waits, expired)
        rows = self._windows.write(batch, expired)
        self._keys.want(state.table["key"][rows])
        self._keys.write(batch)
        record = {
            "layout": FORMATS[FORMAT],
            "facts": facts,
            "places": state.places_given,
            "expired": expired,
            "windows": {
                "count": len(state.table),
                "limit": self._windows.limit,
                "layouts": state.codec.layouts.stored,
            },
            "panes": None if state.shown is None else state.shown.record(type_to_bytes),
            "aggregates": state.aggregation.bindings(type_to_bytes),
            "keys": self._keys.record(),
            "spilled": self.spilled.record(),
            "groups": self._place.count,
        }
        batch.put([self._facts], [encode(record)])
        if state.turn is not None and self._memory is not None:
            state.turn += 1
            # Where what has to stay takes more than there is, only try again once it has grown.
            left = state.nbytes
            self._spared = left * _GROWN if left > self._memory else 0.0
        return bool(leaving.size)

    def _leaving(self, complete: int, memory: int) -> Int64Array:
        """Return the rows that are to leave memory: those not touched for the longest time.

        The rows of a part leave together.
        """
        state = self._state
        if not self.is_over or not len(state.table):
            return NONE
        fixed = state.key_bytes
        each = (state.nbytes - fixed) / len(state.table)
        rows = state.table.live()
        few = max(0, len(rows) - int(max(0.0, _FEWER * memory - fixed) / each))
        if few >= len(rows):
            return rows
        if not few:
            return NONE
        first = np.argpartition(state.table["turn"][rows], few)[:few]
        return self.spilled.together(rows, np.sort(rows[first]), complete)

    def load(self, store: StateStore) -> dict[str, Any] | None:
        """Fill the state from a store, and return the facts; ``None`` if there is nothing.

        Raises:
            StateError: What is stored is damaged, or not this operator's.
        """
        record = read_facts(store, self._facts)
        if record is None:
            return None
        with decoding("the stored state"):
            self._fill(store, record)
            facts: dict[str, Any] = record["facts"]
            return facts

    def _fill(self, store: StateStore, record: dict[str, Any]) -> None:
        state, windows = self._state, record["windows"]
        if record["groups"] != self._place.count:
            groups = f"{record['groups']} key groups, not {self._place.count}"
            raise damaged("the stored state", f"it is in {groups}")
        state.aggregation.rebind(record["aggregates"], type_from_bytes)
        if state.shown is not None:
            state.shown.expect(record["panes"], type_from_bytes)
        ids = self._keys.load(store, record["keys"])
        state.keys = self._keys.keys
        known = np.zeros(int(ids[-1]) + 1 if len(ids) else 0, dtype=np.bool_)
        known[ids] = True
        state.codec.layouts.expect(windows["layouts"])
        # Not the limit alone: if that is damaged, memory would be taken for rows nobody has.
        state.table.reserve(min(windows["limit"], 2 * windows["count"]))
        stored_places: list[tuple[Int64Array, Int64Array]] = []
        for pieces in self._windows.load(store, windows["limit"], record["expired"]):
            stored_places += self._fill_rows(pieces)
        rows = state.table.restore_prepared()
        if len(rows) != windows["count"]:
            raise damaged(
                "the stored state", f"{len(rows)} of {windows['count']} windows are there"
            )
        places = np.zeros(state.table.capacity, dtype=np.int64)
        for some, their_places in stored_places:
            places[some] = their_places
        span = _span(rows)
        places = places[span]
        _check_keys(known, state.table["key"][span], places, record["places"])
        self._require_sound(rows)
        state.rebuild(rows, places, record["places"])
        self._windows.reschedule()
        self.spilled.resume(store, record["spilled"], state.held_keys())
        if self._memory is None:
            for _ in self.spilled.load_all(store):
                pass

    def _fill_rows(self, pieces: list[Piece]) -> list[tuple[Int64Array, Int64Array]]:
        """Fill rows of a key group; return them with the places of their keys."""
        table, codec = self._state.table, self._state.codec
        rows = np.concatenate([piece.rows for piece in pieces]) if pieces else NONE
        table.prepare(rows, codec.filled())
        chunks = fill_pieces(codec, pieces)
        return [
            (piece.rows, chunk.records[PLACE][piece.at])
            for piece, chunk in zip(pieces, chunks, strict=True)
        ]

    def _forget(self, kept: NDArray[np.bool_]) -> None:
        self._keys.forget(kept)
        self.spilled.forget(kept)

    def _check(self) -> None:
        """Assert what must hold between rows and what is stored of them. O(windows)."""
        self._keys.use(self._state.keys)
        self._windows._check()
        self._keys._check()
        self.spilled._check()

    def _require_sound(self, rows: Int64Array) -> None:
        """Raise unless windows are what windows can be, each there once."""
        table, what, span = self._state.table, "the stored state", _span(rows)
        if (table["start"][span] >= table["end"][span]).any():
            raise damaged(what, "there is a window that ends before it starts")
        columns = [table[name][span] for name in ("key", "start", "end")]
        # A sort of one column is several times as fast as one of three.
        hashes = np.sort(mixed(columns))
        if (hashes[1:] == hashes[:-1]).any():  # most likely they differ all the same
            order = np.lexsort(columns)
            if not run_starts(*(column[order] for column in columns)).all():
                raise damaged(what, "there is a window twice")


def _span(rows: Int64Array) -> Int64Array | slice:
    """Return rising rows as a slice if they are all there are: a slice copies nothing."""
    count = len(rows)
    return slice(count) if count and int(rows[-1]) == count - 1 else rows


def _check_keys(known: NDArray[np.bool_], keys: Int64Array, places: Int64Array, given: int) -> None:
    """Raise unless windows are of keys that there are, and these in an order."""
    what = "the stored state"
    if len(keys) and not 0 <= keys.min() <= keys.max() < len(known):
        raise damaged(what, "there is a window of no key")
    if not known[keys].all():
        raise damaged(what, "there is a window of an unknown key")
    if len(keys) and not 0 <= places.min() <= places.max() < given:
        raise damaged(what, "keys are in no order")


def read_facts(store: StateStore, key: bytes) -> dict[str, Any] | None:
    """Return the record of facts of an operator; ``None`` if there is nothing.

    Raises:
        StateError: It is damaged, or of another layout.
    """
    (data,) = store.get([key])
    if data is None:
        return None
    with decoding("the stored state"):
        record = decode(data)
        check_format(FORMAT, record["layout"])
        numbers = {name: record[name] for name in ("places", "expired")}
        numbers |= {name: record["windows"][name] for name in ("count", "limit")}
        numbers |= {name: record["spilled"][name] for name in ("windows", "finished")}
        for name, number in {**record["facts"], **numbers}.items():
            if type(number) is not int or not START_OF_TIME <= number <= END_OF_TIME:
                raise damaged("the stored state", f"{name} is {number!r}")
        return dict(record)
