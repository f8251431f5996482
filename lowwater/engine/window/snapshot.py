"""The whole state of an operator as bytes, and back: columns as buffers, not a record per row.

A header says what there is; the buffers follow it. Where all state is rewritten each time anyway,
as in a cell of another system's state store, this is many times as fast as rows in a store.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.records.columns import Column, type_from_bytes, type_to_bytes
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.window.window_state import WindowState
from lowwater.errors import StateError
from lowwater.state.arrays import distinct, object_array
from lowwater.state.codec import decode, encode
from lowwater.state.damage import damaged, decoding
from lowwater.state.table import Table
from lowwater.time import END_OF_TIME, START_OF_TIME

LAYOUT = 1
_MAGIC = b"lwS1"
_WHAT = "the snapshot of an operator"
_REBUILT = frozenset({"due", "clock_due", "hold"})
_PLAIN, _TEXT, _CODED = "plain", "text", "coded"


def take_snapshot(state: WindowState, facts: dict[str, Any]) -> bytes:
    """Return the state and the operator's own scalars as bytes. O(state)."""
    writer = _Writer()
    rows = state.table.live()
    writer.table("window", state.table, rows)
    writer.array("place", state.places(rows) if len(rows) else rows)
    for name, bag in state.aggregation.bags().items():
        values, arrivals, counts = bag.gather_with_arrivals(rows)
        writer.array(f"bag:{name}:values", values)
        writer.array(f"bag:{name}:arrivals", arrivals)
        writer.array(f"bag:{name}:counts", counts)
    shown = state.shown
    if shown is not None:
        writer.table("shown", shown.table, shown.table.live())
    kinds: list[tuple[bytes | None, str]] | None = None
    if state.keys is not None:
        kinds = [(_type_bytes(kind), dtype) for kind, dtype in state.keys.kinds()]
        ids = distinct(state.table["key"][rows])
        writer.array("key ids", ids)
        if len(ids):
            for at, column in enumerate(state.keys.decode(ids)):
                writer.array(f"key:{at}", column.data)
    return writer.written(
        {
            "facts": facts,
            "places": state.places_given,
            "aggregates": state.aggregation.bindings(_type_bytes),
            "keys": kinds,
            "shown": None
            if shown is None
            else {name: _type_bytes(kind) for name, kind in shown.types.items()},
        }
    )


def load_snapshot(state: WindowState, data: bytes) -> dict[str, int]:
    """Fill a state with nothing in it from :func:`take_snapshot`'s bytes; return the facts.

    Raises:
        StateError: The bytes are damaged, of another layout, or another pipeline's.
    """
    with decoding(_WHAT):
        reader = _Reader(data)
        header = reader.header
        state.aggregation.rebind(header["aggregates"], _type_of)
        if state.shown is not None:
            types = {name: _type_of(kind) for name, kind in header["shown"].items()}
            state.shown.expect(types, reader.layout("shown"))
            reader.fill("shown", state.shown.table)
        rows = reader.fill("window", state.table)
        for name, bag in state.aggregation.bags().items():
            counts = reader.array(f"bag:{name}:counts")
            values, arrivals = (
                reader.array(f"bag:{name}:values"),
                reader.array(f"bag:{name}:arrivals"),
            )
            if len(counts) != len(rows) or int(counts.sum()) != len(values):
                raise damaged(_WHAT, f"the values of {name!r} do not go with its windows")
            bag.append(np.repeat(rows, counts), values.astype(bag.dtype, copy=False), arrivals)
        if header["keys"] is not None:
            _load_keys(state, reader, header["keys"])
        places = reader.array("place")
        _check(state, reader, rows, places, header["places"])
        state.rebuild(rows, places, header["places"])
        facts: dict[str, int] = header["facts"]
        for name, number in facts.items():
            if type(number) is not int or not START_OF_TIME <= number <= END_OF_TIME:
                raise damaged(_WHAT, f"{name} is {number!r}")
        return facts


def _check(
    state: WindowState,
    reader: _Reader,
    rows: NDArray[np.int64],
    places: NDArray[np.int64],
    given: int,
) -> None:
    """Raise unless what refers to something else refers to something that is there."""
    table = state.table
    if len(places) != len(rows) or (
        len(rows) and not 0 <= int(places.min()) <= int(places.max()) < given
    ):
        raise damaged(_WHAT, "its windows are in no order")
    keys = reader.array("key ids") if state.keys is not None else np.empty(0, dtype=np.int64)
    if not np.isin(table["key"][rows], keys).all():
        raise damaged(_WHAT, "there is a window of an unknown key")
    if (table["start"][rows] >= table["end"][rows]).any():
        raise damaged(_WHAT, "there is a window that ends before it starts")
    if state.shown is not None:
        state.shown.check(rows)


