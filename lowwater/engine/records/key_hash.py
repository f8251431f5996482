"""The hash of a key: the same on every runner, in every process, on every machine.

The file is long because the kinds of values hash alike where Python takes them as equal, which is
judged in one place.

State, checkpoints and logs place keys by it, so **it is a stored format**: a change to it moves
keys, and every format that depends on it needs a new version. Golden values in the tests pin it.

The hash of a value is the XXH64 (:mod:`lowwater.state.xxh64`) of bytes that depend on its kind,
with the kind's number as the seed. Words are 8 bytes, little-endian.

==  ============  ==============================================================================
 0  text          its UTF-8 bytes; a lone surrogate is encoded in 3 bytes like other characters
 1  bytes         the bytes
 2  number        one word: Python's hash of numbers: the magnitude modulo ``2**61 - 1``, with
                  the number's sign (in two's complement); -2 for -1, 314159 for infinity
 3  local time    dates (their midnight) and datetimes without a zone: two words, whole seconds
                  since 1970 and the nanoseconds beyond them
 4  instant       datetimes with a zone: the same, in UTC
 5  time of day   one word: microseconds since midnight (less the offset from UTC, if it has one)
 6  duration      two words: whole seconds and the nanoseconds beyond them
 7  sequence      a tuple, and a key of several columns: one word per item, the item's hash
 8  set           one word per item, the item's hash, in rising order
 9  UUID          its 16 bytes
10  null          no bytes
11  NaN           no bytes
==  ============  ==============================================================================

Keys that :class:`~lowwater.engine.records.keys.KeyDictionary` treats as equal have equal hashes,
whatever columns they come from: ``1``, ``1.0``, ``True`` and ``Decimal("1.00")`` are equal to
Python, and neither the width of an Arrow type nor its encoding changes a value. There is one
exception. When a column of instants changes its type during a run, the dictionary compares them as
Python does, to which the two hours that a zone repeats in autumn are equal; here they differ.
"""

from __future__ import annotations

import datetime as dt
import numbers
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache, partial
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.records.columns import Column
from lowwater.errors import InvalidArgument, StateError, describe
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import distinct
from lowwater.state.xxh64 import UInt64Array, hash_bytes, hash_words
from lowwater.time import Int64Array

GroupArray: TypeAlias = NDArray[np.uint16]

KEY_GROUPS = 32
"""How many key groups an embedded run has.

A commit writes a block for each group with changes: with 128 of them, 1,000 changed rows cost 2.4
times the CPU that they cost with 32, which are no dearer than one row a value was.
"""

_MOST_GROUPS = 1 << 16
_MODULUS = np.uint64(2**61 - 1)  # a Mersenne prime: sys.hash_info.modulus of 64-bit builds
_INFINITE = np.int64(314159)  # sys.hash_info.inf
_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY = 86_400
_EPOCH_DAY = 719_163  # date(1970, 1, 1).toordinal()
_SAMPLE = 16
_BLOCK = 1 << 13


class _Kind(IntEnum):
    TEXT = 0
    BYTES = 1
    NUMBER = 2
    LOCAL_TIME = 3
    INSTANT = 4
    TIME_OF_DAY = 5
    DURATION = 6
    SEQUENCE = 7
    SET = 8
    UUID = 9
    NULL = 10
    NAN = 11


def hash_keys(columns: Sequence[Column]) -> UInt64Array:
    """Return the hash of each row's key, uint64, shape (n,). O(n).

    Arrow columns of numbers, times, text and bytes are hashed without Python code per row. Python
    objects other than text and ints cost some per distinct value.

    >>> hash_keys([Column.of_objects(["a", ""])]).tolist()
    [15154266338359012955, 17241709254077376921]

    Args:
        columns: The key columns, at least one.

    Raises:
        StateError: A key is of a type that cannot be stored.
    """
    hashes = [_hash_column(column) for column in columns]
    return hashes[0] if len(hashes) == 1 else hash_words(hashes, _Kind.SEQUENCE)


