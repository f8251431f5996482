"""The key dictionary: maps keys to small integer ids and back.

The file is long because texts, numbers and several columns each have a fast way into the same ids,
and a dictionary may go from one way to another in the middle of a run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import chain, count, islice
from typing import Any, Protocol, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.records.columns import Column
from lowwater.engine.records.python_values import python_values
from lowwater.errors import InternalError
from lowwater.state.arrays import distinct, object_array, widened
from lowwater.state.table import Field, Index, RowTable
from lowwater.time import Int64Array

# Approximate bytes per key: a value with its index slot; the part ids of a composite key; a Python
# object with its dict slot.
_NUMBER, _PAIR, _OBJECT = 32, 48, 200
_FEW = 256
"""So few values are looked up one by one: Arrow takes longer to begin to find the distinct ones."""


@final
class KeyDictionary:
    """Assigns each distinct key a small integer id, and frees the id when the key is forgotten.

    Ids are reused, so the dictionary does not grow with keys that come and go. A null in a key
    column is a value of its own, equal to other nulls: whether two keys with nulls match is for the
    operator to say (:meth:`with_nulls`).

    Args:
        count: How many columns make up a key.
    """

    def __init__(self, count: int) -> None:
        self._parts: list[_Codes | None] = [None] * count
        self._pairs: RowTable | None = None
        self._index: Index | None = None
        if count > 1:
            names = [f"part{at}" for at in range(count)]
            self._pairs = RowTable([Field(name, np.int64) for name in names])
            self._index = Index(self._pairs, names)

    def __len__(self) -> int:
        """Return how many keys have an id."""
        if self._index is not None:
            return len(self._index)
        return len(self._parts[0]) if self._parts[0] is not None else 0

    @property
    def capacity(self) -> int:
        """One more than the largest id ever assigned."""
        if self._pairs is not None:
            return self._pairs.capacity
        return self._parts[0].capacity if self._parts[0] is not None else 0

    @property
    def nbytes(self) -> int:
        """Approximate size of the keys in bytes; an estimate where they are Python objects."""
        parts = sum(part.nbytes for part in self._parts if part is not None)
        return parts + (0 if self._pairs is None else self._pairs.capacity * _PAIR)

    def kinds(self) -> list[tuple[pa.DataType | None, str]]:
        """Return the Arrow type (if known) and the numpy dtype of each key column."""
        return [part.kind for part in self._parts if part is not None]

    def become(self, kinds: Sequence[tuple[pa.DataType | None, str]]) -> None:
        """Widen the types of keys by those that another dictionary has seen.

        Args:
            kinds: What :meth:`kinds` of that one returned.
        """
        for at, (kind, dtype) in enumerate(kinds):
            part = self._parts[at]
            if part is not None and part.kind == (kind, dtype):
                continue
            if part is None or len(part) == (part.null >= 0):  # no value has come that is not null
                self._parts[at] = _retyped(part, Column(np.empty(0, dtype), None, kind))
            elif isinstance(part, _NumberCodes):
                self._parts[at] = part.as_objects(kind)
            elif isinstance(part, _ObjectCodes):
                part.beside(kind)

    def restore(self, ids: Int64Array, columns: tuple[Column, ...]) -> None:
        """Fill an empty dictionary with these keys under these ids (distinct, ascending)."""
        if self._pairs is None or self._index is None:
            part = self._parts[0] = _codes_for(columns[0])
            part.restore(ids, columns[0])
            return
        codes = [self._encode_part(at, column) for at, column in enumerate(columns)]
        self._pairs.restore(ids)
        for at, code in enumerate(codes):
            self._pairs[f"part{at}"][ids] = code
        self._index.insert(ids)

    def encode(self, columns: tuple[Column, ...]) -> Int64Array:
        """Return the id of each row's key, assigning ids to new keys. O(n) expected."""
        if self._index is None:
            return self._encode_part(0, columns[0])
        codes = [self._encode_part(at, column) for at, column in enumerate(columns)]
        return self._index.find_or_insert(*codes)[0]

    def decode(self, ids: Int64Array) -> tuple[Column, ...]:
        """Return the key columns of ids. O(n)."""
        if self._pairs is None:
            return (self._part(0).take(ids),)
        return tuple(
            self._part(at).take(self._pairs[f"part{at}"][ids]) for at in range(len(self._parts))
        )

    def with_nulls(self, ids: Int64Array) -> NDArray[np.bool_] | None:
        """Return which ids are of keys with a null in a column; ``None`` for none. O(n)."""
        found: NDArray[np.bool_] | None = None
        for at, part in enumerate(self._parts):
            if part is None or part.null < 0:
                continue
            codes = ids if self._pairs is None else self._pairs[f"part{at}"][ids]
            null = codes == part.null
            found = null if found is None else found | null
        return found if found is not None and found.any() else None

    def retain(self, live: NDArray[np.bool_]) -> None:
        """Forget all keys except those whose ids are live.

        Args:
            live: Whether each id is live, bool; ids beyond its length are forgotten too.
        """
        if self._pairs is None or self._index is None:
            if self._parts[0] is not None:
                self._parts[0].retain(live)
            return
        rows = self._pairs.live()
        kept = _among(live, rows)
        self._index.remove(rows[~kept])
        self._pairs.release(rows[~kept])
        for at, part in enumerate(self._parts):
            if part is not None:
                used = np.zeros(part.capacity, dtype=np.bool_)
                used[self._pairs[f"part{at}"][rows[kept]]] = True
                part.retain(used)

    def _encode_part(self, at: int, column: Column) -> Int64Array:
        part = self._parts[at]
        if part is None or part.is_untyped:
            part = self._parts[at] = _retyped(part, column)
        if column.is_null():  # whatever its type is
            return part.encode_nulls(len(column))
        if isinstance(part, _NumberCodes) and not part.takes(column):
            # A value of another type arrived. Keep the ids and look keys up as objects from now on.
            part = self._parts[at] = part.as_objects(column.type)
        return part.encode(column)

    def _part(self, at: int) -> _Codes:
        part = self._parts[at]
        if part is None:
            raise InternalError("a key id was decoded before any key was encoded")
        return part


