"""How keys of a store are laid out, so that what belongs together is a range.

::

    operator   key group   table    rest
    u16, BE    u16, BE     1 byte   fixed-width fields, each in an encoding that keeps its order

Everything of an operator, of one of its key groups, or of a table of a group is one contiguous
range of keys: it can be read, moved or dropped alone. Where ``rest`` begins with an instant, what
has expired is a range too.

Operator 65 535 is the store's own: see :data:`END`.
"""

from __future__ import annotations

from struct import Struct

import numpy as np
from numpy.typing import NDArray

from lowwater.errors import InvalidArgument, describe
from lowwater.time import Int64Array

END = b"\xff\xff"
"""Above every key that a user of a store may write; where a scan of everything stops."""

_OPERATOR = Struct(">H")
_GROUP = Struct(">HH")
_TABLE = Struct(">HHB")
_SIGN = np.uint64(1 << 63)

KeyRange = tuple[bytes, bytes]
"""First key of a range, and the first one behind it."""


def table_prefix(operator: int, group: int, table: int) -> bytes:
    """Return what the keys of a table of a key group begin with.

    Args:
        operator: Number of the operator in its pipeline, 0 to 65 534.
        group: Number of the key group, 0 to 65 535.
        table: Tag of the table, 0 to 255.

    >>> table_prefix(1, 2, 3).hex()
    '0001000203'
    """
    _check("operator", operator, 0xFFFE)
    _check("group", group, 0xFFFF)
    _check("table", table, 0xFF)
    return _TABLE.pack(operator, group, table)


def operator_range(operator: int) -> KeyRange:
    """Return the range of all an operator holds."""
    _check("operator", operator, 0xFFFE)
    return prefix_range(_OPERATOR.pack(operator))


def group_range(operator: int, group: int) -> KeyRange:
    """Return the range of all an operator holds of a key group.

    >>> [key.hex() for key in group_range(1, 0xFFFF)]
    ['0001ffff', '0002']
    """
    _check("operator", operator, 0xFFFE)
    _check("group", group, 0xFFFF)
    return prefix_range(_GROUP.pack(operator, group))


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
