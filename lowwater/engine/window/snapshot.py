"""The whole state of an operator as one value, and back.

::

    magic | length of the header u64 | header | rows of keys i64 each | chunk of keys
          | rows of windows i64 each | chunk of windows

Where all state is rewritten each time anyway, as in a cell of another system's state store, this is
many times as fast as rows in a store.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lowwater.engine.records.columns import type_from_bytes, type_to_bytes
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.records.stored_keys import KeyReader, kinds_of, pack_keys
from lowwater.engine.window.window_state import PLACE, WindowState
from lowwater.state.arrays import NONE, distinct
from lowwater.state.codec import decode, encode
from lowwater.state.formats import FORMATS, check_format, damaged, decoding
from lowwater.state.journal import Piece
from lowwater.state.row_codec import Layouts
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

FORMAT = "operator snapshots"
_MAGIC = b"lwS1"
_WHAT = "the snapshot of an operator"
_LENGTH = 8
_HINT = "Use the lowwater that wrote it, or begin with a new checkpoint"


def take_snapshot(state: WindowState, facts: dict[str, Any]) -> bytes:
    """Return the state and the operator's own scalars as bytes. O(state)."""
    rows = state.table.live()
    windows = state.codec.pack(rows).chunk(0, len(rows))
    ids, keys, layouts = NONE, b"", Layouts()
    if state.keys is not None:
        ids = distinct(state.table["key"][rows])
        keys = pack_keys(state.keys, ids, layouts).chunk(0, len(ids)) if len(ids) else b""
    header = {
        "layout": FORMATS[FORMAT],
        "facts": facts,
        "places": state.places_given,
        "aggregates": state.aggregation.bindings(type_to_bytes),
        "windows": state.codec.layouts.known,
        "panes": None if state.shown is None else state.shown.record(type_to_bytes),
        "keys": None
        if state.keys is None
        else {
            "kinds": kinds_of(state.keys),
            "count": len(ids),
            "layouts": layouts.known,
        },
        "parts": [len(ids), len(keys), len(rows), len(windows)],
    }
    head = encode(header)
    length = len(head).to_bytes(_LENGTH, "little")
    return b"".join((_MAGIC, length, head, ids.tobytes(), keys, rows.tobytes(), windows))


def load_snapshot(state: WindowState, data: bytes) -> dict[str, int]:
    """Fill a state with nothing in it from :func:`take_snapshot`'s bytes; return the facts.

    Raises:
        StateError: The bytes are damaged, of another layout, or another pipeline's.
    """
    with decoding(_WHAT):
        if data[: len(_MAGIC)] != _MAGIC:
            raise damaged(_WHAT, "it does not begin as one does")
        start = len(_MAGIC) + _LENGTH
        stop = start + int.from_bytes(data[len(_MAGIC) : start], "little")
        header = decode(data[start:stop])
        check_format(FORMAT, header["layout"], hint=_HINT)
        ids, keys, rows, windows = _parts(data, stop, header["parts"])
        state.aggregation.rebind(header["aggregates"], type_from_bytes)
        if state.shown is not None:
            state.shown.expect(header["panes"], type_from_bytes)
        if header["keys"] is not None:
            _load_keys(state, header["keys"], ids, keys)
        state.codec.layouts.expect(header["windows"])
        chunk = state.codec.layouts.read(windows)
        if len(chunk) != len(rows):
            raise damaged(_WHAT, f"it has {len(chunk)} windows, not {len(rows)}")
        state.table.prepare(rows)
        every = np.arange(len(rows), dtype=np.int64)
        state.codec.fill(rows, chunk, every)
        state.codec.side.put([(rows, chunk.side, every)], [len(rows)])
        state.table.restore_prepared()
        places = chunk.records[PLACE].astype(np.int64)
        _check(state, ids, rows, places, header["places"])
        state.rebuild(rows, places, header["places"])
        facts: dict[str, int] = header["facts"]
        for name, number in facts.items():
            if type(number) is not int or not START_OF_TIME <= number <= END_OF_TIME:
                raise damaged(_WHAT, f"{name} is {number!r}")
        return facts


def _parts(
    data: bytes, start: int, sizes: list[int]
) -> tuple[Int64Array, bytes, Int64Array, bytes]:
    """Return key ids, the chunk of keys, rows of windows and their chunk."""
    key_count, key_bytes, row_count, row_bytes = sizes
    bounds = [start]
    for size in (8 * key_count, key_bytes, 8 * row_count, row_bytes):
        bounds.append(bounds[-1] + size)
    if bounds != sorted(bounds) or bounds[-1] != len(data):
        raise damaged(_WHAT, f"it has {len(data)} bytes, not {bounds[-1]}")
    ids = _rising(np.frombuffer(data, np.int64, key_count, bounds[0]))
    rows = _rising(np.frombuffer(data, np.int64, row_count, bounds[2]))
    return ids, data[bounds[1] : bounds[2]], rows, data[bounds[3] :]


def _rising(rows: Int64Array) -> Int64Array:
    if len(rows) and (rows[0] < 0 or (np.diff(rows) <= 0).any()):
        raise damaged(_WHAT, "its rows are in no order")
    return rows


def _load_keys(state: WindowState, record: dict[str, Any], ids: Int64Array, chunk: bytes) -> None:
    reader = KeyReader(record)
    if len(ids):
        reader.add(Piece(ids, chunk, np.arange(len(ids), dtype=np.int64)))
    ids, columns = reader.columns()
    state.keys = KeyDictionary(len(columns))
    state.keys.restore(ids, columns)
    if len(state.keys) != len(ids):
        raise damaged(_WHAT, "a key is there twice")


def _check(
    state: WindowState, ids: Int64Array, rows: Int64Array, places: Int64Array, given: int
) -> None:
    """Raise unless what refers to something else refers to something that is there."""
    table = state.table
    if len(rows) and not 0 <= int(places.min()) <= int(places.max()) < given:
        raise damaged(_WHAT, "its windows are in no order")
    if not np.isin(table["key"][rows], ids).all():
        raise damaged(_WHAT, "there is a window of an unknown key")
    if (table["start"][rows] >= table["end"][rows]).any():
        raise damaged(_WHAT, "there is a window that ends before it starts")