class _Codes(Protocol):
    """The dictionary of one key column."""

    def __len__(self) -> int: ...

    @property
    def capacity(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def kind(self) -> tuple[pa.DataType | None, str]: ...

    @property
    def null(self) -> int:
        """The code of null; -1 if it has none."""

    @property
    def is_untyped(self) -> bool:
        """Whether it holds null alone, which does not say of which type other values are."""

    def restore(self, ids: Int64Array, column: Column) -> None: ...

    def encode(self, column: Column) -> Int64Array: ...

    def encode_nulls(self, count: int) -> Int64Array: ...

    def take(self, codes: Int64Array) -> Column: ...

    def retain(self, live: NDArray[np.bool_]) -> None: ...


def _codes_for(column: Column) -> _Codes:
    arrow = column.arrow
    if arrow is not None and not _is_number(arrow.type):
        return _ObjectCodes(arrow.type)
    if column.data.dtype == object:
        return _ObjectCodes(column.type)
    return _NumberCodes(column)


def _retyped(part: _Codes | None, column: Column) -> _Codes:
    """Return a dictionary for the type of a column, with the null of one that has no more."""
    codes = _codes_for(column)
    if part is not None and part.null >= 0:
        codes.restore(np.array([part.null], dtype=np.int64), Column.of_objects([None]))
    return codes


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))
    )


@final
class _NumberCodes:
    """Codes of ints, floats, bools, dates and times, in a vectorised hash index."""

    def __init__(self, column: Column) -> None:
        self._type = column.type
        self._dtype = column.data.dtype
        self._table = RowTable([Field("value", np.int64)])
        self._index = Index(self._table, ["value"])
        self.null = -1  # a row that is not in the index

    def __len__(self) -> int:
        return len(self._table)

    @property
    def capacity(self) -> int:
        return self._table.capacity

    @property
    def nbytes(self) -> int:
        return self._table.capacity * _NUMBER

    @property
    def kind(self) -> tuple[pa.DataType | None, str]:
        return self._type, self._dtype.str

    @property
    def is_untyped(self) -> bool:
        return False

    def restore(self, ids: Int64Array, column: Column) -> None:
        self._table.restore(ids)
        nulls = column.nulls()
        if nulls is not None:
            (self.null,) = ids[nulls].tolist()
            ids, column = ids[~nulls], column.take(np.flatnonzero(~nulls))
        if ids.size:
            self._table["value"][ids] = self._numbers(column)
            self._index.insert(ids)

    def takes(self, column: Column) -> bool:
        arrow = column.arrow
        if arrow is not None and not _is_number(arrow.type):
            return False
        return column.data.dtype == self._dtype and column.type == self._type

    def encode(self, column: Column) -> Int64Array:
        numbers, nulls = self._numbers(column), column.nulls()
        if nulls is None:
            return self._index.find_or_insert(numbers)[0]
        codes = self.encode_nulls(len(numbers))
        codes[~nulls] = self._index.find_or_insert(numbers[~nulls])[0]
        return codes

    def encode_nulls(self, count: int) -> Int64Array:
        if self.null < 0:
            (self.null,) = self._table.allocate(1).tolist()
        return np.full(count, self.null, dtype=np.int64)

    @staticmethod
    def _numbers(column: Column) -> Int64Array:
        data = column.data
        if data.dtype == np.float64:
            data = (data + 0.0).view(np.int64)  # adding 0.0 turns -0.0 into 0.0: one key
        return data.astype(np.int64, copy=False)

    def take(self, codes: Int64Array) -> Column:
        data = self._table["value"][codes]
        valid = _valid(codes, self.null)
        if self._dtype == np.float64:
            return Column(data.view(np.float64), valid, self._type)
        return Column(data.astype(self._dtype, copy=False), valid, self._type)

    def retain(self, live: NDArray[np.bool_]) -> None:
        rows = self._table.live()
        dead = rows[~_among(live, rows)]
        self._index.remove(dead[dead != self.null])
        if self.null in dead:
            self.null = -1
        self._table.release(dead)

    def as_objects(self, other: pa.DataType | None) -> _ObjectCodes:
        """Convert to codes of arbitrary hashable values, keeping all codes."""
        rows = self._table.live()
        codes = dict(zip(self.take(rows).to_list(exact=True), rows.tolist(), strict=True))
        return _ObjectCodes(self._type if other == self._type else None, codes)


