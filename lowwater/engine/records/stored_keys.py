"""The stored form of a key dictionary: blocks of keys, and the key group of each key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.records.columns import Column, type_from_bytes, type_to_bytes
from lowwater.engine.records.key_hash import hash_keys
from lowwater.engine.records.keys import KeyDictionary
from lowwater.errors import InternalError
from lowwater.state.arrays import NONE, distinct, object_array, widened
from lowwater.state.codec import decode, encode, encode_each, encode_slices
from lowwater.state.formats import damaged, decoding
from lowwater.state.journal import GroupReader, Journal, Piece
from lowwater.state.key_layout import StoredPlace
from lowwater.state.row_codec import Chunk, Layouts, PackedRows
from lowwater.state.side_format import Side, read_sides
from lowwater.state.store import Batch, StateStore
from lowwater.time import START_OF_TIME, Int64Array

Kinds: TypeAlias = list[tuple[bytes | None, str]]
"""Arrow type and numpy dtype of each part of a key."""

_WHAT = "a stored key"
_NULL = "null"


@final
class StoredKeys:
    """Writes keys that have come to have state, and deletes those that no longer do.

    Args:
        place: Where they are stored.
        table: Tag of their blocks.
    """

    def __init__(self, place: StoredPlace, table: int) -> None:
        self._place = place
        self._table = table
        self._rows = _KeyRows()
        self._hash: NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
        self._hashed: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._former: dict[str, Any] | None = None  # what was loaded
        self._journal = Journal(self._rows, place, table, groups=self.groups)

    @property
    def keys(self) -> KeyDictionary | None:
        """The dictionary; ``None`` before any key."""
        return self._rows.keys

    def groups(self, ids: Int64Array) -> NDArray[np.int32]:
        """Return the key group of each id."""
        if self._place.count == 1 or not len(ids):
            return np.full(len(ids), self._place.first, dtype=np.int32)
        group = (self.hashes(ids) % np.uint64(self._place.count)).astype(np.int32)
        return group + self._place.first

    def hashes(self, ids: Int64Array) -> NDArray[np.uint64]:
        """Return the hash of each id's key, computed once."""
        keys = self._rows.keys
        if keys is None:
            raise InternalError("the hash of a key was asked for before any key was seen")
        self._cover(keys.capacity)
        unknown = ids[~self._hashed[ids]]
        if unknown.size:
            self.know(unknown, hash_keys(keys.decode(unknown)))
        return self._hash[ids]

    def know(self, ids: Int64Array, hashes: NDArray[np.uint64]) -> None:
        """Cache the hashes of keys."""
        self._cover(int(ids.max(initial=-1)) + 1)
        self._hash[ids], self._hashed[ids] = hashes, True

    def use(self, keys: KeyDictionary | None) -> None:
        """Read keys from this dictionary from now on."""
        self._rows.keys = keys

    def want(self, ids: Int64Array) -> None:
        """Mark keys to be stored at the next commit; ids may repeat."""
        rows = self._rows
        if rows.keys is None or not ids.size:
            return
        rows.cover(rows.keys.capacity)
        ids = ids[~rows.wanted[ids]]
        if ids.size:
            ids = distinct(ids)
            rows.wanted[ids] = True
            rows.count += len(ids)
            self._journal.touch(ids)

    def drop(self, ids: Int64Array) -> None:
        """Mark stored keys among these to be deleted at the next commit; ids may repeat."""
        rows = self._rows
        ids = distinct(ids[ids < len(rows.wanted)])
        ids = ids[rows.wanted[ids]]
        if ids.size:
            rows.wanted[ids] = False
            rows.count -= len(ids)
            self._journal.touch(ids)

    def forget(self, kept: NDArray[np.bool_]) -> None:
        """Note that the dictionary is about to take back the ids that are not kept."""
        stays = np.zeros(max(len(kept), len(self._rows.wanted), len(self._hash)), dtype=np.bool_)
        stays[: len(kept)] = kept
        self.drop(np.flatnonzero(~stays))
        self._hashed &= stays[: len(self._hashed)]

    def write(self, batch: Batch) -> None:
        """Add what changed since the last time to a batch."""
        self._journal.write(batch)

    def record(self) -> dict[str, Any] | None:
        """Return what :meth:`load` needs to know; ``None`` before any key."""
        keys = self._rows.keys
        if keys is None:
            return self._former
        return {
            "kinds": kinds_of(keys),
            "limit": self._journal.limit,
            "count": self._rows.count,
            "layouts": self._rows.layouts.stored,
        }

    def load(self, store: StateStore, record: dict[str, Any] | None) -> Int64Array:
        """Fill a dictionary, which is then :attr:`keys`; return its ids, rising.

        Raises:
            StateError: The stored keys are damaged.
        """
        ids, columns = self._read(store, record)
        if len(ids):  # else the next bundle begins a dictionary
            self._rows.keys = keys = KeyDictionary(len(columns))
            keys.restore(ids, columns)
            if len(keys) != len(ids):
                raise damaged(_WHAT, "it is stored twice")
            self._rows.cover(keys.capacity)
        return ids

    def _read(
        self, store: StateStore, record: dict[str, Any] | None
    ) -> tuple[Int64Array, tuple[Column, ...]]:
        """Return the stored keys: (their numbers, rising; a column for each part).

        Raises:
            StateError: They are damaged.
        """
        self._former = record
        if record is None:
            return NONE, ()
        self._rows.layouts.expect(record["layouts"])
        reader = KeyReader(record)
        for pieces in self._journal.load(store, record["limit"], START_OF_TIME):
            for piece in pieces:
                reader.add(piece)
        ids, columns = reader.columns()
        if len(ids) and not (np.diff(ids) > 0).all():
            raise damaged(_WHAT, "a number is stored twice")
        self._rows.cover(max(int(ids[-1]) + 1 if len(ids) else 0, record["limit"]))
        self._rows.wanted[ids] = True
        self._rows.count = len(ids)
        return ids, columns

    def _check(self) -> None:
        """Assert what must hold between keys and their blocks. O(keys)."""
        assert self._rows.count == int(self._rows.wanted.sum())
        self._journal._check()

    def _cover(self, need: int) -> None:
        if need > len(self._hash):
            room = max(need, 2 * len(self._hash))
            self._hash = widened(self._hash, room)
            self._hashed = widened(self._hashed, room, False)


