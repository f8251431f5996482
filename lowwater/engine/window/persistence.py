"""The durable form of an operator's state: its tables, its keys, and a record of facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.records.columns import Column, type_from_bytes, type_to_bytes
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.window.spilling import ColdWindows
from lowwater.engine.window.window_state import WindowState
from lowwater.errors import StateError
from lowwater.state.arrays import NONE, distinct
from lowwater.state.codec import decode, encode
from lowwater.state.damage import damaged, decoding
from lowwater.state.journal import Journal, joined, scanned
from lowwater.state.key_layout import decode_int64, encode_int64, table_prefix
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array, saturating_add

LAYOUT = 2
_ID_BYTES = 8
_TAG = b"\xc1"  # msgpack never begins so
WINDOWS, WINDOWS_LOOSE, SHOWN, SHOWN_LOOSE, KEYS, FACTS, COLD, COLD_LOOSE, COLD_BY_KEY = range(9)
_REBUILT = ("due", "clock_due", "hold", "turn")
_FEWER = 0.94  # the fewer leave at once, the less it takes to write them
_GROWN = 1.1
MayLeave: TypeAlias = Callable[[Int64Array], NDArray[np.bool_]]


@final
class StoredState:
    """Keeps the state of one operator (of one key group) in a store.

    Args:
        state: The state, with nothing in it yet.
        operator: Number of the operator in its pipeline.
        group: Number of the key group.
        memory: How many bytes the state may take in memory, about: what is more stays in the store
            alone until it is wanted. ``None``: any number.
    """

    def __init__(
        self, state: WindowState, operator: int, group: int, memory: int | None = None
    ) -> None:
        def prefix(table: int) -> bytes:
            return table_prefix(operator, group, table)

        self._state = state
        self._keys = prefix(KEYS)
        self._facts = prefix(FACTS)
        self._windows = Journal(
            state.table,
            (prefix(WINDOWS), prefix(WINDOWS_LOOSE)),
            due=lambda rows: state.placement.expiry(state.table["end"][rows]),
            bags=state.aggregation.bags,
            volatile=_REBUILT,
            derived={"place": state.places},
        )
        self._shown: Journal | None = None
        if state.shown is not None:
            self._shown = Journal(
                state.shown.table,
                (prefix(SHOWN), prefix(SHOWN_LOOSE)),
                due=lambda rows: np.full(len(rows), END_OF_TIME, dtype=np.int64),
            )
        self._stored_keys = np.zeros(0, dtype=np.bool_)
        state.note_changes(self._windows, self._shown, self._forget_keys)
        self._dead_keys: list[Int64Array] = []
        self.cold = ColdWindows(state, (prefix(COLD), prefix(COLD_LOOSE), prefix(COLD_BY_KEY)))
        self._memory = memory
        self._spared = 0.0
        if memory is not None:
            state.note_turns()

    @property
    def is_over(self) -> bool:
        """Whether the state takes more memory than it may, and some can be spared."""
        return self._memory is not None and self._state.nbytes + self.cold.nbytes > max(
            self._memory, self._spared
        )

    def write(
        self,
        batch: Batch,
        watermark: int,
        expired: int,
        facts: dict[str, Any],
        may_leave: MayLeave,
    ) -> bool:
        """Add what changed since the last time to a batch, and the facts, whole.

        Args:
            batch: The batch.
            watermark: Windows that end after it are still to become complete.
            expired: The watermark whose expired windows are gone.
            facts: The operator's own scalars.
            may_leave: Returns which rows nothing in memory needs before they are touched or due.

        Returns:
            Whether rows left memory for the store.
        """
        state = self._state
        self.cold.write(batch, saturating_add(expired, -state.windowing.lateness_us))
        leaving = self._leaving(may_leave)
        keys = state.table["key"][leaving]
        if leaving.size:
            self.cold.freeze(batch, leaving, watermark)
        rows = self._windows.write(batch, expired)
        if self._shown is not None:
            self._shown.write(batch, expired)
        self._write_keys(batch, np.concatenate((keys, state.table["key"][rows])))
        record = {
            "layout": LAYOUT,
            "facts": facts,
            "windows": self._windows.layout(),
            "shown": None if self._shown is None else self._shown.layout(),
            "shown types": None
            if state.shown is None
            else {name: _type_bytes(kind) for name, kind in state.shown.types.items()},
            "aggregates": state.aggregation.bindings(_type_bytes),
            "keys": None
            if state.keys is None
            else [(_type_bytes(kind), dtype) for kind, dtype in state.keys.kinds()],
            "places": state.places_given,
            "cold": {
                "layouts": self.cold.freezer.layouts,
                "shown": self.cold.freezer.shown_layouts,
                "windows": len(self.cold),
                "loose": self.cold.loose_parts,
                "by key": 0 if state.merging is None else len(self.cold),
            },
            "limits": {
                "windows": state.table.capacity,
                "shown": 0 if state.shown is None else state.shown.table.capacity,
                "keys": 0 if state.keys is None else state.keys.capacity,
            },
        }
        batch.put([self._facts], [encode(record)])
        if state.turn is not None and self._memory is not None:
            state.turn += 1
            # Where what has to stay takes more than there is, only try again once it has grown.
            left = state.nbytes + self.cold.nbytes
            self._spared = left * _GROWN if left > self._memory else 0.0
        return bool(leaving.size)

    def _leaving(self, may_leave: MayLeave) -> Int64Array:
        """Return the rows that are to leave memory: those not touched for the longest time."""
        state = self._state
        if self._memory is None or not self.is_over or not len(state.table):
            return NONE
        fixed = state.key_bytes + self.cold.nbytes
        each = (state.nbytes - state.key_bytes) / len(state.table)
        kept = int(max(0.0, _FEWER * self._memory - fixed) / each)
        rows = state.table.live()
        few = len(rows) - kept
        rows = rows[may_leave(rows)]
        if few < len(rows):
            rows = np.sort(rows[np.argpartition(state.table["turn"][rows], few)[:few]])
        return rows

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
        state, limits = self._state, record["limits"]
        state.aggregation.rebind(record["aggregates"], _type_of)
        if state.shown is not None and self._shown is not None:
            types = {name: _type_of(kind) for name, kind in record["shown types"].items()}
            state.shown.expect(types, record["shown"])
            self._shown.load(store, record["shown"], limits["shown"])
        loaded = self._windows.load(store, record["windows"], limits["windows"])
        rows, places = loaded["rows"], loaded["place"]
        if record["keys"] is not None:
            self._load_keys(store, record["keys"], limits["keys"])
        self._check(rows, places, record["places"])
        state.rebuild(rows, places, record["places"])
        self._fill_cold(store, record)

    def _fill_cold(self, store: StateStore, record: dict[str, Any]) -> None:
        state, cold = self._state, self.cold
        cold.freezer.expect(record["cold"]["layouts"], record["cold"]["shown"])
        for keys, places in cold.load(store, record["facts"]["advancing from"]):
            self._check_keys(keys, places, record["places"])
            state.count_keys(keys, places)
        for what, found in (("windows", len(cold)), ("loose", cold.loose_parts)):
            if found != record["cold"][what]:
                wanted = record["cold"][what]
                raise damaged("the stored state", f"{found} of {wanted} {what} parts are there")
        if self._memory is None:
            for _ in cold.thaw_all(store):
                pass

    def _check(self, rows: Int64Array, places: Int64Array, given: int) -> None:
        """Raise unless what refers to something else refers to something that is there."""
        state, what = self._state, "the stored state"
        table = state.table
        keys = table["key"][rows]
        self._check_keys(keys, places, given)
        if (table["start"][rows] >= table["end"][rows]).any():
            raise damaged(what, "there is a window that ends before it starts")
        order = np.lexsort((table["end"][rows], table["start"][rows], keys))
        same = [np.diff(table[name][rows[order]]) == 0 for name in ("key", "start", "end")]
        if np.logical_and.reduce(same).any():
            raise damaged(what, "there is a window twice")
        if state.shown is not None:
            state.shown.check(rows)

    def _check_keys(self, keys: Int64Array, places: Int64Array, given: int) -> None:
        what = "the stored state"
        if len(keys) and not 0 <= keys.min() <= keys.max() < len(self._stored_keys):
            raise damaged(what, "there is a window of no key")
        if not self._stored_keys[keys].all():
            raise damaged(what, "there is a window of an unknown key")
        if len(keys) and not 0 <= places.min() <= places.max() < given:
            raise damaged(what, "keys are in no order")

    def _write_keys(self, batch: Batch, keys: Int64Array) -> None:
        state = self._state
        for dead in self._dead_keys:
            batch.delete([self._keys + key.tobytes() for key in encode_int64(dead)])
        self._dead_keys = []
        if state.keys is None or not keys.size:
            return
        self._cover(state.keys.capacity)
        ids = distinct(keys)
        ids = ids[~self._stored_keys[ids]]
        if not ids.size:
            return
        self._stored_keys[ids] = True
        columns = state.keys.decode(ids)
        places = encode_int64(ids)
        if all(_is_integer(column) for column in columns):
            parts = np.stack([column.data.astype(np.int64) for column in columns], axis=1)
            tags = np.full((len(ids), 1), _TAG[0], dtype=np.uint8)
            packed = np.hstack((tags, parts.view(np.uint8).reshape(len(ids), -1)))
            batch.put_columns(self._keys, places, packed)
            return
        values = zip(*(column.to_list() for column in columns), strict=True)
        batch.put(
            [self._keys + key.tobytes() for key in places],
            [encode(list(value)) for value in values],
        )

    def _load_keys(
        self, store: StateStore, kinds: list[tuple[bytes | None, str]], limit: int
    ) -> None:
        at, columns = read_keys(store, self._keys, kinds, limit)
        keys = KeyDictionary(len(kinds))
        keys.restore(at, columns)
        if len(keys) != len(at):
            raise damaged("a stored key", "it is stored twice")
        self._state.keys = keys
        self._cover(keys.capacity)
        self._stored_keys[at] = True

    def _forget_keys(self, live: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> None:
        """Note that the dictionary is about to take back the ids that are not live."""
        stored = np.flatnonzero(self._stored_keys)
        kept = np.zeros(len(stored), dtype=np.bool_)
        inside = stored < len(live)
        kept[inside] = live[stored[inside]]
        self._dead_keys.append(stored[~kept])
        self._stored_keys[stored[~kept]] = False

    def _cover(self, need: int) -> None:
        if need > len(self._stored_keys):
            wider = np.zeros(max(need, 2 * len(self._stored_keys)), dtype=np.bool_)
            wider[: len(self._stored_keys)] = self._stored_keys
            self._stored_keys = wider


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
        if record["layout"] != LAYOUT:
            raise StateError(
                f"the stored state has layout {record['layout']}, this lowwater writes {LAYOUT}",
                hint="Use the lowwater that wrote it, or reset the state",
            )
        facts = record["facts"]
        numbers = {**facts, **record["limits"], "places": record["places"]}
        for name, number in numbers.items():
            if type(number) is not int or not START_OF_TIME <= number <= END_OF_TIME:
                raise damaged("the stored state", f"{name} is {number!r}")
        return dict(record)


def read_keys(
    store: StateStore, prefix: bytes, kinds: Sequence[tuple[bytes | None, str]], limit: int
) -> tuple[Int64Array, tuple[Column, ...]]:
    """Return the stored keys: (ids, rising; a column for each part).

    Args:
        store: The store.
        prefix: What their rows begin with.
        kinds: Arrow type and numpy dtype of each part.
        limit: Above every id.

    Raises:
        StateError: They are damaged.
    """
    with decoding("a stored key"):
        tails, values = scanned(store, prefix)
        ids = decode_int64(joined(tails, _ID_BYTES))
        if len(ids) and not 0 <= ids.min() <= ids.max() < limit:
            raise damaged("a stored key", f"it has the number {ids.max()} of {limit}")
        if values and all(value[:1] == _TAG for value in values):
            parts: Sequence[Any] | Int64Array = _integers(values, len(kinds))
        else:
            parts = [[] for _ in kinds]
            for value in values:
                for part, column in zip(_key_parts(value, len(kinds)), parts, strict=True):
                    column.append(part)
        columns = tuple(
            _column(parts[at], _type_of(kind), dtype) for at, (kind, dtype) in enumerate(kinds)
        )
        return ids, columns


def _is_integer(column: Column) -> bool:
    kind = column.type
    return column.data.dtype.kind in "iu" and (kind is None or pa.types.is_integer(kind))


def _integers(values: list[bytes], parts: int) -> Int64Array:
    """Return the parts of stored keys that are integers: they lie side by side."""
    packed = joined(values, len(_TAG) + _ID_BYTES * parts)[:, len(_TAG) :]
    return np.ascontiguousarray(packed).view(np.int64).T


def _key_parts(value: bytes, wanted: int) -> Sequence[Any]:
    """Return the parts of a stored key: of keys with other parts than integers it is msgpack."""
    if value[:1] == _TAG:
        return [int(part) for (part,) in _integers([value], wanted)]
    parts = decode(value)
    if not isinstance(parts, list) or len(parts) != wanted:
        raise damaged("a stored key", f"it has the parts {parts!r}")
    return parts


def _type_bytes(kind: pa.DataType | None) -> bytes | None:
    return None if kind is None else type_to_bytes(kind)


def _type_of(data: bytes | None) -> pa.DataType | None:
    return None if data is None else type_from_bytes(data)


def _column(stored: Sequence[Any] | Int64Array, kind: pa.DataType | None, dtype: str) -> Column:
    if isinstance(stored, np.ndarray) and np.dtype(dtype).kind in "iu":
        fitted = stored.astype(dtype)  # numbers above those of int64 were wrapped
        if (fitted.astype(np.int64) != stored).any():
            raise damaged("a stored key", f"it does not fit {dtype}")
        return Column(fitted) if kind is None else Column.from_arrow(pa.array(fitted, kind))
    values = stored.tolist() if isinstance(stored, np.ndarray) else stored
    if np.dtype(dtype).kind == "O":
        return (
            Column.of_objects(values) if kind is None else Column.from_arrow(pa.array(values, kind))
        )
    if kind is None:
        return Column(np.array(values, dtype=dtype))
    return Column.from_arrow(pa.array(values, kind))