def _load_keys(state: WindowState, reader: _Reader, kinds: list[tuple[bytes | None, str]]) -> None:
    ids = reader.array("key ids")
    state.keys = KeyDictionary(len(kinds))
    columns = []
    for at, (kind, dtype) in enumerate(kinds):
        data = reader.array(f"key:{at}") if len(ids) else np.empty(0, dtype=np.dtype(dtype))
        columns.append(Column(data.astype(np.dtype(dtype), copy=False), None, _type_of(kind)))
    state.keys.restore(ids, tuple(columns))
    if len(state.keys) != len(ids):
        raise damaged(_WHAT, "a key is there twice")


@final
class _Writer:
    """Collects named arrays, then writes them after a header."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, str, str, int]] = []
        self._buffers: list[bytes] = []

    def table(self, name: str, table: Table, rows: NDArray[np.int64]) -> None:
        self.array(f"{name} rows", rows)
        for field in table.fields:
            if field.name not in _REBUILT and not field.name.startswith("slot:"):
                self.array(f"{name}/{field.name}", table[field.name][rows])

    def array(self, name: str, values: NDArray[Any]) -> None:
        kind, data = _PLAIN, b""
        if values.dtype != object:
            data = values.tobytes()
        else:
            plain = values.tolist()
            if set(map(type, plain)) <= {str, type(None)}:
                kind, data = _TEXT, _text_bytes(plain)
            if not data:
                kind, data = _CODED, encode(plain)
        self._parts.append((name, kind, values.dtype.str, len(data)))
        self._buffers.append(data)

    def written(self, header: dict[str, Any]) -> bytes:
        head = encode({**header, "layout": LAYOUT, "parts": self._parts})
        return b"".join((_MAGIC, len(head).to_bytes(8, "little"), head, *self._buffers))


@final
class _Reader:
    """Gives the named arrays of a snapshot."""

    def __init__(self, data: bytes) -> None:
        if data[: len(_MAGIC)] != _MAGIC:
            raise damaged(_WHAT, "it does not begin as one does")
        start = len(_MAGIC) + 8
        stop = start + int.from_bytes(data[len(_MAGIC) : start], "little")
        self.header: dict[str, Any] = decode(data[start:stop])
        if self.header["layout"] != LAYOUT:
            raise StateError(
                f"the stored state has layout {self.header['layout']}, this lowwater writes "
                f"{LAYOUT}",
                hint="Use the lowwater that wrote it, or begin with a new checkpoint",
            )
        self._places: dict[str, tuple[str, str, memoryview]] = {}
        whole = memoryview(data)
        for name, kind, dtype, size in self.header["parts"]:
            self._places[name] = (kind, dtype, whole[stop : stop + size])
            stop += size
        if stop != len(data):
            raise damaged(_WHAT, f"it has {len(data)} bytes, not {stop}")

    def array(self, name: str) -> NDArray[Any]:
        kind, dtype, data = self._places[name]
        if kind == _PLAIN:
            made: NDArray[Any] = np.frombuffer(data, dtype=np.dtype(dtype))
            return made
        return object_array(_texts(data) if kind == _TEXT else decode(bytes(data)))

    def layout(self, table: str) -> list[tuple[str, str]]:
        """Return the (name, dtype) of a table's columns."""
        prefix = f"{table}/"
        return [
            (name.removeprefix(prefix), dtype)
            for name, (_, dtype, _) in self._places.items()
            if name.startswith(prefix)
        ]

    def fill(self, name: str, table: Table) -> NDArray[np.int64]:
        """Make an empty table hold what was written of it; return its rows."""
        rows = self.array(f"{name} rows").astype(np.int64)
        if len(rows) and (rows[0] < 0 or (np.diff(rows) <= 0).any()):
            raise damaged(_WHAT, "its rows are in no order")
        table.restore(rows)
        for column, _ in self.layout(name):
            values = self.array(f"{name}/{column}")
            if column not in table.columns:
                raise StateError(
                    f"the stored state has a column {column!r} that the pipeline does not",
                    hint="Run the pipeline that wrote it, or begin with a new checkpoint",
                )
            if len(values) != len(rows):
                raise damaged(_WHAT, f"the column {column!r} is of another length")
            table[column][rows] = values
        missing = {
            field.name
            for field in table.fields
            if field.name not in _REBUILT and not field.name.startswith("slot:")
        } - {column for column, _ in self.layout(name)}
        if missing:
            raise StateError(
                f"the stored state has no column {min(missing)!r}, which the pipeline needs",
                hint="Run the pipeline that wrote it, or begin with a new checkpoint",
            )
        for column in _REBUILT & table.columns.keys():
            table[column][rows] = END_OF_TIME
        return rows


def _text_bytes(values: list[str | None]) -> bytes:
    """Return text as an Arrow stream; nothing if it is no proper Unicode."""
    try:
        column = pa.array(values, type=pa.large_string())
    except (UnicodeEncodeError, pa.ArrowInvalid):
        return b""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([column], names=["text"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _texts(data: memoryview) -> list[str | None]:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        values: list[str | None] = reader.read_all().column(0).to_pylist()
    return values


def _type_bytes(kind: pa.DataType | None) -> bytes | None:
    return None if kind is None else type_to_bytes(kind)


def _type_of(data: bytes | None) -> pa.DataType | None:
    return None if data is None else type_from_bytes(data)
