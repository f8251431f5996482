"""XXH64 of whole columns of values at once.

XXH64 is Yann Collet's hash function of 64 bits (https://xxhash.com, specification 0.1.1). Most
languages have a library for it. All words are read little-endian, so the result does not depend on
the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lowwater.kernels import count_bytes, kernels, plain_xxh64
from lowwater.time import Int64Array

UInt64Array: TypeAlias = NDArray[np.uint64]


def hash_words(words: Sequence[UInt64Array], seed: int = 0) -> UInt64Array:
    """Return the XXH64 of each row of 8-byte words, as if written little-endian. O(n).

    >>> [hex(value) for value in hash_words([np.array([0, 1], np.uint64)])]
    ['0x34c96acdcadb1bbb', '0x9f29cb17a2a49995']

    Args:
        words: Columns of words, uint64, shape (n,), at least one.
        seed: An unsigned integer of 64 bits.
    """
    return plain_xxh64.hash_words(words, seed)


def hash_bytes(data: Any, starts: Int64Array, lengths: Int64Array, seed: int = 0) -> UInt64Array:
    """Return the XXH64 of each of several stretches of a buffer. O(bytes).

    >>> starts, lengths = np.array([0, 0]), np.array([0, 3])
    >>> [hex(value) for value in hash_bytes(b"abc", starts, lengths)]
    ['0xef46db3751d8e999', '0x44bc2cf5ad770999']

    Args:
        data: The buffer, of bytes; ``None`` if no stretch has any.
        starts: Where each stretch begins, int64, shape (n,).
        lengths: How many bytes each has, int64, shape (n,); all lie within the buffer.
        seed: An unsigned integer of 64 bits.
    """
    text: NDArray[np.uint8] = np.frombuffer(b"" if data is None else data, dtype=np.uint8)
    if len(lengths):
        count_bytes(int(lengths.max()))
    return kernels().hash_bytes(text, starts, lengths, seed)