@final
class _ObjectCodes:
    """Codes of strings, bytes and other hashable values, in a Python dict."""

    def __init__(self, type: pa.DataType | None, codes: dict[Hashable, int] | None = None) -> None:
        self._type = _plain(type)
        # A look-up calls the factory for the code of a value that is new; there is none between.
        self._codes: defaultdict[Hashable, int] = defaultdict(None, codes or {})
        given = self._given()
        self.capacity = int(given.max()) + 1 if len(given) else 0
        self._values: NDArray[Any] = np.empty(max(64, 2 * self.capacity), dtype=object)
        self._values[given] = object_array(list(self._codes))
        taken = np.zeros(self.capacity, dtype=np.bool_)
        taken[given] = True
        self._free: list[int] = np.flatnonzero(~taken).tolist()
        self._known: dict[tuple[Hashable, ...], _KnownDictionary] = {}

    def __len__(self) -> int:
        return len(self._codes)

    def beside(self, type: pa.DataType | None) -> None:
        """Record the type of values seen elsewhere; ``None`` for several."""
        if self._type != _plain(type):
            self._type = None

    @property
    def nbytes(self) -> int:
        return self.capacity * _OBJECT

    @property
    def kind(self) -> tuple[pa.DataType | None, str]:
        return self._type, "|O"

    @property
    def null(self) -> int:
        return self._codes.get(None, -1)

    @property
    def is_untyped(self) -> bool:
        known = self._type is not None and not pa.types.is_null(self._type)
        return len(self._codes) == 1 and None in self._codes and not known

    def restore(self, ids: Int64Array, column: Column) -> None:
        codes = dict(zip(column.to_list(exact=True), ids.tolist(), strict=True))
        self.__init__(self._type, codes)

    def encode(self, column: Column) -> Int64Array:
        arrow = column.arrow
        if self._type is not None and len(column) and _plain(column.type) != self._type:
            self._type = None  # values of several types
        if arrow is None or _is_number(arrow.type):
            return self._look_up(column.to_list(exact=True))
        if not pa.types.is_dictionary(arrow.type):
            if len(arrow) <= _FEW:
                return self._look_up(python_values(arrow, exact=True))
            arrow = arrow.dictionary_encode(null_encoding="encode")
            codes = self._look_up(python_values(arrow.dictionary, exact=True))
            return codes[arrow.indices.to_numpy(zero_copy_only=False)]
        if not arrow.indices.null_count:
            return self._encode_dictionary(arrow)
        codes = self.encode_nulls(len(arrow))
        present = np.flatnonzero(arrow.indices.is_valid().to_numpy(zero_copy_only=False))
        codes[present] = self._encode_dictionary(arrow.take(pa.array(present)))
        return codes

    def encode_nulls(self, count: int) -> Int64Array:
        return np.full(count, self._look_up([None])[0], dtype=np.int64)

    def _encode_dictionary(self, arrow: pa.DictionaryArray) -> Int64Array:
        """Return the codes of values that are all present, looking each up only once."""
        known = self._remembered(arrow.dictionary)
        indices = arrow.indices.to_numpy(zero_copy_only=False)
        codes = known.codes[indices]
        missing = codes < 0
        if missing.any():
            new = distinct(indices[missing])
            known.codes[new] = self._look_up(
                python_values(known.values.take(pa.array(new)), exact=True)
            )
            codes = known.codes[indices]
        return codes

    def take(self, codes: Int64Array) -> Column:
        return Column(self._values[codes], _valid(codes, self.null), self._type)

    def retain(self, live: NDArray[np.bool_]) -> None:
        given = self._given()
        kept = _among(live, given)
        dead = given[~kept]
        if 2 * len(dead) > len(given):
            given = given[kept]
            left = zip(self._values[given].tolist(), given.tolist(), strict=True)
            self._codes = defaultdict(None, left)
        else:
            for value in self._values[dead].tolist():
                del self._codes[value]
        self._values[dead] = None
        self._free += dead.tolist()
        gone = np.zeros(self.capacity + 1, dtype=np.bool_)  # the last one is of no code, -1
        gone[dead] = True
        for known in self._known.values():
            known.codes[gone[known.codes]] = -1

    def _given(self) -> Int64Array:
        return np.fromiter(self._codes.values(), dtype=np.int64, count=len(self._codes))

    def _look_up(self, values: list[Any]) -> Int64Array:
        """Return the codes of values; new ones get codes, in order of first place.

        The loop runs inside map and defaultdict, in C, and looks each value up once, new or not: a
        fraction of the cost of a loop in Python.
        """
        known, free = self._codes, self._free
        before = len(known)
        known.default_factory = chain(reversed(free), count(self.capacity)).__next__
        try:
            codes = map(known.__getitem__, values)
            found = np.fromiter(codes, dtype=np.int64, count=len(values))
        except BaseException:
            while len(known) > before:  # values that were added without a place in _values
                known.popitem()
            raise
        finally:
            known.default_factory = None
        if len(known) > before:
            new = list(islice(reversed(known), len(known) - before))
            self._record(new[::-1])
        return found

    def _record(self, new: list[Hashable]) -> None:
        """Record values that a look-up has given codes: freed ones first, and then new ones."""
        kept = max(0, len(self._free) - len(new))
        codes = self._free[kept:][::-1]
        del self._free[kept:]
        top = self.capacity + len(new) - len(codes)
        codes += range(self.capacity, top)
        self.capacity = top
        if top > len(self._values):
            self._values = widened(self._values, max(top, 2 * len(self._values)), None)
        self._values[codes] = object_array(new)

    def _remembered(self, dictionary: pa.Array) -> _KnownDictionary:
        """Return the cached codes of an Arrow dictionary, which consecutive bundles often share."""
        addresses = (0 if b is None else b.address for b in dictionary.buffers())
        # Values of two types may share their buffers, such as text and its bytes.
        place = (dictionary.type, dictionary.offset, len(dictionary), *addresses)
        known = self._known.get(place)
        if known is None:
            # Readers make a dictionary anew for each batch, mostly of the same values.
            same = (each for each in self._known.values() if each.values.equals(dictionary))
            before = next(same, None)
            known = _KnownDictionary(dictionary, None if before is None else before.codes)
            if len(self._known) >= 4:
                self._known.pop(next(iter(self._known)))
            self._known[place] = known
        return known


@final
class _KnownDictionary:
    """An Arrow dictionary and the codes of its values so far.

    Holds a reference to the dictionary: the cache is keyed by buffer addresses, which Arrow could
    otherwise reuse for another dictionary.
    """

    __slots__ = ("codes", "values")

    def __init__(self, values: pa.Array, codes: Int64Array | None = None) -> None:
        self.values = values
        self.codes = np.full(len(values), -1, dtype=np.int64) if codes is None else codes


def _plain(type: pa.DataType | None) -> pa.DataType | None:
    """Return the value type of a dictionary type; other types unchanged."""
    if type is not None and pa.types.is_dictionary(type):
        return type.value_type
    return type


def _valid(codes: Int64Array, null: int) -> NDArray[np.bool_] | None:
    """Return which codes are not that of null; ``None`` for all."""
    if null < 0:
        return None
    valid = codes != null
    return None if valid.all() else valid


def _among(live: NDArray[np.bool_], rows: Int64Array) -> NDArray[np.bool_]:
    kept = np.zeros(len(rows), dtype=np.bool_)
    inside = rows < len(live)
    kept[inside] = live[rows[inside]]
    return kept
