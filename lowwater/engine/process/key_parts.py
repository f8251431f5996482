"""The parts that the keys of a stage are divided into, and the numbers that each part deals.

A stage whose keys several workers own is in :data:`PARTS` parts, whatever their number: each has
some of the key groups. What a part numbers (keys, windows, timers, the order of births) it numbers
on its own, so that nothing that is stored or emitted depends on what other parts are in the same
operator. A number has its part above bit :data:`SHIFT`, and below it what the part has dealt; in a
stage that is not divided, all are of part 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import KEY_GROUPS, hash_keys
from lowwater.state.key_layout import StoredPlace
from lowwater.state.xxh64 import UInt64Array
from lowwater.time import Int64Array

PARTS = 16
"""How many parts a stage has, and so the most workers that have work. State depends on it."""

SHIFT = 48
"""The part of a number is above this bit."""

BELOW = (1 << SHIFT) - 1
"""The bits of a number that its part has dealt."""

_GROUPS = KEY_GROUPS // PARTS


@final
class Dealt(dict[int, int]):
    """The next number of each part."""

    def __missing__(self, part: int) -> int:
        return part << SHIFT


def parts_of(keys: Sequence[Column]) -> Int64Array:
    """Return the part of each row's key, int64, shape (n,). O(n).

    Args:
        keys: The key columns, at least one.
    """
    return parts_of_hashes(hash_keys(keys))


def parts_of_hashes(hashes: UInt64Array) -> Int64Array:
    """Return the part of each key, int64, by the hash of the key."""
    return (hashes % np.uint64(KEY_GROUPS)).astype(np.int64) // _GROUPS


def place_of_part(stage: str, part: int) -> StoredPlace:
    """Return where a part of a stage is stored."""
    return StoredPlace(stage, part * _GROUPS, _GROUPS)
