"""What a run and its worker processes tell each other, as bytes: columns are not taken apart.

A message is a tree of plain values, in msgpack, and the arrays that it mentions, one after another
behind it. Arrow arrays of text and bytes go as their buffers, others as Arrow's own stream. Python
values go as columns where they have one type, and else in the form that state has
(:mod:`lowwater.state.codec`). Nothing is a pickle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final, final

import msgspec
import numpy as np
import pyarrow as pa

from lowwater.engine.records.batch import plain_records
from lowwater.engine.records.columns import Column, type_from_bytes, type_to_bytes
from lowwater.engine.records.stage_output import Emitted, StageOutput
from lowwater.engine.records.steps import Bundle, LateBatch
from lowwater.errors import DataError, InternalError, StateError
from lowwater.state.arrays import object_array
from lowwater.state.codec import decode, encode
from lowwater.state.store import Delete, DeleteRange, Put
from lowwater.watermark import Hold

_ALIGNED = 8
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_AS_NUMPY = frozenset({pa.int64(), pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC")})
"""Types of Arrow whose columns are the same in numpy, with the type beside them."""
_AS_BUFFERS = {
    "string": pa.string(),
    "large_string": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
}
_NAME_OF = {kind: name for name, kind in _AS_BUFFERS.items()}

_CLASSES: Final[tuple[type, ...]] = (
    Bundle, Emitted, StageOutput, LateBatch, Hold, Put, Delete, DeleteRange,
)  # fmt: skip
_PARTS: dict[type, tuple[int, Callable[[Any], Any], int]] = {
    kind: (number, attrgetter(*[f.name for f in fields(kind)]), len(fields(kind)))
    for number, kind in enumerate(_CLASSES)
}
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder()

# What a node of the tree is, where it is not plain: the first item of a list.
(
    _LIST, _TUPLE, _DICT, _ARRAY, _OBJECTS, _ARROW, _COLUMN, _MADE, _VALUES, _ROWS, _INTS, _LONG,
    _TEXT,
) = range(13)  # fmt: skip


class CannotPass(DataError):
    """A message holds a value that cannot leave its process."""


def pack(message: Any) -> bytes:
    """Return a message as bytes.

    Args:
        message: Plain values; lists, tuples and dicts; arrays of numpy; columns, bundles and what
            steps return.

    Raises:
        CannotPass: It holds a value of a type that cannot leave its process.
    """
    writer = _Writer()
    return _joined(writer, _head(writer, message))


def passed(message: Any) -> Any:
    """Return a message as it would arrive in another process.

    It is the same object, unless a Python value in it may arrive as another one.

    Raises:
        DataError: As :func:`pack` does.
    """
    writer = _Writer()
    head = _head(writer, message)
    return message if writer.is_exact else unpack(_joined(writer, head))


def unpack(data: bytes) -> Any:
    """Return the message that :func:`pack` was given; its arrays are views, and read-only."""
    length = int.from_bytes(data[:_ALIGNED], "little")
    start = _ALIGNED + length
    tree, places = _DECODER.decode(memoryview(data)[_ALIGNED:start])
    return _Reader(memoryview(data)[start + (-length % _ALIGNED) :], places).value(tree)


def _head(writer: _Writer, message: Any) -> bytes:
    """Return the tree of a message, and where the arrays are, as bytes."""
    try:
        return _ENCODER.encode([writer.node(message), writer.places])
    except UnicodeEncodeError as error:
        raise CannotPass(
            f"text that is not valid Unicode cannot be passed between processes: {error}",
            where="run(workers=)",
            hint="Decode it with errors='replace', or run without workers=",
        ) from error


def _joined(writer: _Writer, head: bytes) -> bytes:
    size = len(head).to_bytes(_ALIGNED, "little")
    return b"".join([size, head, b"\0" * (-len(head) % _ALIGNED), *writer.parts])


@final
class _Writer:
    """Turns values into a tree, and collects the arrays beside it.

    ``is_exact`` says that all values are immutable, and of types that arrive as they are.
    """

    def __init__(self) -> None:
        self.is_exact = True
        self.parts: list[Any] = []
        self.places: list[tuple[int, int]] = []
        self._end = 0
        self._columns: dict[int, tuple[Column, Any]] = {}  # a key is a value too

    def node(self, value: Any) -> Any:
        kind = type(value)
        if kind is int:
            return value if _INT_MIN <= value <= _INT_MAX else [_LONG, hex(value)]
        if value is None or kind in (bool, float, str, bytes):
            return value
        if kind is np.ndarray:
            return self._array(value)
        if kind is Column:
            return self._column(value)
        if kind in (list, tuple):
            return [_LIST if kind is list else _TUPLE, [self.node(each) for each in value]]
        if kind is dict:
            return [_DICT, list(value), [self.node(each) for each in value.values()]]
        if (made := _PARTS.get(kind)) is not None:
            return self._made(value, *made)
        raise InternalError(f"a {kind.__name__} has no form that goes to another process")

    def _made(self, value: Any, number: int, parts_of: Callable[[Any], Any], count: int) -> Any:
        parts = parts_of(value) if count > 1 else (parts_of(value),)
        if isinstance(value, Emitted) and not isinstance(value.values, dict):
            names = [each.name for each in fields(Emitted)]
            return [
                _MADE,
                number,
                [
                    self._values(plain_records(part)) if name == "values" else self.node(part)
                    for name, part in zip(names, parts, strict=True)
                ],
            ]
        return [_MADE, number, [self.node(part) for part in parts]]

    def _array(self, array: np.ndarray[Any, Any]) -> Any:
        if array.dtype == object:
            return [_OBJECTS, self._values(array.tolist())]
        return [_ARRAY, array.dtype.str, self._buffer(np.ascontiguousarray(array).data, len(array))]

    def _column(self, column: Column) -> Any:
        known = self._columns.get(id(column))
        if known is None:
            known = self._columns[id(column)] = column, self._new_column(column)
        return known[1]

    def _new_column(self, column: Column) -> Any:
        arrow = column.arrow
        if arrow is not None and arrow.type in _NAME_OF and len(arrow) and not arrow.null_count:
            return self._text(arrow)
        if arrow is not None and arrow.type not in _AS_NUMPY:
            sink = pa.BufferOutputStream()
            batch = pa.RecordBatch.from_arrays([arrow], ["values"])
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            return [_ARROW, self._buffer(sink.getvalue(), 1)]
        valid = None if column.valid is None else self._array(column.valid)
        return [_COLUMN, self._array(column.data), valid, type_to_bytes(column.type)]

    def _text(self, array: pa.Array) -> Any:
        """Return text or bytes without nulls: where each value begins, and then all of them."""
        name = _NAME_OF[array.type]
        _, begins, data = array.buffers()
        kind = np.int64 if name.startswith("large") else np.int32
        begins = np.frombuffer(begins, dtype=kind)[array.offset : array.offset + len(array) + 1]
        first, last = begins[0], begins[-1]
        text = b"" if data is None else memoryview(data)[first:last]
        return [_TEXT, name, self._array(begins - first), self._buffer(text, 1)]

    def _values(self, values: Sequence[Any]) -> Any:
        """Return Python values, as short as their types allow."""
        kinds = set(map(type, values))
        if kinds == {int}:
            try:
                return [_INTS, self._array(np.array(values, dtype=np.int64))]
            except OverflowError:
                return self._objects(values)
        if kinds == {dict}:
            (names, *others) = {tuple(each) for each in values}
            if not others and all(type(name) is str for name in names):
                self.is_exact = False
                rows = [[each[name] for each in values] for name in names]
                return [_ROWS, list(names), len(values), [self._values(row) for row in rows]]
        if kinds <= _PLAIN:
            try:
                return [_VALUES, list(values)] if int not in kinds else self._checked(values)
            except OverflowError:
                pass
        return self._objects(values)

    def _checked(self, values: Sequence[Any]) -> Any:
        for each in values:
            if type(each) is int and not _INT_MIN <= each <= _INT_MAX:
                raise OverflowError
        return [_VALUES, list(values)]

    def _objects(self, values: Sequence[Any]) -> Any:
        self.is_exact = False
        try:
            return [_VALUES, None, encode(list(values))]
        except (StateError, UnicodeEncodeError) as error:
            what = error.what if isinstance(error, StateError) else f"{error} cannot be stored"
            raise CannotPass(
                what.replace("stored", "passed between processes"),
                where="run(workers=)",
                hint="Read and emit plain values (numbers, text, bytes, dates, lists, tuples, "
                "dicts, sets), or run without workers=",
            ) from error

    def _buffer(self, data: Any, count: int) -> int:
        """Add an array to those behind the tree; return its number."""
        size = len(data) * getattr(data, "itemsize", 1) if count else 0
        self.places.append((self._end, size))
        self.parts += [data, b"\0" * (-size % _ALIGNED)] if size else []
        self._end += size + -size % _ALIGNED
        return len(self.places) - 1


@final
class _Reader:
    """Makes values of a tree again, and of the arrays behind it."""

    def __init__(self, data: memoryview, places: list[list[int]]) -> None:
        self._data = data
        self._places = places

    def value(self, node: Any) -> Any:
        if type(node) is not list:
            return node
        tag = node[0]
        if tag == _LIST:
            return [self.value(each) for each in node[1]]
        if tag == _TUPLE:
            return tuple(self.value(each) for each in node[1])
        if tag == _DICT:
            return dict(zip(node[1], map(self.value, node[2]), strict=True))
        if tag == _ARRAY:
            return np.frombuffer(self._buffer(node[2]), dtype=np.dtype(node[1]))
        if tag == _OBJECTS:
            return object_array(self.value(node[1]))
        if tag == _ARROW:
            with pa.ipc.open_stream(pa.py_buffer(self._buffer(node[1]))) as stream:
                return Column.from_arrow(stream.read_next_batch().column(0))
        if tag == _COLUMN:
            valid = None if node[2] is None else self.value(node[2])
            return Column(self.value(node[1]), valid, type_from_bytes(node[3]))
        if tag == _MADE:
            return _CLASSES[node[1]](*map(self.value, node[2]))
        if tag == _LONG:
            return int(node[1], 16)
        if tag == _INTS:
            return self.value(node[1]).tolist()
        if tag == _TEXT:
            _, name, begins, data = node
            begins = pa.py_buffer(self.value(begins))
            buffers = [None, begins, pa.py_buffer(self._buffer(data))]
            kind = _AS_BUFFERS[name]
            length = len(begins) // (8 if name.startswith("large") else 4) - 1
            return Column(arrow=pa.Array.from_buffers(kind, length, buffers))
        if tag == _ROWS:
            _, names, count, columns = node
            if not names:
                return [{} for _ in range(count)]
            every = zip(*map(self.value, columns), strict=True)
            return [dict(zip(names, row, strict=True)) for row in every]
        return node[1] if node[1] is not None else decode(node[2])

    def _buffer(self, number: int) -> memoryview:
        start, size = self._places[number]
        return self._data[start : start + size]