@final
class _KeyRows:
    """The keys of a dictionary as a journal takes them: ids are rows."""

    def __init__(self) -> None:
        self.keys: KeyDictionary | None = None
        self.wanted = np.zeros(0, dtype=np.bool_)
        self.count = 0
        self.layouts = Layouts()

    @property
    def capacity(self) -> int:
        return len(self.wanted)

    def alive(self, rows: Int64Array) -> NDArray[np.bool_]:
        return self.wanted[rows]

    def pack(self, rows: Int64Array) -> PackedRows:
        if self.keys is None:
            raise InternalError("keys were stored before any was seen")
        return pack_keys(self.keys, rows, self.layouts)

    def cover(self, need: int) -> None:
        if need > len(self.wanted):
            self.wanted = widened(self.wanted, max(need, 2 * len(self.wanted)), False)


@final
class KeyReader:
    """Collects stored keys, and makes columns of them.

    Args:
        record: What :meth:`StoredKeys.record` returned when they were written.
    """

    def __init__(self, record: dict[str, Any]) -> None:
        self._kinds: Kinds = record["kinds"]
        self._count = record["count"]
        self._layouts = Layouts()
        self._layouts.expect(record["layouts"])
        self._ids: list[Int64Array] = []
        self._parts: list[list[Column]] = [[] for _ in self._kinds]

    def add(self, piece: Piece) -> None:
        """Add the keys of a block."""
        chunk = self._layouts.read(piece.chunk)
        sides = read_sides([chunk.side], np.array([len(chunk)]))
        objects = sides[0].objects if sides else {}
        types = {name: kind for name, _, kind in self._layouts.known[chunk.layout]}
        self._ids.append(piece.rows)
        for at, part in enumerate(self._parts):
            name = _name(at)
            if name in types:
                part.append(_packed(chunk, name, types).take(piece.at))
            else:  # side columns leave out what is null in all rows
                values = objects.get(name, np.full(len(chunk), None, dtype=object))
                part.append(Column(values[piece.at]))

    def columns(self) -> tuple[Int64Array, tuple[Column, ...]]:
        """Return (ids, rising; a column for each part).

        Raises:
            StateError: The keys are damaged.
        """
        with decoding(_WHAT):
            ids = np.concatenate(self._ids) if self._ids else NONE
            if len(ids) != self._count:
                raise damaged(_WHAT, f"{len(ids)} of {self._count} are there")
            order = np.argsort(ids)
            columns = [
                _column(part, order, type_from_bytes(kind), np.dtype(dtype))
                for part, (kind, dtype) in zip(self._parts, self._kinds, strict=True)
            ]
            return ids[order], tuple(columns)


