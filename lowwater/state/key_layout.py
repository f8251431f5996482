"""How keys of a store are laid out, so that what belongs together is a range.

::

    stage                          key group   table    rest
    8 bytes: a hash of its name    u16, BE     1 byte   fields, each in an encoding with its order

Everything of a stage, of one of its key groups, or of a table of a group is one contiguous range of
keys: it can be read, moved or dropped alone. Where ``rest`` begins with an instant, what has
expired is a range too.

A stage is known by its name, so that a pipeline may gain or lose other stages. The hash is part of
the format; that no two stages of a pipeline have the same one is checked when a run begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import final

import numpy as np
from numpy.typing import NDArray

from lowwater.errors import InvalidArgument, describe
from lowwater.state.formats import damaged
from lowwater.time import Int64Array

END = b"\xff\xff"
"""Above every key that a user of a store may write; where a scan of everything stops."""

_GROUP = Struct(">H")
_TABLE = Struct(">HB")
_STAGE = b"\x01"
_HASH_BYTES = 7
_SIGN = np.uint64(1 << 63)

KeyRange = tuple[bytes, bytes]
"""First key of a range, and the first one behind it."""

HEAD_BYTES = len(_STAGE) + _HASH_BYTES + _TABLE.size
"""Length of what comes before ``rest``."""


def stage_prefix(stage: str) -> bytes:
    """Return what the keys of a stage begin with, for the stage's name.

    >>> stage_prefix("stage 1").hex()
    '0161b528f57bd91a'
    """
    return _STAGE + blake2b(stage.encode(), digest_size=_HASH_BYTES).digest()


@lru_cache(maxsize=4096)
def table_prefix(stage: str, group: int, table: int) -> bytes:
    """Return what the keys of a table of a key group begin with.

    Args:
        stage: The stage's name.
        group: Number of the key group, 0 to 65 535.
        table: Tag of the table, 0 to 255.

    >>> table_prefix("stage 1", 2, 3).hex()
    '0161b528f57bd91a000203'
    """
    _check("group", group, 0xFFFF)
    _check("table", table, 0xFF)
    return stage_prefix(stage) + _TABLE.pack(group, table)


def split_key(key: bytes) -> tuple[bytes, int, int]:
    """Return (prefix of the stage, group, table) of a key.

    Raises:
        StateError: It is no key of a stage.
    """
    if len(key) < HEAD_BYTES or key[:1] != _STAGE:
        raise damaged("the key of a stored row", f"it is {key!r}")
    at = len(_STAGE) + _HASH_BYTES
    group, table = _TABLE.unpack_from(key, at)
    return key[:at], group, table


def stage_range(stage: str) -> KeyRange:
    """Return the range of all a stage holds."""
    return prefix_range(stage_prefix(stage))


def group_range(stage: str, group: int) -> KeyRange:
    """Return the range of all a stage holds of a key group.

    >>> [key.hex() for key in group_range("stage 1", 0x1FF)]
    ['0161b528f57bd91a01ff', '0161b528f57bd91a02']
    """
    _check("group", group, 0xFFFF)
    return prefix_range(stage_prefix(stage) + _GROUP.pack(group))


@final
@dataclass(frozen=True, slots=True)
class StoredPlace:
    """Where rows are in a store.

    Args:
        stage: The stage's name.
        first: The first of its key groups.
        count: How many there are.
    """

    stage: str
    first: int = 0
    count: int = 1

    def prefix(self, table: int, group: int | None = None) -> bytes:
        """Return what the keys of a table begin with; by default those of the first group."""
        return table_prefix(self.stage, self.first if group is None else group, table)

    @property
    def groups(self) -> range:
        """The key groups."""
        return range(self.first, self.first + self.count)

    def check_groups(self, stored: int, what: str) -> None:
        """Raise ``StateError`` unless something was stored in as many key groups."""
        if stored != self.count:
            raise damaged(what, f"it is in {stored} key groups, not {self.count}")


def prefix_range(prefix: bytes) -> KeyRange:
    r"""Return the range of the keys that begin with a prefix.

    >>> prefix_range(b"a\xff")
    (b'a\xff', b'b')
    """
    trimmed = prefix.rstrip(b"\xff")
    if not trimmed:
        return prefix, END
    return prefix, trimmed[:-1] + bytes([trimmed[-1] + 1])


def below(prefix: bytes, bound: int) -> KeyRange:
    """Return the range of the keys whose first field after a prefix is an int64 below a bound.

    >>> start, stop = below(b"w", 0)
    >>> start <= b"w" + encode_int64(np.array([-1])).tobytes() < stop
    True
    """
    return prefix, prefix + encode_int64(np.array([bound], dtype=np.int64)).tobytes()


def encode_int64(values: Int64Array) -> NDArray[np.uint8]:
    """Return int64 values as bytes that sort as the values do: big-endian, the sign flipped.

    Args:
        values: int64, shape (n,).

    Returns:
        uint8, shape (n, 8).

    >>> encode_int64(np.array([-1, 0])).tobytes().hex(" ", 8)
    '7fffffffffffffff 8000000000000000'
    """
    flipped = np.ascontiguousarray(values, dtype=np.int64).view(np.uint64) ^ _SIGN
    return flipped.astype(">u8").view(np.uint8).reshape(-1, 8)


def decode_int64(encoded: NDArray[np.uint8]) -> Int64Array:
    """Return the values of :func:`encode_int64`.

    Args:
        encoded: uint8, shape (n, 8).
    """
    flat = np.ascontiguousarray(encoded).reshape(-1)
    return (flat.view(">u8").astype(np.uint64) ^ _SIGN).view(np.int64)


def _check(name: str, number: int, most: int) -> None:
    if not 0 <= number <= most:
        raise InvalidArgument(f"{describe(name, number)} must be from 0 to {most}")