def key_groups(columns: Sequence[Column], groups: int) -> GroupArray:
    """Return the key group of each row, uint16: the hash of its key modulo their number. O(n).

    Args:
        columns: The key columns, at least one.
        groups: How many key groups there are, 1 to 65,536.

    Raises:
        InvalidArgument: The number of groups is out of range.
        StateError: A key is of a type that cannot be stored.
    """
    if not 1 <= groups <= _MOST_GROUPS:
        raise InvalidArgument(
            f"{describe('groups', groups)} must be 1 to {_MOST_GROUPS}", hint=f"Use {KEY_GROUPS}"
        )
    return (hash_keys(columns) % np.uint64(groups)).astype(np.uint16)


def _hash_column(column: Column) -> UInt64Array:
    array = column.arrow
    if array is None:
        return _hash_data(column)
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _hash_dictionary(array)
    if _is_binary(kind):
        return _hash_binary(array)
    if pa.types.is_uint64(kind):  # Column makes objects of those beyond int64
        values = array.fill_null(0).to_numpy(zero_copy_only=False)
        return _with_nulls(_in_blocks(_hash_unsigned, values), array)
    return _hash_data(column)


def _hash_data(column: Column) -> UInt64Array:
    data, kind = column.data, column.type
    if data.dtype == object:
        return _hash_objects(column.to_list())
    if data.dtype == np.float64:
        hashes = _in_blocks(_hash_floats, data)
    elif kind is not None and pa.types.is_temporal(kind):
        hashes = _in_blocks(partial(_hash_temporal, kind), data)
    else:
        hashes = _in_blocks(_hash_ints, data)
    if column.valid is not None:
        hashes[~column.valid] = _empty(_Kind.NULL)
    return hashes


def _in_blocks(
    hash_block: Callable[[NDArray[Any]], UInt64Array], values: NDArray[Any]
) -> UInt64Array:
    """Hash some thousand values at a time, so that intermediate arrays stay in the cache."""
    hashes = np.empty(len(values), dtype=np.uint64)
    for at in range(0, len(values), _BLOCK):
        hashes[at : at + _BLOCK] = hash_block(values[at : at + _BLOCK])
    return hashes


def _hash_dictionary(array: pa.DictionaryArray) -> UInt64Array:
    """Hash the dictionary's values, then look up each row's."""
    indices = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
    values = array.dictionary
    if not len(values):
        return np.full(len(array), _empty(_Kind.NULL))
    if len(values) <= len(indices):
        hashes = _hash_column(Column.from_arrow(values))[indices]
    else:  # a slice of a larger column
        used = distinct(indices)
        hashes = _hash_column(Column.from_arrow(values.take(pa.array(used))))
        hashes = hashes[np.searchsorted(used, indices)]
    return _with_nulls(hashes, array)


def _with_nulls(hashes: UInt64Array, array: pa.Array) -> UInt64Array:
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = _empty(_Kind.NULL)
    return hashes