def read_keys(
    store: StateStore, place: StoredPlace, table: int, record: dict[str, Any]
) -> tuple[Int64Array, tuple[Column, ...]]:
    """Return stored keys without a dictionary: (ids, rising; a column for each part).

    Raises:
        StateError: They are damaged.
    """
    reader = KeyReader(record)
    for piece in _pieces(store, place, table, record["limit"]):
        reader.add(piece)
    return reader.columns()


def pack_keys(keys: KeyDictionary, ids: Int64Array, layouts: Layouts) -> PackedRows:
    """Return the stored form of keys."""
    columns = keys.decode(ids)
    fixed = {_name(at): c for at, c in enumerate(columns) if c.data.dtype != object}
    for name, column in list(fixed.items()):
        if column.valid is not None:  # so keys without nulls are stored as if there were none
            fixed[name + _NULL] = Column(~column.valid)
    objects = {_name(at): c.data for at, c in enumerate(columns) if c.data.dtype == object}
    number = layouts.number(
        [
            (name, column.data.dtype.str, type_to_bytes(column.type))
            for name, column in fixed.items()
        ]
    )
    records = np.empty((len(ids), 0), dtype=np.uint8)
    if fixed:
        packed = np.empty(len(ids), dtype=layouts.dtype(number))
        for name, column in fixed.items():
            packed[name] = column.data
        records = packed.view(np.uint8).reshape(len(ids), packed.dtype.itemsize)
    return PackedRows(number, records, Side(objects, {}, None) if objects else None)


def kinds_of(keys: KeyDictionary) -> Kinds:
    """Return the types of the parts of keys."""
    return [(type_to_bytes(kind), dtype) for kind, dtype in keys.kinds()]


def plain_keys(column: Column) -> list[Any]:
    """Return a part of keys as values that can be stored, for :func:`columns_of_keys`.

    Times and dates are the integers they are in a column.
    """
    values: list[Any] = column.data.tolist()
    if (nulls := column.nulls()) is not None:
        values = [None if null else v for v, null in zip(values, nulls.tolist(), strict=True)]
    return values


class StoredKey(NamedTuple):
    """A key as it is stored alone.

    Args:
        nth: As which of several types.
        parts: What :func:`plain_keys` returned of each part.
    """

    nth: int
    parts: Sequence[Any]


def columns_of_keys(
    keys: Sequence[StoredKey], kinds: Sequence[Kinds], now: int
) -> tuple[Column, ...]:
    """Return a column for each part of keys.

    Args:
        keys: The keys, at least one.
        kinds: The types that they were stored as.
        now: Which of these they are together.
    """
    which = np.array([key.nth for key in keys], dtype=np.int64)
    pieces: list[list[Column]] = [[] for _ in kinds[now]]
    for nth in np.unique(which).tolist():
        some = zip(*(key.parts for key in keys if key.nth == nth), strict=True)
        for piece, values, (kind, dtype) in zip(pieces, some, kinds[nth], strict=True):
            piece.append(_column_of(values, type_from_bytes(kind), np.dtype(dtype)))
    order = np.argsort(np.argsort(which, kind="stable"))
    return tuple(
        _column(piece, order, type_from_bytes(kind), np.dtype(dtype))
        for piece, (kind, dtype) in zip(pieces, kinds[now], strict=True)
    )


def _column_of(values: Sequence[Any], kind: pa.DataType | None, dtype: np.dtype[Any]) -> Column:
    if dtype.kind == "O":
        return (
            Column.of_objects(values) if kind is None else Column.from_arrow(pa.array(values, kind))
        )
    valid = np.array([value is not None for value in values], dtype=np.bool_)
    filled = [0 if value is None else value for value in values]
    return Column(np.array(filled, dtype=dtype), None if valid.all() else valid, kind)


def become(keys: KeyDictionary, kinds: Kinds) -> None:
    """Set the types of a dictionary's keys."""
    keys.become([(type_from_bytes(kind), dtype) for kind, dtype in kinds])


def common_kinds(before: Kinds, now: Kinds) -> Kinds:
    """Return the types of the parts of keys of which some were of these types and some of those."""
    if not before:
        return now
    return [
        new if old == new else (None, np.dtype(object).str)
        for old, new in zip(before, now, strict=True)
    ]


