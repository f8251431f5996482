"""The numbers by which Spark groups rows, so that key groups are spread evenly over partitions.

Spark sends a row to the partition ``hash(number) mod partitions``, which would put three of the
numbers 0 to 3 into one of two partitions. A key group is therefore represented by a number whose
hash, modulo the number of groups, is the group itself. Groups are then spread evenly over any
number of partitions that divides theirs, and the numbers do not depend on the partitions.
"""

from __future__ import annotations

from functools import cache

_SEED = 42
_BITS = 0xFFFFFFFF


@cache
def numbers_of_groups(key_groups: int) -> tuple[int, ...]:
    """Return the number that represents each key group. O(n log n) expected.

    >>> numbers_of_groups(4)
    (12, 6, 2, 0)
    """
    found: dict[int, int] = {}
    number = 0
    while len(found) < key_groups:
        found.setdefault(spark_hash(number) % key_groups, number)
        number += 1
    return tuple(found[group] for group in range(key_groups))


def spark_hash(number: int) -> int:
    """Return Spark's ``hash`` of an int: Murmur3 of 32 bits, signed.

    >>> spark_hash(0)
    933211791
    """
    key = (number * 0xCC9E2D51) & _BITS
    key = (_rotated(key, 15) * 0x1B873593) & _BITS
    mixed = (_rotated(_SEED ^ key, 13) * 5 + 0xE6546B64) & _BITS
    mixed ^= 4  # the length of an int
    mixed = ((mixed ^ (mixed >> 16)) * 0x85EBCA6B) & _BITS
    mixed = ((mixed ^ (mixed >> 13)) * 0xC2B2AE35) & _BITS
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def _rotated(bits: int, by: int) -> int:
    return ((bits << by) | (bits >> (32 - by))) & _BITS