# Text and bytes.


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        _is_text(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def _hash_binary(array: pa.Array) -> UInt64Array:
    sample = array.slice(0, len(array) // _SAMPLE)
    if len(sample) > 256 and len(sample.dictionary_encode().dictionary) < 0.75 * len(sample):
        # Arrow finds repeated values faster than we hash them. A dictionary of values that hardly
        # repeat would cost ten times as much as their hashes, hence the sample.
        return _hash_dictionary(array.dictionary_encode())
    kind = _Kind.TEXT if _is_text(array.type) else _Kind.BYTES
    return _with_nulls(hash_bytes(*_stretches(array), kind), array)


def _stretches(array: pa.Array) -> tuple[Any, Int64Array, Int64Array]:
    """Return an Arrow array's buffer of text or bytes, and each value's start and length."""
    kind = array.type
    if pa.types.is_fixed_size_binary(kind):
        starts = np.arange(array.offset, array.offset + len(array), dtype=np.int64)
        width = kind.byte_width
        return array.buffers()[1], starts * width, np.full(len(array), width, dtype=np.int64)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
        kind = array.type
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    _, offsets, data = array.buffers()
    if not len(array):
        return None, np.empty(0, np.int64), np.empty(0, np.int64)
    offsets = np.frombuffer(offsets, np.int64 if large else np.int32)
    bounds: Int64Array = offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return data, bounds[:-1], np.diff(bounds)


def _hash_pieces(pieces: Sequence[bytes], kind: _Kind) -> UInt64Array:
    lengths = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
    return hash_bytes(b"".join(pieces), np.cumsum(lengths) - lengths, lengths, kind)


def _hash_text(values: list[Any]) -> UInt64Array:
    try:
        return hash_bytes(*_stretches(pa.array(values, pa.large_string())), _Kind.TEXT)
    except (UnicodeEncodeError, pa.ArrowException):  # lone surrogates
        pieces = [str.encode(value, "utf-8", "surrogatepass") for value in values]
        return _hash_pieces(pieces, _Kind.TEXT)


# Numbers.


def _hash_unsigned(values: UInt64Array) -> UInt64Array:
    return hash_words([_residues(values)], _Kind.NUMBER)


def _hash_ints(values: NDArray[Any]) -> UInt64Array:
    values = values.astype(np.int64, copy=False)  # or bool
    sign = values >> np.int64(63)
    magnitudes = ((values ^ sign) - sign).view(np.uint64)
    return _hash_residues(_residues(magnitudes), sign)


def _hash_floats(values: NDArray[np.float64]) -> UInt64Array:
    """Hash floats by their exact value: mantissa times a power of two, modulo the prime."""
    bits = np.ascontiguousarray(values, dtype=np.float64).view(np.int64)
    exponents = (bits >> 52) & 0x7FF
    mantissas = bits & ((1 << 52) - 1)
    mantissas = np.where(exponents > 0, mantissas | (1 << 52), mantissas).view(np.uint64)
    # 2**61 is 1 modulo the prime, so multiplying by a power of two rotates the 61 bits: here by
    # (exponent - 1075) modulo 61.
    turns = ((np.maximum(exponents, 1) + 23) % 61).view(np.uint64)
    residues = (mantissas << turns) & _MODULUS
    residues |= mantissas >> (np.uint64(61) - turns)
    residues[np.isinf(values)] = _INFINITE
    hashes = _hash_residues(residues, bits >> 63)
    nan = np.isnan(values)
    if nan.any():
        hashes[nan] = _empty(_Kind.NAN)
    return hashes


def _residues(magnitudes: UInt64Array) -> UInt64Array:
    """Return values modulo ``2**61 - 1``, uint64."""
    residues: UInt64Array = (magnitudes & _MODULUS) + (magnitudes >> np.uint64(61))
    # Below the modulus the difference wraps around, so that the minimum is the residue itself.
    return np.minimum(residues, residues - _MODULUS)


def _hash_residues(residues: UInt64Array, sign: Int64Array) -> UInt64Array:
    signed = (residues.view(np.int64) ^ sign) - sign
    signed -= signed == -1  # Python's hash is never -1, which its C code returns for errors
    return hash_words([signed.view(np.uint64)], _Kind.NUMBER)


# Times.


def _hash_temporal(kind: pa.DataType, data: Int64Array) -> UInt64Array:
    if pa.types.is_date(kind):
        days = data if pa.types.is_date32(kind) else data // (_DAY * 1000)
        return _hash_seconds(days * _DAY, np.zeros_like(days), _Kind.LOCAL_TIME)
    nanos = _NANOS[kind.unit]
    if pa.types.is_time(kind):
        # Python's times of day have microseconds only, so keys that are objects do not have more.
        micros = data // 1000 if nanos == 1 else data * (nanos // 1000)
        return hash_words([micros.view(np.uint64)], _Kind.TIME_OF_DAY)
    seconds, rest = np.divmod(data, 10**9 // nanos)
    if pa.types.is_duration(kind):
        return _hash_seconds(seconds, rest * nanos, _Kind.DURATION)
    return _hash_seconds(
        seconds, rest * nanos, _Kind.LOCAL_TIME if kind.tz is None else _Kind.INSTANT
    )


def _hash_seconds(seconds: Int64Array, nanos: Int64Array, kind: _Kind) -> UInt64Array:
    return hash_words([seconds.view(np.uint64), nanos.view(np.uint64)], kind)


def _hash_nanos(values: list[int], kind: _Kind) -> UInt64Array:
    pairs = [divmod(value, 10**9) for value in values]
    seconds, nanos = np.array(pairs, dtype=np.int64).T.copy()
    return _hash_seconds(seconds, nanos, kind)


# Python objects: grouped by kind, so that all values of a kind are hashed in one call.


def _hash_objects(values: list[Any]) -> UInt64Array:
    types = set(map(type, values))
    if types == {str}:
        return _hash_text(values)
    if types == {int}:
        return _hash_numbers(values)
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    if len(places) == len(values):
        return _hash_distinct(values)
    rows = np.fromiter(map(places.__getitem__, values), dtype=np.int64, count=len(values))
    return _hash_distinct(list(places))[rows]


def _hash_distinct(values: list[Any]) -> UInt64Array:
    kinds = np.fromiter(map(_kind_of, values), dtype=np.int64, count=len(values))
    hashes = np.empty(len(values), dtype=np.uint64)
    for kind in distinct(kinds).tolist():
        rows = np.flatnonzero(kinds == kind)
        hashes[rows] = _HASH[_Kind(kind)]([values[row] for row in rows.tolist()])
    return hashes


def has_hash(value: Any) -> bool:
    """Return whether a value, which Python can hash, is one that :func:`hash_keys` takes."""
    try:
        kind = _kind_of_type(type(value))  # type: ignore[arg-type]  # classes are hashable
    except StateError:
        return False
    if kind in (_Kind.SEQUENCE, _Kind.SET):
        return all(map(has_hash, value))
    return True


def _kind_of(value: Any) -> _Kind:
    kind = _kind_of_type(type(value))  # type: ignore[arg-type]  # classes are hashable
    if kind in _MAY_BE_NAN and value != value:  # NaN and NaT differ from themselves
        return _Kind.NAN
    if kind is _Kind.LOCAL_TIME and isinstance(value, dt.datetime):
        return _Kind.LOCAL_TIME if value.utcoffset() is None else _Kind.INSTANT
    return kind


@lru_cache(maxsize=256)
def _kind_of_type(of: type) -> _Kind:
    for bases, kind in _KINDS:
        if issubclass(of, bases):
            return kind
    raise StateError(
        f"a key of type {of.__module__}.{of.__qualname__} cannot be stored",
        hint="Use plain values as keys: numbers, text, bytes, dates, times, UUIDs, or tuples of "
        "these",
    )


_KINDS: tuple[tuple[type | tuple[type, ...], _Kind], ...] = (
    (type(None), _Kind.NULL),
    (str, _Kind.TEXT),
    ((bytes, memoryview), _Kind.BYTES),
    (np.timedelta64, _Kind.DURATION),  # before numbers: numpy derives it from integers
    ((dt.date, np.datetime64), _Kind.LOCAL_TIME),
    (dt.time, _Kind.TIME_OF_DAY),
    (dt.timedelta, _Kind.DURATION),
    ((numbers.Number, np.bool_), _Kind.NUMBER),
    (tuple, _Kind.SEQUENCE),
    (frozenset, _Kind.SET),
    (UUID, _Kind.UUID),
)
_MAY_BE_NAN = frozenset({_Kind.NUMBER, _Kind.LOCAL_TIME, _Kind.DURATION})


def _hash_numbers(values: list[Any]) -> UInt64Array:
    try:
        residues = np.fromiter(map(hash, values), dtype=np.int64, count=len(values))
    except OverflowError as error:
        raise StateError(
            "this Python hashes numbers to more than 64 bits", hint="Use CPython"
        ) from error
    return hash_words([residues.view(np.uint64)], _Kind.NUMBER)


def _hash_local(values: list[Any]) -> UInt64Array:
    return _hash_nanos([_local_nanos(value) for value in values], _Kind.LOCAL_TIME)


def _local_nanos(value: Any) -> int:
    if isinstance(value, np.datetime64):
        seconds = value.astype("datetime64[s]")
        rest = (value - seconds).astype("timedelta64[ns]")
        return int(seconds.astype(np.int64)) * 10**9 + int(rest.astype(np.int64))
    seconds = (value.toordinal() - _EPOCH_DAY) * _DAY
    if not isinstance(value, dt.datetime):
        return seconds * 10**9
    seconds += value.hour * 3600 + value.minute * 60 + value.second
    # A pandas Timestamp also has nanoseconds.
    return (seconds * 10**6 + value.microsecond) * 1000 + getattr(value, "nanosecond", 0)


def _hash_instants(values: list[dt.datetime]) -> UInt64Array:
    # Python treats the two hours that a zone repeats as equal, and hashes the first.
    offsets = [_micros(value.replace(fold=0).utcoffset()) for value in values]
    nanos = [
        _local_nanos(value) - 1000 * offset for value, offset in zip(values, offsets, strict=True)
    ]
    return _hash_nanos(nanos, _Kind.INSTANT)


def _hash_times(values: list[dt.time]) -> UInt64Array:
    micros = [
        (value.hour * 3600 + value.minute * 60 + value.second) * 10**6
        + value.microsecond
        - _micros(value.utcoffset())
        for value in values
    ]
    return hash_words([np.array(micros, dtype=np.int64).view(np.uint64)], _Kind.TIME_OF_DAY)


def _micros(value: dt.timedelta | None) -> int:
    return 0 if value is None else value // dt.timedelta(microseconds=1)


def _hash_durations(values: list[Any]) -> UInt64Array:
    return _hash_nanos([_duration_nanos(value) for value in values], _Kind.DURATION)


def _duration_nanos(value: Any) -> int:
    if isinstance(value, np.timedelta64):
        seconds = value.astype("timedelta64[s]")
        rest = (value - seconds).astype("timedelta64[ns]")
        return int(seconds.astype(np.int64)) * 10**9 + int(rest.astype(np.int64))
    micros = (value.days * _DAY + value.seconds) * 10**6 + value.microseconds
    return micros * 1000 + getattr(value, "nanoseconds", 0)


def _hash_tuples(values: list[tuple[Any, ...]]) -> UInt64Array:
    items, starts, lengths = _items(values)
    return hash_bytes(items.astype("<u8").tobytes(), starts, lengths, _Kind.SEQUENCE)


def _hash_sets(values: list[frozenset[Any]]) -> UInt64Array:
    items, starts, lengths = _items(values)
    owners = repeated(np.arange(len(values)), lengths // 8)
    items = items[np.lexsort((items, owners))]
    return hash_bytes(items.astype("<u8").tobytes(), starts, lengths, _Kind.SET)


def _items(values: Sequence[Any]) -> tuple[UInt64Array, Int64Array, Int64Array]:
    """Return the hashes of all items, and where each collection's lie among their bytes."""
    lengths = np.fromiter(map(len, values), dtype=np.int64, count=len(values)) * 8
    items = [item for value in values for item in value]
    return _hash_objects(items), np.cumsum(lengths) - lengths, lengths


@lru_cache(maxsize=16)
def _empty(kind: _Kind) -> np.uint64:
    """Return the hash of a kind that has a single value."""
    nothing = np.zeros(1, dtype=np.int64)
    return np.uint64(hash_bytes(None, nothing, nothing, kind)[0])


def _only(kind: _Kind) -> Callable[[list[Any]], UInt64Array]:
    return lambda values: np.full(len(values), _empty(kind))


_HASH: dict[_Kind, Callable[[list[Any]], UInt64Array]] = {
    _Kind.TEXT: _hash_text,
    _Kind.BYTES: lambda values: _hash_pieces([bytes(value) for value in values], _Kind.BYTES),
    _Kind.NUMBER: _hash_numbers,
    _Kind.LOCAL_TIME: _hash_local,
    _Kind.INSTANT: _hash_instants,
    _Kind.TIME_OF_DAY: _hash_times,
    _Kind.DURATION: _hash_durations,
    _Kind.SEQUENCE: _hash_tuples,
    _Kind.SET: _hash_sets,
    _Kind.UUID: lambda values: _hash_pieces([value.bytes for value in values], _Kind.UUID),
    _Kind.NULL: _only(_Kind.NULL),
    _Kind.NAN: _only(_Kind.NAN),
}