def key_values(
    keys: KeyDictionary, ids: Int64Array, begin: Int64Array, layouts: Layouts
) -> list[bytes]:
    """Return the stored form of a few keys each, for :func:`key_columns`.

    Parts that are Python objects follow the others in one list, which costs much less than a side
    column where a value holds one key.

    Args:
        keys: The dictionary.
        ids: The ids of the keys.
        begin: The first key of each value, rising from 0.
        layouts: The layouts that keys are packed in.
    """
    packed = pack_keys(keys, ids, layouts)
    values = PackedRows(packed.layout, packed.records, None).cut(begin, len(ids))
    if packed.side is None:
        return values
    parts = [column.tolist() for column in packed.side.objects.values()]
    bounds = pairwise([*begin.tolist(), len(ids)])
    if len(parts) == 1 and len(begin) == len(ids):
        objects = encode_each(parts[0])
    elif len(parts) == 1:
        objects = encode_slices(parts[0], bounds)
    else:
        objects = [encode([v for part in parts for v in part[low:high]]) for low, high in bounds]
    return [value + each for value, each in zip(values, objects, strict=True)]


def key_columns(
    chunk: Chunk, sides: Sequence[tuple[bytes, int]], layouts: Layouts, kinds: Kinds
) -> tuple[Column, ...]:
    """Return a column for each part of keys that :func:`key_values` stored.

    Args:
        chunk: The parts that are packed.
        sides: What follows them in each value, and how many keys it has.
        layouts: The layouts they were packed in.
        kinds: The types of the parts.

    Raises:
        StateError: The keys are damaged.
    """
    types = {name: kind for name, _, kind in layouts.known[chunk.layout]}
    names = [name for name in map(_name, range(len(kinds))) if name not in types]
    objects: dict[str, list[Any]] = {name: [] for name in names}
    for side, count in sides if names else ():
        values = decode(side)
        if not isinstance(values, list) or len(values) != count * len(names):
            raise damaged(_WHAT, "it has fewer parts than keys have")
        for at, name in enumerate(names):
            objects[name] += values[at * count : (at + 1) * count]
    columns = []
    for name, kind in ((_name(at), type_from_bytes(kind)) for at, (kind, _) in enumerate(kinds)):
        if name in types:
            columns.append(_packed(chunk, name, types))
        elif kind is None:
            columns.append(Column.of_objects(objects[name]))
        else:
            columns.append(Column.from_arrow(pa.array(objects[name], kind)))
    return tuple(columns)


def _pieces(store: StateStore, place: StoredPlace, table: int, limit: int) -> Iterator[Piece]:
    for _, stored in GroupReader(store, place, table, limit, None):
        yield from stored.pieces


def _packed(chunk: Chunk, name: str, types: Mapping[str, bytes | None]) -> Column:
    """Return a part of keys that is packed, with its nulls if there are any."""
    valid = ~chunk.records[name + _NULL] if name + _NULL in types else None
    return Column(np.ascontiguousarray(chunk.records[name]), valid, type_from_bytes(types[name]))


def _column(
    pieces: Sequence[Column], order: Int64Array, kind: pa.DataType | None, dtype: np.dtype[Any]
) -> Column:
    if dtype.kind != "O":
        fitted = [_fitted(piece, dtype, kind) for piece in pieces]
        alike = [Column(piece.data, piece.valid, kind) for piece in fitted]
        every = Column.concat(alike) if alike else Column(NONE.astype(dtype), None, kind)
        return every.take(order)
    plain = [value for piece in pieces for value in piece.to_list(exact=True)]
    values = object_array(plain)[order].tolist()
    return Column.of_objects(values) if kind is None else Column.from_arrow(pa.array(values, kind))


def _fitted(column: Column, dtype: np.dtype[Any], kind: pa.DataType | None) -> Column:
    """Return stored keys as the others are: nulls beside them may have made objects of them."""
    if column.data.dtype == dtype:
        return column
    if column.is_null():  # they may have been stored before there was a value to tell the type
        return Column(np.zeros(len(column), dtype), np.zeros(len(column), dtype=np.bool_))
    given = column.data.dtype
    if given.kind == "O":
        fitted = Column.from_arrow(pa.array(column.to_list(exact=True), kind))
        if fitted.data.dtype == dtype:
            return fitted
    raise damaged(_WHAT, f"it is of type {given}, and keys are of type {dtype}")


def _name(at: int) -> str:
    return f"part{at}"
