"""The stored form of side columns: one for each stored value, written and read many at once.

::

    side     header | counts u32, row by row: of each bag, of nested rows | bytes u32 of each blob |
             fixed-width values, then arrivals i64, of each bag | blobs
    header   0xC1 | bytes u32 | [columns of objects], [(bag, dtype)], whether there are nested rows
    blobs    objects of each bag of them | objects of each column | nested rows

A value without any of it has no bytes. Values of one operator have one header, mostly: so what is
of fixed width is read as one array, however many values there are. What begins otherwise is of
before: :mod:`lowwater.state.former_side`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from lowwater.kernels.positions import repeated
from lowwater.state.arrays import expand_ranges, object_array
from lowwater.state.codec import decode, encode, encode_slices
from lowwater.state.formats import damaged, decoding
from lowwater.time import Int64Array

WHAT = "a stored row"
_HEAD = Struct("<BI")
_MARK = 0xC1
"""A byte that msgpack does not use: what was written before begins with another one."""
_COUNT = np.dtype("<u4")
_ARRIVAL = np.dtype("<i8")


class Packed(Protocol):
    """Nested rows in their stored form."""

    def cut(self, begin: Int64Array, count: int, /) -> list[bytes]: ...


@final
@dataclass(frozen=True, slots=True)
class Side:
    """The side columns of some rows, gathered.

    Args:
        objects: By column, shape (n,).
        bags: By bag, (values, arrivals, where each row's begin; one more at the end).
        nested: (nested rows, where each row's begin; one more at the end).
    """

    objects: Mapping[str, NDArray[Any]]
    bags: Mapping[str, tuple[NDArray[Any], Int64Array, Int64Array]]
    nested: tuple[Packed, Int64Array] | None

    def cut(self, bounds: Int64Array) -> list[bytes]:
        """Return the side columns of stretches of rows: no bytes where there is nothing.

        Args:
            bounds: Where each stretch begins, and where the last one ends.
        """
        bags = {name: bag for name, bag in self.bags.items() if len(bag[0])}
        begins = [begin for _, _, begin in bags.values()]
        if self.nested is not None:
            begins.append(self.nested[1])
        blobs = [
            *(_objects_of(held, begin[bounds]) for held, _, begin in bags.values() if _boxed(held)),
            *(_objects_in(column, bounds) for column in self.objects.values()),
        ]
        if self.nested is not None:
            blobs.append(_nested_in(*self.nested, bounds))
        low, high = int(bounds[0]), int(bounds[-1])
        rows = np.zeros((high - low, len(begins)), dtype=np.int64)
        for at, begin in enumerate(begins):
            rows[:, at] = np.diff(begin[low : high + 1])
        lengths = np.zeros((len(bounds) - 1, len(blobs)), dtype=np.int64)
        for at, blob in enumerate(blobs):
            lengths[:, at] = list(map(len, blob))
        pieces = [
            _slices(rows, bounds - low, _COUNT),
            _slices(lengths, np.arange(len(bounds)), _COUNT),
        ]
        for held, arrivals, begin in bags.values():
            if not _boxed(held):
                pieces.append(_slices(held, begin[bounds]))
            pieces.append(_slices(arrivals, begin[bounds]))
        held_by_bags = [begin[bounds[1:]] - begin[bounds[:-1]] for begin in begins]
        filled = np.add.reduce([*held_by_bags, lengths.sum(axis=1)], axis=0) > 0
        kinds = [(name, held.dtype.str) for name, (held, _, _) in bags.items()]
        header = encode([list(self.objects), kinds, self.nested is not None])
        header = _HEAD.pack(_MARK, len(header)) + header
        return [
            b"".join((header, *each)) if some else b""
            for some, each in zip(filled.tolist(), zip(*pieces, *blobs, strict=True), strict=True)
        ]


@final
@dataclass(frozen=True, slots=True)
class ReadSide:
    """Side columns of stored values with one header.

    Args:
        rows: The places of their rows among the rows of all values that were read, rising.
        objects: By column, shape (rows,).
        bags: By bag, (values, arrivals, how many each row has).
        nested: (How many nested rows each row has, the stored values of them), if there are any.
    """

    rows: Int64Array
    objects: Mapping[str, NDArray[Any]]
    bags: Mapping[str, tuple[NDArray[Any], Int64Array, Int64Array]]
    nested: tuple[Int64Array, list[bytes]] | None


def read_sides(values: Sequence[bytes], counts: Int64Array) -> list[ReadSide]:
    """Read the side columns of stored values; those without any are left out.

    Args:
        values: The side columns of each.
        counts: How many rows each value has, int64.

    Raises:
        StateError: They are damaged.
    """
    with decoding(WHAT):
        by_header: dict[bytes, list[int]] = {}
        former: list[int] = []
        for place, value in enumerate(values):
            if value and value[0] != _MARK:
                former.append(place)
            elif value:
                size = _HEAD.size + _HEAD.unpack_from(value)[1]
                by_header.setdefault(value[:size], []).append(place)
        first = np.cumsum(counts) - counts
        found = []
        if former:
            from lowwater.state.former_side import read_former

            for place in former:
                count = int(counts[place])
                side = read_former(values[place], count)
                found.append(ReadSide(np.arange(first[place], first[place] + count), *side))
        for header, places in by_header.items():
            at = np.array(places, dtype=np.int64)
            some = [values[place][len(header) :] for place in places]
            found.append(_read(header, some, first[at], counts[at]))
        return found


def _read(header: bytes, values: list[bytes], first: Int64Array, counts: Int64Array) -> ReadSide:
    objects, bags, is_nested = _read_header(header)
    boxed = [name for name, dtype in bags if dtype.kind == "O"]
    columns = len(bags) + is_nested
    blobs = len(boxed) + len(objects) + is_nested
    cutter = _Cutter(values)
    packed = np.frombuffer(cutter.take(counts * columns * _COUNT.itemsize), _COUNT)
    of_rows = packed.reshape(int(counts.sum()), columns).astype(np.int64)
    sizes = np.full(len(values), blobs * _COUNT.itemsize)
    lengths = np.frombuffer(cutter.take(sizes), _COUNT).reshape(len(values), blobs)
    # Nothing by row before the bytes are known to be of so many: a damaged count takes no memory.
    totals = _sums(of_rows, counts) if columns else np.zeros((len(values), 0), dtype=np.int64)
    held: dict[str, Any] = {}
    for at, (name, dtype) in enumerate(bags):
        values_of = None if dtype.kind == "O" else cutter.take(totals[:, at] * dtype.itemsize)
        arrivals = np.frombuffer(cutter.take(totals[:, at] * 8), _ARRIVAL)
        held[name] = (values_of, arrivals.astype(np.int64, copy=False), of_rows[:, at])
    taken = [cutter.cut(lengths[:, at].astype(np.int64)) for at in range(blobs)]
    cutter.finish()
    for at, (name, dtype) in enumerate(bags):
        data, arrivals, of_each = held[name]
        if dtype.kind == "O":
            stretch = _decoded(taken[boxed.index(name)], totals[:, at], name)
        else:
            stretch = np.frombuffer(data, dtype)
            if dtype.kind == "b" and (stretch.view(np.uint8) > 1).any():
                raise damaged(WHAT, f"{name!r} is neither true nor false")
        held[name] = (stretch, arrivals, of_each)
    decoded = {
        name: _decoded(taken[len(boxed) + at], counts, name, or_nothing=True)
        for at, name in enumerate(objects)
    }
    return ReadSide(
        expand_ranges(first, counts)[0],
        decoded,
        held,
        (of_rows[:, -1], [each for each in taken[-1] if each]) if is_nested else None,
    )


def _read_header(header: bytes) -> tuple[list[str], list[tuple[str, np.dtype[Any]]], bool]:
    objects, kinds, is_nested = decode(header[_HEAD.size :])
    bags = [(name, np.dtype(kind)) for name, kind in kinds]
    names = [*objects, *(name for name, _ in bags)]
    if not all(isinstance(name, str) for name in names) or type(is_nested) is not bool:
        raise damaged(WHAT, "what it holds has no names")
    if len(set(objects)) < len(objects) or len(dict(bags)) < len(bags):
        raise damaged(WHAT, "what it holds is there twice")
    for name, dtype in bags:
        if dtype.kind not in "biufmMO":
            raise damaged(WHAT, f"the values of {name!r} cannot be of type {dtype}")
    return objects, bags, is_nested


@final
class _Cutter:
    """Takes stored values apart, all of them at once, from the front."""

    def __init__(self, values: list[bytes]) -> None:
        self._values = values
        self._at = np.zeros(len(values), dtype=np.int64)
        self._ends = np.fromiter(map(len, values), dtype=np.int64, count=len(values))

    def cut(self, sizes: Int64Array) -> list[bytes]:
        """Return the next bytes of each value."""
        low, self._at = self._at, self._at + sizes
        if (self._at > self._ends).any():
            raise damaged(WHAT, "it has fewer bytes than it says")
        bounds = zip(self._values, low.tolist(), self._at.tolist(), strict=True)
        return [value[begin:end] for value, begin, end in bounds]

    def take(self, sizes: Int64Array) -> bytes:
        """Return the next bytes of each value, one after the other."""
        return b"".join(self.cut(sizes))

    def finish(self) -> None:
        """Raise ``StateError`` if something is left."""
        if (self._at != self._ends).any():
            raise damaged(WHAT, "it has more bytes than it says")


def _boxed(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "O"


def _slices(
    array: NDArray[Any], bounds: Int64Array, dtype: np.dtype[Any] | None = None
) -> list[bytes]:
    array = array[bounds[0] : bounds[-1]].astype(dtype or array.dtype, copy=False)
    width = array.dtype.itemsize * (array.shape[1] if array.ndim == 2 else 1)
    data = array.tobytes()
    return [data[low:high] for low, high in pairwise(((bounds - bounds[0]) * width).tolist())]


def _objects_of(values: NDArray[Any], bounds: Int64Array) -> list[bytes]:
    """Return stretches of objects; no bytes where there are none."""
    return _encoded(values, bounds, np.diff(bounds) > 0)


def _objects_in(column: NDArray[Any], bounds: Int64Array) -> list[bytes]:
    """Return the objects of stretches of rows; no bytes where they are all null."""
    low = int(bounds[0])
    there = [value is not None for value in column[low : bounds[-1]].tolist()]
    held = np.concatenate(([0], np.cumsum(there)))[bounds - low]
    return _encoded(column, bounds, np.diff(held) > 0)


def _encoded(values: NDArray[Any], bounds: Int64Array, some: NDArray[np.bool_]) -> list[bytes]:
    low = int(bounds[0])
    pairs = list(pairwise((bounds - low).tolist()))
    filled = np.flatnonzero(some).tolist()
    data = encode_slices(values[low : bounds[-1]].tolist(), [pairs[at] for at in filled])
    return _put_in(filled, data, len(pairs))


def _nested_in(packed: Packed, begin: Int64Array, bounds: Int64Array) -> list[bytes]:
    """Return the nested rows of stretches of rows; no bytes where there are none."""
    at = begin[bounds]
    filled = np.flatnonzero(np.diff(at))
    data = packed.cut(at[filled], int(at[-1])) if filled.size else []
    return _put_in(filled.tolist(), data, len(bounds) - 1)


def _put_in(places: list[int], data: list[bytes], count: int) -> list[bytes]:
    every = [b""] * count
    for at, each in zip(places, data, strict=True):
        every[at] = each
    return every


def _sums(of_rows: Int64Array, counts: Int64Array) -> Int64Array:
    """Return what the rows of each value have together, a column for each column."""
    sums = np.zeros((len(counts), of_rows.shape[1]), dtype=np.int64)
    np.add.at(sums, repeated(np.arange(len(counts)), counts), of_rows)
    return sums


def _decoded(
    values: list[bytes], counts: Int64Array, name: str, *, or_nothing: bool = False
) -> NDArray[Any]:
    """Return the objects of each value, one after the other."""
    found: list[Any] = []
    for value, count in zip(values, counts.tolist(), strict=True):
        if value:
            objects = decode(value)
            if not isinstance(objects, list) or len(objects) != count:
                raise damaged(WHAT, f"{name!r} is of another length")
            found += objects
        elif or_nothing:
            found += [None] * count
        elif count:
            raise damaged(WHAT, f"{name!r} is not there")
    return object_array(found)
