"""Hashes for HyperLogLog: MurmurHash3 (x64, 128 bits) of many values at once.

The functions follow Appleby's public-domain MurmurHash3 with the seed of Apache DataSketches, so
that the same values give the same registers there.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import hash_keys
from lowwater.time import Int64Array

UInt64Array: TypeAlias = NDArray[np.uint64]

_SEED = np.uint64(9001)
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_F1, _F2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_ADD1, _ADD2 = np.uint64(0x52DCE729), np.uint64(0x38495AB5)
_FIVE = np.uint64(5)
_INTEGRAL = 2.0**63
_WORD = 2**64 - 1
_FEW = 16


def hashes(values: NDArray[Any]) -> tuple[UInt64Array, UInt64Array]:
    """Return both halves of the hash of each value, uint64, shape (n,) each. O(n).

    Equal values have equal hashes: integral floats and truth values hash as integers (J-1). Text
    is hashed as its UTF-8 bytes, also when empty. Other Python objects, lists too, are hashed by
    their hash as a key.

    Args:
        values: The values, dtype as in :class:`Column`, without nulls.

    Raises:
        StateError: A value is of a type that cannot be stored.
    """
    if values.dtype == object:
        return _of_objects(values)
    if values.dtype == np.float64:
        return _of_words(_words_of_floats(values))
    return _of_words(values.astype(np.int64, copy=False))


def _words_of_floats(values: NDArray[np.float64]) -> Int64Array:
    """Return integral floats as integers, and the others by their bits; NaN is one value."""
    integral = (np.floor(values) == values) & (values >= -_INTEGRAL) & (values < _INTEGRAL)
    words = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return np.where(integral, np.where(integral, values, 0.0).astype(np.int64), words)


def _of_objects(values: NDArray[Any]) -> tuple[UInt64Array, UInt64Array]:
    kinds = set(map(type, values))
    if kinds <= {str}:
        return _of_texts(values)
    low, high = np.empty(len(values), np.uint64), np.empty(len(values), np.uint64)
    words = [_word(value) for value in values.tolist()]
    is_number = np.fromiter((word is not None for word in words), np.bool_, len(words))
    is_text = np.fromiter((isinstance(value, str) for value in values), np.bool_, len(words))
    some = np.array([word for word in words if word is not None], dtype=np.int64)
    rest = ~is_number & ~is_text
    for rows, hashed in (
        (is_number, partial(_of_words, some)),
        (is_text, partial(_of_texts, values[is_text])),
        (rest, partial(_of_keys, values[rest])),
    ):
        if rows.any():
            low[rows], high[rows] = hashed()
    return low, high


def _of_keys(values: NDArray[Any]) -> tuple[UInt64Array, UInt64Array]:
    keys = [_key(value) for value in values.tolist()]
    return _of_words(hash_keys([Column.of_objects(keys)]).view(np.int64))


def _key(value: Any) -> Any:
    """Return a value that can be a key: equal for equal values, other ones for lists and tuples."""
    if isinstance(value, dict):
        return "dict", frozenset((_key(name), _key(item)) for name, item in value.items())
    if isinstance(value, list):
        return "list", *map(_key, value)
    if isinstance(value, tuple):
        return "tuple", *map(_key, value)
    if isinstance(value, (set, frozenset)):
        return "set", frozenset(map(_key, value))
    return bytes(value) if isinstance(value, bytearray) else value


def _word(value: Any) -> int | None:
    """Return the word that a number is hashed as, as it would be in a column of numbers.

    ``None`` for what is no number, and for numbers that neither int64 nor float64 holds.
    """
    if not isinstance(value, (bool, int, float, Decimal, np.bool_, np.number)):
        return None
    try:
        if value == int(value) and -(2**63) <= value < 2**63:
            return int(value)
    except (ValueError, OverflowError):  # NaN and infinities
        pass
    try:
        about = float(value)
    except OverflowError:
        return None
    if about != value and about == about:
        return None
    return int(_words_of_floats(np.array([about]))[0])


def _of_words(words: Int64Array) -> tuple[UInt64Array, UInt64Array]:
    """Hash integers as their 8 bytes, little-endian."""
    first = _SEED ^ _mixed1(words.view(np.uint64))
    second = np.full(len(words), _SEED)
    return _finished(first, second, np.uint64(8))


def _of_texts(values: NDArray[Any]) -> tuple[UInt64Array, UInt64Array]:
    """Hash texts as their UTF-8 bytes: each distinct one once, block after block of all."""
    try:
        encoded = pa.array(values, pa.large_string()).dictionary_encode()
        texts, indices = encoded.dictionary, np.asarray(encoded.indices)
        starts = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: len(texts) + 1]
        data = texts.buffers()[2]
        held = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    except (pa.ArrowException, UnicodeEncodeError):  # half of a surrogate pair
        plain = [value.encode("utf-8", "surrogatepass") for value in values.tolist()]
        starts = np.concatenate(([0], np.cumsum([len(one) for one in plain]))).astype(np.int64)
        held, indices = np.frombuffer(b"".join(plain), np.uint8), np.arange(len(plain))
    first, second = _of_bytes(held, starts)
    return first[indices], second[indices]


def _of_bytes(data: NDArray[np.uint8], starts: Int64Array) -> tuple[UInt64Array, UInt64Array]:
    """Hash the stretches of bytes between neighbouring starts. O(bytes)."""
    lengths = np.diff(starts)
    first, second = np.full(len(lengths), _SEED), np.full(len(lengths), _SEED)
    padded = np.concatenate((data, np.zeros(16, dtype=np.uint8)))
    rows = np.arange(len(lengths))
    for block in range(int(lengths.max(initial=0)) // 16 + 1):
        left = lengths[rows] - 16 * block
        rows, left = rows[left > 0], left[left > 0]
        if len(rows) <= _FEW:  # long ones: a pass over a few blocks costs as much as one over many
            for row in rows.tolist():
                stop = starts[row] + 16 * block
                rest = data[stop : starts[row + 1]].tobytes()
                first[row], second[row] = _of_rest(rest, int(first[row]), int(second[row]))
            break
        at = (starts[rows] + 16 * block)[:, None] + np.arange(16)
        taken = padded[at]
        taken[np.arange(16) >= left[:, None]] = 0  # what follows belongs to another text
        words = taken.view("<u8").astype(np.uint64)
        h1, h2 = first[rows] ^ _mixed1(words[:, 0]), second[rows]
        full = left >= 16
        # A block that is not full is only mixed in: absent bytes are zero, and mix to zero.
        g1 = (_rotated(h1, 27) + h2) * _FIVE + _ADD1
        k2 = _mixed2(words[:, 1])
        g2 = (_rotated(h2 ^ k2, 31) + g1) * _FIVE + _ADD2
        first[rows] = np.where(full, g1, h1)
        second[rows] = np.where(full, g2, h2 ^ k2)
    return _finished(first, second, lengths.astype(np.uint64))


def _of_rest(rest: bytes, h1: int, h2: int) -> tuple[int, int]:
    """Mix the rest of one text into its hash, block by block."""
    c1, c2 = int(_C1), int(_C2)
    padded = rest + bytes(-len(rest) % 16)
    words = struct.unpack(f"<{len(padded) // 8}Q", padded)
    for at in range(0, len(words), 2):
        k1 = words[at] * c1 & _WORD
        k1 = (k1 << 31 | k1 >> 33) & _WORD
        h1 ^= k1 * c2 & _WORD
        k2 = words[at + 1] * c2 & _WORD
        k2 = (k2 << 33 | k2 >> 31) & _WORD
        is_full = 8 * at + 16 <= len(rest)
        if is_full:
            h1 = (h1 << 27 | h1 >> 37) & _WORD
            h1 = ((h1 + h2) * 5 + 0x52DCE729) & _WORD
        h2 ^= k2 * c1 & _WORD
        if not is_full:
            break
        h2 = (h2 << 31 | h2 >> 33) & _WORD
        h2 = ((h2 + h1) * 5 + 0x38495AB5) & _WORD
    return h1, h2


def _mixed1(word: UInt64Array) -> UInt64Array:
    return _rotated(word * _C1, 31) * _C2


def _mixed2(word: UInt64Array) -> UInt64Array:
    return _rotated(word * _C2, 33) * _C1


def _rotated(word: UInt64Array, bits: int) -> UInt64Array:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


def _finished(
    first: UInt64Array, second: UInt64Array, length: UInt64Array | np.uint64
) -> tuple[UInt64Array, UInt64Array]:
    first, second = first ^ length, second ^ length
    first = first + second
    second = second + first
    first, second = _avalanched(first), _avalanched(second)
    first = first + second
    return first, second + first


def _avalanched(word: UInt64Array) -> UInt64Array:
    word = (word ^ (word >> np.uint64(33))) * _F1
    word = (word ^ (word >> np.uint64(33))) * _F2
    return word ^ (word >> np.uint64(33))
