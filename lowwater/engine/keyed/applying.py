"""Applies a bundle that inserts and retracts records to the records that are kept (S-C1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.keyed.operator import record_hashes, unknown_record
from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.steps import Bundle
from lowwater.state.arrays import mixed
from lowwater.time import Int64Array


def apply_changes(
    records: KeyedRecords,
    bundle: Bundle,
    keys: Int64Array,
    insert: Callable[[Int64Array, Int64Array], None],
    where: str,
) -> None:
    """Insert records and retract records.

    A record that is retracted in the bundle it comes in does not count: of equal ones, the last to
    come goes first.

    Args:
        records: The records that are kept, with hashes.
        bundle: The changes, with signs.
        keys: The id of each change's key, int64, shape (n,).
        insert: Inserts the records at some places of the bundle, given (places, their hashes).
        where: The method, for messages.

    Raises:
        DataError: A record is retracted that never came.
    """
    seen = seen_by_users(bundle)
    hashes = record_hashes(seen)
    assert bundle.signs is not None
    left = uncancelled(mixed([keys, bundle.times, hashes]).view(np.int64), bundle.signs)
    retracted = left[bundle.signs[left] < 0]
    inserted = left[bundle.signs[left] > 0]
    retracted = _retract(records, bundle, keys, hashes, retracted)
    if inserted.size:
        insert(inserted, hashes[inserted])
    retracted = _retract(records, bundle, keys, hashes, retracted)
    if retracted.size:
        raise unknown_record(seen, retracted, where)


def _retract(
    records: KeyedRecords,
    bundle: Bundle,
    keys: Int64Array,
    hashes: Int64Array,
    places: Int64Array,
) -> Int64Array:
    """Remove records; return the places of those that are not here."""
    if not places.size:
        return places
    rows = records.equal_rows(keys[places], bundle.times[places], hashes[places], newest=True)
    records.remove(rows[rows >= 0])
    return places[rows < 0]


def seen_by_users(bundle: Bundle) -> Bundle:
    """Return a bundle without the columns that users never see."""
    values = {n: column for n, column in bundle.values.items() if not n.startswith(HIDDEN)}
    return replace(bundle, values=values)


def uncancelled(same: Int64Array, signs: NDArray[np.int8]) -> Int64Array:
    """Return which changes are left once each retraction has met the last equal insert before it.

    >>> uncancelled(np.array([1, 1, 2, 1]), np.array([1, 1, -1, -1]))
    array([0, 2])

    Args:
        same: What is equal for equal records, int64, shape (n,).
        signs: +1 for inserts, -1 for retractions.
    """
    left = np.argsort(same, kind="stable")
    while len(left) > 1:
        # A pair of neighbours of one record, an insert and then a retraction.
        meets = (same[left][1:] == same[left][:-1]) & (signs[left][:-1] > 0) & (signs[left][1:] < 0)
        if not meets.any():
            break
        at = np.flatnonzero(meets)
        left = np.delete(left, np.concatenate((at, at + 1)))
    return np.sort(left)
